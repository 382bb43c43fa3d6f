package broker

import (
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// VHost is a virtual host. Its methods may be called concurrently, but not from within a Scope of it.
type VHost struct {
	Name   string
	broker *Broker

	// version moves with every change that may make a route or a permission another one.
	version atomic.Uint64
	settled atomic.Pointer[Settings] // worked out last for a queue

	configuring sync.Mutex // held while queues get settings that policies have changed

	mu          sync.RWMutex // guards what follows
	description string
	tags        []string
	defaultType string // of queues; "": the node's
	limits      Limits
	parameters  map[parameterKey]any
	policies    [2]policies // of users, of operators
	deleted     bool
	topology    *exchange.Topology
	queues      []*Queue            // by exchange.Queue
	count       int                 // of queues
	softs       int                 // of soft ones among them
	owned       map[uint64][]*Queue // exclusive queues by connection
	permissions map[string]*Permissions
	topics      map[string]map[string]*TopicPermissions // by user and exchange
}

// Broker is the broker that v is of.
func (v *VHost) Broker() *Broker { return v.broker }

// Version is never 0, and changes whenever the result of routing or of a permission check may be another than before. What was found in a
// Scope holds as long as the version read inside it does.
func (v *VHost) Version() uint64 { return v.version.Load() }

func newVHost(b *Broker, name string, isDefault bool) *VHost {
	v := &VHost{
		Name: name, broker: b,
		topology:    exchange.New(),
		owned:       make(map[uint64][]*Queue),
		permissions: make(map[string]*Permissions),
		topics:      make(map[string]map[string]*TopicPermissions),
	}
	v.version.Store(1)
	v.topology.Keep = b.replicated.Load()
	for _, d := range predeclared {
		d.Durable = true
		v.topology.Declare(d)
	}
	if isDefault {
		v.topology.Declare(exchange.Declaration{Name: "amq.rabbitmq.log", Type: exchange.Topic, Durable: true, Internal: true})
	}
	return v
}

// predeclared exchanges of every virtual host, besides the default exchange.
var predeclared = []exchange.Declaration{
	{Name: "amq.direct", Type: exchange.Direct},
	{Name: "amq.topic", Type: exchange.Topic},
	{Name: "amq.fanout", Type: exchange.Fanout},
	{Name: "amq.headers", Type: exchange.Headers},
	{Name: "amq.match", Type: exchange.Headers},
	{Name: "amq.rabbitmq.trace", Type: exchange.Topic, Internal: true},
}

// Actor is who asks for an operation.
type Actor struct {
	User       *User  // nil: the node itself, which may do anything
	Connection uint64 // 0: none (the HTTP API); owns no queues
	// Pipelined: done is called, of all declarations, bindings and deletions that the actor asks for, when they are applied;
	// whether they are durable it asks Broker.Sync. So one can follow the other without waiting for the disk. Otherwise done is
	// called when they are durable, perhaps on another goroutine, which it must not hold up.
	Pipelined bool
}

// answer is done as the actor wants it to be called.
func (v *VHost) answer(a Actor, done func(*amqp.Error)) func(*amqp.Error) {
	if a.Pipelined {
		return done
	}
	return func(err *amqp.Error) {
		if err != nil {
			done(err)
			return
		}
		v.broker.Sync(done)
	}
}

// queue finds a queue by name. v.mu is held.
func (v *VHost) queue(name string) *Queue {
	if n, ok := v.topology.Queue(name); ok {
		return v.queues[n]
	}
	return nil
}

func (v *VHost) queueResource(name string) string {
	return "queue '" + name + "' in vhost '" + v.Name + "'"
}

func (v *VHost) exchangeResource(name string) string { return exchange.Resource(name, v.Name) }

func (v *VHost) noQueue(name string) *amqp.Error {
	return amqp.Errorf(amqp.NotFound, "no %s", v.queueResource(name))
}

func (v *VHost) noExchange(name string) *amqp.Error {
	return amqp.Errorf(amqp.NotFound, "no %s", v.exchangeResource(name))
}

// locked is the error of an operation on an exclusive queue of another connection.
func (v *VHost) locked(name string) *amqp.Error {
	return amqp.Errorf(amqp.ResourceLocked, "cannot obtain exclusive access to locked %s. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.", v.queueResource(name))
}

// QueueFor finds a queue to consume or get from, or to purge: the actor must be allowed to read it, it must exist, and
// not be exclusive to another connection.
func (v *VHost) QueueFor(a Actor, name string) (*Queue, *amqp.Error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if err := v.checkQueue(a.User, Read, name); err != nil {
		return nil, err
	}
	q := v.queue(name)
	if q == nil {
		return nil, v.noQueue(name)
	}
	if !q.accessible(a.Connection) {
		return nil, v.locked(name)
	}
	return q, q.unreachable()
}
