package broker

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/storage"
)

// What is durable of the state lies in the store under keys that begin with m/ and a letter. In keys a name is its length
// (uvarint) and its octets, so that all of a virtual host lies together. A value is the command that makes the thing
// (see encode.go): to start is to apply them all. There is no log of commands.
//
//	m/f                                  format of all this, uvarint
//	m/n                                  queue ids up to this one may have been given out, uvarint
//	m/i                                  index of the entry applied last, uvarint, if commands come from a log
//	m/r                                  what the log numbers its entries by
//	m/c                                  order of the last binding, number of the last member, number of slots, the members they were made with, and how many of these had a vote, uvarints
//	m/h number                           PutMember
//	m/w shard member                     PutReplica
//	m/v vhost                            PutVHost
//	m/u user                             PutUser
//	m/p vhost user                       SetPermissions
//	m/t vhost user exchange              SetTopicPermissions
//	m/x vhost exchange                   PutExchange
//	m/q vhost queue                      PutQueue, with the queue's id
//	m/b vhost [x|q] destination digest   order (8 octets, big endian), then Bind; the digest tells bindings to one
//	                                     destination apart; in the order of order they were made
//	m/o vhost [p|o] policy               PutPolicy, of a user or an operator
//	m/a vhost component parameter        SetParameter
//	m/g parameter                        SetGlobalParameter
//	m/l user                             SetUserLimits
//
// Exchanges and queues are there if they are durable, bindings if both ends are. If commands come from a log everything is
// there but soft state: a node that starts again must know what the others know; m/n is exact then, the format 2, and what
// comes from one entry is one change.
const (
	metadataPrefix = "m/"
	formatKey      = "m/f"
	lastQueueKey   = "m/n"
	appliedKey     = "m/i"
	numberingKey   = "m/r"
	countersKey    = "m/c"
)

// metadataFormat is the format written. A change of what keys mean raises it, and load learns to turn the former into it.
const (
	metadataFormat   = 1
	replicatedFormat = 2
)

// idBlock is how many queue ids are set aside at once. One is used only when its block is set aside durably, or what is
// left in the journal of a queue that never became durable could be taken for another's.
const idBlock = 1 << 20

func appendKey(letter byte, names ...string) []byte {
	key := append([]byte(metadataPrefix), letter)
	for _, n := range names {
		key = append(binary.AppendUvarint(key, uint64(len(n))), n...)
	}
	return key
}

func policyRecord(vhost string, operator bool, name string) []byte {
	if operator {
		return appendKey('o', vhost, "o", name)
	}
	return appendKey('o', vhost, "p", name)
}

func bindingsKey(vhost, destination string, toExchange bool) []byte {
	side := byte('q')
	if toExchange {
		side = 'x'
	}
	key := append(appendKey('b', vhost), side)
	return append(binary.AppendUvarint(key, uint64(len(destination))), destination...)
}

func bindingKey(vhost string, b *Binding) []byte {
	var id []byte
	for _, s := range []string{b.Source, b.Key, string(b.Arguments.Canonical())} {
		id = append(binary.AppendUvarint(id, uint64(len(s))), s...)
	}
	digest := sha256.Sum256(id)
	return append(bindingsKey(vhost, b.Destination, b.ToExchange), digest[:16]...)
}

// record adds to a batch what a command that was just applied has changed of the durable state. t.mu is held.
func (t *committer) record(b *Broker, c Command, r *result, batch *storage.Batch) {
	if r.refused != nil {
		return
	}
	switch c := c.(type) {
	case PutQueue:
		if r.existed {
			return
		}
		if c.Queue.Durable || t.replicated {
			c.ID = r.queue.ID
			batch.Set(appendKey('q', c.VHost, c.Queue.Name), AppendCommand(nil, c))
		}
		if last := b.lastQueue.Load(); t.replicated {
			t.setAside(last, batch)
		} else if last+idBlock/2 > t.asked {
			t.setAside(last+idBlock, batch)
		}
	case DeleteQueue:
		if r.existed && r.durable {
			batch.Delete(appendKey('q', c.VHost, c.Name))
		}
		t.recordGone(c.VHost, r, batch)
	case Bind:
		if !r.existed && r.durable {
			t.order++
			t.counted = true
			batch.Set(bindingKey(c.VHost, &c.Binding), AppendCommand(binary.BigEndian.AppendUint64(nil, t.order), c))
		}
	case Unbind:
		if r.existed && r.durable {
			batch.Delete(bindingKey(c.VHost, &c.Binding))
		}
		t.recordGone(c.VHost, r, batch)
	default:
		t.recordRare(c, r, batch)
	}
}

