package management

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"net/http"
	"net/url"
	"strings"
)

type bindingView struct {
	Source          string         `json:"source"`
	VHost           string         `json:"vhost"`
	Destination     string         `json:"destination"`
	DestinationType string         `json:"destination_type"`
	RoutingKey      string         `json:"routing_key"`
	Arguments       map[string]any `json:"arguments"`
	PropertiesKey   string         `json:"properties_key"`
}

func viewBinding(b *Binding) bindingView {
	v := bindingView{Source: b.Source, VHost: b.VHost, Destination: b.Destination, DestinationType: "queue", RoutingKey: b.RoutingKey,
		Arguments: jsonTable(b.Arguments), PropertiesKey: propertiesKey(b.RoutingKey, b.Arguments)}
	if b.ToExchange {
		v.DestinationType = "exchange"
	}
	return v
}

// propertiesKey tells bindings between the same two ends apart: the routing key, and a hash of the arguments if there are any.
// RabbitMQ's hash is Erlang's phash2, which clients take as it comes; this one is FNV-1a of the arguments as JSON, whose keys are sorted.
func propertiesKey(routingKey string, arguments map[string]any) string {
	if len(arguments) == 0 {
		if routingKey == "" {
			return "~"
		}
		return quote(routingKey)
	}
	h := fnv.New32a()
	h.Write(encode(jsonTable(arguments)))
	hash := base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, h.Sum32()))
	return quote(routingKey) + "~" + quote(hash)
}

// quote is form encoding in which ~ is not safe, because it separates.
func quote(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "~", "%7E")
}

// bindings answers with the bindings that want accepts. Those of the default exchange follow from the queues.
func (a *API) bindings(r *request, want func(*Binding) bool) {
	q, ok := a.query(r, false)
	if !ok {
		return
	}
	sees := a.visible(r.user)
	l := rows{query: q}
	var kept []bindingView
	add := func(b *Binding) {
		if !sees(b.VHost) || want != nil && !want(b) {
			return
		}
		view := viewBinding(b)
		kept = append(kept, view)
		// The order is by source, type, destination, routing key and properties key; 0 cannot stand in the first four.
		order := strings.Join([]string{b.Source, view.DestinationType, b.Destination, b.RoutingKey, view.PropertiesKey}, "\x00")
		l.add(b.VHost, order, len(kept)-1, func() any { return view })
	}
	for queue := range a.Broker.Queues(r.vhostOf()) {
		add(&Binding{VHost: queue.VHost, Destination: queue.Name, RoutingKey: queue.Name})
	}
	for b := range a.Broker.Bindings(r.vhostOf()) {
		add(b)
	}
	a.send(r, &l, func(row row) (any, bool) { return kept[row.at], true })
}

func (a *API) listBindings(r *request) { a.bindings(r, nil) }

func (a *API) queueBindings(r *request) {
	var queue Queue
	if !a.Broker.Queue(r.vars["vhost"], r.vars["queue"], &queue) {
		a.missing(r.w)
		return
	}
	a.bindings(r, func(b *Binding) bool { return !b.ToExchange && b.Destination == queue.Name })
}

// exchangeBindings are those of which an exchange is the source, or the destination, as the path's end says.
func (a *API) exchangeBindings(r *request) {
	name := exchangeName(r.vars["exchange"])
	if _, ok := a.exchange(r.vars["vhost"], name); !ok {
		a.missing(r.w)
		return
	}
	if strings.HasSuffix(strings.TrimSuffix(r.URL.Path, "/"), "/source") {
		a.bindings(r, func(b *Binding) bool { return b.Source == name })
	} else {
		a.bindings(r, func(b *Binding) bool { return b.ToExchange && b.Destination == name })
	}
}

