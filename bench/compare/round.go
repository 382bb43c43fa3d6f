package main

import (
	"encoding/json"
	"time"
)

// side is what one broker did in a round; the zero value is a side that was not measured.
type side struct {
	Raw   json.RawMessage `json:"report,omitempty"` // amqpload's, whole
	Error string          `json:"error,omitempty"`
	Load  float64         `json:"load_average"` // at the end

	report *loadReport
}

// round is one run of each broker, one after the other.
type round struct {
	Workload  string    `json:"workload"`
	Arguments []string  `json:"arguments"`
	Number    int       `json:"round"`
	Started   time.Time `json:"started"`
	Warren    *side     `json:"warren,omitempty"`
	Peer      *side     `json:"peer,omitempty"`
	SyncTimes []float64 `json:"sync_4k_ms"`
}

// fault tells why the round makes its workload void; "" if it does not.
func (r *round) fault(peer string) string {
	for _, s := range []struct {
		name string
		*side
	}{{"Warren", r.Warren}, {peer, r.Peer}} {
		switch {
		case s.side == nil:
		case s.Error != "":
			return s.name + ": " + s.Error
		case s.report == nil:
			return s.name + ": no report"
		case s.report.faults() != "":
			return s.name + ": " + s.report.faults()
		}
	}
	return ""
}

// pairOf reads a figure from both sides.
func (r *round) pairOf(f figure) (p pair) {
	if r.Warren != nil && r.Warren.report != nil {
		p.warren, p.warrenOK = f.read(r.Warren.report)
	}
	if r.Peer != nil && r.Peer.report != nil {
		p.peer, p.peerOK = f.read(r.Peer.report)
	}
	return p
}
