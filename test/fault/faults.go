package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// faultKind is what is done to the nodes.
type faultKind uint8

const (
	killOne    faultKind = iota
	killLeader           // of some queue
	pauseOne
	restartOne // in order
	restartAll // killed at once
	isolate    // one node from all others
	oneWay     // what one node sends to another, or to all others, is lost
	apart      // two nodes, which a third one still reaches
	flap       // a node is isolated and not, many times
	strand     // a node is isolated, and killed before it is reached again
	rejoin     // a node is killed, forgotten, and joins with an empty directory
	oldCopy    // a node is started on an old copy of its directory, and refused
	fullDisk
	slowDisk // each sync takes long, and then the node is killed
	clockOff // a node is killed, and starts with another time
)

var faultNames = [...]string{"kill", "kill the leader", "pause", "stop and start", "kill all", "isolate", "one way", "apart", "flap", "strand", "rejoin", "old copy", "full disk", "slow disk", "clock"}

// faults does harm to a cluster, one thing after the other in each of its lanes. What is done when follows from the seed.
type faults struct {
	*cluster
	h        *history
	classics *classics
	seed     uint64 // of the round
	only     string // the kinds of faults that there are, by their names; empty: all
	say      func(string, ...any)
}

// run goes on until ctx ends. When it returns all nodes run and reach each other.
func (f *faults) run(ctx context.Context) {
	var lanes sync.WaitGroup
	for lane := range 2 {
		lanes.Go(func() {
			rng := rand.New(rand.NewPCG(f.seed, uint64(10+lane)))
			wait(ctx, time.Duration(500+3000*lane)*time.Millisecond)
			for ctx.Err() == nil {
				if err := f.one(ctx, rng); err != nil {
					f.h.fail("%v", err)
					return
				}
				wait(ctx, between(rng, 300*time.Millisecond, time.Duration(2500+6000*lane)*time.Millisecond))
			}
		})
		if len(f.members) == 1 {
			break
		}
	}
	lanes.Wait()
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// one does one thing, and makes it good again. An error is about the nodes.
func (f *faults) one(ctx context.Context, rng *rand.Rand) error {
	of := []faultKind{killOne, killOne, killOne, pauseOne, restartOne}
	if len(f.members) > 1 {
		of = []faultKind{killOne, killOne, killLeader, killLeader, killLeader, pauseOne, pauseOne, restartOne, restartAll,
			isolate, isolate, oneWay, oneWay, oneWay, apart, flap, flap, strand, strand, rejoin, rejoin, oldCopy,
			fullDisk, fullDisk, slowDisk, slowDisk, clockOff, clockOff}
	}
	if f.only != "" {
		of = of[:0]
		for _, name := range strings.Split(f.only, ",") {
			of = append(of, faultKind(slices.Index(faultNames[:], name)))
		}
	}
	// All that is random is asked for first, so that what follows is the same whatever happens.
	what, i, j := of[rng.IntN(len(of))], rng.IntN(len(f.members)), rng.IntN(len(f.members))
	queue, length, pace := queues[rng.IntN(len(queues))].name, between(rng, 100*time.Millisecond, 3*time.Second), rng.Uint64()
	m := f.members[i]
	if what == killLeader {
		if x := f.leader(queue); x != nil {
			m = x
		}
	}
	by := f.members[m.number%len(f.members)]
	if what == fullDisk { // the one that has a small one
		if m = f.members[len(f.members)-1]; m.disk == "" {
			return nil
		}
	}
	others := func(yield func(int) bool) {
		for _, x := range f.members {
			if x != m && !yield(x.number) {
				return
			}
		}
	}
	switch what {
	case killOne, killLeader, restartOne, pauseOne, strand, rejoin, oldCopy, fullDisk, slowDisk, clockOff:
		if !m.busy.TryLock() {
			return nil
		}
		defer m.busy.Unlock()
	}
	say := func(format string, args ...any) {
		f.say("%s", f.h.note("%s: %s", faultNames[what], fmt.Sprintf(format, args...)))
	}
	switch what {
	case killOne, killLeader:
		say("node %d for %v", m.number, length)
		if err := m.kill(); err != nil {
			return fmt.Errorf("node %d: %w", m.number, err)
		}
		if what == killOne && length > 2*time.Second {
			f.classics.isDown(ctx, m.number-1, by.address())
		}
		wait(ctx, length)
		return m.start()
	case rejoin:
		release, ok := f.hold(m)
		if !ok {
			return nil
		}
		say("node %d, by node %d", m.number, by.number)
		if err := m.kill(); err != nil {
			release()
			return fmt.Errorf("node %d: %w", m.number, err)
		}
		return f.rejoin(ctx, m, by, release)
	case oldCopy:
		say("node %d, %v old, then anew: %v", m.number, length, pace%2 == 0)
		return f.old(ctx, m, by, length, pace%2 == 0)
	case fullDisk:
		say("node %d for %v", m.number, 2*length)
		return f.fill(ctx, m, 2*length)
	case slowDisk:
		say("node %d, %v for a sync", m.number, length/20)
		return f.slow(ctx, m, length)
	case clockOff:
		jump := time.Duration(int64(pace%7)-3) * time.Hour
		say("node %d, %v", m.number, jump)
		return f.jump(ctx, m, jump, length)
	case restartOne:
		say("node %d", m.number)
		m.end()
		if err := m.process.Stop(); err != nil {
			return fmt.Errorf("node %d: %w", m.number, err)
		}
		wait(ctx, length/4)
		return m.start()
	case pauseOne:
		length = time.Second + length*7/3
		say("node %d for %v", m.number, length)
		if err := m.pause(); err != nil {
			return fmt.Errorf("node %d: %w", m.number, err)
		}
		wait(ctx, length)
		return m.resume()
	case restartAll:
		for k, x := range f.members {
			if !x.busy.TryLock() {
				for _, y := range f.members[:k] {
					y.busy.Unlock()
				}
				return nil
			}
		}
		say("and start them within %v", length)
		for _, x := range f.members {
			defer x.busy.Unlock()
			if err := x.kill(); err != nil {
				return fmt.Errorf("node %d: %w", x.number, err)
			}
		}
		for _, k := range rand.New(rand.NewPCG(pace, 1)).Perm(len(f.members)) {
			wait(ctx, length/4)
			if err := f.members[k].start(); err != nil {
				return err
			}
		}
		return nil
	}
	// The others are of the network.
	length *= 3
	var cuts [][2]int
	switch {
	case what == oneWay && i != j:
		cuts = append(cuts, [2]int{m.number, f.members[j].number})
	case what == oneWay:
		for x := range others {
			cuts = append(cuts, [2]int{m.number, x})
		}
		if pace%2 == 0 { // it hears nothing, instead of not being heard
			for k := range cuts {
				cuts[k][0], cuts[k][1] = cuts[k][1], cuts[k][0]
			}
		}
	case what == apart:
		x := f.members[j].number
		if i == j {
			x = f.members[(j+1)%len(f.members)].number
		}
		cuts = append(cuts, [2]int{m.number, x}, [2]int{x, m.number})
	default:
		for x := range others {
			cuts = append(cuts, [2]int{m.number, x}, [2]int{x, m.number})
		}
	}
	say("%v for %v", cuts, length)
	switch what {
	case strand:
		err := f.during(ctx, cuts, func() error {
			wait(ctx, length/3)
			return m.kill()
		})
		wait(ctx, length/6)
		return errors.Join(err, m.start())
	case flap:
	default:
		return f.during(ctx, cuts, func() error { wait(ctx, length); return nil })
	}
	beat := rand.New(rand.NewPCG(pace, 2))
	for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; {
		if err := f.during(ctx, cuts, func() error {
			wait(ctx, between(beat, 50*time.Millisecond, 900*time.Millisecond))
			return nil
		}); err != nil {
			return err
		}
		wait(ctx, between(beat, 20*time.Millisecond, 500*time.Millisecond))
	}
	return nil
}

// hold keeps processes but one running, until release: nobody forgets a member while another one is down. ok is false where one is.
func (f *faults) hold(but *member) (release func(), ok bool) {
	var held []*member
	release = func() {
		for _, m := range held {
			m.busy.Unlock()
		}
	}
	for _, m := range f.members {
		if m == but {
			continue
		}
		if !m.busy.TryLock() {
			release()
			return nil, false
		}
		held = append(held, m)
	}
	return release, true
}

// during cuts, does something and heals.
func (f *faults) during(ctx context.Context, cuts [][2]int, do func() error) error {
	for _, c := range cuts {
		if err := f.cut(c[0], c[1]); err != nil {
			return err
		}
	}
	err := do()
	for _, c := range cuts {
		err = errors.Join(err, f.heal(c[0], c[1]))
	}
	return err
}
