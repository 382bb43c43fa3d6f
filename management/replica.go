package management

import (
	"fmt"
	"net/http"
	"regexp"
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
	heard := map[string]replicaView{a.Node: {Voting: true}} // a node alone has no slots to show
	for _, s := range a.slotViews(a.memberReports(r)) {
		if s.Name == q.Quorum.Slot {
			for _, one := range s.Replicas {
				heard[one.Node] = one
			}
		}
	}
	rows := []statusRow{}
	for _, name := range q.Quorum.Members {
		one, ok := heard[name]
		if !ok {
			rows = append(rows, statusRow{name, "noproc", "", "", "", "", "", "", "", ""})
			continue
		}
		row := statusRow{Node: name, State: "follower", Membership: "voter", Last: index(one.Last), Written: index(one.Last), Applied: index(one.Applied),
			Committed: index(one.Committed), Snapshot: index(one.Snapshot), Term: index(one.Term), Machine: machineVersion}
		if name == q.Quorum.Leader {
			row.State = "leader"
		}
		if !one.Voting {
			row.Membership = "promotable"
		}
		rows = append(rows, row)
	}
	a.answer(r, rows)
}

// hasMember says whether there is such a member, or answers that there is none.
func (a *API) hasMember(r *request, node string) bool {
	if _, ok := a.member(node); ok || node == a.Node {
		return true
	}
	a.bad(r.w, fmt.Sprintf("Node %s is not a cluster member", node))
	return false
}

// growTo gives a member the replicas that it should have. Every member has one of every slot, so there is nothing to do as a rule.
func (a *API) growTo(r *request, node string) {
	if a.Peers != nil {
		if err := a.Peers.Grow(node); err != nil {
			a.refuse(r.w, err)
			return
		}
	}
	r.w.WriteHeader(http.StatusNoContent)
}

func (a *API) growReplicas(r *request) {
	body, ok := a.body(r)
	if !ok || !a.hasMember(r, r.vars["node"]) {
		return
	}
	if s, said := body["strategy"]; said && s != "all" && s != "even" {
		a.bad(r.w, fmt.Sprintf("Unknown strategy %v: it is all or even", s))
		return
	}
	for _, name := range []string{"vhost_pattern", "queue_pattern"} {
		if pattern, _ := body[name].(string); pattern != "" {
			if _, err := regexp.Compile(pattern); err != nil {
				a.bad(r.w, name+" is no regular expression: "+err.Error())
				return
			}
		}
	}
	a.growTo(r, r.vars["node"])
}

func (a *API) addReplica(r *request) {
	if _, ok := a.quorumQueue(r); !ok {
		return
	}
	body, ok := a.body(r)
	var node string
	if ok && a.texts(r, body, wanted{"node", &node}) && a.hasMember(r, node) {
		a.growTo(r, node)
	}
}

// keepReplicas refuses to take replicas from a member, as RabbitMQ does where a setting forbids it.
func (a *API) keepReplicas(r *request) {
	a.fail(r.w, http.StatusMethodNotAllowed, "method_not_allowed", "every member of the cluster has a replica of every quorum queue, and none can be taken from "+
		"one that stays. A node that is gone for good leaves with 'warren cluster forget NODE', and its replicas with it")
}

func (a *API) deleteReplica(r *request) {
	if _, ok := a.quorumQueue(r); ok {
		a.keepReplicas(r)
	}
}

// shrinkReplicas takes its replicas from a node. One that is no member has none, as after it was forgotten.
func (a *API) shrinkReplicas(r *request) {
	if _, ok := a.member(r.vars["node"]); ok || r.vars["node"] == a.Node {
		a.keepReplicas(r)
		return
	}
	r.w.WriteHeader(http.StatusAccepted)
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
