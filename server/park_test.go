package server

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
)

// numbered is n publishes to q of size octets, numbered from first on.
func numbered(channel uint16, q string, first, n, size int) (b []byte) {
	body := make([]byte, size)
	for i := range n {
		binary.BigEndian.PutUint32(body, uint32(first+i))
		b = append(b, publishFrames(channel, q, &amqp.PropertyList{}, body, 131072)...)
	}
	return b
}

// fill publishes to q until the publisher is kept waiting, and returns how many went out whole and what of the next one
// is still to be written.
func (w *wire) fill(q string, size int) (sent int, rest []byte) {
	w.Helper()
	for {
		b := numbered(1, q, sent, 1, size)
		w.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := w.Write(b)
		if err != nil {
			return sent + 1, b[n:]
		}
		sent++
	}
}

// TestParkedPublisher: a publisher that fills the memory waits. Acks, heartbeats and closes are served meanwhile, and
// when there is room everything comes, in order.
func TestParkedPublisher(t *testing.T) {
	const bound = 4 << 20
	n := startBound(t, bound, nil)
	c := n.open(t, nil)
	c.declare("q")
	p := n.open(t, func(k *amqp.ConnectionTuneOk) { k.Heartbeat = 1 })
	sent, rest := p.fill("q", 10000)
	if used := n.pool.InUse(); used > 2*bound {
		t.Fatalf("%d octets in use", used)
	}
	var flow bool
	for k := range n.Connections() {
		flow = flow || k.State == "flow"
	}
	if !flow {
		t.Error("nobody is shown to wait")
	}
	// The heartbeat check is off while nothing is read: the silence is not the peer's.
	timer := time.NewTimer(3500 * time.Millisecond)
	defer timer.Stop()
	<-timer.C

	c.send(1, &amqp.BasicConsume{Queue: "q"})
	c.expect(1, &amqp.BasicConsumeOk{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.raw(rest)
		p.raw(numbered(1, "q", sent, 100, 10000))
		p.sync()
	}()
	for i := range sent + 100 {
		var d amqp.BasicDeliver
		c.expect(1, &d)
		if _, body := c.content(1); int(binary.BigEndian.Uint32(body)) != i {
			t.Fatalf("message %d came as %d", i, binary.BigEndian.Uint32(body))
		}
		c.send(1, &amqp.BasicAck{DeliveryTag: d.DeliveryTag})
	}
	<-done
}

// TestServedWhileParked: on a connection whose publishes wait, acknowledgements act, other channels work, and a channel
// and the connection close.
func TestServedWhileParked(t *testing.T) {
	const bound = 4 << 20
	n := startBound(t, bound, nil)
	o := n.open(t, nil)
	o.declare("q")
	p := n.open(t, nil)
	full := p.fillUntilParked(o)
	p.raw(numbered(1, "q", 1000, 2, 1000))
	p.send(2, &amqp.ChannelOpen{})
	p.expect(2, &amqp.ChannelOpenOk{})
	p.send(2, &amqp.BasicGet{Queue: "q"})
	var ok amqp.BasicGetOk
	p.expect(2, &ok)
	p.content(2)
	p.send(2, &amqp.BasicAck{DeliveryTag: ok.DeliveryTag})
	p.send(2, &amqp.QueueDeclare{Queue: "q", Passive: true})
	var declared amqp.QueueDeclareOk
	p.expect(2, &declared)
	if declared.MessageCount != full-1 {
		t.Errorf("%d ready, not %d: what is parked came in", declared.MessageCount, full-1)
	}
	p.send(1, &amqp.ChannelClose{})
	p.expect(1, &amqp.ChannelCloseOk{})
	p.send(2, &amqp.QueueDeclare{Queue: "q", Passive: true})
	p.expect(2, &declared)
	if declared.MessageCount != full+2 {
		t.Errorf("%d ready after the channel was closed, not %d", declared.MessageCount, full+2)
	}
	p.send(1, &amqp.ChannelOpen{})
	p.expect(1, &amqp.ChannelOpenOk{})
	p.raw(numbered(1, "q", 2000, 3, 1000))
	p.send(0, &amqp.ConnectionClose{})
	p.expect(0, &amqp.ConnectionCloseOk{})
	p.Close()
	if got := o.ready("q"); got != full+5 {
		t.Errorf("%d ready after the connection was closed, not %d", got, full+5)
	}
}

// TestClosesDoNotPassTheBound: whoever opens, publishes and closes again and again waits for room like everybody.
func TestClosesDoNotPassTheBound(t *testing.T) {
	const bound = 4 << 20
	n := startBound(t, bound, nil)
	o := n.open(t, nil)
	o.declare("q")
	p := n.open(t, nil)
	for range 100 {
		b := numbered(1, "q", 0, 10, 50000)
		b = append(b, amqp.AppendMethodFrame(nil, 1, &amqp.ChannelClose{})...)
		b = append(b, amqp.AppendMethodFrame(nil, 1, &amqp.ChannelOpen{})...)
		p.SetWriteDeadline(shortly())
		if _, err := p.Write(b); err != nil {
			break
		}
	}
	if used := n.pool.InUse(); used > bound*3/2 {
		t.Errorf("%d octets in use", used)
	}
}

// TestParkedOfClosedChannel: what was parked for a channel that failed does not reach the next one of its number.
func TestParkedOfClosedChannel(t *testing.T) {
	const bound = 4 << 20
	n := startBound(t, bound, nil)
	o := n.open(t, nil)
	o.declare("q")
	p := n.open(t, nil)
	full := p.fillUntilParked(o)
	p.send(1, &amqp.BasicAck{DeliveryTag: 12345}) // unknown
	p.expect(1, &amqp.ChannelClose{})
	p.send(1, &amqp.ChannelCloseOk{})
	p.send(1, &amqp.ChannelOpen{})
	p.expect(1, &amqp.ChannelOpenOk{})
	o.send(1, &amqp.QueuePurge{Queue: "q"})
	o.expect(1, &amqp.QueuePurgeOk{})
	p.sync()
	if got := o.ready("q"); got != 0 {
		t.Errorf("%d messages of the old channel came in, of %d", got, full)
	}
}

// fillUntilParked publishes to q on channel 1 until the last message is parked, and returns how many came in. o looks.
func (w *wire) fillUntilParked(o *wire) (full uint32) {
	w.Helper()
	for sent := uint32(1); ; sent++ {
		w.raw(numbered(1, "q", int(sent), 1, 60000))
		w.send(9, &amqp.ChannelOpen{})
		w.expect(9, &amqp.ChannelOpenOk{})
		w.send(9, &amqp.ChannelClose{})
		w.expect(9, &amqp.ChannelCloseOk{}) // now it was handled
		if full = o.ready("q"); full < sent {
			return full
		}
	}
}

// TestManyParkedPublishers: publishers that wait keep no memory from those who would make room.
func TestManyParkedPublishers(t *testing.T) {
	const bound = 4 << 20
	n := startBound(t, bound, nil)
	o := n.open(t, nil)
	o.declare("q")
	var waiting []*wire
	var total int
	type left struct {
		w    *wire
		rest []byte
	}
	var lefts []left
	for range 40 { // 40 slabs are more than the bound
		w := n.open(t, nil)
		waiting = append(waiting, w)
		b := numbered(1, "q", 0, 40, 60000)
		w.SetWriteDeadline(shortly())
		k, _ := w.Write(b)
		lefts = append(lefts, left{w, b[k:]})
		total += 40
	}
	for _, l := range lefts {
		go l.w.Write(l.rest)
	}
	o.send(1, &amqp.BasicConsume{Queue: "q", NoAck: true})
	o.expect(1, &amqp.BasicConsumeOk{})
	for range total {
		o.expect(1, &amqp.BasicDeliver{})
		o.content(1)
	}
	for _, w := range waiting {
		w.sync()
	}
}

// TestTransactionTooLarge: transactions cannot fill the memory that only others could empty.
func TestTransactionTooLarge(t *testing.T) {
	n := startBound(t, 4<<20, nil)
	w := n.open(t, nil)
	w.declare("q")
	w.send(1, &amqp.TxSelect{})
	w.expect(1, &amqp.TxSelectOk{})
	w.raw(numbered(1, "q", 0, 60, 50000))
	w.expect(1, &amqp.ChannelClose{})
	w.send(1, &amqp.ChannelCloseOk{})
	w.send(1, &amqp.ChannelOpen{})
	w.expect(1, &amqp.ChannelOpenOk{})
	w.send(1, &amqp.TxSelect{})
	w.expect(1, &amqp.TxSelectOk{})
	w.raw(numbered(1, "q", 0, 20, 50000))
	w.send(1, &amqp.TxRollback{})
	w.expect(1, &amqp.TxRollbackOk{})
	w.raw(numbered(1, "q", 0, 20, 50000))
	w.send(1, &amqp.TxCommit{})
	w.expect(1, &amqp.TxCommitOk{})
	if got := w.ready("q"); got != 20 || n.uncommitted.Load() != 0 {
		t.Errorf("%d ready, %d octets uncommitted", got, n.uncommitted.Load())
	}
}

// TestOnlyTheFullQueueHoldsUp: publishes to a queue that is full wait, with what the channel publishes behind them. Another channel and
// another connection publish to other queues meanwhile. When there is room all come, in order.
func TestOnlyTheFullQueueHoldsUp(t *testing.T) {
	n := start(t, nil)
	p, o := n.open(t, nil), n.open(t, nil)
	for _, q := range []string{"busy", "calm"} {
		p.declareAs("quorum", q)
	}
	p.raw(numbered(1, "busy", 0, 1, 1000))
	until(t, "the first message comes", func() bool { return o.ready("busy") == 1 })
	n.far.crowd(0, true)
	p.raw(numbered(1, "busy", 1, 300, 1000)) // less than is parked
	p.raw(numbered(1, "calm", 0, 1, 1000))
	p.send(2, &amqp.ChannelOpen{})
	p.expect(2, &amqp.ChannelOpenOk{})
	p.raw(numbered(2, "calm", 1, 1, 1000))
	o.raw(numbered(1, "calm", 2, 1, 1000))
	until(t, "what others publish comes", func() bool { return o.ready("calm") == 2 })
	if got := o.ready("busy"); got != 1 {
		t.Fatalf("%d are in the queue that is full", got)
	}
	n.far.crowd(0, false)
	until(t, "all come", func() bool { return o.ready("busy") == 301 && o.ready("calm") == 3 })
	o.send(1, &amqp.BasicConsume{Queue: "busy", NoAck: true})
	o.expect(1, &amqp.BasicConsumeOk{})
	for i := range 301 {
		var d amqp.BasicDeliver
		o.expect(1, &d)
		if _, body := o.content(1); int(binary.BigEndian.Uint32(body)) != i {
			t.Fatalf("message %d came as %d", i, binary.BigEndian.Uint32(body))
		}
	}
}

// TestParkedForQueueLeaves: whoever waits for a full queue can close its channel, and the connection; what it published before comes.
func TestParkedForQueueLeaves(t *testing.T) {
	n := start(t, nil)
	p, o := n.open(t, nil), n.open(t, nil)
	p.declareAs("quorum", "busy")
	p.raw(numbered(1, "busy", 0, 1, 1000))
	until(t, "the first message comes", func() bool { return o.ready("busy") == 1 })
	n.far.crowd(0, true)
	p.raw(numbered(1, "busy", 1, 5, 1000))
	p.send(1, &amqp.ChannelClose{})
	p.expect(1, &amqp.ChannelCloseOk{})
	until(t, "what was parked comes", func() bool { return o.ready("busy") == 6 })
	p.send(0, &amqp.ConnectionClose{})
	p.expect(0, &amqp.ConnectionCloseOk{})
	p.Close()
	n.far.crowd(0, false) // and nobody is there to hear it
}
