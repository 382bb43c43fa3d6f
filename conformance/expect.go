package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// settle is how long a socket may stay open after the last frame of a close handshake. RabbitMQ takes three seconds after a
// frame that cannot be parsed.
const settle = 8 * time.Second

func (r *run) expect(s *step, p *peer, ch uint16) error {
	if s.words[0] == "heartbeat" {
		return r.heartbeat(s, p)
	}
	e, closing, err := p.take(r.ctx, ch, 0, r.limit(s), first)
	if err != nil {
		return fmt.Errorf("expected %s: %w", s.expected(), err)
	}
	if closing {
		return fmt.Errorf("expected %s\n    came %s", s.expected(), e)
	}
	if err := r.early(s); err != nil {
		return err
	}
	return r.accept(s, p, ch, e)
}

func (s *step) expected() string {
	switch s.verb {
	case "!":
		return fmt.Sprintf("channel.close %d", s.count)
	case "!!":
		return fmt.Sprintf("connection.close %d", s.count)
	case "<":
		return s.words[0]
	}
	return s.verb
}

// early fails when something came before the step's "after".
func (r *run) early(s *step) error {
	if took := time.Since(r.mark); took < s.after {
		return fmt.Errorf("came after %v, expected not before %v", took.Round(time.Millisecond), s.after)
	}
	return nil
}

// accept matches an event taken for a "<" step and notes what it means for the connection.
func (r *run) accept(s *step, p *peer, ch uint16, e event) error {
	if s.words[0] == "protocol" {
		if s.body == nil || s.body.kind == kindAny {
			if e.protocol == nil {
				return fmt.Errorf("expected a protocol header\n    came %s", e)
			}
		} else if want, err := r.vars.value(*s.body); err != nil {
			return err
		} else if e.protocol == nil || asText(want) != string(e.protocol) {
			return fmt.Errorf("expected protocol header %s\n    came %s", format(want), e)
		}
		return nil
	}
	if err := r.match(e, s.method, s.fields, s.body); err != nil {
		return err
	}
	switch s.method.name {
	case "connection.tune":
		p.tune = e.msg
	case "connection.open-ok":
		p.ready = true
	case "connection.close-ok", "connection.close":
		p.ready = false
	case "channel.open-ok":
		p.state(ch).open = true
	case "channel.close":
		p.state(ch).byHand = true
	case "channel.close-ok":
		*p.state(ch) = channelState{ignored: p.state(ch).ignored}
	case "basic.ack", "basic.nack":
		return p.state(ch).confirm(e)
	}
	return nil
}

func (r *run) heartbeat(s *step, p *peer) error {
	deadline := time.Now().Add(r.limit(s))
	for {
		p.mu.Lock()
		ok := p.heartbeats > 0
		if ok {
			p.heartbeats--
		}
		closed := p.closed
		p.mu.Unlock()
		switch {
		case ok:
			return r.early(s)
		case closed != nil:
			return fmt.Errorf("expected a heartbeat: the socket was closed (%w)", closed)
		case time.Now().After(deadline):
			return fmt.Errorf("expected a heartbeat: %w", errTimeLimit)
		}
		r.wait(p, deadline)
	}
}

// wait returns when something came on p, at the deadline, or after 20 ms.
func (r *run) wait(p *peer, deadline time.Time) {
	d := min(time.Until(deadline), 20*time.Millisecond)
	select {
	case <-p.arrived:
	case <-time.After(d):
	case <-r.ctx.Done():
	}
}

// matchClose compares a channel.close or connection.close with "! code (method) text".
func (r *run) matchClose(s *step, p *peer, ch uint16, e event, kind string) error {
	err := func() error {
		if e.name() != kind {
			return errors.New("another method")
		}
		if code, _ := asInteger(e.msg.values["reply-code"]); int(code) != s.count && s.count != anyCode {
			return fmt.Errorf("code %d", code)
		}
		class, _ := asInteger(e.msg.values["class-id"])
		method, _ := asInteger(e.msg.values["method-id"])
		want, last := s.words[0], p.state(ch).last
		if s.verb == "!!" && s.channel < 0 {
			last = p.last
		}
		if want == "" && last != nil {
			want = last.name
		}
		if got := methodName(uint16(class), uint16(method)); got != want && want != "any" {
			return fmt.Errorf("failing method %s, expected %s", got, want)
		}
		return r.vars.match(*s.body, e.msg.values["reply-text"])
	}()
	if err != nil {
		return fmt.Errorf("expected %s %d (%w)\n    came %s", kind, s.count, err, e)
	}
	return nil
}

