package cli

import (
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/remote"
)

// What clients of this node do with queues of others, and the other way round.

// directReply is the kind of a message between nodes that is a direct reply: the requester's name, and the message.
const directReply = 1

// home is the number of the member on which a classic queue lives, by its id and what metadata says.
func (m *membership) home(id broker.QueueID, said uint64) uint64 {
	switch _, soft := id.SoftID(); {
	case said != 0:
		return said
	case soft:
		return m.identity.Number
	}
	return 1
}

func (m *membership) homeOf(q *broker.Queue) uint64 { return m.home(q.ID, q.Home) }

// proxy is the queue behind one that lives on another node; nil if it lives here.
func (m *membership) proxy(q broker.NewQueue) queue.Queue {
	home := m.home(q.ID, q.Home)
	if home == m.identity.Number {
		return nil
	}
	m.mu.Lock()
	at := m.ids[home]
	m.mu.Unlock()
	id := remote.ID{Number: uint64(q.ID)}
	if number, soft := q.ID.SoftID(); soft {
		id = remote.ID{Scope: home, Number: number}
	}
	return m.remote.NewQueue(at, id)
}

// find is the queue that a client of another node means.
func (m *membership) find(id remote.ID) queue.Queue {
	if id.Scope != 0 && id.Scope != m.identity.Number {
		return nil
	}
	return m.rooms.broker.QueueByID(broker.QueueID(id.Number))
}

// tellSoft tells the others how the soft state of this node has changed.
func (m *membership) tellSoft(items []broker.SoftItem) {
	changes := make([]remote.Change, len(items))
	for i, x := range items {
		changes[i] = remote.Change{Key: []byte(x.Key), Value: x.Command, Drop: x.Command == nil}
	}
	m.remote.SetSoft(changes...)
}

// softChanged is told how that of another node has.
func (m *membership) softChanged(peer cluster.NodeID, changes []remote.Change) {
	p, ok := m.link.Peers().Find(peer)
	if !ok {
		return
	}
	items := make([]broker.SoftItem, len(changes))
	for i, c := range changes {
		items[i].Key = string(c.Key)
		if !c.Drop {
			items[i].Command = c.Value
		}
	}
	if err := m.rooms.broker.ApplySoft(p.Number, items); err != nil {
		m.log.Error("another node has told what makes no sense of its exclusive queues", "node", p.Name, "error", err.Error())
	}
}

// Member implements server.Others.
func (m *membership) Member() uint64 { return m.identity.Number }

// Reached implements server.Others.
func (m *membership) Reached(member uint64) bool { return m.isUp(member) }

// Reply implements server.Others.
func (m *membership) Reply(member uint64, name []byte, msg queue.Message) {
	if p, ok := m.link.Peers().Member(member); ok {
		m.remote.Send(p.ID, directReply, []byte{byte(len(name))}, name, remote.AppendMessage(nil, msg, m.rooms.pool))
	}
}

// direct gets what another node has sent without a queue in between.
func (m *membership) direct(_ cluster.NodeID, kind uint8, body []byte) {
	if kind != directReply || len(body) == 0 || len(body) < 1+int(body[0]) || !m.rooms.serving.Load() {
		return
	}
	name := body[1 : 1+body[0]]
	msg, _, err := remote.ReadMessage(body[1+len(name):], m.rooms.pool)
	if err != nil {
		m.log.Error("another node has sent a reply that makes no sense", "error", err.Error())
		return
	}
	m.rooms.server.Reply(name, msg)
}
