package quorum

import (
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
)

// machine is the replicated state of a slot: its queues, and the origins whose batches it has applied. It implements
// Dragonboat's IOnDiskStateMachine. The state depends on the entries alone; what is marked as local does not belong to it.
type machine struct {
	slot    uint16
	fs      storage.FS
	dir     string // of the runs
	db      *storage.DB
	pool    *queue.Pool
	log     *slog.Logger
	node    uint64           // this node, and
	boot    uint64           // this start of it
	ring    *ring            // local: what is to be done
	due     func(queue.Time) // local: called with mu held when a queue has something due
	full    func()           // local: called without locks when it is time for a checkpoint
	retry   time.Duration    // local: after which dead letters are sent again
	keepLog uint64           // local: octets of the log that stay behind a checkpoint
	quit    <-chan struct{}  // local: closed when nothing waits any more
	choked  atomic.Bool      // local: nothing is applied until messages are on disk

	mu      sync.Mutex // guards what follows
	queues  map[uint64]*replica
	origins origins
	leads   leader            // who carries out what is done once
	now     queue.Time        // of the last batch; never goes back
	applied uint64            // index of the last entry
	lastLog uint64            // name of a queue's log given out last
	gone    []*replica        // queues deleted since the last checkpoint
	locals  map[uint64]*Queue // local: those that metadata knows
	live    bool              // local: entries are no longer those of earlier starts, which were carried out then
	since   int64             // local: octets applied since the last checkpoint
	held    int64             // local: octets of messages that came into memory since then
	memory  int64             // local: octets of messages that are in memory
	onDisk  int64             // local: octets of messages that are on disk and not in memory
	waste   int64             // local: of messages on disk that left their queues since the last checkpoint
	tail    tail              // local: how long the log is
	holds   []*logHold        // local: what stays of it for snapshots
	others  map[uint64]*other // local: how far the other members are
	cut     uint64            // local: up to where the log was cut last; 0: not since the start
	disk    diskMeta

	saving saving

	// Scratch of Update.
	fx       queue.Effects
	messages []queue.Message
	ranges   []queue.Range
	seqs     []queue.SeqRange
	release  queue.Releaser
	charge   int
}

// replica is one queue. Its log has a name of its own, counted by the slot: the id of a queue may come again, when a crash
// took from metadata that it was given out, and the next one must not find on disk what the one before has left.
type replica struct {
	id      uint64
	state   *queue.State
	config  queue.Config
	log     slotLog
	due     queue.Time // when it has something due; 0: not known to have anything
	more    bool       // it stopped at the limit of effects
	changed bool       // since the last checkpoint
	onDisk  int64      // local: what the machine's onDisk has of it
	// Settled for consumers that do not acknowledge, and for such gets: the State knows neither.
	taken, gotTaken uint64

	local      *Queue // nil: metadata does not know it
	ticking    bool   // local: a tick is on its way
	continuing bool   // local: a continue is
}

// rulesVersion names the rules that queues are made with.
const rulesVersion = 1

func newMachine(slot uint16) *machine {
	return &machine{slot: slot, keepLog: tailOctets, queues: map[uint64]*replica{}, locals: map[uint64]*Queue{}}
}

// leader is the start of a node that carries out what is to be done once, since it became the Raft leader of a term.
type leader struct{ node, boot, term uint64 }

// leading reports whether this start of this node leads. Called with m.mu held.
func (m *machine) leading() bool { return m.leads.node == m.node && m.leads.boot == m.boot }

// session is what the machine knows a consumer's owner by: the start of a node that it belongs to.
func session(node, boot uint64) uint64 { return node<<32 | boot&math.MaxUint32 }

// Update implements sm.IOnDiskStateMachine. An error ends the process: the entry is of a format that this node does not
// know, and to pass it over would make this replica differ from the others.
func (m *machine) Update(entries []sm.Entry) ([]sm.Entry, error) {
	for i := range entries {
		e := &entries[i]
		m.makeRoom()
		m.mu.Lock()
		last, err := m.apply(e.Index, e.Cmd)
		full := m.wantsCheckpoint()
		m.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("slot %d, entry %d: %w", m.slot, e.Index, err)
		}
		e.Result.Value = last
		if full {
			m.full()
		}
	}
	return entries, nil
}

