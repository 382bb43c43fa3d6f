package cli

import (
	"fmt"

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

// numberKnown is the number of a node that is a member or was one; 0 if it never was.
func (m *membership) numberKnown(peer cluster.NodeID) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for number, id := range m.ids {
		if id == peer {
			return number
		}
	}
	return 0
}

// nodeName is the name of a member.
func (m *membership) nodeName(number uint64) string {
	for _, x := range m.rooms.broker.Members() {
		if x.Number == number {
			return x.Name
		}
	}
	return fmt.Sprintf("member-%d", number)
}

// numberOf is the number of a member by its name, 0 if there is none.
func (m *membership) numberOf(name string) uint64 {
	for _, x := range m.rooms.broker.Members() {
		if x.Name == name {
			return x.Number
		}
	}
	return 0
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
	number := m.numberKnown(peer)
	if number == 0 {
		return
	}
	items := make([]broker.SoftItem, 0, len(changes))
	for _, c := range changes {
		if string(c.Key) == softAlarms {
			m.hearAlarms(number, c.Value)
			continue
		}
		item := broker.SoftItem{Key: string(c.Key)}
		if !c.Drop {
			item.Command = c.Value
		}
		items = append(items, item)
	}
	if err := m.rooms.broker.ApplySoft(number, items); err != nil {
		m.log.Error("another node has told what makes no sense of its exclusive queues", "member", number, "error", err.Error())
	}
}

// softAlarms is the item of soft state that says which alarms a node has, in an octet; none is there while it has none. Other keys
// have a NUL.
const softAlarms = "alarms"

// tellAlarms tells the others of those of this node.
func (m *membership) tellAlarms(own, _ broker.Alarm) {
	m.remote.SetSoft(remote.Change{Key: []byte(softAlarms), Value: []byte{byte(own)}, Drop: own == 0})
}

// hearAlarms is told of those of another member.
func (m *membership) hearAlarms(member uint64, value []byte) {
	var on broker.Alarm
	if len(value) > 0 {
		on = broker.Alarm(value[0])
	}
	if !m.rooms.alarms.Hear(member, on) {
		return
	}
	switch left := m.rooms.alarms.On(); {
	case on != 0:
		m.log.Warn("another node has an alarm; publishers are blocked", "node", m.nodeName(member), "alarms", on.Names())
	case left != 0:
		m.log.Warn("another node has no alarm any more; publishers stay blocked by others", "node", m.nodeName(member), "left", left.Names())
	default:
		m.log.Warn("another node has no alarm any more; publishers go on", "node", m.nodeName(member))
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
