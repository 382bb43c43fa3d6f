package slots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/stream"
)

const (
	// mendRetry is after how long it is tried again to mend what could not be mended.
	mendRetry = 2 * time.Second
	// mendPatience is how long consumers that come to a replica which lacks something wait for it.
	mendPatience = 20 * time.Second
	// mendRate is how many octets a second are fetched from other members, for all streams.
	mendRate = 128 << 20
	// behindPause and behindTries say how long a member that has less than is missing here is waited for.
	behindPause = 20 * time.Millisecond
	behindTries = 100
)

// mender has this node's replicas have what they lack, from other members: one goroutine copies what is missing at the end of
// replicas, which one has that was away for long, is new, or lost files; another one makes good what is damaged or missing within
// those that go on.
type mender struct {
	host    *Host
	copies  chan struct{} // there may be something to do; one slot each
	repairs chan struct{}
	quit    context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex // guards what follows; a leaf
	free time.Time  // when something may be fetched again
}

func newMender(h *Host) *mender {
	n := &mender{host: h, copies: make(chan struct{}, 1), repairs: make(chan struct{}, 1)}
	n.quit, n.stop = context.WithCancel(context.Background())
	return n
}

// wake has the mender look.
func (n *mender) wake() {
	wake(n.copies)
	wake(n.repairs)
}

// start begins to mend, if there may be other members.
func (n *mender) start() {
	if n.host.o.Network == nil {
		return
	}
	n.running.Go(func() { n.run(n.copies, n.copyAll) })
	n.running.Go(func() { n.run(n.repairs, n.repairAll) })
	n.wake()
}

func (n *mender) close() {
	n.stop()
	n.running.Wait()
}

// run calls once when there may be something to do, and again as long as something is left.
func (n *mender) run(kick <-chan struct{}, once func() (left bool)) {
	for {
		var again <-chan time.Time
		if once() {
			again = time.After(mendRetry)
		}
		select {
		case <-n.quit.Done():
			return
		case <-kick:
		case <-again:
		}
	}
}

// pace rests after so many octets, so that no more than mendRate are fetched.
func (n *mender) pace(octets int) {
	n.mu.Lock()
	now := time.Now()
	if n.free.Before(now) {
		n.free = now
	}
	n.free = n.free.Add(time.Duration(octets) * time.Second / mendRate)
	rest := n.free.Sub(now)
	n.mu.Unlock()
	if rest > 10*time.Millisecond {
		select {
		case <-time.After(rest):
		case <-n.quit.Done():
		}
	}
}

// wants are the replicas of a slot for which something holds, which is called with the machine's lock held.
func (m *machine) wants(f func(*replica) bool) (list []*replica) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.streams {
		if f(q) {
			list = append(list, q)
		}
	}
	return list
}

// verdict is what came of asking the other members.
type verdict uint8

const (
	mended  verdict = iota
	waiting         // for a member that does not answer
	behind          // all have answered, and none has more
	nowhere         // is there a good copy
)

// from has take take what is missing from one member after the other, followers first, until one had it.
func (n *mender) from(s *slot, take func(source) error) (verdict, error) {
	v := nowhere
	var whys []string
	others := n.host.o.Network.Others()
	leader := s.shard.Leader()
	slices.SortStableFunc(others, func(a, b uint64) int {
		switch leader {
		case a:
			return 1
		case b:
			return -1
		}
		return 0
	})
	for _, member := range others {
		err := func() error {
			src, err := n.host.dial(n.quit, member, s.machine.number)
			if err != nil {
				return err
			}
			defer src.c.Close()
			defer context.AfterFunc(n.quit, func() { src.c.Close() })()
			return take(paced{src, n})
		}()
		if err == nil {
			return mended, nil
		}
		if n.quit.Err() != nil {
			return waiting, n.quit.Err()
		}
		switch {
		case errors.Is(err, errDamagedThere), errors.Is(err, errUnknownStream):
		case errors.Is(err, stream.ErrBehind):
			v = min(v, behind)
		default:
			v = waiting
		}
		whys = append(whys, fmt.Sprintf("member %d: %v", member, err))
	}
	if whys == nil {
		whys = []string{"there is no other member"}
		if m := s.shard.Members(); len(m) > 1 || !slices.Contains(m, s.machine.node) { // they are not known yet
			v = waiting
		}
	}
	return v, errors.New(strings.Join(whys, "; "))
}

// paced is a source of which no more is fetched than mendRate.
type paced struct {
	source
	mender *mender
}

