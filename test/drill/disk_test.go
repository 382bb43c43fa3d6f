package main

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/warrenmq/warren/test/seeds"

	"github.com/warrenmq/warren/storage"
)

// TestBadDisk: under load a disk refuses writes and syncs, or is full, again and again. Nothing that was confirmed
// meanwhile is lost in the power cut that follows, and a node whose database was spared confirms again without a restart.
func TestBadDisk(t *testing.T) {
	seed := seeds.Of(t)
	m, err := newMachine(seed, "")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 5))
	h := &history{start: time.Now()}
	l := newLoad(h, seed)
	recovered := 0
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		address, err := m.start()
		if err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		h.add(event{kind: up})
		if err := prepare(address); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			l.life(ctx, address)
			close(done)
		}()
		for range 6 {
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
			what := []string{"journal", "runs"}[rng.IntN(2)]
			if rng.IntN(3) == 0 { // all of it, the database too
				m.fs.SetSpace(rng.Int64N(1 << 20))
			}
			for range 3 {
				op := []storage.Op{storage.OpWrite, storage.OpSync, storage.OpCreate, storage.OpSyncDir}[rng.IntN(4)]
				m.fs.Inject(storage.Fault{Op: op, Name: what, After: rng.IntN(5), Times: 1 + rng.IntN(30), Short: rng.IntN(600)})
			}
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
			m.fs.Heal()
		}
		if m.db.Err() == nil {
			if err := probe(address); err != nil {
				t.Errorf("seed %d, round %d: the disk is well again, and nothing is confirmed: %v", seed, round, err)
			}
			recovered++
		}
		h.add(event{kind: ending})
		if err := m.kill(); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-done
		h.add(event{kind: down})
	}
	address, err := m.start()
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	h.add(event{kind: up})
	if err := prepare(address); err != nil {
		t.Fatal(err)
	}
	if err := l.drain(address); err != nil {
		t.Fatal(err)
	}
	if err := m.stop(); err != nil {
		t.Error(err)
	}
	wrong, counts := check(h)
	t.Logf("%+v; %d of %d rounds went on without a restart", counts, recovered, rounds)
	for _, w := range wrong {
		t.Errorf("seed %d: %s", seed, w)
	}
	if len(wrong) > 0 {
		t.Log(keep(h, t.ArtifactDir(), context.Canceled))
	}
}

// probe publishes until something is confirmed.
func probe(address string) error {
	conn, err := amqp.Dial("amqp://guest:guest@" + address + "/")
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	q, err := ch.QueueDeclare("probe", true, false, false, false, nil)
	if err != nil {
		return err
	}
	k, err := ch.PublishWithDeferredConfirm("", q.Name, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	_, err = k.WaitContext(ctx)
	return err
}
