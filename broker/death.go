package broker

import (
	"bytes"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// death is how a message left a queue for its dead-letter exchange, and memory to write it down, used again for the next.
type death struct {
	queue      []byte
	reason     []byte
	exchange   []byte   // it had been published to
	keys       [][]byte // it had been published with: routing key and CC, not BCC
	seconds    uint64   // since 1970
	history    bool     // x-death of the message was written by a broker, and tells of earlier deaths
	expiration []byte   // the expiration property
	expires    bool     // whether there is one

	entry     amqp.Table
	keyArray  amqp.Array
	chronicle amqp.Array
	headers   amqp.Table
}

const xDeath = "x-death"

var reasons = [...][]byte{
	queue.Rejected: []byte("rejected"), queue.Expired: []byte("expired"),
	queue.MaxLen: []byte("maxlen"), queue.DeliveryLimited: []byte("delivery_limit"),
}

func str(b []byte) amqp.Value { return amqp.Value{Tag: amqp.TagString, Raw: b} }

// record returns the headers of a dead letter (RabbitMQ docs: dlx, "Dead-Lettered Effects on Messages"), and its history.
// Both are valid until the next record.
func (d *death) record(headers amqp.Table) (amqp.Table, amqp.Array) {
	var past amqp.Array
	if d.history {
		v, _ := headers.Get(xDeath)
		past, _ = v.Array()
	}
	d.add(past)
	edits := [...]amqp.Edit{
		{Key: xDeath, Value: amqp.ArrayValue(d.chronicle)},
		{Key: "x-last-death-exchange", Value: str(d.exchange)},
		{Key: "x-last-death-queue", Value: str(d.queue)},
		{Key: "x-last-death-reason", Value: str(d.reason)},
		{Key: "x-first-death-exchange", Value: str(d.exchange)},
		{Key: "x-first-death-queue", Value: str(d.queue)},
		{Key: "x-first-death-reason", Value: str(d.reason)},
	}
	n := len(edits)
	if len(past) > 0 {
		n = 4
	}
	d.headers = headers.AppendEdited(d.headers[:0], edits[:n]...)
	return d.headers, d.chronicle
}

// add writes the chronicle: this death before the earlier ones. One of the same queue and reason is the same entry,
// counted once more.
func (d *death) add(past amqp.Array) {
	d.entry = d.appendEntry(d.entry[:0])
	for v := range past.All() {
		t, _ := v.Table()
		if d.same(t) {
			count, _ := t.Get("count")
			n, _ := count.Int()
			d.entry = t.AppendEdited(d.entry[:0], amqp.Edit{Key: "count", Value: amqp.Int64Value(n + 1)})
			break
		}
	}
	d.chronicle = d.chronicle[:0].AppendTable(d.entry)
	for v := range past.All() {
		if t, _ := v.Table(); !d.same(t) {
			d.chronicle = d.chronicle.AppendValue(v)
		}
	}
}

func (d *death) same(entry amqp.Table) bool {
	q, reason := died(entry)
	return bytes.Equal(q, d.queue) && bytes.Equal(reason, d.reason)
}

// appendEntry appends the entry of a first death.
func (d *death) appendEntry(t amqp.Table) amqp.Table {
	if d.expires {
		t = t.AppendBytes("original-expiration", d.expiration)
	}
	d.keyArray = d.keyArray[:0]
	for _, k := range d.keys {
		d.keyArray = d.keyArray.AppendValue(str(k))
	}
	t = t.AppendInt64("count", 1)
	t = t.AppendBytes("reason", d.reason)
	t = t.AppendBytes("queue", d.queue)
	t = t.AppendTime("time", d.seconds)
	t = t.AppendBytes("exchange", d.exchange)
	return t.AppendArray("routing-keys", d.keyArray)
}

// died is the queue and the reason of an entry.
func died(entry amqp.Table) (q, reason []byte) {
	v, _ := entry.Get("queue")
	q, _ = v.Str()
	v, _ = entry.Get("reason")
	reason, _ = v.Str()
	return q, reason
}

// cycles reports whether a message with this history has come round to a queue without anybody having rejected it since
// it was there last (RabbitMQ docs: dlx, "Automatic Dead Letter Cycles"). Ask only if it was not rejected just now.
func cycles(history amqp.Array, name string) bool {
	for v := range history.All() {
		t, _ := v.Table()
		q, reason := died(t)
		switch {
		case bytes.Equal(reason, reasons[queue.Rejected]):
			return false
		case string(q) == name:
			return true
		}
	}
	return false
}
