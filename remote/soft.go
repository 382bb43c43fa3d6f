package remote

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/warrenmq/warren/cluster"
)

// Change is an item of a node's soft state that has come or has another value, or, with Drop, is gone.
type Change struct {
	Key, Value []byte
	Drop       bool
}

// softState is what this node tells all others of itself, as long as it lives.
type softState struct {
	mu      sync.Mutex // guards what follows, and is held while it is told: above pipe.mu
	items   map[string]*softItem
	version uint64 // changes so far
}

type softItem struct {
	value   []byte
	version uint64
}

// softPeer is the soft stream of a peer: what it is told of this node, and what it told of itself.
type softPeer struct {
	pipe
	peer *peer

	// Guarded by mu.
	wanted bool // it has asked for all, and been told since
	lost   bool // it was not told everything since

	hearing sync.Mutex // guards what follows, and is held while Changed runs
	up      bool
	known   map[string][]byte
	coming  map[string][]byte // of a whole that has begun; nil: none
	order   []string          // of coming
	current bool              // known is whole
}

type softOp uint8

const (
	softBegin softOp = iota + 1 // all items follow
	softEnd                     // those were all
	softSet
	softDrop
)

// maxSoft is how many octets of changes wait for a peer, before it is told everything anew instead.
const maxSoft = 4 << 20

func newSoftPeer(p *peer) *softPeer {
	s := &softPeer{peer: p, known: map[string][]byte{}}
	s.pool, s.kind = p.host.o.Pool, batchSoft
	s.room = func() {
		s.catchUp()
		s.roomy()
	}
	return s
}

// SetSoft changes the soft state of this node, and tells all peers, in the order of the calls. Keys and values are copied.
func (h *Host) SetSoft(changes ...Change) {
	s := &h.soft
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		s.version++
		if c.Drop {
			delete(s.items, string(c.Key))
		} else {
			s.items[string(c.Key)] = &softItem{slices.Clone(c.Value), s.version}
		}
	}
	for _, p := range h.all() {
		p.soft.tell(changes)
	}
}

func appendChange(dst []byte, c *Change) []byte {
	op := softSet
	if c.Drop {
		op = softDrop
	}
	dst = binary.AppendUvarint(append(dst, byte(op)), uint64(len(c.Key)))
	dst = append(dst, c.Key...)
	if !c.Drop {
		dst = append(binary.AppendUvarint(dst, uint64(len(c.Value))), c.Value...)
	}
	return dst
}

// tell tells the peer of changes. Called with softState.mu.
func (s *softPeer) tell(changes []Change) {
	s.mu.Lock()
	if !s.wanted || s.lost {
		s.mu.Unlock()
		return
	}
	if s.text.len() > maxSoft && s.stalled {
		s.text, s.items = fifo[byte]{}, fifo[item]{}
		s.lost = true // it is told everything when there is room
	} else {
		for i := range changes {
			s.write(func(dst []byte) []byte { return appendChange(dst, &changes[i]) })
		}
	}
	s.mu.Unlock()
	s.flush()
}

// catchUp tells the peer everything, if it was not told some of it.
func (s *softPeer) catchUp() {
	state := &s.peer.host.soft
	state.mu.Lock()
	defer state.mu.Unlock()
	s.mu.Lock()
	if s.wanted && s.lost {
		s.whole()
	}
	s.mu.Unlock()
}

// whole has everything be told. Called with softState.mu and mu.
func (s *softPeer) whole() {
	items := s.peer.host.soft.items
	keys := make([]string, 0, len(items))
	for k := range items {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(items[a].version, items[b].version) })
	s.text, s.items = fifo[byte]{}, fifo[item]{}
	s.wanted, s.lost = true, false
	s.write(func(dst []byte) []byte { return append(dst, byte(softBegin)) })
	for _, k := range keys {
		c := Change{Key: []byte(k), Value: items[k].value}
		s.write(func(dst []byte) []byte { return appendChange(dst, &c) })
	}
	s.write(func(dst []byte) []byte { return append(dst, byte(softEnd)) })
}

// opened is told that the peer is up: it is asked for all.
func (s *softPeer) opened() {
	s.hearing.Lock()
	s.up, s.current, s.coming = true, false, nil
	s.hearing.Unlock()
	s.request()
}

