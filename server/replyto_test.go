package server

import (
	"testing"

	"github.com/warrenmq/warren/amqp"
)

// TestRepliesAreRouted: an answer over direct reply-to counts as routed, not as a message that nobody wanted.
func TestRepliesAreRouted(t *testing.T) {
	n := start(t, nil)
	asks, answers := n.open(t, nil), n.open(t, nil)
	asks.declare("q")
	asks.send(1, &amqp.BasicConsume{Queue: "amq.rabbitmq.reply-to", NoAck: true})
	asks.expect(1, &amqp.BasicConsumeOk{})
	asks.raw(publishFrames(1, "q", &amqp.PropertyList{ReplyTo: "amq.rabbitmq.reply-to"}, nil, 0))
	asks.sync()
	answers.send(1, &amqp.BasicGet{Queue: "q", NoAck: true})
	answers.expect(1, &amqp.BasicGetOk{})
	header, _ := answers.content(1)
	h, err := amqp.ParseHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	name, _ := h.ReplyTo()
	answers.raw(publishFrames(1, string(name), &amqp.PropertyList{}, []byte("answer"), 0))
	asks.expect(1, &amqp.BasicDeliver{})
	asks.content(1)
	answers.sync()
	c := &n.broker.Counters
	if c.Routed.Load() != 2 || c.UnroutableDropped.Load() != 0 || c.UnroutableReturned.Load() != 0 {
		t.Errorf("routed %d, dropped %d, returned %d", c.Routed.Load(), c.UnroutableDropped.Load(), c.UnroutableReturned.Load())
	}
}
