package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/warrenmq/warren/octet"
)

// MaxNames is how many names have offsets in a stream, MaxName how long one may be in octets.
const (
	MaxNames = 10_000
	MaxName  = 255
)

// What Offsets refuse.
var (
	ErrName    = errors.New("stream: a consumer's name has 1 to 255 octets")
	ErrNames   = errors.New("stream: too many names of consumers")
	ErrFenced  = errors.New("stream: a newer consumer of that name took over")
	ErrOffsets = errors.New("stream: malformed offsets")
)

// A Commit is the committed offset of a name.
type Commit struct {
	Next       uint64 // the offset to read next: everything below was acknowledged
	Generation uint64 // of the consumer that attached last
	At         int64  // when Next was set, milliseconds since 1970
	Known      bool   // Next was set
}

// Offsets are the committed offsets of a stream's consumers, by name. It is a value without I/O or clock, part of a replicated
// state; the zero value is empty.
type Offsets struct {
	names       map[string]Commit
	generations uint64 // given so far; none is given twice, not even after Delete
}

// Len is how many names there are.
func (o *Offsets) Len() int { return len(o.names) }

// Get is the commit of a name.
func (o *Offsets) Get(name string) (Commit, bool) {
	c, ok := o.names[name]
	return c, ok
}

// Names are all names, sorted.
func (o *Offsets) Names() []string {
	names := make([]string, 0, len(o.names))
	for name := range o.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (o *Offsets) put(name string, c Commit) {
	if o.names == nil {
		o.names = map[string]Commit{}
	}
	o.names[name] = c
}

// Attach begins a generation: a consumer of that name came, and earlier ones are fenced. It returns what was committed so far.
func (o *Offsets) Attach(name string) (Commit, error) {
	c, ok := o.names[name]
	switch {
	case len(name) < 1 || len(name) > MaxName:
		return c, ErrName
	case !ok && len(o.names) >= MaxNames:
		return c, ErrNames
	}
	o.generations++
	c.Generation = o.generations
	o.put(name, c)
	return c, nil
}

// Commit raises a name's offset. With ErrFenced, a newer consumer attached, or the name was deleted; an offset that is not above
// the one there changes nothing.
func (o *Offsets) Commit(name string, generation, next uint64, at int64) error {
	c, ok := o.names[name]
	if !ok || c.Generation != generation {
		return ErrFenced
	}
	if !c.Known || next > c.Next {
		c.Next, c.At, c.Known = next, at, true
		o.put(name, c)
	}
	return nil
}

// Set moves a name's offset anywhere, which begins a generation. It is how an operator rewinds, and a consumer that asks for a
// place itself.
func (o *Offsets) Set(name string, next uint64, at int64) (Commit, error) {
	c, err := o.Attach(name)
	if err != nil {
		return c, err
	}
	c.Next, c.At, c.Known = next, at, true
	o.put(name, c)
	return c, nil
}

// Delete forgets a name.
func (o *Offsets) Delete(name string) bool {
	_, ok := o.names[name]
	delete(o.names, name)
	return ok
}

// Reset says what to do when a committed offset was removed by retention (x-stream-offset-reset).
type Reset uint8

// The values of x-stream-offset-reset.
const (
	ResetError Reset = iota // refuse
	ResetFirst              // begin at the first offset
	ResetNext               // begin at what comes from now on
)

// ParseReset reads the consumer argument x-stream-offset-reset.
func ParseReset(s string) (Reset, bool) {
	switch s {
	case "error":
		return ResetError, true
	case "first":
		return ResetFirst, true
	case "next":
		return ResetNext, true
	}
	return 0, false
}

// Start is where a named consumer that wants Stored begins, in a stream of offsets [first, next): *RemovedError if its offset
// was removed and reset does not say what to do. lost are the records that it will never see. A name without an offset begins
// at first if reset says so, and at next otherwise.
func (c Commit) Start(first, next uint64, reset Reset) (offset, lost uint64, err error) {
	switch {
	case !c.Known && reset == ResetFirst:
		return first, 0, nil
	case !c.Known:
		return next, 0, nil
	case c.Next >= first:
		return c.Next, 0, nil
	case reset == ResetFirst:
		return first, first - c.Next, nil
	case reset == ResetNext:
		return next, next - c.Next, nil
	}
	return 0, 0, &RemovedError{c.Next, first}
}

const offsetsFormat = 1

// Append appends the encoding, which is the same for equal Offsets:
//
//	format u8 = 1 | generations uvarint | names uvarint | for each, sorted: length u8, name, known u8, generation uvarint, next uvarint, at varint
func (o *Offsets) Append(dst []byte) []byte {
	dst = append(dst, offsetsFormat)
	dst = binary.AppendUvarint(dst, o.generations)
	dst = binary.AppendUvarint(dst, uint64(len(o.names)))
	for _, name := range o.Names() {
		c := o.names[name]
		dst = append(dst, byte(len(name)))
		dst = append(dst, name...)
		known := byte(0)
		if c.Known {
			known = 1
		}
		dst = append(dst, known)
		dst = binary.AppendUvarint(dst, c.Generation)
		dst = binary.AppendUvarint(dst, c.Next)
		dst = binary.AppendVarint(dst, c.At)
	}
	return dst
}

// Decode replaces o by what was encoded. With ErrOffsets, or an error of the format, o is unchanged.
func (o *Offsets) Decode(b []byte) error {
	if len(b) == 0 {
		return ErrOffsets
	}
	if b[0] != offsetsFormat {
		return fmt.Errorf("%w: format %d", ErrOffsets, b[0])
	}
	d := octet.Reader{B: b[1:]}
	generations, n := d.Uvarint(), d.Uvarint()
	if n > MaxNames {
		return ErrOffsets
	}
	names := make(map[string]Commit, n)
	last := ""
	for range n {
		name := string(d.Take(uint64(d.Octet())))
		known := d.Octet()
		c := Commit{Known: known == 1, Generation: d.Uvarint(), Next: d.Uvarint(), At: d.Varint()}
		if d.Bad || name <= last || known > 1 || c.Generation > generations {
			return ErrOffsets
		}
		names[name], last = c, name
	}
	if d.Bad || len(d.B) > 0 {
		return ErrOffsets
	}
	o.names, o.generations = names, generations
	return nil
}
