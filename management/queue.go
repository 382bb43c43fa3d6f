package management

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// queueIdentityView are the fields of a queue that do not move.
type queueIdentityView struct {
	Name          string         `json:"name"`
	VHost         string         `json:"vhost"`
	Type          string         `json:"type"`
	Durable       bool           `json:"durable"`
	AutoDelete    bool           `json:"auto_delete"`
	Exclusive     bool           `json:"exclusive"`
	Arguments     map[string]any `json:"arguments"`
	Node          string         `json:"node"`
	State         string         `json:"state"`
	Internal      bool           `json:"internal"`
	InternalOwner bool           `json:"internal_owner"`
	*replicatedView
}

// replicatedView are the fields of quorum queues and streams that do not move, or not often.
type replicatedView struct {
	Leader        string   `json:"leader"`
	Members       []string `json:"members"`
	Online        []string `json:"online"`
	DeliveryLimit any      `json:"delivery_limit,omitempty"` // or "unlimited"; of quorum queues
}

// streamView are the other fields that only streams have.
type streamView struct {
	Readers   map[string]int `json:"readers"`
	Segments  int            `json:"segments"`
	First     uint64         `json:"first_offset"`
	Committed *uint64        `json:"committed_offset"` // of the last message; null: there is none
}

// quorumView are the other fields that only quorum queues have.
type quorumView struct {
	DelayedRetry    string `json:"delayed_retry"`
	Delayed         uint64 `json:"messages_delayed"`
	DLX             uint64 `json:"messages_dlx"`
	DLXBytes        uint64 `json:"message_bytes_dlx"`
	Persistent      uint64 `json:"messages_persistent"`
	PersistentBytes uint64 `json:"message_bytes_persistent"`
}

// queuePolicyView is what disable_stats shows.
type queuePolicyView struct {
	queueIdentityView
	Policy         *string        `json:"policy"`
	OperatorPolicy *string        `json:"operator_policy"`
	Definition     map[string]any `json:"effective_policy_definition"`
}

// queueTotalView is what disable_stats with enable_queue_totals shows.
type queueTotalView struct {
	queuePolicyView
	Messages uint64 `json:"messages"`
	Ready    uint64 `json:"messages_ready"`
	Unacked  uint64 `json:"messages_unacknowledged"`
}

// queueView is a queue in a list.
type queueView struct {
	queueIdentityView
	Messages        uint64            `json:"messages"`
	MessagesDetails *details          `json:"messages_details,omitempty"`
	Ready           uint64            `json:"messages_ready"`
	ReadyDetails    *details          `json:"messages_ready_details,omitempty"`
	Unacked         uint64            `json:"messages_unacknowledged"`
	UnackedDetails  *details          `json:"messages_unacknowledged_details,omitempty"`
	RAM             uint64            `json:"messages_ram"`
	ReadyRAM        uint64            `json:"messages_ready_ram"`
	UnackedRAM      uint64            `json:"messages_unacknowledged_ram"`
	Bytes           uint64            `json:"message_bytes"`
	ReadyBytes      uint64            `json:"message_bytes_ready"`
	UnackedBytes    uint64            `json:"message_bytes_unacknowledged"`
	BytesRAM        uint64            `json:"message_bytes_ram"`
	Stats           *messageStatsView `json:"message_stats,omitempty"`
	Consumers       int               `json:"consumers"`
	Capacity        *decimal          `json:"consumer_capacity,omitempty"`
	Utilisation     *decimal          `json:"consumer_utilisation,omitempty"`
	Memory          uint64            `json:"memory"`
	Policy          string            `json:"policy,omitempty"`
	OperatorPolicy  string            `json:"operator_policy,omitempty"`
	Definition      map[string]any    `json:"effective_policy_definition"`
	Owner           *ownerView        `json:"owner_pid_details,omitempty"`
	StorageVersion  int               `json:"storage_version,omitempty"`
	*quorumView
	*streamView
}

type ownerView struct {
	Name     string `json:"name"`
	PeerHost string `json:"peer_host,omitempty"`
	PeerPort int    `json:"peer_port,omitempty"`
}

