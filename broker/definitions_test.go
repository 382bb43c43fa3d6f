package broker

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// newAny is a node that runs every type of queue as if it were a classic one.
func newAny(t *testing.T, o Options) *node {
	t.Helper()
	clock := queue.NewClock()
	t.Cleanup(clock.Close)
	o.Pool, o.Clock = queue.NewPool(1<<20), clock
	o.NewQueue = func(q NewQueue) queue.Queue {
		return queue.NewClassic(queue.ClassicRules(q.MaxPriority), q.Config, o.Pool, clock, q.DeadLetters)
	}
	b := New(o)
	return &node{T: t, Broker: b, v: b.VHost("/")}
}

var testOrigin = Origin{Cluster: "rabbit@localhost", Product: "Warren", ProductVersion: "0", Version: "4.3.6"}

func (n *node) exported() string {
	n.Helper()
	b, err := json.MarshalIndent(n.Export(testOrigin), "", " ")
	if err != nil {
		n.Fatal(err)
	}
	return string(b)
}

func (n *node) imported(data string) []string {
	n.Helper()
	warnings, err := n.Import([]byte(data))
	if err != nil {
		n.Fatal(err)
	}
	return warnings
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestImportRabbitMQ imports what RabbitMQ 4.3.6 exports, and exports the same: object by object, whatever the order.
func TestImportRabbitMQ(t *testing.T) {
	text := read(t, "rabbitmq-4.3.json")
	n := newAny(t, Options{})
	if w := n.imported(text); len(w) > 0 {
		t.Error("warnings:", w)
	}
	parse := func(text string) (m map[string][]any) {
		v, err := DecodeJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		m = map[string][]any{}
		for k, v := range v.(map[string]any) {
			m[k], _ = v.([]any)
		}
		return m
	}
	got, want := parse(n.exported()), parse(text)
	if len(want["queues"]) != 5 || len(want["bindings"]) < 4 || len(want["policies"]) != 3 || len(want["parameters"]) != 2 {
		t.Fatal("the file has changed")
	}
	for list, objects := range want {
		for _, o := range objects {
			found := false
			for _, g := range got[list] {
				found = found || reflect.DeepEqual(g, o)
			}
			if name := o.(map[string]any)["name"]; !found && name != "guest" {
				t.Errorf("%s: missing %v", list, o)
			}
		}
	}
	for list, extra := range map[string]int{"users": 0, "vhosts": 1, "permissions": 1, "queues": 0, "exchanges": 0, "bindings": 0, "policies": 0, "parameters": 0, "global_parameters": 0, "topic_permissions": 0} {
		if len(got[list]) != len(want[list])+extra { // the default virtual host is none of theirs
			t.Errorf("%d %s, want %d", len(got[list]), list, len(want[list])+extra)
		}
	}
	v := n.VHost("shop")
	q := v.Queue("orders.eu")
	if s := q.Settings(); s.Policy != "lengths" || s.OperatorPolicy != "cap" || s.Config.MaxLength != 7 || s.Expires != 1800000 || s.MaxPriority != 5 {
		t.Errorf("%+v", s)
	}
	if name, _ := v.ExchangePolicy("in"); name != "big" || v.topology.Exchange("in").Alternate != "" {
		t.Errorf("policy %s counts for the exchange, and not the one of the highest priority", name)
	}
	if _, err := n.Authenticate("shop-app", "secret", true); err != nil {
		t.Error(err)
	}
	if l := v.Limits(); !maps.Equal(l, Limits{"max-queues": 100, "max-connections": -1}) {
		t.Error(l)
	}
}

// TestImportRabbitMQVHost: the definitions of one virtual host, into one of another name.
func TestImportRabbitMQVHost(t *testing.T) {
	n := newAny(t, Options{})
	text := read(t, "rabbitmq-4.3-vhost.json")
	if _, err := n.Import([]byte(text)); err == nil || !strings.Contains(err.Error(), "names no virtual host") {
		t.Error("imported as the whole:", err)
	}
	n.PutVHost(PutVHost{Name: "copy"}, func(error) {})
	v := n.VHost("copy")
	for range 2 { // again: nothing changes
		if w, err := v.Import([]byte(text)); err != nil || len(w) > 0 {
			t.Fatal(w, err)
		}
	}
	var got, want Definitions
	b, _ := json.Marshal(v.Export(testOrigin))
	if err := errors.Join(json.Unmarshal(b, &got), json.Unmarshal([]byte(text), &want)); err != nil {
		t.Fatal(err)
	}
	if len(got.Queues) != len(want.Queues) || len(got.Bindings) != len(want.Bindings) || len(got.Policies) != 3 || len(got.Parameters) != 2 || len(got.Exchanges) != 4 || got.VHost != "copy" {
		t.Errorf("%s", b)
	}
	if strings.Contains(string(b), `"vhost"`) || got.Users != nil {
		t.Errorf("%s", b)
	}
}

// TestImportRabbitMQ38: what an old file has that RabbitMQ 4 does not.
func TestImportRabbitMQ38(t *testing.T) {
	n := newAny(t, Options{})
	got := n.imported(read(t, "rabbitmq-3.8.json"))
	want := []string{
		"policy 'ha' in vhost 'old': the key ha-mode has no meaning any more and is left out",
		"policy 'ha' in vhost 'old': the key ha-sync-mode has no meaning any more and is left out",
		"policy 'ha-ttl' in vhost 'old': the key ha-mode has no meaning any more and is left out",
		"policy 'ha-ttl' in vhost 'old': the key ha-params has no meaning any more and is left out",
		"queue 't2' in vhost 'old': version 1 of classic queues is no more, the argument is left out",
		"queue 'amq.gen-x' in vhost 'old': names that begin with 'amq.' are the broker's, it is left out",
		"binding from exchange 'x' to queue 'amq.gen-x' in vhost 'old': its queue was left out",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	v := n.VHost("old")
	if p := v.Policies(false); len(p) != 1 || p[0].Name != "ha-ttl" || p[0].Priority != 1 || fmt.Sprint(p[0].Definition) != "map[message-ttl:1000]" {
		t.Error(p)
	}
	if s := v.Queue("t1").Settings(); s.Config.TTL != 1000 {
		t.Errorf("%+v", s)
	}
	if u := n.User("app"); !u.Is("monitoring") || !u.Is("policymaker") {
		t.Error(u.Tags)
	}
	if d := v.Description(); d.DefaultQueueType != Classic {
		t.Error(d)
	}
}

// TestHashOfOldVersions: before 3.6 passwords without an algorithm were MD5.
func TestHashOfOldVersions(t *testing.T) {
	for version, want := range map[string]Algorithm{`"3.5.8"`: MD5, `"2.8.1"`: MD5, `"3.6.0"`: SHA256, `"3.10.1"`: SHA256, `"4.3.6"`: SHA256, `null`: SHA256, `"x"`: SHA256} {
		n := newAny(t, Options{})
		n.imported(`{"rabbit_version":` + version + `,"users":[{"name":"u","password_hash":"AAAAAAAA","tags":""}]}`)
		if got := n.User("u").Algorithm; got != want {
			t.Errorf("version %s: %s", version, got)
		}
	}
}

// TestExportIsFixedPoint: what is exported and imported into an empty node is exported in the same octets, for random states.
func TestExportIsFixedPoint(t *testing.T) {
	seed := seeds.Of(t)
	r := rand.New(rand.NewPCG(seed, 0))
	d := openDisk(t, storage.NewFaultFS(1))
	for range 20 {
		for range 150 {
			d.change(r)
		}
		d.VHost("/").DeclareQueue(Actor{Connection: 1}, QueueDeclaration{Name: "own", Exclusive: true}, func(q *Queue, err *amqp.Error) {
			if err != nil {
				t.Fatal(err)
			}
			d.VHost("/").Bind(Actor{Connection: 1}, Binding{Source: "amq.fanout", Destination: q.Name}, func(*amqp.Error) {})
		})
		first := (&node{T: t, Broker: d.Broker}).exported()
		if strings.Contains(first, `"own"`) {
			t.Fatal("an exclusive queue is exported")
		}
		n := newAny(t, Options{})
		n.imported(first)
		if second := n.exported(); second != first {
			t.Fatalf("exported\n%s\nimported and exported\n%s", first, second)
		}
		n.imported(first)
		if second := n.exported(); second != first {
			t.Fatal("a second import changes something")
		}
	}
	for _, file := range []string{"rabbitmq-4.3.json", "rabbitmq-3.8.json"} {
		n := newAny(t, Options{})
		n.imported(read(t, file))
		first := n.exported()
		m := newAny(t, Options{})
		m.imported(first)
		if second := m.exported(); second != first {
			t.Errorf("%s: exported\n%s\nimported and exported\n%s", file, first, second)
		}
	}
}

// TestImportOfWhatIsAboveItsLimit: a limit set later than the queues were made does not keep their backup from being restored.
func TestImportOfWhatIsAboveItsLimit(t *testing.T) {
	n := newAny(t, Options{})
	n.imported(`{"queues":[{"name":"a","vhost":"/"},{"name":"b","vhost":"/"}],"parameters":[
		{"vhost":"/","component":"vhost-limits","name":"limits","value":{"max-queues":1}}]}`)
	if v := n.VHost("/"); v.Queue("b") == nil || v.Limits()[maxQueues] != 1 {
		t.Errorf("queue b: %v, limits %v", v.Queue("b"), v.Limits())
	}
	n.imported(n.exported()) // the queues are there already
	if _, err := n.Import([]byte(`{"queues":[{"name":"c","vhost":"/"}]}`)); err == nil {
		t.Error("a queue above the limit is imported")
	}
}

// TestExportIsSorted: the order in which things were made does not show.
func TestExportIsSorted(t *testing.T) {
	things := []string{
		`{"bindings":[{"source":"amq.topic","vhost":"/","destination":"a","routing_key":"2"}]}`,
		`{"bindings":[{"source":"amq.topic","vhost":"/","destination":"a","routing_key":"1"}]}`,
		`{"bindings":[{"source":"amq.topic","vhost":"/","destination":"a","routing_key":"1","arguments":{"x":2}}]}`,
		`{"bindings":[{"source":"amq.topic","vhost":"/","destination":"a","routing_key":"1","arguments":{"x":1}}]}`,
		`{"bindings":[{"source":"amq.topic","vhost":"/","destination":"amq.fanout","destination_type":"exchange"}]}`,
		`{"bindings":[{"source":"amq.direct","vhost":"/","destination":"b","routing_key":"1"}]}`,
		`{"policies":[{"vhost":"/","name":"a","pattern":"","definition":{"max-length":1}}]}`,
		`{"policies":[{"vhost":"/","name":"b","pattern":"","definition":{"max-length":1},"priority":2}]}`,
		`{"parameters":[{"vhost":"/","component":"operator_policy","name":"z","value":{"pattern":"","definition":{"max-length":1},"priority":1}}]}`,
		`{"parameters":[{"vhost":"/","component":"operator_policy","name":"y","value":{"pattern":"","definition":{"max-length":1},"priority":0}}]}`,
		`{"users":[{"name":"z","password_hash":"","tags":""}]}`,
		`{"exchanges":[{"name":"z","vhost":"/","type":"fanout"},{"name":"y","vhost":"/","type":"fanout"}]}`,
	}
	texts := map[string]bool{}
	for range 10 {
		n := newAny(t, Options{})
		hash := base64.StdEncoding.EncodeToString(n.User("guest").Hash)
		n.mustDeclare("b", nil)
		n.mustDeclare("a", nil)
		rand.Shuffle(len(things), func(i, j int) { things[i], things[j] = things[j], things[i] })
		for _, one := range things {
			n.imported(one)
		}
		texts[strings.Replace(n.exported(), hash, "", 1)] = true // its salt is random
	}
	if len(texts) != 1 {
		t.Errorf("%d texts", len(texts))
	}
}

// TestImportKeeps: queues and exchanges that exist stay as they are, what can be replaced is.
func TestImportKeeps(t *testing.T) {
	n := newAny(t, Options{})
	n.mustDeclare("q", args("x-max-length", 3))
	n.want("x", n.exchange(Actor{}, exchange.Declaration{Name: "x", Type: "fanout"}), "")
	n.PutVHost(PutVHost{Name: "/", Description: "mine", Tags: []string{"t"}}, func(error) {})
	n.setPolicy(false, Policy{Name: "p", Pattern: "z", Definition: map[string]any{"max-length": 1}})
	n.imported(`{"vhosts":[{"name":"/"}],"queues":[{"name":"q","vhost":"/","auto_delete":true,"durable":false,"arguments":{"x-max-length":9}}],
		"exchanges":[{"name":"x","vhost":"/","type":"topic"}],"policies":[{"vhost":"/","name":"p","pattern":"q","definition":{"max-length":2}}]}`)
	q, x := n.v.Queue("q"), n.v.topology.Exchange("x")
	if q.AutoDelete || !q.Durable || integer(q.Arguments, "x-max-length", 0) != 3 || x.Type != "fanout" {
		t.Error("changed:", q.Arguments, x.Type)
	}
	if q.Settings().Config.MaxLength != 2 {
		t.Error("the policy was not applied to what existed")
	}
	if d := n.v.Description(); d.Description != "mine" || len(d.Tags) != 1 {
		t.Error("what is not mentioned was changed:", d)
	}
}

// TestImportErrors: every refusal names the object.
func TestImportErrors(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{`{nojson`, "failed_to_parse_json"},
		{`[1]`, "failed_to_parse_json"},
		{`{} {}`, "failed_to_parse_json"},
		{`{"queues":5}`, "queues should be a list but was 5"},
		{`{"queues":[5]}`, "queues should be a list of objects but number 1 is 5"},
		{`{"queues":[{"name":"a"}]}`, "queue 'a': it names no virtual host: definitions of a single virtual host can only be imported into one"},
		{`{"queues":[{"name":"a","vhost":"nov"}]}`, `Please create virtual host "nov" prior to importing definitions.`},
		{`{"exchanges":[{"name":"a","vhost":"nov","type":"fanout"}]}`, `Please create virtual host "nov" prior to importing definitions.`},
		{`{"exchanges":[{"name":"a","vhost":"/","type":"nonsense"}]}`, "exchange 'a' in vhost '/': PRECONDITION_FAILED - unknown exchange type 'nonsense'"},
		{`{"exchanges":[{"name":"a","vhost":"/","type":"x-consistent-hash","arguments":{"hash-header":"a","hash-property":"message_id"}}]}`, "exchange 'a' in vhost '/': PRECONDITION_FAILED - hash-header and hash-property are mutually exclusive"},
		{`{"queues":[{"name":"bad","vhost":"/","arguments":{"x-max-length":-4}}]}`, "queue 'bad' in vhost '/': PRECONDITION_FAILED - invalid arg 'x-max-length' for queue 'bad' in vhost '/': {value_negative,-4}"},
		{`{"queues":[{"vhost":"/"}]}`, "queue in vhost '/': name is missing"},
		{`{"queues":[{"name":7,"vhost":"/"}]}`, "queue '7' in vhost '/': name should be a string but was 7"},
		{`{"queues":[{"name":"a","vhost":"/","durable":"yes"}]}`, `queue 'a' in vhost '/': durable should be true or false but was <<"yes">>`},
		{`{"queues":[{"name":"` + strings.Repeat("a", 256) + `","vhost":"/"}]}`, "queue '" + strings.Repeat("a", 256) + "' in vhost '/': name is longer than 255 octets"},
		{`{"bindings":[{"source":"nox","destination":"noq","destination_type":"queue","vhost":"/"}]}`, "binding from exchange 'nox' to queue 'noq' in vhost '/': NOT_FOUND - no exchange 'nox' in vhost '/'"},
		{`{"bindings":[{"source":"amq.fanout","destination":"noq","destination_type":"queue","vhost":"/"}]}`, "binding from exchange 'amq.fanout' to queue 'noq' in vhost '/': NOT_FOUND - no queue 'noq' in vhost '/'"},
		{`{"bindings":[{"source":"amq.fanout","destination":"noq","destination_type":"table","vhost":"/"}]}`, "binding from exchange 'amq.fanout' to table 'noq' in vhost '/': destination_type should be queue or exchange but was table"},
		{`{"permissions":[{"user":"nouser","vhost":"/","configure":"","write":"","read":""}]}`, "permissions of user 'nouser' in vhost '/': no such user"},
		{`{"permissions":[{"user":"guest","vhost":"/","configure":"(","write":"","read":""}]}`, "permissions of user 'guest' in vhost '/': configure: error parsing regexp: missing closing ): `(`"},
		{`{"topic_permissions":[{"user":"nouser","vhost":"/","exchange":"x","write":"","read":""}]}`, "topic permissions of user 'nouser' in vhost '/': no such user"},
		{`{"policies":[{"vhost":"/","name":"x","pattern":"","definition":{"foo":1}}]}`, "Validation failed\n\n[{<<\"foo\">>,1}] are not recognised policy settings\n (vhost: \"/\" key: \"x\")"},
		{`{"policies":[{"vhost":"/","name":"x","definition":{"max-length":1}}]}`, "[{key_missing,pattern}] (vhost: \"/\" key: \"x\")"},
		{`{"parameters":[{"vhost":"/","component":"shovel","name":"x","value":{"a":1}}]}`, "Validation failed\n\ncomponent shovel not found\n (vhost: \"/\" / component: \"shovel\" / key: \"x\")"},
		{`{"parameters":[{"vhost":"/","component":"vhost-limits","name":"limits","value":{"foo":1}}]}`, "Validation failed\n\nUnrecognised terms [{<<\"foo\">>,1}] in limits\n (vhost: \"/\" / component: \"vhost-limits\" / key: \"limits\")"},
		{`{"parameters":[{"vhost":"/","component":"operator_policy","name":"x","value":{"pattern":"x","definition":{"max-age":"1D"},"priority":0,"apply-to":"queues"}}]}`,
			"Validation failed\n\n[{<<\"max-age\">>,<<\"1D\">>}] are not recognised policy settings\n (vhost: \"/\" / component: \"operator_policy\" / key: \"x\")"},
		{`{"users":[{"name":"u","password_hash":"AAAAAAAA"}]}`, "user 'u': tags_not_present"},
		{`{"users":[{"name":"u","password_hash":"!!","tags":[]}]}`, "user 'u': password_hash is not base64"},
		{`{"users":[{"name":"u","password_hash":"AAAAAAAA","password":"x","tags":[]}]}`, "user 'u': both_password_and_password_hash_are_provided"},
		{`{"users":[{"name":"u","password_hash":"AAAAAAAA","hashing_algorithm":"foo","tags":[]}]}`, "user 'u': unknown hashing_algorithm foo"},
		{`{"users":[{"name":"u","password_hash":"","tags":"` + strings.Repeat("t,", 33) + `"}]}`, "user 'u': A user can have at most 32 tags (received 33)"},
		{`{"users":[{"name":"u","password_hash":"","tags":[],"limits":{"max-channels":"x"}}]}`, `user 'u': max-channels should be a number, actually was <<"x">>`},
		{`{"users":[{"tags":[]}]}`, "user: name is missing"},
		{`{"vhosts":[{"name":"v","default_queue_type":"foo"}]}`, "vhost 'v': foo is not a valid queue type"},
		{`{"vhosts":[{"name":"v","metadata":{"tags":5}}]}`, "vhost 'v': tags should be a list but was 5"},
		{`{"global_parameters":[{"value":1}]}`, "global parameter: name is missing"},
	} {
		_, err := newAny(t, Options{}).Import([]byte(c.data))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got %q, want %q", c.data, err, c.want)
		}
	}
	for _, data := range []string{
		`{}`, `{"foo":1}`, `{"queues":null,"vhosts":[],"bindings":{}}`, `{"vhosts":[{"name":"v","limits":[],"metadata":{"default_queue_type":"undefined"}}]}`,
		`{"vhosts":[{"name":"v","metadata":null,"default_queue_type":"rabbit_quorum_queue","tags":"a, b"}]}`,
		`{"queues":[{"name":"a","vhost":"/","arguments":null,"type":"classic","messages":0,"node":"","policy":""}]}`,
		`{"exchanges":[{"name":"","vhost":"/","type":"direct"},{"name":"amq.rabbitmq.log","vhost":"/","type":"topic"},{"name":"amq.other","vhost":"/","type":"topic"}]}`,
		`{"bindings":[{"source":"","destination":"none","destination_type":"queue","vhost":"/","routing_key":"none"}]}`,
	} {
		if _, err := newAny(t, Options{}).Import([]byte(data)); err != nil {
			t.Errorf("%s: %s", data, err)
		}
	}
}

