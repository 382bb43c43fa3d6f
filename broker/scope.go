package broker

import (
	"sync"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// Scope is a stretch of time in which the topology and the permissions of a virtual host stand still, for the routing of
// one batch. It belongs to one goroutine and lasts from Begin to End.
//
// Within a scope call its own methods, VHost.Version, and functions that touch memory only. Do not call any other method
// of VHost or Broker, or of a queue.Queue, nor flush a Wake (what that leads to may open a scope of its own): gather what goes to
// each queue, and publish after End. The queues that Route found stay valid after End; publishing to one that was deleted
// meanwhile is harmless.
type Scope struct {
	v       *VHost
	matches exchange.Matches
	queues  []*Queue
}

var scopes = sync.Pool{New: func() any { return new(Scope) }}

// Begin opens a scope.
func (v *VHost) Begin() *Scope {
	s := scopes.Get().(*Scope)
	s.v = v
	v.mu.RLock()
	return s
}

// End closes the scope, which must not be used any more, nor the last result of Route.
func (s *Scope) End() {
	s.v.mu.RUnlock()
	s.v = nil
	clear(s.queues)
	s.queues = s.queues[:0]
	scopes.Put(s)
}

// Exchange finds an exchange by name, nil if there is none. It must not be used after End.
func (s *Scope) Exchange(name []byte) *exchange.Exchange { return s.v.topology.ExchangeNamed(name) }

// Queue finds a queue by name, nil if there is none.
func (s *Scope) Queue(name []byte) *Queue {
	if n, ok := s.v.topology.QueueNamed(name); ok {
		return s.v.queues[n]
	}
	return nil
}

// Publishable finds the exchange to publish to: u must be allowed to write to it (403), it must exist (404), and not be
// internal (403).
func (s *Scope) Publishable(u *User, name []byte) (*exchange.Exchange, *amqp.Error) {
	if !s.v.allows(u, Write, exchangeName(name)) {
		return nil, s.v.refusedExchange(u, Write, string(name))
	}
	x := s.Exchange(name)
	if x == nil {
		return nil, s.v.noExchange(string(name))
	}
	if x.Internal {
		return nil, amqp.Errorf(amqp.AccessRefused, "cannot publish to internal %s", s.v.exchangeResource(x.Name))
	}
	return x, nil
}

// CheckTopic returns the error if u may not publish to a topic exchange with a routing key. Other types have no such
// permissions.
func (s *Scope) CheckTopic(u *User, x *exchange.Exchange, key []byte) *amqp.Error {
	return s.v.checkTopic(u, Write, x, key)
}

// Route finds the queues that a message published to x goes to, each once. The slice is valid until the next Route or
// End.
func (s *Scope) Route(x *exchange.Exchange, m *exchange.Message) []*Queue {
	s.v.topology.Route(x, m, &s.matches)
	s.queues = s.queues[:0]
	for _, n := range s.matches.Queues {
		s.queues = append(s.queues, s.v.queues[n])
	}
	return s.queues
}

// Stable reports whether the result of the last Route holds for every message with the same routing keys, as long as
// VHost.Version does.
func (s *Scope) Stable() bool { return s.matches.Stable() }
