package broker

import (
	"strings"

	"github.com/warrenmq/warren/queue"
)

// SoftItem is a piece of the soft state of a node: an exclusive queue, or a binding of one. Command is nil for one that is gone.
type SoftItem struct {
	Key     string
	Command []byte
}

// soft is what a broker knows of soft state: which items its own is made of, and those of other members. Guarded by
// committer.mu.
type soft struct {
	own    map[string]map[string]struct{} // by the key of a queue, the keys of its bindings
	others map[uint64]map[string]*foreign // by member, by key
	unmade int                            // of others
}

// foreign is an item of another member. It is not made while what it needs is missing: an exchange of which the log has not
// told this node yet.
type foreign struct {
	command Command
	made    bool
}

// The ids of the queues and connections of another member have its number in these bits: they are unlike any of this node.
const (
	memberBits   = 16
	idMember     = 40 // of a soft queue's id
	ownerMember  = 48 // of a connection's
	memberMask   = 1<<memberBits - 1
	softIDMember = QueueID(memberMask) << idMember
)

// SoftID is the number that the owner's node has given a soft queue of this node or another; ok is false for other queues.
func (id QueueID) SoftID() (number uint64, ok bool) {
	return uint64(id &^ softIDMember), id&softQueue != 0
}

func softKey(vhost, name string) string { return vhost + "\x00" + name }

func softBindingKey(vhost string, b *Binding) string {
	return softKey(vhost, b.Destination) + "\x00" + string(bindingKey("", b))
}

// tellSoft tells the others what a soft command has changed. t.mu is held.
func (t *committer) tellSoft(b *Broker, c Command, r *result) {
	if b.SoftChanged == nil || r.refused != nil {
		return
	}
	s := &t.soft
	switch c := c.(type) {
	case PutQueue:
		if r.existed {
			return
		}
		if s.own == nil {
			s.own = map[string]map[string]struct{}{}
		}
		c.ID = r.queue.ID
		key := softKey(c.VHost, c.Queue.Name)
		s.own[key] = map[string]struct{}{}
		b.SoftChanged([]SoftItem{{key, AppendCommand(nil, c)}})
	case DeleteQueue:
		if r.existed {
			t.dropSoft(b, c.VHost, c.Name)
		}
	case Bind:
		if bindings := s.own[softKey(c.VHost, c.Binding.Destination)]; bindings != nil && !r.existed {
			key := softBindingKey(c.VHost, &c.Binding)
			bindings[key] = struct{}{}
			b.SoftChanged([]SoftItem{{key, AppendCommand(nil, c)}})
		}
	case Unbind:
		key := softBindingKey(c.VHost, &c.Binding)
		if bindings := s.own[softKey(c.VHost, c.Binding.Destination)]; bindings != nil && r.existed {
			delete(bindings, key)
			b.SoftChanged([]SoftItem{{Key: key}})
		}
	}
}

// dropSoft tells the others that a soft queue is gone, with its bindings. t.mu is held.
func (t *committer) dropSoft(b *Broker, vhost, name string) {
	key := softKey(vhost, name)
	bindings, ok := t.soft.own[key]
	if !ok || b.SoftChanged == nil {
		return
	}
	delete(t.soft.own, key)
	items := []SoftItem{{Key: key}}
	for k := range bindings {
		items = append(items, SoftItem{Key: k})
	}
	b.SoftChanged(items)
}

// ApplySoft applies what another member says of its soft state. Calls for one member come one at a time.
func (b *Broker) ApplySoft(member uint64, items []SoftItem) error {
	t := b.committer
	var over []*Queue
	t.mu.Lock()
	s := &t.soft
	if s.others == nil {
		s.others = map[uint64]map[string]*foreign{}
	}
	known := s.others[member]
	if known == nil {
		known = map[string]*foreign{}
		s.others[member] = known
	}
	var failed error
	for _, x := range items {
		if old := known[x.Key]; old != nil {
			over = append(over, b.unmake(s, old)...)
			delete(known, x.Key)
		}
		if x.Command == nil {
			continue
		}
		c, err := DecodeCommand(x.Command)
		if err != nil || !isSoft(c) {
			failed = err
			continue
		}
		if q, ok := c.(PutQueue); ok {
			q.Home = member
			q.Owner |= member << ownerMember
			q.ID |= QueueID(member) << idMember
			c = q
		}
		one := &foreign{command: c}
		known[x.Key] = one
		s.unmade++
		b.makeForeign(s, one)
		if _, ok := c.(PutQueue); ok && one.made { // its bindings may have come before it
			b.makeAll(s)
		}
	}
	if len(known) == 0 {
		delete(s.others, member)
	}
	t.mu.Unlock()
	for _, q := range over {
		q.ended()
	}
	return failed
}

