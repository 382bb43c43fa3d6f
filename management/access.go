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
