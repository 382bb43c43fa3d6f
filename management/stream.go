package management

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Streams is what the API asks of streams beside what Broker knows of queues. Errors are *Refusal, or failures.
type Streams interface {
	// StreamStatus tells how a stream is.
	StreamStatus(as User, vhost, queue string) (StreamStatus, error)
	// StreamOffsets are the committed offsets, by name.
	StreamOffsets(as User, vhost, queue string) ([]StreamOffset, error)
	// SetStreamOffset moves one; to is an integer, or one of x-stream-offset's texts.
	SetStreamOffset(as User, vhost, queue, name string, to any) (offset uint64, err error)
	// ForgetStreamOffset removes one.
	ForgetStreamOffset(as User, vhost, queue, name string) error
	// ReadStream reads messages.
	ReadStream(as User, q StreamRead) (StreamPage, error)
	// SkipStreamDamage has readers of this node pass over damage below an offset; 0 undoes it.
	SkipStreamDamage(as User, vhost, queue string, to uint64) error
	// RecoverStream has a stream that lost its end go on with what it has, and returns the offset that comes next.
	RecoverStream(as User, vhost, queue string) (next uint64, err error)
	// StreamFigures are for metrics: totals, and all streams of the node; with times, lags in time are among them.
	StreamFigures(times bool) (StreamTotals, []StreamFigure)
}

// StreamQueue is what only streams have among queues.
type StreamQueue struct {
	Leader          string
	Members, Online []string
	Segments        int
	Readers         int // of this node
	First, Next     uint64
	Slot            string // the Name of the Slot in which it lies
}

// StreamStatus is a stream at one moment.
type StreamStatus struct {
	First    uint64         `json:"first_offset"`
	Next     uint64         `json:"next_offset"`
	Octets   int64          `json:"bytes"`
	Segments int            `json:"segments"`
	LastTime int64          `json:"last_timestamp_ms"` // 0: there is nothing in it
	Readers  int            `json:"readers"`
	Names    int            `json:"names"`
	Leader   string         `json:"leader"`
	Damage   []StreamDamage `json:"damage"`
	SkipTo   uint64         `json:"skip_damage_below"`
	Broken   string         `json:"broken,omitempty"`  // what its end lacks
	Mending  string         `json:"mending,omitempty"` // what it lacks is fetched from other members
}

// StreamDamage is what cannot be read: offsets from From up to, without, To.
type StreamDamage struct {
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// StreamOffset is a committed offset.
type StreamOffset struct {
	Name       string `json:"name"`
	Offset     uint64 `json:"offset"` // of the next message to read
	Lag        uint64 `json:"lag"`    // messages
	LagTime    *int64 `json:"lag_ms"` // null: unknown
	At         string `json:"committed_at,omitempty"`
	Online     bool   `json:"online"`
	Generation uint64 `json:"generation"`
}

// StreamRead says what to read of a stream. From and To are what SetStreamOffset takes; To is where to stop, nil: at the end.
type StreamRead struct {
	VHost, Queue string
	From, To     any
	Filter       []string
	Unfiltered   bool
	Count        int
	MaxBytes     int // when the bodies are more in sum, no further message is read
}

// StreamPage is what was read, and where to go on.
type StreamPage struct {
	Messages []StreamMessage
	Next     uint64
	End      bool // there is nothing more up to To
	// Jumped are messages that retention removed before they were read.
	Jumped uint64
}

// StreamMessage is a message with its place.
type StreamMessage struct {
	Message
	Offset uint64
	Time   int64 // milliseconds since 1970
}

// StreamTotals are totals since the start, and memory in octets.
type StreamTotals struct {
	Jumped, Skipped, Damaged, Unreadable, Fenced uint64
	Mended, Copied                               uint64
	Memory                                       uint64
	BlockReads                                   uint64
}

// StreamFigure is a stream as metrics show it.
type StreamFigure struct {
	VHost, Queue string
	First, Next  uint64
	Octets       uint64
	Segments     int
	Lacks        bool // this node's replica lacks something
	Offsets      []StreamOffset
}

// streamRoutes are the paths of streams.
func streamRoutes() []route {
	return []route{
		on("/warren/streams/:vhost/:queue", enter, get((*API).streamStatus)),
		on("/warren/streams/:vhost/:queue/offsets", enter, get((*API).streamOffsets)),
		on("/warren/streams/:vhost/:queue/offsets/:name", enter, verbs{}.put((*API).setStreamOffset).delete((*API).forgetStreamOffset)),
		on("/warren/streams/:vhost/:queue/messages", enter, post((*API).readStream)),
		on("/warren/streams/:vhost/:queue/skip", admin, verbs{}.put((*API).skipStreamDamage)),
		on("/warren/streams/:vhost/:queue/recover", admin, post((*API).recoverStream)),
	}
}

// streamsOf is what answers for streams; without any there is nothing at these paths.
func (a *API) streamsOf(r *request) (Streams, bool) {
	if a.Streams == nil {
		a.missing(r.w)
	}
	return a.Streams, a.Streams != nil
}

// refuseStream is refuse with the text, where the caller cannot guess it.
func (a *API) refuseStream(r *request, err error) {
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Code == 540 {
		a.bad(r.w, refusal.Text)
		return
	}
	a.refuse(r.w, err)
}

func (a *API) streamStatus(r *request) {
	if s, ok := a.streamsOf(r); ok {
		status, err := s.StreamStatus(r.user, r.vars["vhost"], r.vars["queue"])
		if err != nil {
			a.refuseStream(r, err)
			return
		}
		status.Damage = list(status.Damage)
		a.answer(r, status)
	}
}

func (a *API) streamOffsets(r *request) {
	if s, ok := a.streamsOf(r); ok {
		offsets, err := s.StreamOffsets(r.user, r.vars["vhost"], r.vars["queue"])
		if err != nil {
			a.refuseStream(r, err)
			return
		}
		for _, one := range a.others(r, question{Method: http.MethodGet, Path: r.URL.EscapedPath(), User: r.user}) { // where the names' consumers may be
			var theirs []StreamOffset
			if one.reply == nil || one.Status != http.StatusOK || json.Unmarshal(one.Body, &theirs) != nil {
				continue
			}
			for _, o := range theirs {
				if i := slices.IndexFunc(offsets, func(x StreamOffset) bool { return x.Name == o.Name }); i >= 0 {
					offsets[i].Online = offsets[i].Online || o.Online
				}
			}
		}
		sendAll(a, r, false, offsets, func(o StreamOffset) (vhost, name string) { return "", o.Name })
	}
}

// streamPlace reads a place in a stream: an integer, or a text.
func (a *API) streamPlace(r *request, body map[string]any, name string) (place any, ok bool) {
	switch v := body[name].(type) {
	case string:
		return v, true
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n, true
		}
	}
	a.bad(r.w, fmt.Sprintf("%s is no offset: an integer, first, last, next, an interval such as 1h, or a time such as 2026-01-02T15:04:05Z", name))
	return nil, false
}

