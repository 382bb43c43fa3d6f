package management

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// exchange of a request and an answer, in the order in which they follow each other.
type step struct {
	method, path, body string
	status             int
	want               string
}

func (c *client) play(steps []step) {
	c.t.Helper()
	for _, s := range steps {
		status, _, text := c.do(s.method, "/api"+s.path, s.body)
		if status != s.status || text != s.want && s.want != "*" {
			c.t.Errorf("%s %s %.60s\n got %d %s\nwant %d %s", s.method, s.path, s.body, status, text, s.status, s.want)
		}
	}
}

const notFound = `{"error":"Object Not Found","reason":"Not Found"}`

func badRequest(reason string) string { return `{"error":"bad_request","reason":` + reason + `}` }

// The steps of these tests are requests to RabbitMQ 4.3 and what it answered, but where a comment says otherwise.
func TestUsers(t *testing.T) {
	f := newFake()
	serve(t, f).play([]step{
		{"PUT", "/users/u", `{}`, 400, badRequest(`"tags_not_present"`)},
		{"PUT", "/users/u", `{"tags":""}`, 201, ""},
		{"GET", "/users/u", "", 200, `{"name":"u","password_hash":"","hashing_algorithm":"rabbit_password_hashing_sha256","tags":[],"limits":{}}`},
		{"PUT", "/users/u", `{"tags":"a, b,administrator","password":"x"}`, 204, ""},
		{"GET", "/users/u", "", 200, `{"name":"u","password_hash":"c2FsdHg=","hashing_algorithm":"rabbit_password_hashing_sha256","tags":["a","b","administrator"],"limits":{}}`},
		{"PUT", "/users/u", `{"tags":["x"],"password":"x","password_hash":""}`, 400, badRequest(`"both_password_and_password_hash_are_provided"`)},
		{"PUT", "/users/u", `{"tags":["x"],"password_hash":"!!"}`, 400, badRequest(`["not_base64","!!"]`)},
		{"PUT", "/users/u", `{"tags":["x","y"],"password_hash":"aGVsbG8="}`, 204, ""},
		{"PUT", "/users/u", `{"tags":["x"],"password_hash":"","hashing_algorithm":"foo"}`, 400, badRequest(`["unknown_hashing_algorithm","foo"]`)}, // RabbitMQ: 204
		{"PUT", "/users/u", `{"tags":["x"],"password":5}`, 400, badRequest(`["not_string","password"]`)},                                           // RabbitMQ: 500
		{"PUT", "/users/u", `{"tags":5}`, 400, badRequest(`["not_tags",5]`)},                                                                       // RabbitMQ: 500
		{"PUT", "/users/u", `{"tags":"","password":"p","hashing_algorithm":"rabbit_password_hashing_sha512"}`, 204, ""},
		{"GET", "/users/u?columns=hashing_algorithm", "", 200, `{"hashing_algorithm":"rabbit_password_hashing_sha256"}`}, // that of a hash only
		{"PUT", "/users/u", `{"administrator":true,"password":"p"}`, 204, ""},
		{"PUT", "/users/u", `{"tags":"1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33"}`, 400,
			badRequest(`"A user can have at most 32 tags (received 33)"`)},
		{"PUT", "/users/u", `[]`, 400, badRequest(`"not_json"`)},
		{"PUT", "/users/u", ``, 400, badRequest(`"tags_not_present"`)},
		{"PUT", "/users/v", `{"tags":"management","password":"p","permissions":{"/":{"configure":"a","write":"b","read":"c"}}}`, 201, ""},
		{"PUT", "/users/w", `{"tags":"","permissions":{"nope":{"configure":"a","write":"b","read":"c"}}}`, 400, badRequest(`["no_such_vhost","nope"]`)},
		{"GET", "/users/w", "", 404, notFound}, // RabbitMQ: made
		{"PUT", "/users/w", `{"tags":"","limits":{"max-connections":5}}`, 201, ""},
		{"PUT", "/users/x", `{"tags":"","limits":{"foo":5}}`, 400, badRequest(`"Unrecognised terms [{<<\"foo\">>,5}] in user-limits"`)}, // RabbitMQ: 500
		{"GET", "/users/v/permissions", "", 200, `[{"user":"v","vhost":"/","configure":"a","write":"b","read":"c"}]`},
		{"GET", "/users/v/topic-permissions", "", 200, `[]`},
		{"GET", "/users/nope", "", 404, notFound},
		{"GET", "/users/nope/permissions", "", 404, notFound},
		{"DELETE", "/users/nope", "", 404, notFound},
		{"POST", "/users/bulk-delete", `{}`, 400, badRequest(`"[{key_missing,users}]"`)},
		{"POST", "/users/bulk-delete", `{"users":["u","nope"]}`, 204, ""},
		{"PUT", "/users/p", `{"tags":"protected"}`, 201, ""},
		{"PUT", "/users/p", `{"tags":""}`, 400, badRequest(`"Protected users cannot be modified via the HTTP API"`)},
		{"DELETE", "/users/p", "", 400, badRequest(`"Protected users cannot be modified via the HTTP API"`)},
		{"POST", "/users/bulk-delete", `{"users":["p","v"]}`, 204, ""},
		{"GET", "/users?columns=name,limits", "", 200, `[{"name":"ann","limits":{}},{"name":"guest","limits":{}},{"name":"p","limits":{}},{"name":"w","limits":{"max-connections":5}}]`},
		{"GET", "/users/without-permissions?columns=name", "", 200, `[{"name":"ann"},{"name":"p"},{"name":"w"}]`},
		{"GET", "/users?page=1&page_size=1&name=U&columns=name", "", 200, `{"filtered_count":1,"total_count":4,"page":1,"page_size":1,"page_count":1,"items":[{"name":"guest"}],"item_count":1}`},
		{"GET", "/auth/hash_password/pw", "", 200, `{"ok":"c2FsdHB3"}`},
		{"GET", "/auth/hash_password/", "", 404, notFound},
	})
}

