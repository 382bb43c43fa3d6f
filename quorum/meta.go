package quorum

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/warrenmq/warren/amqp"
)

// metaShard is the shard of metadata.
const metaShard = 1

const (
	// metaElection is after how many ticks, or twice as many, a member stands for election.
	metaElection = 10
	// metaSnapshot is after how many entries the log is cut, but for the metaKept last ones.
	metaSnapshot = 10000
	metaKept     = 2000
	// metaFlight is how many batches may be proposed and not applied.
	metaFlight = 8
	// metaLook is how often a proposer looks who leads, and who has waited for too long.
	metaLook = 100 * time.Millisecond
	// metaOnce is how long one try takes at most: what is lost between nodes is lost without a word.
	metaOnce = time.Second
	// foundPatience is how long a founder may take to elect itself and cut its log.
	foundPatience = 30 * time.Second
)

// MetaStore is metadata, as broker.Broker keeps it. ApplyEntry, Capture and Restore are called one at a time.
type MetaStore interface {
	// Applied is the index of the last entry that the store has, and the numbering that came with it. After a crash both may
	// be those of an earlier one.
	Applied() (index uint64, numbering []byte)
	// ApplyEntry applies the commands of an entry, and keeps its index and numbering, all in one change. It returns a result
	// for each. An error ends the process.
	ApplyEntry(index uint64, numbering []byte, commands [][]byte) (results []any, err error)
	// SyncEntries returns when what was applied will survive a power cut.
	SyncEntries() error
	// Capture is everything, as of the last entry, Restore takes it in, durably.
	Capture() ([]byte, error)
	Restore(r io.Reader) error
}

// MetaOptions are what a member's part of the metadata is run with.
type MetaOptions struct {
	Node  uint64 // number of this member
	Boot  uint64 // number of this start of it: higher than those before
	Join  bool   // a new member, which the others have added; otherwise the founder. Of no account when it starts again
	Store MetaStore
	Log   *slog.Logger // is told when nobody leads; nil: nobody is
	// LeaderPatience is for how long nobody may lead until commands are refused, AnswerPatience for how long one may be without
	// an outcome until whoever gave it is told. 0: 5 s, 15 s.
	LeaderPatience, AnswerPatience time.Duration
}

// Meta is this member's part of the metadata: a replica of shard 1, and the way of its commands there. It implements
// broker.Log. Its methods may be called concurrently.
type Meta struct {
	host  *dragonboat.NodeHost
	node  uint64
	store MetaStore
	p     *metaProposer
}

// StartMeta starts this member's replica on a host whose transport reaches the others. What the store of a founder has is
// not in the log: before StartMeta returns, the log has begun and is cut, so that whoever joins gets a snapshot.
func StartMeta(host *dragonboat.NodeHost, o MetaOptions) (*Meta, error) {
	_, numbering := o.Store.Applied()
	if _, err := readMetaOrigins(numbering); err != nil {
		return nil, err
	}
	p := newMetaProposer(host, o)
	machine := &metaMachine{store: o.Store, p: p}
	var members map[uint64]string
	join := false
	if !host.HasNodeInfo(metaShard, o.Node) {
		if join = o.Join; !join {
			members = map[uint64]string{o.Node: address(o.Node)}
		}
	}
	err := host.StartOnDiskReplica(members, join, func(uint64, uint64) sm.IOnDiskStateMachine { return machine }, config.Config{
		ReplicaID: o.Node, ShardID: metaShard, IsNonVoting: o.Join, // until it is told that it votes
		ElectionRTT: metaElection, HeartbeatRTT: 1, PreVote: true, CheckQuorum: true, OrderedConfigChange: true,
		SnapshotEntries: metaSnapshot, CompactionOverhead: metaKept,
		EntryCompressionType: config.NoCompression, SnapshotCompressionType: config.NoCompression,
	})
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	m := &Meta{host: host, node: o.Node, store: o.Store, p: p}
	if err := m.found(o.Join); err != nil {
		_ = host.StopShard(metaShard)
		return nil, fmt.Errorf("metadata: %w", err)
	}
	p.seen = time.Now()
	p.look(p.seen)
	go p.run()
	return m, nil
}