// queueDetailView is a queue on its own, or in /queues/detailed.
type queueDetailView struct {
	queueView
	Policy               *string        `json:"policy"` // null for none, which the list leaves out
	OperatorPolicy       *string        `json:"operator_policy"`
	ExclusiveConsumer    *string        `json:"exclusive_consumer_tag"`
	SingleActiveConsumer *string        `json:"single_active_consumer_tag"`
	HeadTimestamp        *int64         `json:"head_message_timestamp"`
	IdleSince            string         `json:"idle_since,omitempty"`
	ConsumerDetails      []consumerView `json:"consumer_details"`
	Deliveries           []struct{}     `json:"deliveries"`
	Incoming             []struct{}     `json:"incoming"`
}

func (a *API) queueIdentity(q *Queue) queueIdentityView {
	v := queueIdentityView{Name: q.Name, VHost: q.VHost, Type: q.Type, Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive,
		Arguments: jsonTable(q.Arguments), Node: a.Node, State: q.State}
	if q.Home != "" {
		if v.Node = q.Home; q.Home != a.Node { // which was asked first, and is not there
			v.State = "down"
		}
	}
	if u := q.Quorum; u != nil {
		v.Node, v.State = u.Leader, u.state(q.State)
		v.replicatedView = &replicatedView{Leader: u.Leader, Members: list(u.Members), Online: list(u.Online), DeliveryLimit: u.DeliveryLimit}
		if u.DeliveryLimit < 0 {
			v.DeliveryLimit = "unlimited"
		}
	}
	if u := q.Stream; u != nil {
		v.Node = u.Leader
		v.replicatedView = &replicatedView{Leader: u.Leader, Members: list(u.Members), Online: list(u.Online)}
	}
	return v
}

// state is RabbitMQ's state of a quorum queue: what it would be, unless too few of its members are there.
func (u *QuorumQueue) state(state string) string {
	switch {
	case len(u.Online) == 0:
		return "down"
	case len(u.Online) <= len(u.Members)/2:
		return "minority"
	}
	return state
}

// messages are all that a queue has.
func messages(q *Queue) uint64 {
	n := q.Ready + q.Unacked
	if q.Quorum != nil {
		n += q.Quorum.Delayed + q.Quorum.Kept
	}
	return n
}

// definition is what policies come to for a queue, {} for none.
func definition(q *Queue) map[string]any {
	if q.Definition == nil {
		return map[string]any{}
	}
	return q.Definition
}

func (a *API) queuePolicies(q *Queue) queuePolicyView {
	return queuePolicyView{a.queueIdentity(q), known(q.Policy), known(q.OperatorPolicy), definition(q)}
}

// queueView is a queue with what the other members have said of it.
func (a *API) queueView(q *Queue, others []memberShares) queueView {
	v := queueView{queueIdentityView: a.queueIdentity(q),
		Messages: messages(q), Ready: q.Ready, Unacked: q.Unacked,
		RAM: q.Ready + q.Unacked, ReadyRAM: q.Ready, UnackedRAM: q.Unacked, // until messages can lie elsewhere
		Bytes: q.ReadyBytes + q.UnackedBytes, ReadyBytes: q.ReadyBytes, UnackedBytes: q.UnackedBytes,
		BytesRAM:  q.ReadyBytes + q.UnackedBytes,
		Consumers: q.Consumers, Policy: q.Policy, OperatorPolicy: q.OperatorPolicy, Definition: definition(q), Memory: q.Memory, StorageVersion: 2}
	if capacity := decimal(q.Capacity); capacity >= 0 {
		v.Capacity, v.Utilisation = &capacity, &capacity
	}
	if u := q.Quorum; u != nil {
		v.RAM, v.ReadyRAM, v.UnackedRAM, v.BytesRAM, v.StorageVersion = 0, 0, 0, 0, 0
		v.Bytes += u.KeptBytes
		v.quorumView = &quorumView{DelayedRetry: u.DelayedRetry, Delayed: u.Delayed, DLX: u.Kept, DLXBytes: u.KeptBytes,
			Persistent: v.Messages, PersistentBytes: v.Bytes}
	}
	if u := q.Stream; u != nil {
		v.RAM, v.ReadyRAM, v.UnackedRAM, v.BytesRAM, v.StorageVersion = 0, 0, 0, 0, 0
		v.streamView = &streamView{Readers: map[string]int{a.Node: u.Readers}, Segments: u.Segments, First: u.First}
		if u.Next > 0 {
			last := u.Next - 1
			v.Committed = &last
		}
	}
	counts := q.Counts
	rates, sampled := a.samples.queue(q.ID)
	if sampled {
		v.MessagesDetails = &details{rates.ready + rates.unacked}
		v.ReadyDetails = &details{rates.ready}
		v.UnackedDetails = &details{rates.unacked}
		v.Stats = messageStats(&counts, &rates)
	} else {
		v.Stats = messageStats(&counts, nil)
	}
	if q.Stream != nil {
		v.addShares(others)
	}
	if q.Owner != "" {
		v.Owner = &ownerView{Name: q.Owner}
	}
	return v
}