func TestPermissions(t *testing.T) {
	missing := badRequest(`"vhost_or_user_not_found"`)
	serve(t, newFake()).play([]step{
		{"PUT", "/permissions/%2F/ann", `{"configure":"a","write":"b","read":"c"}`, 201, ""},
		{"PUT", "/permissions/%2F/ann", `{"configure":"a","write":"b","read":"d"}`, 204, ""},
		{"GET", "/permissions/%2F/ann", "", 200, `{"user":"ann","vhost":"/","configure":"a","write":"b","read":"d"}`},
		{"PUT", "/permissions/%2F/ann", `{"configure":"a"}`, 400, badRequest(`"[{key_missing,write},{key_missing,read}]"`)},
		{"PUT", "/permissions/%2F/ann", `{"configure":"[","write":"b","read":"c"}`, 400,
			badRequest(`["invalid_regexp",[91],[[109,105,115,115,105,110,103,32,116,101,114,109,105,110,97,116,105,110,103,32,93,32,102,111,114,32,99,104,97,114,97,99,116,101,114,32,99,108,97,115,115],1]]`)},
		{"PUT", "/permissions/%2F/ann", `{"configure":5,"write":"b","read":"c"}`, 400, badRequest(`["not_string","configure"]`)}, // RabbitMQ: 500
		{"PUT", "/permissions/nope/ann", `{"configure":"a","write":"b","read":"c"}`, 400, missing},
		{"PUT", "/permissions/%2F/nope", `{"configure":"a","write":"b","read":"c"}`, 400, missing},
		{"GET", "/permissions/%2F/nope", "", 404, notFound},
		{"GET", "/permissions/nope/ann", "", 404, notFound},
		{"GET", "/vhosts/nope/permissions", "", 404, notFound},
		{"GET", "/vhosts/%2F/permissions?columns=user", "", 200, `[{"user":"ann"},{"user":"guest"}]`},
		{"DELETE", "/permissions/%2F/ann", "", 204, ""},
		{"DELETE", "/permissions/%2F/ann", "", 404, notFound},
		{"DELETE", "/permissions/nope/ann", "", 404, notFound},
		{"GET", "/permissions", "", 200, `[{"user":"guest","vhost":"/","configure":".*","write":".*","read":".*"}]`},

		{"PUT", "/topic-permissions/%2F/ann", `{"exchange":"amq.topic","write":"b","read":"c"}`, 201, ""},
		{"PUT", "/topic-permissions/%2F/ann", `{"exchange":"amq.topic","write":"b","read":"c"}`, 204, ""},
		{"PUT", "/topic-permissions/%2F/ann", `{"exchange":"nope","write":"b","read":"c"}`, 400, badRequest(`["no_such_exchange","nope"]`)},
		{"PUT", "/topic-permissions/%2F/ann", `{"exchange":"","write":"b","read":"c"}`, 204, ""},
		{"PUT", "/topic-permissions/%2F/ann", `{"write":"b","read":"c"}`, 400, badRequest(`"[{key_missing,exchange}]"`)},
		{"PUT", "/topic-permissions/%2F/nope", `{"exchange":"amq.topic","write":"b","read":"c"}`, 400, missing},
		{"GET", "/topic-permissions/%2F/ann", "", 200, `[{"user":"ann","vhost":"/","exchange":"","write":"b","read":"c"},{"user":"ann","vhost":"/","exchange":"amq.topic","write":"b","read":"c"}]`},
		{"GET", "/topic-permissions/%2F/guest", "", 404, notFound},
		{"DELETE", "/topic-permissions/%2F/ann/amq.topic", "", 204, ""},
		{"DELETE", "/topic-permissions/%2F/ann/amq.topic", "", 204, ""},
		{"GET", "/users/ann/topic-permissions?columns=exchange", "", 200, `[{"exchange":""}]`},
		{"DELETE", "/topic-permissions/%2F/ann", "", 204, ""},
		{"DELETE", "/topic-permissions/%2F/ann", "", 404, notFound},
		{"GET", "/topic-permissions", "", 200, `[]`},
	})
}

