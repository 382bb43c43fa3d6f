package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A run is one case being played. It belongs to one goroutine.
type run struct {
	ctx      context.Context
	target   target
	index    int
	vars     scope
	log      *trace
	peers    map[string]*peer
	declared []string  // "queue name", "exchange name" and "http path", for the janitor
	server   table     // server-properties of the last connection
	mark     time.Time // end of the last step
}

func (r *run) steps(steps []*step) error {
	for _, s := range steps {
		if err := r.step(s); err != nil {
			var at lineError
			if errors.As(err, &at) {
				return err
			}
			return lineError{s.line, err}
		}
		r.mark = time.Now()
	}
	return nil
}

func (r *run) limit(s *step) time.Duration {
	if s.limit > 0 {
		return s.limit
	}
	return r.target.limit
}

func (r *run) step(s *step) error {
	switch s.verb {
	case "names":
		for _, name := range s.words {
			r.vars[name] = fmt.Sprintf("cf-%s-%d-%s", r.target.id, r.index, name)
		}
		return nil
	case "set":
		v, err := r.vars.value(*s.body)
		r.vars[s.words[0]] = v
		return err
	case "on":
		if r.target.product == s.words[0] {
			return r.steps(s.steps)
		}
		return nil
	case "repeat":
		for i := 1; i <= s.count; i++ {
			r.vars["i"] = int64(i)
			if err := r.steps(s.steps); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		return nil
	case "either":
		return r.either(s)
	case "any order":
		return r.anyOrder(s)
	case "http":
		return r.http(s)
	case "tcp":
		p, err := dial(r.ctx, s.conn, r.target.address, r.log)
		if err == nil {
			r.adopt(p)
		}
		return err
	case "connect":
		p, err := r.connect(s.conn, s.fields)
		if err == nil {
			r.adopt(p)
		}
		return err
	}
	p := r.peers[s.conn]
	if p == nil {
		var err error
		if p, err = r.connect(s.conn, nil); err != nil {
			return err
		}
		r.adopt(p)
	}
	return r.onPeer(s, p)
}

func (r *run) adopt(p *peer) {
	if old := r.peers[p.name]; old != nil {
		old.end(false)
	}
	r.peers[p.name] = p
	r.vars[p.name+".address"] = p.conn.LocalAddr().String()
	r.vars[p.name+".name"] = p.conn.LocalAddr().String() + " -> " + p.conn.RemoteAddr().String()
}

// channel is the channel a step is about: written, or 0 for connection methods, or 1.
func (s *step) on() uint16 {
	switch {
	case s.channel >= 0:
		return uint16(s.channel)
	case s.method != nil && s.method.class == 10, s.verb == "<" && s.words[0] == "protocol",
		s.method == nil && s.verb == ">" && s.words[0] == "heartbeat":
		return 0
	}
	return 1
}

func (r *run) onPeer(s *step, p *peer) error {
	ch := s.on()
	switch s.verb {
	case "unopened":
		p.state(ch).byHand = true
		return nil
	case "ignore":
		p.state(ch).ignored = true
		return nil
	case "send":
		v, err := r.vars.value(*s.body)
		if err != nil {
			return err
		}
		b, ok := v.([]byte)
		if text, isText := v.(string); isText {
			b, ok = []byte(text), true
		}
		if !ok {
			return errors.New("send takes a string or hex")
		}
		r.log.add("%s  > octets %s", p.name, format(b))
		return p.write(b)
	case "together":
		p.hold = true
		err := r.steps(s.steps)
		p.hold = false
		if err == nil {
			err = p.write(p.held)
		}
		p.held = nil
		return err
	case ">":
		return r.send(s, p, ch)
	case "call":
		return r.callStep(s, p, ch)
	case "<":
		return r.expect(s, p, ch)
	case "!":
		return r.channelError(s, p, ch)
	case "!!":
		return r.connectionError(s, p, ch)
	case "confirms":
		return r.confirms(s, p, ch)
	case "nothing":
		return r.nothing(s, p)
	case "closes":
		return r.closes(s, p)
	case "stall", "resume":
		p.stall(s.verb == "stall")
		return nil
	case "drop", "reset":
		p.end(s.verb == "reset")
		return nil
	}
	return fmt.Errorf("no verb %q", s.verb)
}

func (r *run) callStep(s *step, p *peer, ch uint16) error {
	deadline := time.Now().Add(r.limit(s))
	for {
		m, err := r.message(s, p)
		if err != nil {
			return err
		}
		e, err := r.call(p, ch, m, r.limit(s))
		if err != nil {
			return err
		}
		if err = r.matchReply(s, e); err == nil || !s.eventual || time.Now().After(deadline) {
			return err
		}
		if e.name() == "basic.get-ok" {
			return err // asking again would take another message
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

func (r *run) matchReply(s *step, e event) error {
	empty := false
	for _, f := range s.reply {
		empty = empty || f.name == "empty"
	}
	if s.method.name == "basic.get" && empty != (e.name() == "basic.get-empty") && s.hasTail {
		return fmt.Errorf("expected %s\n    came %s", map[bool]string{true: "basic.get-empty", false: "basic.get-ok"}[empty], e)
	}
	if !s.hasTail || empty {
		return nil
	}
	return r.match(e, e.msg.spec, s.reply, s.tail)
}