// channelError expects a channel.close and answers it.
func (r *run) channelError(s *step, p *peer, ch uint16) error {
	e, _, err := p.take(r.ctx, ch, 0, r.limit(s), first)
	if err != nil {
		return fmt.Errorf("expected channel.close %d: %w", s.count, err)
	}
	if err := errors.Join(r.matchClose(s, p, ch, e, "channel.close"), r.early(s)); err != nil {
		return err
	}
	err = p.send(ch, message{spec: methodsByName["channel.close-ok"]}, false)
	*p.state(ch) = channelState{ignored: p.state(ch).ignored}
	return err
}

// connectionError expects a connection.close, answers it and waits for the end of the socket.
func (r *run) connectionError(s *step, p *peer, ch uint16) error {
	e, closing, err := p.take(r.ctx, 0, ch, r.limit(s), first)
	if err != nil {
		return fmt.Errorf("expected connection.close %d: %w", s.count, err)
	}
	if closing {
		return fmt.Errorf("expected connection.close %d\n    came %s", s.count, e)
	}
	if err := errors.Join(r.matchClose(s, p, ch, e, "connection.close"), r.early(s)); err != nil {
		return err
	}
	// The broker may have closed its end already where it stopped reading: then writing fails, which is no matter.
	_ = p.send(0, message{spec: methodsByName["connection.close-ok"]}, false)
	if err := r.ended(p, settle); err != nil {
		return fmt.Errorf("after connection.close-ok: %w", err)
	}
	p.end(false)
	return nil
}

// ended waits for the broker to close the socket.
func (r *run) ended(p *peer, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		if closed != nil {
			if text := closed.Error(); strings.Contains(text, "broke the protocol") || strings.HasPrefix(text, "a frame") {
				return closed
			}
			return nil
		}
		if time.Now().After(deadline) || r.ctx.Err() != nil {
			return fmt.Errorf("expected the socket to be closed within %v", limit)
		}
		r.wait(p, deadline)
	}
}

func (r *run) closes(s *step, p *peer) error {
	if err := r.ended(p, r.limit(s)); err != nil {
		if came := p.leftover(-1); came != "" {
			return fmt.Errorf("%w\n    came %s", err, came)
		}
		return err
	}
	if err := r.early(s); err != nil {
		return err
	}
	if came := p.leftover(-1); came != "" {
		return fmt.Errorf("expected the socket to be closed\n    came %s", came)
	}
	p.end(false)
	return nil
}

func (r *run) nothing(s *step, p *peer) error {
	deadline := time.Now().Add(s.limit)
	for {
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		if came := p.leftover(s.channel); came != "" {
			return fmt.Errorf("expected nothing within %v\n    came %s", s.limit, came)
		}
		if closed != nil && !p.done {
			return fmt.Errorf("expected nothing within %v: the socket was closed (%w)", s.limit, closed)
		}
		if !time.Now().Before(deadline) {
			return r.ctx.Err()
		}
		r.wait(p, deadline)
	}
}

// confirms waits until each publish number of the step has been confirmed once, in the expected way.
func (r *run) confirms(s *step, p *peer, ch uint16) error {
	st := p.state(ch)
	deadline := time.Now().Add(r.limit(s))
	for {
		missing := uint64(0)
		for kind, ranges := range s.ranges {
			for _, span := range ranges {
				for n := span[0]; n <= span[1]; n++ {
					switch got := st.results[n]; {
					case got == "":
						missing = n
					case got != kind:
						return fmt.Errorf("publish %d: expected %s\n    came %s", n, kind, got)
					}
				}
			}
		}
		if missing == 0 {
			return nil
		}
		e, closing, err := p.take(r.ctx, ch, 0, time.Until(deadline), func(queue []event) int {
			for i, e := range queue {
				if n := e.name(); n == "basic.ack" || n == "basic.nack" || n == "channel.close" {
					return i
				}
			}
			return -1
		})
		if err != nil {
			return fmt.Errorf("expected a confirm of publish %d: %w", missing, err)
		}
		if closing || e.name() == "channel.close" {
			return fmt.Errorf("expected a confirm of publish %d\n    came %s", missing, e)
		}
		if err := st.confirm(e); err != nil {
			return err
		}
	}
}

