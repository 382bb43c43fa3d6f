package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/streams"
)

const (
	// patience is how long a cluster may take, when all its nodes run and reach each other, to do what it is asked.
	patience = 3 * time.Minute
	// round is how long there are faults without a pause in which everything must go on.
	round = time.Minute
)

// options of a drill.
type options struct {
	seed     uint64
	duration time.Duration
	verbose  bool
	only     string // kinds of faults
}

// result is what a drill found.
type result struct {
	wrong    []string
	counts   counts
	faults   int
	changes  int           // names that topology has used
	recovery time.Duration // the longest time from the end of faults until everything was confirmed again
	compared string
	took     time.Duration
	more     []string // of streams and classic queues
}

// drill has clients work while nodes and the network between them fail, and checks what they saw.
func drill(ctx context.Context, c *cluster, h *history, o options) (r result) {
	start := time.Now()
	check := newChecker(h)
	l := load{h: h, seed: o.seed, topology: topology{there: map[string]answer{}}, streams: streams.NewHistory(h.fail), classics: newClassics(len(c.members), h.fail)}
	for _, m := range c.members {
		l.addresses = append(l.addresses, m.address())
	}
	working, rest := context.WithCancel(ctx)
	go func() {
		for n := 0; working.Err() == nil; n++ {
			c.committed(c.members[n%len(c.members)], l.streams)
			wait(working, 300*time.Millisecond)
		}
	}()
	loaded := make(chan struct{})
	go func() { l.run(working); close(loaded) }()
	f := &faults{cluster: c, h: h, classics: l.classics, only: o.only, say: func(format string, args ...any) {
		if o.verbose {
			fmt.Printf("%8.3f s  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
		}
	}}
	said := start
	// look checks what has happened so far and reports whether all is well.
	look := func() bool {
		check.advance()
		for _, m := range c.members {
			if err := m.ended(); err != nil {
				h.fail("%v", err)
			}
		}
		if len(check.wrong) > 0 || len(h.failures()) > 0 {
			return false
		}
		if time.Since(said) >= 10*time.Second {
			said = time.Now()
			n := h.counted()
			fmt.Printf("%v: %d published, %d confirmed, %d delivered, %d settled, %d faults, nothing wrong\n",
				time.Since(start).Round(time.Second), n.published, n.confirmed, n.delivered, n.acked, n.faults)
		}
		return true
	}
	r.compared = "ended at once"
	well := true
	for n := uint64(0); well && ctx.Err() == nil && time.Since(start) < o.duration; n++ {
		f.seed = o.seed + n
		f.round(ctx, min(round, o.duration-time.Since(start)), look)
		if well = look(); !well {
			break
		}
		calm := time.Now()
		if err := recovered(ctx, c, h, &l); err != nil && ctx.Err() == nil {
			h.fail("%v", err)
			well = false
			c.dump()
		}
		r.recovery = max(r.recovery, time.Since(calm))
	}
	rest()
	<-loaded
	if well && ctx.Err() == nil {
		if err := finish(ctx, c, h, &l, &r); err != nil && ctx.Err() == nil {
			h.fail("%v", err)
			c.dump()
		}
	}
	for _, m := range c.members {
		if said := complaints(m); said != "" {
			h.fail("node %d complained:\n%.2000s", m.number, said)
		}
	}
	check.advance()
	check.end()
	r.wrong, r.counts = append(h.failures(), check.wrong...), check.counts
	r.more = []string{l.streams.String(), l.classics.String()}
	r.faults, r.took = h.counted().faults, time.Since(start)
	return r
}

// expected are complaints of what was done to a node.
var expected = []string{"not in good order", "the data directory is an old copy", "disk is full", "disk failed", "no space left", "the node ends"}

// complaints are what a node has said of damage and losses. A stop that was cut short is none: a node may be slow, and it is killed
// all the time.
func complaints(m *member) string {
	var said strings.Builder
	for line := range strings.Lines(m.process.Complaints()) {
		if !slices.ContainsFunc(expected, func(what string) bool { return strings.Contains(line, what) }) {
			said.WriteString(line)
		}
	}
	return said.String()
}

// round does harm for some time, or until look says that something is wrong.
func (f *faults) round(ctx context.Context, length time.Duration, look func() bool) {
	harming, heal := context.WithTimeout(ctx, length)
	defer heal()
	harmed := make(chan struct{})
	go func() { f.run(harming); close(harmed) }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-harmed:
			return
		case <-tick.C:
			if !look() {
				heal()
			}
		}
	}
}

