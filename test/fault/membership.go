package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/warrenmq/warren/test/netns"
)

const (
	exitData = 65 // of a node whose data directory cannot be used
	exitDisk = 74 // of one whose disk failed
	exitFull = 75 // of one that does not start on a full disk
	// roomy is how large the small disk is while it is not full.
	roomy = 8 << 30
)

// data is what a member's directory is called; that of the one with a disk of its own is on it.
func (m *member) data() string { return m.process.DataDir() }

// forgetFor is how long a member that is down is asked to be forgotten. Without it there may be no majority of a slot, as others have
// no vote there yet: then it is needed, and must come back.
const forgetFor = 20 * time.Second

// forget removes a member that is down, by asking another one until it does, or has refused for long.
func (f *faults) forget(ctx context.Context, m, by *member) (refused bool, err error) {
	until := time.Now().Add(forgetFor)
	err = eventually(ctx, patience, func() error {
		r, err := http.NewRequest("DELETE", fmt.Sprintf("http://%s:%d/api/warren/cluster/%s", host(by.number), portHTTP, m.name()), nil)
		if err != nil {
			return err
		}
		r.SetBasicAuth("guest", "guest")
		a, err := f.api.Do(r)
		if err != nil {
			return err
		}
		defer a.Body.Close()
		why, _ := io.ReadAll(a.Body)
		switch {
		case a.StatusCode == http.StatusNoContent, a.StatusCode == http.StatusNotFound: // or by an attempt without an answer
			return nil
		case a.StatusCode == http.StatusBadRequest && time.Now().After(until):
			f.say("node %d does not forget node %d: %s", by.number, m.number, why)
			refused = true
			return nil
		}
		return fmt.Errorf("%s: %s", a.Status, why)
	})
	if err != nil {
		return false, fmt.Errorf("node %d does not forget node %d: %w", by.number, m.number, err)
	}
	return refused, nil
}

// rejoin forgets a member that is down, and has it join with an empty directory, under its name. Its classic queue is made again.
// The others, which were held, are released when it is forgotten.
func (f *faults) rejoin(ctx context.Context, m, by *member, release func()) error {
	ctx = context.WithoutCancel(ctx) // it must be whole at the end
	refused, err := f.forget(ctx, m, by)
	release()
	if err != nil {
		return err
	}
	if refused {
		return m.start()
	}
	f.classics.lost(m.number - 1)
	entries, err := os.ReadDir(m.data())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(m.data(), e.Name())); err != nil {
			return err
		}
	}
	m.join(by)
	// While the others have no majority it is not taken in, and ends: whoever runs it starts it again.
	if err := eventually(ctx, patience, func() error {
		if err := m.process.Launch(); err != nil {
			return err
		}
		_, err := m.process.Ready(patience)
		return err
	}); err != nil {
		return fmt.Errorf("node %d does not join again: %w", m.number, err)
	}
	m.mu.Lock()
	m.up = true
	m.mu.Unlock()
	err = eventually(ctx, patience, func() error {
		_, ch, cut, err := open(ctx, m.address(), 10*time.Second)
		if err != nil {
			return err
		}
		defer cut()
		return declareClassic(ch, m.number-1)
	})
	if err != nil {
		return fmt.Errorf("node %d has joined again, and does not take its queue: %w", m.number, err)
	}
	return nil
}

// old starts a member on a copy of its directory that was made before it ran last. It must not be taken in.
func (f *faults) old(ctx context.Context, m, by *member, length time.Duration, anew bool) error {
	m.end()
	if err := m.process.Stop(); err != nil {
		return fmt.Errorf("node %d: %w", m.number, err)
	}
	image := m.data() + ".image"
	if err := copyDir(m.data(), image); err != nil {
		return err
	}
	if err := m.start(); err != nil {
		return err
	}
	if _, err := m.process.Ready(patience); err != nil {
		return fmt.Errorf("node %d: %w", m.number, err)
	}
	wait(ctx, length)
	if err := m.kill(); err != nil {
		return fmt.Errorf("node %d: %w", m.number, err)
	}
	now := m.data() + ".now"
	if err := errors.Join(os.Rename(m.data(), now), os.Rename(image, m.data()), m.process.Launch()); err != nil {
		return err
	}
	_, err := m.process.Ready(patience)
	how := m.process.Ended()
	if err == nil || how == nil {
		return errors.Join(fmt.Errorf("node %d serves, or waits, on an old copy of its directory", m.number), m.process.Kill())
	}
	log, err := os.ReadFile(filepath.Join(m.process.Dir, "log"))
	if err != nil {
		return err
	}
	if how.ExitCode() != exitData || !bytes.Contains(log, []byte("the data directory is an old copy")) {
		return fmt.Errorf("node %d, started on an old copy of its directory, ends with %v", m.number, how)
	}
	if err := os.RemoveAll(m.data()); err != nil {
		return err
	}
	if err := os.Rename(now, m.data()); err != nil {
		return err
	}
	if anew {
		if release, ok := f.hold(m); ok {
			return f.rejoin(ctx, m, by, release)
		}
	}
	return m.start() // the directory that it had last
}

// copyDir copies a directory without what files have set aside.
func copyDir(from, to string) error {
	if out, err := exec.Command("cp", "-a", "--sparse=always", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}

// fill has the disk of a member be full for a while. The member goes on, or ends with the code that says so.
func (f *faults) fill(ctx context.Context, m *member, length time.Duration) error {
	m.end()
	if err := netns.Fill(m.disk); err != nil {
		return err
	}
	wait(ctx, length)
	how := m.process.Ended()
	if err := netns.Widen(m.disk, roomy); err != nil {
		return err
	}
	if how == nil { // it may find out only now
		wait(ctx, length/4)
		how = m.process.Ended()
	}
	switch {
	case how == nil:
		m.mu.Lock()
		m.up = true
		m.mu.Unlock()
		return nil
	case how.ExitCode() == exitDisk, how.ExitCode() == exitFull:
		return m.start()
	}
	return fmt.Errorf("node %d, whose disk was full, ended with %v\n%s", m.number, how, m.process.Complaints())
}

// inject says what goes wrong with a member's machine: its clock, and its disk.
func (m *member) inject(clock, sync time.Duration) error {
	text := fmt.Sprintln(clock.Milliseconds(), sync.Milliseconds())
	next := m.injected() + ".next"
	return errors.Join(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, m.injected()))
}

// slow has each sync of a member's disk take long for a while, and kills it then.
func (f *faults) slow(ctx context.Context, m *member, length time.Duration) error {
	if err := m.inject(m.clock, length/20); err != nil {
		return err
	}
	wait(ctx, 2*length)
	if err := m.kill(); err != nil {
		return fmt.Errorf("node %d: %w", m.number, err)
	}
	if err := m.inject(m.clock, 0); err != nil {
		return err
	}
	return m.start()
}

// jump kills a member, and starts it with a clock that is wrong by hours, or right again.
func (f *faults) jump(ctx context.Context, m *member, by, length time.Duration) error {
	if err := m.kill(); err != nil {
		return fmt.Errorf("node %d: %w", m.number, err)
	}
	m.clock = by
	if err := m.inject(by, 0); err != nil {
		return err
	}
	if err := m.start(); err != nil {
		return err
	}
	wait(ctx, length)
	m.clock = 0
	return m.inject(0, 0) // streams look at once, queues at the next start
}