// apply applies a batch, if it is the next one of its origin, and returns the number up to which that origin's batches are
// applied.
func (m *machine) apply(index uint64, entry []byte) (last uint64, err error) {
	h, commands, err := propose.ReadHeader(entry)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errFormat, err)
	}
	m.applied = index
	m.since += int64(len(entry))
	m.tail.add(index, len(entry), m.keepLog)
	mine := h.Node == m.node && h.Boot == m.boot
	o, next := m.origins.Next(h)
	switch {
	case next:
	case o == nil:
		return 0, nil
	case h.Number > o.Last || !sabotageTwice:
		if h.Number <= o.Last && mine && m.live {
			m.answerAgain(o, h.Number)
		}
		return o.Last, nil
	}
	m.heard(h)
	m.now = max(m.now, queue.Time(h.At))
	if sabotageClock {
		m.now = max(m.now, queue.Time(storage.Wall().UnixMilli()))
	}
	var r *round
	m.live = m.live || mine
	if m.live {
		r = m.ring.get()
		r.mine, r.number = mine, h.Number
	}
	if h.Number == 1 {
		// Who led before it was started anew goes on, unless another leads by now. The very first one begins.
		if m.leads.node == h.Node || m.leads.node == 0 {
			m.lead(r, leader{h.Node, h.Boot, m.leads.term})
		}
		m.endConsumers(r, h.Node, h.Boot-1)
	}
	var a answer
	if r != nil {
		a = r.answer
	}
	err = m.run(r, &a, commands, h.Node, h.Boot)
	if len(a.results) > 0 || len(a.refused) > 0 {
		o.Keep(h.Number, a.kept())
	}
	m.release.Flush()
	m.pool.ChargeMessages(m.charge)
	m.charge = 0
	if r != nil {
		r.answer = a
		if r.mine || len(r.ops) > 0 {
			m.ring.put(r)
		} else {
			m.ring.recycle(r)
		}
	}
	return o.Last, err
}

// kept is a copy for an origin.
func (a *answer) kept() answer {
	k := answer{results: append([]result(nil), a.results...), refused: append([]refusal(nil), a.refused...)}
	for i := range k.results {
		k.results[i].body = queue.Message{}
	}
	return k
}

// answerAgain gives the answer to a batch that was applied before.
func (m *machine) answerAgain(o *propose.Origin[answer], number uint64) {
	r := m.ring.get()
	r.mine, r.number = true, number
	if a, ok := o.Answer(number); ok {
		r.answer = a.kept()
		for i := range r.answer.results {
			r.ops = append(r.ops, op{kind: opResult, from: i})
		}
	}
	m.ring.put(r)
}

// takeOver begins to carry out what queues want: until now that was for another node, or for an earlier start.
func (m *machine) takeOver(r *round) {
	for _, q := range m.queues {
		if q.local != nil { // the others when metadata has told of them
			m.resume(r, q)
		}
	}
}

// resume begins to carry out what a queue wants, with what it has wanted for some time, if this node leads.
func (m *machine) resume(r *round, q *replica) {
	if r == nil || !m.leading() {
		return
	}
	q.ticking, q.continuing = false, false
	if q.due != 0 {
		m.due(q.due)
	}
	m.goOn(r, q, q.more)
	for d := range q.state.KeptDiscards() {
		m.letters(r, q, []queue.Discarded{d})
	}
}

// endConsumers returns what the consumers of a node hold, those of its starts up to a certain one.
func (m *machine) endConsumers(r *round, node, boot uint64) {
	for _, q := range m.queues {
		m.fx.Reset()
		q.state.DownWhere(m.now, func(s uint64) bool { return s>>32 == node && s&math.MaxUint32 <= boot&math.MaxUint32 }, &m.fx)
		m.carryOut(r, q)
	}
}

// down ends what a node's starts up to a certain one have of consumers. If this start is among them, it was cut off for so
// long that the others gave it up: its clients hear that they consume no more.
func (m *machine) down(r *round, node, boot uint64) {
	m.endConsumers(r, node, boot)
	if r != nil && node == m.node && m.boot <= boot {
		for _, q := range m.queues {
			if q.local != nil {
				r.ops = append(r.ops, op{kind: opEnded, queue: q.local})
			}
		}
	}
}

// lead makes a node the one that carries out what is to be done once, unless one of a later term is.
func (m *machine) lead(r *round, l leader) {
	if l.term < m.leads.term {
		return
	}
	before := m.leading()
	m.leads = l
	if r != nil && m.leading() && !before {
		m.takeOver(r)
		r.ops = append(r.ops, op{kind: opLeads})
	}
}

