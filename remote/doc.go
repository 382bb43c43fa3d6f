// Package remote lets any node serve clients of a queue that lives on another one. A Queue is the other node's queue as this
// node's connections see it; a Host has those, and does for other nodes what they ask of the queues that live here. It also
// carries what nodes tell each other of themselves (soft state), and single messages (Send). It knows nothing of topology:
// which queue lives where, and what soft state means, is for whoever uses it.
//
// # The streams of a link
//
// The queues of a node are spread over 4 lanes by their ids. A lane is two streams of the class data: one for commands, one
// for what comes back. All that concerns one queue goes by one lane, in order, so that a publisher's messages keep theirs, and
// a get finds what was published before it. What is gathered until a Wake is flushed goes as one batch, of about 256 KiB at
// most: what one read of a socket brought, or what one Offer handed over. Messages wait by reference, and are copied once,
// into the link.
//
//	0x52000000 … 3    commands to the receiver's queues, lanes 0 … 3
//	0x52000004 … 7    reports about the sender's queues, lanes 0 … 3
//	0x52000008        soft state of the sender
//	0x52000009        Send
//
// # What is in a batch
//
// All numbers are varints; n is one without, i one with a sign.
//
//	commands    kind 1 | epoch n | (command u8 | queue n, n | …)*    the first one of an epoch has none
//	reports     kind 2 | epoch n | (report u8 | …)*                  the first one has none: the home's answer to that
//	ended       kind 3 | epoch n                       the home has ended the lane's consumers
//
//	publish     first n | count n | count × meta | the messages' octets        first: of the numbers to confirm, 0: none
//	attach      consumer n | flags u8 | prefetch n | priority i | window n | timeout i | session n
//	detach      ask n | consumer n | how u8
//	ready       consumer n | deliveries n | octets n    so many more the outlet has taken
//	settle      consumer n | outcome u8 | ranges
//	get         ask n | consumer n | without acknowledgement u8
//	purge       ask n
//	configure   limits
//	delete      ask n | flags u8
//	forget
//	stats       ask n
//	watch                                               tell the counts now and when they change, for 10 s
//
//	settled     ok u8 | ranges of publish numbers
//	attached    consumer n | error u8
//	detached    ask n
//	deliver     consumer n | count n | count × (id n, less the one before | flags u8 | acquired n, failed n, if a flag says so |
//	            meta) | the messages' octets
//	got         ask n | ready n | found u8 | a delivery, as above, and its octets
//	purged      ask n | count n
//	deleted     ask n | ready n | error u8
//	stats       ask n, 0: none | queue n, n | error u8 | 22 counts n
//	cancelled   consumer n
//	timed out   consumer n
//	activity    consumer n | active u8
//	pressed     queue n, n                              its consumers cannot keep up
//	full        u8                                      the home has no room for messages, or has again
//
//	soft        kind 4 | 0 | (begin u8 | end u8 | set u8, key, value | drop u8, key)*
//	want        kind 5 | 0                              tell all of the soft state, between begin and end
//
//	meta        flags u8 | priority u8 | body size n | TTL i | length n
//	ranges      count n | count × (first n, less the last one before | length n, less 1)
//
// Consumers, asks and publishes are numbered by the client's node, for each lane, and never again in its life.
//
// # When nodes or links fail
//
// A lane lives in epochs. An epoch ends when either side's link says that the other node is down, or begins anew: the client's
// node refuses what is not confirmed, cancels the consumers, and lets what was asked fail; the home removes the lane's consumers,
// whose messages return. The next one begins when the home has answered to it. Each side tells the other, and what still comes of an epoch that is over changes nothing, so that
// both need not see the same. A connection that is cut and made again in time ends nothing.
//
// # Bounds
//
// To a consumer no more is on its way, or waits on its node for the outlet, than twice its window and half a megabyte, and one
// message. What its queue offered beyond that waits at the home, by reference. Publishers rest (queue.BlockedByLinks) when 16 MiB
// wait for a node, or when a home says that its memory is full. Changes of soft state that wait are replaced by the whole
// beyond 4 MiB.
package remote