func TestVHostsAndLimits(t *testing.T) {
	f := newFake()
	c := serve(t, f)
	c.play([]step{
		{"PUT", "/vhosts/v", ``, 201, ""},
		{"PUT", "/vhosts/v", `{"description":"d","tags":"a, b","tracing":"false"}`, 204, ""},
		{"GET", "/vhosts/v?columns=name,description,tags,metadata.description,default_queue_type", "", 200,
			`{"name":"v","description":"d","tags":["a","b"],"default_queue_type":"classic","metadata":{"description":"d"}}`},
		{"PUT", "/vhosts/v", `{"tags":["c"],"default_queue_type":"quorum"}`, 204, ""},
		{"PUT", "/vhosts/v", `{"default_queue_type":"foo"}`, 400, badRequest(`"foo is not a valid queue type"`)},
		{"PUT", "/vhosts/v", `{"defaultqueuetype":"stream"}`, 204, ""},
		{"GET", "/vhosts/v?columns=description,tags,default_queue_type", "", 200, `{"description":"","tags":[],"default_queue_type":"stream"}`},
		{"PUT", "/vhosts/v", `{"default_queue_type":"rabbit_quorum_queue"}`, 204, ""},
		{"PUT", "/vhosts/w", `{"default_queue_type":"foo"}`, 400, badRequest(`"foo is not a valid queue type"`)},
		{"GET", "/vhosts/w", "", 404, notFound},
		{"PUT", "/vhosts/w", `{"tracing":true}`, 501, `{"error":"not_implemented","reason":"tracing is not built yet"}`}, // RabbitMQ: 201
		{"DELETE", "/vhosts/w", "", 404, notFound},

		{"GET", "/vhost-limits", "", 200, `[]`},
		{"GET", "/vhost-limits/v", "", 200, `[]`},
		{"GET", "/vhost-limits/nope", "", 404, notFound},
		{"PUT", "/vhost-limits/v/max-queues", `{"value":5}`, 204, ""},
		{"PUT", "/vhost-limits/v/max-queues", `{}`, 400, badRequest(`"[{key_missing,value}]"`)},
		{"PUT", "/vhost-limits/v/max-connections", `{"value":-5}`, 204, ""},
		{"PUT", "/vhost-limits/nope/max-queues", `{"value":5}`, 404, `{"error":"not_found","reason":"vhost_not_found"}`},
		{"GET", "/vhost-limits", "", 200, `[{"value":{"max-connections":-5,"max-queues":5},"vhost":"v"}]`},
		{"DELETE", "/vhost-limits/v/max-queues", "", 204, ""},
		{"DELETE", "/vhost-limits/v/max-queues", "", 204, ""},
		{"DELETE", "/vhost-limits/nope/max-queues", "", 404, `{"error":"not_found","reason":"vhost_not_found"}`},

		{"GET", "/user-limits", "", 200, `[]`},
		{"GET", "/user-limits/ann", "", 200, `[]`},
		{"GET", "/user-limits/nope", "", 404, notFound},
		{"PUT", "/user-limits/ann/max-connections", `{"value":5}`, 204, ""},
		{"PUT", "/user-limits/ann/max-connections", `{}`, 400, badRequest(`"[{key_missing,value}]"`)},
		{"PUT", "/user-limits/nope/max-connections", `{"value":1}`, 400, badRequest(`["no_such_user","nope"]`)},
		{"GET", "/user-limits", "", 200, `[{"user":"ann","value":{"max-connections":5}}]`},
		{"DELETE", "/user-limits/ann/max-connections", "", 204, ""},
		{"DELETE", "/vhosts/v", "", 204, ""},
	})
	f.refusal = &Refusal{406, "Validation failed\n\nmax-queues should be a number, actually was <<\"5\">>\n"}
	c.play([]step{{"PUT", "/vhost-limits/shop/max-queues", `{"value":"5"}`, 400, badRequest(`"Validation failed\n\nmax-queues should be a number, actually was <<\"5\">>\n"`)}})
}

