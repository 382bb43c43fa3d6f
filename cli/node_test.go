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

	"github.com/warrenmq/warren/config"
)

// realNode is a `warren server` with the real rooms, on free ports and with data of its own.
type realNode struct {
	t         *testing.T
	url, amqp string
	engine    engine
	stop      func()
}

// runNode starts one; it ends with the test.
func runNode(t *testing.T, args ...string) *realNode {
	t.Helper()
	return runNodeIn(t, t.TempDir(), args...)
}

func runNodeIn(t *testing.T, dir string, args ...string) *realNode {
	t.Helper()
	signals, code := make(chan os.Signal, 2), make(chan int, 1)
	var out, log bytes.Buffer
	n := &realNode{t: t}
	open := func(cfg config.Config, version string, memory uint64, log *slog.Logger) (engine, error) {
		var err error
		n.engine, err = openEngine(cfg, version, memory, log)
		return n.engine, err
	}
	p := &program{in: strings.NewReader(""), out: &out, err: &log, signals: signals, open: open,
		env: func(name string) (string, bool) { return "off", name == "GOGC" || name == "GOMEMLIMIT" }}
	ports := filepath.Join(t.TempDir(), "ports")
	args = append([]string{"server", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "none", "--data-dir", dir, "--ports-file", ports, "--log-level", "error"}, args...)
	go func() { code <- p.run(args) }()
	ended := false
	n.stop = func() {
		if ended {
			return
		}
		ended = true
		signals <- syscall.SIGTERM
		select {
		case c := <-code:
			if c != 0 {
				t.Errorf("exit %d: %s", c, log.String())
			}
		case <-time.After(20 * time.Second):
			t.Error("the node does not stop")
		}
	}
	t.Cleanup(n.stop)
	deadline := time.After(20 * time.Second)
	for {
		if text, err := os.ReadFile(ports); err == nil {
			var at map[string]string
			if err := json.Unmarshal(text, &at); err != nil {
				t.Fatal(err)
			}
			n.url, n.amqp = "http://"+at["http"], at["amqp"]
			return n
		}
		select {
		case c := <-code:
			ended = true
			t.Fatalf("exit %d: %s", c, log.String())
		case <-deadline:
			t.Fatal("the node does not start")
		case <-time.After(time.Millisecond):
		}
	}
}

// do sends a request to the API and returns status and body.
func (n *realNode) do(user, method, path, body string) (int, string) {
	n.t.Helper()
	r, err := http.NewRequest(method, n.url+"/api"+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	r.SetBasicAuth(user, user)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// expect plays requests: user, method, path, body, and the status or the body that must come back.
func (n *realNode) expect(steps [][5]any) {
	n.t.Helper()
	for _, s := range steps {
		user, method, path, body := s[0].(string), s[1].(string), s[2].(string), s[3].(string)
		want, isStatus := s[4].(int)
		status, text := n.do(user, method, path, body)
		if isStatus {
			if status != want {
				n.t.Errorf("%s %s %s %s: %d %s, want %d", user, method, path, body, status, text, want)
			}
		} else if text != s[4] {
			n.t.Errorf("%s %s %s %s\n got %d %s\nwant %s", user, method, path, body, status, text, s[4])
		}
	}
}

// command runs a command line against the node.
func (n *realNode) command(input string, args ...string) (code int, out, err string) {
	return command(n.t, n.url, func(p *program) { p.in = strings.NewReader(input) }, args...)
}
