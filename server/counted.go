package server

import (
	"cmp"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// counted returns the content header of a message that was given out before, with the headers that tell how often
// (RabbitMQ docs: quorum queues, "Poison Message Handling"). They replace what a publisher has put there. Without a failed
// delivery there is no x-delivery-count of the queue's, and the publisher's stays. The result holds until the next call; nil
// means that the stored header is to be sent as it is.
func (wr *writer) counted(o *queue.Offered, stored []byte) []byte {
	h, err := amqp.ParseHeader(stored)
	if err != nil { // it was parsed when it was published
		return nil
	}
	acquired := cmp.Or(o.Acquired, o.Failed) // a dead letter brings along what failed where it comes from
	edits := [2]amqp.Edit{
		{Key: "x-acquired-count", Value: amqp.Int64Value(int64(acquired))},
		{Key: "x-delivery-count", Value: amqp.Int64Value(int64(o.Failed))},
	}
	n := len(edits)
	if o.Failed == 0 {
		n--
	}
	headers, _ := h.Headers()
	wr.table = headers.AppendEdited(wr.table[:0], edits[:n]...)
	changed, err := h.AppendChanged(wr.header[:0], &amqp.PropertyList{Headers: wr.table}, 0)
	if err != nil {
		return nil
	}
	wr.header = changed
	return changed
}
