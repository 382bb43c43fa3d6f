package management

// holds says whether this node has what is in a queue, leads whether it is the one that tells of it: each queue has its numbers on one node
// only, so that they can be added up over the nodes.
func (a *API) holds(q *Queue) bool { return a.Peers == nil || q.Home == "" || q.Home == a.Node }

func (a *API) leads(q *Queue) bool {
	return a.holds(q) && (a.Peers == nil || (q.Quorum == nil || q.Quorum.Leader == a.Node) && (q.Stream == nil || q.Stream.Leader == a.Node))
}

// clusterMetrics are of the other members, the links to them and this node's replicas.
func (a *API) clusterMetrics(e *exposition) {
	unreached := 0
	for _, m := range a.members() {
		if !m.Up {
			unreached++
		}
	}
	e.one("rabbitmq_unreachable_cluster_peers_count", gauge, "Nodes of the cluster that cannot be reached", float64(unreached))
	if a.Peers == nil {
		return
	}
	e.family("warren_cluster_member_up", gauge, "1 while a member of the cluster can be reached from this node")
	for _, m := range a.members() {
		e.sample("", labels("member", m.Name), truth(m.Up))
	}
	e.family("erlang_vm_dist_node_state", gauge, "Link to another node: 3 while it is up. The name is RabbitMQ's")
	for _, m := range a.members() {
		if m.Up && !m.This {
			e.sample("", labels("peer", m.Name), 3)
		}
	}
	links := a.Peers.Links()
	perLink := func(name, kind, help string, value func(*Link) float64) {
		e.family(name, kind, help)
		for i := range links {
			e.sample("", labels("peer", a.memberName(links[i].Peer), "class", links[i].Class), value(&links[i]))
		}
	}
	perLink("warren_link_connected", gauge, "1 while a link to another member is connected", func(l *Link) float64 { return truth(l.Connected) })
	perLink("warren_link_connections_total", counter, "Connections that a link has had", func(l *Link) float64 { return float64(l.Made) })
	perLink("warren_link_held_bytes", gauge, "Octets sent to another member that it has not acknowledged", func(l *Link) float64 { return float64(l.Held) })

	slots, this := a.Peers.Slots(), uint64(0)
	for _, m := range a.members() {
		if m.This {
			this = m.Number
		}
	}
	perSlot := func(name, kind, help string, value func(*Slot) float64) {
		e.family(name, kind, help)
		for i := range slots {
			e.sample("", labels("slot", slots[i].Name), value(&slots[i]))
		}
	}
	perSlot("warren_slot_has_leader", gauge, "1 while this node knows who leads the slot", func(s *Slot) float64 { return truth(s.Leader != 0) })
	perSlot("warren_slot_leader", gauge, "1 while this node leads the slot", func(s *Slot) float64 { return truth(s.Leader == this) })
	perSlot("warren_slot_term_total", counter, "Term of the slot: how many elections there were", func(s *Slot) float64 { return float64(s.Term) })
	perSlot("warren_slot_applied_index", gauge, "Index of the last command that this node has applied to the slot", func(s *Slot) float64 { return float64(s.Applied) })
}

// raftMetrics are those of the slots in which quorum queues lie, under RabbitMQ's names, as far as they are known.
func (a *API) raftMetrics() []metric[Queue] {
	if a.Peers == nil {
		return nil
	}
	slots := map[string]Slot{}
	for _, s := range a.Peers.Slots() {
		slots[s.Name] = s
	}
	var known []metric[Queue]
	for _, one := range []struct {
		name, help string
		value      func(Slot) uint64
	}{
		{"raft_term", "Term of the queue's Raft group", func(s Slot) uint64 { return s.Term }},
		{"raft_last_applied", "Index of the last command applied", func(s Slot) uint64 { return s.Applied }},
		{"raft_commit_index", "Index of the last command that is decided", func(s Slot) uint64 { return s.Committed }},
		{"raft_last_written_index", "Index of the last command in the log", func(s Slot) uint64 { return s.Last }},
		{"raft_snapshot_index", "Index of the last snapshot", func(s Slot) uint64 { return s.Snapshot }},
	} {
		for _, s := range slots {
			if one.value(s) > 0 {
				known = append(known, metric[Queue]{one.name, gauge, one.help, func(q *Queue) float64 { return float64(one.value(slots[q.Quorum.Slot])) }})
				break
			}
		}
	}
	return known
}