func TestPoliciesAndParameters(t *testing.T) {
	f := newFake()
	f.parameters = []Parameter{{"shop", "vhost-limits", "limits", map[string]any{"max-queues": 7}}}
	f.queues = []Queue{{VHost: "shop", Name: "aq"}}
	noVHost := `{"error":"not_found","reason":"vhost_not_found"}`
	serve(t, f).play([]step{
		{"PUT", "/policies/shop/p", `{"pattern":"^a","definition":{"max-length":5},"priority":3}`, 201, ""},
		{"PUT", "/policies/shop/p", `{"pattern":"^b","definition":{"max-length":6},"priority":3}`, 204, ""},
		{"GET", "/policies/shop/p", "", 200, `{"vhost":"shop","name":"p","pattern":"^b","apply-to":"all","definition":{"max-length":6},"priority":3}`},
		{"PUT", "/policies/shop/a%2Fb", `{"pattern":".*","definition":{"max-length":9},"priority":-1}`, 201, ""},
		{"PUT", "/policies/nope/p", `{"pattern":"^a","definition":{"max-length":6}}`, 404, noVHost},
		{"GET", "/policies?columns=name,priority", "", 200, `[{"name":"a/b","priority":-1},{"name":"p","priority":3}]`},
		{"GET", "/policies/shop?columns=name", "", 200, `[{"name":"a/b"},{"name":"p"}]`},
		{"GET", "/policies/nope", "", 404, notFound},
		{"GET", "/policies/shop/nope", "", 404, notFound},
		{"DELETE", "/policies/shop/nope", "", 404, notFound},
		{"DELETE", "/policies/shop/a%2Fb", "", 204, ""},
		{"GET", "/operator-policies", "", 200, `[]`},
		{"PUT", "/operator-policies/shop/op", `{"pattern":"^a","definition":{"max-length":5}}`, 201, ""},
		{"GET", "/operator-policies/shop/op", "", 200, `{"vhost":"shop","name":"op","pattern":"^a","apply-to":"all","definition":{"max-length":5},"priority":0}`},
		{"DELETE", "/operator-policies/shop/op", "", 204, ""},
		{"GET", "/warren/queues/shop/aq/effective", "", 200, `[{"key":"max-length","value":5,"origin":"policy p"}]`},
		{"GET", "/warren/queues/shop/nope/effective", "", 404, notFound},

		{"GET", "/parameters", "", 200, `[{"value":{"max-queues":7},"vhost":"shop","component":"vhost-limits","name":"limits"}]`},
		{"GET", "/parameters/vhost-limits/shop/limits", "", 200, `{"value":{"max-queues":7},"vhost":"shop","component":"vhost-limits","name":"limits"}`},
		{"GET", "/parameters/policy", "", 200, `[{"value":{"apply-to":"all","definition":{"max-length":6},"pattern":"^b","priority":3},"vhost":"shop","component":"policy","name":"p"}]`},
		{"GET", "/parameters/foo", "", 200, `[]`},
		{"GET", "/parameters/foo/nope", "", 404, notFound},
		{"GET", "/parameters/foo/shop/bar", "", 404, notFound},
		{"PUT", "/parameters/foo/shop/bar", `{}`, 400, badRequest(`"[{key_missing,value}]"`)},
		{"PUT", "/parameters/foo/nope/bar", `{"value":1}`, 404, noVHost},
		{"PUT", "/parameters/policy/shop/bar", `{"value":{}}`, 400, badRequest(`"policies may not be set using this method"`)},
		{"PUT", "/parameters/vhost-limits/shop/limits", `{"value":{"max-queues":8}}`, 204, ""},
		{"DELETE", "/parameters/vhost-limits/shop/limits", "", 204, ""},
		{"DELETE", "/parameters/vhost-limits/shop/limits", "", 404, notFound},
		{"GET", "/cluster-name", "", 200, `{"name":"warren@test"}`},
		{"PUT", "/cluster-name", `{"name":"x"}`, 204, ""},
		{"GET", "/cluster-name", "", 200, `{"name":"x"}`},
		{"GET", "/overview?columns=cluster_name", "", 200, `{"cluster_name":"x"}`},
		{"GET", "/global-parameters/cluster_name", "", 200, `{"name":"cluster_name","value":"x"}`},
		{"DELETE", "/global-parameters/cluster_name", "", 204, ""},
		{"PUT", "/global-parameters/g", `{"value":{"a":[1,null]}}`, 201, ""},
		{"PUT", "/global-parameters/g", `{"value":null}`, 204, ""},
		{"PUT", "/global-parameters/g", `{}`, 400, badRequest(`"[{key_missing,value}]"`)},
		{"GET", "/global-parameters/g", "", 200, `{"name":"g","value":null}`},
		{"GET", "/global-parameters", "", 200, `[{"name":"g","value":null}]`},
		{"DELETE", "/global-parameters/g", "", 204, ""},
		{"DELETE", "/global-parameters/g", "", 404, notFound},
	})
}

