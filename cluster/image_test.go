package cluster

import (
	"errors"
	"testing"

	"github.com/warrenmq/warren/storage"
)

// TestOldCopy: a member that knows of fewer starts than the cluster has confirmed is an older copy of itself. It is not talked with,
// and it hears why from somebody who knows the secret; one that is connected already is cut off.
func TestOldCopy(t *testing.T) {
	for _, c := range []struct {
		starts, mark uint64
		old          bool
	}{
		{6, 1, false},
		{5, 50, false}, // confirmed, and it ended before it could write that down
		{9, 1, false},  // the other one is late
		{5, 49, true},
		{4, 50, true},
		{0, 50, true},
	} {
		a := sit(t, 1, 1, nil)
		b := sit(t, 2, 1, func(o *Options) { o.Identity.Starts, o.Identity.Mark = c.starts, c.mark })
		meet(a, b)
		b.until("up", func() bool { return len(b.events) > 0 && b.events[0] == "up 1/1" })
		late := b.peer()
		late.Start, late.Mark = 6, 50
		if err := a.node.SetPeers(Book{a.peer(), late}); err != nil {
			t.Fatal(err)
		}
		if !c.old {
			a.until("up", func() bool { return len(a.events) > 0 && a.events[0] == "up 2/1" })
			send(b.stream(1, Data, 1), 1, []byte("x"))
			a.saw("data 1: 1 x")
			a.mu.Lock()
			if len(a.refused) > 0 {
				t.Errorf("%+v: %v", c, a.refused)
			}
			a.mu.Unlock()
			continue
		}
		b.until("a refusal that is proved", func() bool {
			for _, r := range b.refused {
				if r.Reason == OldBoot && r.ByPeer && r.Proved {
					return true
				}
			}
			return false
		})
		for _, l := range a.node.Links() {
			if l.Connected {
				t.Errorf("%+v: it is talked with", c)
			}
		}
		if _, err := a.node.Dial(t.Context(), 2, 1); err == nil {
			t.Errorf("%+v: it has a connection of an owner", c)
		}
	}
	// Who has not proved that he knows the secret proves nothing.
	a := alone(t, 9, 1, nil)
	if err := a.node.SetPeers(Book{{ID: 1, Start: 6, Mark: 50}}); err != nil {
		t.Fatal(err)
	}
	_, err := scripted(t, a, 1, 3, nil)
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != OldBoot || r.Proved {
		t.Errorf("%+v (%v)", r, err)
	}
}

// TestStarts: a start has a mark until the cluster has confirmed it, and then another one.
func TestStarts(t *testing.T) {
	db, err := storage.OpenDB(storage.NewFaultFS(1), "d", storage.DBOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	start := func() Identity {
		id, err := Start(db, "n")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := start()
	if again := start(); first.Starts != 0 || first.Mark == 0 || again.Starts != 0 || again.Mark != first.Mark {
		t.Fatalf("%+v, then, unconfirmed, %+v", first, again)
	}
	if err := Confirm(db, first); err != nil {
		t.Fatal(err)
	}
	if next := start(); next.Starts != 1 || next.Mark == 0 || next.Mark == first.Mark {
		t.Fatalf("%+v, then, confirmed, %+v", first, next)
	}
}
