package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// failover kills the leader of a queue again and again, and prints how long a publisher at a node that survives has to wait for
// the next confirm of a message that it published after the kill.
func failover(ctx context.Context, c *cluster, times int) error {
	if len(c.members) < 3 {
		return errors.New("a failover takes three nodes")
	}
	var took []time.Duration
	for range times {
		d, err := failoverOnce(ctx, c, queues[len(took)%len(queues)].name)
		if err != nil {
			return fmt.Errorf("after %d kills: %w", len(took), err)
		}
		took = append(took, d)
		fmt.Printf("%3d  %v\n", len(took), d.Round(time.Millisecond))
	}
	slices.Sort(took)
	fmt.Printf("kill of the leader to the next confirm, %d times: min %v, median %v, max %v\n", times,
		took[0].Round(time.Millisecond), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	return c.stop()
}

func failoverOnce(ctx context.Context, c *cluster, queue string) (time.Duration, error) {
	var leader *member
	if err := eventually(ctx, patience, func() error {
		for _, m := range c.members {
			q, err := c.queue(m, queue)
			if err == nil && len(q.Online) < len(c.members) {
				err = fmt.Errorf("node %d has only %v of %s online", m.number, q.Online, queue)
			}
			if err != nil {
				return err
			}
		}
		if leader = c.leader(queue); leader == nil {
			return fmt.Errorf("%s has no leader", queue)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	survivor := c.members[leader.number%len(c.members)]
	_, ch, cut, err := open(ctx, survivor.address(), 30*time.Second)
	if err != nil {
		return 0, err
	}
	defer cut()
	if err := ch.Confirm(false); err != nil {
		return 0, err
	}
	if _, err := ch.QueuePurge(queue, false); err != nil {
		return 0, err
	}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 1<<16))
	var mu sync.Mutex
	var sent uint64
	publishing, rest := context.WithCancel(ctx)
	published := make(chan error, 1)
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-publishing.Done():
				published <- nil
				return
			case <-tick.C:
			}
			mu.Lock()
			sent++
			mu.Unlock()
			if err := ch.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: make([]byte, 100)}); err != nil {
				published <- err
				return
			}
		}
	}()
	defer func() {
		rest()
		cut()
		<-published
	}()
	next := func() (amqp.Confirmation, error) {
		select {
		case k, ok := <-confirms:
			if !ok {
				return k, errors.New("the connection was lost")
			}
			return k, nil
		case <-time.After(patience):
			return amqp.Confirmation{}, fmt.Errorf("nothing was confirmed for %v", patience)
		}
	}
	for range 100 {
		if _, err := next(); err != nil {
			return 0, err
		}
	}
	if err := leader.kill(); err != nil {
		return 0, err
	}
	killed := time.Now()
	mu.Lock()
	mark := sent
	mu.Unlock()
	var took time.Duration
	for took == 0 {
		k, err := next()
		if err != nil {
			return 0, err
		}
		if k.Ack && k.DeliveryTag > mark {
			took = time.Since(killed)
		}
	}
	if err := leader.start(); err != nil {
		return 0, err
	}
	_, err = leader.process.Ready(patience)
	return took, err
}
