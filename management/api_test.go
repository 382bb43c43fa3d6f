package management

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// What RabbitMQ 4.3 answered to the same requests.
func TestErrorsAreRabbitMQs(t *testing.T) {
	f := queues(3)
	f.connect(1, "guest", "/", "")
	c := serve(t, f)
	missing := `{"error":"Object Not Found","reason":"Not Found"}`
	tests := []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/api/nope", "", 404, missing},
		{"GET", "/", "", 404, missing},
		{"GET", "/api/queues/nope", "", 404, missing},
		{"GET", "/api/queues/%2F/nope", "", 404, missing},
		{"GET", "/api/queues/%2f/q000/", "", 200, ""},
		{"GET", "/api/queues/%2F/nope/bindings", "", 404, missing},
		{"GET", "/api/exchanges/%2F/nope", "", 404, missing},
		{"GET", "/api/exchanges/%2F/nope/bindings/source", "", 404, missing},
		{"GET", "/api/bindings/%2F/e/amq.direct/q/nope", "", 404, missing},
		{"GET", "/api/bindings/%2F/e/amq.default/x/q000", "", 404, missing},
		{"GET", "/api/connections/nope", "", 404, missing},
		{"DELETE", "/api/connections/nope", "", 404, missing},
		{"GET", "/api/connections/nope/channels", "", 404, missing},
		{"GET", "/api/channels/nope", "", 404, missing},
		{"GET", "/api/vhosts/nope", "", 404, missing},
		{"GET", "/api/consumers/nope", "", 404, missing},
		{"GET", "/api/nodes/nope", "", 404, missing},
		{"DELETE", "/api/queues/%2F/nope", "", 404, missing},
		{"DELETE", "/api/queues/%2F/nope/contents", "", 404, missing},
		{"GET", "/api/queues?page=0", "", 400, `{"error":"invalid_pagination_parameters","reason":"Invalid pagination parameters: page number 0, page size undefined"}`},
		{"GET", "/api/queues?page=1&page_size=501", "", 400, `{"error":"invalid_pagination_parameters","reason":"Invalid pagination parameters: page number 1, page size 501"}`},
		{"GET", "/api/queues?page=9", "", 400, `{"error":"page_out_of_range","reason":"Page out of range, page: 9 page size: 100, len: 3"}`},
		{"GET", "/api/queues?page=x", "", 400, `{"error":"bad_request","reason":"Pagination parameters are invalid"}`},
		{"PUT", "/api/queues/%2F/new", `{"durable":"x"}`, 400, `{"error":"bad_request","reason":["not_boolean","x"]}`},
		{"PUT", "/api/queues/%2F/new", `"text"`, 400, `{"error":"bad_request","reason":"invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"}`},
		{"PUT", "/api/queues/%2F/new", `{bad`, 400, `{"error":"bad_request","reason":"not_json"}`},
		{"PUT", "/api/queues/%2F/new", `[1]`, 400, `{"error":"bad_request","reason":"not_json"}`},
		{"PUT", "/api/queues/%2F/new", `{} {}`, 400, `{"error":"bad_request","reason":"not_json"}`},
		{"PUT", "/api/queues/%2F/new", `{"arguments":3}`, 400, `{"error":"bad_request","reason":"arguments is no object"}`},
		{"PUT", "/api/queues/%2F/new", `{"node":"x@y"}`, 400, `{"error":"bad_request","reason":"Node x@y is not a cluster member"}`},
		{"PUT", "/api/queues/%2F/" + strings.Repeat("q", 256), `{}`, 400, `{"error":"bad_request","reason":"queue should be less than 255 bytes, actually was 256\n"}`},
		{"PUT", "/api/queues/nope/new", `{}`, 404, `{"error":"not_found","reason":"vhost_not_found"}`},
		{"POST", "/api/whoami", "", 405, ""},
		{"GET", "/api/queues/%2F/q000/contents", "", 405, ""},
		{"GET", "/api/login", "", 501, `{"error":"not_implemented","reason":"this path is not built yet"}`},
		{"PUT", "/api/cluster-name", "{}", 400, `{"error":"bad_request","reason":"[{key_missing,name}]"}`},
		{"GET", "/api/shovels", "", 200, `[]`},
		{"GET", "/api/federation-links/%2F", "", 200, `[]`},
		{"GET", "/api/queues/%2F/q000/nope", "", 404, missing},
		{"GET", "/api/health/checks/port-listener/x", "", 400, `{"error":"bad_request","reason":"Invalid port"}`},
		{"GET", "/api/queues/%zz", "", 404, missing},
		{"GET", "/api/queues/../../etc", "", 404, missing},
	}
	for _, test := range tests {
		var status int
		var text string
		if strings.Contains(test.path, "%zz") { // no client sends this; a URL that was never parsed
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/", nil)
			r.URL.Path, r.URL.RawPath = "/api/queues/x", test.path
			r.SetBasicAuth("guest", "guest")
			New(Options{Broker: f, Node: "n"}).ServeHTTP(w, r)
			status, text = w.Code, w.Body.String()
			if status != 404 && status != 401 {
				t.Errorf("%s: %d %s", test.path, status, text)
			}
			continue
		}
		status, _, text = c.do(test.method, test.path, test.body)
		if status != test.status || test.want != "" && text != test.want || test.status == 405 && text != "" {
			t.Errorf("%s %s %.40s: got %d %s, want %d %s", test.method, test.path, test.body, status, text, test.status, test.want)
		}
	}
}

