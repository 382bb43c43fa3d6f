package server

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
)

// maxTTL is the longest time to live, 10 years (RabbitMQ docs: ttl).
const maxTTL = 315_360_000_000

// inspect checks a message and finds where it goes: ch.route is set when it returns without error. The order of the checks
// is RabbitMQ's.
func (c *conn) inspect(ch *channel, in *incoming, m *queue.Message) *amqp.Error {
	if in.immediate {
		return amqp.Errorf(amqp.NotImplemented, "immediate=true")
	}
	exchange, key := in.split()
	r := &ch.route
	var x *exchangeOf
	same := ch.sameRoute(in.names)
	if !same {
		r.forget()
		var err *amqp.Error
		if x, err = c.scope().Publishable(c.user, exchange); err != nil {
			return err
		}
	}
	var more [][]byte
	var h amqp.Header
	if !simple(in.header, m) {
		if h.Decode(in.header) != nil {
			return amqp.Errorf(amqp.InternalError, "")
		}
		var err *amqp.Error
		if more, err = c.checkProperties(ch, in, &h, m); err != nil {
			return err
		}
	}
	if same && len(more) == 0 {
		return nil
	}
	if same { // the memory is of messages without further keys, and perhaps of a topology that has changed just now
		r.forget()
		var err *amqp.Error
		if x, err = c.scope().Publishable(c.user, exchange); err != nil {
			return err
		}
	}
	return c.findRoute(ch, in, x, key, more, &h)
}

type exchangeOf = exchange.Exchange

// forget makes the next message be routed anew.
func (r *route) forget() {
	r.version, r.group, r.reply, r.swallowed = 0, nil, nil, false
	r.queues, r.bounded = r.queues[:0], r.bounded[:0]
}

// findRoute routes a message. The result is remembered when the next message of the same names must go the same way.
func (c *conn) findRoute(ch *channel, in *incoming, x *exchangeOf, key []byte, more [][]byte, h *amqp.Header) *amqp.Error {
	r := &ch.route
	s := c.scope()
	if err := s.CheckTopic(c.user, x, key); err != nil {
		return err
	}
	for _, k := range more {
		if err := s.CheckTopic(c.user, x, k); err != nil {
			return err
		}
	}
	if x.Name == "" && bytes.HasPrefix(key, replyPrefix) {
		r.reply, r.swallowed = c.server.replies.find(key)
		if r.swallowed {
			return nil
		}
	}
	headers, _ := h.Headers()
	c.seed = c.seed*6364136223846793005 + 1442695040888963407
	m := exchange.Message{Key: key, More: more, Headers: headers, Properties: h.Properties, Seed: c.seed}
	r.queues = append(r.queues[:0], s.Route(x, &m)...)
	r.bounded = r.bounded[:0]
	for _, q := range r.queues {
		if b, ok := q.Queue.(queue.Bounded); ok {
			r.bounded = append(r.bounded, b)
		}
	}
	if len(more) == 0 && s.Stable() {
		r.names = append(r.names[:0], in.names...)
		r.version = c.vhost.Version()
	}
	return nil
}

// checkProperties checks the properties that mean something to the broker, takes what queues need into m, and decides whether
// the header is stored changed. It returns the routing keys in CC and BCC.
func (c *conn) checkProperties(ch *channel, in *incoming, h *amqp.Header, m *queue.Message) (more [][]byte, _ *amqp.Error) {
	var set amqp.PropertyList
	if h.Persistent() {
		m.Flags |= queue.Persistent
	}
	if p, ok := h.Priority(); ok {
		m.Priority = p
		m.Flags |= queue.HasPriority
	}
	if to, ok := h.ReplyTo(); ok && string(to) == replyQueue {
		if ch.replies == nil {
			return nil, amqp.Errorf(amqp.PreconditionFailed, "fast reply consumer does not exist")
		}
		set.ReplyTo = ch.replies.replyTo
	}
	if v, ok := h.Expiration(); ok {
		ttl, text := parseExpiration(v)
		if text != "" {
			return nil, amqp.Errorf(amqp.PreconditionFailed, "invalid expiration '%s': %s", v, text)
		}
		m.TTL = ttl
		if normal := strconv.FormatInt(ttl, 10); normal != string(v) {
			set.Expiration = normal
		}
	}
	if headers, ok := h.Headers(); ok {
		var err *amqp.Error
		if more, err = appendCopies(nil, headers, exchange.CC); err != nil {
			return nil, err
		}
		copies := len(more)
		if more, err = appendCopies(more, headers, exchange.BCC); err != nil {
			return nil, err
		}
		if _, blind := headers.Get(exchange.BCC); blind {
			in.blind = more[copies:]
			set.Headers = headers.AppendEdited(nil, amqp.Edit{Key: exchange.BCC, Remove: true})
			set.Zero |= amqp.Headers
		}
	}
	if user, ok := h.UserID(); ok && string(user) != c.user.Name && !c.user.Is("impersonator") {
		return nil, amqp.Errorf(amqp.PreconditionFailed, "user_id property set to '%s' but authenticated user was '%s'", user, c.user.Name)
	}
	if reserved := in.header[13]&3 != 0; reserved || set.Set() != 0 {
		changed, err := h.AppendChanged(nil, &set, 0)
		if err != nil {
			return nil, amqp.Errorf(amqp.InternalError, "")
		}
		changed[13] &^= 3 // bits without a meaning here, which others may find one for
		in.rewritten = changed
	}
	return more, nil
}

// appendCopies appends the routing keys in the header CC or BCC that could be one: no key is longer than a short string.
func appendCopies(dst [][]byte, headers amqp.Table, header string) ([][]byte, *amqp.Error) {
	n := len(dst)
	dst, err := exchange.AppendKeys(dst, headers, header)
	long := func(k []byte) bool { return len(k) > amqp.MaxShortstr }
	return dst[:n+len(slices.DeleteFunc(dst[n:], long))], err
}

// parseExpiration reads the expiration property. A text says what is wrong with it, in RabbitMQ's words.
func parseExpiration(v []byte) (ms int64, wrong string) {
	digits := v
	if len(digits) > 0 && (digits[0] == '-' || digits[0] == '+') {
		digits = digits[1:]
	}
	n := 0
	for n < len(digits) && digits[n] >= '0' && digits[n] <= '9' {
		n++
	}
	if n == 0 {
		return 0, "no_integer"
	}
	if n < len(digits) {
		return 0, `{leftover_string,"` + string(digits[n:]) + `"}`
	}
	ms, err := strconv.ParseInt(string(v), 10, 64)
	switch {
	case v[0] == '-' && ms != 0:
		return 0, "{value_negative," + string(v) + "}"
	case err != nil || ms > maxTTL:
		return 0, "{value_too_large," + string(bytes.TrimLeft(digits, "0")) + "}"
	}
	return ms, ""
}

// scope is the batch's view of topology, opened when first asked for and closed before anything is published.
func (c *conn) scope() *broker.Scope {
	if c.view == nil {
		c.view = c.vhost.Begin()
	}
	return c.view
}

func (c *conn) endScope() {
	if c.view != nil {
		c.view.End()
		c.view = nil
	}
}