func (a *API) setStreamOffset(r *request) {
	s, ok := a.streamsOf(r)
	if !ok {
		return
	}
	body, ok := a.body(r)
	if !ok || !a.present(r, body, "to") {
		return
	}
	to, ok := a.streamPlace(r, body, "to")
	if !ok {
		return
	}
	offset, err := s.SetStreamOffset(r.user, r.vars["vhost"], r.vars["queue"], r.vars["name"], to)
	if err != nil {
		a.refuseStream(r, err)
		return
	}
	a.answer(r, map[string]uint64{"offset": offset})
}

func (a *API) forgetStreamOffset(r *request) {
	if s, ok := a.streamsOf(r); ok {
		a.done(r, s.ForgetStreamOffset(r.user, r.vars["vhost"], r.vars["queue"], r.vars["name"]))
	}
}

type streamMessageView struct {
	Offset    uint64 `json:"offset"`
	Timestamp string `json:"timestamp"` // of the chunk
	messageView
}

type streamPageView struct {
	Messages []streamMessageView `json:"messages"`
	Next     uint64              `json:"next_offset"`
	End      bool                `json:"end"`
	Jumped   uint64              `json:"removed_by_retention"`
}

// readStream reads messages of a stream, without any effect on it.
func (a *API) readStream(r *request) {
	s, ok := a.streamsOf(r)
	if !ok {
		return
	}
	body, ok := a.body(r)
	if !ok || !a.present(r, body, "from") {
		return
	}
	q := StreamRead{VHost: r.vars["vhost"], Queue: r.vars["queue"], Count: 100, MaxBytes: maxFetched / 8}
	if q.From, ok = a.streamPlace(r, body, "from"); !ok {
		return
	}
	if body["to"] != nil {
		if q.To, ok = a.streamPlace(r, body, "to"); !ok {
			return
		}
	}
	if v, given := body["count"]; given {
		if q.Count, ok = a.integer(r, v); !ok {
			return
		}
	}
	truncate := -1
	if v, given := body["truncate"]; given {
		if truncate, ok = a.integer(r, v); !ok {
			return
		}
	}
	switch v := body["filter"].(type) {
	case nil:
	case string:
		q.Filter = []string{v}
	case []any:
		for _, x := range v {
			text, ok := x.(string)
			if !ok {
				a.bad(r.w, []any{"not_string", "filter"})
				return
			}
			q.Filter = append(q.Filter, text)
		}
	default:
		a.bad(r.w, []any{"not_string", "filter"})
		return
	}
	q.Unfiltered, _ = body["match_unfiltered"].(bool)
	page, err := s.ReadStream(r.user, q)
	if err != nil {
		a.refuseStream(r, err)
		return
	}
	view := streamPageView{Messages: make([]streamMessageView, len(page.Messages)), Next: page.Next, End: page.End, Jumped: page.Jumped}
	for i := range page.Messages {
		m := &page.Messages[i]
		view.Messages[i] = streamMessageView{Offset: m.Offset, Timestamp: time.UnixMilli(m.Time).UTC().Format("2006-01-02T15:04:05.000Z07:00"),
			messageView: viewMessage(&m.Message, truncate, body["encoding"] != "base64")}
	}
	r.w.Header().Set("Content-Type", "application/json")
	r.w.Write(encode(view))
}

