package server

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

// TestShortHeader: a content header may be too short for its property flags.
func TestShortHeader(t *testing.T) {
	for _, size := range []int{12, 13} {
		n := start(t, nil)
		w := n.open(t, nil)
		b := amqp.AppendMethodFrame(nil, 1, &amqp.BasicPublish{RoutingKey: []byte("q")})
		header := make([]byte, size)
		header[1] = amqp.ClassBasic
		w.raw(amqp.AppendFrame(b, amqp.FrameHeader, 1, header))
		if code, _ := w.closed(); code != amqp.InternalError {
			t.Errorf("header of %d octets: %d", size, code)
		}
	}
}

// TestContentOrder: frames of a content in another order than theirs (AMQP 0-9-1 §4.2.6).
func TestContentOrder(t *testing.T) {
	publish := amqp.AppendMethodFrame(nil, 1, &amqp.BasicPublish{RoutingKey: []byte("q")})
	header, _ := amqp.AppendHeader(nil, 10, &amqp.PropertyList{})
	head := amqp.AppendFrame(nil, amqp.FrameHeader, 1, header)
	body := amqp.AppendFrame(nil, amqp.FrameBody, 1, make([]byte, 5))
	long := amqp.AppendFrame(nil, amqp.FrameBody, 1, make([]byte, 11))
	huge, _ := amqp.AppendHeader(nil, 512<<20+1, &amqp.PropertyList{})
	weighted := append([]byte(nil), header...)
	weighted[3] = 1
	other := append([]byte(nil), header...)
	other[1] = 50
	for _, c := range []struct {
		name  string
		bytes [][]byte
		code  uint16
	}{
		{"header first", [][]byte{head}, amqp.UnexpectedFrame},
		{"body first", [][]byte{body}, amqp.UnexpectedFrame},
		{"method twice", [][]byte{publish, publish}, amqp.UnexpectedFrame},
		{"body without header", [][]byte{publish, body}, amqp.UnexpectedFrame},
		{"header twice", [][]byte{publish, head, head}, amqp.UnexpectedFrame},
		{"method in the body", [][]byte{publish, head, body, publish}, amqp.UnexpectedFrame},
		{"too much body", [][]byte{publish, head, long}, amqp.FrameError},
		{"too much body at the end", [][]byte{publish, head, body, long}, amqp.FrameError},
		{"announced beyond reason", [][]byte{publish, amqp.AppendFrame(nil, amqp.FrameHeader, 1, huge)}, amqp.FrameError},
		{"weight", [][]byte{publish, amqp.AppendFrame(nil, amqp.FrameHeader, 1, weighted)}, amqp.UnexpectedFrame},
		{"class", [][]byte{publish, amqp.AppendFrame(nil, amqp.FrameHeader, 1, other)}, amqp.UnexpectedFrame},
		{"channel", [][]byte{amqp.AppendFrame(nil, amqp.FrameBody, 7, nil)}, amqp.UnexpectedFrame},
		{"empty body frames are none", [][]byte{publish, head, body, amqp.AppendFrame(nil, amqp.FrameBody, 1, nil), body,
			amqp.AppendMethodFrame(nil, 1, &amqp.ChannelFlowOk{})}, amqp.CommandInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := start(t, nil)
			for _, whole := range []bool{true, false} {
				w := n.open(t, nil)
				if whole {
					w.raw(bytes.Join(c.bytes, nil))
				} else {
					for _, b := range c.bytes {
						w.raw(b)
					}
				}
				if code, text := w.closed(); code != c.code {
					t.Errorf("%d %s, not %d", code, text, c.code)
				}
			}
		})
	}
}

// TestInterleaved publishes on many channels at once, frame by frame in turn, bodies of all kinds.
func TestInterleaved(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, nil)
	w.declare("q")
	const channels = 50
	var frames [channels][][]byte
	for i := range channels {
		number := uint16(i + 1)
		if number > 1 {
			w.send(number, &amqp.ChannelOpen{})
			w.expect(number, &amqp.ChannelOpenOk{})
		}
		body := bytes.Repeat([]byte{byte(i)}, i*i*97)
		b := publishFrames(number, "q", &amqp.PropertyList{CorrelationID: fmt.Sprint(i)}, body, 9000)
		for len(b) > 0 {
			_, size, _ := amqp.ParseFrame(b, 0)
			frames[i] = append(frames[i], b[:size])
			b = b[size:]
		}
	}
	for more := true; more; {
		more = false
		for i := range frames {
			if len(frames[i]) > 0 {
				w.raw(frames[i][0])
				frames[i] = frames[i][1:]
				more = true
			}
		}
	}
	w.sync()
	if got := w.ready("q"); got != channels {
		t.Fatalf("%d messages arrived", got)
	}
	w.send(1, &amqp.BasicConsume{Queue: "q", NoAck: true})
	w.expect(1, &amqp.BasicConsumeOk{})
	for range channels {
		w.expect(1, &amqp.BasicDeliver{})
		header, body := w.content(1)
		h, err := amqp.ParseHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		id, _ := h.CorrelationID()
		var i int
		fmt.Sscan(string(id), &i)
		if !bytes.Equal(body, bytes.Repeat([]byte{byte(i)}, i*i*97)) {
			t.Errorf("message %d came as %d octets of %v", i, len(body), body[:min(4, len(body))])
		}
	}
}

