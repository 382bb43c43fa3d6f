package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary stand in for a broker in a process of its own: with STAND_IN=ADDRESS it
// serves there, with the messages of the file in STAND_IN_STORE.
func TestMain(m *testing.M) {
	address := os.Getenv("STAND_IN")
	if address == "" {
		os.Exit(m.Run())
	}
	b := &fakeBroker{copies: func(uint64) int { return 1 }, store: os.Getenv("STAND_IN_STORE")}
	data, _ := os.ReadFile(b.store)
	for len(data) > 0 {
		n := 4 + binary.BigEndian.Uint32(data)
		b.accept(data[4:n])
		data = data[n:]
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go b.serve(c)
	}
}

// appendTo writes a message to a file, its length before it.
func appendTo(path string, body []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// startStandIn starts a broker process and returns a workload for it, a meter that follows it, and the
// command that starts another in its place.
func startStandIn(t *testing.T) (w workload, m *meter, command string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command = fmt.Sprintf("STAND_IN=%s STAND_IN_STORE='%s' exec '%s'", address, filepath.Join(t.TempDir(), "store"), self)
	first := exec.Command("sh", "-c", command)
	first.Stderr = os.Stderr
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { first.Process.Kill(); first.Wait() })
	w = presets()["backlog"].workload
	w.endpoint = endpoint{address, "guest", "guest", "/"}
	w.Messages, w.Confirm, w.Restart = 1000, 100, command
	r := &restart{ended: make(chan struct{})}
	r.started = time.Now()
	if err := r.awaitConnection(w.endpoint); err != nil {
		t.Fatal(err)
	}
	return w, &meter{broker: &processTree{root: first.Process.Pid}}, command
}

func TestRestartFindsWhatWasConfirmed(t *testing.T) {
	for _, gently := range []bool{false, true} {
		w, m, _ := startStandIn(t)
		w.RestartGently = gently
		old := m.broker.root
		r, err := runLoad(&w, m)
		if err != nil {
			t.Fatal(err)
		}
		if want := (verdict{Sent: 1000, Expected: 1000, Received: 1000}); r.Verdict != want {
			t.Errorf("%+v, want %+v", r.Verdict, want)
		}
		if s := r.Restart; s.Connected <= 0 || s.FirstDelivery < s.Connected || s.Signal != map[bool]string{false: "KILL", true: "TERM"}[gently] {
			t.Errorf("%+v", s)
		}
		if now := m.broker.rootPid(); now == old || !gone(old) || !gone(now) {
			t.Errorf("process %d, then %d; gone: %v, %v", old, now, gone(old), gone(now))
		}
	}
}

func TestRestartThatForgetsIsLoss(t *testing.T) {
	w, m, command := startStandIn(t)
	store := command[strings.Index(command, "STORE='")+len("STORE='"):]
	store, _, _ = strings.Cut(store, "'")
	w.Restart = "truncate -s $((20 * (128 + 4))) '" + store + "'; " + command
	w.stall = 200 * time.Millisecond
	r, err := runLoad(&w, m)
	if err != nil {
		t.Fatal(err)
	}
	if want := (verdict{Sent: 1000, Expected: 1000, Received: 20, Lost: 980}); r.Verdict != want {
		t.Errorf("%+v, want %+v", r.Verdict, want)
	}
}

func TestRestartThatFails(t *testing.T) {
	w, m, _ := startStandIn(t)
	w.Restart = "exit 3"
	if _, err := runLoad(&w, m); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v", err)
	}
	if _, err := restartBroker(&w, &meter{}); err == nil {
		t.Error("a restart of a broker that is not known")
	}
}

func TestGoneProcesses(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if gone(child.Process.Pid) {
		t.Error("a process that runs is gone")
	}
	child.Process.Kill()
	child.Wait()
	if !gone(child.Process.Pid) {
		t.Error("a process that was killed is not gone")
	}
}