// TestImportOverLimit: definitions that bring too many queues make nothing.
func TestImportOverLimit(t *testing.T) {
	n := newAny(t, Options{})
	n.mustDeclare("a", nil)
	n.v.SetLimit("max-queues", 2, func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	})
	_, err := n.Import([]byte(`{"exchanges":[{"name":"x","vhost":"/","type":"fanout"}],"queues":[{"name":"a","vhost":"/"},{"name":"b","vhost":"/"},{"name":"b","vhost":"/"},{"name":"c","vhost":"/"}]}`))
	want := "Adding 2 queue(s) to virtual host \"/\" would exceed the limit of 2 queue(s).\n\nThis virtual host currently has 1 queue(s) defined.\n\nImport aborted!"
	if err == nil || err.Error() != want {
		t.Errorf("got %q", err)
	}
	if _, ok := n.v.Exchange("x"); ok {
		t.Error("something was made")
	}
	n.imported(`{"queues":[{"name":"a","vhost":"/"},{"name":"b","vhost":"/"}]}`)
}

// TestImportType: a queue keeps its type where the default is another.
func TestImportType(t *testing.T) {
	n := newAny(t, Options{DefaultQueueType: Quorum})
	n.imported(`{"queues":[{"name":"a","vhost":"/","type":"classic"},{"name":"b","vhost":"/"},{"name":"c","vhost":"/","type":"classic","arguments":{"x-queue-type":"stream"}}]}`)
	for name, want := range map[string]string{"a": Classic, "b": Quorum, "c": Stream} {
		if got := n.v.Queue(name).Type; got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// FuzzImport: any octets are an error or definitions whose export is a fixed point.
func FuzzImport(f *testing.F) {
	for _, name := range []string{"rabbitmq-4.3.json", "rabbitmq-3.8.json"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	pool, clock := queue.NewPool(1<<20), queue.NewClock()
	f.Cleanup(clock.Close)
	o := Options{Pool: pool, Clock: clock, NewQueue: func(q NewQueue) queue.Queue {
		return queue.NewClassic(queue.ClassicRules(q.MaxPriority), q.Config, pool, clock, q.DeadLetters)
	}}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := New(o), New(o)
		_, _ = a.Import(data)
		first, err := json.Marshal(a.Export(testOrigin))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Import(first); err != nil {
			t.Fatalf("%s: %s", first, err)
		}
		if second, _ := json.Marshal(b.Export(testOrigin)); string(first) != string(second) {
			t.Fatalf("%s became %s", first, second)
		}
	})
}
