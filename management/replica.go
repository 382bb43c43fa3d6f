package management

import (
	"fmt"
	"net/http"
	"slices"
)

// statusRow is a replica of a quorum queue under RabbitMQ's names. What is not known is an empty text.
type statusRow struct {
	Node       string `json:"Node Name"`
	State      string `json:"Raft State"`
	Membership string `json:"Membership"`
	Last       any    `json:"Last Log Index"`
	Written    any    `json:"Last Written"`
	Applied    any    `json:"Last Applied"`
	Committed  any    `json:"Commit Index"`
	Snapshot   any    `json:"Snapshot Index"`
	Term       any    `json:"Term"`
	Machine    any    `json:"Machine Version"`
}

// machineVersion is that of the commands and states of quorum queues.
const machineVersion = 1

// index is a number in a status, or nothing.
func index(n uint64) any {
	if n == 0 {
		return ""
	}
	return n
}

// quorumQueue finds the queue in the path, or answers that there is none, or that it has no replicas.
func (a *API) quorumQueue(r *request) (q Queue, ok bool) {
	if !a.Broker.Queue(r.vars["vhost"], r.vars["queue"], &q) {
		a.missing(r.w)
		return q, false
	}
	if q.Quorum == nil {
		a.bad(r.w, "queue '"+q.Name+"' in vhost '"+q.VHost+"' is not a quorum queue")
		return q, false
	}
	return q, true
}

// quorumStatus shows the replicas of the slot in which a queue lies.
func (a *API) quorumStatus(r *request) {
	q, ok := a.quorumQueue(r)
	if !ok {
		return
	}
	heard := map[string]replicaView{a.Node: {Node: a.Node, Voting: true}} // a node alone has no slots to show
	for _, s := range a.slotViews(a.memberReports(r)) {
		if s.Name == q.Quorum.Slot {
			for _, one := range s.Replicas {
				heard[one.Node] = one
			}
		}
	}
	rows := []statusRow{}
	for _, name := range q.Quorum.Members {
		if one, ok := heard[name]; ok {
			rows = append(rows, statusOf(one, name == q.Quorum.Leader, "voter"))
		} else {
			rows = append(rows, statusRow{name, "noproc", "", "", "", "", "", "", "", ""})
		}
	}
	for _, m := range a.members() { // who follows has all that those have who vote
		one, ok := heard[m.Name]
		switch {
		case slices.Contains(q.Quorum.Members, m.Name):
		case !ok:
			rows = append(rows, statusRow{m.Name, "noproc", "", "", "", "", "", "", "", ""})
		case one.Voting || one.wanted:
			rows = append(rows, statusOf(one, false, "promotable"))
		default:
			rows = append(rows, statusOf(one, false, "non_voter"))
		}
	}
	a.answer(r, rows)
}

func statusOf(one replicaView, leads bool, membership string) statusRow {
	row := statusRow{Node: one.Node, State: "follower", Membership: membership, Last: index(one.Last), Written: index(one.Last), Applied: index(one.Applied),
		Committed: index(one.Committed), Snapshot: index(one.Snapshot), Term: index(one.Term), Machine: machineVersion}
	if leads {
		row.State = "leader"
	}
	return row
}

// hasMember says whether there is such a member, or answers that there is none.
func (a *API) hasMember(r *request, node string) bool {
	if _, ok := a.member(node); ok || node == a.Node {
		return true
	}
	a.bad(r.w, fmt.Sprintf("Node %s is not a cluster member", node))
	return false
}

// transferLeader has a member lead the slot of a queue.
func (a *API) transferLeader(r *request) {
	q, ok := a.quorumQueue(r)
	if !ok {
		return
	}
	body, ok := a.body(r)
	var node string
	if !ok || !a.texts(r, body, wanted{"node", &node}) || !a.hasMember(r, node) {
		return
	}
	if a.Peers == nil { // it leads already
		r.w.WriteHeader(http.StatusNoContent)
		return
	}
	a.done(r, a.Peers.TransferLeader(q.VHost, q.Name, node))
}
