package management

import "fmt"

type exchangeView struct {
	Name       string             `json:"name"`
	VHost      string             `json:"vhost"`
	Type       string             `json:"type"`
	Durable    bool               `json:"durable"`
	AutoDelete bool               `json:"auto_delete"`
	Internal   bool               `json:"internal"`
	Arguments  map[string]any     `json:"arguments"`
	Policy     string             `json:"policy,omitempty"`
	Stats      *exchangeStatsView `json:"message_stats,omitempty"`
}

type exchangeStatsView struct {
	In  uint64 `json:"publish_in"`
	Out uint64 `json:"publish_out"`
}

type exchangeDetailView struct {
	exchangeView
	Incoming []struct{} `json:"incoming"`
	Outgoing []struct{} `json:"outgoing"`
}

func viewExchange(x *Exchange) exchangeView {
	v := exchangeView{Name: x.Name, VHost: x.VHost, Type: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal,
		Arguments: jsonTable(x.Arguments), Policy: x.Policy}
	if x.Counted && (x.In > 0 || x.Out > 0) {
		v.Stats = &exchangeStatsView{x.In, x.Out}
	}
	return v
}

func (a *API) listExchanges(r *request) {
	q, ok := a.query(r, true)
	if !ok {
		return
	}
	sees := a.visible(r.user)
	l := rows{query: q}
	var kept []exchangeView
	for x := range a.Broker.Exchanges(r.vhostOf()) {
		if sees(x.VHost) {
			view := viewExchange(x)
			kept = append(kept, view)
			l.add(x.VHost, x.Name, len(kept)-1, func() any { return view })
		}
	}
	a.send(r, &l, func(row row) (any, bool) { return kept[row.at], true })
}

func (a *API) oneExchange(r *request) {
	view, ok := a.exchange(r.vars["vhost"], exchangeName(r.vars["exchange"]))
	if !ok {
		a.missing(r.w)
		return
	}
	a.answer(r, exchangeDetailView{view, []struct{}{}, []struct{}{}})
}

func (a *API) exchange(vhost, name string) (view exchangeView, ok bool) {
	var x Exchange
	if !a.Broker.Exchange(vhost, name, &x) {
		return view, false
	}
	return viewExchange(&x), true
}

// exchangeName is the exchange that a path segment means: the default exchange has no name that could stand there.
func exchangeName(segment string) string {
	if segment == "amq.default" {
		return ""
	}
	return segment
}

func (a *API) declareExchange(r *request) {
	body, ok := a.body(r)
	if !ok {
		return
	}
	x := Exchange{VHost: r.vars["vhost"], Name: exchangeName(r.vars["exchange"]), Type: "direct"}
	if len(x.Name) > 255 {
		a.bad(r.w, tooLong("exchange", x.Name))
		return
	}
	switch kind := body["type"].(type) {
	case nil:
	case string:
		x.Type = kind
	default:
		a.bad(r.w, fmt.Sprintf("invalid exchange type '%v'", kind))
		return
	}
	if x.Durable, ok = a.boolean(r, body, "durable"); !ok {
		return
	}
	if x.AutoDelete, ok = a.boolean(r, body, "auto_delete"); !ok {
		return
	}
	if x.Internal, ok = a.boolean(r, body, "internal"); !ok {
		return
	}
	if x.Arguments, ok = a.arguments(r, body); !ok {
		return
	}
	created, err := a.Broker.DeclareExchange(r.user, &x)
	a.put(r, created, err)
}

func (a *API) deleteExchange(r *request) {
	name := exchangeName(r.vars["exchange"])
	if _, ok := a.exchange(r.vars["vhost"], name); !ok {
		a.missing(r.w)
		return
	}
	a.done(r, a.Broker.DeleteExchange(r.user, r.vars["vhost"], name, r.URL.Query().Get("if-unused") == "true"))
}

// tooLong is what is wrong with a name of more than 255 octets.
func tooLong(what, name string) string {
	return fmt.Sprintf("%s should be less than 255 bytes, actually was %d\n", what, len(name))
}

// arguments reads the table of arguments, which may be missing. An empty list counts as an empty table: some languages know no difference.
func (a *API) arguments(r *request, body map[string]any) (arguments map[string]any, ok bool) {
	switch arguments := body["arguments"].(type) {
	case nil:
		return nil, true
	case map[string]any:
		return amqpValue(arguments).(map[string]any), true
	case []any:
		if len(arguments) == 0 {
			return nil, true
		}
	}
	a.bad(r.w, "arguments is no object")
	return nil, false
}