// found begins the log and cuts it, if that was not done before.
func (m *Meta) found(join bool) error {
	reader, err := m.host.GetLogReader(metaShard)
	if err != nil {
		return err
	}
	if first, _ := reader.GetRange(); join || first > 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), foundPatience)
	defer cancel()
	err = m.again(ctx, func(ctx context.Context) error {
		_, err := m.host.SyncPropose(ctx, m.host.GetNoOPSession(metaShard), metaHeader{}.append(nil))
		return err
	})
	if err != nil {
		return err
	}
	return m.again(ctx, func(ctx context.Context) error {
		_, err := m.host.SyncRequestSnapshot(ctx, metaShard, dragonboat.SnapshotOption{OverrideCompactionOverhead: true})
		if first, _ := reader.GetRange(); first > 1 { // it is cut some time after
			return nil
		}
		return cmp.Or(err, errNotCut)
	})
}

var errNotCut = errors.New("the log is not cut")

// again does something until it succeeds, or fails in a way that more tries do not mend.
func (m *Meta) again(ctx context.Context, do func(context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, metaOnce)
		err := do(once)
		cancel()
		if err == nil || errors.Is(err, dragonboat.ErrClosed) || errors.Is(err, dragonboat.ErrShardNotFound) || errors.Is(err, dragonboat.ErrInvalidAddress) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(metaLook / 2):
		}
	}
}

// Propose implements broker.Log.
func (m *Meta) Propose(command []byte, keep bool, done func(result any, err *amqp.Error)) {
	m.p.add(command, keep, done)
}

// Refuses implements broker.Log.
func (m *Meta) Refuses() *amqp.Error {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	return m.p.refusal(time.Now())
}

// CaughtUp returns when everything that a majority had agreed on before is applied here.
func (m *Meta) CaughtUp(ctx context.Context) error {
	return m.again(ctx, func(ctx context.Context) error {
		_, err := m.host.SyncRead(ctx, metaShard, nil)
		return err
	})
}

// Members lists the numbers of those that vote.
func (m *Meta) Members(ctx context.Context) (list []uint64, err error) {
	members, err := m.membership(ctx)
	if err != nil {
		return nil, err
	}
	for n := range members.Nodes {
		list = append(list, n)
	}
	slices.Sort(list)
	return list, nil
}

func (m *Meta) membership(ctx context.Context) (members *dragonboat.Membership, err error) {
	err = m.again(ctx, func(ctx context.Context) (err error) {
		members, err = m.host.SyncGetShardMembership(ctx, metaShard)
		return err
	})
	return members, err
}

// Admit lets a new member, whose number was never used, have a replica that follows. It has no vote, so that the others can
// go on if it never comes. One that is there is no error.
func (m *Meta) Admit(ctx context.Context, number uint64) error {
	return m.change(ctx, func(ctx context.Context, members *dragonboat.Membership) error {
		_, votes := members.Nodes[number]
		_, follows := members.NonVotings[number]
		if votes || follows {
			return nil
		}
		return m.host.SyncRequestAddNonVoting(ctx, metaShard, number, address(number), members.ConfigChangeID)
	})
}

// AddMember gives a member a vote that was admitted and has proposed something, by which it is seen that it runs and has
// caught up; with others there is nothing to do yet. added says that it has a vote.
func (m *Meta) AddMember(ctx context.Context, number uint64) (added bool, err error) {
	err = m.change(ctx, func(ctx context.Context, members *dragonboat.Membership) error {
		if _, added = members.Nodes[number]; added || !m.heard(number) {
			return nil
		}
		added = true
		return m.host.SyncRequestAddReplica(ctx, metaShard, number, address(number), members.ConfigChangeID)
	})
	return added && err == nil, err
}

// heard reports whether a member has proposed something that was applied here.
func (m *Meta) heard(number uint64) bool {
	_, numbering := m.store.Applied()
	origins, err := readMetaOrigins(numbering)
	return err == nil && slices.ContainsFunc(origins, func(o metaOrigin) bool { return o.node == number })
}

