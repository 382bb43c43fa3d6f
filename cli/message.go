package cli

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/queue"
)

// What management does with messages: one published at a time, a few looked at. It follows the rules of basic.publish and basic.get.

// confirmWait is how long a publish over HTTP waits for its confirm.
const confirmWait = 30 * time.Second

// maxTTL is the longest time to live, 10 years, in milliseconds (RabbitMQ docs: ttl).
const maxTTL = 315_360_000_000

// Publish implements management.Broker.
func (r *rooms) Publish(as management.User, m *management.Publication) (routed bool, err error) {
	v := r.broker.VHost(m.VHost)
	if v == nil {
		return false, noVHost(m.VHost)
	}
	a, err := r.actor(as)
	if err != nil {
		return false, err
	}
	p := publication{rooms: r, user: a.User, of: m}
	if refused := p.prepare(); refused != nil {
		return false, refusal(refused)
	}
	queues, refused := p.route(v)
	if refused != nil {
		return false, refusal(refused)
	}
	c := &r.broker.Counters
	c.Received.Add(1)
	c.ReceivedConfirm.Add(1)
	if len(queues) == 0 {
		c.UnroutableReturned.Add(1)
		c.Confirmed.Add(1)
		return false, nil
	}
	c.Routed.Add(1)
	err = p.send(queues)
	if err == nil {
		c.Confirmed.Add(1)
	}
	return err == nil, err
}

// publication is a message on its way.
type publication struct {
	rooms    *rooms
	user     *broker.User
	of       *management.Publication
	header   amqp.Header
	stored   []byte // the header as it is kept
	more     [][]byte
	blind    [][]byte // those of more that come from BCC
	ttl      int64
	exchange string
}

// prepare checks the properties and encodes them.
func (p *publication) prepare() *amqp.Error {
	m := p.of
	if len(m.Key) > amqp.MaxShortstr || len(m.Exchange) > amqp.MaxShortstr {
		return amqp.Errorf(amqp.SyntaxError, "a routing key or a name is longer than %d bytes", amqp.MaxShortstr)
	}
	if limit := int(p.rooms.cfg.MaxMessageSize); limit > 0 && len(m.Body) > limit {
		return amqp.Errorf(amqp.PreconditionFailed, "message size %d is larger than configured max size %d", len(m.Body), limit)
	}
	if p.rooms.pool.Full(0) {
		return amqp.Errorf(amqp.ResourceError, "publishers are blocked: the node has too little memory or disk")
	}
	list, err := propertyList(&m.Properties)
	if err != nil {
		return amqp.Errorf(amqp.PreconditionFailed, "%s", err)
	}
	p.ttl = -1
	if text := m.Properties.Expiration; text != nil {
		ttl, wrong := expiration(*text)
		if wrong != "" {
			return amqp.Errorf(amqp.PreconditionFailed, "invalid expiration '%s': %s", *text, wrong)
		}
		p.ttl, list.Expiration = ttl, strconv.FormatInt(ttl, 10)
	}
	if name := m.Properties.UserID; name != nil && *name != p.user.Name && !p.user.Is("impersonator") {
		return amqp.Errorf(amqp.PreconditionFailed, "user_id property set to '%s' but authenticated user was '%s'", *name, p.user.Name)
	}
	for _, name := range [...]string{exchange.CC, exchange.BCC} {
		keys, refused := exchange.AppendKeys(p.more, list.Headers, name)
		if refused != nil {
			return refused
		}
		keys = slices.DeleteFunc(keys, func(k []byte) bool { return len(k) > amqp.MaxShortstr })
		p.blind, p.more = keys[len(p.more):], keys
	}
	if p.stored, err = amqp.AppendHeader(nil, uint64(len(m.Body)), list); err != nil {
		return amqp.Errorf(amqp.SyntaxError, "a property is longer than %d bytes", amqp.MaxShortstr)
	}
	if p.header, err = amqp.ParseHeader(p.stored); err != nil {
		return amqp.Errorf(amqp.InternalError, "%s", err)
	}
	if _, blind := list.Headers.Get(exchange.BCC); blind { // routed by it, and taken out
		list.Headers = list.Headers.AppendEdited(nil, amqp.Edit{Key: exchange.BCC, Remove: true})
		p.stored, _ = amqp.AppendHeader(nil, uint64(len(m.Body)), list) // shorter than the one above
	}
	return nil
}

