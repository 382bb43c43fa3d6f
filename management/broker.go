package management

import (
	"errors"
	"iter"
	"net/netip"
	"time"
)

// Broker is all that this room sees of a node. Its methods may be called at any time by any goroutine and never wait for a disk or a socket,
// except those that change something, which return when the change is durable.
//
// Iterators hand out a pointer to one value that they fill anew at each step; it is valid until the next. The loops of this room collect
// what they need and do nothing else, in particular no call of the broker and no writing, so an iterator may hold a lock while it runs.
// The maps and slices in a snapshot are shared with the broker and never written to by either side.
//
// An empty vhost means all of them.
type Broker interface {
	// Authenticate checks a password. from is the address the user comes from, for users who may log in locally only. The error is
	// ErrLogin, ErrLoopback, or what kept the broker from knowing.
	Authenticate(name, password string, from netip.Addr) (User, error)
	// MayEnter says whether a user has any permission in a virtual host.
	MayEnter(user, vhost string) bool

	// Totals are the numbers of things there are now, and Counts fills in the numbers of things that have happened since the start.
	Totals() Totals
	Counts(into *Counts)

	Access
	Rules

	VHosts() iter.Seq[*VHost]
	// HasVHost says whether there is a virtual host, whatever lies in it.
	HasVHost(name string) bool
	// PutVHost makes a virtual host, in which the user gets all permissions, or changes the metadata of one.
	PutVHost(as User, v VHost) (created bool, err error)
	// DeleteVHost removes a virtual host with all that is in it, and closes its connections.
	DeleteVHost(name string) (existed bool, err error)

	Queues(vhost string) iter.Seq[*Queue]
	// Queue fills in one queue's snapshot, or says that there is none.
	Queue(vhost, name string, into *Queue) bool
	// QueueSamples yields what rates of queues are computed from. It is called every few seconds while anything happens.
	QueueSamples() iter.Seq[QueueSample]
	// DeclareQueue makes a queue with the user's permissions, or says that an equal one exists. Its errors, and those of the others that
	// act as a user, are Refusals where AMQP has a code for the reason.
	DeclareQueue(as User, d QueueDeclaration) (created bool, err error)
	DeleteQueue(as User, vhost, name string, ifUnused, ifEmpty bool) error
	PurgeQueue(as User, vhost, name string) error
	// Publish publishes a message with a confirm, and says whether a queue took it. ErrRejected: a queue refused it, ErrUnconfirmed: the
	// confirm did not come in time.
	Publish(as User, m *Publication) (routed bool, err error)
	// Get takes messages from a queue, and does with them what f says. It returns fewer when there are no more, or when they are large.
	Get(as User, f Fetch) ([]Message, error)

	// Exchanges includes the default exchange, under the name "".
	Exchanges(vhost string) iter.Seq[*Exchange]
	// Exchange fills in one exchange's snapshot, or says that there is none.
	Exchange(vhost, name string, into *Exchange) bool
	DeclareExchange(as User, x *Exchange) (created bool, err error)
	DeleteExchange(as User, vhost, name string, ifUnused bool) error
	// Bindings leaves out those of the default exchange, which follow from the queues.
	Bindings(vhost string) iter.Seq[*Binding]
	Bind(as User, b *Binding) error
	Unbind(as User, b *Binding) error

	Connections() iter.Seq[*Connection]
	Connection(name string, into *Connection) bool
	// CloseConnection closes a connection with 320 CONNECTION_FORCED - reason, or says that there is none of that name. It returns at once.
	CloseConnection(name, reason string) bool
	Channels() iter.Seq[*Channel]
	Consumers(vhost string) iter.Seq[*Consumer]

	// Alarms are those in effect on this node; empty is well.
	Alarms() []Alarm
	// Serving says that the node accepts clients: started, not stopping.
	Serving() bool
}

// ErrLogin and ErrLoopback are how Authenticate refuses a user.
var (
	ErrLogin    = errors.New("unknown user or wrong password")
	ErrLoopback = errors.New("user may log in from the node's own host only")
)

// ErrRejected and ErrUnconfirmed are what can become of a message that was published.
var (
	ErrRejected    = errors.New("rejected Unable to publish message. Check queue limits.")
	ErrUnconfirmed = errors.New("confirm_timeout Timed out waiting for a publisher confirm")
)

// Refusal is why the broker did not do what it was asked, in AMQP's terms: Code is a reply code such as 404 or 406, Text what a client
// would read after the code's name.
type Refusal struct {
	Code uint16
	Text string
}

func (r *Refusal) Error() string { return r.Text }

