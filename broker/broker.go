package broker

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// Options are what a Broker is made with.
type Options struct {
	Node  string       // the node's name
	Pool  *queue.Pool  // where dead letters are stored
	Clock *queue.Clock // times of deaths and expiry of queues
	// NewQueue makes the queue that runs behind a Queue. It is called under a lock and touches memory only. It returns nil for a type that this node cannot run, which is
	// then refused (540).
	NewQueue func(NewQueue) queue.Queue
	// Log is told of dead letters that are lost. nil: nobody is.
	Log *slog.Logger
	// Store is where Open keeps durable metadata. It belongs to the caller, who closes it after the Broker.
	Store *storage.DB
	// Commands is the log that hard state comes from, from the start; see Replicate.
	Commands Log
	// Member is the number of this node in the cluster, 0 before it has one; see Replicate.
	Member uint64
	// CanRun reports whether a queue of the type may be declared in a cluster. nil: Classic and Quorum may.
	CanRun func(typ string) bool
	// Decides reports whether it is this member that lets a queue of the cluster that is not classic expire. nil: always. It is
	// called without locks.
	Decides func(QueueID) bool
	// CatchUp calls its argument, on a goroutine of its own, when this node's metadata has caught up with what was answered on
	// other nodes before, or, with false, when that takes too long. It is called without locks. nil: there are no others.
	CatchUp func(do func(current bool))
	// VHostDeleted and UserDeleted are called, on every node and without locks, when one was deleted: its connections end.
	VHostDeleted, UserDeleted func(name string)
	// SlotsWanted is how many slots a cluster gets with its first quorum queue or stream; 0: it gets them by PutSlots only.
	SlotsWanted uint64
	// GroupSize is how many members have a vote in each slot when the slots are made, if there are more; 0: all.
	GroupSize uint64
	// MembersChanged and SlotsChanged are called without locks when what Members and Slots return has changed, perhaps when it
	// has not, and perhaps at the same time. They must not wait for anything that comes from the log.
	MembersChanged, SlotsChanged func()
	// SoftChanged is told, in a cluster, how the soft state of this node has changed, in order. It is called with locks held and
	// must not wait.
	SoftChanged func([]SoftItem)
	// Alarms are those of the node; nil: the Broker makes its own.
	Alarms *Alarms

	// NoDefaults leaves an empty store without the default virtual host and user: definitions will be imported.
	NoDefaults bool

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
	// RelaxedRedeclaration lets applications that declare a classic queue find a quorum queue of that name
	// (quorum_queue.property_equivalence.relaxed_checks_on_redeclaration).
	RelaxedRedeclaration bool
	// ConsumerTimeout is how long a delivery of a quorum queue may stay unsettled where nothing else is said, in
	// milliseconds; 0: for ever.
	ConsumerTimeout int64
}

// Broker is all the topology of a node. Its methods may be called concurrently.
type Broker struct {
	Options
	Counters Counters

	mu       sync.RWMutex // guards what follows
	vhosts   map[string]*VHost
	users    map[string]*User
	loopback map[string]bool
	// parameters are the global runtime parameters.
	parameters map[string]any
	members    map[uint64]Member // by number
	lastMember uint64            // number given out last
	slots      PutSlots
	replicas   map[replicaOf]Replica

	accounts accounts

	replicated atomic.Bool   // hard commands come from a log; never taken back
	member     atomic.Uint64 // number of this node

	homes     sync.Map      // by QueueID, the *Queues that other nodes may reach here
	lastQueue atomic.Uint64 // QueueID given out last
	lastSoft  atomic.Uint64 // the same for soft queues

	committer *committer // nil: nothing is durable
	fresh     bool
}

// Fresh reports whether there were no users and no virtual hosts when the Broker was made.
func (b *Broker) Fresh() bool { return b.fresh }

// New makes a Broker that keeps everything in memory, with the default virtual host and user. See Open for one that does not.
func New(o Options) *Broker {
	b := newBroker(o)
	b.fresh = true
	b.makeDefaults()
	return b
}

func newBroker(o Options) *Broker {
	o.DefaultVHost = cmp.Or(o.DefaultVHost, "/")
	o.DefaultUser = cmp.Or(o.DefaultUser, "guest")
	o.DefaultPass = cmp.Or(o.DefaultPass, "guest")
	o.DefaultQueueType = cmp.Or(o.DefaultQueueType, Classic)
	if o.Alarms == nil {
		o.Alarms = new(Alarms)
	}
	if o.LoopbackUsers == nil {
		o.LoopbackUsers = []string{o.DefaultUser}
	}
	b := &Broker{Options: o, members: make(map[uint64]Member), replicas: make(map[replicaOf]Replica), vhosts: make(map[string]*VHost), users: make(map[string]*User), loopback: make(map[string]bool), parameters: make(map[string]any)}
	b.member.Store(o.Member)
	for _, u := range o.LoopbackUsers {
		b.loopback[u] = true
	}
	return b
}

// makeDefaults makes what a new node has.
func (b *Broker) makeDefaults() (err error) {
	for _, c := range []Command{
		PutVHost{Name: b.DefaultVHost, Description: "Default virtual host", Default: true},
		PutUser{User{Name: b.DefaultUser, Hash: HashPassword(b.DefaultPass), Tags: []string{"administrator"}}},
		SetPermissions{VHost: b.DefaultVHost, User: b.DefaultUser, Configure: ".*", Write: ".*", Read: ".*"},
	} {
		b.commit(c, func(r result) { err = cmp.Or(err, orNil(r.refused)) })
	}
	return err
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

// PutVHost makes a virtual host or changes its metadata.
func (b *Broker) PutVHost(c PutVHost, done func(error)) {
	c.Default = c.Name == b.DefaultVHost
	done = b.synced(done)
	b.commit(c, func(r result) { done(orNil(r.refused)) })
}

// DeleteVHost removes a virtual host with all that is in it. done hears whether it existed. Connections to it find that
// every queue and exchange is gone; see Options.VHostDeleted.
func (b *Broker) DeleteVHost(name string, done func(existed bool, err error)) {
	b.commit(DeleteVHost{Name: name}, func(r result) {
		if r.refused != nil {
			done(false, r.refused)
			return
		}
		queues := r.queues
		if r.carried {
			queues = nil
		}
		for _, q := range queues {
			q.end()
		}
		b.Sync(func(err *amqp.Error) {
			for _, q := range queues {
				q.forget(err)
			}
			if r.existed && !r.carried && err == nil && b.VHostDeleted != nil {
				b.VHostDeleted(name)
			}
			done(r.existed, orNil(err))
		})
	})
}