func TestRefusalsOfTheBroker(t *testing.T) {
	for _, test := range []struct {
		err    error
		status int
		want   string
	}{
		{&Refusal{406, "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"}, 400,
			`{"error":"bad_request","reason":"inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"}`},
		{&Refusal{403, "queue name 'amq.x' contains reserved prefix 'amq.*'"}, 401, `{"error":"not_authorised","reason":"Access refused."}`},
		{&Refusal{404, "no exchange"}, 404, `{"error":"Object Not Found","reason":"Not Found"}`},
		{&Refusal{540, "queue type quorum is not built"}, 501, `{"error":"not_implemented","reason":"queue type quorum is not built"}`},
		{io.ErrUnexpectedEOF, 500, `{"error":"internal_server_error","reason":"unexpected EOF"}`},
	} {
		f := newFake()
		f.refusal = test.err
		if status, _, text := serve(t, f).do("PUT", "/api/queues/%2F/q", `{}`); status != test.status || text != test.want {
			t.Errorf("%v: got %d %s", test.err, status, text)
		}
	}
}

func TestLogin(t *testing.T) {
	f := newFake()
	c := serve(t, f)
	if status, h, text := c.as("").do("GET", "/api/whoami", ""); status != 401 || text != "" || h.Get("WWW-Authenticate") != `Basic realm="RabbitMQ Management"` {
		t.Error("nobody:", status, h, text)
	}
	for user, want := range map[string]string{
		"eve": `{"error":"not_authorized","reason":"Not_Authorized"}`,
		"app": `{"error":"not_authorised","reason":"Not management user"}`,
	} {
		if status, h, text := c.as(user).do("GET", "/api/whoami", ""); status != 401 || text != want || h.Get("WWW-Authenticate") != "" {
			t.Error(user, status, text)
		}
	}
	for path, want := range map[string]string{
		"/api/nodes":             `{"error":"not_authorised","reason":"Not monitor user"}`,
		"/api/vhosts/shop":       `{"error":"not_authorised","reason":"Not administrator user"}`,
		"/api/queues/%2F":        `{"error":"not_found","reason":"Not Found"}`,
		"/api/connections/other": `{"error":"Object Not Found","reason":"Not Found"}`,
	} {
		if _, _, text := c.as("ann").do("GET", path, ""); text != want {
			t.Error(path, text)
		}
	}
	if v := c.object("/api/whoami"); !reflect.DeepEqual(v, map[string]any{"name": "guest", "tags": []any{"administrator"}, "is_internal_user": true}) {
		t.Error(v)
	}
	api := New(Options{Broker: f, Node: "n"})
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/api/whoami", nil)
	r.RemoteAddr = "192.0.2.1:1234"
	r.SetBasicAuth("guest", "guest")
	if api.ServeHTTP(w, r); w.Code != 401 || !strings.Contains(w.Body.String(), "User can only log in via localhost") {
		t.Error(w.Code, w.Body)
	}
}

