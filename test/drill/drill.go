package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A node has little memory and a short journal, so that flushes, cold reads and the copying of runs are common.
const (
	bound      = 4 << 20
	flushAt    = 1 << 20
	journalMax = 2 << 20
)

// options of a drill.
type options struct {
	seed  uint64
	kills int
	// lifetime is how long a life under load lasts, at the least and at the most.
	least, most time.Duration
	say         func(format string, args ...any)
	// early ends the drill when what was seen so far is wrong; it is looked at every so many kills.
	early int
}

// result is what a drill found.
type result struct {
	wrong  []string
	counts counts
	kills  int
	clean  int
	starts time.Duration // the longest start
	took   time.Duration
}

// drill runs lives of a node under load and checks the history of all of them.
func drill(n node, h *history, o options) (r result, err error) {
	h.start = time.Now()
	rng := rand.New(rand.NewPCG(o.seed, 3))
	l := newLoad(h, o.seed)
	defer func() { r.took = time.Since(h.start) }()
	begin := func() (string, error) {
		t := time.Now()
		address, err := n.start()
		if err != nil {
			return "", fmt.Errorf("start after %d kills: %w\n%s", r.kills, err, n.complaints())
		}
		r.starts = max(r.starts, time.Since(t))
		h.add(event{kind: up})
		if err := prepare(address); err != nil {
			return "", fmt.Errorf("declaring after %d kills: %w\n%s", r.kills, err, n.complaints())
		}
		return address, nil
	}
	for r.kills < o.kills {
		address, err := begin()
		if err != nil {
			return r, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			l.life(ctx, address)
			close(done)
		}()
		time.Sleep(o.least + time.Duration(rng.Int64N(int64(o.most-o.least))))
		h.add(event{kind: ending})
		if rng.IntN(12) == 0 { // in order, for once
			r.clean++
			cancel()
			<-done
			err = n.stop()
			h.add(event{kind: stopped})
		} else {
			r.kills++
			err = n.kill()
			cancel()
			<-done
			h.add(event{kind: down})
		}
		cancel()
		if err != nil {
			return r, fmt.Errorf("after %d kills: %w\n%s", r.kills, err, n.complaints())
		}
		if rng.IntN(10) == 0 { // once more while it starts
			r.kills++
			if err := n.interrupt(time.Duration(rng.Int64N(int64(40 * time.Millisecond)))); err != nil {
				return r, err
			}
		}
		if o.early > 0 && r.kills%o.early == 0 {
			if wrong, _ := check(h); len(wrong) > 0 || n.complaints() != "" {
				break
			}
		}
		if r.kills%50 == 0 {
			o.say("%d kills, %d events, %v", r.kills, len(h.events), time.Since(h.start).Round(time.Second))
		}
	}
	address, err := begin()
	if err != nil {
		return r, err
	}
	if err := l.drain(address); err != nil {
		return r, fmt.Errorf("%w\n%s", err, n.complaints())
	}
	if err := n.stop(); err != nil {
		return r, fmt.Errorf("%w\n%s", err, n.complaints())
	}
	if said := n.complaints(); said != "" {
		h.fail("the node complained:\n%s", said)
	}
	r.wrong, r.counts = check(h)
	return r, nil
}

// prepare declares the topology of the plan.
func prepare(address string) error {
	conn, err := amqp.Dial("amqp://guest:guest@" + address + "/")
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return declare(ch)
}

// err is what a result says against the node, nil if nothing.
func (r *result) err() error {
	if len(r.wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(r.wrong, "\n"))
}

func (r *result) String() string {
	c := &r.counts
	return fmt.Sprintf("%d kills and %d orderly stops in %v: %d messages published, %d confirmed, %d deliveries (%d redelivered), %d settled, "+
		"%d of them in doubt at a kill, %d of those back; %d deletions under way at a kill, %d of those undone; longest start %v; %d promises broken",
		r.kills, r.clean, r.took.Round(time.Second), c.Published, c.Confirmed, c.Deliveries, c.Redelivered, c.Settled, c.Doubtful, c.BackAgain, c.Deletions, c.Undone,
		r.starts.Round(time.Millisecond), len(r.wrong))
}
