package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/storage"
)

// Log puts the commands of all members of a cluster in one order. Its methods may be called with locks of this package held
// and return at once; they call nothing before they return.
type Log interface {
	// Propose hands over a command, which is copied. done is called once, on a goroutine of the Log and without its locks:
	// with what ApplyEntry returned for the command here, or with an error (541), which says that the outcome is not known
	// or that the command was not taken. With keep it is taken whatever is the matter with the cluster, and in the end
	// applied if this node goes on to run.
	Propose(command []byte, keep bool, done func(result any, err *amqp.Error))
	// Refuses returns the error with which Propose would answer at once, nil if it would take a command.
	Refuses() *amqp.Error
}

// Replicate has the broker take its hard state from a log. What was changed until now becomes durable first, together with
// everything that otherwise would not outlive a restart; from then on commands are proposed, and change something when
// ApplyEntry is called with them. Soft state (exclusive queues and their bindings) stays the node's own. It never goes back:
// a broker that is opened on such a store waits for Replicate with what it would propose. member is the number of this node,
// 1 for the one whose state the cluster starts from. It must not be called from a callback.
//
// What comes from the log must have the same outcome on all nodes, while their soft state differs. So hard state depends on
// nothing but hard state:
//
//   - A hard queue puts an end to a soft one of its name. Whoever declares one has looked first, and the two can only meet
//     if both are declared at the same moment.
//   - Limits count hard queues when a command is applied, all that the node knows when it is proposed. If-unused of exchanges
//     likewise.
//   - A hard binding finds hard queues only, a soft one soft queues only.
//   - An auto-delete exchange goes with the last of all its bindings, of which a node may know soft ones that others do not.
//     The node that removes what looks like the last one therefore proposes DeleteExchange with Auto, before it answers, which is passed over
//     if there is a hard binding. If the node dies in between, the exchange stays.
func (b *Broker) Replicate(log Log, member uint64) error {
	t := b.committer
	if t == nil {
		return errors.New("broker: without a store nothing can be replicated")
	}
	b.SetMember(member)
	if err := b.turn(); err != nil {
		return err
	}
	t.mu.Lock()
	t.log = log
	early := t.early
	t.early = nil
	t.mu.Unlock()
	for _, propose := range early {
		propose(log)
	}
	return nil
}

// SetMember says which member this node is, before there is anything from a log.
func (b *Broker) SetMember(number uint64) { b.member.Store(number) }

// Member is the number of this node in its cluster, 0 if it is in none.
func (b *Broker) Member() uint64 { return b.member.Load() }

// Replicated reports whether hard state comes from a log. That never changes back.
func (b *Broker) Replicated() bool { return b.replicated.Load() }

// turn is what Replicate does first. It returns when that is durable.
func (b *Broker) turn() (err error) {
	t := b.committer
	t.turning.Do(func() {
		t.mu.Lock()
		if t.replicated { // by a former start
			t.mu.Unlock()
			return
		}
		b.turnAtOnce(t)
		b.recordTransient(t)
		batch := &t.next.batch
		t.setAside(b.lastQueue.Load(), batch)
		batch.Set([]byte(formatKey), binary.AppendUvarint(nil, replicatedFormat))
		t.recordCounters(b, batch)
		t.more.Signal()
		t.mu.Unlock()
		failed := make(chan error, 1)
		t.sync(func(err *amqp.Error) { failed <- orNil(err) })
		err = <-failed
	})
	return err
}

// turnAtOnce begins to go by the rules of Replicate. t.mu is held, or nobody else knows the broker.
func (b *Broker) turnAtOnce(t *committer) {
	t.replicated = true
	b.replicated.Store(true)
	b.member.CompareAndSwap(0, 1)
	for _, v := range b.VHosts() {
		v.mu.Lock()
		v.topology.Keep = true
		for _, q := range v.queues {
			if q != nil && q.Type == Classic && b.here(q) {
				b.homes.Store(q.ID, q)
			}
		}
		v.mu.Unlock()
	}
}