// makeForeign tries to make an item. t.mu is held.
func (b *Broker) makeForeign(s *soft, f *foreign) {
	if f.made {
		return
	}
	r := b.apply(f.command)
	if _, queue := f.command.(PutQueue); r.refused == nil && (!queue || !r.existed) {
		f.made = true
		s.unmade--
	}
}

// makeAll tries those that could not be made before. t.mu is held.
func (b *Broker) makeAll(s *soft) {
	if s.unmade == 0 {
		return
	}
	for _, known := range s.others {
		for _, f := range known {
			b.makeForeign(s, f)
		}
	}
}

// unmake takes an item back, and returns the queue that has ended with it. t.mu is held.
func (b *Broker) unmake(s *soft, f *foreign) (over []*Queue) {
	if !f.made {
		s.unmade--
		return nil
	}
	switch c := f.command.(type) {
	case PutQueue:
		r := b.apply(DeleteQueue{VHost: c.VHost, Name: c.Queue.Name, ID: c.ID, Soft: true})
		if r.existed {
			over = append(over, r.queue)
		}
		for _, f := range b.bindingsOf(s, c) {
			f.made = false
			s.unmade++
		}
	case Bind:
		b.apply(Unbind{VHost: c.VHost, Binding: c.Binding, Soft: true})
	}
	return over
}

// bindingsOf are the bindings made of a queue of another member. t.mu is held.
func (b *Broker) bindingsOf(s *soft, q PutQueue) (list []*foreign) {
	prefix := softKey(q.VHost, q.Queue.Name) + "\x00"
	for key, f := range s.others[q.Home] {
		if f.made && strings.HasPrefix(key, prefix) {
			list = append(list, f)
		}
	}
	return list
}

// softAfter has soft state follow a command from the log: soft queues may be gone with it, and what other members have told
// may be made now that could not before. t.mu is held.
func (t *committer) softAfter(b *Broker, c Command, r *result) {
	if r.displaced != nil {
		t.dropSoft(b, r.displaced.VHost.Name, r.displaced.Name)
	}
	for _, q := range r.queues {
		t.dropSoft(b, q.VHost.Name, q.Name)
	}
	switch c.(type) {
	case PutVHost, PutExchange, DeleteQueue:
		b.makeAll(&t.soft)
	}
}

// Home is a queue of this node as clients of other nodes reach it: what they do counts as use of it, and deleting it takes
// it out of the topology.
type Home struct{ *Queue }

// QueueByID is a queue of this node, for clients of others; nil if there is none, or it lives elsewhere.
func (b *Broker) QueueByID(id QueueID) queue.Queue {
	v, ok := b.homes.Load(id)
	if !ok {
		return nil
	}
	return Home{v.(*Queue)}
}

// Attach implements queue.Queue.
func (h Home) Attach(spec queue.ConsumerSpec, out queue.Outlet, w *queue.Wake, done func(queue.ConsumerID, error)) {
	if spec.Getter {
		h.Queue.Queue.Attach(spec, out, w, done)
		return
	}
	h.attach(Consumer{Spec: spec, elsewhere: true}, out, w, done)
}

// Configure implements queue.Queue: the limits are metadata, of which this node knows itself.
func (h Home) Configure(queue.Config, *queue.Wake) {}

// Forget implements queue.Queue: see Configure.
func (h Home) Forget(*queue.Wake) {}

// Delete implements queue.Queue.
func (h Home) Delete(ifUnused, ifEmpty bool, w *queue.Wake, done func(uint64, error)) {
	h.delete(ifUnused, ifEmpty, w, done)
}
