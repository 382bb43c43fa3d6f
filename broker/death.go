package broker

import (
	"bytes"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// death is how a message left a queue for its dead-letter exchange.
type death struct {
	queue      string
	reason     queue.Reason
	exchange   []byte   // it had been published to
	keys       [][]byte // it had been published with: routing key and CC
	seconds    uint64   // since 1970
	history    bool     // x-death of the message was written by a broker, and tells of earlier deaths
	expiration []byte   // the expiration property
	expires    bool     // whether there is one
}

// The headers of a dead letter (RabbitMQ docs: dlx, "Dead-Lettered Effects on Messages").
const (
	xDeath         = "x-death"
	firstDeath     = "x-first-death-"
	lastDeath      = "x-last-death-"
	maxDeathHeader = 7
)

// record returns the headers table with d added to the history, and the history.
func (d *death) record(headers amqp.Table) (amqp.Table, amqp.Array) {
	var past amqp.Array
	if d.history {
		v, _ := headers.Get(xDeath)
		past, _ = v.Array()
	}
	history := d.chronicle(past)
	edits := make([]amqp.Edit, 0, maxDeathHeader)
	edits = append(edits, amqp.Edit{Key: xDeath, Value: amqp.ArrayValue(history)})
	set := func(prefix string) {
		edits = append(edits,
			amqp.Edit{Key: prefix + "exchange", Value: amqp.Value{Tag: amqp.TagString, Raw: d.exchange}},
			amqp.Edit{Key: prefix + "queue", Value: amqp.StringValue(d.queue)},
			amqp.Edit{Key: prefix + "reason", Value: amqp.StringValue(d.reason.String())})
	}
	if len(past) == 0 {
		set(firstDeath)
	}
	set(lastDeath)
	return headers.AppendEdited(nil, edits...), history
}

// chronicle puts d before the earlier deaths. One of the same queue and reason is the same entry, counted once more.
func (d *death) chronicle(past amqp.Array) amqp.Array {
	first := amqp.TableValue(d.entry())
	var rest amqp.Array
	for v := range past.All() {
		t, _ := v.Table()
		if q, reason := died(t); string(q) == d.queue && string(reason) == d.reason.String() {
			count, _ := t.Get("count")
			n, _ := count.Int()
			first = amqp.TableValue(t.AppendEdited(nil, amqp.Edit{Key: "count", Value: amqp.Int64Value(n + 1)}))
			continue
		}
		rest = rest.AppendValue(v)
	}
	return append(amqp.Array(nil).AppendValue(first), rest...)
}

// entry is the entry of a first death.
func (d *death) entry() amqp.Table {
	var t amqp.Table
	if d.expires {
		t = t.AppendBytes("original-expiration", d.expiration)
	}
	var keys amqp.Array
	for _, k := range d.keys {
		keys = keys.AppendValue(amqp.Value{Tag: amqp.TagString, Raw: k})
	}
	t = t.AppendInt64("count", 1)
	t = t.AppendString("reason", d.reason.String())
	t = t.AppendString("queue", d.queue)
	t = t.AppendValue("time", amqp.TimeValue(d.seconds))
	t = t.AppendBytes("exchange", d.exchange)
	return t.AppendValue("routing-keys", amqp.ArrayValue(keys))
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
		case bytes.Equal(reason, []byte("rejected")):
			return false
		case string(q) == name:
			return true
		}
	}
	return false
}