// request asks for all, and tells all that the peer was not told.
func (s *softPeer) request() {
	s.mu.Lock()
	s.bind(s.peer.stream(softStream))
	if len(s.say) == 0 {
		s.say = append(s.say, batchWant)
	}
	s.mu.Unlock()
	s.catchUp()
	s.flush()
}

// anew is told that the link begins anew.
func (s *softPeer) anew() {
	s.mu.Lock()
	s.empty()
	s.wanted, s.lost = false, false
	s.mu.Unlock()
	s.hearing.Lock()
	s.current, s.coming = false, nil
	s.hearing.Unlock()
	s.request()
}

// closed is told that the peer is down: what it told no longer counts.
func (s *softPeer) closed() {
	s.mu.Lock()
	s.empty()
	s.lost = s.wanted
	s.mu.Unlock()
	s.hearing.Lock()
	defer s.hearing.Unlock()
	s.up, s.current, s.coming = false, false, nil
	var gone []Change
	for k := range s.known {
		gone = append(gone, Change{Key: []byte(k), Drop: true})
	}
	clear(s.known)
	slices.SortFunc(gone, func(a, b Change) int { return cmp.Compare(string(a.Key), string(b.Key)) })
	s.changed(gone)
}

// changed tells the owner. Called with hearing.
func (s *softPeer) changed(list []Change) {
	if f := s.peer.host.o.Changed; f != nil && len(list) > 0 {
		f(s.peer.id, list)
	}
}

// receive takes a batch. It returns false if it cannot be read.
func (s *softPeer) receive(kind uint8, body []byte) bool {
	r := newReader(body)
	r.Uvarint()
	switch kind {
	case batchWant:
		state := &s.peer.host.soft
		state.mu.Lock()
		s.mu.Lock()
		s.bind(s.peer.stream(softStream))
		s.whole()
		s.mu.Unlock()
		state.mu.Unlock()
		s.flush()
		return !r.Bad
	case batchSoft:
		return s.hear(&r)
	}
	return false
}

// hear takes what the peer tells of itself.
func (s *softPeer) hear(r *reader) bool {
	s.hearing.Lock()
	defer s.hearing.Unlock()
	var list []Change
	for len(r.B) > 0 && !r.Bad {
		switch op := softOp(r.Octet()); op {
		case softBegin:
			s.coming, s.order = map[string][]byte{}, nil
		case softEnd:
			if s.coming != nil && s.up {
				list = append(list, s.replace()...)
			}
			s.coming, s.order = nil, nil
		case softSet, softDrop:
			key := r.Take(r.Uvarint())
			c := Change{Key: key, Drop: op == softDrop}
			if op == softSet {
				c.Value = r.Take(r.Uvarint())
			}
			if r.Bad {
				break
			}
			switch {
			case s.coming != nil:
				s.order = append(s.order, string(key))
				s.coming[string(key)] = slices.Clone(c.Value)
			case !s.current || !s.up: // of a time that is over
			case c.Drop:
				delete(s.known, string(key))
				list = append(list, Change{Key: slices.Clone(key), Drop: true})
			default:
				v := slices.Clone(c.Value)
				s.known[string(key)] = v
				list = append(list, Change{Key: slices.Clone(key), Value: v})
			}
		default:
			r.Fail()
		}
	}
	s.changed(list)
	return !r.Bad
}

// replace makes what has come what is known, and returns what that changes: what is gone first, then what is there in its order.
func (s *softPeer) replace() (list []Change) {
	for k := range s.known {
		if _, stays := s.coming[k]; !stays {
			list = append(list, Change{Key: []byte(k), Drop: true})
		}
	}
	slices.SortFunc(list, func(a, b Change) int { return cmp.Compare(string(a.Key), string(b.Key)) })
	for _, k := range s.order {
		v := s.coming[k]
		if old, known := s.known[k]; !known || string(old) != string(v) {
			list = append(list, Change{Key: []byte(k), Value: v})
		}
	}
	s.known, s.current = s.coming, true
	return list
}

// Soft calls yield with the items that a peer has told of itself and that count, until it returns false. They are not changed
// afterwards.
func (h *Host) Soft(id cluster.NodeID, yield func(key string, value []byte) bool) {
	s := h.peer(id).soft
	s.hearing.Lock()
	defer s.hearing.Unlock()
	for k, v := range s.known {
		if !yield(k, v) {
			return
		}
	}
}
