package server

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
)

// TestHeartbeats: with T = 1 s ours come every half second; a peer that sends some stays, and one that falls silent is cut
// off after two to three seconds without a word.
func TestHeartbeats(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, func(k *amqp.ConnectionTuneOk) { k.Heartbeat = 1 })
	begin, beats := time.Now(), 0
	for time.Since(begin) < 3500*time.Millisecond {
		w.SetReadDeadline(testDeadline())
		var b [amqp.FrameOverhead]byte
		for i := range b {
			c, err := w.r.ReadByte()
			if err != nil {
				t.Fatal(err)
			}
			b[i] = c
		}
		if string(b[:]) != string(amqp.AppendHeartbeat(nil)) {
			t.Fatal(b)
		}
		beats++
		w.raw(amqp.AppendHeartbeat(nil))
	}
	if beats < 5 || beats > 9 {
		t.Errorf("%d heartbeats in 3.5 s", beats)
	}
	begin = time.Now()
	if code, _ := w.closed(); code != 0 {
		t.Errorf("closed with %d", code)
	}
	if d := time.Since(begin); d < 1900*time.Millisecond || d > 4*time.Second {
		t.Errorf("a silent peer was cut off after %v", d)
	}
}

// TestCloseTimeout: a peer that does not answer connection.close is cut off after an interval of its heartbeats.
func TestCloseTimeout(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, func(k *amqp.ConnectionTuneOk) { k.Heartbeat = 1 })
	w.send(1, &amqp.ChannelOpen{})
	begin := time.Now()
	for {
		if _, err := w.frame(); err != nil {
			break
		}
	}
	if d := time.Since(begin); d < 900*time.Millisecond || d > 3*time.Second {
		t.Errorf("cut off after %v", d)
	}
}
