package broker

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

// modelQueue is what must be true of a queue.
type modelQueue struct {
	owner      uint64
	autoDelete bool
	consumers  []queue.ConsumerID
}

// TestAgainstModel declares, binds, consumes and deletes at random, for three connections, and compares which queues,
// exchanges and bindings are left with what the rules say.
func TestAgainstModel(t *testing.T) {
	seed := seeds.Of(t)
	for round := range 30 {
		n := newNode(t)
		m := &model{r: rand.New(rand.NewPCG(seed, uint64(round))), n: n, queues: map[string]*modelQueue{}, exchanges: map[string]bool{}, bindings: map[[2]string]bool{}}
		for step := range 300 {
			m.step()
			m.compare()
			if t.Failed() {
				t.Fatalf("round %d, step %d", round, step)
			}
		}
	}
}

type model struct {
	r         *rand.Rand
	n         *node
	queues    map[string]*modelQueue
	exchanges map[string]bool // all of them auto-delete, of type fanout
	bindings  map[[2]string]bool
}

func (m *model) step() {
	n, r := m.n, m.r
	a := Actor{Connection: uint64(r.IntN(3) + 1)}
	name, x := fmt.Sprintf("q%d", r.IntN(6)), fmt.Sprintf("x%d", r.IntN(3))
	q := m.queues[name]
	mine := q != nil && (q.owner == 0 || q.owner == a.Connection)
	switch r.IntN(9) {
	case 0, 1:
		d := QueueDeclaration{Name: name, AutoDelete: r.IntN(2) == 0, Exclusive: r.IntN(2) == 0}
		_, err := n.declare(a, d)
		if q == nil {
			q = &modelQueue{autoDelete: d.AutoDelete}
			if d.Exclusive {
				q.owner = a.Connection
			}
			m.queues[name] = q
			n.want("declare", err, "")
		} else if code(err) != m.redeclared(q, a, d) {
			n.Errorf("declare %+v over %+v: %v", d, q, err)
		}
	case 2:
		n.want("exchange", n.exchange(a, exchange.Declaration{Name: x, Type: exchange.Fanout, AutoDelete: true}), "")
		m.exchanges[x] = true
	case 3, 4:
		err := n.bind(a, Binding{Source: x, Destination: name})
		switch {
		case !m.exchanges[x] || q == nil:
			m.expect("bind", err, amqp.NotFound)
		case !mine:
			m.expect("bind", err, amqp.ResourceLocked)
		default:
			m.expect("bind", err, 0)
			m.bindings[[2]string{x, name}] = true
		}
	case 5:
		err := n.unbind(a, Binding{Source: x, Destination: name})
		if b := [2]string{x, name}; m.bindings[b] && !mine {
			m.expect("unbind", err, amqp.ResourceLocked)
		} else {
			m.expect("unbind", err, 0)
			m.unbind(b)
		}
	case 6:
		if q != nil {
			_, id, err := n.consume(n.v.Queue(name), queueSpec(1))
			m.expect("consume", err, 0)
			q.consumers = append(q.consumers, id)
		}
	case 7:
		if q != nil && len(q.consumers) > 0 {
			n.detach(n.v.Queue(name), q.consumers[0], queue.Detachment(r.IntN(2)))
			if q.consumers = q.consumers[1:]; len(q.consumers) == 0 && q.autoDelete {
				m.remove(name)
			}
		}
	case 8:
		if r.IntN(4) == 0 {
			n.once(func(done func()) { n.v.ConnectionClosed(a.Connection, &n.wake, done) })
			for name, q := range m.queues {
				if q.owner == a.Connection {
					m.remove(name)
				}
			}
			return
		}
		_, err := n.deleteQueue(a, name, true, false)
		switch {
		case q == nil:
			m.expect("delete", err, 0)
		case !mine:
			m.expect("delete", err, amqp.ResourceLocked)
		case len(q.consumers) > 0:
			m.expect("delete", err, amqp.PreconditionFailed)
		default:
			m.expect("delete", err, 0)
			m.remove(name)
		}
	}
}

func (m *model) redeclared(q *modelQueue, a Actor, d QueueDeclaration) uint16 {
	switch {
	case q.owner != 0 && q.owner != a.Connection || d.Exclusive != (q.owner != 0):
		return amqp.ResourceLocked
	case d.AutoDelete != q.autoDelete:
		return amqp.PreconditionFailed
	}
	return 0
}

func code(err *amqp.Error) uint16 {
	if err == nil {
		return 0
	}
	return err.Code
}

func (m *model) expect(what string, err *amqp.Error, want uint16) {
	m.n.Helper()
	if code(err) != want {
		m.n.Errorf("%s: got %v, want %d", what, err, want)
	}
}

func (m *model) remove(name string) {
	delete(m.queues, name)
	for b := range m.bindings {
		if b[1] == name {
			m.unbind(b)
		}
	}
}

func (m *model) unbind(b [2]string) {
	if !m.bindings[b] {
		return
	}
	delete(m.bindings, b)
	for other := range m.bindings {
		if other[0] == b[0] {
			return
		}
	}
	delete(m.exchanges, b[0])
}

func (m *model) compare() {
	var queues, exchanges []string
	for _, q := range m.n.v.Queues() {
		queues = append(queues, q.Name)
	}
	for _, x := range m.n.v.Exchanges() {
		if x.AutoDelete {
			exchanges = append(exchanges, x.Name)
		}
	}
	if want := slices.Sorted(maps.Keys(m.queues)); !slices.Equal(queues, want) {
		m.n.Errorf("queues: got %q, want %q", queues, want)
	}
	if want := slices.Sorted(maps.Keys(m.exchanges)); !slices.Equal(exchanges, want) {
		m.n.Errorf("exchanges: got %q, want %q", exchanges, want)
	}
	bindings := map[[2]string]bool{}
	for _, b := range m.n.v.Bindings() {
		if b.Source != "" {
			bindings[[2]string{b.Source, b.Destination}] = true
		}
	}
	if !maps.Equal(bindings, m.bindings) {
		m.n.Errorf("bindings: got %v, want %v", bindings, m.bindings)
	}
	for name, q := range m.queues {
		if got := m.n.v.Queue(name); got == nil || got.Owner != q.owner || len(got.Consumers()) != len(q.consumers) {
			m.n.Errorf("queue %s is not like %+v", name, q)
		}
	}
}
