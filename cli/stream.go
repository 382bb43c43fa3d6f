package cli

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/stream"
	"github.com/warrenmq/warren/stream/message"
	"github.com/warrenmq/warren/stream/slots"
)

// What management sees and changes of streams, with the permission to read them.

// streamOf is a stream that a user may read.
func (r *rooms) streamOf(as management.User, vhost, name string) (*slots.Queue, error) {
	v := r.broker.VHost(vhost)
	if v == nil {
		return nil, noVHost(vhost)
	}
	a, err := r.actor(as)
	if err != nil {
		return nil, err
	}
	q, refused := v.QueueFor(a, name)
	if refused != nil {
		return nil, refusal(refused)
	}
	s, ok := q.Queue.(*slots.Queue)
	if !ok {
		return nil, &management.Refusal{Code: amqp.NotImplemented, Text: fmt.Sprintf("queue '%s' in vhost '%s' is no stream", name, vhost)}
	}
	return s, nil
}

// streamError is an error of a stream in management's terms.
func streamError(err error) error {
	var refused *queue.RefusedError
	switch {
	case errors.Is(err, queue.ErrDeleted), errors.Is(err, slots.ErrUnknownName):
		return &management.Refusal{Code: amqp.NotFound, Text: err.Error()}
	case errors.Is(err, stream.ErrName), errors.Is(err, stream.ErrOffset), errors.Is(err, slots.ErrOutside), errors.Is(err, slots.ErrWhole), errors.Is(err, slots.ErrOthers), errors.As(err, &refused):
		return &management.Refusal{Code: amqp.PreconditionFailed, Text: err.Error()}
	}
	return err
}

// place is a place in a stream as JSON says it.
func place(v any) (stream.Spec, error) {
	value := amqp.Value{}
	switch v := v.(type) {
	case int64:
		value = amqp.Int64Value(v)
	case string:
		value = amqp.StringValue(v)
	}
	if value.Tag == 0 {
		return stream.Spec{}, stream.ErrOffset
	}
	return stream.ParseSpec(value, time.Now())
}

// StreamStatus implements management.Streams.
func (r *rooms) StreamStatus(as management.User, vhost, name string) (v management.StreamStatus, err error) {
	q, err := r.streamOf(as, vhost, name)
	if err != nil {
		return v, err
	}
	s := q.Status()
	v = management.StreamStatus{First: s.First, Next: s.Next, Octets: s.Octets, Segments: s.Segments, LastTime: s.LastTime, Readers: s.Readers, Names: s.Names,
		SkipTo: s.SkipTo, Broken: s.Broken, Mending: s.Mending}
	if s.Leader != 0 {
		v.Leader, _, _ = r.replicas(q)
	}
	for _, d := range s.Damage {
		v.Damage = append(v.Damage, management.StreamDamage{From: d.From, To: d.To, File: d.File, Reason: d.Reason})
	}
	return v, nil
}

// StreamOffsets implements management.Streams.
func (r *rooms) StreamOffsets(as management.User, vhost, name string) ([]management.StreamOffset, error) {
	q, err := r.streamOf(as, vhost, name)
	if err != nil {
		return nil, err
	}
	return offsetsShown(q.Offsets(true)), nil
}

func offsetsShown(list []slots.Committed) (out []management.StreamOffset) {
	for _, c := range list {
		v := management.StreamOffset{Name: c.Name, Offset: c.Next, Lag: c.Lag, Online: c.Online, Generation: c.Generation}
		if c.LagTime >= 0 {
			v.LagTime = &c.LagTime
		}
		if c.Known {
			v.At = time.UnixMilli(c.At).UTC().Format("2006-01-02T15:04:05.000Z07:00")
		}
		out = append(out, v)
	}
	return out
}

// SetStreamOffset implements management.Streams.
func (r *rooms) SetStreamOffset(as management.User, vhost, name, consumer string, to any) (uint64, error) {
	q, err := r.streamOf(as, vhost, name)
	if err != nil {
		return 0, err
	}
	spec, err := place(to)
	if err != nil {
		return 0, streamError(err)
	}
	offset, err := q.SetOffset(consumer, spec)
	return offset, streamError(err)
}

