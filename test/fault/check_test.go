package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warrenmq/warren/test/message"
)

// tell makes a history of a text. One word or a few for each event, with commas between:
//
//	p M [CH]     publisher's channel CH (1) publishes message M to the queue "one"; pf M: to fan-a and fan-b
//	+M, -M       M is confirmed, nacked
//	c A          actor A begins to consume from "one"
//	d M A [N]    M is delivered to A, handed out N times (0) before
//	dl M A N     the same, with a redelivered flag that is not right
//	da M A       M is delivered by fan-a; db: by fan-b
//	a M A [N]    A acknowledges M; aa, ab: of fan-a, fan-b
//	s A, e A     what A did is applied, by two answers; A has ended
//	end          all queues are empty
func tell(text string) *history {
	h := newHistory()
	for step := range strings.SplitSeq(text, ",") {
		var word string
		var x, y, z int
		_, _ = fmt.Sscan(step, &word, &x, &y, &z)
		m, a, n := message.Of(1, uint64(x)), uint32(y), uint32(z)
		switch {
		case word[0] == '+' || word[0] == '-':
			_, _ = fmt.Sscan(word[1:], &x)
			what := confirmed
			if word[0] == '-' {
				what = refused
			}
			h.add(event{kind: what, message: message.Of(1, uint64(x))})
		case word == "p":
			h.add(event{kind: published, message: m, actor: max(a, 1)})
		case word == "pf":
			h.add(event{kind: published, message: m, actor: max(a, 1), queue: 2})
		case word == "c":
			h.add(event{kind: consuming, actor: uint32(x)})
		case word[0] == 'd':
			q := map[string]uint8{"da": 2, "db": 3}[word]
			h.add(event{kind: delivered, message: m, actor: a, count: n, flag: (n > 0) != (word == "dl"), queue: q})
		case word[0] == 'a':
			h.add(event{kind: acked, message: m, actor: a, count: n, queue: map[string]uint8{"aa": 2, "ab": 3}[word]})
		case word == "s":
			h.add(event{kind: synced, actor: uint32(x)})
		case word == "e" && len(word) == 1:
			h.add(event{kind: ended, actor: uint32(x)})
		case word == "end":
			for q := range queues {
				h.add(event{kind: drained, queue: uint8(q)})
			}
		default:
			panic(step)
		}
	}
	return h
}