// RemoveMember takes a member and its vote away, for ever. One that is not there is no error.
func (m *Meta) RemoveMember(ctx context.Context, number uint64) error {
	return m.change(ctx, func(ctx context.Context, members *dragonboat.Membership) error {
		_, votes := members.Nodes[number]
		_, follows := members.NonVotings[number]
		if !votes && !follows {
			return nil
		}
		return m.host.SyncRequestDeleteReplica(ctx, metaShard, number, members.ConfigChangeID)
	})
}

// change changes who the members are by what step makes of who they are now, as often as it takes.
func (m *Meta) change(ctx context.Context, step func(context.Context, *dragonboat.Membership) error) error {
	return m.again(ctx, func(once context.Context) error {
		members, err := m.membership(once)
		if err == nil {
			err = step(once, members)
		}
		return err
	})
}

// Leader is the number of the member that leads, as far as this one knows.
func (m *Meta) Leader() (number uint64, ok bool) {
	number, _, ok, err := m.host.GetLeaderID(metaShard)
	return number, ok && err == nil
}

// TransferLeader asks that another member leads. It does not wait.
func (m *Meta) TransferLeader(number uint64) error {
	return m.host.RequestLeaderTransfer(metaShard, number)
}

// Close stops the replica. Who waits for an outcome is told that there is none.
func (m *Meta) Close() error {
	m.p.stop()
	return m.host.StopShard(metaShard)
}

// An entry is a batch of commands of one member:
//
//	version u8 | node u64 | boot u64 | number u64 | count uvarint | count × (length uvarint, command)
//
// in little endian. It is the number-th of a start of a node, and applied if it is the next one of that start, as batches of
// slots are: what was proposed again is applied once, and in order. One of node 0 has no commands, and only moves the index.
const metaVersion = 1

type metaHeader struct{ node, boot, number uint64 }

const metaHeaderLen = 1 + 3*8

func (h metaHeader) append(dst []byte) []byte {
	dst = append(dst, metaVersion)
	for _, v := range [...]uint64{h.node, h.boot, h.number} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

func readMetaEntry(b []byte) (h metaHeader, commands [][]byte, err error) {
	if len(b) < metaHeaderLen {
		return h, nil, fmt.Errorf("%w: an entry of %d octets", errFormat, len(b))
	}
	if b[0] != metaVersion {
		return h, nil, fmt.Errorf("%w: an entry of version %d, and this node knows %d", errFormat, b[0], metaVersion)
	}
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(b[1+8*i:]) }
	h = metaHeader{field(0), field(1), field(2)}
	for b = b[metaHeaderLen:]; len(b) > 0; {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return h, nil, fmt.Errorf("%w: an entry that ends in a command", errFormat)
		}
		end := size + int(n)
		commands = append(commands, b[size:end:end])
		b = b[end:]
	}
	return h, commands, nil
}

// metaOrigin is the number of the last batch of a member's last start.
type metaOrigin struct{ node, boot, last uint64 }

// metaOrigins are in order of nodes.
type metaOrigins []metaOrigin

// next reports whether a batch is the one that follows, and counts it then.
func (os *metaOrigins) next(h metaHeader) (last uint64, yes bool) {
	at, known := slices.BinarySearchFunc(*os, h.node, func(o metaOrigin, node uint64) int { return cmp.Compare(o.node, node) })
	if !known || (*os)[at].boot < h.boot {
		if h.number != 1 {
			return 0, false
		}
		if !known {
			*os = slices.Insert(*os, at, metaOrigin{})
		}
		(*os)[at] = metaOrigin{h.node, h.boot, 1}
		return 1, true
	}
	o := &(*os)[at]
	switch {
	case h.boot < o.boot: // of a start that has ended
		return 0, false
	case h.number != o.last+1:
		return o.last, false
	}
	o.last++
	return o.last, true
}