// recordTransient adds what the store of a node that is alone does not have. t.mu is held.
func (b *Broker) recordTransient(t *committer) {
	batch := &t.next.batch
	for _, v := range b.VHosts() {
		var transient []*exchange.Binding
		v.mu.Lock()
		for x := range v.topology.Exchanges() {
			if !x.Durable {
				batch.Set(appendKey('x', v.Name, x.Name), AppendCommand(nil, PutExchange{v.Name, x.Declaration}))
			}
		}
		for _, q := range v.queues {
			if q == nil || q.Owner != 0 || q.Durable {
				continue
			}
			d := QueueDeclaration{Name: q.Name, AutoDelete: q.AutoDelete, Arguments: q.Arguments}
			batch.Set(appendKey('q', v.Name, q.Name), AppendCommand(nil, PutQueue{VHost: v.Name, Queue: d, ID: q.ID}))
		}
		for x := range v.topology.Exchanges() {
			for e := range x.Bindings() {
				toQueue := e.Destination.Exchange == nil
				if toQueue && (v.queues[e.Destination.Queue].Owner != 0 || x.Durable && v.queues[e.Destination.Queue].Durable) ||
					!toQueue && x.Durable && e.Destination.Exchange.Durable {
					continue
				}
				transient = append(transient, e)
			}
		}
		for _, e := range transient { // the others are older in the store, and so they shall be in memory
			t.order++
			one := v.listed(e)
			batch.Set(bindingKey(v.Name, &one), AppendCommand(binary.BigEndian.AppendUint64(nil, t.order), Bind{VHost: v.Name, Binding: one}))
			v.topology.Unbind(e.Source, e.Destination, e.Key, e.Arguments)
			v.topology.Bind(e.Source, e.Destination, e.Key, e.Arguments)
		}
		v.version.Add(1)
		v.mu.Unlock()
	}
}

// propose hands a command to the log, or keeps it until there is one. t.mu is held.
func (t *committer) propose(b *Broker, c Command, done func(result)) {
	command := AppendCommand(nil, c)
	_, keep := c.(DeleteQueue) // the queue that runs has been told
	if x, ok := c.(DeleteExchange); ok && x.Auto {
		keep = true
	}
	answered := func(v any, err *amqp.Error) {
		r, ok := v.(*result)
		switch {
		case err != nil:
			done(result{refused: err})
		case !ok:
			done(result{refused: notStored("the log has lost its result")})
		case len(r.idle) > 0:
			b.deleteIdle(c, r.idle, func() { done(*r) })
		default:
			done(*r)
		}
	}
	if q, ok := c.(PutQueue); ok && q.ID == 0 && b.SlotsWanted != 0 && !b.HasSlots() {
		if typ, _ := text(q.Queue.Arguments, "x-queue-type"); typ == Quorum || typ == Stream {
			t.proposeSlots(b)
		}
	}
	if t.log != nil {
		t.log.Propose(command, keep, answered)
		return
	}
	t.early = append(t.early, func(log Log) { log.Propose(command, keep, answered) })
}

// proposeSlots has the slots be made, in front of the first queue that lies in one. They begin with the members that have started: one that was
// taken in and has not come yet may never come. t.mu is held.
func (t *committer) proposeSlots(b *Broker) {
	slots := PutSlots{Count: b.SlotsWanted, Size: b.GroupSize}
	for _, m := range b.Members() {
		if m.Start > 0 {
			slots.Members = append(slots.Members, m.Number)
		}
	}
	if t.log != nil {
		t.log.Propose(AppendCommand(nil, slots), false, func(any, *amqp.Error) {})
	}
}

// deleteIdle deletes auto-delete exchanges that c has left without bindings.
func (b *Broker) deleteIdle(c Command, names []string, done func()) {
	vhost := ""
	switch c := c.(type) {
	case PutQueue:
		vhost = c.VHost
	case DeleteQueue:
		vhost = c.VHost
	case Unbind:
		vhost = c.VHost
	case DeleteExchange:
		vhost = c.VHost
	}
	b.commit(DeleteExchange{VHost: vhost, Name: names[0], IfUnused: true, Auto: true}, func(result) {
		if len(names) > 1 {
			b.deleteIdle(c, names[1:], done)
			return
		}
		done()
	})
}

// twice does something, and once more when metadata has caught up, if it fails because something is not there: it may have been
// declared on another node just now.
func (b *Broker) twice(do func(done func(*amqp.Error)), done func(*amqp.Error)) {
	do(func(err *amqp.Error) {
		if err == nil || err.Code != amqp.NotFound || !b.LookAgain(func(bool) { do(done) }) {
			done(err)
		}
	})
}

// LookAgain calls do, on another goroutine, when metadata has caught up with what was answered on other nodes, or, with false, when
// it cannot within a short time. It returns false, and calls nothing, where there are no others.
func (b *Broker) LookAgain(do func(current bool)) bool {
	if b.CatchUp == nil || !b.replicated.Load() {
		return false
	}
	b.CatchUp(do)
	return true
}

// unheard is the error for removing something that is not here, and may be elsewhere.
func unheard(what string) *amqp.Error {
	return amqp.Errorf(amqp.InternalError, "this node does not know of %s, and whether others do it could not find out: metadata has no majority, or this node is cut off", what)
}

// isSoft reports whether a command changes soft state only.
func isSoft(c Command) bool {
	switch c := c.(type) {
	case PutQueue:
		return c.Soft
	case DeleteQueue:
		return c.Soft
	case Bind:
		return c.Soft
	case Unbind:
		return c.Soft
	}
	return false
}