func TestTransport(t *testing.T) {
	c := serve(t, queues(1))
	status, h, text := c.as("").do("OPTIONS", "/api/queues/%2F/q000", "")
	if status != 200 || text != "" || h.Get("Allow") != "HEAD, GET, PUT, DELETE, OPTIONS" {
		t.Error("OPTIONS:", status, h, text)
	}
	status, h, text = c.do("GET", "/api/whoami", "")
	if status != 200 || h.Get("Allow") != "HEAD, GET, OPTIONS" || h.Get("Cache-Control") != "no-cache" || h.Get("Content-Type") != "application/json" || h.Get("Vary") == "" {
		t.Error("GET:", status, h, text)
	}
	for accept, want := range map[string]int{"text/html": 406, "text/html, */*;q=0.1": 200, "application/json; q=0": 406, "application/*": 200, "": 200} {
		if status, _, text := c.do("GET", "/api/whoami", "", "Accept", accept); status != want || status == 406 && text != "" {
			t.Errorf("Accept %q: %d %s", accept, status, text)
		}
	}
	if status, _, text := c.do("HEAD", "/api/queues", ""); status != 200 || text != "" {
		t.Error("HEAD:", status, text)
	}
	if status, _, text := c.do("PUT", "/api/queues/%2F/big", strings.Repeat(" ", 10_000_001)); status != 400 || !strings.Contains(text, "Exceeded HTTP request body size limit") {
		t.Error("large body:", status, text)
	}
}

func TestQueueFields(t *testing.T) {
	f := queues(1)
	name := f.connect(40001, "guest", "/", "q000")
	f.queues[0].Exclusive, f.queues[0].Owner = true, name
	f.queues[0].Counts = QueueCounts{Publish: 4, Deliver: 2, GetNoAck: 1, Ack: 1}
	f.queues[0].Arguments = map[string]any{"n": int64(1), "s": []byte("x"), "t": time.Unix(5, 0), "l": []any{int8(1), map[string]any{"deep": []byte("y")}}, "v": nil}
	f.queues[0].HeadTimestamp = time.Unix(77, 0)
	c := serve(t, f)

	one := c.object("/api/queues/%2F/q000")
	listed := c.get("/api/queues/%2F").([]any)[0].(map[string]any)
	// The fields that RabbitMQ 4.3 has, without those that speak of Erlang's processes.
	inList := []string{"arguments", "auto_delete", "consumer_capacity", "consumer_utilisation", "consumers", "durable", "effective_policy_definition", "exclusive", "internal",
		"internal_owner", "memory", "message_bytes", "message_bytes_ram", "message_bytes_ready", "message_bytes_unacknowledged", "message_stats",
		"messages", "messages_ram", "messages_ready", "messages_ready_ram", "messages_unacknowledged", "messages_unacknowledged_ram", "name", "node",
		"owner_pid_details", "state", "storage_version", "type", "vhost"}
	alone := append([]string{"consumer_details", "deliveries", "exclusive_consumer_tag", "head_message_timestamp", "incoming", "operator_policy", "policy", "single_active_consumer_tag"}, inList...)
	slices.Sort(alone)
	if got := fields(listed); !slices.Equal(got, inList) {
		t.Errorf("in a list:\n got %q\nwant %q", got, inList)
	}
	if got := fields(one); !slices.Equal(got, alone) {
		t.Errorf("alone:\n got %q\nwant %q", got, alone)
	}
	stats := one["message_stats"].(map[string]any)
	if want := []string{"ack", "deliver", "deliver_get", "deliver_no_ack", "get", "get_empty", "get_no_ack", "publish", "redeliver"}; !slices.Equal(fields(stats), want) || stats["deliver_get"] != 3.0 {
		t.Error(stats)
	}
	if want := map[string]any{"n": 1.0, "s": "x", "t": 5.0, "l": []any{1.0, map[string]any{"deep": "y"}}, "v": nil}; !reflect.DeepEqual(one["arguments"], want) {
		t.Error(one["arguments"])
	}
	if want := map[string]any{"name": name, "peer_host": "127.0.0.1", "peer_port": 40001.0}; !reflect.DeepEqual(one["owner_pid_details"], want) {
		t.Error(one["owner_pid_details"])
	}
	if one["messages"] != 1.0 || one["head_message_timestamp"] != 77.0 || one["policy"] != nil || one["node"] != "warren@test" {
		t.Error(one)
	}
	consumer := one["consumer_details"].([]any)[0].(map[string]any)
	if want := []string{"ack_required", "active", "activity_status", "arguments", "channel_details", "consumer_tag", "consumer_timeout", "exclusive", "prefetch_count", "queue"}; !slices.Equal(fields(consumer), want) {
		t.Error(consumer)
	}
	if want := map[string]any{"connection_name": name, "name": name + " (1)", "node": "warren@test", "number": 1.0, "peer_host": "127.0.0.1", "peer_port": 40001.0, "user": "guest"}; !reflect.DeepEqual(consumer["channel_details"], want) {
		t.Error(consumer["channel_details"])
	}
	cheap := fields(c.object("/api/queues/%2F/q000?disable_stats=true&enable_queue_totals=true"))
	if want := []string{"arguments", "auto_delete", "durable", "effective_policy_definition", "exclusive", "internal", "internal_owner", "messages", "messages_ready", "messages_unacknowledged", "name", "node", "operator_policy", "policy", "state", "type", "vhost"}; !slices.Equal(cheap, want) {
		t.Error(cheap)
	}
	_, _, text := c.do("GET", "/api/queues/%2F/q000", "")
	if !strings.Contains(text, ` -> `) || !strings.Contains(text, `"consumer_capacity":0.0`) {
		t.Error("arrows are not escaped, whole floats have a point:", text)
	}
}