// TestCheck: each broken promise is found, and what may happen is not taken for one.
func TestCheck(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"all well", "p 1, p 2, +1, +2, c 7, d 1 7, d 2 7, a 1 7, a 2 7, s 7, e 7, end", ""},
		{"not confirmed, and gone", "p 1, e 1, end", ""},
		{"refused, and gone", "p 1, -1, end", ""},
		{"not confirmed, and there", "p 1, c 7, d 1 7, a 1 7, end", ""},
		{"confirmed, and gone", "p 1, +1, c 7, end", "lost message 1/1"},
		{"confirmed, never settled, and gone", "p 1, +1, c 7, d 1 7, e 7, end", "lost message 1/1"},
		{"confirmed, and one of two queues lost it", "pf 1, +1, c 7, da 1 7, aa 1 7, end", "fan-b has lost message 1/1"},
		{"confirmed, and both have it", "pf 1, +1, c 7, da 1 7, aa 1 7, c 8, db 1 8, ab 1 8, end", ""},
		{"it has not ended yet", "p 1, +1", ""},
		{"settled in doubt, and gone", "p 1, +1, c 7, d 1 7, a 1 7, e 7, end", ""},
		{"settled in doubt, and back", "p 1, c 7, d 1 7, a 1 7, e 7, c 8, d 1 8 1, a 1 8 1, s 8, end", ""},
		{"settled before its consumer was cancelled, and back", "p 1, c 7, d 1 7, a 1 7, e 7, s 7, c 8, d 1 8 1, a 1 8 1, s 8, end", ""},
		{"settled for sure, and back", "p 1, c 7, d 1 7, a 1 7, s 7, c 8, d 1 8 1", "delivers message 1/1 again (count 1)"},
		{"settled for sure, and back to a consumer that was there", "p 1, c 7, c 8, d 1 7, a 1 7, s 7, d 1 8 1", "delivers message 1/1 again (count 1)"},
		{"settled for sure by the second, and late at the first", "p 1, c 7, c 8, d 1 8 1, a 1 8 1, s 8, d 1 7", ""},
		{"settled for sure by the second, and then new to a third", "p 1, c 7, c 8, d 1 8 1, a 1 8 1, s 8, c 9, d 1 9", "again (count 0)"},
		{"settled for sure by the first, though the second has it", "p 1, c 7, c 8, d 1 7, d 1 8 1, a 1 7, s 7", "two had it at a time"},
		{"settled twice, the first time in vain", "p 1, c 7, c 8, d 1 7, d 1 8 1, a 1 7, a 1 8 1, s 8, e 7, end", ""},
		{"first twice", "p 1, c 7, d 1 7, c 8, d 1 8", "for the first time twice"},
		{"first twice, to one", "p 1, c 7, d 1 7, d 1 7", "for the first time twice"},
		{"second twice", "p 1, c 7, c 8, c 9, d 1 8 1, d 1 9 1", "twice with count 1"},
		{"a count goes back", "p 1, c 7, d 1 7 3, c 8, d 1 8 2", "handed out with count 3"},
		{"a count seems to go back", "p 1, c 8, c 7, d 1 7 3, d 1 8 2", ""},
		{"redelivered, and never delivered before", "p 1, c 7, dl 1 7", "redelivered true"},
		{"delivered before, and not redelivered", "p 1, c 7, dl 1 7 1", "redelivered false"},
		{"invented", "c 7, d 1 7", "that nobody published"},
		{"strayed", "p 1, c 7, da 1 7", "that was published to one"},
		{"out of order", "p 1, p 2, c 7, d 2 7, d 1 7", "to one consumer after 1/2"},
		{"out of order, of two channels", "p 1 1, p 2 2, c 7, d 2 7, d 1 7", ""},
		{"out of order, back again", "p 1, p 2, c 7, d 2 7, d 1 7 1", ""},
		{"out of order, two consumers at a time", "p 1, p 2, c 7, c 8, d 2 7, d 1 8", ""},
		{"out of order, one consumer after the other", "p 1, p 2, c 7, d 2 7, c 8, d 1 8", "to a consumer that came after 1/2"},
		{"in order, one consumer after the other", "p 1, p 2, c 7, d 1 7, c 8, d 2 8", ""},
	} {
		wrong, _ := check(tell(c.text))
		if got := strings.Join(wrong, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestCounts: what is told of a run is right, and a history looked at in parts gives the same.
func TestCounts(t *testing.T) {
	h := tell("p 1, p 2, p 3, +1, -2, c 7, d 1 7, d 2 7 1, a 1 7, s 7, a 2 7 1, e 7")
	want := counts{Published: 3, Confirmed: 1, Refused: 1, Delivered: 2, Redelivered: 1, Acked: 2, Safe: 1, Undecided: 1}
	if _, got := check(h); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	all := h.events
	h.events = nil
	c := newChecker(h)
	for _, e := range all {
		h.events = append(h.events, e)
		c.advance()
	}
	if c.end(); c.counts != want {
		t.Errorf("in parts: %+v, want %+v", c.counts, want)
	}
	if n := h.counted(); n.published != 3 || n.confirmed != 1 || n.delivered != 2 || n.acked != 2 {
		t.Errorf("%+v", n)
	}
}

// TestTopology: what was answered must be so, and nothing is said of the rest.
func TestTopology(t *testing.T) {
	made := topology{there: map[string]answer{"queue-1": {exists: true}, "exchange-2": {}}}
	for _, c := range []struct {
		known []string
		want  string
	}{
		{[]string{"queue-1"}, ""},
		{[]string{"queue-1", "exchange-3"}, ""},
		{nil, "does not know queue-1"},
		{[]string{"queue-1", "exchange-2"}, "knows exchange-2, whose deletion"},
	} {
		known := map[string]bool{}
		for _, name := range c.known {
			known[name] = true
		}
		got := fmt.Sprint(made.compare(known))
		if c.want == "" && got != "<nil>" || !strings.Contains(got, c.want) {
			t.Errorf("%v: %s, want %q", c.known, got, c.want)
		}
	}
}
