package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// topology is a client that declares and deletes queues and exchanges. What was answered must be so on all nodes at the end. What
// was not may happen at any time: such a name is not used again.
type topology struct {
	mu    sync.Mutex // guards what follows
	n     int        // names so far
	there map[string]answer
}

// answer is what was answered last of a name: whether it exists, and when.
type answer struct {
	exists bool
	at     time.Duration // of the history
	by     string        // the node's address
}

func (t *topology) run(ctx context.Context, c *client) {
	conn, ch, cut, err := c.connect(ctx)
	if err != nil {
		return
	}
	defer cut()
	for ctx.Err() == nil {
		var name string
		exists := c.rng.IntN(2) == 0
		t.mu.Lock()
		if live := t.live(); len(live) > 0 && !exists || len(live) > 40 {
			name, exists = live[c.rng.IntN(len(live))], false
		} else {
			t.n++
			name, exists = fmt.Sprintf("%s-%d", []string{"queue", "exchange", "exchange"}[c.rng.IntN(3)], t.n), true
		}
		delete(t.there, name) // unknown, until it is answered
		t.mu.Unlock()
		if change(ch, name, exists) != nil {
			return
		}
		t.mu.Lock()
		t.there[name] = answer{exists, time.Since(c.h.start), conn.RemoteAddr().String()}
		t.mu.Unlock()
		c.pause(ctx, 20*time.Millisecond, 300*time.Millisecond)
	}
}

// live are the names that exist. Called with t.mu held.
func (t *topology) live() (names []string) {
	for name, a := range t.there {
		if a.exists {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// change declares or deletes something.
func change(ch *amqp.Channel, name string, exists bool) (err error) {
	switch {
	case name[0] == 'q' && exists:
		_, err = ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	case name[0] == 'q':
		_, err = ch.QueueDelete(name, false, false, false)
	case exists:
		err = ch.ExchangeDeclare(name, "topic", true, false, false, false, nil)
	default:
		err = ch.ExchangeDelete(name, false, false)
	}
	return err
}

// verify asks a node what it knows.
func (t *topology) verify(c *cluster, m *member) error {
	known := map[string]bool{}
	for _, path := range []string{"/api/queues/%2F?columns=name", "/api/exchanges/%2F?columns=name"} {
		var list []struct{ Name string }
		if err := c.get(m, path, &list); err != nil {
			return err
		}
		for _, x := range list {
			known[x.Name] = true
		}
	}
	if err := t.compare(known); err != nil {
		return fmt.Errorf("node %d %w", m.number, err)
	}
	return nil
}

// compare holds the names that a node knows against what was answered.
func (t *topology) compare(known map[string]bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(t.there)) {
		switch a := t.there[name]; {
		case a.exists && !known[name]:
			return fmt.Errorf("does not know %s, whose declaration was answered by %s at %.3f s", name, a.by, a.at.Seconds())
		case !a.exists && known[name]:
			return fmt.Errorf("knows %s, whose deletion was answered by %s at %.3f s", name, a.by, a.at.Seconds())
		}
	}
	return nil
}