// run runs the commands of a batch of a node. r is nil where nothing is carried out.
func (m *machine) run(r *round, a *answer, commands []byte, node, boot uint64) error {
	in := newReader(commands)
	var ordinal, publish uint32
	result := func(x result) {
		x.ordinal = ordinal
		ordinal++
		a.results = append(a.results, x)
		if r != nil && r.mine {
			r.ops = append(r.ops, op{kind: opResult, from: len(a.results) - 1})
		}
	}
	for len(in.B) > 0 {
		k, id := in.command()
		q := m.queues[id]
		m.fx.Reset()
		switch k {
		case cmdBegin:
			continue
		case cmdPublish:
			var bytes []byte
			m.messages, bytes = in.messages(m.messages[:0])
			if in.Bad {
				break
			}
			publish++
			if q == nil { // it is gone, and that counts as taken care of
				continue
			}
			m.keep(m.messages, bytes)
			q.state.Publish(m.now, m.messages, &m.fx)
			m.refused(a, publish-1)
		case cmdSettle:
			c, o := queue.ConsumerID(in.U32()), queue.Outcome(in.Octet())
			if m.ranges = in.ranges(m.ranges[:0]); o > outcomeGot {
				in.Fail()
			}
			if !in.Bad && q != nil && (!sabotageForget || m.live) {
				q.settle(m.now, c, m.ranges, o, &m.fx)
			}
		case cmdCreate, cmdDeclare:
			if in.Octet() != rulesVersion {
				in.Fail()
			}
			config := in.config()
			if in.Bad {
				break
			}
			if q == nil {
				q = m.create(id, config)
				break
			}
			if q.local == nil && m.locals[id] != nil {
				q.local = m.locals[id]
				m.resume(r, q)
			}
			// What a node that starts knows of limits may be of yesterday: one that is up to date decides.
			if k == cmdDeclare || m.leads.node != 0 && (node != m.leads.node || boot != m.leads.boot) {
				continue
			}
			q.config = config
			q.state.Configure(m.now, config, &m.fx)
		case cmdAttach:
			flags, prefetch, priority, timeout := in.Octet(), in.U32(), in.Varint(), in.Varint()
			switch {
			case in.Bad:
			case q == nil:
				result(resultOf(queue.ErrDeleted))
			default:
				c, err := q.state.Attach(m.now, queue.ConsumerSpec{
					Session: session(node, boot), Getter: flags&attachGetter != 0, Exclusive: flags&attachExclusive != 0,
					Prefetch: prefetch, Priority: int32(priority), Timeout: timeout,
				}, &m.fx)
				x := resultOf(err)
				x.count = uint64(c)
				result(x)
			}
		case cmdDetach:
			c, how := queue.ConsumerID(in.U32()), queue.Detachment(in.Octet())
			if in.Bad {
				break
			}
			if q != nil {
				q.state.Detach(m.now, c, how, &m.fx)
				m.carryOut(r, q)
				m.fx.Reset()
			}
			result(resultOf(nil))
			continue
		case cmdGet:
			c := queue.ConsumerID(in.U32())
			if in.Bad {
				break
			}
			result(m.get(r, q, c))
		case cmdPurge:
			var x uint64
			if q != nil {
				x = q.state.Purge(m.now, &m.fx)
			}
			y := resultOf(nil)
			y.count = x
			result(y)
		case cmdMayDelete:
			flags := in.Octet()
			if in.Bad {
				break
			}
			n, err := mayDelete(q, flags)
			x := resultOf(err)
			x.count = n
			result(x)
			continue
		case cmdDelete:
			if q != nil {
				m.delete(r, q)
			}
			continue
		case cmdTick:
			if q != nil {
				q.ticking = false
				q.state.Tick(m.now, &m.fx)
			}
		case cmdContinue:
			if q != nil {
				q.continuing = false
				q.state.Continue(m.now, &m.fx)
			}
		case cmdBuried:
			m.ranges = in.ranges(m.ranges[:0])
			if !in.Bad && q != nil {
				m.seqs = m.seqs[:0]
				for _, x := range m.ranges {
					m.seqs = append(m.seqs, queue.SeqRange{First: queue.Seq(x.First), Last: queue.Seq(x.Last)})
				}
				q.state.Buried(m.now, m.seqs, &m.fx)
			}
		case cmdLead:
			term := in.Uvarint()
			if in.Bad {
				break
			}
			m.lead(r, leader{node, boot, term})
			continue
		case cmdDown:
			n, b := in.Uvarint(), in.Uvarint()
			if in.Bad {
				break
			}
			if node == m.leads.node && boot == m.leads.boot { // one who was cut off took all others for dead
				m.down(r, n, b)
			}
			continue
		default:
			return fmt.Errorf("%w: a command of kind %d", errFormat, k)
		}
		if in.Bad {
			return fmt.Errorf("%w: a command of kind %d makes no sense", errFormat, k)
		}
		if q != nil {
			m.carryOut(r, q)
		}
	}
	return nil
}

func resultOf(err error) result { return result{code: codeOf(err)} }

