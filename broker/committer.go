package broker

import (
	"sync"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/storage"
)

// committer makes what commands have changed durable. A command is applied in memory at once, and what it changed joins
// the group that is written next; one goroutine writes group after group, each with one sync. So commands never wait for a
// disk, and the more of them come the more share a sync. What has been applied can be seen before it is durable: those
// who answer clients ask by Broker.Sync when they may.
type committer struct {
	db   *storage.DB
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // held while a command is applied, so that commands are written in the order in which they were applied
	more    sync.Cond  // next has changes, or closing
	next    *group     // gathering
	current *group     // being written, and until all who wait for it were called; nil: none
	spare   *group
	closing bool
	failed  *amqp.Error // the store takes no more changes
	order   uint64      // of the last durable binding
	ids     uint64      // queue ids up to this one are set aside for us, durably
	asked   uint64      // the same, once what was gathered is durable

	// What follows counts from when hard commands come from a log.
	replicated bool
	turning    sync.Once
	log        Log         // nil: not yet
	early      []func(Log) // proposals that wait for it
	applied    uint64      // index of the entry applied last
	numbering  []byte      // that came with it
	counted    bool        // the counters have changed since they were written
	soft       soft
}

// group is what one sync makes durable.
type group struct {
	batch   storage.Batch
	waiting []func(*amqp.Error)
	ids     uint64 // of committer.asked when it was written
}

// minFree is how many octets of disk must be free for a command that makes something: what the store itself may need to
// go on.
const minFree = 32 << 20

func newCommitter(db *storage.DB) *committer {
	t := &committer{db: db, done: make(chan struct{}), next: new(group), spare: new(group)}
	t.more.L = &t.mu
	return t
}

func notStored(why string) *amqp.Error {
	return amqp.Errorf(amqp.InternalError, "metadata cannot be stored: %s", why)
}

// refuse returns the error for a command that could not be made durable. Nothing has been changed then. t.mu is held.
func (t *committer) refuse(b *Broker, c Command) *amqp.Error {
	grows := true
	switch c := c.(type) {
	case PutQueue:
		if c.Soft {
			return nil
		}
	case Bind:
		if c.Soft {
			return nil
		}
	case DeleteQueue:
		if c.Soft {
			return nil
		}
		grows = false
	case Unbind:
		if c.Soft {
			return nil
		}
		grows = false
	case PutMember: // one that is known is only put again, as at each start
		grows = c.Member.Number == 0
	case DeleteVHost, DeleteUser, DeleteExchange, ClearPermissions, ClearTopicPermissions,
		DeletePolicy, ClearParameter, ClearGlobalParameter, DeleteMember:
		grows = false
	}
	if t.failed != nil {
		return t.failed
	}
	if !grows {
		return nil
	}
	if b.Alarms.Own()&StorageAlarm != 0 { // what room there is is for what makes more
		return notStored("the disk takes no writes")
	}
	switch free, err := t.db.Free(); {
	case err != nil:
		return notStored(err.Error())
	case free < minFree:
		return notStored("no space left on the disk")
	}
	return nil
}

// refuses returns the error with which a command would be refused for want of a store.
func (b *Broker) refuses(c Command) *amqp.Error {
	t := b.committer
	if t == nil {
		return nil
	}
	t.mu.Lock()
	err, log := t.refuse(b, c), t.log
	t.mu.Unlock()
	if err == nil && log != nil && !isSoft(c) {
		err = log.Refuses()
	}
	return err
}

// commit applies a command and has what it changed written, or hands it to the log, which calls done.
func (t *committer) commit(b *Broker, c Command, done func(result)) (r result, proposed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refuse(b, c); err != nil {
		return result{refused: err}, false
	}
	if t.replicated {
		if isSoft(c) {
			r = b.apply(c)
			t.tellSoft(b, c, &r)
			return r, false
		}
		t.propose(b, c, done)
		return r, true
	}
	if q, ok := c.(PutQueue); ok && !q.Soft && b.lastQueue.Load() >= t.ids {
		return result{refused: notStored("out of queue ids")}, false // a million queues within one sync
	}
	r = b.apply(c)
	t.record(b, c, &r, &t.next.batch)
	if !t.next.batch.Empty() {
		t.more.Signal()
	}
	return r, false
}

// sync calls done when all that was applied is durable, at once if it is.
func (t *committer) sync(done func(*amqp.Error)) {
	t.mu.Lock()
	err := t.failed
	switch {
	case err != nil && t.current == nil:
	case !t.next.batch.Empty():
		t.next.waiting = append(t.next.waiting, done)
		done = nil
	case t.current != nil:
		t.current.waiting = append(t.current.waiting, done)
		done = nil
	}
	t.mu.Unlock()
	if done != nil {
		done(err)
	}
}

// run writes groups until close.
func (t *committer) run() {
	defer close(t.done)
	for t.take() {
		var failed *amqp.Error
		if err := t.db.Commit(&t.current.batch, true); err != nil {
			failed = notStored(err.Error())
		}
		t.settle(failed)
	}
}

// take waits for changes and makes their group the current one. It returns false when there are none and will be none.
func (t *committer) take() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.next.batch.Empty() {
		if t.closing {
			return false
		}
		t.more.Wait()
	}
	t.current, t.next = t.next, t.spare
	t.current.ids = t.asked
	return true
}

// settle calls those who wait for the current group. Those who come meanwhile are called after them, so that who asks twice
// is called in the order of asking.
func (t *committer) settle(failed *amqp.Error) {
	g := t.current
	t.mu.Lock()
	if failed == nil {
		t.ids = g.ids
	} else {
		t.failed = failed
		g.batch = storage.Batch{}
	}
	for len(g.waiting) > 0 {
		waiting := g.waiting
		g.waiting = nil
		t.mu.Unlock()
		for _, done := range waiting {
			done(failed)
		}
		t.mu.Lock()
	}
	t.current, t.spare = nil, g
	t.mu.Unlock()
}

// close returns when all that was applied is written.
func (t *committer) close() {
	t.mu.Lock()
	t.closing = true
	t.more.Signal()
	t.mu.Unlock()
	<-t.done
}