// User is someone who has logged in.
type User struct {
	Name string
	Tags []string
}

// Totals are gauges of the whole node. In a cluster each node counts its own clients and their consumers, and the messages of queues that it
// leads or that live on it, so that nothing is counted twice; Queues and Exchanges are those of the cluster.
type Totals struct {
	Connections, Channels, Queues, Exchanges, Consumers uint64
	// Led are the queues that this node leads, or that live on it. It counts in a cluster only.
	Led uint64
	// Publishers is the number of channels that have published.
	Publishers uint64
	// Messages in all queues, their bodies in bytes, and what they occupy in memory now, with what they are stored with.
	Ready, Unacked           uint64
	ReadyBytes, UnackedBytes uint64
	MemoryBytes              uint64
}

// Counts are sums over everything that is or was on this node; in a cluster, over what its own clients did. They never go down.
type Counts struct {
	// Received counts publishes, ReceivedConfirm those on confirming channels, Routed those that reached at least one queue, Confirmed
	// the confirms sent. Dropped and Returned are unroutable publishes without and with mandatory.
	Received, ReceivedConfirm, Routed, Dropped, Returned, Confirmed uint64
	// Refused counts publishes by the queues that had no room for them. DeadUnrouted and DeadRefused are dead letters that were dropped,
	// for want of a queue and for want of room in one.
	Refused, DeadUnrouted, DeadRefused uint64

	ConnectionsOpened, ConnectionsClosed         uint64
	ChannelsOpened, ChannelsClosed               uint64
	QueuesDeclared, QueuesCreated, QueuesDeleted uint64
	AuthAttempts, AuthSucceeded, AuthFailed      uint64
	DiskReads, DiskWrites                        uint64
	// Delivery has an entry for each queue type of the build.
	Delivery []TypeCounts
	// Sizes, if not nil, counts publishes by body size: SizeBuckets says up to what, the last is for all above. SizeSum is in bytes.
	Sizes   []uint64
	SizeSum uint64
}

// SizeBuckets are the upper bounds of message sizes, in bytes, that RabbitMQ's dashboard draws.
var SizeBuckets = [...]uint64{100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000}

// TypeCounts are deliveries from queues of one type, and what was dead-lettered from them.
type TypeCounts struct {
	// Type is classic, quorum or stream.
	Type string
	QueueCounts
	// DroppedX were dropped for want of a dead-letter exchange, DeadX went to one; by reason: length limit, expiry, rejection, delivery limit.
	DroppedMaxLen, DroppedExpired, DroppedRejected, DroppedDeliveryLimit uint64
	DeadMaxLen, DeadExpired, DeadRejected, DeadDeliveryLimit             uint64
}

// QueueCounts are what happened to the messages of one queue, or of many.
type QueueCounts struct {
	// Publish counts messages that came in.
	Publish uint64
	// Deliver and Get want an acknowledgement, DeliverNoAck and GetNoAck none. GetEmpty found nothing.
	Deliver, DeliverNoAck, Get, GetNoAck, GetEmpty uint64
	// Redeliver counts those of the four that were not the first delivery; Ack counts acknowledgements.
	Redeliver, Ack uint64
}

// QueueSample is a queue reduced to numbers.
type QueueSample struct {
	ID             uint64
	Ready, Unacked uint64
	Counts         QueueCounts
}

// deliverGet is RabbitMQ's sum of all that was handed out.
func (c QueueCounts) deliverGet() uint64 { return c.Deliver + c.DeliverNoAck + c.Get + c.GetNoAck }

// VHost is a virtual host.
type VHost struct {
	Name, Description string
	Tags              []string
	// DefaultQueueType is empty for the node's.
	DefaultQueueType string
	// Ready and Unacked are messages, counted as in Totals.
	Ready, Unacked uint64
}

// Queue is a queue at one moment.
type Queue struct {
	// ID is never reused on this node.
	ID          uint64
	VHost, Name string
	// Type is classic, quorum or stream; State running, flow, down, minority or stopped.
	Type, State                    string
	Durable, AutoDelete, Exclusive bool
	// Owner is the connection of an exclusive queue.
	Owner     string
	Arguments map[string]any

	Ready, Unacked           uint64 // messages
	ReadyBytes, UnackedBytes uint64 // bodies
	// Memory is what the queue occupies, in bytes, with the messages that are in memory.
	Memory uint64
	// Consumers are those attached; Capacity is the part of the time, 0 to 1, in which they could have taken a message at once,
	// negative if nobody measures it.
	Consumers int
	Capacity  float64
	// ExclusiveConsumer and SingleActiveConsumer are consumer tags; empty: none.
	ExclusiveConsumer, SingleActiveConsumer string
	// HeadTimestamp is the timestamp property of the first message, IdleSince when the queue was last used; zero: unknown.
	HeadTimestamp, IdleSince time.Time
	Counts                   QueueCounts
	// Policy and OperatorPolicy are names of what applies, empty: none. Definition is what both come to.
	Policy, OperatorPolicy string
	Definition             map[string]any
	// Home is the node that answers for the queue: that on which a classic queue lives. Empty: all nodes know of it what there is to know,
	// as of quorum queues, or there is one node. Of a queue of another node's only what metadata knows is filled in.
	Home string
	// Quorum is nil for other types.
	Quorum *QuorumQueue
}

