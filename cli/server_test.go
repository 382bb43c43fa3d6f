package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/management"
)

// hollow is an engine that accepts connections and says one line. What it is not asked for it does not have.
type hollow struct {
	management.Broker
	cfg     config.Config
	version string
	linger  chan struct{} // if not nil, Stop waits for it
	failed  chan error

	secure    []bool
	listeners []net.Listener
	mu        sync.Mutex // guards stopped
	stopped   bool
}

func (h *hollow) Listen(address string, secure bool) (net.Addr, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("AMQP listener: %w", err)
	}
	h.secure = append(h.secure, secure)
	h.listeners = append(h.listeners, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "hello")
			c.Close()
		}
	}()
	return l.Addr(), nil
}

func (h *hollow) Failed() <-chan error { return h.failed }

func (h *hollow) Stop(ctx context.Context) error {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	for _, l := range h.listeners {
		l.Close()
	}
	if h.linger != nil {
		<-h.linger
	}
	return nil
}

func (h *hollow) Authenticate(name, password string, _ netip.Addr) (management.User, error) {
	if name != "guest" || password != "guest" {
		return management.User{}, management.ErrLogin
	}
	return management.User{Name: name, Tags: []string{"administrator"}}, nil
}
func (h *hollow) Totals() management.Totals                { return management.Totals{} }
func (h *hollow) Counts(*management.Counts)                {}
func (h *hollow) Alarms() []management.Alarm               { return nil }
func (h *hollow) Serving() bool                            { h.mu.Lock(); defer h.mu.Unlock(); return !h.stopped }
func (h *hollow) GlobalParameters() []management.Parameter { return nil }
func (h *hollow) HasVHost(name string) bool                { return name == "/" }
func (h *hollow) VHosts() iter.Seq[*management.VHost] {
	return func(yield func(*management.VHost) bool) { yield(&management.VHost{Name: "/"}) }
}

func (h *hollow) Channels() iter.Seq[*management.Channel] {
	return func(func(*management.Channel) bool) {}
}
func (h *hollow) Connections() iter.Seq[*management.Connection] {
	return func(func(*management.Connection) bool) {}
}

// run is a `warren server` in the background.
type run struct {
	t       *testing.T
	engine  *hollow
	signals chan os.Signal
	code    chan int
	out     *bytes.Buffer // read it after code has come
	err     *bytes.Buffer
	ports   map[string]string
	file    string
}

