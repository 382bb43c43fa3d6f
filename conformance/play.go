package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
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
	declared []string  // "queue name" and "exchange name", for the janitor
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
	case "drop", "reset":
		p.end(s.verb == "reset")
		return nil
	}
	return fmt.Errorf("no verb %q", s.verb)
}

// message makes what a step sends.
func (r *run) message(s *step, p *peer) (message, error) {
	m := message{spec: s.method, values: map[string]any{}}
	switch m.spec.name {
	case "connection.start-ok":
		m.values["mechanism"], m.values["locale"] = "PLAIN", "en_US"
		m.values["response"] = "\x00" + r.target.user + "\x00" + r.target.password
		m.values["client-properties"] = clientProperties()
	case "connection.tune-ok":
		maps.Copy(m.values, p.tune.values)
		m.values["heartbeat"] = uint64(0)
	case "connection.open":
		m.values["virtual-host"] = r.target.vhost
	}
	for _, f := range s.fields {
		spec, ok := m.spec.field(f.name)
		if !ok {
			spec, _ = findField(propertySpecs, f.name)
		}
		v, err := r.vars.field(f.value, spec.domain)
		if err != nil {
			return m, fmt.Errorf("%s: %w", f.name, err)
		}
		m.values[f.name] = v
	}
	if s.body != nil {
		v, err := r.vars.value(*s.body)
		if err != nil {
			return m, err
		}
		m.body = []byte(asText(v))
	}
	return m, nil
}

func asText(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	s, _ := v.(string)
	return s
}

// prepare opens the channel if the interpreter has to, and notes what is declared.
func (r *run) prepare(p *peer, ch uint16, m *methodSpec) error {
	st := p.state(ch)
	if !p.ready || ch == 0 || st.open || st.byHand {
		return nil
	}
	if m != nil {
		switch m.name {
		case "channel.open":
			st.open = true
			return nil
		case "channel.close-ok":
			return nil
		}
	}
	if r.target.product == "rabbitmq" {
		p.forget(ch) // RabbitMQ may send deliveries after its own channel.close
	}
	*st = channelState{open: true, ignored: st.ignored}
	hold := p.hold
	p.hold = false
	_, err := r.call(p, ch, message{spec: methodsByName["channel.open"], values: map[string]any{}}, r.target.limit)
	p.hold = hold
	return err
}

func (r *run) note(m message) {
	kind, verb, _ := strings.Cut(m.spec.name, ".")
	if verb != "declare" || m.values["passive"] == true {
		return
	}
	if name, _ := m.values[kind].(string); strings.Contains(name, "cf-"+r.target.id) {
		r.declared = append(r.declared, kind+" "+name)
	}
}

func (r *run) send(s *step, p *peer, ch uint16) error {
	if s.method == nil {
		return r.sendRaw(s, p, ch)
	}
	if err := r.prepare(p, ch, s.method); err != nil {
		return err
	}
	m, err := r.message(s, p)
	if err != nil {
		return err
	}
	r.note(m)
	st := p.state(ch)
	switch m.spec.name {
	case "channel.close-ok":
		*st = channelState{ignored: st.ignored}
	case "connection.close-ok":
		p.ready = false
	case "channel.close":
		st.byHand = true
	case "connection.tune-ok":
		n, _ := asInteger(m.values["frame-max"])
		p.frameMax.Store(uint32(n))
	}
	return p.send(ch, m, s.words[0] == "method")
}

// sendRaw writes a header, body, heartbeat or made-up frame.
func (r *run) sendRaw(s *step, p *peer, ch uint16) error {
	if s.words[0] != "heartbeat" {
		if err := r.prepare(p, ch, nil); err != nil {
			return err
		}
	}
	values := map[string]any{}
	for _, f := range s.fields {
		spec, ok := findField(propertySpecs, f.name)
		if !ok || s.words[0] == "frame" {
			spec.domain = "long"
		}
		if f.name == "payload" || f.name == "properties" {
			spec.domain = "shortstr"
		}
		v, err := r.vars.field(f.value, spec.domain)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		values[f.name] = v
	}
	number := func(name string, otherwise int) uint64 {
		if n, ok := asInteger(values[name]); ok {
			return uint64(n)
		}
		return uint64(otherwise)
	}
	body := ""
	if s.body != nil {
		v, err := r.vars.value(*s.body)
		if err != nil {
			return err
		}
		body = asText(v)
	}
	var b []byte
	switch s.words[0] {
	case "header":
		payload, err := encodeHeader(uint16(number("class", 60)), uint16(number("weight", 0)), number("size", 0), values)
		if err != nil {
			return err
		}
		if raw, ok := values["properties"]; ok { // flags and list by hand
			payload = append(payload[:12], asText(raw)...)
		}
		b = appendFrame(nil, frameHeader, ch, payload)
	case "body":
		b = appendFrame(nil, frameBody, ch, []byte(body))
	case "heartbeat":
		b = appendFrame(nil, frameHeartbeat, ch, nil)
	case "frame":
		payload := asText(values["payload"])
		if s.body != nil {
			payload = body
		}
		b = appendFrame(nil, byte(number("type", frameMethod)), ch, []byte(payload))
		if _, ok := values["size"]; ok {
			binary.BigEndian.PutUint32(b[3:], uint32(number("size", 0)))
		}
		b[len(b)-1] = byte(number("end", frameEnd))
		if values["end"] != nil && number("end", 0) == 256 { // none: the frame breaks off
			b = b[:len(b)-1]
		}
		if len(payload) >= 4 && number("type", frameMethod) == frameMethod {
			p.last = methodsByID[binary.BigEndian.Uint32([]byte(payload))]
			p.state(ch).last = p.last
		}
	default:
		return fmt.Errorf("%q cannot be sent", s.words[0])
	}
	r.log.add("%s/%d  > %s, %d octets", p.name, ch, s.words[0], len(b))
	return p.write(b)
}

