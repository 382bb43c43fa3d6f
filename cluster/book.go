package cluster

import (
	"cmp"
	"fmt"
	"slices"
)

// Versions is a range of versions of the protocol between nodes, ends included.
type Versions struct{ Least, Most uint16 }

func (v Versions) String() string {
	if v.Least == v.Most {
		return fmt.Sprintf("version %d", v.Most)
	}
	return fmt.Sprintf("versions %d to %d", v.Least, v.Most)
}

// common is the greatest version in both ranges, if there is one.
func (v Versions) common(w Versions) (uint16, bool) {
	most := min(v.Most, w.Most)
	return most, most >= max(v.Least, w.Least)
}

// Spoken is what this program speaks.
var Spoken = Versions{1, 1}

// A Peer is a member of the cluster as others see it.
type Peer struct {
	ID       NodeID
	Name     string
	Number   uint64   // given to it once, and to no other member ever; 0 if none is known
	Address  string   // host:port, where the node listens for others
	Versions Versions // what it spoke when it was last written down; the zero value if that is not known
	Boot     uint64   // the highest boot number known: a node that comes with a lower one is not what it was

	// Start is the number of its latest start that the cluster has confirmed, and Mark the mark of that; 0: none is known. See Identity.
	Start, Mark uint64
}

// outdated reports whether a node that knows of so many confirmed starts, and is in the one of a mark, is an older copy of the member.
func (p *Peer) outdated(starts, mark uint64) bool {
	return p.Start > starts && (p.Start != starts+1 || p.Mark != mark)
}

// Book is an address book: the members of a cluster, by id. It is a value that others fill; nobody changes the one that he
// gave away. The zero value has no members.
type Book []Peer

// Check returns an error unless the members are in order of their ids, which are neither 0 nor there twice, have numbers of
// their own, and names that can be sent.
func (b Book) Check() error {
	for i, p := range b {
		if o, ok := b[:i].Member(p.Number); ok {
			return fmt.Errorf("cluster: nodes %v and %v have the number %d", o.ID, p.ID, p.Number)
		}
		switch {
		case p.ID == 0:
			return fmt.Errorf("cluster: member %q has no id", p.Name)
		case i > 0 && b[i-1].ID == p.ID:
			return fmt.Errorf("cluster: node %v is in the address book twice", p.ID)
		case i > 0 && b[i-1].ID > p.ID:
			return fmt.Errorf("cluster: the address book is not in order at node %v", p.ID)
		case len(p.Name) > MaxName:
			return fmt.Errorf("cluster: the name of node %v has more than %d octets", p.ID, MaxName)
		}
	}
	return nil
}

// Find returns the member of an id.
func (b Book) Find(id NodeID) (Peer, bool) {
	i, found := slices.BinarySearchFunc(b, id, func(p Peer, id NodeID) int { return cmp.Compare(p.ID, id) })
	if !found {
		return Peer{}, false
	}
	return b[i], true
}

// Member returns the member of a number. None has 0.
func (b Book) Member(number uint64) (Peer, bool) {
	i := slices.IndexFunc(b, func(p Peer) bool { return p.Number == number })
	if number == 0 || i < 0 {
		return Peer{}, false
	}
	return b[i], true
}

// With returns a book that has p, instead of the member of the same id if there was one.
func (b Book) With(p Peer) Book {
	i, found := slices.BinarySearchFunc(b, p.ID, func(p Peer, id NodeID) int { return cmp.Compare(p.ID, id) })
	n := slices.Clone(b)
	if found {
		n[i] = p
		return n
	}
	return slices.Insert(n, i, p)
}

// Without returns a book that lacks the member of an id.
func (b Book) Without(id NodeID) Book {
	return slices.DeleteFunc(slices.Clone(b), func(p Peer) bool { return p.ID == id })
}