// runServer starts one on free ports and waits until it listens.
func runServer(t *testing.T, h *hollow, args ...string) *run {
	t.Helper()
	r := &run{t: t, engine: h, signals: make(chan os.Signal, 2), code: make(chan int, 1), out: new(bytes.Buffer), err: new(bytes.Buffer), file: filepath.Join(t.TempDir(), "ports")}
	p := &program{in: strings.NewReader(""), out: r.out, err: r.err, env: func(name string) (string, bool) { return "off", name == "GOGC" || name == "GOMEMLIMIT" }, signals: r.signals,
		open: func(cfg config.Config, version string, _ uint64, _ *slog.Logger) (engine, error) {
			r.engine.cfg, r.engine.version = cfg, version
			return r.engine, nil
		}}
	args = append([]string{"server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "a", "b"), "--ports-file", r.file}, args...)
	go func() { r.code <- p.run(args) }()
	deadline := time.After(10 * time.Second)
	for {
		if text, err := os.ReadFile(r.file); err == nil {
			if err := json.Unmarshal(text, &r.ports); err != nil {
				t.Fatalf("the ports file was seen half written: %q", text)
			}
			return r
		}
		select {
		case code := <-r.code:
			t.Fatalf("exit %d: %s", code, r.err)
		case <-deadline:
			t.Fatal("the server does not start")
		case <-time.After(time.Millisecond):
		}
	}
}

func (r *run) exit() int {
	r.t.Helper()
	select {
	case code := <-r.code:
		return code
	case <-time.After(10 * time.Second):
		r.t.Fatal("the server does not end")
		return -1
	}
}

func TestServerRunsAndStops(t *testing.T) {
	r := runServer(t, &hollow{}, "--product", "RabbitMQ", "--product-version", "4.3.6", "--set", "heartbeat=7", "--set", "raft.wal_max_size_bytes=1")
	for _, name := range []string{"amqp", "http", "metrics"} {
		if host, port, err := net.SplitHostPort(r.ports[name]); err != nil || host != "127.0.0.1" || port == "0" {
			t.Errorf("ports: %v", r.ports)
		}
	}
	c, err := net.Dial("tcp", r.ports["amqp"])
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(c); string(text) != "hello\n" {
		t.Errorf("AMQP said %q", text)
	}
	code, out, _ := command(t, "http://"+r.ports["http"], nil, "status")
	if code != 0 || !strings.Contains(out, "RabbitMQ 4.3.6") || !strings.Contains(out, "amqp "+r.ports["amqp"]) {
		t.Error(code, out)
	}
	answer, err := http.Get("http://" + r.ports["metrics"] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if !strings.Contains(string(text), "rabbitmq_identity_info") {
		t.Errorf("%.200s", text)
	}
	if r.engine.cfg.Heartbeat != 7*time.Second || r.engine.version != "4.3.6" {
		t.Error(r.engine.cfg.Heartbeat, r.engine.version)
	}
	r.signals <- syscall.SIGTERM
	if code := r.exit(); code != 0 || !r.engine.stopped {
		t.Error(code, r.err)
	}
	for _, want := range []string{"warren " + release, "amqp://" + r.ports["amqp"], "http://" + r.ports["http"] + "/api/", filepath.Join("a", "b")} {
		if !strings.Contains(r.out.String(), want) {
			t.Errorf("the start does not say %q:\n%s", want, r.out)
		}
	}
	if !strings.Contains(r.err.String(), "raft.wal_max_size_bytes has no effect") {
		t.Error(r.err)
	}
	if _, err := os.Stat(r.file); !errors.Is(err, os.ErrNotExist) {
		t.Error("the ports file is still there")
	}
	for _, name := range []string{"amqp", "http", "metrics"} {
		if c, err := net.Dial("tcp", r.ports[name]); err == nil {
			c.Close()
			t.Errorf("%s still listens", name)
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	h := &hollow{linger: make(chan struct{})}
	defer close(h.linger)
	r := runServer(t, h)
	r.signals <- syscall.SIGTERM
	r.signals <- syscall.SIGINT
	if code := r.exit(); code != 130 || !strings.Contains(r.err.String(), "second signal") {
		t.Error(code, r.err)
	}
}

func TestTLSAddress(t *testing.T) {
	r := runServer(t, &hollow{}, "--listen", "none", "--metrics", "none", "--tls-listen", "127.0.0.1:0", "--tls-cert", "c", "--tls-key", "k")
	if r.ports["amqps"] == "" || r.ports["amqp"] != "" || r.ports["metrics"] != "" {
		t.Error(r.ports)
	}
	c, err := net.Dial("tcp", r.ports["amqps"])
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, c)
	r.signals <- syscall.SIGINT
	if code := r.exit(); code != 0 || len(r.engine.secure) != 1 || !r.engine.secure[0] {
		t.Error(code, r.engine.secure)
	}
}

func TestStartFailures(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	free := []string{"server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "none", "--data-dir", t.TempDir()}
	for _, test := range []struct {
		args   []string
		broken error
		code   int
		want   string
	}{
		{[]string{"--http", taken.Addr().String()}, nil, 69, "cannot listen for the HTTP API on " + taken.Addr().String() + ": something else does\nStop that, or choose another address with --http."},
		{[]string{"--listen", taken.Addr().String()}, nil, 69, "cannot listen for AMQP on " + taken.Addr().String() + ": something else does\nStop that, or choose another address with --listen."},
		{[]string{"--data-dir", filepath.Join(file, "x")}, nil, 78, "cannot make the data directory"},
		{[]string{"--ports-file", filepath.Join(file, "x")}, nil, 78, "cannot write the ports file"},
		{[]string{"--set", "log.file=" + filepath.Join(file, "x")}, nil, 78, "cannot write the log"},
		{nil, errors.New("no room"), 70, "the broker did not start: no room"},
	} {
		h := &hollow{}
		code, _, text := command(t, "", func(p *program) {
			p.env = func(name string) (string, bool) { return "off", name == "GOGC" || name == "GOMEMLIMIT" }
			p.open = func(config.Config, string, uint64, *slog.Logger) (engine, error) { return h, test.broken }
		}, append(free, test.args...)...)
		if code != test.code || !strings.Contains(text, test.want) {
			t.Errorf("%v: %d %s", test.args, code, text)
		}
	}
}

func TestMemoryLimits(t *testing.T) {
	cfg := config.Default()
	for _, test := range []struct {
		set   func(*config.Config)
		total uint64
		want  uint64
	}{
		{func(*config.Config) {}, 10 << 30, 6 << 30 / 10 * 9},
		{func(*config.Config) {}, 512 << 20, 384 << 20},
		{func(c *config.Config) { c.MemoryLimit = 1 << 30 }, 10 << 30, 1 << 30},
		{func(c *config.Config) { c.MemoryWatermark = config.Threshold{Absolute: 10 << 30} }, 1, 10 << 30 / 10 * 9},
	} {
		c := cfg
		test.set(&c)
		if got := softLimit(c, test.total); got != test.want {
			t.Errorf("of %d: %d, want %d", test.total, got, test.want)
		}
	}
	if total := memoryTotal(cfg); total < 64<<20 || total > 1<<50 {
		t.Error(total)
	}
	before, beforeLimit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	defer func() { debug.SetGCPercent(before); debug.SetMemoryLimit(beforeLimit) }()
	limitMemory(cfg, 10<<30, func(string) (string, bool) { return "", false })
	if percent := debug.SetGCPercent(100); percent != collectAt || debug.SetMemoryLimit(-1) != 6<<30/10*9 {
		t.Error(percent)
	}
	limitMemory(cfg, 20<<30, func(string) (string, bool) { return "1", true })
	if percent := debug.SetGCPercent(100); percent != 100 || debug.SetMemoryLimit(-1) != 6<<30/10*9 {
		t.Error("the environment's own limits were replaced")
	}
}
