package server

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

// TestMailOrder: what was posted is done in the order of posting, even where something done runs the mail itself.
func TestMailOrder(t *testing.T) {
	c := &conn{}
	c.mail.more.L = &c.mail.mu
	var did []int
	c.post(func() {
		did = append(did, 1)
		c.post(func() { did = append(did, 4) })
		c.runMail()
	})
	c.post(func() { did = append(did, 2) })
	c.post(func() { did = append(did, 3) })
	c.runMail()
	if !slices.Equal(did, []int{1, 2, 3, 4}) {
		t.Error(did)
	}
}

// TestAckThenAsk: what a channel asks finds what it gave back before, though both came in one read.
func TestAckThenAsk(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, nil)
	w.declare("q")
	w.raw(publishFrames(1, "q", &amqp.PropertyList{}, nil, 0))
	w.send(1, &amqp.BasicGet{Queue: "q"})
	w.expect(1, &amqp.BasicGetOk{})
	w.content(1)
	b := amqp.AppendMethodFrame(nil, 1, &amqp.BasicNack{DeliveryTag: 1, Requeue: true})
	w.raw(amqp.AppendMethodFrame(b, 1, &amqp.QueueDeclare{Queue: "q", Passive: true}))
	var ok amqp.QueueDeclareOk
	if w.expect(1, &ok); ok.MessageCount != 1 {
		t.Error(ok.MessageCount)
	}
}
