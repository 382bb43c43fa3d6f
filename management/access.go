package management

// Access is what Broker knows of users and of what they may do. Lists are the caller's; they are sorted by virtual host and user.
type Access interface {
	// Users are sorted by name, with their limits.
	Users() []Account
	// PutUser makes or replaces a user. Limits that are nil stay what they are.
	PutUser(u Account) (created bool, err error)
	// DeleteUser removes a user with its permissions and limits, and closes its connections.
	DeleteUser(name string) (existed bool, err error)
	// HashPassword salts and hashes a password as users are kept.
	HashPassword(password string) []byte

	Permissions() []Permission
	// SetPermissions gives a user permissions. The error is an InvalidPattern, or a Refusal if there is no such user or virtual host.
	SetPermissions(p Permission) (created bool, err error)
	ClearPermissions(vhost, user string) (existed bool, err error)
	TopicPermissions() []TopicPermission
	SetTopicPermissions(p TopicPermission) error
	// ClearTopicPermissions takes those of one exchange away, or all.
	ClearTopicPermissions(vhost, user, exchange string, all bool) error

	// SetUserLimit and SetVHostLimit set a limit to a value as it came in JSON; a wrong one is a Refusal, as is an unknown name.
	// Negative is no limit.
	SetUserLimit(user, name string, value any) error
	ClearUserLimit(user, name string) error
	SetVHostLimit(vhost, name string, value any) error
	ClearVHostLimit(vhost, name string) error
	// VHostLimits are the limits of a virtual host by name.
	VHostLimits(vhost string) map[string]int64
}

// Account is a user as it is kept.
type Account struct {
	Name string
	// Hash is salt and hash of the password, empty: no login with a password. Algorithm is RabbitMQ's name of the hash function.
	Hash      []byte
	Algorithm string
	Tags      []string
	// Limits are max-connections and max-channels, as far as they are set.
	Limits map[string]int64
}

// Permission is what a user may do in a virtual host: regular expressions on names.
type Permission struct{ User, VHost, Configure, Write, Read string }

// TopicPermission limits the routing keys of a user at a topic exchange.
type TopicPermission struct{ User, VHost, Exchange, Write, Read string }

// InvalidPattern refuses a text that is no regular expression. Text says why, At is where, in bytes.
type InvalidPattern struct {
	Pattern, Text string
	At            int
}

func (e *InvalidPattern) Error() string {
	return "invalid regular expression " + e.Pattern + ": " + e.Text
}

// Rules is what Broker knows of policies, parameters and definitions.
type Rules interface {
	// Policies of a virtual host, the operator's or the users', in no order.
	Policies(vhost string, operator bool) []Policy
	// SetPolicy makes or replaces a policy from a JSON object as RabbitMQ's API takes it. What is wrong with it is a Refusal.
	SetPolicy(vhost, name string, operator bool, body map[string]any) (created bool, err error)
	ClearPolicy(vhost, name string, operator bool) (existed bool, err error)
	// Effective is what counts for a queue, key by key, and where it comes from; false: there is no such queue.
	Effective(vhost, queue string) ([]EffectiveKey, bool)

	// Parameters of a virtual host, with limits and operator policies.
	Parameters(vhost string) []Parameter
	SetParameter(vhost, component, name string, value any) (created bool, err error)
	ClearParameter(vhost, component, name string) (existed bool, err error)
	GlobalParameters() []Parameter
	SetGlobalParameter(name string, value any) (created bool, err error)
	ClearGlobalParameter(name string) (existed bool, err error)

	// Export returns definitions as what encoding/json writes; of one virtual host, or of all with an empty name.
	Export(vhost string) any
	// Import adds definitions from JSON to a virtual host, or to the whole node with an empty name. A wrong one is a Refusal; what came
	// before it in the order of import stays.
	Import(vhost string, data []byte) error
}

// Policy is a rule for queues and exchanges whose names match.
type Policy struct {
	Name, Pattern string
	// ApplyTo is all, queues, classic_queues, quorum_queues, streams or exchanges.
	ApplyTo    string
	Priority   int64
	Definition map[string]any
}

// EffectiveKey is one setting of a queue. Origin is argument, "policy NAME" or "operator policy NAME".
type EffectiveKey struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

// Parameter is a runtime parameter. Global ones have neither virtual host nor component.
type Parameter struct {
	VHost, Component, Name string
	Value                  any
}

// Publication is a message to be published. Properties are those of the JSON API, their numbers int64 or float64.
type Publication struct {
	VHost, Exchange, Key string
	Properties           Properties
	Body                 []byte
}

// Properties are AMQP's. Pointers are nil where one is missing.
type Properties struct {
	ContentType     *string        `json:"content_type,omitempty"`
	ContentEncoding *string        `json:"content_encoding,omitempty"`
	Headers         map[string]any `json:"headers,omitzero"`
	DeliveryMode    *uint8         `json:"delivery_mode,omitempty"`
	Priority        *uint8         `json:"priority,omitempty"`
	CorrelationID   *string        `json:"correlation_id,omitempty"`
	ReplyTo         *string        `json:"reply_to,omitempty"`
	Expiration      *string        `json:"expiration,omitempty"`
	MessageID       *string        `json:"message_id,omitempty"`
	Timestamp       *uint64        `json:"timestamp,omitempty"` // seconds since 1970
	Type            *string        `json:"type,omitempty"`
	UserID          *string        `json:"user_id,omitempty"`
	AppID           *string        `json:"app_id,omitempty"`
	ClusterID       *string        `json:"cluster_id,omitempty"`
}

// Fetch says how to get messages from a queue.
type Fetch struct {
	VHost, Queue string
	Count        int // negative: all
	// MaxBytes bounds the bodies: when they are more in sum, no further message is taken.
	MaxBytes int
	// NoAck takes the messages for good. Otherwise they are given back, or removed if Requeue is not set, by basic.nack or, with Reject, by
	// basic.reject, which counts as a failure to deal with them.
	NoAck, Reject, Requeue bool
}

// Message is a message that was got.
type Message struct {
	Exchange, Key string
	Redelivered   bool
	Left          uint64 // in the queue, when it was got
	Properties    Properties
	Body          []byte
}
