package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/clients"
	warren "github.com/warrenmq/warren/test/node"
	"github.com/warrenmq/warren/test/streams"
)

// streamLoad is what clients do with streams, over the lives of a node.
type streamLoad struct {
	h          *streams.History
	rng        *rand.Rand
	publishers [4]streams.Publisher
}

// client is one of a node at an address.
func (l *streamLoad) client(address string) *streams.Client {
	return &streams.Client{Rng: rand.New(rand.NewPCG(l.rng.Uint64(), 2)), Connect: func(ctx context.Context) (*amqp.Connection, *amqp.Channel, func(), error) {
		return clients.Open(ctx, address, clients.Options{Patience: 5 * time.Second})
	}}
}

// life runs clients until ctx ends.
func (l *streamLoad) life(ctx context.Context, address string) {
	var running sync.WaitGroup
	run := func(f func(context.Context, *streams.Client)) {
		c := l.client(address)
		running.Go(func() { f(ctx, c) })
	}
	for i := range l.publishers {
		run(func(ctx context.Context, c *streams.Client) { l.h.Publish(ctx, c, &l.publishers[i]) })
	}
	for s := range streams.Plan {
		run(func(ctx context.Context, c *streams.Client) { l.h.Consume(ctx, c, s) })
		run(func(ctx context.Context, c *streams.Client) { l.h.Read(ctx, c, s) })
	}
	running.Wait()
}

// declareStreams makes the streams.
func declareStreams(address string) error {
	_, ch, cut, err := clients.Open(context.Background(), address, clients.Options{Patience: 5 * time.Second})
	if err != nil {
		return err
	}
	defer cut()
	return streams.Declare(ch)
}

// drillStreams is drill for streams.
func drillStreams(n node, wrong *history, h *streams.History, o options) (r result, err error) {
	wrong.start = time.Now()
	rng := rand.New(rand.NewPCG(o.seed, 3))
	l := &streamLoad{h: h, rng: rand.New(rand.NewPCG(o.seed, 1))}
	for i := range l.publishers {
		l.publishers[i] = streams.Publisher{Number: i + 1, Pause: 5 * time.Millisecond}
	}
	defer func() { r.took = time.Since(wrong.start); r.wrong = wrong.wrong }()
	begin := func() (string, error) {
		t := time.Now()
		address, err := n.start()
		if err == nil {
			r.starts = max(r.starts, time.Since(t))
			err = declareStreams(address)
		}
		if err != nil {
			return "", fmt.Errorf("start after %d kills: %w\n%s", r.kills, err, n.complaints())
		}
		return address, nil
	}
	for r.kills < o.kills && len(wrong.wrong) == 0 {
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
		if rng.IntN(8) == 0 { // in order, for once
			r.clean++
			cancel()
			<-done
			err = n.stop()
		} else {
			r.kills++
			err = n.kill()
			cancel()
			<-done
		}
		cancel()
		if err != nil {
			return r, fmt.Errorf("after %d kills: %w\n%s", r.kills, err, n.complaints())
		}
		if rng.IntN(10) == 0 { // once more while it starts
			r.kills++
			if err := n.interrupt(time.Duration(rng.Int64N(int64(400 * time.Millisecond)))); err != nil {
				return r, err
			}
		}
		if r.kills%50 == 0 {
			o.say("%d kills, %d messages, %v", r.kills, h.Counts().Published, time.Since(wrong.start).Round(time.Second))
		}
	}
	address, err := begin()
	if err != nil {
		return r, err
	}
	if err := h.Drain(context.Background(), l.client(address)); err != nil {
		return r, fmt.Errorf("%w\n%s", err, n.complaints())
	}
	if err := n.stop(); err != nil {
		return r, fmt.Errorf("%w\n%s", err, n.complaints())
	}
	if said := n.complaints(); said != "" {
		wrong.fail("the node complained:\n%s", said)
	}
	return r, nil
}

// runStreams is run for streams.
func runStreams(dir string, o options, tags []string, sabotage string) (string, error) {
	binary := filepath.Join(dir, "warren")
	if err := warren.Build(binary, tags...); err != nil {
		return "", err
	}
	wrong := &history{}
	h := streams.NewHistory(wrong.fail)
	r, err := drillStreams(newProcess(binary, dir, "", "WARREN_SABOTAGE="+sabotage), wrong, h, o)
	if err == nil {
		err = r.err()
	}
	return fmt.Sprintf("%d kills and %d orderly stops in %v: %v; longest start %v; %d promises broken",
		r.kills, r.clean, r.took.Round(time.Second), h, r.starts.Round(time.Millisecond), len(r.wrong)), err
}