// recovered returns when all is as it was before the faults: each way through the cluster, and the clients by themselves.
func recovered(ctx context.Context, c *cluster, h *history, l *load) error {
	for _, m := range c.members {
		if err := m.ended(); err != nil {
			return err
		}
		if _, err := m.process.Ready(patience); err != nil {
			return fmt.Errorf("all is well again, but node %d does not serve: %w", m.number, err)
		}
	}
	if err := eventually(ctx, patience, func() error {
		ctx, cancel := context.WithTimeout(ctx, patience/4)
		defer cancel()
		return c.probe(ctx)
	}); err != nil {
		return fmt.Errorf("all is well again, but nothing is confirmed: %w", err)
	}
	before, streams, classics := h.counted().confirmed, l.streams.Counts().Confirmed, l.classics.confirmedSoFar()
	return eventually(ctx, patience, func() error {
		n, s := h.counted().confirmed-before, l.streams.Counts().Confirmed-streams
		if n < 50 || s < 50 {
			return fmt.Errorf("all is well again, but the clients have only %d messages confirmed in %v, and %d to streams", n, patience, s)
		}
		for i, n := range l.classics.confirmedSoFar() {
			if n < classics[i]+10 {
				return fmt.Errorf("all is well again, but the clients have only %d messages to %s confirmed in %v", n-classics[i], classicName(i), patience)
			}
		}
		return nil
	})
}

// finish empties the queues when the clients have gone, looks at the topology, compares the replicas, and stops the nodes.
func finish(ctx context.Context, c *cluster, h *history, l *load, r *result) error {
	if err := eventually(ctx, patience, func() error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := drain(ctx, h, c.members[h.counted().published%len(c.members)].address()); err != nil {
			return err
		}
		// What a node took from a publisher that is gone may come into a queue only now, and nobody was told anything of it.
		return eventually(ctx, patience/20, c.emptied)
	}); err != nil {
		return err
	}
	for i := range queues {
		h.add(event{kind: drained, queue: uint8(i)})
	}
	if err := eventually(ctx, patience, func() error { return l.classics.drain(ctx, c.members[0].address()) }); err != nil {
		return err
	}
	for i := range c.members {
		l.classics.drained(i)
	}
	t := &l.topology
	r.changes = t.n
	if err := eventually(ctx, patience/2, func() (err error) {
		for _, m := range c.members {
			err = errors.Join(err, t.verify(c, m))
		}
		return err
	}); err != nil {
		return err
	}
	slots := 0
	err := eventually(ctx, patience/2, func() (err error) {
		slots, err = c.compared()
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("the replicas differ: %w", err)
	case slots == 0 && len(c.members) > 1:
		return errors.New("the nodes do not tell of their replicas")
	case slots == 0:
		r.compared = "replicas not compared"
	default:
		r.compared = fmt.Sprintf("%d slots equal on %d nodes", slots, len(c.members))
	}
	for _, m := range c.members { // from first to last, each from its own replica
		reader := &streams.Client{Connect: func(ctx context.Context) (*amqp.Connection, *amqp.Channel, func(), error) {
			return open(ctx, m.address(), 10*time.Second)
		}}
		if err := eventually(ctx, patience/2, func() error { return l.streams.Drain(ctx, reader) }); err != nil {
			return fmt.Errorf("node %d: %w", m.number, err)
		}
	}
	return c.stop()
}

// err is what a result says against the nodes, nil if nothing.
func (r *result) err() error {
	if len(r.wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(r.wrong, "\n"))
}

func (r *result) String() string {
	c := &r.counts
	return fmt.Sprintf("%d faults in %v: %d messages published, %d confirmed, %d refused, %d deliveries (%d redelivered), %d settled, %d of them for sure; %d queues and exchanges come and gone; recovery within %v; %s; %s; %d promises broken",
		r.faults, r.took.Round(time.Second), c.Published, c.Confirmed, c.Refused, c.Delivered, c.Redelivered, c.Acked, c.Safe, r.changes, r.recovery.Round(time.Millisecond), r.compared, strings.Join(r.more, "; "), len(r.wrong))
}