// TestSizes sends bodies around every border through frames of every size, over TCP.
func TestSizes(t *testing.T) {
	for _, c := range []struct{ server, publisher, consumer uint32 }{
		{131072, 131072, 131072}, {131072, 4096, 131072}, {131072, 131072, 4096}, {131072, 8192, 20000},
		{1 << 20, 1 << 20, 131072}, {1 << 20, 131072, 1 << 20}, {0, 0, 0}, {0, 0, 8192}, {0, 1 << 20, 0},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			n := start(t, func(o *Options) { o.FrameMax = c.server })
			checkSizes(t, n.open(t, func(k *amqp.ConnectionTuneOk) { k.FrameMax = c.publisher }),
				n.open(t, func(k *amqp.ConnectionTuneOk) { k.FrameMax = c.consumer }), c.publisher)
		})
	}
}

// checkSizes sends bodies around every border from w to r, by deliveries and by basic.get.
func checkSizes(t *testing.T, w, r *wire, frameMax uint32) {
	sizes := []int{0, 1, 100, 4088, 4089, 8184, 8185, 16 << 10, 32 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, 131064, 131065, 131072, 131073, 1<<20 + 3, 3 << 20}
	fill := func(i, size int) []byte {
		b := make([]byte, size)
		for j := range b {
			b[j] = byte(i + j*7 + j>>8)
		}
		return b
	}
	for _, get := range []bool{false, true} {
		name := fmt.Sprint("sizes", get)
		w.declare(name)
		if !get {
			r.send(1, &amqp.BasicConsume{Queue: name, NoAck: true})
			r.expect(1, &amqp.BasicConsumeOk{})
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i, size := range sizes {
				w.raw(publishFrames(1, name, &amqp.PropertyList{AppID: "test"}, fill(i, size), frameMax))
			}
			w.sync()
		}()
		if get {
			<-done
		}
		for i, size := range sizes {
			if get {
				r.send(1, &amqp.BasicGet{Queue: name, NoAck: true})
				r.expect(1, &amqp.BasicGetOk{})
			} else {
				r.expect(1, &amqp.BasicDeliver{})
			}
			if _, body := r.content(1); !bytes.Equal(body, fill(i, size)) {
				t.Fatalf("get %v: %d octets came as %d others", get, size, len(body))
			}
		}
		<-done
	}
}

// TestIncompleteContents: what one connection leaves unfinished on its channels is bounded.
func TestIncompleteContents(t *testing.T) {
	n := startBound(t, 32<<20, func(o *Options) { o.MaxMessageSize = 1 << 20 })
	w := n.open(t, nil)
	for i := range 100 {
		number := uint16(i + 2)
		b := amqp.AppendMethodFrame(nil, number, &amqp.ChannelOpen{})
		content := publishFrames(number, "q", &amqp.PropertyList{}, make([]byte, 1<<20), 131072)
		b = append(b, content[:len(content)-(1<<20%131064+amqp.FrameOverhead)]...) // all but its last frame
		w.SetWriteDeadline(testDeadline())
		if _, err := w.Write(b); err != nil {
			break
		}
		if used := n.pool.InUse(); used > 16<<20 {
			t.Fatalf("%d octets of incomplete contents", used)
		}
	}
	for range 100 {
		f, err := w.frame()
		if err != nil {
			return // reset: what we wrote was not read
		}
		if m, _ := amqp.DecodeMethod(f.Payload); f.Channel == 0 {
			if m := m.(*amqp.ConnectionClose); m.ReplyCode != amqp.ResourceError {
				t.Errorf("%d %s", m.ReplyCode, m.ReplyText)
			}
			return
		}
	}
	t.Error("not closed")
}

// TestLargeHeaders: a header larger than what is copied, with and without a body behind it.
func TestLargeHeaders(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, nil)
	w.declare("q")
	for _, size := range []int{0, 1, 100000, 200000} {
		l := amqp.PropertyList{Headers: amqp.Table(nil).AppendBytes("large", make([]byte, 40000))}
		w.raw(publishFrames(1, "q", &l, make([]byte, size), 131072))
		w.send(1, &amqp.BasicGet{Queue: "q", NoAck: true})
		w.expect(1, &amqp.BasicGetOk{})
		header, body := w.content(1)
		if h, err := amqp.ParseHeader(header); err != nil || len(header) < 40000 || len(body) != size {
			t.Errorf("%v, header of %d octets, body of %d, not %d: %v", h.Class, len(header), len(body), size, err)
		}
	}
}