// call sends a request and returns the reply. Deliveries, returns, confirms and cancels that come before it stay queued.
func (r *run) call(p *peer, ch uint16, m message, limit time.Duration) (event, error) {
	if err := r.prepare(p, ch, m.spec); err != nil {
		return event{}, err
	}
	r.note(m)
	if err := p.send(ch, m, false); err != nil {
		return event{}, err
	}
	wanted := m.spec.name + "-ok"
	e, _, err := p.take(r.ctx, ch, 0, limit, func(queue []event) int {
		for i, e := range queue {
			if !e.asynchronous() {
				return i
			}
		}
		return -1
	})
	if err != nil {
		return e, fmt.Errorf("expected %s: %w", wanted, err)
	}
	if name := e.name(); name != wanted && !(m.spec.name == "basic.get" && name == "basic.get-empty") {
		return e, fmt.Errorf("expected %s\n    came %s", wanted, e)
	}
	switch m.spec.name {
	case "channel.close":
		*p.state(ch) = channelState{ignored: p.state(ch).ignored}
	case "connection.close":
		p.ready = false
	case "channel.open":
		p.state(ch).open = true
	}
	return e, nil
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

// match compares an event with a method, fields and body. "redelivered" is compared also where it is not written.
func (r *run) match(e event, m *methodSpec, fields []fieldLiteral, body *literal) error {
	vars := maps.Clone(r.vars)
	err := func() error {
		if e.protocol != nil || e.msg.spec != m {
			return errors.New("another method")
		}
		redelivered := false
		for _, f := range fields {
			redelivered = redelivered || f.name == "redelivered"
			v, ok := e.msg.values[f.name]
			none := f.value.kind == kindWord && f.value.text == "none"
			switch {
			case none && ok:
				return fmt.Errorf("%s is there", f.name)
			case none:
				continue
			case !ok:
				return fmt.Errorf("%s is missing", f.name)
			}
			if err := vars.match(textual(f.value, v), v); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
		if e.msg.values["redelivered"] == true && !redelivered {
			return errors.New("it is marked redelivered")
		}
		if body == nil {
			return nil
		}
		got := string(e.msg.body)
		if err := vars.match(textual(*body, got), got); err != nil {
			return fmt.Errorf("body: %w", err)
		}
		return nil
	}()
	if err != nil {
		return fmt.Errorf("expected %s (%w)\n    came %s", m.name, err, e)
	}
	maps.Copy(r.vars, vars)
	return nil
}

// textual makes hex"..." a string where a field or a body, which are strings, is compared.
func textual(l literal, got any) literal {
	made := l.kind == kindTyped && (l.text == "join" || l.text == "random")
	if _, ok := got.(string); ok && (l.kind == kindBytes || made) {
		return literal{kind: kindTyped, text: "S", items: []literal{l}}
	}
	return l
}

func (r *run) http(s *step) error {
	deadline := time.Now().Add(r.limit(s))
	for {
		err := r.request(s)
		if err == nil || !s.eventual || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

func (r *run) request(s *step) error {
	escaped := scope{}
	for name, v := range r.vars {
		escaped[name] = url.PathEscape(fmt.Sprint(v))
	}
	path, err := escaped.expand(s.words[1])
	if err != nil {
		return err
	}
	body := ""
	if len(s.words) > 2 {
		if body, err = r.vars.expand(s.words[2]); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.limit(s))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, s.words[0], strings.TrimSuffix(r.target.http.String(), "/")+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.SetBasicAuth(r.target.user, r.target.password)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return err
	}
	r.log.add("http %s %s -> %d", s.words[0], path, resp.StatusCode)
	if resp.StatusCode != s.count {
		return fmt.Errorf("expected status %d\n    came %d %.300s", s.count, resp.StatusCode, got)
	}
	if s.tail == nil {
		return nil
	}
	pattern, err := r.vars.expand(s.tail.text)
	if err != nil {
		return err
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	if !re.Match(got) {
		return fmt.Errorf("expected a body that matches %q\n    came %.300s", pattern, got)
	}
	return nil
}
