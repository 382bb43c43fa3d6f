package broker

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/storage"
)

// Member is a member of the cluster.
type Member struct {
	Number        uint64 // from 1, given out once
	NodeID        uint64 // its identity, for the link between nodes
	Name, Address string
	Least, Most   uint16 // versions of the protocol between nodes that it speaks
	Start, Mark   uint64 // the number of its latest start, and what that is known by
}

func memberKey(number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("m/h"), number)
}

// Members lists the members by number.
func (b *Broker) Members() []Member {
	b.mu.RLock()
	defer b.mu.RUnlock()
	list := make([]Member, 0, len(b.members))
	for _, m := range b.members {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.Number, b.Number) })
	return list
}

// Slots is how many slots for quorum queues the cluster has, 0 before that was said, the members they were made with, and how many
// of these have had a vote in each from the start, 0: all.
func (b *Broker) Slots() (count uint64, members []uint64, size uint64) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.slots.Count, slices.Clone(b.slots.Members), b.slots.Size
}

// memberName is the name of a member, or what it can be called when it is none any more.
func (b *Broker) memberName(number uint64) string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if m, ok := b.members[number]; ok {
		return m.Name
	}
	return fmt.Sprintf("member-%d", number)
}

// HasSlots reports whether it was said how many slots there are.
func (b *Broker) HasSlots() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.slots.Count != 0
}

// ReadMembers are the members that a store knows of, before a broker is opened on it.
func ReadMembers(db *storage.DB) (list []Member, err error) {
	err = db.Iterate(memberKey(0)[:3], func(_, value []byte) error {
		c, err := DecodeCommand(value)
		if m, ok := c.(PutMember); ok {
			list = append(list, m.Member)
		}
		return err
	})
	return list, err
}

// PutMember makes or changes a member, known by its Number or, if that is 0, by its NodeID. done hears its number, which is
// the next one for a new member.
func (b *Broker) PutMember(m Member, done func(number uint64, err error)) {
	b.commit(PutMember{m}, func(r result) {
		b.synced(func(err error) { done(r.number, err) })(orNil(r.refused))
	})
}

// DeleteMember removes a member, if those of rest are members still. done hears whether it existed.
func (b *Broker) DeleteMember(number uint64, rest []uint64, done func(existed bool, err error)) {
	b.commit(DeleteMember{number, rest}, b.removed(done))
}

// PutSlots says how many slots for quorum queues there are, and whose. done hears how many that is: what was said first counts.
func (b *Broker) PutSlots(count uint64, members []uint64, done func(count uint64, err error)) {
	b.commit(PutSlots{Count: count, Members: members}, func(r result) {
		b.synced(func(err error) { done(r.number, err) })(orNil(r.refused))
	})
}

// applyCluster is the part of apply that is about the cluster itself. b.mu is held.
func (b *Broker) applyCluster(c Command, r *result) {
	switch c := c.(type) {
	case PutMember:
		m := c.Member
		if m.Number == 0 {
			for _, other := range b.members {
				if other.NodeID == m.NodeID && (m.Number == 0 || other.Number < m.Number) {
					m.Number = other.Number
				}
			}
			if m.Number == 0 {
				b.lastMember++
				m.Number = b.lastMember
			}
		}
		var was Member
		was, r.existed = b.members[m.Number]
		if was.NodeID == m.NodeID && was.Start >= m.Start { // a start is never undone
			m.Start, m.Mark = was.Start, was.Mark
		}
		if !r.existed && c.Member.Number != 0 && m.Number <= b.lastMember {
			r.refused = amqp.Errorf(amqp.NotFound, "no member %d", m.Number)
			return
		}
		b.lastMember = max(b.lastMember, m.Number)
		b.members[m.Number] = m
		r.number = m.Number
	case DeleteMember:
		for _, n := range c.Rest {
			if _, ok := b.members[n]; !ok {
				r.refused = amqp.Errorf(amqp.PreconditionFailed, "member %d was forgotten meanwhile; try again", n)
				return
			}
		}
		_, r.existed = b.members[c.Number]
		delete(b.members, c.Number)
	case PutSlots:
		if r.existed = b.slots.Count != 0; !r.existed {
			b.slots = c
		}
		r.number = b.slots.Count
	case PutReplica:
		r.replica, r.refused = b.putReplica(c.Replica)
	}
}

// loadCluster reads how far the log was applied, and the counters.
func (b *Broker) loadCluster(t *committer) (err error) {
	if t.applied, err = loadNumber(t.db, appliedKey); err != nil {
		return err
	}
	if t.numbering, err = t.db.Get([]byte(numberingKey)); err != nil {
		return err
	}
	value, err := t.db.Get([]byte(countersKey))
	if err != nil || value == nil {
		return err
	}
	return b.readCounters(t, value)
}

func (b *Broker) readCounters(t *committer, value []byte) error {
	c := coder{b: value, decoding: true}
	var order, member uint64
	var slots PutSlots
	c.num(&order)
	c.num(&member)
	slots.code(&c)
	if len(c.b) > 0 { // an older version has not written it
		c.num(&slots.Size)
	}
	if c.err != nil || len(c.b) > 0 {
		return fmt.Errorf("%s is damaged", countersKey)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t.order, b.lastMember, b.slots = order, member, slots
	return nil
}
