// Package cluster knows who a node is, who the others are, and carries octets between them: a node's identity in its data
// directory, the address book of the members, and the link, over which nodes send each other ordered batches and ask each
// other questions. A node is its id, which it draws itself; as a member of a cluster it also has a number, 1, 2, 3 and so on,
// which the cluster gives out once and never again (the founder's is 1). It knows nothing of queues, brokers or Raft: what a batch means is for whoever sends it.
//
// Besides the link there are connections that somebody else owns: two nodes go through the same opening, and then hand the
// connection to their owners, who send over it what they like (Node.Dial, Options.Accept). It is closed with the Node, and
// when the peer leaves the book.
//
// # The link
//
// Between two nodes there is one connection for each class: control, for what is small and urgent, and data, so that a
// delivery of 16 MiB delays no heartbeat. It is TCP, inside TLS where the operator wants it. Either node opens it: one that
// starts anew, or at a new address, then need not wait until the others try again. When both do so at once, two connections
// come about; the node of the lower id says which of them is used, and the later one wins.
//
// What is to be sent is first copied to the link's log, which keeps it until the other side says that it has it. The
// connection carries the log from wherever the other side is. So a connection that is lost and made again loses nothing and
// repeats nothing, as long as both nodes live. Two logs, one for each direction, that belong together have a random number,
// the tie, which both nodes remember. If one of them does not (it has been started anew, or had forgotten the other) they
// agree on a new tie, both logs begin anew, and both sides are told (Reset). Nobody hears of it where nothing was sent before.
//
// Batches belong to streams. A stream has credit, in octets: what the other side is ready to hold. It is given back when
// the receiver has disposed of a batch, so one slow receiver does not stop the others.
//
// # What is on the wire
//
// Numbers are little-endian. The opening, the same in all versions of the protocol up to the end of the hello:
//
//	dialer                                  listener
//	hello  ────────────────────────────────►
//	       ◄────────────────────────────────  hello
//	proof  ────────────────────────────────►
//	       ◄────────────────────────────────  proof
//	ready  ────────────────────────────────►
//
//	       ◄────────────────────────────────  given      a connection with an owner; the rest is his
//
//	take   ── lower id ──────── higher id ──► stops what it had
//	       ◄────────────────────────────────  taken
//
//	hello    "WARRENLK" | least u16 | most u16 | size u16 | body
//	body     class u8 | purpose u8 | cluster [16] | node u64 | boot u64 | incarnation u64 | window u32 | nonce [32] | length u8 | name |
//	         starts u64 | mark u64
//	others   kind u8 | size u16 | body
//	proof    [32]
//	ready    nothing
//	given    nothing
//	take     session u64 | tie u64 | next u64 | received u64
//	taken    resumed u8 | received u64
//	join     the request of who wants to become a member; instead of take, if that is the class
//	joined   the answer, and then the connection ends
//	refuse   reason u8 | text; instead of any of them, and then the connection ends
//
// The version used is the greatest that both speak. The proof is HMAC-SHA256 under the cluster's secret over the side's role,
// both hellos, and with TLS what identifies the TLS connection: it can be made by neither side without the secret,
// is of use once, and fails if anybody changed the hellos, versions included. The listener says nothing but its hello to who
// has not proved that it knows the secret. Without TLS the octets that follow are neither secret nor
// protected from those who can change what is on the network.
//
// take says how far the lower id has received the log of the tie, and which tie it would begin with instead; taken says
// whether the higher id remembers that tie, and how far it has received. Behind that come frames:
//
//	frame    size u32 | left u32 | stream u32 | type u8 | kind u8 | number u16 | body of size octets
//
//	         type         stream   kind      left                      body
//	1        ack          –        –         –                         received u64: all of the log before that is here
//	2        goodbye      –        –         –                         –
//	3        data         id       sender's  octets in further frames  the batch, or at most 1 MiB of it
//	4        credit       id       –         –                         octets u64, which are given back
//	5        call         call     sender's  –                         the question
//	6        reply        call     outcome   –                         the answer
//
// Frames of type 3 and above are in the log and are numbered from 0, which is how a receiver notices that something is
// missing. A position is the number of octets in the log before it, heads included. An ack is sent when 256 KiB have come,
// with whatever else is written, and when nothing else has been written for a quarter of the time after which silence
// means that the node is down.
//
// # Bounds
//
// For each stream a sender holds at most its window of octets, or, where a batch is larger than half of that, half and the
// batch; for each link the same with the backlog. A receiver holds its read buffer (up to 1 MiB), and the parts of
// a batch larger than 1 MiB. Handshakes, streams, calls and connections with owners are bounded by number.
package cluster