// confirm notes a basic.ack or basic.nack; each publish is confirmed exactly once.
func (st *channelState) confirm(e event) error {
	tag, _ := asInteger(e.msg.values["delivery-tag"])
	n := uint64(tag)
	if st.results == nil {
		return fmt.Errorf("a confirm on a channel without confirm.select: %s", e)
	}
	if n == 0 || n > st.sent {
		return fmt.Errorf("a confirm of publish %d of %d: %s", n, st.sent, e)
	}
	if st.results[n] != "" {
		return fmt.Errorf("publish %d is confirmed twice: %s", n, e)
	}
	from := n
	if e.msg.values["multiple"] == true {
		from = 1
	}
	for i := from; i <= n; i++ {
		if st.results[i] == "" {
			st.results[i] = strings.TrimPrefix(e.name(), "basic.")
		}
	}
	return nil
}

// fits reports whether what waits is what a step expects, without taking it; certain is false while nothing waits.
func (r *run) fits(s *step) (ok, certain bool, came string) {
	p := r.peers[s.conn]
	if p == nil {
		return false, true, "no connection " + s.conn
	}
	ch := s.on()
	look := ch
	if s.verb == "!!" {
		look = 0
	}
	e, waits, closed := p.peek(look)
	if !waits && look != 0 && s.verb != "closes" {
		if c, any, _ := p.peek(0); any && c.name() == "connection.close" {
			return false, true, c.String()
		}
	}
	if s.verb == "closes" {
		return closed && p.leftover(-1) == "", closed || waits, e.describe(waits)
	}
	if !waits {
		return false, closed, e.describe(false)
	}
	saved := make(scope, len(r.vars))
	for k, v := range r.vars {
		saved[k] = v
	}
	var err error
	switch s.verb {
	case "<":
		if s.method == nil {
			err = errors.New("only methods")
		} else {
			err = r.match(e, s.method, s.fields, s.body)
		}
	case "!":
		err = r.matchClose(s, p, ch, e, "channel.close")
	case "!!":
		err = r.matchClose(s, p, ch, e, "connection.close")
	default:
		err = errors.New("only <, !, !! and closes may begin a branch")
	}
	if err != nil {
		r.vars = saved
	}
	return err == nil, true, e.String()
}

func (e event) describe(waits bool) string {
	if waits {
		return e.String()
	}
	return "nothing"
}

// either plays the branch whose first step fits what comes.
func (r *run) either(s *step) error {
	branches := [][]*step{nil}
	for _, inner := range s.steps {
		if inner.verb == "or" {
			branches = append(branches, inner.steps)
		} else {
			branches[0] = append(branches[0], inner)
		}
	}
	limit := r.limit(s)
	for _, b := range branches {
		limit = max(limit, b[0].limit)
	}
	deadline := time.Now().Add(limit)
	for {
		settled, last := true, ""
		for _, b := range branches {
			ok, certain, came := r.fits(b[0])
			if ok {
				return r.steps(b)
			}
			settled, last = settled && certain, came
		}
		if settled || time.Now().After(deadline) || r.ctx.Err() != nil {
			return fmt.Errorf("expected one of %d alternatives\n    came %s", len(branches), last)
		}
		r.wait(r.peers[branches[0][0].conn], deadline)
	}
}

// anyOrder takes the steps below in whatever order they come.
func (r *run) anyOrder(s *step) error {
	left := append([]*step(nil), s.steps...)
	deadline := time.Now().Add(r.limit(s))
	for len(left) > 0 {
		hit, settled, last := -1, true, ""
		for i, inner := range left {
			ok, certain, came := r.fits(inner)
			if ok {
				hit = i
				break
			}
			settled = settled && certain
			if last == "" || last == "nothing" {
				last = came
			}
		}
		if hit >= 0 {
			inner := left[hit]
			if err := r.step(inner); err != nil {
				return lineError{inner.line, err}
			}
			left = append(left[:hit], left[hit+1:]...)
			continue
		}
		if settled || time.Now().After(deadline) || r.ctx.Err() != nil {
			return fmt.Errorf("expected %s (line %d) and %d more in any order\n    came %s", left[0].expected(), left[0].line, len(left)-1, last)
		}
		r.wait(r.peers[left[0].conn], deadline)
	}
	return nil
}

// finish closes the connections and fails when something came that no step waited for.
func (r *run) finish() error {
	for _, p := range r.peers {
		if p.done {
			continue
		}
		if p.ready {
			m := message{spec: methodsByName["connection.close"], values: map[string]any{"reply-code": uint64(200), "reply-text": "done"}}
			if _, err := r.call(p, 0, m, r.target.limit); err != nil {
				return fmt.Errorf("at the end of the case: %w", err)
			}
		}
		if came := p.leftover(-1); came != "" {
			return fmt.Errorf("no step waits for %s", came)
		}
		p.end(false)
	}
	return nil
}
