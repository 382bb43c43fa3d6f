package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/config"
)

// startData opens the rooms of a node on a data directory, and looks at its broker.
func startData(t *testing.T, dir string, definitions config.Definitions, look func(b *broker.Broker)) error {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.Definitions = dir, definitions
	e, err := openEngine(cfg, "0", 1<<40, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		return err
	}
	look(e.(*rooms).broker)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return e.Stop(ctx)
}

// TestDefinitionsAtStart: files are imported before anybody connects, again at each start unless nothing has changed, and
// what they lack is not made up.
func TestDefinitionsAtStart(t *testing.T) {
	dir, files := t.TempDir(), filepath.Join(t.TempDir(), "def[1]")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(files, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(files, 0o700); err != nil {
		t.Fatal(err)
	}
	o := config.Definitions{Path: files, SkipIfUnchanged: true, Hash: "sha256"}
	if err := startData(t, dir, o, nil); err == nil || !strings.Contains(err.Error(), "no .json file") {
		t.Fatal(err)
	}
	write("2-rest.json", `{"queues":[{"name":"q","vhost":"v"}],"policies":[{"vhost":"v","name":"p","pattern":"","definition":{"max-length":5}}]}`)
	write("1-first.json", `{"vhosts":[{"name":"v"}],"users":[{"name":"u","password":"p","tags":"administrator"}]}`)
	must := func(look func(b *broker.Broker)) {
		t.Helper()
		if err := startData(t, dir, o, look); err != nil {
			t.Fatal(err)
		}
	}
	must(func(b *broker.Broker) {
		if b.User("guest") != nil || b.VHost("/") != nil || b.User("u") == nil {
			t.Error("other users and virtual hosts than the file's")
		}
		if got := b.VHost("v").Queue("q").Settings(); got.Config.MaxLength != 5 || got.Policy != "p" {
			t.Errorf("%+v", got)
		}
		if len(b.GlobalParameters()) != 0 {
			t.Error(b.GlobalParameters())
		}
		done := make(chan error)
		b.VHost("v").ClearPolicy(false, "p", func(_ bool, err error) { done <- err })
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	must(func(b *broker.Broker) {
		if q := b.VHost("v").Queue("q"); q == nil || q.Settings().Policy != "" {
			t.Error("unchanged files were imported again, or the queue is gone")
		}
	})
	write("2-rest.json", `{"policies":[{"vhost":"v","name":"p","pattern":"","definition":{"max-length":6}}]}`)
	must(func(b *broker.Broker) {
		if got := b.VHost("v").Queue("q").Settings(); got.Config.MaxLength != 6 {
			t.Errorf("%+v", got)
		}
	})
	o.SkipIfUnchanged = false
	o.Path = filepath.Join(files, "2-rest.json")
	write("2-rest.json", `{"queues":[{"name":"q","vhost":"none"}]}`)
	err := startData(t, dir, o, nil)
	if err == nil || !strings.Contains(err.Error(), `Please create virtual host "none" prior to importing definitions.`) || !strings.Contains(err.Error(), "2-rest.json") {
		t.Error(err)
	}
	o.Path = ""
	must(func(b *broker.Broker) {
		if b.User("guest") != nil {
			t.Error("the default user came later")
		}
	})
	// A first start that fails leaves a node that can be started without the definitions.
	dir, o.Path = t.TempDir(), filepath.Join(files, "2-rest.json")
	if err := startData(t, dir, o, nil); err == nil {
		t.Error("imported")
	}
	o.Path = ""
	must(func(b *broker.Broker) {
		if u := b.User("guest"); u == nil || !u.Is("administrator") || b.VHost("/") == nil {
			t.Error("there is no default user")
		}
	})
}

// TestDefinitionsOfOldVersions: a file as RabbitMQ 3.10 writes them, at the first start and by command, and what is exported
// then is the same.
func TestDefinitionsOfOldVersions(t *testing.T) {
	file, err := filepath.Abs("../broker/testdata/rabbitmq-3.10.json")
	if err != nil {
		t.Fatal(err)
	}
	looks := func(how string, n *realNode, user string) string {
		t.Helper()
		for path, want := range map[string]string{
			"/users/ops?columns=tags":                                         `{"tags":["administrator","monitoring"]}`,
			"/queues/billing/invoices?columns=policy,operator_policy":         `{"policy":"ha-lazy","operator_policy":"cap"}`,
			"/queues/billing/invoices/bindings?columns=source,routing_key":    `[{"source":"","routing_key":"invoices"},{"source":"invoices","routing_key":"invoice.#"}]`,
			"/topic-permissions/billing/billing?columns=write":                `[{"write":"^{username}\\."}]`,
			"/permissions/billing/billing?columns=configure":                  `{"configure":"^(?!amq\\.).*"}`,
			"/policies/billing?columns=name&sort=name":                        `[{"name":"ha-lazy"},{"name":"strays"}]`,
			"/exchanges/billing/by-format?columns=arguments,type":             `{"type":"headers","arguments":{"alternate-exchange":"strays"}}`,
			"/global-parameters/internal_cluster_id?columns=value":            `{"value":"rabbitmq-cluster-id-0000000000000000000000"}`,
			"/queues/billing/invoices.priority?columns=arguments,auto_delete": `{"auto_delete":false,"arguments":{"x-max-priority":5,"x-queue-master-locator":"client-local","x-queue-type":"classic"}}`,
		} {
			if _, got := n.do(user, "GET", path, ""); got != want {
				t.Errorf("%s: %s: %s, want %s", how, path, got, want)
			}
		}
		_, all := n.do(user, "GET", "/definitions/billing", "")
		return all
	}
	boot := looks("at the start", runNode(t, "--set", "load_definitions="+file), "ops")
	n := runNode(t)
	if code, out, errs := command(t, n.url, nil, "definitions", "import", file); code != 0 || errs != "" {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if byCommand := looks("by command", n, "ops"); byCommand != boot || !strings.Contains(boot, "invoices.dead") {
		t.Errorf("by command\n%s\nat the start\n%s", byCommand, boot)
	}
}
