package remote

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

func set(key, value string) Change { return Change{Key: []byte(key), Value: []byte(value)} }
func drop(key string) Change       { return Change{Key: []byte(key), Drop: true} }

// heard waits for what a node is told of others, and forgets it.
func (n *node) heard(want ...string) {
	n.Helper()
	n.until(fmt.Sprint(want), func() bool { return len(n.soft) >= len(want) })
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.soft, want) {
		n.Fatalf("heard %q, not %q", n.soft, want)
	}
	n.soft = nil
}

// known is what a node knows of another.
func (n *node) known(other *node) map[string]string {
	m := map[string]string{}
	n.host.Soft(other.id, func(k string, v []byte) bool {
		m[k] = string(v)
		return true
	})
	return m
}

// TestSoft: everything is told first, in the order in which it came about, then each change; and it is gone when its node is.
func TestSoft(t *testing.T) {
	a, b, c := start(t, 1, nil, nil), start(t, 2, nil, nil), start(t, 3, nil, nil)
	a.host.SetSoft(set("queue", "q"), set("binding", "b"))
	a.host.SetSoft(set("other", "o"), set("queue", "r"), drop("other"))
	meet(a, b)
	b.heard("1 binding=b", "1 queue=r")
	a.host.SetSoft(set("queue", "s"), drop("nothing"))
	a.host.SetSoft(drop("binding"))
	b.heard("1 queue=s", "1 -nothing", "1 -binding")
	b.host.SetSoft(set("mine", ""))
	a.heard("2 mine=")
	meet(a, b, c)
	c.until("all", func() bool { return len(c.soft) == 2 })
	b.stop()
	a.heard("2 -mine")
	again := start(t, 2, b, nil)
	again.host.SetSoft(set("mine", "again"))
	meet(a, again, c)
	a.heard("2 mine=again")
	again.heard("1 queue=s")
}

// TestSoftOneSided: whoever believes that the other was down has it all again, and knows of no change but what there was.
func TestSoftOneSided(t *testing.T) {
	a, b := start(t, 1, nil, nil), start(t, 2, nil, nil)
	a.host.SetSoft(set("x", "1"), set("y", "1"))
	meet(a, b)
	b.heard("1 x=1", "1 y=1")
	b.host.Down(1, 1)
	b.heard("1 -x", "1 -y")
	a.host.SetSoft(set("z", "1"), drop("y"))
	b.host.Up(1, 1)
	b.heard("1 x=1", "1 z=1")
	a.host.Down(2, 1)
	a.host.SetSoft(set("z", "2"), set("w", "1"), drop("x"))
	a.host.Up(2, 1)
	b.heard("1 -x", "1 z=2", "1 w=1")
}

// TestSoftModel: whatever happens to the link, the others know in the end what there is.
func TestSoftModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(seeds.Of(t), 1))
	patient := func(o *cluster.Options) { o.Silence = 20 * time.Second }
	ns := []*node{start(t, 1, nil, patient), start(t, 2, nil, patient), start(t, 3, nil, patient)}
	meet(ns...)
	truth := []map[string]string{{}, {}, {}}
	filler := string(bytes.Repeat([]byte("."), 30_000))
	for range 3000 {
		i := rnd.IntN(3)
		key := fmt.Sprint(rnd.IntN(100))
		if rnd.IntN(3) == 0 {
			delete(truth[i], key)
			ns[i].host.SetSoft(drop(key))
		} else {
			v := fmt.Sprint(rnd.IntN(1000))
			if rnd.IntN(4) == 0 {
				v += filler
			}
			truth[i][key] = v
			ns[i].host.SetSoft(set(key, v))
		}
		switch rnd.IntN(60) {
		case 0:
			ns[rnd.IntN(3)].relay.sever()
		case 1:
			ns[rnd.IntN(3)].relay.set(func() { ns[rnd.IntN(3)].relay.stalled[rnd.IntN(2)] = true })
		case 2:
			for _, n := range ns {
				n.relay.heal()
			}
		case 3:
			j := rnd.IntN(2)
			a, b := ns[(i+j)%3], ns[(i+j+1)%3]
			a.host.Down(b.id, 1)
			a.host.Up(b.id, 1)
		}
	}
	for _, n := range ns {
		n.relay.heal()
		n.relay.sever()
	}
	for i, n := range ns {
		for j, other := range ns {
			if i != j {
				eventually(t, "all to be known", func() bool { return maps.Equal(n.known(other), truth[j]) })
			}
		}
	}
	for i, n := range ns { // what was told, one change after the other, comes to the same
		n.mu.Lock()
		told := map[string]string{}
		for _, s := range n.soft {
			var peer int
			fmt.Sscan(s, &peer)
			who, rest, _ := bytes.Cut([]byte(s), []byte(" "))
			if k, v, ok := bytes.Cut(rest, []byte("=")); ok {
				told[string(who)+" "+string(k)] = string(v)
			} else {
				delete(told, string(who)+" "+string(rest[1:]))
			}
		}
		n.mu.Unlock()
		want := 0
		for j := range ns {
			if i != j {
				want += len(truth[j])
			}
		}
		if len(told) != want {
			t.Errorf("node %d was told of %d items, there are %d", n.id, len(told), want)
		}
	}
}

// TestSend: messages come to who is there, and are dropped else.
func TestSend(t *testing.T) {
	a, b := start(t, 1, nil, nil), start(t, 2, nil, nil)
	if a.host.Send(2, 1, []byte("x")) {
		t.Error("sent to nobody")
	}
	meet(a, b)
	m := a.message(3, 4, 100)
	if !a.host.Send(2, 7, []byte("to whom "), []byte("it concerns")) {
		t.Fatal("not sent")
	}
	b.until("a message", func() bool { return len(b.direct) == 1 })
	if b.direct[0] != "1 7 to whom it concerns" {
		t.Error(b.direct)
	}
	encoded := append(AppendMessage(nil, m, a.pool), "rest"...)
	got, rest, err := ReadMessage(encoded, b.pool)
	if err != nil || string(rest) != "rest" || !bytes.Equal(a.pool.Bytes(m.Ref), b.pool.Bytes(got.Ref)) {
		t.Error(err, rest)
	}
	if m.Ref, got.Ref = (queue.Ref{}), (queue.Ref{}); m != got {
		t.Errorf("%+v, not %+v", got, m)
	}
	for n := range encoded[:len(encoded)-4] {
		if _, _, err := ReadMessage(encoded[:n], b.pool); err == nil {
			t.Fatal("read", n, "octets")
		}
	}
	b.stop()
	a.until("down", func() bool { return a.downs[2] > 0 })
	if a.host.Send(2, 1, []byte("x")) {
		t.Error("sent to who is down")
	}
}
