package exchange

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// The hash exchanges send a message to one of their destinations. RabbitMQ's choice depends on Erlang's hash functions,
// so which one it is differs; that equal keys go to the same one, and how evenly keys spread, does not.

// maxWeight is the largest binding key of x-consistent-hash.
const maxWeight = 10000

// hash64 is FNV-1a with a finish that spreads it over all bits. Nodes must agree on it.
type hash64 uint64

const newHash64 hash64 = 14695981039346656037

func (h hash64) add(b []byte) hash64 {
	for _, c := range b {
		h = (h ^ hash64(c)) * 1099511628211
	}
	return h
}

// sum is MurmurHash3's 64-bit finish.
func (h hash64) sum() uint64 {
	x := uint64(h)
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// jump maps a hash to one of n buckets, n > 0, so that few change when n does (Lamping and Veach, "A Fast, Minimal
// Memory, Consistent Hash Algorithm", 2014).
func jump(hash uint64, n int64) int64 {
	bucket, next := int64(-1), int64(0)
	for next < n {
		bucket = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(bucket+1) * (float64(1<<31) / float64(hash>>33+1)))
	}
	return bucket
}

// consistentHash is the rule of x-consistent-hash: binding keys are weights, each destination has as many buckets as its
// first binding says.
type consistentHash struct {
	header   string
	property string
	bindings []*Binding // in the order in which they were made
	shares   []share
	has      map[Destination]bool // destinations in shares; looked up only
}

type share struct {
	to  Destination
	end int64 // the sum of the weights up to and including this one
}

func newConsistentHash(args amqp.Table) *consistentHash {
	c := &consistentHash{has: make(map[Destination]bool)}
	c.header = text(args, "hash-header")
	c.property = text(args, "hash-property")
	return c
}

func text(t amqp.Table, name string) string {
	v, _ := t.Get(name)
	s, _ := v.Str()
	return string(s)
}

func (c *consistentHash) bind(b *Binding) {
	c.bindings = append(c.bindings, b)
	c.share(b)
}

func (c *consistentHash) share(b *Binding) {
	if c.has[b.Destination] {
		return
	}
	c.has[b.Destination] = true
	weight, _ := strconv.ParseInt(b.Key, 10, 64)
	if n := len(c.shares); n > 0 {
		weight += c.shares[n-1].end
	}
	c.shares = append(c.shares, share{b.Destination, weight})
}

func (c *consistentHash) unbind(b *Binding) {
	i := slices.Index(c.bindings, b)
	c.bindings = slices.Delete(c.bindings, i, i+1)
	c.shares = c.shares[:0]
	clear(c.has)
	for _, b := range c.bindings {
		c.share(b)
	}
}

func (c *consistentHash) route(m *Message, out *Matches) bool {
	if len(c.shares) == 0 {
		return false
	}
	if c.header != "" || c.property != "" {
		out.unstable = true
	}
	bucket := jump(c.hash(m), c.shares[len(c.shares)-1].end)
	i := sort.Search(len(c.shares), func(i int) bool { return c.shares[i].end > bucket })
	out.add(c.shares[i].to)
	return true
}

func (c *consistentHash) hash(m *Message) uint64 {
	by := m.Key
	var word [20]byte
	switch {
	case c.header != "":
		v, _ := m.Headers.Get(c.header)
		by = v.Raw
	case c.property == "correlation_id":
		by, _ = m.Properties.CorrelationID()
	case c.property == "message_id":
		by, _ = m.Properties.MessageID()
	case c.property == "timestamp":
		by = nil
		if n, ok := m.Properties.Timestamp(); ok {
			by = strconv.AppendUint(word[:0], n, 10)
		}
	}
	return newHash64.add(by).sum()
}

// modulusHash is the rule of x-modulus-hash: one of the destinations, sorted by name.
type modulusHash struct {
	t      *Topology
	sorted []Destination
	more   map[Destination]int // bindings beyond the first; looked up only
}

func (h *modulusHash) find(d Destination) (int, bool) {
	return slices.BinarySearchFunc(h.sorted, d, func(a, b Destination) int {
		if x, y := a.Exchange != nil, b.Exchange != nil; x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(h.t.Name(a), h.t.Name(b))
	})
}

func (h *modulusHash) bind(b *Binding) {
	i, known := h.find(b.Destination)
	if !known {
		h.sorted = slices.Insert(h.sorted, i, b.Destination)
		return
	}
	if h.more == nil {
		h.more = make(map[Destination]int)
	}
	h.more[b.Destination]++
}

func (h *modulusHash) unbind(b *Binding) {
	if h.more[b.Destination] > 0 {
		h.more[b.Destination]--
		return
	}
	delete(h.more, b.Destination)
	i, _ := h.find(b.Destination)
	h.sorted = slices.Delete(h.sorted, i, i+1)
}

func (h *modulusHash) route(m *Message, out *Matches) bool {
	if len(h.sorted) == 0 {
		return false
	}
	hash := newHash64.add(m.Key)
	for _, key := range m.More {
		hash = hash.add([]byte{0}).add(key)
	}
	out.add(h.sorted[hash.sum()%uint64(len(h.sorted))])
	return true
}

// random is the rule of x-random: one binding by chance.
type random struct{ bindings members[*Binding] }

func (r *random) bind(b *Binding)   { r.bindings.add(b) }
func (r *random) unbind(b *Binding) { r.bindings.remove(b) }

func (r *random) route(m *Message, out *Matches) bool {
	n := uint64(len(r.bindings.list))
	if n == 0 {
		return false
	}
	out.unstable = true
	out.add(r.bindings.list[hash64(m.Seed).sum()%n].Destination)
	return true
}

// localRandom is the rule of x-local-random: one queue of this node by chance.
type localRandom struct {
	t     *Topology
	local set
}

func (r *localRandom) bind(b *Binding) {
	if r.t.byNumber[b.Destination.Queue].local {
		r.local.add(b.Destination)
	}
}

func (r *localRandom) unbind(b *Binding) {
	if r.t.byNumber[b.Destination.Queue].local {
		r.local.remove(b.Destination)
	}
}

func (r *localRandom) route(m *Message, out *Matches) bool {
	list := r.local.queues.list
	if len(list) == 0 {
		return false
	}
	out.unstable = true
	out.addQueue(list[hash64(m.Seed).sum()%uint64(len(list))])
	return true
}
