package server

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
)

// TestSnapshots: what others see of connections and channels, and what was counted.
func TestSnapshots(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, func(k *amqp.ConnectionTuneOk) { k.Heartbeat, k.FrameMax, k.ChannelMax = 30, 9000, 17 })
	w.declare("q")
	w.send(1, &amqp.BasicQos{PrefetchCount: 7})
	w.expect(1, &amqp.BasicQosOk{})
	w.send(1, &amqp.ConfirmSelect{})
	w.expect(1, &amqp.ConfirmSelectOk{})
	w.raw(publishFrames(1, "q", &amqp.PropertyList{}, []byte("x"), 0))
	w.raw(publishFrames(1, "q", &amqp.PropertyList{}, []byte("x"), 0))
	w.raw(publishFrames(1, "nowhere", &amqp.PropertyList{}, nil, 0))
	for heard := uint64(0); heard < 3; {
		var ack amqp.BasicAck
		w.expect(1, &ack)
		heard = max(heard, ack.DeliveryTag)
	}
	w.send(1, &amqp.BasicConsume{Queue: "q"})
	w.expect(1, &amqp.BasicConsumeOk{})
	for range 2 {
		w.expect(1, &amqp.BasicDeliver{})
		w.content(1)
	}
	w.send(1, &amqp.BasicAck{DeliveryTag: 1})
	w.send(1, &amqp.BasicGet{Queue: "q"})
	w.expect(1, &amqp.BasicGetEmpty{})
	w.send(2, &amqp.ChannelOpen{})
	w.expect(2, &amqp.ChannelOpenOk{})
	w.send(2, &amqp.TxSelect{})
	w.expect(2, &amqp.TxSelectOk{})
	w.raw(publishFrames(2, "q", &amqp.PropertyList{}, []byte("x"), 0))
	w.send(2, &amqp.TxSelect{})
	w.expect(2, &amqp.TxSelectOk{})

	name := w.LocalAddr().String() + " -> " + w.RemoteAddr().String()
	var k Connection
	if !n.Connection(name, &k) {
		t.Fatal("no connection ", name)
	}
	if n.ConnectionName(k.ID) != name || k.User != "guest" || k.VHost != "/" || k.State != "running" || k.Mechanism != "PLAIN" ||
		k.Heartbeat != 30*time.Second || k.FrameMax != 9000 || k.ChannelMax != 17 || k.Channels != 2 ||
		k.Peer.String() != w.LocalAddr().String() || k.ReceivedOctets == 0 || k.SentOctets == 0 || k.Reads == 0 || k.Writes == 0 {
		t.Errorf("%+v", k)
	}
	if _, ok := k.Properties.Get("capabilities"); !ok {
		t.Error("no client properties")
	}
	var channels []Channel
	for ch := range n.Channels() {
		channels = append(channels, *ch)
	}
	if len(channels) != 2 {
		t.Fatal(channels)
	}
	a, b := channels[0], channels[1]
	want := ChannelCounts{Published: 3, Confirmed: 3, Dropped: 1, Delivered: 2, GetEmpty: 1, Acked: 1}
	if a.ChannelCounts != want || !a.Confirm || a.Transactional || a.Consumers != 1 || a.Unacked != 1 || a.Unconfirmed != 0 || a.Prefetch != 7 {
		t.Errorf("%+v", a)
	}
	if !b.Transactional || b.Uncommitted != 1 || b.Published != 1 {
		t.Errorf("%+v", b)
	}
	c := &n.broker.Counters
	if c.Received.Load() != 4 || c.ReceivedConfirm.Load() != 3 || c.Confirmed.Load() != 3 || c.Routed.Load() != 3 || c.UnroutableDropped.Load() != 1 {
		t.Errorf("received %d, %d with confirms, confirmed %d, routed %d, dropped %d", c.Received.Load(), c.ReceivedConfirm.Load(), c.Confirmed.Load(), c.Routed.Load(), c.UnroutableDropped.Load())
	}
	if s := &n.Counters; s.Delivered.Load() != 2 || s.Acked.Load() != 1 || s.GetEmpty.Load() != 1 || s.ChannelsOpened.Load() != 2 {
		t.Error("deliveries are not counted")
	}
	if !n.CloseConnection(name, "Closed via test") || n.CloseConnection("nobody", "") {
		t.Error("CloseConnection")
	}
	if code, text := w.closed(); code != amqp.ConnectionForced || text != "CONNECTION_FORCED - Closed via test" {
		t.Error(code, text)
	}
	o := n.open(t, nil)
	n.CloseUser("somebody else", "")
	n.CloseVHost("elsewhere")
	o.sync()
	n.CloseVHost("/")
	if code, text := o.closed(); code != amqp.ConnectionForced || text != "CONNECTION_FORCED - vhost '/' is deleted" {
		t.Error(code, text)
	}
}

// TestCloseUnread: an operator can close a connection whose peer does not read.
func TestCloseUnread(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, func(k *amqp.ConnectionTuneOk) { k.Heartbeat = 1 })
	ask := amqp.AppendMethodFrame(nil, 1, &amqp.BasicQos{})
	var many []byte
	for range 10000 {
		many = append(many, ask...)
	}
	for {
		w.SetWriteDeadline(shortly())
		if _, err := w.Write(many); err != nil {
			break
		}
		w.raw(amqp.AppendHeartbeat(nil))
	}
	for k := range n.Connections() {
		n.CloseConnection(k.Name, "enough")
	}
	until(t, "it is closed", func() bool { return n.Counters.ConnectionsClosed.Load() == 1 })
}
