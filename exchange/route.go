package exchange

import "github.com/warrenmq/warren/amqp"

// Message is what routing looks at. Everything in it stays the caller's.
type Message struct {
	Key        []byte          // the routing key
	More       [][]byte        // further routing keys: those of the CC and BCC headers
	Headers    amqp.Table      // valid; for headers exchanges and hash-header
	Properties amqp.Properties // for hash-property
	Seed       uint64          // what random choices are made from; any distribution will do
}

// Route finds the queues that a message published to x goes to, and leaves them in out. Bindings between exchanges are
// followed, each exchange is evaluated once, and one that leads nowhere hands over to its alternate exchange.
func (t *Topology) Route(x *Exchange, m *Message, out *Matches) {
	out.reset()
	if x == t.fallback {
		if q, ok := t.queues[string(m.Key)]; ok {
			out.Queues = append(out.Queues, q)
		}
		for _, key := range m.More {
			if q, ok := t.queues[string(key)]; ok {
				out.addQueue(q)
			}
		}
		return
	}
	out.exchanges = append(out.exchanges, x)
	for i := 0; i < len(out.exchanges); i++ {
		x := out.exchanges[i]
		if !x.rule.route(m, out) && x.Alternate != "" {
			if alternate := t.exchanges[x.Alternate]; alternate != nil {
				out.addExchange(alternate)
			}
		}
	}
}

// direct is the rule of direct exchanges: the binding key is one of the message's.
type direct struct{ keys map[string]*set }

func (d *direct) bind(b *Binding) {
	s := d.keys[b.Key]
	if s == nil {
		s = new(set)
		d.keys[b.Key] = s
	}
	s.add(b.Destination)
}

func (d *direct) unbind(b *Binding) {
	s := d.keys[b.Key]
	if s.remove(b.Destination); s.empty() {
		delete(d.keys, b.Key)
	}
}

func (d *direct) route(m *Message, out *Matches) bool {
	s := d.keys[string(m.Key)]
	if s != nil {
		out.addAll(s)
	}
	found := s != nil
	for _, key := range m.More {
		if s := d.keys[string(key)]; s != nil {
			out.addAll(s)
			found = true
		}
	}
	return found
}

// fanout is the rule of fanout exchanges: every binding.
type fanout struct{ set set }

func (f *fanout) bind(b *Binding)   { f.set.add(b.Destination) }
func (f *fanout) unbind(b *Binding) { f.set.remove(b.Destination) }

func (f *fanout) route(_ *Message, out *Matches) bool {
	out.addAll(&f.set)
	return !f.set.empty()
}
