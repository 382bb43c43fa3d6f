// Package conformance judges any AMQP 0-9-1 broker from outside: it plays transcripts of protocol conversations against
// a socket and says where the broker answered otherwise.
//
// A transcript is a readable text (see README.md beside this file): what is sent, what must come back, and where two
// brokers are known to differ, with the reason. The transcripts are part of the binary, so that `warren conformance`
// can judge a running broker with nothing else at hand.
//
// The package owns the transcript language, its interpreter and a wire codec of its own. The codec shares no code with
// the broker's on purpose: a mistake made in both would judge itself right. The package never imports another room,
// keeps no state between runs, and leaves nothing behind on the broker but what a failed case could not delete.
package conformance
