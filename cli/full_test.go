package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// TestAlarmOfANode runs a node whose memory watermark is one octet: everything that shows alarms shows it, and a client is
// told.
func TestAlarmOfANode(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "ports")
	signals, code := make(chan os.Signal, 2), make(chan int, 1)
	errors := new(bytes.Buffer)
	p := &program{in: strings.NewReader(""), out: io.Discard, err: &locked{w: errors}, signals: signals, open: openEngine,
		env: func(name string) (string, bool) { return "off", name == "GOGC" || name == "GOMEMLIMIT" }}
	go func() {
		code <- p.run([]string{"server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--data-dir", dir,
			"--ports-file", file, "--set", "vm_memory_high_watermark.absolute=1"})
	}()
	var ports map[string]string
	eventually(t, "the node listens", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(text, &ports) == nil
	})
	c, err := amqp091.Dial("amqp://guest:guest@" + ports["amqp"])
	if err != nil {
		t.Fatal(err)
	}
	blocked := c.NotifyBlocked(make(chan amqp091.Blocking, 1))
	ch, err := c.Channel()
	if err == nil {
		err = ch.Publish("", "nowhere", false, false, amqp091.Publishing{Body: []byte("x")})
	}
	if err != nil {
		t.Fatal(err)
	}
	if b := <-blocked; !b.Active || b.Reason != "low on memory" {
		t.Errorf("%+v", b)
	}
	url := "http://" + ports["http"]
	exit, out, told := command(t, url, nil, "status")
	if exit != 0 || !strings.Contains(out, "alarms       memory: publishers are blocked") || !strings.Contains(out, "blocked by an alarm: memory") {
		t.Errorf("%d %s%s", exit, out, told)
	}
	get := func(url string) (int, string) {
		t.Helper()
		r, _ := http.NewRequest("GET", url, nil)
		r.SetBasicAuth("guest", "guest")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text, _ := io.ReadAll(a.Body)
		return a.StatusCode, string(text)
	}
	for _, check := range []struct {
		path string
		code int
		want string
	}{
		{url + "/api/health/checks/alarms", 503, `"resource":"memory"`},
		{url + "/api/health/checks/local-alarms", 503, `"resource":"memory"`},
		{url + "/api/nodes", 200, `"mem_alarm":true`},
		{url + "/api/connections", 200, `"state":"blocked"`},
		{"http://" + ports["metrics"] + "/metrics", 200, "rabbitmq_alarms_memory_used_watermark 1\n"},
		{"http://" + ports["metrics"] + "/metrics", 200, "warren_alarm{resource=\"memory\"} 1\n"},
		{"http://" + ports["metrics"] + "/metrics", 200, "warren_journal_sync_seconds_count "},
	} {
		if status, text := get(check.path); status != check.code || !strings.Contains(text, check.want) {
			t.Errorf("%s: %d, without %s", check.path, status, check.want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	c.Close()
	signals <- syscall.SIGTERM
	if exit := <-code; exit != 0 || !strings.Contains(errors.String(), "alarm set: the node uses more memory") {
		t.Errorf("%d %s", exit, errors)
	}
}

// eventually waits for what happens in another goroutine.
func eventually(t testing.TB, what string, yes func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !yes() {
		select {
		case <-deadline:
			t.Fatalf("it does not happen: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// onFaults opens a node on a file system of a test, with a ballast of 2 MiB.
func onFaults(t *testing.T, fs storage.FS, dir string) (*small, error) {
	s := &small{t: t, log: new(bytes.Buffer)}
	cfg := config.Default()
	cfg.DataDir, cfg.DiskBallast = dir, 2<<20
	s.rooms = &rooms{fs: fs, cfg: cfg, pool: queue.NewPool(64 << 20), clock: queue.NewClock(), log: slog.New(slog.NewTextHandler(&locked{w: s.log}, nil))}
	return s, s.openData()
}

// TestStartOnFullDisk: a new node that finds no room says so, and not that something is damaged; one that has run before
// starts, with an alarm, and gives what it has.
func TestStartOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	for space := int64(0); space < 10_000; space += 400 {
		fs := storage.NewFaultFS(1)
		fs.SetSpace(space)
		s, err := onFaults(t, fs, dir)
		_ = s.closeData()
		if f, ok := err.(*failure); !ok || !strings.Contains(f.text, "the disk is full") {
			t.Errorf("with %d octets: %v", space, err)
		}
	}
	fs := storage.NewFaultFS(1)
	fs.SetSpace(100 << 20)
	s, err := onFaults(t, fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	s.declare()
	s.publish(0, 100)
	s.watch(1 << 30).fill()
	if err := s.closeData(); err != nil || !s.ballast.Held() {
		t.Fatal(err)
	}
	fs.SetSpace(0)
	if s, err = onFaults(t, fs, dir); err != nil {
		t.Fatal(err)
	}
	s.watch(1 << 30).look(time.Now())
	if on := s.alarms.On(); on&broker.StorageAlarm == 0 {
		t.Errorf("no alarm: %v", on.Names())
	}
	for i := range smallQueues {
		if got := s.drain(i); len(got) != 100 {
			t.Errorf("%d messages", len(got))
		}
	}
	if err := s.closeData(); err != nil {
		t.Error(err)
	}
}

// TestFullDisk fills the disk under a node: declarations are refused, nothing is confirmed that is not on the disk,
// acknowledgements and purges go on, and when there is room again everything does, without a restart.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	fs := storage.NewFaultFS(1)
	fs.SetSpace(100 << 20) // too little to write journal files ahead
	s, err := onFaults(t, fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	w := s.watch(1 << 30)
	w.memory = func() uint64 { return 0 }
	now := time.Unix(1e9, 0)
	look := func() broker.Alarm {
		now = now.Add(time.Minute)
		w.look(now)
		w.fill()
		return s.alarms.On()
	}
	s.declare()
	s.publish(0, 1000)
	look()
	if on := look(); on != 0 || !s.ballast.Held() {
		t.Fatalf("%v, ballast %v", on.Names(), s.ballast.Held())
	}
	fs.SetSpace(40 << 20)
	if on := look(); on != broker.DiskAlarm {
		t.Errorf("near the limit: %v", on.Names())
	}
	fs.SetSpace(0)
	s.publish(1000, 1000) // the journal finds no room: the ballast goes
	if s.ballast.Held() || s.alarms.On()&broker.StorageAlarm == 0 {
		t.Fatal("the ballast is still there")
	}
	declare := func(name string) error {
		done := make(chan error, 1)
		s.broker.VHost("/").DeclareQueue(broker.Actor{}, broker.QueueDeclaration{Name: name, Durable: true}, func(_ *broker.Queue, err *amqp.Error) { done <- refusal(err) })
		return <-done
	}
	if declare("another") == nil {
		t.Error("a durable queue was declared on a full disk")
	}
	// Now there is no room at all.
	fs.SetSpace(0)
	confirmed := make(chan struct{})
	go func() {
		s.publish(2000, 20_000)
		close(confirmed)
	}()
	eventually(t, "the journal cannot be written", func() bool { return s.store.Stats().Failing })
	if on := look(); on&broker.StorageAlarm == 0 || !s.pool.Full(0) {
		t.Error(on.Names())
	}
	// Purges and deletes go on in memory, and their records wait.
	var wake queue.Wake
	purged := make(chan uint64, 1)
	s.broker.VHost("/").Queue(queueName(1)).Purge(&wake, func(n uint64) { purged <- n })
	wake.Flush()
	if n := <-purged; n == 0 {
		t.Error("nothing was purged")
	}
	select {
	case <-confirmed:
		t.Error("confirmed on a full disk")
	default:
	}
	fs.SetSpace(1 << 30)
	<-confirmed
	eventually(t, "all is well", func() bool { return look() == 0 && s.ballast.Held() && !s.pool.Full(0) })
	if err := declare("another"); err != nil {
		t.Error(err)
	}
	// After a power cut everything that was confirmed is there.
	cut := fs.Crash(7)
	_ = s.closeData() // of the old life: its disk is gone
	s2, err := onFaults(t, cut, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2} {
		if got := s2.drain(i); len(got) != 22_000 {
			t.Errorf("queue %d: %d messages", i, len(got))
		}
	}
	if err := s2.closeData(); err != nil {
		t.Error(err)
	}
}