// recordRare is record for commands that connections do not live by. It stands apart because its frame is so large that
// the stack of every connection that declares a queue had to grow for it.
func (t *committer) recordRare(c Command, r *result, batch *storage.Batch) {
	set := func(key []byte, c Command) { batch.Set(key, AppendCommand(nil, c)) }
	switch c := c.(type) {
	case PutVHost:
		set(appendKey('v', c.Name), c)
		for _, d := range r.declared {
			set(appendKey('x', c.Name, d.Name), PutExchange{c.Name, d})
		}
	case DeleteVHost:
		if r.existed {
			batch.Delete(appendKey('v', c.Name))
			for _, letter := range []byte("ptoaxqb") {
				batch.DeletePrefix(appendKey(letter, c.Name))
			}
		}
	case PutUser:
		set(appendKey('u', c.User.Name), c)
	case DeleteUser:
		batch.Delete(appendKey('u', c.Name))
		batch.Delete(appendKey('l', c.Name))
		for _, p := range r.permissions {
			batch.Delete(appendKey('p', p.VHost, c.Name))
		}
		for _, p := range r.topics {
			batch.Delete(appendKey('t', p.VHost, c.Name, p.Exchange))
		}
	case SetPermissions:
		set(appendKey('p', c.VHost, c.User), c)
	case ClearPermissions:
		batch.Delete(appendKey('p', c.VHost, c.User))
	case SetTopicPermissions:
		set(appendKey('t', c.VHost, c.User, c.Exchange), c)
	case ClearTopicPermissions:
		for _, p := range r.topics {
			batch.Delete(appendKey('t', p.VHost, c.User, p.Exchange))
		}
	case PutPolicy:
		set(policyRecord(c.VHost, c.Operator, c.Policy.Name), c)
	case DeletePolicy:
		batch.Delete(policyRecord(c.VHost, c.Operator, c.Name))
	case SetParameter:
		set(appendKey('a', c.VHost, c.Component, c.Name), c)
	case ClearParameter:
		batch.Delete(appendKey('a', c.VHost, c.Component, c.Name))
	case SetGlobalParameter:
		set(appendKey('g', c.Name), c)
	case ClearGlobalParameter:
		batch.Delete(appendKey('g', c.Name))
	case SetUserLimits:
		set(appendKey('l', c.User), c)
	case PutExchange:
		if !r.existed && (c.Exchange.Durable || t.replicated) {
			set(appendKey('x', c.VHost, c.Exchange.Name), c)
		}
	case DeleteExchange:
		t.recordGone(c.VHost, r, batch)
	case PutMember:
		c.Member.Number = r.number
		set(memberKey(r.number), c)
		t.counted = true
	case DeleteMember:
		batch.Delete(memberKey(c.Number))
	case PutSlots:
		t.counted = true
	case PutReplica:
		of := c.of()
		if c.Replica = r.replica; c.Replica == (Replica{}) {
			batch.Delete(replicaKey(of))
		} else {
			set(replicaKey(of), c)
		}
	}
}

// recordGone adds the exchanges that went, with the bindings to them, and the bindings that did.
func (t *committer) recordGone(vhost string, r *result, batch *storage.Batch) {
	for i := range r.unbound {
		batch.Delete(bindingKey(vhost, &r.unbound[i]))
	}
	for i, x := range r.gone {
		if x.Durable || t.replicated {
			batch.Delete(appendKey('x', vhost, x.Name))
			if i > 0 || !r.deleted { // of the first of those deleted by name unbound tells all
				batch.DeletePrefix(bindingsKey(vhost, x.Name, true))
			}
		}
	}
}

// setAside adds that queue ids up to last may be given out.
func (t *committer) setAside(last uint64, batch *storage.Batch) {
	t.asked = last
	batch.Set([]byte(lastQueueKey), binary.AppendUvarint(nil, last))
}

// Open makes a Broker with what is in o.Store. A store without users and virtual
// hosts gets the default ones, unless o says otherwise. Close ends it.
func Open(o Options) (*Broker, error) {
	b := newBroker(o)
	t := newCommitter(o.Store)
	empty, err := b.load(t)
	if err != nil {
		return nil, fmt.Errorf("read the metadata: %w", err)
	}
	b.committer = t
	if !t.replicated {
		t.setAside(b.lastQueue.Load()+idBlock, &t.next.batch)
		t.ids = t.asked // durable when Open returns
	}
	if empty {
		t.next.batch.Set([]byte(formatKey), binary.AppendUvarint(nil, metadataFormat))
	}
	// Also after a start whose definitions could not be imported: otherwise nobody could ever log in.
	if b.fresh = len(b.users) == 0 && len(b.vhosts) == 0; b.fresh && !o.NoDefaults && !t.replicated && o.Commands == nil {
		if err := b.makeDefaults(); err != nil {
			return nil, err
		}
	}
	go t.run()
	failed := make(chan error, 1)
	b.Sync(func(err *amqp.Error) { failed <- orNil(err) })
	if err := <-failed; err != nil {
		t.close()
		return nil, err
	}
	if o.Commands != nil {
		if err := b.Replicate(o.Commands, b.Member()); err != nil {
			t.close()
			return nil, err
		}
	}
	return b, nil
}

