package slots

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream"
)

// What operators are refused.
var (
	ErrUnknownName = errors.New("stream: nobody has committed an offset under that name")
	ErrOutside     = errors.New("stream: the stream does not reach there")
	ErrWhole       = errors.New("stream: this node's replica lacks nothing")
	ErrOthers      = errors.New("stream: other members have, or may have, what this one lacks, and it is copied from them as soon as they can be reached")
)

// Status is a stream at one moment.
type Status struct {
	First, Next uint64
	Octets      int64
	Segments    int
	LastTime    int64           // of the last chunk, milliseconds since 1970; 0: there is none
	Readers     int             // consumers of this node
	Names       int             // with committed offsets
	Damage      []stream.Damage // found at the start, or by readers since
	SkipTo      uint64          // readers pass over damage below
	Broken      string          // what is missing at the end; "" if all is well
	Mending     string          // what is missing, or damaged, is fetched from other members; "" if nothing is
	Leader      uint64          // number of the node that leads the slot; 0: none is known
}

// replica is this node's replica of a stream, nil if there is none (yet).
func (q *Queue) replica() *replica {
	m := q.slot.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.streams[q.id]
}

// Status tells how the stream is. Until it has been made it is empty.
func (q *Queue) Status() (s Status) {
	m := q.slot.machine
	m.mu.Lock()
	r := m.streams[q.id]
	if r == nil {
		m.mu.Unlock()
		return s
	}
	s.First, s.Next, s.Names, s.SkipTo = r.first, r.next, r.offsets.Len(), m.skips[q.id]
	if r.broken != nil {
		s.Broken = r.broken.Error()
	}
	log, unmended := r.log, r.unmended
	m.mu.Unlock()
	s.Octets, s.Segments, s.Damage = log.Size(), log.Count(), log.Damage()
	if next := log.Next(); q.host.mends() && (s.Broken != "" || len(s.Damage) > 0) {
		s.Mending = "it is fetched from other members"
		if s.Broken != "" {
			s.Mending = fmt.Sprintf("offsets from %d to %d are fetched from other members", next, s.Next)
		}
		if unmended != "" {
			s.Mending += "; " + unmended
		}
	}
	s.LastTime, _ = log.LastTime()
	s.Leader = q.slot.shard.Leader()
	q.mu.Lock()
	s.Readers = len(q.consumers)
	q.mu.Unlock()
	return s
}

// Committed is the committed offset of a name.
type Committed struct {
	Name string
	stream.Commit
	Lag     uint64 // records that it has not read yet
	LagTime int64  // milliseconds between the chunk that it reads next and the last one; -1: unknown
	Online  bool   // a consumer of this node has the name
}

// Offsets are the committed offsets of the stream, by name. With times it fills in LagTime, and may read the disk for it.
func (q *Queue) Offsets(times bool) []Committed {
	m := q.slot.machine
	m.mu.Lock()
	r := m.streams[q.id]
	if r == nil {
		m.mu.Unlock()
		return nil
	}
	var list []Committed
	first, next := r.first, r.next
	for _, name := range r.offsets.Names() {
		c, _ := r.offsets.Get(name)
		list = append(list, Committed{Name: name, Commit: c})
	}
	m.mu.Unlock()
	online := map[string]bool{}
	q.mu.Lock()
	for _, c := range q.consumers {
		online[c.spec.Name] = true
	}
	q.mu.Unlock()
	last := int64(0)
	if times {
		last, _ = r.log.LastTime()
	}
	for i := range list {
		c := &list[i]
		c.Online = online[c.Name]
		at := max(c.Next, first)
		if c.Lag = next - min(at, next); c.Lag == 0 {
			continue
		}
		c.LagTime = -1
		if !times {
			continue
		}
		if t, ok, err := r.log.TimeOf(at); ok && err == nil {
			c.LagTime = max(last-t, 0)
		}
	}
	return list
}