// route finds the queues, with the user's permissions.
func (p *publication) route(v *broker.VHost) ([]*broker.Queue, *amqp.Error) {
	s := v.Begin()
	defer s.End()
	x, err := s.Publishable(p.user, []byte(p.of.Exchange))
	if err != nil {
		return nil, err
	}
	key := []byte(p.of.Key)
	for _, k := range append([][]byte{key}, p.more...) {
		if err := s.CheckTopic(p.user, x, k); err != nil {
			return nil, err
		}
	}
	headers, _ := p.header.Headers()
	found := s.Route(x, &exchange.Message{Key: key, More: p.more, Headers: headers, Properties: p.header.Properties, Seed: rand.Uint64()})
	return append([]*broker.Queue(nil), found...), nil // the scope's own is gone at its end
}

// send hands the message to the queues and waits until all have taken responsibility.
func (p *publication) send(queues []*broker.Queue) error {
	m := p.rooms.pool.NewBlindMessage([]byte(p.of.Exchange), []byte(p.of.Key), p.stored, p.blind, func(yield func([]byte) bool) { yield(p.of.Body) }, len(p.of.Body), len(queues))
	m.TTL = p.ttl
	if p.header.Persistent() {
		m.Flags |= queue.Persistent
	}
	if n, ok := p.header.Priority(); ok {
		m.Priority = n
		m.Flags |= queue.HasPriority
	}
	confirm := confirmation{settled: make(chan bool, len(queues))}
	var w queue.Wake
	for _, q := range queues {
		b := queue.Batch{Messages: []queue.Message{m}, Numbers: []uint64{1}, Confirms: confirm}
		q.Publish(&b, &w)
		p.rooms.broker.Counters.PublishesRefused.Add(uint64(b.Refused))
	}
	w.Flush()
	timer := time.NewTimer(confirmWait)
	defer timer.Stop()
	rejected := false
	for range queues {
		select {
		case ok := <-confirm.settled:
			rejected = rejected || !ok
		case <-timer.C:
			return management.ErrUnconfirmed
		}
	}
	if rejected {
		return management.ErrRejected
	}
	return nil
}

// confirmation hears from each queue of one message once.
type confirmation struct{ settled chan bool }

// Settled implements queue.Confirms.
func (c confirmation) Settled(_ []queue.Range, ok bool, _ *queue.Wake) {
	select {
	case c.settled <- ok:
	default: // there is room for one of each
	}
}

