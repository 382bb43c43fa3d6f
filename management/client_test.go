package management

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// client calls an API on loopback.
type client struct {
	t    *testing.T
	base string
	user string
}

func serve(t *testing.T, f *fake, change ...func(*Options)) *client {
	t.Helper()
	o := Options{Broker: f, Node: "warren@test", ProductVersion: "0.1.0", MemoryLimit: 1 << 30, DiskLimit: 50_000_000, DataDir: t.TempDir(), AuthMechanisms: []string{"PLAIN"},
		Listeners: func() []Listener {
			return []Listener{{"amqp", "127.0.0.1", 5672, false}, {"http", "127.0.0.1", 15672, false}}
		}}
	for _, c := range change {
		c(&o)
	}
	server := httptest.NewServer(New(o))
	t.Cleanup(server.Close)
	return &client{t, server.URL, "guest"}
}

func (c *client) as(user string) *client { return &client{c.t, c.base, user} }

// do sends a request and returns status, headers and body. The path is sent as it is written.
func (c *client) do(method, path, body string, headers ...string) (int, http.Header, string) {
	c.t.Helper()
	r, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if c.user != "" {
		r.SetBasicAuth(c.user, c.user)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	follow := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := follow.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, string(text)
}

// get returns the JSON under a path.
func (c *client) get(path string) any {
	c.t.Helper()
	status, _, text := c.do("GET", path, "")
	var v any
	if err := json.Unmarshal([]byte(text), &v); status != 200 || err != nil {
		c.t.Fatalf("GET %s: %d %s", path, status, text)
	}
	return v
}

func (c *client) object(path string) map[string]any {
	c.t.Helper()
	return c.get(path).(map[string]any)
}

// names returns the field name of each object of a list, or of the items of a page.
func (c *client) names(path string) (names []string) {
	c.t.Helper()
	v := c.get(path)
	if page, ok := v.(map[string]any); ok {
		v = page["items"]
	}
	for _, item := range v.([]any) {
		names = append(names, item.(map[string]any)["name"].(string))
	}
	return names
}

func queues(n int) *fake {
	f := newFake()
	for i := range n {
		f.queues = append(f.queues, Queue{ID: uint64(i + 1), VHost: "/", Name: fmt.Sprintf("q%03d", n-1-i), Type: "classic", State: "running", Durable: true,
			Ready: uint64(i), Unacked: 1, ReadyBytes: 10, Consumers: i % 2, Arguments: map[string]any{"x-max-length": int32(5)}})
	}
	return f
}