// Close returns when everything that was applied is durable. No command follows. The store stays open.
func (b *Broker) Close() error {
	t := b.committer
	if t == nil {
		return nil
	}
	t.mu.Lock()
	t.setAside(b.lastQueue.Load(), &t.next.batch) // the rest was not used; also what came from the log shall be synced
	t.mu.Unlock()
	t.close()
	return orNil(t.failed)
}

// load applies what the store holds.
func (b *Broker) load(t *committer) (empty bool, err error) {
	format, err := loadNumber(t.db, formatKey)
	switch {
	case err != nil:
		return false, err
	case format > replicatedFormat:
		return false, fmt.Errorf("it has format %d, and %d is the last one known here: written by a newer version", format, replicatedFormat)
	}
	if format == replicatedFormat {
		b.turnAtOnce(t)
	}
	if format == 0 {
		return true, nil
	}
	last, err := loadNumber(t.db, lastQueueKey)
	if err != nil {
		return false, err
	}
	b.lastQueue.Store(last)
	if err := b.loadCluster(t); err != nil {
		return false, err
	}
	for _, letter := range []byte("vulptgaoxqhw") { // each after what it needs
		err := t.db.Iterate(appendKey(letter), func(key, value []byte) error { return b.restore(t, key, value) })
		if err != nil {
			return false, err
		}
	}
	order := t.order // may be that of a binding which is gone
	err = b.loadBindings(t)
	t.order = max(t.order, order)
	return false, err
}

// HasMetadata reports whether a store holds the metadata of a broker, as it does from the first Open on.
func HasMetadata(db *storage.DB) (bool, error) {
	format, err := loadNumber(db, formatKey)
	return format != 0, err
}

func loadNumber(db *storage.DB, key string) (uint64, error) {
	value, err := db.Get([]byte(key))
	if err != nil || value == nil {
		return 0, err
	}
	n, size := binary.Uvarint(value)
	if size != len(value) {
		return 0, fmt.Errorf("%s is no number", key)
	}
	return n, nil
}

// restore applies a command from the store.
func (b *Broker) restore(t *committer, key, value []byte) error {
	c, err := DecodeCommand(value)
	if err != nil {
		return fmt.Errorf("%q: %w", key, err)
	}
	switch x := c.(type) {
	case PutQueue:
		b.lastQueue.Store(max(b.lastQueue.Load(), uint64(x.ID)))
	case PutMember:
		b.members[x.Member.Number] = x.Member
		return nil
	case PutReplica:
		b.replicas[x.of()] = x.Replica
		return nil
	case PutVHost:
		x.Default = false // its exchanges are in the store
		c = x
	case SetPermissions:
		if b.User(x.User) == nil { // written when a deletion of the user had overtaken them
			t.next.batch.Delete(key)
			return nil
		}
	case SetTopicPermissions:
		if b.User(x.User) == nil {
			t.next.batch.Delete(key)
			return nil
		}
	case PutExchange:
		if exchange.CheckType(x.Exchange.Type) != nil {
			return fmt.Errorf("%q: exchange of unknown type '%s': written by a newer version", key, x.Exchange.Type)
		}
	}
	if r := b.apply(c); r.refused != nil {
		return fmt.Errorf("%q: %w", key, r.refused)
	}
	return nil
}

// loadBindings restores the bindings in the order in which they were made.
func (b *Broker) loadBindings(t *committer) error {
	type entry struct {
		order uint64
		c     Command
	}
	var all []entry
	err := t.db.Iterate(appendKey('b'), func(key, value []byte) error {
		if len(value) < 8 {
			return fmt.Errorf("%q: too short", key)
		}
		c, err := DecodeCommand(value[8:])
		if err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
		all = append(all, entry{binary.BigEndian.Uint64(value), c})
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b entry) int {
		if a.order < b.order {
			return -1
		}
		return 1
	})
	for _, e := range all {
		if r := b.apply(e.c); r.refused != nil {
			return fmt.Errorf("binding %+v: %w", e.c, r.refused)
		}
		t.order = max(t.order, e.order)
	}
	return nil
}