// expiration reads the expiration property; wrong is what is wrong with it, in RabbitMQ's words.
func expiration(text string) (ms int64, wrong string) {
	digits := strings.TrimLeft(text, "+-")
	if len(text)-len(digits) > 1 {
		return 0, "no_integer"
	}
	n := 0
	for n < len(digits) && digits[n] >= '0' && digits[n] <= '9' {
		n++
	}
	switch {
	case n == 0:
		return 0, "no_integer"
	case n < len(digits):
		return 0, `{leftover_string,"` + digits[n:] + `"}`
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	switch {
	case text[0] == '-' && ms != 0:
		return 0, "{value_negative," + text + "}"
	case err != nil || ms > maxTTL:
		return 0, "{value_too_large," + strings.TrimLeft(digits, "0") + "}"
	}
	return ms, ""
}

// propertyList is properties as they are encoded.
func propertyList(p *management.Properties) (*amqp.PropertyList, error) {
	l := &amqp.PropertyList{}
	if p.Headers != nil {
		headers, err := amqp.TableOf(p.Headers)
		if err != nil {
			return nil, err
		}
		l.Headers = headers
		l.Zero |= amqp.Headers
	}
	for _, f := range []struct {
		from *string
		into *string
		bit  amqp.PropertySet
	}{
		{p.ContentType, &l.ContentType, amqp.ContentType}, {p.ContentEncoding, &l.ContentEncoding, amqp.ContentEncoding},
		{p.CorrelationID, &l.CorrelationID, amqp.CorrelationID}, {p.ReplyTo, &l.ReplyTo, amqp.ReplyTo}, {p.Expiration, &l.Expiration, amqp.Expiration},
		{p.MessageID, &l.MessageID, amqp.MessageID}, {p.Type, &l.Type, amqp.Type}, {p.UserID, &l.UserID, amqp.UserID}, {p.AppID, &l.AppID, amqp.AppID},
		{p.ClusterID, &l.ClusterID, amqp.ClusterID},
	} {
		if f.from != nil {
			*f.into = *f.from
			l.Zero |= f.bit
		}
	}
	if p.DeliveryMode != nil {
		l.DeliveryMode = *p.DeliveryMode
		l.Zero |= amqp.DeliveryMode
	}
	if p.Priority != nil {
		l.Priority = *p.Priority
		l.Zero |= amqp.Priority
	}
	if p.Timestamp != nil {
		l.Timestamp = *p.Timestamp
		l.Zero |= amqp.Timestamp
	}
	return l, nil
}

// Get implements management.Broker.
func (r *rooms) Get(as management.User, f management.Fetch) ([]management.Message, error) {
	v := r.broker.VHost(f.VHost)
	if v == nil {
		return nil, noVHost(f.VHost)
	}
	a, err := r.actor(as)
	if err != nil {
		return nil, err
	}
	q, refused := v.QueueFor(a, f.Queue)
	if refused != nil {
		return nil, refusal(refused)
	}
	if q.Type == broker.Stream {
		return nil, &management.Refusal{Code: amqp.NotImplemented, Text: "basic.get not supported by stream queues queue '" + q.Name + "' in vhost '" + f.VHost + "'"}
	}
	g := getter{rooms: r, queue: q}
	if err := g.attach(); err != nil {
		return nil, err
	}
	defer g.detach() // what is not settled goes back
	var list []management.Message
	for size := 0; (f.Count < 0 || len(list) < f.Count) && size <= f.MaxBytes; {
		m, ok := g.get(f.NoAck)
		if !ok {
			break
		}
		size += len(m.Body)
		list = append(list, m)
	}
	if len(g.ids) > 0 {
		outcome := queue.Discard
		switch {
		case f.Requeue && f.Reject:
			outcome = queue.ReturnFailed
		case f.Requeue:
			outcome = queue.Return
		case f.Reject:
			outcome = queue.DiscardFailed
		}
		var w queue.Wake
		q.Settle(g.id, g.ids, outcome, &w)
		w.Flush()
	}
	return list, nil
}

// getter is a consumer that takes messages one by one.
type getter struct {
	rooms *rooms
	queue *broker.Queue
	id    queue.ConsumerID
	ids   []queue.Range // of what was got and is not settled
}

func (g *getter) attach() error {
	failed := make(chan *amqp.Error, 1)
	var w queue.Wake
	// Sessions are told apart by their number only; those of channels are small.
	spec := queue.ConsumerSpec{Session: rand.Uint64() | 1<<63, Getter: true}
	var taken atomic.Bool // the answer, by somebody
	g.queue.Attach(broker.Consumer{Spec: spec}, deaf{}, &w, func(id queue.ConsumerID, err *amqp.Error) {
		g.id = id
		if taken.CompareAndSwap(false, true) {
			failed <- err
		} else if err == nil {
			go g.detach()
		}
	})
	w.Flush()
	refused, err := await(failed, queueWait)
	if err != nil && !taken.CompareAndSwap(false, true) { // it came just now
		refused, err = <-failed, nil
	}
	return cmp.Or(err, refusal(refused))
}

// get takes one message, or says that there is none.
func (g *getter) get(noAck bool) (m management.Message, ok bool) {
	type offer struct {
		o    queue.Offered
		left uint64
		ok   bool
	}
	got := make(chan offer, 1)
	var w queue.Wake
	var taken atomic.Bool // the answer, by somebody
	g.queue.Get(g.id, noAck, &w, func(o queue.Offered, left uint64, ok bool) {
		if taken.CompareAndSwap(false, true) {
			got <- offer{o, left, ok}
		} else if ok {
			g.rooms.pool.Release(o.Message.Ref.Slab, 1)
		}
	})
	w.Flush()
	o, err := await(got, queueWait)
	if err != nil && !taken.CompareAndSwap(false, true) { // it came just now
		o = <-got
	}
	if !o.ok {
		return m, false
	}
	s := queue.ParseStored(g.rooms.pool.Bytes(o.o.Message.Ref))
	m = management.Message{Exchange: string(s.Exchange), Key: string(s.Key), Redelivered: o.o.Redelivered, Left: o.left, Body: s.AppendBody(nil)}
	m.Properties = propertiesOf(s.Header)
	m.Properties.Headers = withCounts(m.Properties.Headers, &o.o)
	g.rooms.pool.Release(o.o.Message.Ref.Slab, 1)
	if !noAck {
		id := uint64(o.o.ID)
		if n := len(g.ids); n > 0 && g.ids[n-1].Last+1 == id {
			g.ids[n-1].Last = id
		} else {
			g.ids = append(g.ids, queue.Range{First: id, Last: id})
		}
	}
	return m, true
}

func (g *getter) detach() {
	done := make(chan struct{})
	var w queue.Wake
	g.queue.Detach(g.id, queue.Remove, &w, func() { close(done) })
	w.Flush()
	_, _ = await(done, queueWait) // it will be done
}

// withCounts adds to headers how often the message was given out before, as deliveries to clients tell it.
func withCounts(headers map[string]any, o *queue.Offered) map[string]any {
	if o.Acquired == 0 && o.Failed == 0 {
		return headers
	}
	if headers == nil {
		headers = map[string]any{}
	}
	headers["x-acquired-count"] = int64(cmp.Or(o.Acquired, o.Failed)) // as server.counted has it
	if o.Failed > 0 {
		headers["x-delivery-count"] = int64(o.Failed)
	}
	return headers
}

// deaf is the outlet of a consumer to which nothing is offered.
type deaf struct{}

func (deaf) Offer([]queue.Offered, *queue.Wake) bool { return true }
func (deaf) Cancelled(*queue.Wake)                   {}
func (deaf) Activity(bool)                           {}
func (deaf) TimedOut(*queue.Wake)                    {}

// propertiesOf are the properties of a content header.
func propertiesOf(header []byte) (p management.Properties) {
	if h, err := amqp.ParseHeader(bytes.Clone(header)); err == nil { // it was parsed when it was published
		p = propertiesShown(h.Properties)
	}
	return p
}

// propertiesShown are properties in management's terms.
func propertiesShown(p amqp.Properties) (out management.Properties) {
	text := func(v []byte, ok bool) *string {
		if !ok {
			return nil
		}
		s := strings.ToValidUTF8(string(v), "\uFFFD")
		return &s
	}
	out.ContentType, out.ContentEncoding = text(p.ContentType()), text(p.ContentEncoding())
	out.CorrelationID, out.ReplyTo, out.Expiration, out.MessageID = text(p.CorrelationID()), text(p.ReplyTo()), text(p.Expiration()), text(p.MessageID())
	out.Type, out.UserID, out.AppID, out.ClusterID = text(p.Type()), text(p.UserID()), text(p.AppID()), text(p.ClusterID())
	if headers, ok := p.Headers(); ok {
		out.Headers = headers.Map()
	}
	if v, ok := p.DeliveryMode(); ok {
		out.DeliveryMode = &v
	}
	if v, ok := p.Priority(); ok {
		out.Priority = &v
	}
	if v, ok := p.Timestamp(); ok {
		out.Timestamp = &v
	}
	return out
}