func (p paced) octets(id, dir, base uint64, pos int64) ([]byte, error) {
	b, err := p.source.octets(id, dir, base, pos)
	p.mender.host.Counters.Copied.Add(uint64(len(b)))
	p.mender.pace(len(b))
	return b, err
}

// repairAll makes good all damage that is known. left: some is.
func (n *mender) repairAll() (left bool) {
	for _, s := range n.host.slots {
		for _, r := range s.machine.wants(func(r *replica) bool {
			return r.broken == nil && (len(r.log.Damage()) > 0 || r.local != nil && r.local.isAwaited(false))
		}) {
			v, why := mended, error(nil)
			for _, d := range s.machine.logOf(r).Damage() {
				v1, err := n.from(s, func(src source) error { return s.machine.repair(r, d, src) })
				if v = max(v, v1); err != nil {
					why = err
				}
				if v1 == mended {
					n.host.Counters.Mended.Add(1)
					s.log.Info("damage in a stream was made good from another member", "directory", r.path, "from", d.From, "to", d.To)
				}
			}
			left = left || v != mended
			if local := n.told(s, r, v, why); local != nil {
				local.repaired(v)
			}
			if n.quit.Err() != nil {
				return false
			}
		}
	}
	return left
}

func (m *machine) logOf(r *replica) *stream.Log {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.log
}

// repair makes good damage from another replica.
func (m *machine) repair(r *replica, d stream.Damage, src source) error {
	l, err := src.list(r.id, r.dir)
	if err != nil {
		return err
	}
	log := m.logOf(r)
	err = log.Mend(d, l.segs, func(base uint64, pos int64) ([]byte, error) { return src.octets(r.id, r.dir, base, pos) })
	if err == nil {
		err = log.Sync()
	}
	return err
}

// told takes down what came of mending a replica.
func (n *mender) told(s *slot, r *replica, v verdict, why error) (local *Queue) {
	m := s.machine
	m.mu.Lock()
	text := ""
	if v != mended {
		text = why.Error()
	}
	news := text != r.unmended
	r.unmended, r.verdict, local = text, v, r.local
	m.mu.Unlock()
	if news && v != mended {
		s.log.Error("a stream lacks something that could not be had from another member; it will be tried again", "directory", r.path, "why", text)
	}
	return local
}

// copyAll copies what is missing at the end of replicas.
func (n *mender) copyAll() (left bool) {
	for _, s := range n.host.slots {
		for _, r := range s.machine.wants(func(r *replica) bool { return r.broken != nil || r.local != nil && r.local.isAwaited(true) }) {
			had := n.host.Counters.Copied.Load()
			v, why := mended, error(nil)
			if s.machine.isBroken(r) {
				v, why = n.from(s, func(src source) error { return s.machine.catchUp(n.quit, r, src) })
			}
			if v == mended && n.host.Counters.Copied.Load() > had {
				n.host.Counters.Mended.Add(1)
				s.log.Info("a replica of a stream has what it lacked from another member", "directory", r.path, "octets", n.host.Counters.Copied.Load()-had)
				if err := r.log.Sync(); err != nil && !errors.Is(err, stream.ErrClosed) {
					n.host.fatal(err)
					return false
				}
			}
			left = left || v != mended
			if local := n.told(s, r, v, why); local != nil {
				local.copied(v)
			}
			if n.quit.Err() != nil {
				return false
			}
		}
	}
	return left
}

// errDone says that a replica is not to be mended any more: it was deleted, or is whole.
var errDone = errors.New("done")

// catchUp appends to the log of a broken replica what it lacks, and has it go on.
func (m *machine) catchUp(quit context.Context, r *replica, src source) error {
	err := m.prepare(r)
	if err == nil {
		err = m.compare(r, src)
	}
	for tries := 0; err == nil; {
		var l listing
		if l, err = src.list(r.id, r.dir); err != nil {
			break
		}
		before := r.log.Next()
		if err = m.extend(r, l, src); err != nil {
			break
		}
		if err = m.finish(r); err != nil {
			break
		}
		if r.log.Next() > before {
			tries = 0
			continue
		}
		if tries++; tries > behindTries {
			return stream.ErrBehind
		}
		select {
		case <-time.After(behindPause):
		case <-quit.Done():
			err = quit.Err()
		}
	}
	if err == errDone {
		return nil
	}
	return err
}

// still calls f with the lock held if a replica is broken and there, or is errDone.
func (m *machine) still(r *replica, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.streams[r.id] != r || r.broken == nil {
		return errDone
	}
	return f()
}

