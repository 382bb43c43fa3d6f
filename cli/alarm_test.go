package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/storage"
)

// watched is a watch over figures that a test sets.
type watched struct {
	watch
	alarm     broker.Alarms
	used      uint64
	room      uint64
	asked     int // how often the disk was looked at
	statfs    error
	refused   error
	log       bytes.Buffer
	fs        *storage.FaultFS
	time      time.Time
	lastAsked int
}

func watchOver(t *testing.T, ballast int64) *watched {
	w := &watched{fs: storage.NewFaultFS(1), time: time.Unix(1e9, 0), used: 10, room: 10 << 30}
	b, err := storage.OpenBallast(w.fs, ".", ballast)
	if err != nil {
		t.Fatal(err)
	}
	w.watch = watch{
		alarms: &w.alarm, ballast: b, log: slog.New(slog.NewTextHandler(&w.log, nil)),
		memory: func() uint64 { return w.used }, maxMemory: 100, minFree: 50_000_000,
		free:      func() (uint64, error) { w.asked++; return w.room, w.statfs },
		unwritten: func() error { return w.refused },
	}
	return w
}

// after lets time go by and looks.
func (w *watched) after(d time.Duration) broker.Alarm {
	w.time = w.time.Add(d)
	w.look(w.time)
	return w.alarm.On()
}

func TestMemoryAlarm(t *testing.T) {
	w := watchOver(t, 0)
	for _, step := range []struct {
		used uint64
		want broker.Alarm
	}{{100, 0}, {101, broker.MemoryAlarm}, {200, broker.MemoryAlarm}, {100, 0}} {
		if w.used = step.used; w.after(time.Second) != step.want {
			t.Errorf("%d used: %v", step.used, w.alarm.On().Names())
		}
	}
	if n := strings.Count(w.log.String(), "alarm=memory"); n != 2 {
		t.Errorf("it was told %d times:\n%s", n, &w.log)
	}
}

func TestDiskAlarm(t *testing.T) {
	w := watchOver(t, 0)
	w.after(0)
	w.room = 1 // not seen before ten seconds have gone by
	if w.after(9*time.Second) != 0 || w.asked != 1 {
		t.Errorf("the disk was looked at %d times", w.asked)
	}
	if w.after(time.Second) != broker.DiskAlarm {
		t.Error("no alarm")
	}
	w.room = 50_000_000 // RabbitMQ's alarm is below the limit
	if w.after(time.Second) != 0 {
		t.Error("the alarm stays")
	}
	asked := w.asked
	w.after(time.Second) // near the limit: each second
	if w.asked != asked+1 {
		t.Error("near its limit the disk was not looked at")
	}
	w.room, w.statfs = 0, errors.New("gone")
	for range 3 {
		if w.after(time.Second) != 0 {
			t.Error("an alarm from nothing")
		}
	}
	if n := strings.Count(w.log.String(), "error=gone"); n != 1 {
		t.Errorf("it was told %d times", n)
	}
}

// TestBallastOfAWatch: it is made when there is room; given up, its room is not counted, and it is made again.
func TestBallastOfAWatch(t *testing.T) {
	w := watchOver(t, 1<<20)
	w.room = 50_000_000 + 1<<20 - 1
	if w.fill(); w.ballast.Held() {
		t.Fatal("made where it raises the alarm")
	}
	w.room++
	if w.fill(); !w.ballast.Held() {
		t.Fatal("not made")
	}
	w.room = 50_000_001
	if w.after(20*time.Second) != 0 {
		t.Fatal(w.alarm.On().Names())
	}
	w.ballast.GiveUp()
	w.room += 1 << 20 // what the file took
	if on := w.after(time.Second); on != broker.StorageAlarm {
		t.Error(on.Names())
	}
	w.room -= 2
	if on := w.after(10 * time.Second); on != broker.StorageAlarm|broker.DiskAlarm {
		t.Error(on.Names())
	}
	if w.fill(); w.ballast.Held() {
		t.Error("made again too early")
	}
	w.room = 1 << 30
	w.refused = errors.New("no")
	if w.fill(); w.ballast.Held() {
		t.Error("made while nothing can be written")
	}
	w.refused = nil
	w.fill()
	if on := w.after(time.Second); on != 0 {
		t.Error(on.Names())
	}
}

// TestAlarmsOfACluster: an alarm of any node blocks the publishers of all until the last one is gone, and they are told once (case
// CU-01).
func TestAlarmsOfACluster(t *testing.T) {
	short := []string{"--set", "vm_memory_high_watermark.absolute=1"}
	c := runClusterOf(t, short, short, nil)
	alarms := &c.list[2].engine.(*rooms).alarms
	until(t, "the third node hears of it", func() error {
		if on := alarms.On(); on != broker.MemoryAlarm || alarms.Own() != 0 {
			return fmt.Errorf("it has %v, of its own %v", on.Names(), alarms.Own().Names())
		}
		return nil
	})
	conn, ch := c.list[2].dial()
	told := conn.NotifyBlocked(make(chan amqp091.Blocking, 10))
	if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	confirm, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp091.Publishing{Body: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	hears := func(active bool, reason string) {
		t.Helper()
		select {
		case b := <-told:
			if b.Active != active || b.Reason != reason {
				t.Fatalf("told %+v", b)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the publisher was not told")
		}
	}
	hears(true, "low on memory")
	if code, out, _ := c.list[2].command("", "status"); code != 0 || !strings.Contains(out, "blocked by an alarm: of another node") {
		t.Error(code, out)
	}

	c.list[0].stop()
	until(t, "the third node hears that the first has gone", func() error {
		if c.list[2].engine.(*rooms).member.isUp(1) {
			return errors.New("it is up")
		}
		return nil
	})
	select {
	case b := <-told:
		t.Fatalf("told though the second node has an alarm still: %+v", b)
	case <-confirm.Done():
		t.Fatal("published during an alarm of the second node")
	case <-time.After(200 * time.Millisecond):
	}

	c.list[1].stop()
	hears(false, "")
	if ok, err := confirm.WaitContext(t.Context()); err != nil || !ok {
		t.Fatal(ok, err)
	}
}