// queueDetail is a queue with its consumers.
func (a *API) queueDetail(q *Queue, others []memberShares, consumers []consumerView) queueDetailView {
	v := queueDetailView{queueView: a.queueView(q, others), ConsumerDetails: list(consumers), Deliveries: []struct{}{}, Incoming: []struct{}{}}
	v.Policy, v.OperatorPolicy = known(q.Policy), known(q.OperatorPolicy)
	if q.ExclusiveConsumer != "" {
		v.ExclusiveConsumer = &q.ExclusiveConsumer
	}
	if q.SingleActiveConsumer != "" {
		v.SingleActiveConsumer = &q.SingleActiveConsumer
	}
	if !q.HeadTimestamp.IsZero() {
		at := q.HeadTimestamp.Unix()
		v.HeadTimestamp = &at
	}
	if q.Stream == nil { // one of another node may have used it
		v.IdleSince = idle(q.IdleSince)
	}
	if q.Owner != "" {
		var owner Connection
		if a.Broker.Connection(q.Owner, &owner) {
			v.Owner = &ownerView{q.Owner, owner.PeerHost, owner.PeerPort}
		}
	}
	return v
}

// idle is idle_since: a time, if something has been idle for a sampling interval.
func idle(since time.Time) string {
	if since.IsZero() || time.Since(since) < time.Second {
		return ""
	}
	return since.UTC().Format("2006-01-02T15:04:05.000-07:00")
}

func (a *API) listQueues(r *request)       { a.queues(r, false) }
func (a *API) listQueuesInFull(r *request) { a.queues(r, true) }

func (a *API) queues(r *request, full bool) {
	q, ok := a.query(r, true)
	if !ok {
		return
	}
	var shares []memberShares
	view := func(queue *Queue) any {
		switch {
		case q.identity && q.identityTotals:
			return queueTotalView{a.queuePolicies(queue), messages(queue), queue.Ready, queue.Unacked}
		case q.identity:
			return a.queuePolicies(queue)
		}
		return a.queueView(queue, shares)
	}
	sees := a.visible(r.user)
	l := rows{query: q}
	full = !q.identity && (full || q.columns != nil)
	others := a.gather(r, &l)
	shares = sharesOf(others)
	tells := a.teller(r, others)
	for queue := range a.Broker.Queues(r.vhostOf()) {
		switch {
		case !sees(queue.VHost):
		case tells(queue):
			l.add(queue.VHost, queue.Name, 0, func() any { return view(queue) })
		default:
			a.tellShare(r, &q, queue)
		}
	}
	consumers := map[[2]string][]consumerView{}
	if full && q.columns.has("consumer_details") {
		for _, c := range a.consumers(r, others, func(c *Consumer) bool { return sees(c.VHost) }) {
			key := [2]string{c.Queue.VHost, c.Queue.Name}
			consumers[key] = append(consumers[key], c)
		}
		for i := range l.rows {
			if row := &l.rows[i]; row.encoded != nil {
				row.encoded = withConsumers(row.encoded, consumers[[2]string{row.vhost, row.name}], q.columns)
			}
		}
	}
	var queue Queue
	a.send(r, &l, func(row row) (any, bool) {
		if queue = (Queue{}); !a.Broker.Queue(row.vhost, row.name, &queue) {
			return nil, false
		}
		if full {
			return a.queueDetail(&queue, shares, consumers[[2]string{row.vhost, row.name}]), true
		}
		return view(&queue), true
	})
}

