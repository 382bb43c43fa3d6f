package streams

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warrenmq/warren/test/message"
)

// tell makes a history of a text. One word or a few for each event, with commas between; all are of the stream "small", those with
// a c before of "cut":
//
//	p M [CH]   publisher's channel CH (1) publishes message M
//	+M         M is confirmed
//	s O M      offset O is message M
//	b O        the named consumer begins at offset O
//	a O        it acknowledges all below O
//	k O        a node says that O is committed
//	all M…     the stream is read: it has these
func tell(text string) (wrong []string) {
	h := NewHistory(func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) })
	for step := range strings.SplitSeq(text, ",") {
		words := strings.Fields(step)
		word, stream := words[0], 0
		if word[0] == 'c' {
			word, stream = word[1:], 2
		}
		name := consumerName(Plan[stream].Name)
		numbers := make([]uint64, 0, 4)
		for _, w := range words[1:] {
			var n uint64
			_, _ = fmt.Sscan(w, &n)
			numbers = append(numbers, n)
		}
		numbers = append(numbers, 0, 0)
		x, y := numbers[0], numbers[1]
		switch word[0] {
		case 'p':
			h.publish(message.Of(1, x), uint32(max(y, 1)))
		case '+':
			_, _ = fmt.Sscan(word[1:], &x)
			h.confirm(stream, message.Of(1, x))
		case 's':
			h.saw(stream, x, message.Of(1, y))
		case 'b':
			h.began(name, h.floor(name), x)
		case 'k':
			h.Committed(name, x)
		case 'a':
			if word == "a" {
				h.acks(name, x)
				break
			}
			var read []message.ID
			for _, n := range numbers[:len(words)-1] {
				read = append(read, message.Of(1, n))
			}
			h.whole(stream, read)
		default:
			panic(step)
		}
	}
	return wrong
}

// TestCheck: each broken promise is found, and what may happen is not taken for one.
func TestCheck(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"all well", "p 1, p 2, +1, +2, s 0 1, s 1 2, s 0 1, all 1 2", ""},
		{"confirmed, and gone", "p 1, p 2, +1, +2, all 1", "lost message 1/2"},
		{"confirmed, and at its place another", "p 1, p 2, +1, all 2", "lost message 1/1"},
		{"not confirmed, and gone", "p 1, p 2, +1, all 1", ""},
		{"confirmed, and gone with the old end", "p 1, p 2, c+1, c+2, call 2", ""},
		{"confirmed, and gone from the middle", "p 1, p 2, p 3, c+1, c+2, c+3, call 1 3", "lost message 1/2"},
		{"out of order", "p 1, p 2, all 2 1", "behind 1/2"},
		{"out of order, of two channels", "p 1 1, p 2 2, all 2 1", ""},
		{"an offset is given again", "p 1, p 2, s 0 1, s 0 2", "offset 0 of small was message 1/1"},
		{"a message twice", "p 1, s 0 1, s 4 1", "at offset 0, and at 4"},
		{"invented", "s 0 1", "which nobody published"},
		{"it resumes", "b 0, a 7, b 7", ""},
		{"it resumes earlier than it acknowledged", "b 0, a 7, b 3", ""},
		{"it resumes earlier than it began", "b 0, a 7, b 7, b 6", "went back, it was 7"},
		{"it resumes earlier than was committed", "b 0, a 7, k 5, b 4", "went back, it was 5"},
		{"it resumes where was committed", "b 0, a 7, k 5, b 5", ""},
		{"it resumes beyond what it acknowledged", "b 0, a 7, b 8", "acknowledged what is below 7 only"},
		{"it resumes beyond what is there no more", "cb 0, ca 7, cb 8", ""},
		{"more is committed than was acknowledged", "b 0, a 7, k 8", "acknowledged what is below 7 only"},
	} {
		if got := strings.Join(tell(c.text), "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
