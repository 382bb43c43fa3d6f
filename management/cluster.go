package management

import "time"

// Cluster is what this room sees of the cluster that its node is a member of. As with Broker, its methods may be called at any time by any
// goroutine. All but Forget, Vote and Ask answer from memory; what they return is
// the caller's.
type Cluster interface {
	// Members are all members, this node among them, in order of their numbers.
	Members() []Member
	// Links are the connections between this node and the others.
	Links() []Link
	// Slots are the Raft groups that this node has a replica of, in order of their shards, as this node knows them.
	Slots() []Slot
	// Forget takes a member out of the cluster for ever. One that is up is refused unless force is set; it ends when it hears of it. It
	// returns when the others know. A Refusal says what stands in the way; 404 is for a name that no member has.
	Forget(name string, force bool) error
	// Vote gives a member a vote in the slots that in says, or takes it, and returns when that is done, or cannot be for now. It tells of those
	// where there was something to do. Refusals: 404 as above, 406 it cannot have a vote because it is not up.
	Vote(name string, votes bool, in func(Slot) bool) ([]Voted, error)
	// TransferLeader asks that a node lead the slot of a quorum queue, and with it all queues of that slot. It returns before that has
	// happened. Refusals: 404 no such queue, 406 it is not a quorum queue, or the node is no member that is up.
	TransferLeader(vhost, queue, node string) error
	// Rebalance hands slots that this node leads beyond its share to others, and returns before that has happened.
	Rebalance() error
	// Ask puts a question to a member and returns what API.Answer returns there. A member that is down is an error at once; one that does
	// not answer is an error after the deadline. A question has a few hundred octets, an answer at most MaxAnswer.
	Ask(member uint64, question []byte, deadline time.Duration) ([]byte, error)
}

// Voted is what became of a vote.
type Voted struct {
	Slot string // its Name
	Size int    // how many have a vote there now
	Err  error
}

// MaxAnswer bounds what API.Answer returns, in octets.
const MaxAnswer = 512 << 10

// Member is a node of the cluster.
type Member struct {
	// Number is the member's for ever, and no other's.
	Number        uint64
	Name, Address string
	// Up says that it can be reached; always true of This.
	Up, This bool
	// Since is when it became so; zero: unknown.
	Since time.Time
	// Boot counts the starts of the node, as far as this one knows. Least and Most are the versions of the protocol between nodes that it
	// spoke last, 0: unknown.
	Boot        uint64
	Least, Most uint16
}

// Link is a connection to another member.
type Link struct {
	Peer      uint64 // its number
	Class     string // what it carries
	Connected bool
	Since     time.Time // of the connection, or of its loss; zero: there never was one
	Address   string    // of the other end
	Made      uint64    // connections there have been
	Lost      string    // why the last one ended
	// Held are octets that the other side has not acknowledged, Waiting the streams without room, Calls questions without an answer.
	Held, Waiting, Calls int
}

// Slot is a Raft group as one of its replicas knows it. Numbers that are not known are 0.
type Slot struct {
	// Shard is its number in the Raft engine, Name metadata, or that of the slot: 0, 1 …
	Shard uint64
	Name  string
	// Leader is the number of the member that leads, 0: nobody does. Leads is the one that carries out what is done once.
	Leader, Leads uint64
	Term          uint64
	// Members have a vote, Wanted are those who shall have one. Voting says that this node is one of the former.
	Members, Wanted []uint64
	Voting          bool
	// Applied is the index applied here; Committed the highest known to be decided, Last the last in the log here, Snapshot that of the
	// last snapshot.
	Applied, Committed, Last, Snapshot uint64
	Queues                             int
	// Digest is a sum of the state at Applied: replicas at the same index have the same. Empty: it is not computed.
	Digest string
}
