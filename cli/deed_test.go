package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// conversation is a node that remembers what it was asked, with bodies, and answers from a table; what is not in it is done (204).
func conversation(t *testing.T, table map[string]string, asked *[]string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		line := r.Method + " " + strings.TrimPrefix(r.RequestURI, "/api/")
		*asked = append(*asked, strings.TrimSpace(line+" "+string(body)))
		switch answer, ok := table[line]; {
		case answer == "404":
			w.WriteHeader(404)
			w.Write([]byte(`{"error":"Object Not Found","reason":"Not Found"}`))
		case ok:
			w.Write([]byte(answer))
		default:
			w.WriteHeader(204)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Each command sends what it should, in Warren's spelling and in that of RabbitMQ's tool.
func TestWhatCommandsSend(t *testing.T) {
	ann := `{"name":"ann","password_hash":"aGFzaA==","hashing_algorithm":"rabbit_password_hashing_sha512","tags":["a"]}`
	table := map[string]string{
		"GET users/new": "404", "GET users/ann": ann, "GET vhosts/new": "404", "GET vhosts/old": "{}", "GET users/nobody": "404", "DELETE users/nobody": "404",
		"GET bindings/%2F/e/x/q/q":                `[{"routing_key":"k","arguments":{"n":1},"properties_key":"k~1"},{"routing_key":"k","arguments":{},"properties_key":"k"}]`,
		"POST exchanges/%2F/amq.default/publish":  `{"routed":true}`,
		"POST exchanges/shop/amq.default/publish": `{"routed":false}`,
		"DELETE policies/%2F/nope":                "404",
	}
	password := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(password, []byte("from file\r\nmore"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args  string // separated by |
		input string
		code  int
		asked string
		out   string
	}{
		{"user|add|new|--tags|a,b", "s3cret\nmore", 0, `GET users/new; PUT users/new {"password":"s3cret","tags":"a,b"}`, ""},
		{"user|add|new|--new-password-file|" + password, "", 0, `GET users/new; PUT users/new {"password":"from file","tags":""}`, ""},
		{"user|add|new|--no-password", "", 0, `GET users/new; PUT users/new {"tags":""}`, ""},
		{"user|add|new|--hashed", "aGFzaA==", 0, `GET users/new; PUT users/new {"password_hash":"aGFzaA==","tags":""}`, ""},
		{"user|add|new", "", 64, `GET users/new`, ""},
		{"user|add|ann", "pw", 70, `GET users/ann`, ""},
		{"user|passwd|ann", "pw\n", 0, `GET users/ann; PUT users/ann {"password":"pw","tags":["a"]}`, ""},
		{"user|passwd|nobody", "pw\n", 67, `GET users/nobody`, ""},
		{"user|tag|ann|x|y", "", 0, `GET users/ann; PUT users/ann {"hashing_algorithm":"rabbit_password_hashing_sha512","password_hash":"aGFzaA==","tags":["x","y"]}`, ""},
		{"user|tag|ann", "", 0, `GET users/ann; PUT users/ann {"hashing_algorithm":"rabbit_password_hashing_sha512","password_hash":"aGFzaA==","tags":[]}`, ""},
		{"user|delete|nobody", "", 67, `DELETE users/nobody`, ""},
		{"user|limits|set|ann|max-channels|--|-1", "", 0, `PUT user-limits/ann/max-channels {"value":-1}`, ""},
		{"user|limits|set|ann|max-channels|many", "", 65, ``, ""},
		{"user|limits|clear|ann|max-channels", "", 0, `DELETE user-limits/ann/max-channels`, ""},
		{"add_user|new|pw", "", 0, `GET users/new; PUT users/new {"password":"pw","tags":""}`,
			"Adding user \"new\" ...\nDone. Don't forget to grant the user permissions to some virtual hosts! See 'warren permission set --help' to learn more.\n"},
		{"add_user|new|-q", "typed\n", 0, `GET users/new; PUT users/new {"password":"typed","tags":""}`, ""},
		{"add_user|ann|pw", "", 70, `GET users/ann`, "Adding user \"ann\" ...\n"},
		{"change_password|ann|pw|-s", "", 0, `GET users/ann; PUT users/ann {"password":"pw","tags":["a"]}`, ""},
		{"clear_password|ann|-q", "", 0, `GET users/ann; PUT users/ann {"tags":["a"]}`, ""},
		{"delete_user|ann", "", 0, `DELETE users/ann`, "Deleting user \"ann\" ...\n"},
		{"set_user_tags|ann|x", "", 0, `GET users/ann; PUT users/ann {"hashing_algorithm":"rabbit_password_hashing_sha512","password_hash":"aGFzaA==","tags":["x"]}`, "Setting tags for user \"ann\" to [x] ...\n"},
		{`set_user_limits|ann|{"max-channels":3}|-q`, "", 0, `PUT user-limits/ann/max-channels {"value":3}`, ""},
		{"clear_user_limits|ann|all|-q", "", 0, `DELETE user-limits/ann/max-connections; DELETE user-limits/ann/max-channels`, ""},

		{"permission|set|ann|a|b|c|-p|shop", "", 0, `PUT permissions/shop/ann {"configure":"a","read":"c","write":"b"}`, ""},
		{"permission|clear|ann", "", 0, `DELETE permissions/%2F/ann`, ""},
		{"permission|topic|set|ann|amq.topic|w|r", "", 0, `PUT topic-permissions/%2F/ann {"exchange":"amq.topic","read":"r","write":"w"}`, ""},
		{"permission|topic|clear|ann|amq.topic", "", 0, `DELETE topic-permissions/%2F/ann/amq.topic`, ""},
		{"set_permissions|-p|shop|ann|a|b|c", "", 0, `PUT permissions/shop/ann {"configure":"a","read":"c","write":"b"}`, "Setting permissions for user \"ann\" in vhost \"shop\" ...\n"},
		{"clear_permissions|ann|-q", "", 0, `DELETE permissions/%2F/ann`, ""},
		{"set_topic_permissions|ann|amq.topic|w|r|-q", "", 0, `PUT topic-permissions/%2F/ann {"exchange":"amq.topic","read":"r","write":"w"}`, ""},
		{"clear_topic_permissions|ann|-q", "", 0, `DELETE topic-permissions/%2F/ann`, ""},

		{"vhost|add|new|--description|d|--tags|a,b|--default-queue-type|quorum", "", 0, `GET vhosts/new; PUT vhosts/new {"default_queue_type":"quorum","description":"d","tags":"a,b"}`, ""},
		{"vhost|add|old", "", 70, `GET vhosts/old`, ""},
		{"vhost|delete|old|--yes", "", 0, `DELETE vhosts/old`, ""},
		{"vhost|limits|set|old|max-queues|5", "", 0, `PUT vhost-limits/old/max-queues {"value":5}`, ""},
		{"add_vhost|old|-q", "", 0, `GET vhosts/old`, ""},
		{`set_vhost_limits|-p|old|{"max-queues":-1}|-q`, "", 0, `PUT vhost-limits/old/max-queues {"value":-1}`, ""},
		{"clear_vhost_limits|-p|old|-q", "", 0, `DELETE vhost-limits/old/max-connections; DELETE vhost-limits/old/max-queues`, ""},

		{`policy|set|p|^a|{"max-length":1}|--priority|-3|--apply-to|queues`, "", 0, `PUT policies/%2F/p {"apply-to":"queues","definition":{"max-length":1},"pattern":"^a","priority":-3}`, ""},
		{`policy|set|p|^a|{"max-length":1}|--operator|-p|shop`, "", 0, `PUT operator-policies/shop/p {"apply-to":"all","definition":{"max-length":1},"pattern":"^a","priority":0}`, ""},
		{"policy|set|p|^a|max-length=1", "", 65, ``, ""},
		{"policy|clear|p|--operator", "", 0, `DELETE operator-policies/%2F/p`, ""},
		{"policy|clear|nope", "", 65, `DELETE policies/%2F/nope`, ""},
		{`set_policy|--priority|2|p|^a|{"max-length":1}`, "", 0, `PUT policies/%2F/p {"apply-to":"all","definition":{"max-length":1},"pattern":"^a","priority":2}`,
			"Setting policy \"p\" for pattern \"^a\" to \"{\"max-length\":1}\" with priority \"2\" for vhost \"/\" ...\n"},
		{`set_operator_policy|p|^a|{"max-length":1}|-q`, "", 0, `PUT operator-policies/%2F/p {"apply-to":"all","definition":{"max-length":1},"pattern":"^a","priority":0}`, ""},
		{"clear_operator_policy|p", "", 0, `DELETE operator-policies/%2F/p`, "Clearing operator policy \"p\" on vhost \"/\" ...\n"},
		{`parameter|set|c|n|{"a":1}`, "", 0, `PUT parameters/c/%2F/n {"value":{"a":1}}`, ""},
		{"parameter|set|c|n|text", "", 65, ``, ""},
		{`set_global_parameter|n|"x"|-q`, "", 0, `PUT global-parameters/n {"value":"x"}`, ""},
		{"parameter|global|clear|n", "", 0, `DELETE global-parameters/n`, ""},

		{"exchange|declare|x|--type|topic|--durable=false|--argument|alternate-exchange=ae|--argument|n=1", "", 0,
			`PUT exchanges/%2F/x {"arguments":{"alternate-exchange":"ae","n":1},"auto_delete":false,"durable":false,"internal":false,"type":"topic"}`, ""},
		{"exchange|declare|x|--argument|n", "", 64, ``, ""},
		{"exchange|delete|x|--if-unused", "", 0, `DELETE exchanges/%2F/x?if-unused=true`, ""},
		{"queue|declare|q|--type|quorum|--argument|x-max-length=5", "", 0, `PUT queues/%2F/q {"arguments":{"x-max-length":5,"x-queue-type":"quorum"},"auto_delete":false,"durable":true}`, ""},
		{"queue|delete|q|--if-empty|--if-unused", "", 0, `DELETE queues/%2F/q?if-empty=true&if-unused=true`, ""},
		{"queue|purge|q", "", 0, `DELETE queues/%2F/q/contents`, ""},
		{"delete_queue|q", "", 0, `DELETE queues/%2F/q`, "Deleting queue 'q' on vhost '/' ...\n"},
		{"purge_queue|q|-p|shop|-q", "", 0, `DELETE queues/shop/q/contents`, ""},
		{"queue|publish|q|hi|--property|message_id=7|--header|a=1", "", 0,
			`POST exchanges/%2F/amq.default/publish {"payload":"hi","payload_encoding":"string","properties":{"delivery_mode":2,"headers":{"a":1},"message_id":"7"},"routing_key":"q"}`, ""},
		{"queue|publish|q", "\xff", 0, `POST exchanges/%2F/amq.default/publish {"payload":"/w==","payload_encoding":"base64","properties":{"delivery_mode":2},"routing_key":"q"}`, ""},
		{"queue|publish|q|hi|-p|shop", "", 65, `POST exchanges/shop/amq.default/publish {"payload":"hi","payload_encoding":"string","properties":{"delivery_mode":2},"routing_key":"q"}`, ""},
		{"binding|add|x|q|k|--argument|n=1", "", 0, `POST bindings/%2F/e/x/q/q {"arguments":{"n":1},"routing_key":"k"}`, ""},
		{"binding|add|x|y|--to-exchange", "", 0, `POST bindings/%2F/e/x/e/y {"arguments":{},"routing_key":""}`, ""},
		{"binding|delete|x|q|k", "", 0, `GET bindings/%2F/e/x/q/q; DELETE bindings/%2F/e/x/q/q/k`, ""},
		{"binding|delete|x|q|k|--argument|n=1", "", 0, `GET bindings/%2F/e/x/q/q; DELETE bindings/%2F/e/x/q/q/k~1`, ""},
		{"binding|delete|x|q|other", "", 65, `GET bindings/%2F/e/x/q/q`, ""},
		{"definitions|import", `{"a":1}`, 0, `POST definitions {"a":1}`, ""},
		{"definitions|import|-|--vhost|/", `{"a":1}`, 0, `POST definitions/%2F {"a":1}`, ""},
		{"definitions|import|/does/not/exist", "", 65, ``, ""},
		{"import_definitions", `{"a":1}`, 0, `POST definitions {"a":1}`, ""},
	} {
		var asked []string
		url := conversation(t, table, &asked)
		code, out, err := command(t, url, func(p *program) { p.in = strings.NewReader(test.input) }, strings.Split(test.args, "|")...)
		if code != test.code || strings.Join(asked, "; ") != test.asked || out != test.out || (code == 0) != (err == "") {
			t.Errorf("%s\n exit %d, want %d: %s\n asked %s\n want  %s\n out %q\nwant %q", test.args, code, test.code, err, strings.Join(asked, "; "), test.asked, out, test.out)
		}
		if strings.Contains(err, "s3cret") {
			t.Errorf("%s: the password is shown: %s", test.args, err)
		}
	}
}

// What cannot be undone asks on a terminal.
func TestRemovalsAsk(t *testing.T) {
	for _, args := range []string{"user delete a", "vhost delete a", "queue delete a", "queue purge a", "exchange delete a"} {
		for answer, want := range map[string]int{"n\n": 64, "y\n": 0} {
			var asked []string
			url := conversation(t, nil, &asked)
			code, _, err := command(t, url, func(p *program) { p.terminal, p.in = true, strings.NewReader(answer) }, strings.Fields(args)...)
			if code != want || (len(asked) == 1) != (want == 0) || !strings.Contains(err, "[y/N]") {
				t.Errorf("%s, %q: %d %s %v", args, answer, code, err, asked)
			}
		}
	}
	var asked []string // RabbitMQ's tools do not ask
	if code, _, err := command(t, conversation(t, nil, &asked), func(p *program) { p.terminal = true }, "delete_user", "a"); code != 0 || err != "" || len(asked) != 1 {
		t.Error(code, err, asked)
	}
}

// The lists of RabbitMQ's tools, as scripts read them.
func TestCtlLists(t *testing.T) {
	for _, test := range []struct{ args, path, answer, want string }{
		{"list_users", "users?columns=name%2Ctags", `[{"name":"a","tags":["x","y"]},{"name":"b","tags":[]}]`, "Listing users ...\nuser\ttags\na\t[x, y]\nb\t[]\n"},
		{"list_vhosts -q", "vhosts?columns=name", `[{"name":"/"}]`, "name\n/\n"},
		{"list_permissions", "vhosts/%2F/permissions?columns=user%2Cconfigure%2Cwrite%2Cread", `[{"user":"a","configure":"","write":".*","read":"x"}]`,
			"Listing permissions for vhost \"/\" ...\nuser\tconfigure\twrite\tread\na\t\t.*\tx\n"},
		{"list_user_permissions a", "users/a/permissions?columns=vhost%2Cconfigure%2Cwrite%2Cread", `[]`, "Listing permissions for user \"a\" ...\nvhost\tconfigure\twrite\tread\n"},
		{"list_policies -p shop", "policies/shop?columns=vhost%2Cname%2Cpattern%2Capply-to%2Cdefinition%2Cpriority", `[{"vhost":"shop","name":"p","pattern":"^a","apply-to":"all","definition":{"max-length":1},"priority":0}]`,
			"Listing policies for vhost \"shop\" ...\nvhost\tname\tpattern\tapply-to\tdefinition\tpriority\nshop\tp\t^a\tall\t{\"max-length\":1}\t0\n"},
		{"list_operator_policies -s", "operator-policies/%2F?columns=vhost%2Cname%2Cpattern%2Capply-to%2Cdefinition%2Cpriority", `[]`, ""},
		{"list_exchanges", "exchanges/%2F?columns=name%2Ctype", `[{"name":"","type":"direct"}]`, "Listing exchanges for vhost / ...\nname\ttype\n\tdirect\n"},
		{"list_bindings source_name destination_name -q", "bindings/%2F?columns=source%2Cdestination", `[{"source":"x","destination":"q"}]`, "source_name\tdestination_name\nx\tq\n"},
		{"list_bindings source_kind destination_kind -s", "bindings/%2F?columns=source_kind%2Cdestination_type", `[{"destination_type":"queue"}]`, "exchange\tqueue\n"},
		{"list_user_limits -s", "user-limits?columns=user%2Cvalue", `[{"user":"a","value":{"max-channels":1}}]`, "a\t{\"max-channels\":1}\n"},
		{"list_parameters", "parameters?columns=component%2Cname%2Cvalue", `[]`, "Listing runtime parameters for vhost \"/\" ...\ncomponent\tname\tvalue\n"},
		{"list_global_parameters -s --formatter json", "global-parameters?columns=name%2Cvalue", `[{"name":"a","value":1}]`, `[{"name":"a","value":1}]` + "\n"},
	} {
		var asked []string
		url := conversation(t, map[string]string{"GET " + test.path: test.answer}, &asked)
		if code, out, err := command(t, url, nil, strings.Fields(test.args)...); code != 0 || out != test.want || err != "" {
			t.Errorf("%s: %d %s\n%q\nwant %q\nasked %v", test.args, code, err, out, test.want, asked)
		}
	}
}

func TestDryRunSaysWhatWouldBe(t *testing.T) {
	present := `{"users":[{"name":"a","tags":["x"],"password_hash":"h","limits":{}}],"queues":[{"name":"q","vhost":"/","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"classic"}}],
		"policies":[{"vhost":"/","name":"p","pattern":"a","definition":{"max-length":1}}]}`
	file := `{"users":[{"name":"a","tags":["x"],"password_hash":"h"},{"name":"b"}],"queues":[{"name":"q","vhost":"/","durable":true,"arguments":{}},{"name":"r","vhost":"/"}],
		"policies":[{"vhost":"/","name":"p","pattern":"a","definition":{"max-length":2}}],"exchanges":null,"bindings":[{"source":"","destination":"q","destination_type":"queue","routing_key":"","vhost":"/","arguments":{}}]}`
	var asked []string
	url := conversation(t, map[string]string{"GET definitions": present}, &asked)
	code, out, err := command(t, url, func(p *program) { p.in = strings.NewReader(file) }, "definitions", "import", "--dry-run")
	want := "add user b\nchange policy p /\nadd queue r /\nadd binding '' q queue '' /\n3 to add, 1 to change, 2 stay as they are\n"
	if code != 0 || out != want || len(asked) != 1 {
		t.Errorf("%d %s\n%s\nwant\n%s%v", code, err, out, want, asked)
	}
}

func TestWrongPatternsAreReadable(t *testing.T) {
	url := answers{"PUT /api/permissions/%2F/a": {400, `{"error":"bad_request","reason":["invalid_regexp",[91],[[109,105,115,115],1]]}`}}.serve(t, nil)
	if code, _, err := command(t, url, nil, "permission", "set", "a", "[", "", ""); code != 65 || !strings.Contains(err, `refused: "[" is no regular expression: miss`) {
		t.Error(code, err)
	}
}

// Every command has a help with examples; those of RabbitMQ's tools are hidden.
func TestEveryCommandTeaches(t *testing.T) {
	root := (&program{in: strings.NewReader(""), out: io.Discard, err: io.Discard, env: func(string) (string, bool) { return "", false }}).root()
	seen := 0
	for _, noun := range root.Commands() {
		if noun.Hidden || noun.Name() == "help" || noun.Name() == "completion" {
			continue
		}
		for _, verb := range append(noun.Commands(), noun) {
			seen++
			if !strings.HasPrefix(verb.Example, "  warren ") || verb.Short == "" {
				t.Errorf("%s: no examples", verb.CommandPath())
			}
			for _, deeper := range verb.Commands() {
				if !strings.HasPrefix(deeper.Example, "  warren ") {
					t.Errorf("%s: no examples", deeper.CommandPath())
				}
			}
		}
	}
	if seen < 40 {
		t.Error("there are only", seen)
	}
}