func (os metaOrigins) append(dst []byte) []byte {
	dst = append(dst, metaVersion)
	for _, o := range os {
		for _, v := range [...]uint64{o.node, o.boot, o.last} {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	return dst
}

func readMetaOrigins(b []byte) (os metaOrigins, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != metaVersion {
		return nil, fmt.Errorf("%w: numbering of version %d, and this node knows %d", errFormat, b[0], metaVersion)
	}
	for b = b[1:]; len(b) > 0; {
		var o metaOrigin
		for _, v := range [...]*uint64{&o.node, &o.boot, &o.last} {
			n, size := binary.Uvarint(b)
			if size <= 0 {
				return nil, fmt.Errorf("%w: numbering", errFormat)
			}
			*v, b = n, b[size:]
		}
		os = append(os, o)
	}
	return os, nil
}

// metaMachine is the state machine of shard 1.
type metaMachine struct {
	store   MetaStore
	p       *metaProposer
	origins metaOrigins
}

// Open implements sm.IOnDiskStateMachine.
func (m *metaMachine) Open(<-chan struct{}) (uint64, error) {
	index, numbering := m.store.Applied()
	var err error
	m.origins, err = readMetaOrigins(numbering)
	return index, err
}

// Update implements sm.IOnDiskStateMachine. An error ends the process.
func (m *metaMachine) Update(entries []sm.Entry) ([]sm.Entry, error) {
	for i := range entries {
		e := &entries[i]
		h, commands, err := readMetaEntry(e.Cmd)
		if err != nil {
			return nil, fmt.Errorf("metadata, entry %d: %w", e.Index, err)
		}
		applied := h.node == 0
		if !applied {
			e.Result.Value, applied = m.origins.next(h)
		}
		if !applied {
			commands = nil
		}
		results, err := m.store.ApplyEntry(e.Index, m.origins.append(nil), commands)
		if err != nil {
			return nil, fmt.Errorf("metadata, entry %d: %w", e.Index, err)
		}
		if applied && h.node == m.p.node && h.boot == m.p.boot {
			m.p.applied(h.number, results)
		}
	}
	return entries, nil
}

// Lookup implements sm.IOnDiskStateMachine: who asks wants to know when it may.
func (m *metaMachine) Lookup(any) (any, error) { return nil, nil }

// Sync implements sm.IOnDiskStateMachine.
func (m *metaMachine) Sync() error { return m.store.SyncEntries() }

// PrepareSnapshot implements sm.IOnDiskStateMachine. It comes between two calls of Update.
func (m *metaMachine) PrepareSnapshot() (any, error) { return m.store.Capture() }

// SaveSnapshot implements sm.IOnDiskStateMachine.
func (m *metaMachine) SaveSnapshot(capture any, w io.Writer, _ <-chan struct{}) error {
	_, err := io.Copy(w, bytes.NewReader(capture.([]byte)))
	return err
}

// RecoverFromSnapshot implements sm.IOnDiskStateMachine.
func (m *metaMachine) RecoverFromSnapshot(r io.Reader, _ <-chan struct{}) error {
	err := m.store.Restore(r)
	if err != nil {
		return err
	}
	_, numbering := m.store.Applied()
	if m.origins, err = readMetaOrigins(numbering); err != nil {
		return err
	}
	for _, o := range m.origins {
		if o.node == m.p.node && o.boot == m.p.boot {
			m.p.applied(o.last, nil)
		}
	}
	return nil
}

// Close implements sm.IOnDiskStateMachine.
func (m *metaMachine) Close() error { return nil }

// metaEngine is what a metaProposer asks of the Raft engine.
type metaEngine interface {
	Propose(session *client.Session, cmd []byte, timeout time.Duration) (*dragonboat.RequestState, error)
	GetLeaderID(shard uint64) (leader, term uint64, ok bool, err error)
}

// metaBatch is commands on their way.
type metaBatch struct {
	number  uint64
	buf     []byte
	waiters []*metaWaiter // one for each command
}

// metaWaiter is who waits for the outcome of a command.
type metaWaiter struct {
	until time.Time
	done  func(any, *amqp.Error) // nil: has been answered. Guarded by metaProposer.mu
}

// metaProposer gathers commands into batches and proposes them until they are applied. See proposer: a batch whose outcome is
// not known is proposed again, with those behind it.
type metaProposer struct {
	engine         metaEngine
	session        *client.Session
	node, boot     uint64
	leaderPatience time.Duration
	answerPatience time.Duration
	log            *slog.Logger  // nil: nobody is told
	kick           chan struct{} // one slot
	quit, ended    chan struct{}

	mu      sync.Mutex // guards what follows; a leaf
	open    *metaBatch // nil: nothing has gathered
	full    []*metaBatch
	flight  []*metaBatch // ascending numbers
	sent    int          // how many of flight are with the Raft engine
	last    uint64       // number given out last
	waiting []*metaWaiter
	answers []func() // to be called by run
	leader  uint64
	seen    time.Time // when somebody led last
	lost    bool      // nobody has for too long
	closed  bool
}

func newMetaProposer(host *dragonboat.NodeHost, o MetaOptions) *metaProposer {
	return &metaProposer{
		engine: host, session: host.GetNoOPSession(metaShard), node: o.Node, boot: o.Boot,
		leaderPatience: cmp.Or(o.LeaderPatience, 5*time.Second), answerPatience: cmp.Or(o.AnswerPatience, 15*time.Second),
		log: o.Log, kick: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}), seen: time.Now(),
	}
}