func fields(m map[string]any) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestQueueVerbs(t *testing.T) {
	f := newFake()
	c := serve(t, f)
	if status, _, text := c.do("PUT", "/api/queues/%2F/a%2Fb", `{"durable":true,"auto_delete":"true","arguments":{"x-max-length":10,"f":1.5},"type":"ignored"}`); status != 201 || text != "" {
		t.Fatal(status, text)
	}
	if status, _, _ := c.do("PUT", "/api/queues/%2F/a%2Fb", `{"durable":true}`); status != 204 {
		t.Error("again:", status)
	}
	if q := f.queues[0]; q.Name != "a/b" || !q.Durable || !q.AutoDelete || !reflect.DeepEqual(q.Arguments, map[string]any{"x-max-length": int64(10), "f": 1.5}) {
		t.Errorf("%+v", q)
	}
	f.queues[0].Ready = 9
	if status, _, _ := c.do("DELETE", "/api/queues/%2F/a%2Fb/contents", ""); status != 204 || f.queues[0].Ready != 0 {
		t.Error("purge:", status, f.queues)
	}
	if status, _, _ := c.do("DELETE", "/api/queues/%2F/a%2Fb?if-empty=true", ""); status != 204 || len(f.queues) != 0 {
		t.Error("delete:", status, f.queues)
	}
	if status, _, _ := c.do("PUT", "/api/queues/%2F/a+b", ``); status != 201 || f.queues[0].Name != "a+b" {
		t.Error("a plus in a path is a plus:", status, f.queues)
	}
}