func (a *API) skipStreamDamage(r *request) {
	s, ok := a.streamsOf(r)
	if !ok {
		return
	}
	body, ok := a.body(r)
	if !ok || !a.present(r, body, "below") {
		return
	}
	below, ok := whole(body["below"], 1<<63-1)
	if !ok {
		a.bad(r.w, []any{"not_integer", "below"})
		return
	}
	a.done(r, s.SkipStreamDamage(r.user, r.vars["vhost"], r.vars["queue"], uint64(below)))
}

func (a *API) recoverStream(r *request) {
	if s, ok := a.streamsOf(r); ok {
		next, err := s.RecoverStream(r.user, r.vars["vhost"], r.vars["queue"])
		if err != nil {
			a.refuseStream(r, err)
			return
		}
		a.answer(r, map[string]uint64{"next_offset": next})
	}
}

// streamMetrics are those of streams, all our own. Single streams and names are shown if perObject.
func (a *API) streamMetrics(e *exposition, perObject bool) {
	if a.Streams == nil {
		return
	}
	t, figures := a.Streams.StreamFigures(perObject)
	e.one("warren_streams", gauge, "Streams", float64(len(figures)))
	var octets, segments, lag, lacking float64
	for i := range figures {
		octets += float64(figures[i].Octets)
		segments += float64(figures[i].Segments)
		lacking += truth(figures[i].Lacks)
		for _, o := range figures[i].Offsets {
			lag = max(lag, float64(o.Lag))
		}
	}
	e.one("warren_stream_bytes", gauge, "Size of the segments of all streams", octets)
	e.one("warren_stream_segments", gauge, "Segments of all streams", segments)
	e.one("warren_stream_memory_bytes", gauge, "Memory that readers of streams share", float64(t.Memory))
	e.one("warren_stream_block_reads_total", counter, "Blocks of streams that were read from disk", float64(t.BlockReads))
	e.one("warren_stream_max_lag_messages", gauge, "Messages that the named consumer with the most of them has not read", lag)
	e.one("warren_stream_jumped_messages_total", counter, "Messages that retention removed before a consumer had read them", float64(t.Jumped))
	e.one("warren_stream_replicas_lacking", gauge, "Streams of which this node's replica lacks something, or is damaged", lacking)
	e.one("warren_stream_mended_total", counter, "Times that another member gave a replica of this node what it lacked", float64(t.Mended))
	e.one("warren_stream_copied_bytes_total", counter, "Octets of segments that other members gave", float64(t.Copied))
	e.one("warren_stream_damage_found_total", counter, "Times that a reader met damage", float64(t.Damaged))
	e.one("warren_stream_skipped_messages_total", counter, "Messages in damage that consumers passed over, as they were told to", float64(t.Skipped))
	e.one("warren_stream_unreadable_messages_total", counter, "Messages that AMQP 0-9-1 cannot carry, and consumers did not get", float64(t.Unreadable))
	e.one("warren_stream_fenced_consumers_total", counter, "Consumers that were cancelled because a newer one of their name came, or an operator moved its offset", float64(t.Fenced))
	if !perObject {
		return
	}
	each := func(name, help string, value func(*StreamFigure) float64) {
		e.family(name, gauge, help)
		for i := range figures {
			e.sample("", labels("vhost", figures[i].VHost, "queue", figures[i].Queue), value(&figures[i]))
		}
	}
	each("warren_stream_first_offset", "The oldest offset of a stream", func(f *StreamFigure) float64 { return float64(f.First) })
	each("warren_stream_next_offset", "The offset that comes next in a stream", func(f *StreamFigure) float64 { return float64(f.Next) })
	names := func(name, help string, value func(*StreamOffset) (float64, bool)) {
		e.family(name, gauge, help)
		for i := range figures {
			for j := range figures[i].Offsets {
				o := &figures[i].Offsets[j]
				if v, ok := value(o); ok {
					e.sample("", labels("vhost", figures[i].VHost, "queue", figures[i].Queue, "consumer_name", o.Name), v)
				}
			}
		}
	}
	names("warren_stream_consumer_offset", "The offset that a named consumer reads next", func(o *StreamOffset) (float64, bool) { return float64(o.Offset), true })
	names("warren_stream_consumer_lag_messages", "Messages that a named consumer has not read", func(o *StreamOffset) (float64, bool) { return float64(o.Lag), true })
	names("warren_stream_consumer_lag_seconds", "Time between what a named consumer reads next and the last message", func(o *StreamOffset) (float64, bool) {
		if o.LagTime == nil {
			return 0, false
		}
		return float64(*o.LagTime) / 1000, true
	})
}
