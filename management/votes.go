package management

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// What RabbitMQ's tools call a member of a quorum queue is one here that has a vote in the slot where the queue lies. All queues of a
// slot have the same members: who gets a vote for one of them has it for all.

// choice says which queues are meant, and with them which slots. With nothing in it, all slots are, those without queues as well.
type choice struct {
	vhost, queue   string // exactly this one
	vhosts, queues *regexp.Regexp
	even           bool // where an even number has a vote
}

// voteRow is what became of a member's vote for a queue.
type voteRow struct {
	VHost  string `json:"vhost"`
	Name   string `json:"name"`
	Size   int    `json:"size"`
	Result string `json:"result"`
}

// readChoice reads a choice from a request's body, or answers what is wrong with it.
func (a *API) readChoice(r *request, body map[string]any) (c choice, ok bool) {
	switch s, said := body["strategy"]; {
	case said && s != "all" && s != "even":
		a.bad(r.w, fmt.Sprintf("Unknown strategy %v: it is all or even", s))
		return c, false
	default:
		c.even = s == "even"
	}
	for name, into := range map[string]**regexp.Regexp{"vhost_pattern": &c.vhosts, "queue_pattern": &c.queues} {
		pattern, _ := body[name].(string)
		if pattern == "" || pattern == ".*" {
			continue
		}
		x, err := regexp.Compile(pattern)
		if err != nil {
			a.bad(r.w, name+" is no regular expression: "+err.Error())
			return c, false
		}
		*into = x
	}
	return c, true
}

// slot is where a quorum queue or stream lies, empty for others.
func (q *Queue) slot() string {
	switch {
	case q.Quorum != nil:
		return q.Quorum.Slot
	case q.Stream != nil:
		return q.Stream.Slot
	}
	return ""
}

func (c choice) is(q *Queue) bool {
	return (c.queue == "" || c.queue == q.Name && c.vhost == q.VHost) && (c.vhosts == nil || c.vhosts.MatchString(q.VHost)) &&
		(c.queues == nil || c.queues.MatchString(q.Name))
}

// vote gives a member a vote in the slots of queues, or takes it, and returns what became of it by queue, and by slot where there is none.
func (a *API) vote(node string, votes bool, c choice) (rows []voteRow, err error) {
	rows = []voteRow{}
	type named struct{ vhost, name string }
	chosen := map[string][]named{}
	for q := range a.Broker.Queues("") {
		if slot := q.slot(); (slot != "" || a.Peers == nil && (q.Quorum != nil || q.Stream != nil)) && c.is(q) {
			chosen[slot] = append(chosen[slot], named{q.VHost, q.Name})
		}
	}
	var list []Voted
	if a.Peers != nil {
		every := c.queue == "" && c.vhosts == nil && c.queues == nil
		list, err = a.Peers.Vote(node, votes, func(s Slot) bool {
			return (every || chosen[s.Name] != nil) && (!c.even || len(s.Members)%2 == 0)
		})
	} else if !votes { // a node that is alone
		list = []Voted{{Size: 1, Err: fmt.Errorf("last_node: %s is alone", node)}}
	}
	for _, one := range list {
		row := voteRow{Size: one.Size, Result: "ok"}
		if one.Err != nil {
			row.Result = "error: " + one.Err.Error()
			if len(chosen[one.Slot]) == 0 {
				row.Name = "slot " + one.Slot + ", without queues"
				rows = append(rows, row)
			}
		}
		for _, q := range chosen[one.Slot] {
			row.VHost, row.Name = q.vhost, q.name
			rows = append(rows, row)
		}
	}
	return rows, err
}

// voted answers a request of RabbitMQ's, which wants to know no more than whether it has worked.
func (a *API) voted(r *request, status int, node string, votes bool, c choice) {
	rows, err := a.vote(node, votes, c)
	if err != nil {
		a.refuse(r.w, err)
		return
	}
	var failed []string
	for _, row := range rows {
		if row.Result != "ok" {
			failed = append(failed, fmt.Sprintf("queue '%s' in vhost '%s': %s", row.Name, row.VHost, row.Result))
		}
	}
	if failed != nil {
		a.fail(r.w, http.StatusServiceUnavailable, "Service Unavailable", strings.Join(failed, "; "))
		return
	}
	r.w.WriteHeader(status)
}

func (a *API) growReplicas(r *request) {
	body, ok := a.body(r)
	if !ok || !a.hasMember(r, r.vars["node"]) {
		return
	}
	if c, ok := a.readChoice(r, body); ok {
		a.voted(r, http.StatusNoContent, r.vars["node"], true, c)
	}
}

// shrinkReplicas takes its votes from a node. One that is no member has none, as after it was forgotten.
func (a *API) shrinkReplicas(r *request) {
	node := r.vars["node"]
	if _, ok := a.member(node); !ok && node != a.Node {
		r.w.WriteHeader(http.StatusAccepted)
		return
	}
	a.voted(r, http.StatusAccepted, node, false, choice{})
}

func (a *API) addReplica(r *request)    { a.oneReplica(r, http.StatusNoContent, true) }
func (a *API) deleteReplica(r *request) { a.oneReplica(r, http.StatusAccepted, false) }

// oneReplica gives a member a vote for a queue, or takes it.
func (a *API) oneReplica(r *request, status int, votes bool) {
	q, ok := a.quorumQueue(r)
	if !ok {
		return
	}
	body, ok := a.body(r)
	var node string
	if ok && a.texts(r, body, wanted{"node", &node}) && a.hasMember(r, node) {
		a.voted(r, status, node, votes, choice{vhost: q.VHost, queue: q.Name})
	}
}

// setVotes is grow and shrink as Warren's own tool wants them: what it answers has a row for each queue.
func (a *API) setVotes(r *request) {
	body, ok := a.body(r)
	if !ok || !a.hasMember(r, r.vars["node"]) {
		return
	}
	votes, said := body["vote"].(bool)
	if !said {
		a.bad(r.w, []any{"not_boolean", "vote"})
		return
	}
	c, ok := a.readChoice(r, body)
	if !ok {
		return
	}
	rows, err := a.vote(r.vars["node"], votes, c)
	if err != nil {
		a.refuse(r.w, err)
		return
	}
	a.answer(r, rows)
}