// The beginnings of errors that pass.
const (
	textNoMajority = "metadata has no majority"
	textUnknown    = "metadata was changed while this node could not follow"
)

// Passes reports whether what a command of metadata failed with is no fault of the command, and passes when a majority of the
// nodes is there and in touch.
func Passes(err *amqp.Error) bool {
	return strings.Contains(err.Text, textNoMajority) || strings.Contains(err.Text, textUnknown)
}

// noMajority is the error for a command that cannot be agreed on.
func noMajority(format string, args ...any) *amqp.Error {
	return amqp.Errorf(amqp.InternalError, textNoMajority+": %s. Start the nodes that are down, or mend the network between them", fmt.Sprintf(format, args...))
}

// refusal is the error for a command that is asked for now. p.mu is held.
func (p *metaProposer) refusal(now time.Time) *amqp.Error {
	switch {
	case p.closed:
		return amqp.Errorf(amqp.InternalError, "metadata cannot be changed: the node is stopping")
	case now.Sub(p.seen) >= p.leaderPatience:
		return noMajority("no node has led for %s, and nothing was changed", now.Sub(p.seen).Round(time.Second))
	}
	return nil
}

func (p *metaProposer) add(command []byte, keep bool, done func(any, *amqp.Error)) {
	now := time.Now()
	w := &metaWaiter{until: now.Add(p.answerPatience), done: done}
	p.mu.Lock()
	defer p.wake()
	defer p.mu.Unlock()
	if err := p.refusal(now); err != nil {
		if w.done = nil; p.closed {
			go done(nil, err) // run is no more
			return
		}
		p.answers = append(p.answers, func() { done(nil, err) })
		if !keep {
			return
		}
	}
	b := p.open
	if b == nil {
		b = &metaBatch{buf: make([]byte, metaHeaderLen, 1<<10)}
		p.open = b
	}
	b.buf = append(binary.AppendUvarint(b.buf, uint64(len(command))), command...)
	b.waiters = append(b.waiters, w)
	if p.waiting = append(p.waiting, w); len(b.buf) >= maxBatch {
		p.full = append(p.full, b)
		p.open = nil
	}
}

func (p *metaProposer) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// next is the batch to be proposed next, with its header, or nil.
func (p *metaProposer) next() *metaBatch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == len(p.flight) {
		var b *metaBatch
		switch {
		case len(p.flight) >= metaFlight:
		case len(p.full) > 0:
			b = p.full[0]
			p.full = slices.Delete(p.full, 0, 1)
		default:
			b, p.open = p.open, nil
		}
		if b == nil {
			return nil
		}
		p.last++
		b.number = p.last
		metaHeader{p.node, p.boot, b.number}.append(b.buf[:0])
		p.flight = append(p.flight, b)
	}
	p.sent++
	return p.flight[p.sent-1]
}