// ForgetStreamOffset implements management.Streams.
func (r *rooms) ForgetStreamOffset(as management.User, vhost, name, consumer string) error {
	q, err := r.streamOf(as, vhost, name)
	if err != nil {
		return err
	}
	return streamError(q.ForgetOffset(consumer))
}

// SkipStreamDamage implements management.Streams.
func (r *rooms) SkipStreamDamage(as management.User, vhost, name string, to uint64) error {
	q, err := r.streamOf(as, vhost, name)
	if err != nil {
		return err
	}
	return streamError(q.SkipTo(to))
}

// RecoverStream implements management.Streams.
func (r *rooms) RecoverStream(as management.User, vhost, name string) (uint64, error) {
	q, err := r.streamOf(as, vhost, name)
	if err != nil {
		return 0, err
	}
	next, err := q.GoOn()
	return next, streamError(err)
}

// ReadStream implements management.Streams.
func (r *rooms) ReadStream(as management.User, f management.StreamRead) (page management.StreamPage, err error) {
	q, err := r.streamOf(as, f.VHost, f.Queue)
	if err != nil {
		return page, err
	}
	from, err := place(f.From)
	if err != nil || from.Kind == stream.Stored {
		return page, streamError(stream.ErrOffset)
	}
	filter := stream.Filter{Unfiltered: f.Unfiltered}
	for _, v := range f.Filter {
		filter.Values = append(filter.Values, []byte(v))
	}
	reader, _, err := q.Read(from, filter)
	if err != nil {
		return page, streamError(err)
	}
	defer reader.Close()
	to, end := ^uint64(0), false
	if f.To != nil {
		spec, err := place(f.To)
		if err == nil {
			to, err = q.Resolve(spec)
		}
		if err != nil {
			return page, streamError(err)
		}
	}
	var delivery message.Delivery
	octets := 0
	for len(page.Messages) < f.Count && octets <= f.MaxBytes && !end {
		var rec stream.Record
		err := reader.Next(&rec)
		var removed *stream.RemovedError
		switch {
		case errors.As(err, &removed):
			page.Jumped += removed.To - removed.From
			continue
		case errors.Is(err, stream.ErrEnd):
			end = true
			continue
		case err != nil:
			return page, &management.Refusal{Code: amqp.PreconditionFailed, Text: err.Error()}
		case rec.Offset >= to:
			end = true
			continue
		}
		if delivery.Decode(rec.Body, rec.Offset) != nil {
			continue
		}
		m := management.StreamMessage{Offset: rec.Offset, Time: rec.Time, Message: management.Message{
			Exchange: string(delivery.Exchange), Key: string(delivery.Key), Body: bytes.Join(delivery.Body, nil), Properties: propertiesOf(delivery.Header)}}
		if !delivery.From {
			m.Key = f.Queue
		}
		octets += len(m.Body)
		page.Messages = append(page.Messages, m)
	}
	page.End = end
	if page.Next = reader.Offset(); page.Next > to {
		page.Next = to
	}
	return page, nil
}

// StreamFigures implements management.Streams.
func (r *rooms) StreamFigures(times bool) (t management.StreamTotals, list []management.StreamFigure) {
	c := &r.streams.Counters
	memory, reads := r.streams.Totals()
	t = management.StreamTotals{Jumped: c.Jumped.Load(), Skipped: c.Skipped.Load(), Damaged: c.Damaged.Load(), Unreadable: c.Unreadable.Load(),
		Fenced: c.Fenced.Load(), Mended: c.Mended.Load(), Copied: c.Copied.Load(), Memory: uint64(memory), BlockReads: reads}
	for _, v := range r.broker.VHosts() {
		for _, q := range v.Queues() {
			if q.Type != broker.Stream {
				continue
			}
			if s, ok := q.Queue.(*slots.Queue); ok {
				st := s.Status()
				list = append(list, management.StreamFigure{VHost: v.Name, Queue: q.Name, First: st.First, Next: st.Next, Octets: uint64(st.Octets),
					Segments: st.Segments, Lacks: st.Broken != "" || len(st.Damage) > 0, Offsets: offsetsShown(s.Offsets(times))})
			}
		}
	}
	return t, list
}