// SetOffset moves the committed offset of a name to where a Spec says, and returns the offset. The name's consumer is
// cancelled, and begins there when it comes again. It waits for the log and may read the disk. Stored is ErrOutside.
func (q *Queue) SetOffset(name string, to stream.Spec) (uint64, error) {
	r := q.replica()
	switch {
	case r == nil:
		return 0, queue.ErrDeleted
	case len(name) < 1 || len(name) > stream.MaxName:
		return 0, stream.ErrName
	case to.Kind == stream.Stored:
		return 0, ErrOutside
	}
	how := byte(startAt)
	switch to.Kind {
	case stream.First:
		how = startFirst
	case stream.Next:
		how = startNext
	}
	offset, err := r.log.Resolve(to)
	if err != nil {
		return 0, err
	}
	if offset > r.log.Next() {
		return 0, ErrOutside
	}
	x, err := q.await(cmdSet, func(dst []byte) []byte {
		return binary.AppendUvarint(append(appendName(dst, name), how), offset)
	})
	if err != nil {
		return 0, err
	}
	return x.offset, x.err(name)
}

// ForgetOffset removes a name. Its consumer is cancelled.
func (q *Queue) ForgetOffset(name string) error {
	if len(name) < 1 || len(name) > stream.MaxName {
		return stream.ErrName
	}
	x, err := q.await(cmdForget, func(dst []byte) []byte { return appendName(dst, name) })
	if err != nil {
		return err
	}
	return x.err(name)
}

// What comes of commands without an answer: the node goes down, or nobody knows.
var (
	errStopping = errors.New("stream: the node goes down")
	errNoAnswer = errors.New("stream: no answer came in time; it may be done yet")
)

// commandPatience is how long an operator's command waits for its answer.
const commandPatience = 30 * time.Second

// await gives a command and waits for its answer.
func (q *Queue) await(k kind, rest func(dst []byte) []byte) (result, error) {
	done := make(chan result, 1)
	if !q.slot.proposer.command(k, q, rest, func(x *result, _ *queue.Wake) { done <- *x }) {
		return result{}, errStopping
	}
	timer := time.NewTimer(commandPatience)
	defer timer.Stop()
	select {
	case x := <-done:
		return x, nil
	case <-q.slot.quit:
		return result{}, errStopping
	case <-timer.C:
		return result{}, errNoAnswer
	}
}

// SkipTo has this node's readers pass over damage below an offset, for good; 0 undoes it. What is whole there they still read.
func (q *Queue) SkipTo(offset uint64) error {
	m := q.slot.machine
	var batch storage.Batch
	if offset == 0 {
		batch.Delete(m.key('d', q.id))
	} else {
		batch.Set(m.key('d', q.id), binary.LittleEndian.AppendUint64(nil, offset))
	}
	if err := m.db.Commit(&batch, true); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skips[q.id] = offset
	return nil
}

// GoOn has a stream that lacks its end go on with what it has, and returns the offset that comes next. Offsets of what is lost
// are given again. ErrWhole is of one that lacks nothing, ErrOthers of one while another member may have what is lacking.
func (q *Queue) GoOn() (uint64, error) {
	m := q.slot.machine
	others := len(q.Members()) > 1 || q.host.mends() // those without a vote have what they have
	m.mu.Lock()
	r := m.streams[q.id]
	broken := r != nil && r.broken != nil
	others = others && !(broken && r.verdict >= behind)
	m.mu.Unlock()
	switch {
	case r == nil:
		return 0, queue.ErrDeleted
	case !broken:
		return 0, ErrWhole
	case others: // they would lose it, too
		return 0, ErrOthers
	}
	next := r.log.Next()
	x, err := q.await(cmdRewind, func(dst []byte) []byte { return binary.AppendUvarint(dst, next) })
	if err != nil {
		return 0, err
	}
	return next, x.err("")
}

// Resolve finds the offset that a Spec means now. Stored is stream.ErrOffset.
func (q *Queue) Resolve(s stream.Spec) (uint64, error) {
	r := q.replica()
	if r == nil {
		return 0, queue.ErrDeleted
	}
	return r.log.Resolve(s)
}

// Totals are memory that readers use in octets, and how many blocks they have read from disk.
func (h *Host) Totals() (memory int64, reads uint64) { return h.memory.Used(), h.memory.Reads() }

// Read makes a reader of the stream for one that is no consumer, and says where it begins. Whoever reads calls Release before
// it waits for anything, and Close at the end. A stream that lacks its end has no readers.
func (q *Queue) Read(from stream.Spec, filter stream.Filter) (*stream.Reader, uint64, error) {
	r := q.replica()
	switch {
	case r == nil:
		return nil, 0, queue.ErrDeleted
	case q.isBroken(): // it may be rewound, and must have no readers then
		return nil, 0, errBroken
	}
	offset, err := r.log.Resolve(from)
	if err != nil {
		return nil, 0, err
	}
	return r.log.Read(offset, filter), offset, nil
}