// prepare has the log take something again.
func (m *machine) prepare(r *replica) error {
	return m.still(r, func() error {
		if r.log.Err() != nil {
			return r.log.Rewind(r.log.Next())
		}
		return nil
	})
}

// compare looks whether the segments that are here are those of another replica: first offsets, lengths and sums of all headers.
// What agrees stays; what is damaged is noted; from a segment that is another one on the log is dropped.
func (m *machine) compare(r *replica, src source) error {
	l, err := src.list(r.id, r.dir)
	if err != nil {
		return err
	}
	segs := r.log.Segments()
	for i, s := range segs {
		if s.First >= l.next || s.Next <= l.first {
			continue
		}
		k := slices.IndexFunc(l.segs, func(x stream.SegmentInfo) bool { return x.First == s.First })
		same := k >= 0
		if same && (i < len(segs)-1 && s.Next <= l.next || s.Next == l.segs[k].Next) {
			same = s.Next == l.segs[k].Next && s.Size == l.segs[k].Size
		}
		if same && s.Next <= l.segs[k].Next {
			var damage *stream.DamageError
			here, err := r.log.Sum(s.First, s.Size)
			if errors.As(err, &damage) {
				r.log.Note(damage.Damage)
				continue
			}
			if err != nil {
				return err
			}
			switch there, err := src.sum(r.id, r.dir, s.First, s.Size); {
			case errors.Is(err, errDamagedThere), errors.Is(err, errCutThere):
				continue
			case errors.Is(err, errSilent):
				return err
			default:
				same = err == nil && here == there
			}
		}
		if !same {
			m.log.Error("a segment of a stream is not what another member has; it is fetched from there, with all that follows", "directory", r.path, "first", s.First)
			return m.drop(r, s.First)
		}
	}
	return nil
}

// drop has a log end at an offset. Its readers go on in another log.
func (m *machine) drop(r *replica, to uint64) error {
	return m.still(r, func() error {
		r.log.Close()
		log, _, err := stream.Open(m.fs, r.path, m.logOptions(r))
		if err != nil {
			return err
		}
		r.log = log
		r.show()
		return log.Rewind(to)
	})
}

// extend appends what another replica has behind the end of the log.
func (m *machine) extend(r *replica, l listing, src source) error {
	if next := r.log.Next(); l.first > next {
		if err := m.still(r, func() error { return r.log.Reset(l.first) }); err != nil {
			return err
		}
	}
	for _, s := range l.segs {
		for next := r.log.Next(); s.First <= next && next < s.Next; next = r.log.Next() {
			pos := int64(stream.SegmentHeaderLen)
			if segs := r.log.Segments(); s.First < next {
				here := segs[len(segs)-1]
				if here.First != s.First {
					return m.drop(r, here.First)
				}
				pos = here.Size
			}
			b, err := src.octets(r.id, r.dir, s.First, pos)
			if err == nil && len(b) == 0 {
				err = stream.ErrBehind
			}
			if err != nil {
				return err
			}
			var local *Queue
			if err := m.still(r, func() error { local = r.local; return r.extend(b) }); err != nil {
				return err
			}
			if local != nil {
				local.grew()
			}
		}
	}
	return nil
}

// extend appends chunks that continue the log.
func (r *replica) extend(b []byte) error {
	for len(b) > 0 {
		c, err := stream.ParseChunk(b)
		if err != nil {
			return err
		}
		if c.First != r.log.Next() {
			return fmt.Errorf("%w: a chunk begins at offset %d, and the log ends at %d", stream.ErrChunk, c.First, r.log.Next())
		}
		if _, err := r.log.Append(c.Bytes); err != nil {
			return err
		}
		b = b[c.Size():]
	}
	return nil
}

// finish has a replica that lacks nothing any more go on, and is errDone then. One that lacks little holds what is applied
// meanwhile.
func (m *machine) finish(r *replica) error {
	return m.still(r, func() error {
		whole, err := r.join()
		if err != nil {
			return err
		}
		if !whole {
			r.hold()
			return nil
		}
		r.broken, r.changed = nil, true
		r.stopHolding()
		r.log.Cut(r.first)
		r.show()
		any := false
		for _, q := range m.streams {
			any = any || q.broken != nil
		}
		m.anyBroken.Store(any)
		return errDone
	})
}

// needs is the entry from which on the Raft log must stay, because a replica here lacks what is in it, and what others have of
// it may be lost: up to index if there is none.
func (m *machine) needs(index uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mends() {
		return index
	}
	for _, q := range m.streams {
		if q.broken != nil {
			index = min(index, q.since)
		}
	}
	return index
}

func (m *machine) isBroken(r *replica) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.broken != nil
}