// applied hears that batches up to a number are applied, and the results of that one; none are known if a snapshot told so.
func (p *metaProposer) applied(number uint64, results []any) {
	p.mu.Lock()
	n := 0
	var calls []func()
	for n < len(p.flight) && p.flight[n].number <= number {
		b := p.flight[n]
		for i, w := range b.waiters {
			done := w.done
			if w.done = nil; done == nil {
				continue
			}
			if b.number == number && i < len(results) {
				calls = append(calls, func() { done(results[i], nil) })
			} else {
				calls = append(calls, func() {
					done(nil, amqp.Errorf(amqp.InternalError, textUnknown+", and the result is not known: look what there is now"))
				})
			}
		}
		n++
	}
	p.flight = slices.Delete(p.flight, 0, n)
	p.sent = max(0, p.sent-n)
	p.mu.Unlock()
	for _, call := range calls {
		call()
	}
	p.wake()
}

// look finds out who leads. It reports whether that has changed, which loses what was on its way to the one before.
func (p *metaProposer) look(now time.Time) (changed bool) {
	leader, _, ok, err := p.engine.GetLeaderID(metaShard)
	p.mu.Lock()
	if ok && err == nil {
		changed = p.leader != leader
		p.leader, p.seen = leader, now
	}
	lost := now.Sub(p.seen) >= p.leaderPatience
	told := lost == p.lost
	p.lost = lost
	p.mu.Unlock()
	switch {
	case told || p.log == nil:
	case lost:
		p.log.Warn("no node leads metadata: what would change it is refused until a majority of the nodes is there and in touch")
	default:
		p.log.Info("metadata has a leader again", "member", leader)
	}
	return changed
}

// answer calls those who are refused, and those who have waited for too long.
func (p *metaProposer) answer(now time.Time, closing bool) {
	p.mu.Lock()
	calls := p.answers
	p.answers = nil
	n := 0
	for n < len(p.waiting) && (closing || p.waiting[n].done == nil || !now.Before(p.waiting[n].until)) {
		if done := p.waiting[n].done; done != nil {
			p.waiting[n].done = nil
			err := noMajority("nothing has come of a change within %s, and may still", p.answerPatience)
			if closing {
				err = amqp.Errorf(amqp.InternalError, "the node is stopping, and what becomes of a change to metadata is not known")
			}
			calls = append(calls, func() { done(nil, err) })
		}
		n++
	}
	p.waiting = slices.Delete(p.waiting, 0, n)
	p.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// run proposes until stop.
func (p *metaProposer) run() {
	defer close(p.ended)
	ticker := time.NewTicker(metaLook)
	defer ticker.Stop()
	var sent []proposal
	var rest <-chan time.Time // not nil: nothing is proposed until then
	rewind := func() {        // what is on its way may come or not: the machine tells
		p.mu.Lock()
		p.sent = 0
		p.mu.Unlock()
		sent = nil
		rest = time.After(pause)
	}
	for {
		for rest == nil {
			b := p.next()
			if b == nil {
				break
			}
			state, err := p.engine.Propose(p.session, b.buf, metaOnce)
			if err != nil {
				rewind()
				break
			}
			sent = append(sent, proposal{state, b.number})
		}
		var result <-chan dragonboat.RequestResult
		if len(sent) > 0 {
			result = sent[0].state.ResultC()
		}
		select {
		case r := <-result:
			ok := r.Completed() && r.GetResult().Value >= sent[0].number
			sent[0].state.Release()
			if sent = sent[1:]; !ok {
				rewind()
			}
		case <-rest:
			rest = nil
		case now := <-ticker.C:
			if p.look(now) {
				rewind()
			}
			p.answer(now, false)
		case <-p.kick:
			p.answer(time.Now(), false)
		case <-p.quit:
			return
		}
	}
}

// stop ends run, and the hopes of those who wait.
func (p *metaProposer) stop() {
	p.mu.Lock()
	before := p.closed
	p.closed = true
	p.mu.Unlock()
	if !before {
		close(p.quit)
	}
	<-p.ended
	p.answer(time.Now(), true)
}
