package cli

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/management"
)

const (
	get      = `{"count":10,"ackmode":"ack_requeue_true","encoding":"auto"}`
	take     = `{"count":10,"ackmode":"ack_requeue_false","encoding":"auto"}`
	reject   = `{"count":10,"ackmode":"reject_requeue_false","encoding":"auto"}`
	rejected = `{"error":"bad_request","reason":"rejected Unable to publish message. Check queue limits."}`
)

func publish(key, properties, payload string) string {
	return fmt.Sprintf(`{"routing_key":%q,"properties":{%s},"payload":%q,"payload_encoding":"string"}`, key, properties, payload)
}

func got(redelivered bool, exchange, key string, left int, properties, payload string) string {
	if properties != "[]" {
		properties = "{" + properties + "}"
	}
	return fmt.Sprintf(`{"payload_bytes":%d,"redelivered":%t,"exchange":%q,"routing_key":%q,"message_count":%d,"properties":%s,"payload":%q,"payload_encoding":"string"}`,
		len(payload), redelivered, exchange, key, left, properties, payload)
}

func TestMessagesOverHTTP(t *testing.T) {
	n := runNode(t)
	pub := "/exchanges/%2F/amq.default/publish"
	n.expect([][5]any{
		{"guest", "PUT", "/queues/%2F/q", `{"durable":true,"arguments":{"x-dead-letter-exchange":"","x-dead-letter-routing-key":"dead","x-max-priority":5}}`, 201},
		{"guest", "PUT", "/queues/%2F/dead", `{"durable":true}`, 201},
		{"guest", "POST", pub, publish("q", "", "1"), `{"routed":true}`},
		{"guest", "POST", pub, publish("q", `"delivery_mode":2,"priority":3,"headers":{"k":[1,"x"]},"expiration":"060000"`, "2"), `{"routed":true}`},
		{"guest", "POST", pub, publish("nobody", "", "3"), `{"routed":false}`},
		{"guest", "POST", "/queues/%2F/q/get", get, "[" + got(false, "", "q", 1, `"headers":{"k":[1,"x"]},"delivery_mode":2,"priority":3,"expiration":"60000"`, "2") + "," + got(false, "", "q", 0, "[]", "1") + "]"},
		{"guest", "POST", "/queues/%2F/q/get", `{"count":1,"ackmode":"reject_requeue_true","encoding":"auto"}`,
			"[" + got(true, "", "q", 1, `"headers":{"k":[1,"x"]},"delivery_mode":2,"priority":3,"expiration":"60000"`, "2") + "]"},
		{"guest", "POST", "/queues/%2F/q/get", reject, 200},
		{"guest", "POST", "/queues/%2F/q/get", get, "[]"},
		{"guest", "GET", "/queues/%2F/dead?columns=messages_ready", "", `{"messages_ready":2}`},
		{"guest", "DELETE", "/queues/%2F/dead/contents", "", 204},

		{"guest", "PUT", "/queues/%2F/full", `{"arguments":{"x-max-length":1,"x-overflow":"reject-publish"}}`, 201},
		{"guest", "POST", pub, publish("full", "", "1"), `{"routed":true}`},
		{"guest", "POST", pub, publish("full", "", "2"), rejected},
		{"guest", "POST", pub, publish("nobody", `"headers":{"CC":["dead"],"BCC":["q"]}`, "cc"), `{"routed":true}`},
		{"guest", "POST", "/queues/%2F/q/get", take, "[" + got(false, "", "nobody", 0, `"headers":{"CC":["dead"]}`, "cc") + "]"},
		{"guest", "POST", "/queues/%2F/dead/get", take, "[" + got(false, "", "nobody", 0, `"headers":{"CC":["dead"]}`, "cc") + "]"},
		{"guest", "PUT", "/exchanges/%2F/inner", `{"internal":true}`, 201},
		{"guest", "POST", "/exchanges/%2F/inner/publish", publish("q", "", "1"), `{"error":"bad_request","reason":"403 ACCESS_REFUSED - cannot publish to internal exchange 'inner' in vhost '/'"}`},
		{"guest", "POST", pub, publish("q", `"expiration":"-1"`, "1"), `{"error":"bad_request","reason":"406 PRECONDITION_FAILED - invalid expiration '-1': {value_negative,-1}"}`},
		{"guest", "POST", pub, publish("q", `"expiration":"1 s"`, "1"), `{"error":"bad_request","reason":"406 PRECONDITION_FAILED - invalid expiration '1 s': {leftover_string,\" s\"}"}`},
		{"guest", "POST", pub, publish("q", `"user_id":"eve"`, "1"), `{"error":"bad_request","reason":"406 PRECONDITION_FAILED - user_id property set to 'eve' but authenticated user was 'guest'"}`},
		{"guest", "POST", pub, publish("q", `"app_id":"`+strings.Repeat("x", 256)+`"`, "1"), 400},
		{"guest", "POST", pub, publish(strings.Repeat("x", 256), "", "1"), 400},
		{"guest", "POST", pub, publish("q", `"expiration":"1"`, "short"), `{"routed":true}`},
	})
	deadline := time.Now().Add(10 * time.Second)
	for { // it expires in q and goes where its dead letters go
		_, text := n.do("guest", "POST", "/queues/%2F/dead/get", get)
		if strings.Contains(text, `"payload":"short"`) && strings.Contains(text, `"reason":"expired"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not expire:", text)
		}
	}
}

// A getter takes no more than the bound on what it keeps in memory, and gives back what it does not return.
func TestGetIsBounded(t *testing.T) {
	n := runNode(t)
	n.expect([][5]any{{"guest", "PUT", "/queues/%2F/q", `{}`, 201}})
	for i := range 3 {
		n.expect([][5]any{{"guest", "POST", "/exchanges/%2F/amq.default/publish", publish("q", "", strings.Repeat(fmt.Sprint(i), 1000)), `{"routed":true}`}})
	}
	r := n.engine.(*rooms)
	guest := management.User{Name: "guest"}
	for range 2 {
		list, err := r.Get(guest, management.Fetch{VHost: "/", Queue: "q", Count: -1, MaxBytes: 1500, Requeue: true})
		if err != nil || len(list) != 2 || list[1].Left != 1 || list[0].Body[0] != '0' {
			t.Fatal(len(list), err)
		}
	}
	list, err := r.Get(guest, management.Fetch{VHost: "/", Queue: "q", Count: 2, MaxBytes: 1 << 20, NoAck: true})
	if err != nil || len(list) != 2 || list[0].Body[0] != '0' || !list[0].Redelivered {
		t.Fatal(list, err)
	}
	if _, err := r.Get(management.User{Name: "gone"}, management.Fetch{VHost: "/", Queue: "q", Count: 1}); !isRefusal(err, 403) {
		t.Error(err)
	}
}

func isRefusal(err error, code uint16) bool {
	var refusal *management.Refusal
	return errors.As(err, &refusal) && refusal.Code == code
}

// Everything that is set is there after a restart, and an export says the same.
func TestAccessSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	n := runNodeIn(t, dir)
	n.expect([][5]any{
		{"guest", "PUT", "/vhosts/shop", `{"description":"d","tags":"a,b","default_queue_type":"classic"}`, 201},
		{"guest", "GET", "/permissions/shop/guest", "", `{"user":"guest","vhost":"shop","configure":".*","write":".*","read":".*"}`},
		{"guest", "PUT", "/users/ann", `{"password":"ann","tags":"management","limits":{"max-channels":7}}`, 201},
		{"guest", "PUT", "/users/ann", `{"password":"ann","tags":"management,policymaker"}`, 204},
		{"guest", "PUT", "/permissions/shop/ann", `{"configure":"^a","write":".*","read":".*"}`, 201},
		{"guest", "PUT", "/topic-permissions/shop/ann", `{"exchange":"amq.topic","write":"^a","read":""}`, 201},
		{"guest", "PUT", "/topic-permissions/shop/ann", `{"exchange":"amq.topic","write":"(","read":""}`, `{"error":"bad_request","reason":["invalid_regexp","(",[[109,105,115,115,105,110,103,32,99,108,111,115,105,110,103,32,112,97,114,101,110,116,104,101,115,105,115],1]]}`},
		{"guest", "PUT", "/vhost-limits/shop/max-queues", `{"value":2}`, 204},
		{"guest", "PUT", "/policies/shop/p", `{"pattern":"^a","definition":{"max-length":3}}`, 201},
		{"guest", "PUT", "/operator-policies/shop/o", `{"pattern":"^a","definition":{"max-length":2}}`, 201},
		{"guest", "PUT", "/global-parameters/g", `{"value":[1,{"x":null}]}`, 201},
		{"ann", "PUT", "/queues/shop/aq", `{"durable":true}`, 201},
		{"ann", "PUT", "/queues/shop/aq", `{"durable":true}`, 204},
		{"ann", "PUT", "/queues/shop/aq", `{}`, `{"error":"bad_request","reason":"inequivalent arg 'durable' for queue 'aq' in vhost 'shop': received 'false' but current is 'true'"}`},
		{"ann", "PUT", "/queues/shop/bq", `{"durable":true}`, `{"error":"not_authorised","reason":"Access refused."}`},
		{"guest", "PUT", "/queues/shop/bq", `{"durable":true}`, 201},
		{"guest", "PUT", "/queues/shop/cq", `{}`, `{"error":"bad_request","reason":"cannot declare queue 'cq': queue limit in vhost 'shop' (2) is reached"}`},
		{"ann", "PUT", "/exchanges/shop/ax", `{"type":"topic","durable":true}`, 201},
		{"ann", "PUT", "/exchanges/shop/ax", `{"type":"topic","durable":true}`, 204},
		{"ann", "DELETE", "/exchanges/shop/amq.topic", "", `{"error":"not_authorised","reason":"Access refused."}`},
		{"ann", "POST", "/bindings/shop/e/ax/q/aq", `{"routing_key":"#","arguments":{"n":1}}`, 201},
		{"ann", "POST", "/exchanges/shop/ax/publish", publish("any", `"delivery_mode":2`, "kept"), `{"routed":true}`},
	})
	before := n.state()
	n.stop()
	n = runNodeIn(t, dir)
	if after := n.state(); after != before {
		t.Errorf("after a restart\n%s\nbefore\n%s", after, before)
	}
	n.expect([][5]any{
		{"ann", "POST", "/queues/shop/aq/get", get, "[" + got(false, "ax", "any", 0, `"delivery_mode":2`, "kept") + "]"},
		{"guest", "GET", "/queues/shop/aq?columns=policy,operator_policy,effective_policy_definition", "", `{"effective_policy_definition":{"max-length":2},"policy":"p","operator_policy":"o"}`},
		{"guest", "DELETE", "/permissions/shop/ann", "", 204},
		{"ann", "POST", "/queues/shop/aq/get", get, `{"error":"not_found","reason":"Not Found"}`},
		{"guest", "DELETE", "/users/ann", "", 204},
		{"ann", "GET", "/whoami", "", `{"error":"not_authorized","reason":"Not_Authorized"}`},
		{"guest", "PUT", "/users/ann", `{"tags":""}`, 201},
		{"guest", "GET", "/users/ann/permissions", "", `[]`},
		{"guest", "GET", "/users/ann/topic-permissions", "", `[]`},
		{"guest", "GET", "/user-limits/ann", "", `[]`},
		{"guest", "DELETE", "/vhosts/shop", "", 204},
		{"guest", "GET", "/parameters", "", `[]`},
	})
}

// state is all that the API lists of what was set.
func (n *realNode) state() string {
	var all strings.Builder
	for _, path := range []string{"/users", "/vhosts", "/permissions", "/topic-permissions", "/user-limits", "/vhost-limits", "/policies", "/operator-policies", "/parameters",
		"/global-parameters", "/definitions", "/definitions/shop", "/bindings", "/exchanges?columns=name,vhost,policy,arguments"} {
		status, text := n.do("guest", "GET", path, "")
		fmt.Fprintln(&all, path, status, text)
	}
	return all.String()
}

// What is deleted takes its connections with it, and permissions count on connections that are open.
func TestChangesReachOpenConnections(t *testing.T) {
	n := runNode(t)
	n.expect([][5]any{
		{"guest", "PUT", "/vhosts/shop", "", 201},
		{"guest", "PUT", "/users/ann", `{"password":"ann","tags":""}`, 201},
		{"guest", "PUT", "/permissions/shop/ann", `{"configure":".*","write":".*","read":".*"}`, 201},
		{"guest", "PUT", "/permissions/%2F/ann", `{"configure":".*","write":".*","read":".*"}`, 201},
	})
	dial := func(vhost string) (*amqp091.Connection, chan *amqp091.Error) {
		c, err := amqp091.Dial("amqp://ann:ann@" + n.amqp + "/" + vhost)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c, c.NotifyClose(make(chan *amqp091.Error, 1))
	}
	closed := func(c chan *amqp091.Error, want string) {
		t.Helper()
		select {
		case err := <-c:
			if err == nil || err.Code != 320 || err.Reason != "CONNECTION_FORCED - "+want {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the connection stays open; want", want)
		}
	}
	inShop, shopClosed := dial("shop")
	_, rootClosed := dial("")
	ch, err := inShop.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	n.expect([][5]any{{"guest", "PUT", "/permissions/shop/ann", `{"configure":"","write":"","read":""}`, 204}})
	if _, err := ch.QueueDeclare("p", false, false, false, false, nil); err == nil || err.(*amqp091.Error).Code != 403 {
		t.Error("a permission that was taken away still counts:", err)
	}
	n.expect([][5]any{{"guest", "DELETE", "/vhosts/shop", "", 204}})
	closed(shopClosed, "vhost 'shop' is deleted")
	n.expect([][5]any{{"guest", "DELETE", "/users/ann", "", 204}})
	closed(rootClosed, "user 'ann' is deleted")
}

// Definitions that are exported, imported into an empty node and exported again are the same.
func TestDefinitionsAreAFixedPoint(t *testing.T) {
	from, to := runNode(t), runNode(t)
	from.expect([][5]any{
		{"guest", "PUT", "/vhosts/shop", `{"description":"d"}`, 201},
		{"guest", "PUT", "/users/ann", `{"password_hash":"aGVsbG8gd29ybGQ=","hashing_algorithm":"rabbit_password_hashing_sha512","tags":["a","b"]}`, 201},
		{"guest", "PUT", "/users/ann", `{"tags":["a"],"limits":{"max-connections":3}}`, 204},
		{"guest", "PUT", "/policies/shop/p", `{"pattern":"^a","definition":{"max-length":3},"priority":-4}`, 201},
		{"guest", "PUT", "/queues/shop/q", `{"durable":true,"arguments":{"x-max-length":9}}`, 201},
		{"guest", "PUT", "/exchanges/shop/x", `{"type":"headers","durable":true}`, 201},
		{"guest", "POST", "/bindings/shop/e/x/q/q", `{"arguments":{"x-match":"any","a":1,"b":"two"}}`, 201},
	})

	_, exported := from.do("guest", "GET", "/definitions", "")
	to.expect([][5]any{{"guest", "POST", "/definitions", exported, 204}, {"guest", "POST", "/definitions", exported, 204}})
	if _, again := to.do("guest", "GET", "/definitions", ""); again != exported {
		t.Errorf("exported\n%s\nand again\n%s", exported, again)
	}
	to.expect([][5]any{
		{"guest", "POST", "/definitions", "{bad", `{"error":"bad_request","reason":"failed_to_parse_json"}`},
		{"guest", "POST", "/definitions", `{"queues":[{"name":"a","vhost":"nope"}]}`, `{"error":"bad_request","reason":"Please create virtual host \"nope\" prior to importing definitions."}`},
		{"guest", "POST", "/definitions/nope", "{}", `{"error":"not_found","reason":"vhost_not_found"}`},
	})
}

func TestWrongPatterns(t *testing.T) {
	n := runNode(t)
	for pattern, want := range map[string]string{
		"[a": "missing terminating ] for character class at 2", "(a": "missing closing parenthesis at 2", "a)b": "unmatched closing parenthesis at 2",
		"a**": "", "*a": "quantifier does not follow a repeatable item at 1", `a\`: `\ at end of pattern at 2`, "a{2,1}": "",
	} {
		err := n.engine.(*rooms).patternOf(pattern)
		var wrong *management.InvalidPattern
		if !errors.As(err, &wrong) || wrong.Pattern != pattern || want != "" && fmt.Sprintf("%s at %d", wrong.Text, wrong.At) != want {
			t.Errorf("%s: %#v", pattern, err)
		}
	}
}

// patternOf tries a pattern as a permission.
func (r *rooms) patternOf(pattern string) error {
	_, err := r.SetPermissions(management.Permission{User: "guest", VHost: "/", Configure: ".*", Write: pattern, Read: ".*"})
	return err
}

// Whatever goes on at once, every request is answered, and what was published is there or was taken.
func TestRequestsAtOnce(t *testing.T) {
	n := runNode(t)
	r, guest := n.engine.(*rooms), management.User{Name: "guest"}
	declare := func(name string) {
		if _, err := r.DeclareQueue(guest, management.QueueDeclaration{VHost: "/", Name: name, Durable: true}); err != nil {
			t.Error(err)
		}
	}
	declare("stays")
	var published, taken atomic.Int64
	var running sync.WaitGroup
	allowed := func(err error) {
		if err != nil && !isRefusal(err, 404) && !errors.Is(err, management.ErrRejected) {
			t.Error(err)
		}
	}
	for i := range 4 {
		for _, name := range []string{"stays", "goes"} {
			running.Go(func() {
				for range 50 {
					routed, err := r.Publish(guest, &management.Publication{VHost: "/", Key: name, Body: []byte("m")})
					if allowed(err); routed && name == "stays" {
						published.Add(1)
					}
				}
			})
			running.Go(func() {
				for j := range 50 {
					f := management.Fetch{VHost: "/", Queue: name, Count: 3, MaxBytes: 1 << 20, NoAck: (i+j)%2 == 0, Requeue: true, Reject: j%3 == 0}
					list, err := r.Get(guest, f)
					if allowed(err); f.NoAck && name == "stays" {
						taken.Add(int64(len(list)))
					}
				}
			})
		}
	}
	running.Go(func() {
		for range 50 {
			declare("goes")
			allowed(r.DeleteQueue(guest, "/", "goes", false, false))
		}
	})
	running.Go(func() {
		for i := range 50 {
			name := fmt.Sprint("p", i%2)
			_, err := r.SetPolicy("/", name, i%3 == 0, map[string]any{"pattern": "^goes$", "definition": map[string]any{"max-length": 5}})
			allowed(err)
			_, err = r.ClearPolicy("/", name, i%3 == 0)
			allowed(err)
		}
	})
	running.Wait()
	var q management.Queue
	if !r.Queue("/", "stays", &q) || int64(q.Ready)+taken.Load() != published.Load() || q.Unacked != 0 {
		t.Errorf("%d published, %d taken, %d ready, %d unacknowledged", published.Load(), taken.Load(), q.Ready, q.Unacked)
	}
}