// QuorumQueue is what only quorum queues have.
type QuorumQueue struct {
	// Leader is a node, empty while there is none. Members are all that have a copy, Online those of them that run; sorted.
	Leader          string
	Members, Online []string
	// DeliveryLimit is how many failed deliveries of a message are allowed, negative: any number.
	DeliveryLimit int64
	// DelayedRetry is RabbitMQ's description of how returned messages are delayed, "disabled" if they are not.
	DelayedRetry string
	// Delayed messages were returned and wait, Kept are dead letters that wait for their targets; neither is in Ready.
	Delayed, Kept, KeptBytes uint64
	// Slot is the Name of the Slot in which the queue lies.
	Slot string
}

// QueueDeclaration is what a client asks for when it declares a queue. Numbers in Arguments are int64 or float64.
type QueueDeclaration struct {
	VHost, Name         string
	Durable, AutoDelete bool
	Arguments           map[string]any
}

// Exchange is an exchange at one moment.
type Exchange struct {
	VHost, Name, Type             string
	Durable, AutoDelete, Internal bool
	Arguments                     map[string]any
	// In and Out count messages, if Counted is set.
	In, Out uint64
	Counted bool
	// Policy is the name of the one that applies, empty: none.
	Policy string
}

// Binding leads from an exchange to a queue, or to an exchange.
type Binding struct {
	VHost, Source, Destination string
	ToExchange                 bool
	RoutingKey                 string
	Arguments                  map[string]any
}

// Connection is a client's connection at one moment.
type Connection struct {
	// Name is "peer address:port -> own address:port".
	Name, User, VHost string
	// State is starting, tuning, opening, running, flow, blocking, blocked, closing or closed.
	State, AuthMechanism string
	Host, PeerHost       string
	Port, PeerPort       int
	TLS                  *ConnectionTLS
	Heartbeat            time.Duration
	FrameMax             uint32
	ChannelMax           uint16
	Channels             int
	ConnectedAt          time.Time
	ClientProperties     map[string]any
	// Octets and socket operations in both directions; octets that wait to be written. The last three are 0 if nobody counts them.
	ReceivedBytes, SentBytes, Reads, Writes, PendingBytes uint64
}

// ConnectionTLS is how a connection is secured. The last four are of the client's certificate, and empty without one.
type ConnectionTLS struct {
	Protocol, KeyExchange, Cipher, Hash string
	Subject, Issuer, Serial, Validity   string
}

// Channel is a channel at one moment. Its name is that of its connection and its number in parentheses.
type Channel struct {
	Connection, User, VHost     string
	Number                      int
	PeerHost                    string
	PeerPort                    int
	State                       string // running, flow, starting or closing
	Transactional, Confirm      bool
	Consumers                   int
	Unacked, Unconfirmed        uint64
	Uncommitted, AckUncommitted uint64
	// Prefetch is what the next consumer will get, GlobalPrefetch the channel's own; 0: no limit.
	Prefetch, GlobalPrefetch int
	IdleSince                time.Time
	// Confirmed, Returned and Dropped count publishes; Counts.Publish is the number of all.
	Confirmed, Returned, Dropped uint64
	Counts                       QueueCounts
}

// Consumer is a consumer at one moment.
type Consumer struct {
	VHost, Queue, Tag      string
	Connection, User       string
	Channel                int
	PeerHost               string
	PeerPort               int
	Exclusive, AckRequired bool
	Prefetch               int
	// Active is false while a single active consumer, or an exclusive one, stands before it. Status is up, single_active or waiting.
	Active    bool
	Status    string
	Arguments map[string]any
	// Timeout is how long a delivery may stay unacknowledged.
	Timeout time.Duration
}

// Alarm is a resource that ran low: memory or disk; or storage, when the disk takes no writes. RabbitMQ has no such alarm: where
// there is room for its own only, it is the disk's.
type Alarm struct{ Resource string }