func TestExchangesAndBindings(t *testing.T) {
	f := newFake()
	f.queues = []Queue{{VHost: "/", Name: "aq"}}
	c := serve(t, f)
	key300 := strings.Repeat("x", 300)
	c.play([]step{
		{"PUT", "/exchanges/%2F/ex", `{}`, 201, ""},
		{"PUT", "/exchanges/%2F/ex", `{"type":"topic","durable":"true","arguments":[]}`, 204, ""},
		{"PUT", "/exchanges/%2F/ex", `{"type":5}`, 400, badRequest(`"invalid exchange type '5'"`)},
		{"PUT", "/exchanges/%2F/ex", `{"internal":"x"}`, 400, badRequest(`["not_boolean","x"]`)},
		{"PUT", "/exchanges/%2F/ex", `{"arguments":5}`, 400, badRequest(`"arguments is no object"`)}, // RabbitMQ: 500
		{"PUT", "/exchanges/nope/ex", `{"type":"direct"}`, 404, `{"error":"not_found","reason":"vhost_not_found"}`},
		{"PUT", "/exchanges/%2F/" + key300, `{}`, 400, badRequest(`"exchange should be less than 255 bytes, actually was 300\n"`)}, // RabbitMQ: 201
		{"GET", "/exchanges/%2F/ex?columns=type,durable", "", 200, `{"type":"topic","durable":true}`},
		{"POST", "/bindings/%2F/e/ex/q/aq", ``, 201, ""},
		{"POST", "/bindings/%2F/e/ex/q/aq", `{"routing_key":5}`, 400, badRequest(`["not_string","routing_key"]`)},
		{"POST", "/bindings/%2F/e/ex/q/aq", `{"routing_key":"` + key300 + `"}`, 400, badRequest(`"routing_key should be less than 255 bytes, actually was 300\n"`)}, // RabbitMQ: 201
		{"POST", "/bindings/%2F/e/ex/q/aq", `{"a":"` + strings.Repeat("x", 6000) + `"}`, 400, badRequest(`"Exceeded HTTP request body size limit"`)},
		{"POST", "/bindings/%2F/e/nope/q/aq", `{}`, 404, `{"error":"not_found","reason":"no exchange 'nope' in vhost '/'"}`},
		{"POST", "/bindings/%2F/e/ex/q/nope", `{}`, 404, `{"error":"not_found","reason":"no queue 'nope' in vhost '/'"}`},
		{"POST", "/bindings/nope/e/ex/q/nope", `{}`, 404, `{"error":"not_found","reason":"vhost_not_found"}`},
		{"GET", "/bindings/%2F/e/ex/q/aq/~", "", 200, `{"source":"ex","vhost":"/","destination":"aq","destination_type":"queue","routing_key":"","arguments":{},"properties_key":"~"}`},
		{"DELETE", "/bindings/%2F/e/ex/q/aq/nope", "", 404, notFound},
		{"DELETE", "/bindings/%2F/e/ex/q/aq/~", "", 204, ""},
		{"DELETE", "/bindings/%2F/e/ex/q/aq/~", "", 404, notFound},
		{"DELETE", "/exchanges/%2F/nope", "", 404, notFound},
	})
	for body, want := range map[string]string{
		`{"routing_key":"k"}`:                              "aq/k",
		`{"routing_key":"a b#~"}`:                          "aq/a%2Bb%2523%257E",
		`{"routing_key":"a b#~","arguments":{"x":1}}`:      "aq/a%2Bb%2523%257E~",
		`{"routing_key":"","arguments":{"x":1,"y":[2.5]}}`: "aq/~",
	} {
		f.bindings = nil
		status, h, _ := c.do("POST", "/api/bindings/%2F/e/ex/q/aq", body)
		location := h.Get("Location")
		if status != 201 || !strings.HasPrefix(location, want) || strings.Contains(body, "arguments") == (location == want) {
			t.Errorf("%s: %d %q", body, status, location)
		}
		if status, _, text := c.do("DELETE", "/api/bindings/%2F/e/ex/q/"+location, ""); status != 204 {
			t.Errorf("%s: the location leads nowhere: %d %s", location, status, text)
		}
	}
	c.play([]step{{"DELETE", "/exchanges/%2F/ex?if-unused=true", "", 204, ""}})
}

