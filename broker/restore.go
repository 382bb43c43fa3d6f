package broker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/storage"
)

// All metadata in octets, for a node that has none of it or lags behind the log:
//
//	version u8 | number of keys uvarint | each: key, value (length uvarint, octets) | CRC-32C of all that u32, little-endian
//
// Keys are those of record.go, ascending.
const captureVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errCapture = errors.New("the metadata of another node arrived damaged")

// Capture returns all hard state as of the entry that was applied last, in memory: about as much as the store holds.
func (b *Broker) Capture() ([]byte, error) {
	if err := b.turn(); err != nil {
		return nil, err
	}
	t := b.committer
	t.mu.Lock()
	defer t.mu.Unlock()
	n := uint64(0)
	var body []byte
	err := t.db.Iterate([]byte(metadataPrefix), func(key, value []byte) error {
		n++
		body = append(binary.AppendUvarint(body, uint64(len(key))), key...)
		body = append(binary.AppendUvarint(body, uint64(len(value))), value...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := binary.AppendUvarint([]byte{captureVersion}, n)
	all = append(all, body...)
	return binary.LittleEndian.AppendUint32(all, crc32.Checksum(all, castagnoli)), nil
}

// thing is one value of the store.
type thing struct {
	value []byte
	c     Command // nil: a number
	order uint64  // of a binding
}

// things are what a store holds, by key.
type things map[string]thing

func (s things) add(key, value []byte) error {
	x := thing{value: bytes.Clone(value)}
	if len(key) == len(formatKey) {
		s[string(key)] = x
		return nil
	}
	octets := x.value
	if key[len(metadataPrefix)] == 'b' {
		if len(octets) < 8 {
			return fmt.Errorf("%q: too short", key)
		}
		x.order, octets = binary.BigEndian.Uint64(octets), octets[8:]
	}
	var err error
	if x.c, err = DecodeCommand(octets); err != nil {
		return fmt.Errorf("%q: %w", key, err)
	}
	if v, ok := x.c.(PutVHost); ok {
		v.Default = false // its exchanges have keys of their own
		x.c = v
	}
	s[string(key)] = x
	return nil
}

// number is the value of a key that is a number, 0 if there is none.
func (s things) number(key string) uint64 {
	n, _ := binary.Uvarint(s[key].value)
	return n
}

// readCapture reads what Capture has written.
func readCapture(r io.Reader) (things, error) {
	all, err := io.ReadAll(bufio.NewReader(r))
	if err != nil {
		return nil, err
	}
	end := len(all) - 4
	if end < 1 || crc32.Checksum(all[:end], castagnoli) != binary.LittleEndian.Uint32(all[end:]) {
		return nil, errCapture
	}
	if all[0] != captureVersion {
		return nil, fmt.Errorf("metadata of format %d, and %d is the one known here: written by a newer version", all[0], captureVersion)
	}
	c := coder{b: all[1:end], decoding: true}
	var n uint64
	c.num(&n)
	s := things{}
	for ; n > 0 && c.err == nil; n-- {
		key := c.take()
		value := c.take()
		if c.err == nil && (len(key) < len(formatKey) || !bytes.HasPrefix(key, []byte(metadataPrefix))) {
			return nil, errCapture
		}
		if c.err == nil {
			if err := s.add(key, value); err != nil {
				return nil, err
			}
		}
	}
	if c.err != nil || len(c.b) > 0 {
		return nil, errCapture
	}
	if f := s.number(formatKey); f != replicatedFormat {
		return nil, fmt.Errorf("metadata of format %d, and %d is the one known here: written by another version", f, replicatedFormat)
	}
	return s, nil
}

// RestoreStore replaces the metadata in a store that no Broker is open on by what Capture has written, in one change that
// is durable.
func RestoreStore(db *storage.DB, r io.Reader) error {
	s, err := readCapture(r)
	if err != nil {
		return err
	}
	var batch storage.Batch
	batch.DeletePrefix([]byte(metadataPrefix))
	for key, x := range s {
		batch.Set([]byte(key), x.value)
	}
	return db.Commit(&batch, true)
}

// Restore makes the hard state of a broker that runs what Capture has written. What is equal is left alone, messages in its
// queues included; the rest is changed as commands would, with what follows from it. Nothing is applied at the same time. It
// is durable when Restore returns. After an error the broker cannot be used any more.
func (b *Broker) Restore(r io.Reader) error {
	want, err := readCapture(r)
	if err != nil {
		return err
	}
	if err := b.turn(); err != nil {
		return err
	}
	have, bind, err := b.leave(want)
	if err != nil {
		return err
	}
	if err := b.enter(have, want, bind); err != nil {
		return err
	}
	for _, changed := range []func(){b.MembersChanged, b.SlotsChanged} {
		if changed != nil {
			changed()
		}
	}
	return nil
}

// applied is a command and what it came to.
type applied struct {
	c Command
	r result
}

// carry does what follows from commands, once no lock is held.
func (b *Broker) carry(done []applied) {
	for i := range done {
		b.carryOut(done[i].c, &done[i].r)
	}
}

// leave removes from memory what is not wanted, and returns what the store has and which bindings are to be made. It is over, and queues are
// forgotten, before anything is made: on a node that comes from elsewhere new queues may have the ids of old ones.
func (b *Broker) leave(want things) (have things, bind []thing, err error) {
	t := b.committer
	var done []applied
	defer func() { b.carry(done) }()
	t.mu.Lock()
	defer t.mu.Unlock()
	have = things{}
	if err := t.db.Iterate([]byte(metadataPrefix), have.add); err != nil {
		return nil, nil, err
	}
	apply := func(c Command) { done = append(done, applied{c, b.apply(c)}) }
	unbind, bind := rebound(have, want)
	for _, x := range unbind {
		apply(inverse(x.c))
	}
	for _, letter := range []byte("qxoagtpluv") { // each before what it needs
		for _, key := range have.of(letter) {
			if x, stays := want[key]; !stays || (letter == 'q' || letter == 'x') && !bytes.Equal(x.value, have[key].value) {
				apply(inverse(have[key].c)) // in a virtual host that goes as well it may find nothing
			}
		}
	}
	return have, bind, nil
}

// enter makes what is wanted and not there, and writes it all down.
func (b *Broker) enter(have, want things, bind []thing) (err error) {
	t := b.committer
	var done []applied
	defer func() { b.carry(done) }()
	t.mu.Lock()
	defer t.mu.Unlock()
	apply := func(c Command) *amqp.Error {
		r := b.apply(c)
		done = append(done, applied{c, r})
		return r.refused
	}
	// Queues ask for members and slots when they are made.
	members := map[uint64]Member{}
	for _, key := range want.of('h') {
		m := want[key].c.(PutMember).Member
		members[m.Number] = m
	}
	replicas := map[replicaOf]Replica{}
	for _, key := range want.of('w') {
		x := want[key].c.(PutReplica).Replica
		replicas[x.of()] = x
	}
	b.mu.Lock()
	b.members, b.replicas = members, replicas
	b.mu.Unlock()
	if err := b.readCounters(t, want[countersKey].value); err != nil {
		return err
	}
	for _, letter := range []byte("vulptgaoxq") {
		for _, key := range want.of(letter) {
			if x, ok := have[key]; ok && bytes.Equal(x.value, want[key].value) {
				continue
			}
			if err := mayBe(want[key].c); err != nil {
				return err
			}
			if refused := apply(want[key].c); refused != nil {
				return fmt.Errorf("%q: %w", key, refused)
			}
		}
	}
	for _, x := range bind {
		if refused := apply(x.c); refused != nil {
			return fmt.Errorf("binding %+v: %w", x.c, refused)
		}
	}
	t.asked = want.number(lastQueueKey)
	b.lastQueue.Store(t.asked)
	t.applied, t.numbering = want.number(appliedKey), want[numberingKey].value
	return t.replace(have, want)
}

// replace writes what differs. t.mu is held.
func (t *committer) replace(have, want things) error {
	var batch storage.Batch
	for key := range have {
		if _, ok := want[key]; !ok {
			batch.Delete([]byte(key))
		}
	}
	for key, x := range want {
		if h, ok := have[key]; !ok || !bytes.Equal(h.value, x.value) {
			batch.Set([]byte(key), x.value)
		}
	}
	return t.db.Commit(&batch, true)
}

// of are the keys of one kind, ascending.
func (s things) of(letter byte) []string {
	var list []string
	for key, x := range s {
		if x.c != nil && key[len(metadataPrefix)] == letter {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}

// mayBe is mayCome for what another node's store holds.
func mayBe(c Command) error {
	if q, ok := c.(PutQueue); ok {
		q.ID = 0
		c = q
	}
	return mayCome(c)
}

// end is an exchange or queue that bindings lead from or to.
type end struct {
	vhost, name string
	exchange    bool
}

// rebound are the bindings to be removed, and those to be made then, in order: those that only one side has, those whose
// ends are replaced, and those that would come before a new one though they are younger.
func rebound(have, want things) (unbind, bind []thing) {
	replaced := map[end]bool{}
	for key, x := range have {
		if bytes.Equal(want[key].value, x.value) {
			continue
		}
		switch c := x.c.(type) {
		case PutQueue:
			replaced[end{c.VHost, c.Queue.Name, false}] = true
		case PutExchange:
			replaced[end{c.VHost, c.Exchange.Name, true}] = true
		}
	}
	stays := map[string]bool{}
	first := map[string]uint64{} // order of the first new one, by virtual host
	for key, x := range want {
		c, ok := x.c.(Bind)
		if !ok {
			continue
		}
		h, had := have[key]
		stays[key] = had && h.order == x.order && bytes.Equal(h.value, x.value) &&
			!replaced[end{c.VHost, c.Binding.Source, true}] && !replaced[end{c.VHost, c.Binding.Destination, c.Binding.ToExchange}]
		if least, any := first[c.VHost]; !stays[key] && (!any || x.order < least) {
			first[c.VHost] = x.order
		}
	}
	for key, x := range want {
		if c, ok := x.c.(Bind); ok {
			if least, any := first[c.VHost]; any && x.order > least {
				stays[key] = false
			}
			if !stays[key] {
				bind = append(bind, x)
			}
		}
	}
	for key, x := range have {
		if _, ok := x.c.(Bind); ok && !stays[key] {
			unbind = append(unbind, x)
		}
	}
	slices.SortFunc(bind, func(a, b thing) int {
		if a.order < b.order {
			return -1
		}
		return 1
	})
	return unbind, bind
}

// inverse is the command that removes what c makes.
func inverse(c Command) Command {
	switch c := c.(type) {
	case PutVHost:
		return DeleteVHost{c.Name}
	case PutUser:
		return DeleteUser{c.User.Name}
	case SetUserLimits:
		return SetUserLimits{c.User, []byte("{}")}
	case SetPermissions:
		return ClearPermissions{c.VHost, c.User}
	case SetTopicPermissions:
		return ClearTopicPermissions{VHost: c.VHost, User: c.User, Exchange: c.Exchange}
	case PutExchange:
		return DeleteExchange{VHost: c.VHost, Name: c.Exchange.Name}
	case PutQueue:
		return DeleteQueue{VHost: c.VHost, Name: c.Queue.Name, ID: c.ID}
	case Bind:
		return Unbind(c)
	case PutPolicy:
		return DeletePolicy{c.VHost, c.Operator, c.Policy.Name}
	case SetParameter:
		return ClearParameter{c.VHost, c.Component, c.Name}
	case SetGlobalParameter:
		return ClearGlobalParameter{c.Name}
	}
	panic(fmt.Sprintf("broker: %T makes nothing", c))
}