// pair returns what tells whether a binding leads between the two ends in the path, or answers that an end is missing.
func (a *API) pair(r *request) (want func(*Binding) bool, ok bool) {
	source, toExchange := exchangeName(r.vars["source"]), r.vars["kind"] == "e"
	destination := r.vars["destination"]
	_, ok = a.exchange(r.vars["vhost"], source)
	if toExchange {
		destination = exchangeName(destination)
		_, there := a.exchange(r.vars["vhost"], destination)
		ok = ok && there
	} else {
		ok = ok && a.Broker.Queue(r.vars["vhost"], destination, new(Queue))
	}
	if !ok {
		a.missing(r.w)
		return nil, false
	}
	return func(b *Binding) bool {
		return b.Source == source && b.ToExchange == toExchange && b.Destination == destination
	}, true
}

func (a *API) pairBindings(r *request) {
	if want, ok := a.pair(r); ok {
		a.bindings(r, want)
	}
}

func (a *API) oneBinding(r *request) {
	if found, ok := a.named(r); ok {
		a.answer(r, viewBinding(found))
	}
}

// named finds the binding in the path, or answers that there is none.
func (a *API) named(r *request) (found *Binding, ok bool) {
	want, ok := a.pair(r)
	if !ok {
		return nil, false
	}
	look := func(b *Binding) {
		if want(b) && propertiesKey(b.RoutingKey, b.Arguments) == r.vars["properties"] {
			kept := *b
			found = &kept
		}
	}
	if r.vars["kind"] == "q" {
		look(&Binding{VHost: r.vars["vhost"], Destination: r.vars["destination"], RoutingKey: r.vars["destination"]})
	}
	for b := range a.Broker.Bindings(r.vars["vhost"]) {
		look(b)
	}
	if found == nil {
		a.missing(r.w)
	}
	return found, found != nil
}

// maxBindingBody bounds the body of a request that binds, in bytes, as in RabbitMQ.
const maxBindingBody = 5000

// ends answers that an end of the binding in the path is missing, with the broker's text.
func (a *API) ends(r *request) (b Binding, ok bool) {
	b = Binding{VHost: r.vars["vhost"], Source: exchangeName(r.vars["source"]), Destination: r.vars["destination"], ToExchange: r.vars["kind"] == "e"}
	no := func(what, name string) {
		a.fail(r.w, http.StatusNotFound, "not_found", "no "+what+" '"+name+"' in vhost '"+b.VHost+"'")
	}
	if _, ok := a.exchange(b.VHost, b.Source); !ok {
		no("exchange", b.Source)
		return b, false
	}
	if !b.ToExchange {
		if !a.Broker.Queue(b.VHost, b.Destination, new(Queue)) {
			no("queue", b.Destination)
			return b, false
		}
		return b, true
	}
	b.Destination = exchangeName(b.Destination)
	if _, ok := a.exchange(b.VHost, b.Destination); !ok {
		no("exchange", b.Destination)
		return b, false
	}
	return b, true
}

// bind makes a binding and says under which path it can be found, seen from the path of the request.
func (a *API) bind(r *request) {
	r.Body = http.MaxBytesReader(r.w, r.Body, maxBindingBody)
	body, ok := a.body(r)
	if !ok {
		return
	}
	b, ok := a.ends(r)
	if !ok {
		return
	}
	switch key := body["routing_key"].(type) {
	case nil:
	case string:
		b.RoutingKey = key
	default:
		a.bad(r.w, []any{"not_string", "routing_key"})
		return
	}
	if len(b.RoutingKey) > 255 {
		a.bad(r.w, tooLong("routing_key", b.RoutingKey))
		return
	}
	if b.Arguments, ok = a.arguments(r, body); !ok {
		return
	}
	if err := a.Broker.Bind(r.user, &b); err != nil {
		a.refuse(r.w, err)
		return
	}
	escape := func(segment string) string { return strings.ReplaceAll(url.PathEscape(segment), "+", "%2B") }
	r.w.Header().Set("Location", escape(r.vars["destination"])+"/"+escape(propertiesKey(b.RoutingKey, b.Arguments)))
	r.w.WriteHeader(http.StatusCreated)
}

func (a *API) unbind(r *request) {
	found, ok := a.named(r)
	if !ok {
		return
	}
	a.done(r, a.Broker.Unbind(r.user, found))
}