func TestMessages(t *testing.T) {
	f := newFake()
	f.queues = []Queue{{VHost: "/", Name: "aq"}}
	publish := func(more string) string {
		var body map[string]any
		json.Unmarshal([]byte(`{"routing_key":"aq","properties":{},"payload":"hi","payload_encoding":"string"}`), &body)
		json.Unmarshal([]byte(more), &body)
		text, _ := json.Marshal(body)
		return string(text)
	}
	serve(t, f).play([]step{
		{"POST", "/exchanges/%2F/amq.default/publish", `{}`, 400, badRequest(`"[{key_missing,routing_key},\n {key_missing,properties},\n {key_missing,payload},\n {key_missing,payload_encoding}]"`)},
		{"POST", "/exchanges/%2F/amq.default/publish", publish(`{"payload_encoding":"zz"}`), 400, badRequest(`["unsupported_encoding","zz"]`)},
		{"POST", "/exchanges/%2F/amq.default/publish", publish(`{"payload_encoding":"base64","payload":"!!"}`), 400, badRequest(`["not_base64","!!"]`)},
		{"POST", "/exchanges/%2F/amq.default/publish", publish(`{"payload":5}`), 400, badRequest(`"payload_not_string"`)},
		{"POST", "/exchanges/%2F/amq.default/publish", publish(`{"properties":{"priority":"x"}}`), 400, badRequest(`["not_int","priority"]`)},
		{"POST", "/exchanges/%2F/amq.default/publish", publish(`{"properties":{"app_id":5}}`), 400, badRequest(`["not_string","app_id"]`)},
		{"POST", "/exchanges/%2F/amq.default/publish", publish(`{"properties":{"headers":5}}`), 400, badRequest(`["not_object","headers"]`)}, // RabbitMQ: 500
		{"POST", "/exchanges/%2F/nope/publish", publish(`{}`), 404, `{"error":"not_found","reason":"exchange_not_found"}`},
		{"POST", "/exchanges/nope/nope/publish", publish(`{}`), 404, `{"error":"not_found","reason":"vhost_not_found"}`},
		{"POST", "/exchanges/%2F/amq.default/publish", publish(`{}`), 200, `{"routed":true}`},
		{"POST", "/exchanges/%2F/amq.default/publish", publish(`{"properties":{"delivery_mode":2,"timestamp":1700,"headers":{"a":1,"b":[true],"c":{"d":1.5}},"bogus":1},"payload":"/w==","payload_encoding":"base64"}`), 200, `{"routed":true}`},
		{"POST", "/queues/%2F/aq/get", `{}`, 400, badRequest(`"[{key_missing,ackmode},{key_missing,count},{key_missing,encoding}]"`)},
		{"POST", "/queues/%2F/aq/get", `{"count":"2","ackmode":"foo","encoding":"auto"}`, 400,
			badRequest(`"Invalid ackmode value: foo. Valid values are: ack_requeue_true, ack_requeue_false, reject_requeue_true, reject_requeue_false"`)},
		{"POST", "/queues/%2F/aq/get", `{"count":2,"ackmode":"ack_requeue_true","encoding":"foo"}`, 400, badRequest(`"Unsupported encoding. Please use auto or base64."`)},
		{"POST", "/queues/%2F/aq/get", `{"count":"x","ackmode":"ack_requeue_true","encoding":"auto"}`, 400, badRequest(`["not_integer","x"]`)},
		{"POST", "/queues/%2F/nope/get", `{"count":2,"ackmode":"ack_requeue_true","encoding":"auto"}`, 404, `{"error":"not_found","reason":"queue_not_found"}`},
		{"POST", "/queues/%2F/aq/get", `{"count":"1","ackmode":"ack_requeue_true","encoding":"base64","truncate":"1"}`, 200,
			`[{"payload_bytes":2,"redelivered":false,"exchange":"","routing_key":"aq","message_count":1,"properties":[],"payload":"aA==","payload_encoding":"base64"}]`},
		{"POST", "/queues/%2F/aq/get", `{"count":2,"ackmode":"ack_requeue_false","encoding":"auto"}`, 200,
			`[{"payload_bytes":2,"redelivered":false,"exchange":"","routing_key":"aq","message_count":1,"properties":[],"payload":"hi","payload_encoding":"string"},` +
				`{"payload_bytes":1,"redelivered":false,"exchange":"","routing_key":"aq","message_count":0,"properties":{"headers":{"a":1,"b":[true],"c":{"d":1.5}},"delivery_mode":2,"timestamp":1700},"payload":"/w==","payload_encoding":"base64"}]`},
		{"POST", "/queues/%2F/aq/get", `{"count":2,"ackmode":"ack_requeue_false","encoding":"auto"}`, 200, `[]`},
	})
}

