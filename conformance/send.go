package conformance

import (
	"encoding/binary"
	"fmt"
	"maps"
	"strings"
	"time"
)

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
