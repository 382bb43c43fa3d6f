package main

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/message"
)

// TestClassicCheck: each broken promise of a classic queue is found, and what may happen is not taken for one. In the texts p M [CH]
// publishes, +M confirms, d M delivers, r M delivers again, a M acknowledges, w M says that that is written, lost and end.
func TestClassicCheck(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"all well", "p 1, +1, d 1, a 1, w 1, end", ""},
		{"confirmed, and gone", "p 1, +1, end", "lost message 1/1"},
		{"confirmed, delivered, and gone", "p 1, +1, d 1, end", "lost message 1/1"},
		{"confirmed, and gone with its node", "p 1, +1, lost, end", ""},
		{"confirmed, and gone after its node came again", "p 1, +1, lost, p 2, +2, end", "lost message 1/2"},
		{"not confirmed, and gone", "p 1, end", ""},
		{"acknowledged, and back", "p 1, +1, d 1, a 1, r 1, a 1, end", ""},
		{"written, and back", "p 1, +1, d 1, a 1, w 1, r 1", "again, whose acknowledgement was written"},
		{"first twice", "p 1, d 1, d 1", "for the first time twice"},
		{"out of order", "p 1, p 2, d 2, d 1", "message 1/1 after 1/2"},
		{"out of order, of two channels", "p 1 1, p 2 2, d 2, d 1", ""},
		{"out of order, again", "p 1, p 2, d 1, d 2, r 1, r 2", ""},
		{"invented", "d 1", "which nobody published"},
	} {
		var wrong []string
		x := newClassics(1, func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) })
		for step := range strings.SplitSeq(c.text, ",") {
			var word string
			var n, channel uint64
			_, _ = fmt.Sscan(step, &word, &n, &channel)
			m := message.Of(1, n)
			switch word {
			case "p":
				x.publish(0, m, uint32(max(channel, 1)))
			case "d", "r":
				x.delivered(0, m, word == "r")
			case "a":
				x.acks(0, m)
			case "w":
				x.written(0, []message.ID{m})
			case "lost":
				x.lost(0)
			case "end":
				x.drained(0)
			default:
				_, _ = fmt.Sscan(word[1:], &n)
				x.confirm(0, message.Of(1, n))
			}
		}
		if got := strings.Join(wrong, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestClassicHeard: what clients may be told of a classic queue, and what not.
func TestClassicHeard(t *testing.T) {
	for _, c := range []struct {
		code int
		text string
		want bool // it is right
	}{
		{404, "NOT_FOUND - home node 'warren@n2' of durable queue 'classic-2' in vhost '/' is down or inaccessible", true},
		{404, "NOT_FOUND - no queue 'classic-2' in vhost '/'", false},
		{404, "NOT_FOUND - home node '' of durable queue 'classic-2' in vhost '/' is down or inaccessible", false},
		{320, "CONNECTION_FORCED - broker forced connection closure", true},
		{405, "RESOURCE_LOCKED", false},
	} {
		right := true
		x := newClassics(2, func(string, ...any) { right = false })
		x.heard(1, &amqp.Error{Code: c.code, Reason: c.text, Server: true})
		if right != c.want {
			t.Errorf("%d %s: taken for right: %v", c.code, c.text, right)
		}
	}
}