func TestDefinitions(t *testing.T) {
	f := newFake()
	c := serve(t, f)
	c.play([]step{
		{"GET", "/definitions", "", 200, `{"vhost":""}`},
		{"GET", "/all-configuration", "", 200, `{"vhost":""}`},
		{"GET", "/definitions/shop", "", 200, `{"vhost":"shop"}`},
		{"GET", "/definitions/nope", "", 400, badRequest(`"vhost_not_found"`)},
		{"POST", "/definitions/nope", "{}", 404, `{"error":"not_found","reason":"vhost_not_found"}`},
		{"POST", "/definitions", "", 204, ""},
		{"POST", "/definitions/shop", `{"queues":[]}`, 204, ""},
	})
	_, h, _ := c.do("GET", "/api/definitions?download=foo.json", "")
	if h.Get("Content-Disposition") != "attachment; filename=foo.json" || h.Get("ETag") == "" {
		t.Error(h)
	}
	if status, _, _ := c.do("GET", "/api/definitions", "", "If-None-Match", h.Get("ETag")); status != http.StatusNotModified {
		t.Error(status)
	}
	form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"d.json\"\r\n\r\n{\"form\":1}\r\n--b\r\nContent-Disposition: form-data; name=\"redirect\"\r\n\r\n%s\r\n--b--\r\n"
	for redirect, want := range map[string]int{"/#/": 303, "https://example.org/": 204, "//example.org": 204} {
		status, h, text := c.do("POST", "/api/definitions", strings.Replace(form, "%s", redirect, 1), "Content-Type", "multipart/form-data; boundary=b")
		if status != want || status == 303 && h.Get("Location") != redirect {
			t.Error(redirect, status, h, text)
		}
	}
	if want := []string{": {}", `shop: {"queues":[]}`, `: {"form":1}`}; !slices.Equal(f.imported[:3], want) {
		t.Errorf("%q", f.imported)
	}
	f.refusal = &Refusal{406, "failed_to_parse_json"}
	c.play([]step{{"POST", "/definitions", "{bad", 400, badRequest(`"failed_to_parse_json"`)}})
}

