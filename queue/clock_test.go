package queue

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/test/seeds"
)

// meeting notes when its appointment was kept.
type meeting struct {
	t *testing.T

	mu   sync.Mutex // guards what follows
	a    Appointment
	at   Time // asked for; 0: nothing
	late Time // the latest that one was kept
}

func (k *meeting) set(c *Clock, at Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at == 0 || at < k.at {
		k.at = at
		c.Set(&k.a, k, at)
	}
}

func (k *meeting) drop(c *Clock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.Drop(&k.a)
	k.at = 0
}

// overdue reports whether somebody should have woken it.
func (k *meeting) overdue(now Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at != 0 && now > k.at+Time(clockStep.Milliseconds())
}

func (k *meeting) latest() Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.late
}

func (k *meeting) Tick(now Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at == 0 || now < k.at {
		k.t.Errorf("woken at %d, asked for %d", now, k.at)
	}
	k.late = max(k.late, now-k.at)
	k.at = 0
}

// Appointments come, change to earlier, and are dropped; each of them is kept in time, whatever the clock waited for.
func TestClockKeepsAppointments(t *testing.T) {
	seed := seeds.Of(t)
	r := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		defer c.Close()
		all := make([]meeting, 20)
		for i := range all {
			all[i].t = t
		}
		step := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
			for i := range all {
				if all[i].overdue(c.Now()) {
					t.Fatalf("at %d appointment %d was not kept", c.Now(), i)
				}
			}
		}
		for range 5000 {
			k := &all[r.IntN(len(all))]
			switch d := Time(r.ExpFloat64() * 200); {
			case r.IntN(4) == 0:
				k.drop(c)
			case r.IntN(20) == 0:
				d *= 100_000 // past the hour that the clock waits at most
				fallthrough
			default:
				k.set(c, c.Now()+max(1, d))
			}
			step(time.Duration(r.IntN(30)) * time.Millisecond)
			if r.IntN(500) == 0 {
				step(2 * time.Hour)
			}
		}
		for i := range all {
			if k := &all[i]; k.latest() > Time(clockStep.Milliseconds()) {
				t.Errorf("an appointment was kept %d ms late", k.latest())
			}
		}
	})
}

// The clock is not disturbed for what comes after what it waits for, even if that has been dropped.
func TestClockSleepsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		defer c.Close()
		first, later := meeting{t: t}, meeting{t: t}
		at := c.Now() + 10_000
		first.set(c, at)
		synctest.Wait()
		first.drop(c)
		later.set(c, at+1)
		c.mu.Lock()
		if c.look != at {
			t.Errorf("waits for %d instead of %d", c.look, at)
		}
		c.mu.Unlock()
		time.Sleep(10_000*time.Millisecond + 2*clockStep)
		synctest.Wait()
		if later.overdue(at + 1_000_000) {
			t.Error("not woken")
		}
	})
}
