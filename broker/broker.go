package broker

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// Options are what a Broker is made with.
type Options struct {
	Node  string       // the node's name
	Pool  *queue.Pool  // where dead letters are stored
	Clock *queue.Clock // times of deaths and expiry of queues
	// NewQueue makes the queue that runs behind a Queue. It is called under a lock and touches memory only. It returns nil for a type that this node cannot run, which is
	// then refused (540).
	NewQueue func(NewQueue) queue.Queue

	DefaultVHost string // "/" if empty
	DefaultUser  string // "guest" if empty
	DefaultPass  string // "guest" if empty
	// LoopbackUsers may log in from this machine only. nil: the default user.
	LoopbackUsers []string
	// DefaultQueueType is that of queues declared without one, where the virtual host does not say: Classic if empty.
	DefaultQueueType string
	// RefuseTransient forbids queues that are neither durable nor exclusive
	// (deprecated_features.permit.transient_nonexcl_queues = false).
	RefuseTransient bool
}

// Broker is all the topology of a node. Its methods may be called concurrently.
type Broker struct {
	Options
	Counters Counters

	mu       sync.RWMutex // guards what follows
	vhosts   map[string]*VHost
	users    map[string]*User
	loopback map[string]bool

	lastQueue atomic.Uint64 // QueueID given out last
	lastSoft  atomic.Uint64 // the same for soft queues
}

// New makes a Broker with the default virtual host and user.
func New(o Options) *Broker {
	o.DefaultVHost = cmp.Or(o.DefaultVHost, "/")
	o.DefaultUser = cmp.Or(o.DefaultUser, "guest")
	o.DefaultPass = cmp.Or(o.DefaultPass, "guest")
	o.DefaultQueueType = cmp.Or(o.DefaultQueueType, Classic)
	if o.LoopbackUsers == nil {
		o.LoopbackUsers = []string{o.DefaultUser}
	}
	b := &Broker{Options: o, vhosts: make(map[string]*VHost), users: make(map[string]*User), loopback: make(map[string]bool)}
	for _, u := range o.LoopbackUsers {
		b.loopback[u] = true
	}
	b.apply(PutVHost{Name: o.DefaultVHost, Description: "Default virtual host"})
	b.apply(PutUser{User{Name: o.DefaultUser, Hash: HashPassword(o.DefaultPass), Tags: []string{"administrator"}}})
	b.apply(SetPermissions{VHost: o.DefaultVHost, User: o.DefaultUser, Configure: ".*", Write: ".*", Read: ".*"})
	return b
}

// VHost finds a virtual host, nil if there is none.
func (b *Broker) VHost(name string) *VHost {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.vhosts[name]
}

// VHosts lists the virtual hosts by name.
func (b *Broker) VHosts() []*VHost {
	b.mu.RLock()
	defer b.mu.RUnlock()
	list := make([]*VHost, 0, len(b.vhosts))
	for _, v := range b.vhosts {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b *VHost) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Open returns the virtual host for a connection of u, or the error that connection.open is answered with.
func (b *Broker) Open(vhost string, u *User) (*VHost, *amqp.Error) {
	v := b.VHost(vhost)
	if v == nil {
		return nil, amqp.Errorf(amqp.NotAllowed, "vhost %s not found", vhost)
	}
	if !v.Admits(u) {
		return nil, amqp.Errorf(amqp.NotAllowed, "access to vhost '%s' refused for user '%s'", vhost, u.Name)
	}
	return v, nil
}

// PutVHost makes a virtual host or changes its metadata.
func (b *Broker) PutVHost(c PutVHost, done func()) { b.commit(c, func(result) { done() }) }

// DeleteVHost removes a virtual host with all that is in it. done hears whether it existed. The caller closes the
// connections to it, which find that every queue and exchange is gone.
func (b *Broker) DeleteVHost(name string, w *queue.Wake, done func(existed bool)) {
	b.commit(DeleteVHost{Name: name}, func(r result) {
		left := len(r.queues) + 1
		var mu sync.Mutex
		one := func() {
			mu.Lock()
			left--
			last := left == 0
			mu.Unlock()
			if last {
				done(r.existed)
			}
		}
		for _, q := range r.queues {
			q.end()
			q.Queue.Delete(false, false, w, func(uint64, error) { one() })
		}
		one()
	})
}