// What each tag allows, in RabbitMQ's words.
func TestTags(t *testing.T) {
	f := newFake()
	f.logins["pol"] = User{"pol", []string{"policymaker"}}
	f.enters["pol"] = []string{"shop"}
	f.accounts = append(f.accounts, Account{Name: "pol"})
	c := serve(t, f)
	denied := func(reason string) string { return `{"error":"not_authorised","reason":"` + reason + `"}` }
	object, administrator := denied("User not authorised to access object"), denied("Not administrator user")
	policy := `{"pattern":"","definition":{"max-length":1}}`
	c.as("ann").play([]step{
		{"GET", "/policies", "", 200, `[]`},
		{"GET", "/policies/%2F", "", 404, `{"error":"not_found","reason":"Not Found"}`},
		{"GET", "/policies/shop", "", 200, `[]`},
		{"GET", "/policies/shop/p", "", 401, object},
		{"PUT", "/policies/shop/p", policy, 401, object},
		{"PUT", "/policies/%2F/p", policy, 401, object},
		{"DELETE", "/policies/shop/p", "", 401, object},
		{"GET", "/parameters", "", 401, object},
		{"GET", "/global-parameters", "", 401, object},
		{"GET", "/operator-policies", "", 200, `[]`},
		{"PUT", "/cluster-name", `{"name":"x"}`, 401, administrator},
		{"GET", "/operator-policies/shop/p", "", 401, administrator},
		{"GET", "/vhost-limits", "", 200, `[]`},
		{"PUT", "/vhost-limits/shop/max-queues", `{"value":1}`, 401, administrator},
		{"GET", "/user-limits", "", 401, administrator},
		{"GET", "/user-limits/ann", "", 200, `[]`},
		{"GET", "/user-limits/guest", "", 401, object},
		{"GET", "/users", "", 401, administrator},
		{"GET", "/users/ann", "", 401, administrator},
		{"PUT", "/users/ann", `{"tags":"administrator"}`, 401, administrator},
		{"GET", "/permissions", "", 401, administrator},
		{"PUT", "/permissions/shop/ann", `{}`, 401, administrator},
		{"GET", "/vhosts/shop", "", 401, administrator},
		{"PUT", "/vhosts/new", "", 401, administrator},
		{"GET", "/vhosts/shop/permissions", "", 401, administrator},
		{"GET", "/definitions", "", 401, administrator},
		{"POST", "/definitions/shop", "{}", 401, administrator},
		{"GET", "/auth/hash_password/x", "", 401, administrator},
	})
	c.as("pol").play([]step{
		{"PUT", "/policies/%2F/p", policy, 404, `{"error":"not_found","reason":"Not Found"}`},
		{"PUT", "/policies/nope/p", policy, 404, `{"error":"not_found","reason":"vhost_not_found"}`},
		{"PUT", "/policies/shop/p", policy, 201, ""},
		{"GET", "/parameters", "", 200, `[]`},
		{"GET", "/global-parameters", "", 200, `[]`},
		{"PUT", "/operator-policies/shop/p", policy, 401, administrator},
	})
	c.as("mon").play([]step{
		{"GET", "/user-limits/guest", "", 200, `[]`},
		{"GET", "/parameters", "", 401, object},
	})
	f.refusal = &Refusal{403, "write access to exchange 'amq.default' in vhost 'shop' refused for user 'ann'"}
	f.queues = []Queue{{VHost: "shop", Name: "aq"}}
	f.exchanges = append(f.exchanges, Exchange{VHost: "shop"}, Exchange{VHost: "shop", Name: "x"})
	refused := denied("Access refused.")
	c.as("ann").play([]step{
		{"PUT", "/exchanges/shop/x", `{}`, 401, refused},
		{"DELETE", "/exchanges/shop/x", ``, 401, refused},
		{"POST", "/bindings/shop/e/x/q/aq", `{}`, 401, refused},
		{"POST", "/exchanges/shop/amq.default/publish", `{"routing_key":"aq","properties":{},"payload":"hi","payload_encoding":"string"}`, 400,
			badRequest(`"403 ACCESS_REFUSED - write access to exchange 'amq.default' in vhost 'shop' refused for user 'ann'"`)},
	})
	f.refusal = &Refusal{403, "read access to queue 'aq' in vhost 'shop' refused for user 'ann'"}
	c.as("ann").play([]step{{"POST", "/queues/shop/aq/get", `{"count":20,"ackmode":"ack_requeue_false","encoding":"auto"}`, 401,
		denied("ACCESS_REFUSED - read access to queue 'aq' in vhost 'shop' refused for user 'ann'")}})
	for _, err := range []error{ErrRejected, ErrUnconfirmed} {
		f.refusal = err
		c.play([]step{{"POST", "/exchanges/shop/amq.default/publish", `{"routing_key":"aq","properties":{},"payload":"hi","payload_encoding":"string"}`, 400, badRequest(string(encode(err.Error())))}})
	}
}
