package management

type consumerView struct {
	Queue       queueNameView      `json:"queue"`
	Channel     channelDetailsView `json:"channel_details"`
	Tag         string             `json:"consumer_tag"`
	Exclusive   bool               `json:"exclusive"`
	AckRequired bool               `json:"ack_required"`
	Prefetch    int                `json:"prefetch_count"`
	Active      bool               `json:"active"`
	Status      string             `json:"activity_status"`
	Arguments   map[string]any     `json:"arguments"`
	Timeout     int64              `json:"consumer_timeout"`
}

type queueNameView struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
}

type channelDetailsView struct {
	Name       string `json:"name"`
	Number     int    `json:"number"`
	User       string `json:"user"`
	Connection string `json:"connection_name"`
	PeerHost   string `json:"peer_host"`
	PeerPort   int    `json:"peer_port"`
	Node       string `json:"node"`
}

func (a *API) consumerView(c *Consumer) consumerView {
	return consumerView{Queue: queueNameView{c.Queue, c.VHost},
		Channel: channelDetailsView{channelName(c.Connection, c.Channel), c.Channel, c.User, c.Connection, c.PeerHost, c.PeerPort, a.Node},
		Tag:     c.Tag, Exclusive: c.Exclusive, AckRequired: c.AckRequired, Prefetch: c.Prefetch, Active: c.Active, Status: c.Status,
		Arguments: jsonTable(c.Arguments), Timeout: c.Timeout.Milliseconds()}
}

// listConsumers shows monitors all consumers, others their own.
func (a *API) listConsumers(r *request) {
	q, ok := a.query(r, false)
	if !ok {
		return
	}
	sees := a.visible(r.user)
	l := rows{query: q}
	var kept []consumerView
	for c := range a.Broker.Consumers(r.vhostOf()) {
		if sees(c.VHost) && (c.User == r.user.Name || r.user.monitors()) {
			view := a.consumerView(c)
			kept = append(kept, view)
			l.add(c.VHost, c.Queue+"\x00"+view.Channel.Name+"\x00"+c.Tag, len(kept)-1, func() any { return view })
		}
	}
	a.gather(r, &l)
	a.send(r, &l, func(row row) (any, bool) { return kept[row.at], true })
}
