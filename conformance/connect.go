package conformance

import (
	"fmt"
)

// clientProperties are what a peer says of itself unless a transcript says otherwise: all capabilities.
func clientProperties() table {
	return table{
		{"product", "warren conformance"},
		{"capabilities", table{
			{"publisher_confirms", true}, {"exchange_exchange_bindings", true}, {"basic.nack", true}, {"consumer_cancel_notify", true},
			{"connection.blocked", true}, {"authentication_failure_close", true},
		}},
	}
}

// connect makes a connection up to open-ok. Fields: user, password, vhost, mechanism, response, properties, capabilities,
// channel-max, frame-max, heartbeat.
func (r *run) connect(name string, fields []fieldLiteral) (*peer, error) {
	values := map[string]any{"user": r.target.user, "password": r.target.password, "vhost": r.target.vhost, "mechanism": "PLAIN"}
	for _, f := range fields {
		domain := "shortstr"
		switch f.name {
		case "properties", "capabilities":
			domain = "table"
		case "channel-max", "frame-max", "heartbeat":
			domain = "long"
		case "user", "password", "vhost", "mechanism", "response":
		default:
			return nil, fmt.Errorf("connect has no %s", f.name)
		}
		v, err := r.vars.field(f.value, domain)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		values[f.name] = v
	}
	p, err := dial(r.ctx, name, r.target.address, r.log)
	if err != nil {
		return nil, err
	}
	if err := r.handshake(p, values); err != nil {
		p.end(false)
		return nil, fmt.Errorf("connect: %w", err)
	}
	return p, nil
}

func (r *run) handshake(p *peer, values map[string]any) error {
	if err := p.write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	start, err := r.answer(p, "connection.start")
	if err != nil {
		return err
	}
	r.server, _ = start.msg.values["server-properties"].(table)
	props := clientProperties()
	if t, ok := values["properties"].(table); ok {
		props = t
	}
	if t, ok := values["capabilities"].(table); ok {
		props = append(table{}, props[0], entry{"capabilities", t})
	}
	response := values["response"]
	if response == nil {
		response = "\x00" + asText(values["user"]) + "\x00" + asText(values["password"])
	}
	reply := message{spec: methodsByName["connection.start-ok"], values: map[string]any{"client-properties": props,
		"mechanism": values["mechanism"], "response": response, "locale": "en_US"}}
	if err := p.send(0, reply, false); err != nil {
		return err
	}
	tune, err := r.answer(p, "connection.tune")
	if err != nil {
		return err
	}
	p.tune = tune.msg
	tuned := map[string]any{"channel-max": tune.msg.values["channel-max"], "frame-max": tune.msg.values["frame-max"], "heartbeat": uint64(0)}
	for name := range tuned {
		if v, ok := values[name]; ok {
			tuned[name] = v
		}
	}
	limit, _ := asInteger(tuned["frame-max"])
	p.frameMax.Store(uint32(limit))
	if err := p.send(0, message{spec: methodsByName["connection.tune-ok"], values: tuned}, false); err != nil {
		return err
	}
	open := message{spec: methodsByName["connection.open"], values: map[string]any{"virtual-host": values["vhost"]}}
	if err := p.send(0, open, false); err != nil {
		return err
	}
	if _, err = r.answer(p, "connection.open-ok"); err != nil {
		return err
	}
	p.ready = true
	return nil
}

// answer waits for one method of the handshake.
func (r *run) answer(p *peer, name string) (event, error) {
	e, _, err := p.take(r.ctx, 0, 0, r.target.limit, first)
	if err != nil {
		return e, fmt.Errorf("expected %s: %w", name, err)
	}
	if e.name() != name {
		return e, fmt.Errorf("expected %s\n    came %s", name, e)
	}
	return e, nil
}