// Applied is the index of the entry that was applied last, and the numbering that came with it; 0 and nil if there was none.
// After a crash both may be those of an earlier entry: what came since is to be applied again.
func (b *Broker) Applied() (index uint64, numbering []byte) {
	t := b.committer
	if t == nil {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.applied, slices.Clone(t.numbering)
}

// ApplyEntry applies the commands of one entry of the log, and returns a result for each, to be given to who proposed it
// on this node. numbering is kept with the state, all in one change, which is durable after SyncEntries. Entries come one at
// a time, in the order of their index; one that was applied before is passed over, and has no results. What follows from the
// commands on this node has been done when it returns. An error means that this node cannot follow the others, for want of
// a disk or because it is too old, and must end.
func (b *Broker) ApplyEntry(index uint64, numbering []byte, commands [][]byte) ([]any, error) {
	if err := b.turn(); err != nil {
		return nil, err
	}
	t := b.committer
	list := make([]Command, len(commands))
	for i, octets := range commands {
		c, err := DecodeCommand(octets)
		if err == nil {
			err = mayCome(c)
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d, command %d: %w", index, i, err)
		}
		list[i] = c
	}
	results := make([]result, len(list))
	if done, err := b.applyAll(t, index, numbering, list, results); done || err != nil {
		return nil, err
	}
	answers := make([]any, len(list))
	for i := range list {
		b.carryOut(list[i], &results[i])
		answers[i] = &results[i]
	}
	return answers, nil
}

// mayCome refuses commands that no node of this version proposes.
func mayCome(c Command) error {
	switch x := c.(type) {
	case PutExchange:
		if exchange.CheckType(x.Exchange.Type) != nil {
			return fmt.Errorf("exchange of unknown type '%s': written by a newer version", x.Exchange.Type)
		}
	case PutQueue:
		if x.ID != 0 {
			return errors.New("queue with an id")
		}
	}
	if isSoft(c) {
		return fmt.Errorf("soft %T", c)
	}
	return nil
}

func (b *Broker) applyAll(t *committer, index uint64, numbering []byte, list []Command, results []result) (before bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if index <= t.applied {
		return true, nil
	}
	var batch storage.Batch
	for i, c := range list {
		r := &results[i]
		*r = b.apply(c)
		if r.unbuilt {
			return false, fmt.Errorf("entry %d: %w: written by a newer version", index, r.refused)
		}
		t.record(b, c, r, &batch)
		t.softAfter(b, c, r)
	}
	t.applied, t.numbering = index, append(t.numbering[:0], numbering...)
	t.recordApplied(b, &batch)
	if err := t.db.Commit(&batch, false); err != nil {
		t.failed = notStored(err.Error())
		return false, err
	}
	return false, nil
}

// recordApplied adds how far the log was applied. t.mu is held.
func (t *committer) recordApplied(b *Broker, batch *storage.Batch) {
	batch.Set([]byte(appliedKey), binary.AppendUvarint(nil, t.applied))
	batch.Set([]byte(numberingKey), t.numbering)
	if t.counted {
		t.recordCounters(b, batch)
	}
}

// recordCounters adds the counters. t.mu is held.
func (t *committer) recordCounters(b *Broker, batch *storage.Batch) {
	t.counted = false
	b.mu.RLock()
	defer b.mu.RUnlock()
	value := binary.AppendUvarint(nil, t.order)
	value = binary.AppendUvarint(value, b.lastMember)
	c := coder{b: value}
	b.slots.code(&c)
	c.num(&b.slots.Size)
	batch.Set([]byte(countersKey), c.b)
}

// SyncEntries returns when the entries applied so far will survive a power cut.
func (b *Broker) SyncEntries() error {
	var batch storage.Batch
	batch.Set([]byte(formatKey), binary.AppendUvarint(nil, replicatedFormat))
	return b.committer.db.Commit(&batch, true)
}

// carryOut does what follows from a command from the log.
func (b *Broker) carryOut(c Command, r *result) {
	r.carried = true
	if r.refused != nil {
		return
	}
	switch c := c.(type) {
	case PutQueue:
		if r.displaced != nil {
			r.displaced.ended()
			if len(r.idle) > 0 {
				b.deleteIdle(c, r.idle, func() {})
				r.idle = nil
			}
		}
	case DeleteQueue:
		if r.existed {
			r.queue.ended()
		}
	case PutPolicy:
		b.reconfigure(c.VHost, r.policies)
	case DeletePolicy:
		b.reconfigure(c.VHost, r.policies)
	case DeleteVHost:
		for _, q := range r.queues {
			q.ended()
		}
		if r.existed && b.VHostDeleted != nil {
			b.VHostDeleted(c.Name)
		}
	case DeleteUser:
		if r.existed && b.UserDeleted != nil {
			b.UserDeleted(c.Name)
		}
	case PutMember, DeleteMember, PutReplica:
		if b.MembersChanged != nil {
			b.MembersChanged()
		}
	case PutSlots:
		if !r.existed && b.SlotsChanged != nil {
			b.SlotsChanged()
		}
	}
}

func (b *Broker) reconfigure(vhost string, changed []*policy) {
	if v := b.VHost(vhost); v != nil {
		v.reconfigure(changed)
	}
}

// home returns where a queue that is declared here is to live, or the error if there can be none of its type.
func (b *Broker) home(d *QueueDeclaration) (uint64, *amqp.Error) {
	typ, _ := text(d.Arguments, "x-queue-type")
	can := typ == Classic || typ == Quorum
	if b.CanRun != nil {
		can = b.CanRun(typ)
	}
	switch {
	case !can:
		return 0, notBuilt(typ)
	case typ == Classic:
		return b.member.Load(), nil
	}
	return 0, nil
}

// here reports whether a classic queue lives on this node.
func (b *Broker) here(q *Queue) bool {
	if q.Owner != 0 {
		return q.Home == 0 || q.Home == b.member.Load()
	}
	return !b.replicated.Load() || max(q.Home, 1) == b.member.Load()
}

// decides reports whether it is this node that lets a queue expire.
func (b *Broker) decides(q *Queue) bool {
	switch {
	case !b.replicated.Load():
		return true
	case q.Owner != 0:
		return b.here(q)
	case q.Type == Classic:
		return b.here(q)
	}
	return b.Options.Decides == nil || b.Options.Decides(q.ID)
}

// DropTransient deletes the classic queues of this node that are not durable: what they held was lost when it stopped. It
// is called after a start, when the log has been caught up with, and calls done when they are gone. Queues that cannot be
// deleted now are when there is a majority again.
func (b *Broker) DropTransient(done func()) {
	var list []*Queue
	for _, v := range b.VHosts() {
		for _, q := range v.Queues() {
			if q.Type == Classic && !q.Durable && q.Owner == 0 && b.here(q) {
				list = append(list, q)
			}
		}
	}
	left := new(atomic.Int64)
	left.Store(int64(len(list)) + 1)
	one := func(result) {
		if left.Add(-1) == 0 {
			done()
		}
	}
	for _, q := range list {
		b.commit(DeleteQueue{VHost: q.VHost.Name, Name: q.Name, ID: q.ID}, one)
	}
	one(result{})
}

// DropOrphans deletes the classic queues that live on none of the members: those of a node that was forgotten. It returns how
// many there are; they are gone when the log says so.
func (b *Broker) DropOrphans(members []uint64) (n int) {
	for _, v := range b.VHosts() {
		for _, q := range v.Queues() {
			if q.Type == Classic && q.Owner == 0 && !slices.Contains(members, max(q.Home, 1)) {
				b.commit(DeleteQueue{VHost: v.Name, Name: q.Name, ID: q.ID}, func(result) {})
				n++
			}
		}
	}
	return n
}

// recorded reports whether a queue is in the store.
func (v *VHost) recorded(q *Queue) bool {
	return q.Durable || q.Owner == 0 && v.broker.replicated.Load()
}

// endsOf is ends for a command. From a log a binding finds queues of its own kind only. v.mu is held.
func (v *VHost) endsOf(b Binding, soft bool) (source *exchange.Exchange, d exchange.Destination, err *amqp.Error) {
	source, d, err = v.ends(b)
	if err == nil && d.Exchange == nil && v.broker.replicated.Load() && soft != (v.queues[d.Queue].Owner != 0) {
		err = v.noQueue(b.Destination)
	}
	return source, d, err
}

// used reports whether an exchange has bindings; where there is a log, hard ones. v.mu is held.
func (v *VHost) used(x *exchange.Exchange) bool {
	if !v.broker.replicated.Load() {
		return x.Sources() > 0
	}
	for b := range x.Bindings() {
		if d := b.Destination; d.Exchange != nil || v.queues[d.Queue].Owner == 0 {
			return true
		}
	}
	return false
}

// autoSources appends the auto-delete exchanges among the sources of bindings that are about to be removed, if nothing
// else removes them. v.mu is held.
func (v *VHost) autoSources(list []*exchange.Exchange, bindings iter.Seq[*exchange.Binding]) []*exchange.Exchange {
	if !v.topology.Keep {
		return nil
	}
	for b := range bindings {
		if b.Source.AutoDelete && !slices.Contains(list, b.Source) {
			list = append(list, b.Source)
		}
	}
	return list
}

// idle are the names of those that have no bindings left. v.mu is held.
func (v *VHost) idle(sources []*exchange.Exchange) (names []string) {
	for _, x := range sources {
		if x.Sources() == 0 && v.topology.Exchange(x.Name) == x {
			names = append(names, x.Name)
		}
	}
	return names
}
