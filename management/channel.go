package management

import (
	"net/http"
	"strconv"
)

type channelView struct {
	Name           string                `json:"name"`
	Node           string                `json:"node"`
	Number         int                   `json:"number"`
	User           string                `json:"user"`
	Actor          string                `json:"user_who_performed_action"`
	VHost          string                `json:"vhost"`
	State          string                `json:"state"`
	Transactional  bool                  `json:"transactional"`
	Confirm        bool                  `json:"confirm"`
	Consumers      int                   `json:"consumer_count"`
	Unacked        uint64                `json:"messages_unacknowledged"`
	Unconfirmed    uint64                `json:"messages_unconfirmed"`
	Uncommitted    uint64                `json:"messages_uncommitted"`
	AckUncommitted uint64                `json:"acks_uncommitted"`
	Prefetch       int                   `json:"prefetch_count"`
	GlobalPrefetch int                   `json:"global_prefetch_count"`
	IdleSince      string                `json:"idle_since,omitempty"`
	Connection     connectionDetailsView `json:"connection_details"`
	Stats          *messageStatsView     `json:"message_stats,omitempty"`
}

type connectionDetailsView struct {
	Name     string `json:"name"`
	PeerHost string `json:"peer_host"`
	PeerPort int    `json:"peer_port"`
}

type channelDetailView struct {
	channelView
	ConsumerDetails []consumerView `json:"consumer_details"`
	Publishes       []struct{}     `json:"publishes"`
	Deliveries      []struct{}     `json:"deliveries"`
}

// channelName is a channel's name in the API.
func channelName(connection string, number int) string {
	return connection + " (" + strconv.Itoa(number) + ")"
}

func (a *API) channelView(c *Channel) channelView {
	v := channelView{Name: channelName(c.Connection, c.Number), Node: a.Node, Number: c.Number, User: c.User, Actor: c.User, VHost: c.VHost, State: c.State,
		Transactional: c.Transactional, Confirm: c.Confirm, Consumers: c.Consumers, Unacked: c.Unacked, Unconfirmed: c.Unconfirmed,
		Uncommitted: c.Uncommitted, AckUncommitted: c.AckUncommitted, Prefetch: c.Prefetch, GlobalPrefetch: c.GlobalPrefetch,
		IdleSince: idle(c.IdleSince), Connection: connectionDetailsView{c.Connection, c.PeerHost, c.PeerPort}}
	counts := c.Counts
	if v.Stats = messageStats(&counts, nil); v.Stats != nil {
		v.Stats.publishedView = &publishedView{Confirm: c.Confirmed, Return: c.Returned, Drop: c.Dropped}
	}
	return v
}

// channels answers with the channels that want accepts and the user may see: monitors all, others their own.
func (a *API) channels(r *request, pages bool, want func(*Channel) bool) {
	q, ok := a.query(r, pages)
	if !ok {
		return
	}
	l := rows{query: q}
	var kept []channelView
	for c := range a.Broker.Channels() {
		if want(c) && (c.User == r.user.Name || r.user.monitors()) {
			view := a.channelView(c)
			kept = append(kept, view)
			l.add(c.VHost, view.Name, len(kept)-1, func() any { return view })
		}
	}
	a.gather(r, &l)
	a.send(r, &l, func(row row) (any, bool) { return kept[row.at], true })
}

func (a *API) listChannels(r *request) {
	vhost := r.vhostOf()
	a.channels(r, true, func(c *Channel) bool { return vhost == "" || c.VHost == vhost })
}

func (a *API) connectionChannels(r *request) {
	if connection, ok := a.connection(r, r.user.monitors()); ok {
		a.channels(r, false, func(c *Channel) bool { return c.Connection == connection.Name })
	}
}

func (a *API) oneChannel(r *request) {
	var found *Channel
	for c := range a.Broker.Channels() {
		if channelName(c.Connection, c.Number) == r.vars["channel"] {
			channel := *c
			found = &channel
			break
		}
	}
	if found == nil {
		if !a.elsewhere(r) {
			a.missing(r.w)
		}
		return
	}
	if found.User != r.user.Name && !r.user.monitors() {
		a.fail(r.w, http.StatusUnauthorized, "not_authorised", "User not authorised to access object")
		return
	}
	consumers := []consumerView{}
	for c := range a.Broker.Consumers(found.VHost) {
		if c.Connection == found.Connection && c.Channel == found.Number {
			consumers = append(consumers, a.consumerView(c))
		}
	}
	a.answer(r, channelDetailView{a.channelView(found), consumers, []struct{}{}, []struct{}{}})
}
