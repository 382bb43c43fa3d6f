package exchange

import "strings"

// topic is the rule of topic exchanges: a tree of the words of all binding keys. Words that occur in binding keys are
// numbered once, so that a routing key is cut into words and looked up word by word a single time, whatever the number
// of ways through the tree; a word that no binding key has can only be met by a wildcard.
//
//	a.b.*   root ─a→ ○ ─b→ ○ ─*→ ●
//	a.#.b            └─#→ ○ ─b→ ●
//
// # leads to a node from which every later word may go on. A second # on the way is entered only once per key: the first
// time is with the most words left, and so finds all that later times would.
type topic struct {
	numbers map[string]word // of the words of binding keys; looked up only
	uses    []int           // by word: how many edges it has
	unused  []word
	nodes   []node // nodes[0] is the root; links are indexes
	free    []uint32
	edges   edges // children by word
}

// word is the number of a word; 0 is one that no binding key has.
type word uint32

type node struct {
	star, hash uint32 // children by wildcard; 0 is none
	words      uint32 // number of children by word
	leaf       *set   // where binding keys that end here lead; nil if none does
	second     bool   // behind a second #
}

func newTopic() *topic {
	return &topic{numbers: make(map[string]word), uses: make([]int, 1), nodes: make([]node, 1)}
}

// step goes to the child for a word of a binding key, and makes it if need be.
func (t *topic) step(from uint32, w string, hashes int) uint32 {
	switch w {
	case "*":
		if t.nodes[from].star == 0 {
			n := t.newNode()
			t.nodes[from].star = n
		}
		return t.nodes[from].star
	case "#":
		if t.nodes[from].hash == 0 {
			n := t.newNode()
			t.nodes[n].second = hashes > 0
			t.nodes[from].hash = n
		}
		return t.nodes[from].hash
	}
	number := t.numbers[w]
	if number == 0 {
		if last := len(t.unused) - 1; last >= 0 {
			number, t.unused = t.unused[last], t.unused[:last]
		} else {
			number = word(len(t.uses))
			t.uses = append(t.uses, 0)
		}
		t.numbers[strings.Clone(w)] = number
	}
	n := t.edges.find(from, number)
	if n == 0 {
		n = t.newNode()
		t.edges.add(from, number, n)
		t.nodes[from].words++
		t.uses[number]++
	}
	return n
}

func (t *topic) newNode() uint32 {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		return i
	}
	t.nodes = append(t.nodes, node{})
	return uint32(len(t.nodes) - 1)
}

func (t *topic) bind(b *Binding) {
	at, hashes := uint32(0), 0
	if b.Key != "" {
		for w := range strings.SplitSeq(b.Key, ".") {
			at = t.step(at, w, hashes)
			if w == "#" {
				hashes++
			}
		}
	}
	if t.nodes[at].leaf == nil {
		t.nodes[at].leaf = new(set)
	}
	t.nodes[at].leaf.add(b.Destination)
}

func (t *topic) unbind(b *Binding) { t.remove(0, b.Key, b.Key == "", b.Destination) }

// remove takes a destination out of the leaf that rest leads to, and cuts what has become useless on the way back. It
// reports whether the node at is of no more use.
func (t *topic) remove(at uint32, rest string, end bool, d Destination) bool {
	n := &t.nodes[at]
	if end {
		if n.leaf.remove(d); n.leaf.empty() {
			n.leaf = nil
		}
		return t.useless(at)
	}
	w, rest, more := strings.Cut(rest, ".")
	switch w {
	case "*":
		if t.remove(n.star, rest, !more, d) {
			t.release(n.star)
			n.star = 0
		}
	case "#":
		if t.remove(n.hash, rest, !more, d) {
			t.release(n.hash)
			n.hash = 0
		}
	default:
		number := t.numbers[w]
		child := t.edges.find(at, number)
		if t.remove(child, rest, !more, d) {
			t.release(child)
			t.edges.remove(at, number)
			n.words--
			if t.uses[number]--; t.uses[number] == 0 {
				delete(t.numbers, w)
				t.unused = append(t.unused, number)
			}
		}
	}
	return t.useless(at)
}

func (t *topic) useless(at uint32) bool {
	n := &t.nodes[at]
	return n.leaf == nil && n.star == 0 && n.hash == 0 && n.words == 0
}

func (t *topic) release(n uint32) {
	t.nodes[n] = node{}
	t.free = append(t.free, n)
}

func (t *topic) route(m *Message, out *Matches) bool {
	found := t.match(m.Key, out)
	for _, key := range m.More {
		if t.match(key, out) {
			found = true
		}
	}
	return found
}

// match adds the destinations of one routing key.
func (t *topic) match(key []byte, out *Matches) bool {
	words := out.words[:0]
	if len(key) > 0 {
		start := 0
		for i, c := range key {
			if c == '.' {
				words = append(words, t.numbers[string(key[start:i])])
				start = i + 1
			}
		}
		words = append(words, t.numbers[string(key[start:])])
	}
	out.words = words
	out.nextTopic()
	return t.walk(0, words, out)
}

// walk adds what the words lead to from a node.
func (t *topic) walk(at uint32, words []word, out *Matches) bool {
	n := &t.nodes[at]
	found := false
	if len(words) == 0 {
		if n.leaf != nil {
			out.addAll(n.leaf)
			found = true
		}
	} else if t.follow(at, n, words, out) {
		found = true
	}
	if n.hash != 0 && t.skip(n.hash, words, out) {
		found = true
	}
	return found
}

// follow takes the first word.
func (t *topic) follow(at uint32, n *node, words []word, out *Matches) bool {
	found := false
	if n.words > 0 && words[0] != 0 {
		if child := t.edges.find(at, words[0]); child != 0 {
			found = t.walk(child, words[1:], out)
		}
	}
	if n.star != 0 && t.walk(n.star, words[1:], out) {
		found = true
	}
	return found
}

// skip goes on from a node behind #, which may have eaten any number of the words.
func (t *topic) skip(at uint32, words []word, out *Matches) bool {
	n := &t.nodes[at]
	if n.second && !out.hashes.mark(at, out.topics) {
		return false
	}
	found := false
	if n.leaf != nil {
		out.addAll(n.leaf)
		found = true
	}
	if n.words > 0 || n.star != 0 {
		for rest := words; len(rest) > 0; rest = rest[1:] {
			if t.follow(at, n, rest, out) {
				found = true
			}
		}
	}
	if n.hash != 0 && t.skip(n.hash, words, out) {
		found = true
	}
	return found
}
