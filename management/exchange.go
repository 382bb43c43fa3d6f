package management

type exchangeView struct {
	Name       string             `json:"name"`
	VHost      string             `json:"vhost"`
	Type       string             `json:"type"`
	Durable    bool               `json:"durable"`
	AutoDelete bool               `json:"auto_delete"`
	Internal   bool               `json:"internal"`
	Arguments  map[string]any     `json:"arguments"`
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
		Arguments: jsonTable(x.Arguments)}
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
	for x := range a.Broker.Exchanges(vhost) {
		if x.Name == name {
			return viewExchange(x), true
		}
	}
	return view, false
}

// exchangeName is the exchange that a path segment means: the default exchange has no name that could stand there.
func exchangeName(segment string) string {
	if segment == "amq.default" {
		return ""
	}
	return segment
}