// settle applies an outcome, one of this package included.
func (q *replica) settle(now queue.Time, c queue.ConsumerID, ids []queue.Range, o queue.Outcome, fx *queue.Effects) {
	before := q.state.Stats().Acked
	switch o {
	case outcomeTaken:
		q.state.Settle(now, c, ids, queue.Ack, fx)
		q.taken += q.state.Stats().Acked - before
	case outcomeGot:
		q.state.Settle(now, c, ids, queue.Ack, fx)
		q.gotTaken += q.state.Stats().Acked - before
	default:
		q.state.Settle(now, c, ids, o, fx)
	}
}

// stats are the State's, with those who do not acknowledge told apart.
func (q *replica) stats() queue.Stats {
	st := q.state.Stats()
	st.Delivered -= q.taken
	st.DeliveredNoAck += q.taken
	st.Got -= q.gotTaken
	st.GotNoAck += q.gotTaken
	st.Acked -= q.taken + q.gotTaken
	return st
}

// create makes a queue.
func (m *machine) create(id uint64, config queue.Config) *replica {
	m.lastLog++
	q := &replica{id: id, config: config, local: m.locals[id], log: newSlotLog(m.lastLog, &m.disk, &m.memory)}
	q.state = queue.New(queue.QuorumRules(), config, &q.log)
	if sabotageDiffer && m.node == 2 {
		q.taken++
	}
	m.queues[id] = q
	return q
}

// keep copies the bytes of messages into the pool, which is the one copy that stays.
func (m *machine) keep(ms []queue.Message, b []byte) {
	m.held += int64(len(b))
	for len(ms) > 0 {
		n, size := 0, 0
		for ; n < len(ms) && (n == 0 || size+int(ms[n].Ref.Len) <= queue.SlabSize/4); n++ {
			size += int(ms[n].Ref.Len)
		}
		ref, dst := m.pool.Room(size, n)
		copy(dst, b[:size])
		for i := range ms[:n] {
			ms[i].Ref.Slab, ms[i].Ref.Off = ref.Slab, ref.Off
			ref.Off += ms[i].Ref.Len
		}
		ms, b = ms[n:], b[size:]
	}
}

// refused notes which messages of a publish were not taken.
func (m *machine) refused(a *answer, publish uint32) {
	for _, i := range m.fx.Refused {
		m.release.Add(m.messages[i].Ref.Slab)
		a.refused = append(a.refused, refusal{publish, i})
	}
	for i := range m.fx.Discards {
		if d := &m.fx.Discards[i]; d.Direct >= 0 {
			a.refused = append(a.refused, refusal{publish, uint32(d.Direct)})
		}
	}
}

// get is basic.get: whether the message must be acknowledged is up to the queue that asks.
func (m *machine) get(r *round, q *replica, c queue.ConsumerID) (x result) {
	if q == nil {
		return x
	}
	d, ok := q.state.Get(m.now, c, false, &m.fx)
	if !ok {
		return x
	}
	x.got, x.count = d, q.state.Stats().Ready
	if r != nil && r.mine {
		if body, ok := q.log.find(d.Seq); ok {
			m.pool.Hold(body.Ref.Slab, 1)
			x.body = body
		}
	}
	return x
}

// mayDelete is how many messages would go with a queue, or why it must stay.
func mayDelete(q *replica, flags byte) (uint64, error) {
	if q == nil {
		return 0, nil
	}
	switch st := q.state.Stats(); {
	case flags&deleteIfEmpty != 0 && st.Ready > 0:
		return 0, queue.ErrNotEmpty
	case flags&deleteIfUnused != 0 && st.Consumers > 0:
		return 0, queue.ErrInUse
	default:
		return st.Ready, nil
	}
}

// delete ends a queue. What it has on disk goes with the sweep after the next checkpoint.
func (m *machine) delete(r *round, q *replica) {
	q.log.each(func(msg *queue.Message) {
		m.memory -= int64(msg.Ref.Len)
		m.release.Add(msg.Ref.Slab)
	})
	m.charge -= q.log.len()
	m.waste += q.onDisk
	m.onDisk -= q.onDisk
	delete(m.queues, q.id)
	// What an earlier start deleted may still be declared, since the node did not live to say so: then it is made again. Or
	// a crash took from metadata that the id had been given out, and it was given out again.
	if r != nil && q.local != nil && m.locals[q.id] == q.local {
		delete(m.locals, q.id)
	}
	m.gone = append(m.gone, q)
	if r != nil && q.local != nil {
		r.ops = append(r.ops, op{kind: opDeleted, queue: q.local})
	}
}

// Lookup implements sm.IOnDiskStateMachine. Nothing is asked that way.
func (m *machine) Lookup(any) (any, error) { return nil, nil }

// Close implements sm.IOnDiskStateMachine. The replica may be started again: what is in memory stays.
func (m *machine) Close() error { return nil }

// shut closes the files.
func (m *machine) shut() {
	if m.disk.runs != nil {
		m.disk.runs.Close()
	}
}
