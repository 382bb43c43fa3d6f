package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// onDisk is a `warren server` whose data directory is on a simulated disk.
type onDisk struct {
	t       *testing.T
	signals chan os.Signal
	code    chan int
	log     *bytes.Buffer // read it after code has come
	amqp    string
}

func runOnDisk(t *testing.T, fs storage.FS, dir string) *onDisk {
	t.Helper()
	n := &onDisk{t: t, signals: make(chan os.Signal, 2), code: make(chan int, 1), log: new(bytes.Buffer)}
	file := filepath.Join(t.TempDir(), "ports")
	p := &program{in: strings.NewReader(""), out: io.Discard, err: &locked{w: n.log}, signals: n.signals,
		env: func(name string) (string, bool) { return "off", name == "GOGC" || name == "GOMEMLIMIT" },
		open: func(cfg config.Config, version string, memory uint64, log *slog.Logger) (engine, error) {
			cfg.DiskBallast = 0
			r := &rooms{fs: fs, cfg: cfg, pool: queue.NewPool(64 << 20), clock: queue.NewClock(), log: log}
			return r, r.open(version, memory)
		}}
	go func() {
		n.code <- p.run([]string{"server", "--listen", "127.0.0.1:0", "--http", "none", "--metrics", "none", "--data-dir", dir, "--ports-file", file})
	}()
	var ports map[string]string
	eventually(t, "the node listens", func() bool {
		select {
		case code := <-n.code:
			t.Fatalf("it ends with %d: %s", code, n.log)
		default:
		}
		text, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(text, &ports) == nil
	})
	n.amqp = "amqp://guest:guest@" + ports["amqp"]
	return n
}

func (n *onDisk) channel() *amqp091.Channel {
	n.t.Helper()
	c, err := amqp091.Dial(n.amqp)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	ch, err := c.Channel()
	if err != nil {
		n.t.Fatal(err)
	}
	return ch
}

func (n *onDisk) exit() int {
	n.t.Helper()
	select {
	case code := <-n.code:
		return code
	case <-time.After(20 * time.Second):
		n.t.Fatal("the node does not end")
		return 0
	}
}

// TestFailedDisk: a node whose metadata cannot be written any more says so and ends, and the next one has everything that
// was confirmed and not acknowledged, and knows what was delivered.
func TestFailedDisk(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault storage.Fault
		power bool
	}{
		{"sync", storage.Fault{Op: storage.OpSync, Name: "meta/"}, false},
		{"write", storage.Fault{Op: storage.OpWrite, Name: "meta/", Times: -1}, false},
		{"sync, and a power cut", storage.Fault{Op: storage.OpSync, Name: "meta/"}, true},
		{"everything", storage.Fault{Op: storage.OpSync, Times: -1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs, dir := storage.NewFaultFS(1), t.TempDir()
			n := runOnDisk(t, fs, dir)
			ch := n.channel()
			if _, err := ch.QueueDeclare("q", true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			if err := ch.Confirm(false); err != nil {
				t.Fatal(err)
			}
			const messages, taken = 100, 10
			confirmed := make(map[string]bool) // and whether it was delivered
			for i := range messages {
				body := fmt.Sprint(i)
				k, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: []byte(body)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				if ok, err := k.WaitContext(ctx); !ok || err != nil {
					t.Fatal(ok, err)
				}
				cancel()
				confirmed[body] = false
			}
			for range taken {
				d, ok, err := ch.Get("q", false)
				if err != nil || !ok {
					t.Fatal(ok, err)
				}
				confirmed[string(d.Body)] = true
			}
			fs.Inject(c.fault)
			if _, err := ch.QueueDeclare("never", true, false, false, false, nil); err == nil {
				t.Error("a queue was declared that could not be stored")
			}
			if code := n.exit(); code != exitDisk || !strings.Contains(n.log.String(), "level=ERROR msg=\"the disk failed: metadata cannot be written any more; the node stops") {
				t.Errorf("it ended with %d:\n%s", code, n.log)
			}
			fs.Heal()
			if c.power {
				fs = fs.Crash(2)
			}
			n = runOnDisk(t, fs, dir)
			ch = n.channel()
			for {
				d, ok, err := ch.Get("q", true)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				delivered, there := confirmed[string(d.Body)]
				delete(confirmed, string(d.Body))
				if !there || delivered && !d.Redelivered {
					t.Errorf("message %s: there %v, delivered %v, redelivered %v", d.Body, there, delivered, d.Redelivered)
				}
			}
			if len(confirmed) > 0 {
				t.Errorf("lost %v", confirmed)
			}
			n.signals <- os.Interrupt
			if code := n.exit(); code != 0 {
				t.Errorf("it ended with %d:\n%s", code, n.log)
			}
		})
	}
}