func (a *API) oneQueue(r *request) {
	var queue Queue
	if !a.Broker.Queue(r.vars["vhost"], r.vars["queue"], &queue) {
		a.missing(r.w)
		return
	}
	p := r.URL.Query()
	columns := columnsOf(p.Get("columns"))
	q := query{columns: columns, identity: p.Get("disable_stats") == "true"}
	inFull := !q.identity && columns.has("consumer_details")
	var others []heard
	if inFull || !a.holds(&queue) || queue.Stream != nil && q.wantsShares() {
		others = a.others(r, r.asks(http.MethodGet))
	}
	var consumers []consumerView
	if inFull {
		consumers = a.consumers(r, others, func(c *Consumer) bool { return c.VHost == queue.VHost && c.Queue == queue.Name })
	}
	if tells := a.teller(r, others); !tells(&queue) {
		a.tellShare(r, &q, &queue)
		for _, one := range others {
			if one.Name == queue.Home && one.reply != nil && one.Status == http.StatusOK {
				one.Body = withConsumers(one.Body, consumers, columns)
				one.pass(r.w)
				return
			}
		}
		a.missing(r.w)
		return
	}
	if q.identity {
		if p.Get("enable_queue_totals") == "true" {
			a.answer(r, queueTotalView{a.queuePolicies(&queue), messages(&queue), queue.Ready, queue.Unacked})
		} else {
			a.answer(r, a.queuePolicies(&queue))
		}
		return
	}
	a.answer(r, a.queueDetail(&queue, sharesOf(others), consumers))
}

func (a *API) declareQueue(r *request) {
	body, ok := a.body(r)
	if !ok {
		return
	}
	d := QueueDeclaration{VHost: r.vars["vhost"], Name: r.vars["queue"]}
	if len(d.Name) > 255 {
		a.bad(r.w, tooLong("queue", d.Name))
		return
	}
	if d.Durable, ok = a.boolean(r, body, "durable"); !ok {
		return
	}
	if d.AutoDelete, ok = a.boolean(r, body, "auto_delete"); !ok {
		return
	}
	if d.Arguments, ok = a.arguments(r, body); !ok {
		return
	}
	if node, ok := body["node"]; ok && node != a.Node && node != "" && node != nil {
		name, _ := node.(string)
		m, isMember := a.member(name)
		if !isMember || r.asked {
			a.bad(r.w, fmt.Sprintf("Node %v is not a cluster member", node))
			return
		}
		q := r.asks(http.MethodPut)
		q.Body = encode(body)
		if answer := a.ask(m, q); answer != nil {
			answer.pass(r.w)
			return
		}
		a.bad(r.w, fmt.Sprintf("Node %v does not answer", node))
		return
	}
	created, err := a.Broker.DeclareQueue(r.user, d)
	a.put(r, created, err)
}

func (a *API) deleteQueue(r *request) {
	p := r.URL.Query()
	err := a.Broker.DeleteQueue(r.user, r.vars["vhost"], r.vars["queue"], p.Get("if-unused") == "true", p.Get("if-empty") == "true")
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Code == 540 { // conditions that the type does not know
		a.bad(r.w, refusal.Text)
		return
	}
	a.done(r, err)
}

func (a *API) purgeQueue(r *request) {
	a.done(r, a.Broker.PurgeQueue(r.user, r.vars["vhost"], r.vars["queue"]))
}

// done answers a change that has nothing to show.
func (a *API) done(r *request, err error) {
	if err != nil {
		a.refuse(r.w, err)
		return
	}
	r.w.WriteHeader(http.StatusNoContent)
}
