package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// command runs a command line against a node at url and returns what it printed.
func command(t *testing.T, url string, change func(*program), args ...string) (code int, out, err string) {
	t.Helper()
	var o, e bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &o, err: &e, env: func(name string) (string, bool) { return url, name == "WARREN_URL" }}
	if change != nil {
		change(p)
	}
	code = p.run(args)
	return code, o.String(), e.String()
}

// node answers each path with a status and a body, and remembers what it was asked.
type answers map[string]struct {
	status int
	body   string
}

func (a answers) serve(t *testing.T, asked *[]string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if asked != nil {
			*asked = append(*asked, r.Method+" "+r.RequestURI+" "+user+":"+password+" "+r.Header.Get("X-Reason"))
		}
		answer, ok := a[r.Method+" "+r.URL.EscapedPath()]
		if !ok {
			w.WriteHeader(404)
			w.Write([]byte(`{"error":"Object Not Found","reason":"Not Found"}`))
			return
		}
		w.WriteHeader(answer.status)
		w.Write([]byte(answer.body))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const twoQueues = `[{"name":"a","messages":12,"durable":true,"arguments":{"x":1}},{"name":"tab\there","messages":3,"message_stats":{"publish_details":{"rate":1.5}}}]`

func TestFormats(t *testing.T) {
	url := answers{"GET /api/queues/%2F": {200, twoQueues}}.serve(t, nil)
	for _, test := range []struct{ args, want string }{
		{"queue list name messages", "name\tmessages\na\t12\ntab here\t3\n"},
		{"queue list --columns name,messages,durable --format table", "name      messages  durable\na               12  true\ntab\there         3  \n"},
		{"queue list name arguments publish_rate --format json", `[{"name":"a","arguments":{"x":1},"publish_rate":null},{"name":"tab\there","arguments":null,"publish_rate":1.5}]` + "\n"},
		{"queue list name,messages --format jsonl", `{"name":"a","messages":12}` + "\n" + `{"name":"tab\there","messages":3}` + "\n"},
		{"queue list name arguments --format csv", "name,arguments\na,\"{\"\"x\"\":1}\"\ntab\there,\n"},
		{"queue list name -s", "a\ntab here\n"},
		{"queue list name --no-table-headers", "a\ntab here\n"},
		{"list_queues", "Listing queues for vhost / ...\nname\tmessages\na\t12\ntab here\t3\n"},
		{"list_queues name -q", "name\na\ntab here\n"},
		{"list_queues name --formatter json -q", `[{"name":"a"},{"name":"tab\there"}]` + "\n"},
		{"list_queues name --formatter pretty_table -s", "a\ntab\there\n"},
	} {
		if code, out, err := command(t, url, nil, strings.Fields(test.args)...); code != 0 || out != test.want || err != "" {
			t.Errorf("%s: %d\n%s%s", test.args, code, out, err)
		}
	}
	code, out, _ := command(t, url, func(p *program) { p.terminal = true }, "queue", "list", "name", "messages")
	if code != 0 || !strings.HasPrefix(out, "name      messages\na               12\n") {
		t.Errorf("on a terminal: %q", out)
	}
}

func TestRequests(t *testing.T) {
	var asked []string
	url := answers{"GET /api/queues": {200, `[]`}, "GET /api/queues/a%2Fb": {200, `[]`}, "GET /api/connections": {200, `[]`},
		"DELETE /api/connections/127.0.0.1:1%20-%3E%20127.0.0.1:2": {204, ``}}.serve(t, &asked)
	password := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(password, []byte("from file\nmore"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"queue", "list", "name", "owner", "--all-vhosts"}, {"queue", "list", "name", "-p", "a/b", "-u", "ann", "--password", "pw"},
		{"connection", "list", "connection_name", "--password-file", password}, {"connection", "close", "127.0.0.1:1 -> 127.0.0.1:2", "--reason", "noon"}} {
		if code, out, err := command(t, url, nil, args...); code != 0 {
			t.Error(args, code, out, err)
		}
	}
	want := []string{"GET /api/queues?columns=name%2Cowner_pid_details.name guest:guest ", "GET /api/queues/a%2Fb?columns=name ann:pw ",
		"GET /api/connections?columns=client_properties.connection_name guest:from file ", "DELETE /api/connections/127.0.0.1:1%20-%3E%20127.0.0.1:2 guest:guest noon"}
	if strings.Join(asked, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}

// Codes are those of RabbitMQ's tools; each error says what to do.
func TestFailures(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	say := func(status int, body string) string {
		return answers{"GET /api/queues/%2F": {status, body}}.serve(t, nil)
	}
	for _, test := range []struct {
		url, args string
		code      int
		want      string
	}{
		{"", "sttus", 64, "unknown command \"sttus\""},
		{"", "queue lst", 64, "Did you mean 'warren queue list'?"},
		{"", "queue list --nope", 64, "See 'warren queue list --help'."},
		{"", "queue list --format xml", 64, "formats are table, tsv, csv, json and jsonl"},
		{"", "status --format xml", 64, "formats are table and json"},
		{"", "connection close", 64, "accepts 1 arg(s), received 0"},
		{"ftp://x", "status", 64, "is no address of an HTTP API"},
		{"", "queue list nope", 65, "Columns are: name, vhost"},
		{closed.URL, "status", 69, "connection refused\nIs it running?"},
		{slow.URL, "status --timeout 0.05", 75, "did not answer within 0.05 s"},
		{say(401, ""), "queue list", 77, `does not know user "guest"`},
		{say(401, `{"error":"not_authorised","reason":"Not management user"}`), "queue list", 77, "may not do that: Not management user"},
		{say(400, `{"error":"bad_request","reason":["a",1]}`), "queue list", 65, `refused: ["a",1]`},
		{say(404, ``), "queue list", 65, `there is no virtual host "/"`},
		{say(503, `{"status":"failed","reason":"why"}`), "queue list", 69, "refused: why"},
		{say(500, ``), "queue list", 70, "Internal Server Error\nThe node's log says more."},
		{say(200, `<html>`), "queue list", 70, "is no JSON"},
		{say(200, `[]`), "connection close nope", 65, "there is no connection \"nope\"\n'warren connection list name'"},
		{"", "queue list --password-file /does/not/exist", 64, "cannot read the password"},
		{"", "server extra", 64, "unknown command \"extra\""},
		{"", "server --listen x", 78, "--listen: \"x\" is no address"},
		{"", "server --config /does/not/exist", 78, "/does/not/exist"},
	} {
		code, out, err := command(t, test.url, nil, strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(err, test.want) || !strings.HasPrefix(err, "Error: ") || out != "" {
			t.Errorf("%s %s: %d, want %d\n%s%s", test.url, test.args, code, test.code, out, err)
		}
	}
}

func TestCloseAsksOnATerminal(t *testing.T) {
	var asked []string
	url := answers{"DELETE /api/connections/c": {204, ``}}.serve(t, &asked)
	for answer, want := range map[string]int{"n\n": 64, "": 64, "y\n": 0} {
		asked = nil
		code, _, err := command(t, url, func(p *program) { p.terminal, p.in = true, strings.NewReader(answer) }, "connection", "close", "c")
		if code != want || (len(asked) == 1) != (want == 0) || !strings.Contains(err, "Close connection c? [y/N]") {
			t.Errorf("%q: %d %s %v", answer, code, err, asked)
		}
	}
	if code, _, err := command(t, url, func(p *program) { p.terminal = true }, "connection", "close", "c", "--yes"); code != 0 || err != "" {
		t.Error(code, err)
	}
}

func TestStatus(t *testing.T) {
	url := answers{"GET /api/overview": {200, `{"node":"warren@h","product_name":"Warren","product_version":"0.1.0","object_totals":{"connections":2,"queues":3},
		"queue_totals":{"messages_ready":5,"messages_unacknowledged":1},"listeners":[{"protocol":"amqp","ip_address":"::","port":5672}]}`},
		"GET /api/nodes":       {200, `[{"os_pid":"7","uptime":61000,"mem_used":1048576,"mem_limit":1073741824,"mem_alarm":true,"disk_free":5,"disk_free_limit":4,"fd_used":3,"fd_total":9,"db_dir":"/d"}]`},
		"GET /api/connections": {200, `[{"name":"a","user":"u","vhost":"/","state":"blocked"},{"name":"b","user":"u","vhost":"/","state":"flow"},{"name":"c","state":"blocking"}]`}}.serve(t, nil)
	code, out, err := command(t, url, nil, "status")
	want := `node         warren@h, process 7
version      Warren 0.1.0
up           1m1s
listening    amqp [::]:5672
data         /d
memory       1.0 MiB of 1.0 GiB
disk free    5 B, at least 4 B needed
files        3 of 9
alarms       memory: publishers are blocked
waiting      a (user u, vhost /): blocked by an alarm: memory
waiting      b (user u, vhost /): the node takes in no more for the moment
totals       2 connections, 0 channels, 0 consumers, 3 queues, 0 exchanges
messages     5 ready, 1 unacknowledged
`
	if code != 0 || out != want || err != "" {
		t.Errorf("%d\n%s%s", code, out, err)
	}
	_, out, _ = command(t, url, nil, "status", "--format", "json")
	var both map[string]any
	if json.Unmarshal([]byte(out), &both) != nil || both["overview"] == nil || both["nodes"] == nil {
		t.Error(out)
	}
}

func TestHelpTeaches(t *testing.T) {
	for _, args := range []string{"--help", "server --help", "queue --help", "queue list --help", "connection list --help", "connection close --help", "status --help", "version --help", "storage --help", "storage inspect --help", "storage verify --help"} {
		code, out, _ := command(t, "", nil, strings.Fields(args)...)
		if code != 0 || !strings.Contains(out, "Examples:\n  warren ") {
			t.Errorf("%s: %d\n%s", args, code, out)
		}
	}
	if _, out, _ := command(t, "", nil, "version"); !strings.HasPrefix(out, "warren "+release+" (go") {
		t.Error(out)
	}
	if _, out, _ := command(t, "", nil, "version", "--format", "json"); !strings.HasPrefix(out, `{"version":"`+release+`"`) {
		t.Error(out)
	}
}
