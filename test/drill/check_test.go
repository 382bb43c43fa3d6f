package main

import (
	"strings"
	"testing"

	"github.com/warrenmq/warren/test/message"
)

// TestUndecidedDeletion: of a queue whose deletion was not answered before a kill everything is found, or nothing.
func TestUndecidedDeletion(t *testing.T) {
	const actor = 201
	m := func(n uint64) message.ID { return message.Of(50, n) }
	begin := []event{{kind: up}}
	for n := uint64(1); n <= 4; n++ { // the last one is transient
		begin = append(begin, event{kind: published, message: m(n), queue: routeReborn, flag: n < 4}, event{kind: confirmed, message: m(n)})
	}
	begin = append(begin, event{kind: delivered, queue: qReborn, actor: actor, message: m(1)}, event{kind: acked, queue: qReborn, actor: actor, message: m(1)},
		event{kind: synced, actor: actor}, event{kind: deleting, queue: qReborn, actor: actor}, event{kind: ending}, event{kind: down}, event{kind: up})
	found := func(ns ...uint64) (es []event) {
		for _, n := range ns {
			es = append(es, event{kind: delivered, queue: qReborn, actor: actor, message: m(n), flag: true}, event{kind: acked, queue: qReborn, actor: actor, message: m(n)})
		}
		return append(es, event{kind: emptied, queue: qReborn, actor: actor})
	}
	for _, c := range []struct {
		name string
		then []event
		want string
	}{
		{"gone", found(), ""},
		{"whole", found(2, 3), ""},
		{"whole, with an acknowledgement undone", found(1, 2, 3), ""},
		{"the first is missing", found(3), "without message 50/2"},
		{"the last is missing", found(2), "without message 50/3"},
		{"nobody has looked at all of it", found(2)[:2], ""},
		{"deleted again", append(found(2)[:2], event{kind: deleting, queue: qReborn, actor: actor}, event{kind: deleted, queue: qReborn, actor: actor}), ""},
	} {
		h := &history{events: append(begin[:len(begin):len(begin)], c.then...)}
		wrong, counts := check(h)
		if got := strings.Join(wrong, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if counts.Deletions != 1 {
			t.Errorf("%s: %+v", c.name, counts)
		}
	}
}