func TestPages(t *testing.T) {
	c := serve(t, queues(250))
	if names := c.names("/api/queues"); len(names) != 250 || names[0] != "q000" || names[249] != "q249" {
		t.Error(names)
	}
	page := c.object("/api/queues?page=3")
	items := page["items"].([]any)
	delete(page, "items")
	if want := map[string]any{"filtered_count": 250.0, "item_count": 50.0, "page": 3.0, "page_count": 3.0, "page_size": 100.0, "total_count": 250.0}; !reflect.DeepEqual(page, want) || len(items) != 50 {
		t.Error(page, len(items))
	}
	page = c.object("/api/queues/%2F?page=1&use_regex=true&pagination=false&name=^Q00[12]$&page_size=7")
	if page["page_count"] != 1.0 || page["filtered_count"] != 2.0 || page["total_count"] != 250.0 {
		t.Error(page)
	}
	for path, want := range map[string]string{
		"/api/queues?page=1&name=Q24&page_size=3":                                      "q240 q241 q242",
		"/api/queues?page=1&page_size=2&sort=messages":                                 "q249 q248",
		"/api/queues?page=1&page_size=2&sort=messages&sort_reverse=true":               "q000 q001",
		"/api/queues?page=1&page_size=2&sort_reverse=true":                             "q249 q248",
		"/api/queues?page=1&page_size=2&sort=arguments.x-max-length":                   "q000 q001",
		"/api/queues?page=1&page_size=2&sort=message_stats.publish_details.rate":       "q000 q001",
		"/api/queues?page=1&page_size=2&sort=no.such.field":                            "q000 q001",
		"/api/queues?page=1&page_size=2&sort=durable":                                  "q000 q001",
		"/api/queues?page=1&page_size=2&sort=messages&disable_stats=true":              "q000 q001",
		"/api/queues?page=1&page_size=2&sort=consumers&sort_reverse=true&name=q24":     "q248 q246",
		"/api/queues?page=1&name=(&use_regex=true":                                     "",
		"/api/queues?page=6&page_size=50":                                              "",
		"/api/queues?page=1&use_regex=true&name=" + strings.Repeat("a", 1025):          "",
		"/api/queues?page=1&page_size=1&sort=effective_policy_definition&columns=name": "q000",
	} {
		if got := strings.Join(c.names(path), " "); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestColumns(t *testing.T) {
	f := queues(2)
	f.connect(1, "guest", "/", "q000")
	f.queues[0].Counts.Publish = 3
	c := serve(t, f)
	_, _, text := c.do("GET", "/api/queues?columns=messages,name,message_stats.publish,consumer_details.consumer_tag,arguments.x-max-length,nope", "")
	want := `[{"name":"q000","arguments":{"x-max-length":5},"messages":2,"consumer_details":[{"consumer_tag":"ctag"}]},` +
		`{"name":"q001","arguments":{"x-max-length":5},"messages":1,"message_stats":{"publish":3},"consumer_details":[]}]`
	if text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if _, _, text = c.do("GET", "/api/whoami?columns=tags", ""); text != `{"tags":["administrator"]}` {
		t.Error(text)
	}
	if _, _, text = c.do("GET", "/api/queues/%2F?page=1&page_size=1&columns=name,message_stats,message_stats.publish", ""); !strings.Contains(text, `"items":[{"name":"q000"}]`) {
		t.Error(text)
	}
}

func TestVisibility(t *testing.T) {
	f := queues(1)
	f.queues = append(f.queues, Queue{VHost: "shop", Name: "mine", Type: "classic"})
	f.connect(1, "guest", "/", "q000")
	f.connect(2, "ann", "shop", "mine")
	c := serve(t, f)
	if got := c.as("ann").names("/api/queues"); !slices.Equal(got, []string{"mine"}) {
		t.Error(got)
	}
	if got := c.as("mon").names("/api/queues"); got != nil {
		t.Error("a monitor without permissions sees queues:", got)
	}
	if got := c.as("mon").names("/api/vhosts"); !slices.Equal(got, []string{"/", "shop"}) {
		t.Error(got)
	}
	if got := c.as("ann").names("/api/vhosts"); !slices.Equal(got, []string{"shop"}) {
		t.Error(got)
	}
	for user, want := range map[string]int{"ann": 1, "mon": 2, "guest": 2} {
		if got := c.as(user).names("/api/connections"); len(got) != want {
			t.Error(user, got)
		}
		if got := c.as(user).names("/api/channels"); len(got) != want {
			t.Error(user, got)
		}
	}
	foreign := "/api/connections/127.0.0.1:1%20-%3E%20127.0.0.1:5672"
	for _, method := range []string{"GET", "DELETE"} {
		if status, _, text := c.as("ann").do(method, foreign, ""); status != 401 || !strings.Contains(text, "User not authorised to access object") {
			t.Error(method, status, text)
		}
	}
	if status, _, _ := c.as("mon").do("DELETE", foreign, ""); status != 401 {
		t.Error("a monitor closed a connection")
	}
	if got := serveNames(c, "/api/queues", "x-vhost", "shop"); !slices.Equal(got, []string{"mine"}) {
		t.Error(got)
	}
}

func serveNames(c *client, path string, headers ...string) (names []string) {
	_, _, text := c.do("GET", path, "", headers...)
	var list []struct{ Name string }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		c.t.Fatal(err, text)
	}
	for _, item := range list {
		names = append(names, item.Name)
	}
	return names
}

// What amqp091-go's suite does: list with a slash at the end, find a connection by the name its client gave, close it.
func TestConnections(t *testing.T) {
	f := newFake()
	name := f.connect(40001, "guest", "/", "")
	f.connect(40002, "guest", "/", "")
	c := serve(t, f)
	listed := c.get("/api/connections/").([]any)[0].(map[string]any)
	if listed["name"] != name || listed["client_properties"].(map[string]any)["connection_name"] != "c40001" || listed["user_provided_name"] != "c40001" {
		t.Error(listed)
	}
	want := []string{"auth_mechanism", "channel_max", "channels", "client_properties", "connected_at", "frame_max", "host", "name", "node", "peer_cert_issuer",
		"peer_cert_serial_number", "peer_cert_subject", "peer_cert_validity", "peer_host", "peer_port", "port", "protocol", "recv_cnt", "recv_oct", "send_cnt", "send_oct",
		"ssl", "ssl_cipher", "ssl_hash", "ssl_key_exchange", "ssl_protocol", "state", "timeout", "type", "user", "user_provided_name", "user_who_performed_action", "vhost"}
	if got := fields(listed); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if listed["connected_at"] != 1700000000123.0 || listed["timeout"] != 10.0 || listed["ssl_cipher"] != nil || listed["ssl"] != false {
		t.Error(listed)
	}
	if got := c.get("/api/connections/127.0.0.1:40001%20-%3E%20127.0.0.1:5672/channels").([]any); len(got) != 1 {
		t.Error(got)
	}
	if channel := c.object("/api/channels/127.0.0.1%3A40001%20-%3E%20127.0.0.1%3A5672%20(1)"); channel["number"] != 1.0 || channel["prefetch_count"] != 10.0 || channel["confirm"] != true {
		t.Error(channel)
	}
	if status, _, text := c.do("DELETE", "/api/connections/127.0.0.1:40001%20-%3E%20127.0.0.1:5672", ""); status != 204 || text != "" {
		t.Error(status, text)
	}
	c.do("DELETE", "/api/connections/127.0.0.1:40002%20-%3E%20127.0.0.1:5672", "", "X-Reason", "maintenance")
	f.connect(40003, "guest", "/", "")
	f.connect(40004, "ann", "shop", "")
	c.do("DELETE", "/api/connections/username/ann", "", "X-Reason", "leaver")
	if want := []string{name + ": Closed via management plugin", "127.0.0.1:40002 -> 127.0.0.1:5672: maintenance", "127.0.0.1:40004 -> 127.0.0.1:5672: leaver"}; !slices.Equal(f.closed, want) {
		t.Errorf("%q", f.closed)
	}
	if got := c.get("/api/connections/username/guest").([]any); len(got) != 1 || !slices.Equal(fields(got[0].(map[string]any)), []string{"name", "node", "user", "vhost"}) {
		t.Error(got)
	}
}

func TestBindings(t *testing.T) {
	f := queues(1)
	f.bindings = []Binding{{VHost: "/", Source: "amq.topic", Destination: "q000", RoutingKey: "#", Arguments: map[string]any{"a": int64(1)}},
		{VHost: "/", Source: "amq.topic", Destination: "amq.direct", ToExchange: true, RoutingKey: "a ~b"}, {VHost: "/", Source: "amq.direct", Destination: "q000"}}
	c := serve(t, f)
	var got []string
	for _, b := range c.get("/api/bindings").([]any) {
		m := b.(map[string]any)
		got = append(got, fmt.Sprintf("%v>%v %v %v", m["source"], m["destination"], m["destination_type"], m["properties_key"]))
	}
	if want := []string{">q000 queue q000", "amq.direct>q000 queue ~", "amq.topic>amq.direct exchange a+%7Eb", "amq.topic>q000 queue %23~VGGSeg"}; len(got) != 4 || !slices.Equal(got[:3], want[:3]) || !strings.HasPrefix(got[3], "amq.topic>q000 queue %23~") {
		t.Errorf("got %q", got)
	}
	for path, want := range map[string]int{"/api/queues/%2F/q000/bindings": 3, "/api/exchanges/%2F/amq.topic/bindings/source": 2, "/api/exchanges/%2F/amq.direct/bindings/destination": 1,
		"/api/exchanges/%2F/amq.default/bindings/source": 1, "/api/bindings/%2F/e/amq.default/q/q000": 1, "/api/bindings/%2F/e/amq.topic/e/amq.direct": 1, "/api/bindings/%2F": 4, "/api/bindings/shop": 0} {
		if got := c.get(path).([]any); len(got) != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	// The properties key is escaped once more in a path.
	key := strings.Fields(got[3])[2]
	if b := c.object("/api/bindings/%2F/e/amq.topic/q/q000/" + strings.ReplaceAll(key, "%", "%25")); b["routing_key"] != "#" {
		t.Error(b)
	}
	if b := c.object("/api/bindings/%2F/e/amq.default/q/q000/q000"); b["source"] != "" {
		t.Error(b)
	}
	if status, _, _ := c.do("GET", "/api/bindings/%2F/e/amq.topic/q/q000/nope", ""); status != 404 {
		t.Error(status)
	}
	xs := c.names("/api/exchanges")
	if xs[0] != "" || c.object("/api/exchanges/%2F/amq.default")["type"] != "direct" {
		t.Error(xs)
	}
}

func TestHealth(t *testing.T) {
	f := newFake()
	c := serve(t, f, func(o *Options) { o.ConnectionMax = 1 })
	check := func(user, path string, status int, want string) {
		t.Helper()
		if got, _, text := c.as(user).do("GET", "/api"+path, ""); got != status || text != want {
			t.Errorf("%s: %d %s, want %d %s", path, got, text, status, want)
		}
	}
	ok := `{"status":"ok"}`
	for _, path := range []string{"alarms", "local-alarms", "virtual-hosts", "metadata-store/initialized", "is-in-service", "below-node-connection-limit", "ready-to-serve-clients"} {
		check("guest", "/health/checks/"+path, 200, ok)
	}
	check("guest", "/aliveness-test/%2F", 200, ok)
	check("guest", "/healthchecks/node", 200, ok)
	check("guest", "/health/checks/node-is-quorum-critical", 200, `{"reason":"single node cluster","status":"ok"}`)
	check("guest", "/health/checks/port-listener/5672", 200, `{"port":5672,"status":"ok"}`)
	check("guest", "/health/checks/port-listener/1", 503, `{"missing":1,"ports":[5672,15672],"reason":"No active listener","status":"failed"}`)
	check("guest", "/health/checks/protocol-listener/AMQP091,management", 200, `{"protocols":["amqp","http"],"status":"ok"}`)
	check("guest", "/health/checks/protocol-listener/mqtt,amqp", 503, `{"missing":["mqtt"],"protocols":["amqp","http"],"reason":"No active listener","status":"failed"}`)
	check("", "/health/checks/ready-to-serve-clients", 200, ok)
	check("", "/version", 200, `"4.3.6"`)
	check("", "/health/checks/alarms", 401, "")
	f.alarms = []Alarm{{"memory"}}
	check("guest", "/health/checks/alarms", 503, `{"alarms":[{"node":"warren@test","resource":"memory"}],"reason":"There are alarms in effect in the cluster","status":"failed"}`)
	check("guest", "/health/checks/local-alarms", 503, `{"alarms":[{"node":"warren@test","resource":"memory"}],"reason":"There are alarms in effect on the node","status":"failed"}`)
	f.connect(1, "guest", "/", "")
	check("", "/health/checks/below-node-connection-limit", 503, `{"reason":"node connection limit is reached","status":"failed"}`)
	f.stopped = true
	check("", "/health/checks/is-in-service", 503, `{"reason":"the node is not in service","status":"failed"}`)
	check("", "/health/checks/ready-to-serve-clients", 503, `{"reason":"the node is not in service","status":"failed"}`)
}

func TestOverviewAndNodes(t *testing.T) {
	f := queues(2)
	f.connect(1, "guest", "/", "q000")
	f.counts = Counts{Received: 7, Confirmed: 2, ConnectionsOpened: 3, Delivery: []TypeCounts{{Type: "classic", QueueCounts: QueueCounts{Publish: 7, Deliver: 4}}}}
	c := serve(t, f)
	v := c.object("/api/overview")
	if v["rabbitmq_version"] != "4.3.6" || v["product_name"] != "Warren" || v["product_version"] != "0.1.0" || v["node"] != "warren@test" || v["cluster_name"] != "warren@test" {
		t.Error(v)
	}
	if want := map[string]any{"queues": 2.0, "exchanges": 3.0, "connections": 1.0, "channels": 1.0, "consumers": 1.0}; !reflect.DeepEqual(v["object_totals"], want) {
		t.Error(v["object_totals"])
	}
	if stats := v["message_stats"].(map[string]any); stats["publish"] != 7.0 || stats["deliver_get"] != 4.0 || stats["confirm"] != 2.0 || stats["disk_reads"] != 0.0 {
		t.Error(stats)
	}
	if l := v["listeners"].([]any)[0].(map[string]any); l["protocol"] != "amqp" || l["port"] != 5672.0 || l["ip_address"] != "127.0.0.1" {
		t.Error(l)
	}
	if plain := c.as("ann").object("/api/overview"); plain["listeners"] != nil || plain["node"] != nil || plain["object_totals"].(map[string]any)["consumers"] != nil {
		t.Error(plain)
	}
	node := c.get("/api/nodes").([]any)[0].(map[string]any)
	for _, name := range []string{"name", "uptime", "run_queue", "processors", "os_pid", "fd_total", "proc_total", "mem_limit", "mem_alarm", "disk_free_limit", "disk_free_alarm",
		"rates_mode", "enabled_plugins", "being_drained", "running", "mem_used"} {
		if node[name] == nil {
			t.Errorf("a node has no %s", name)
		}
	}
	if c.object("/api/nodes/warren@test")["name"] != "warren@test" || c.object("/api/vhosts/%2F")["cluster_state"].(map[string]any)["warren@test"] != "running" {
		t.Error("node or virtual host")
	}
}

func TestRates(t *testing.T) {
	f := queues(2)
	api := New(Options{Broker: f, Node: "n"})
	at := time.Unix(1000, 0)
	api.samples.take(f, at)
	f.queues[0].Counts.Publish, f.queues[0].Ready, f.counts.Received = 50, f.queues[0].Ready+30, 50
	f.counts.Delivery = []TypeCounts{{Type: "classic", QueueCounts: QueueCounts{Publish: 50}}}
	f.queues = append(f.queues, Queue{ID: 9, VHost: "/", Name: "young", Counts: QueueCounts{Publish: 5}})
	f.counts.QueuesCreated++
	at = at.Add(5 * time.Second)
	api.samples.take(f, at)
	if r, ok := api.samples.queue(1); !ok || r.publish != 10 || r.ready != 6 {
		t.Error(r, ok)
	}
	if r, ok := api.samples.queue(9); !ok || r.publish != 1 {
		t.Error("a queue made between two samples:", r, ok)
	}
	if r := api.samples.node(); r.received != 10 || r.delivery.publish != 10 {
		t.Error(r)
	}
	if got := api.queueView(&f.queues[0], nil); got.Stats.PublishDetails.Rate != 10 || got.MessagesDetails.Rate != 6 {
		t.Error(got)
	}
	f.queues = f.queues[1:]
	f.counts.QueuesDeleted++
	at = at.Add(5 * time.Second)
	api.samples.take(f, at)
	if _, ok := api.samples.queue(1); ok {
		t.Error("a deleted queue is still sampled")
	}
	if r, _ := api.samples.queue(9); r.publish != 0 {
		t.Error(r)
	}
	walks := f.walks
	for range 3 {
		at = at.Add(5 * time.Second)
		api.samples.take(f, at)
	}
	if f.walks > walks+1 {
		t.Errorf("an idle node's queues were walked %d times", f.walks-walks)
	}
}

// A list of 100,000 queues, of which one page is shown, copies little.
func BenchmarkPageOf100000Queues(b *testing.B) {
	f := queues(100_000)
	byName := map[string]*Queue{}
	for i := range f.queues {
		byName[f.queues[i].Name] = &f.queues[i]
	}
	api := New(Options{Broker: indexed{f, byName}, Node: "n"})
	for _, path := range []string{"/api/queues?page=10", "/api/queues?page=10&sort=messages", "/api/queues?columns=name,messages", "/api/queues"} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("GET", path, nil)
				r.SetBasicAuth("mon", "mon")
				f.enters["mon"] = []string{"/"}
				api.ServeHTTP(nothing{http.Header{}}, r)
			}
		})
	}
}

// indexed finds queues by name, as a broker does.
type indexed struct {
	*fake
	byName map[string]*Queue
}

func (f indexed) Queue(vhost, name string, into *Queue) bool {
	q := f.byName[name]
	if q != nil {
		*into = *q
	}
	return q != nil
}

type nothing struct{ h http.Header }

func (n nothing) Header() http.Header         { return n.h }
func (n nothing) Write(b []byte) (int, error) { return len(b), nil }
func (n nothing) WriteHeader(int)             {}
