package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// load reads a file of that text together with flags and environment.
func load(t *testing.T, text string, from Sources) (Config, []string, error) {
	t.Helper()
	if text != "" {
		file := filepath.Join(t.TempDir(), "warren.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if from.Flags == nil {
			from.Flags = map[string]string{}
		}
		from.Flags["config"] = file
	}
	return Load(from)
}

func environment(m map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

func TestNothingSaidIsTheDefault(t *testing.T) {
	c, warnings, err := Load(Sources{})
	if err != nil || warnings != nil {
		t.Fatal(warnings, err)
	}
	want := Default()
	want.ClusterName = want.NodeName
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

// Each line is a file and what differs from the default because of it.
func TestKeys(t *testing.T) {
	tests := []struct {
		text string
		want func(*Config)
	}{
		{"listeners.tcp.default = 5673", func(c *Config) { c.AMQP = []string{":5673"} }},
		{"listeners.tcp.2 = [::1]:5674\nlisteners.tcp.10 = 5675\nlisteners.tcp.1 = 127.0.0.1:5672", func(c *Config) { c.AMQP = []string{"127.0.0.1:5672", "[::1]:5674", ":5675"} }},
		{"listeners.tcp = none", func(c *Config) { c.AMQP = nil }},
		{"listeners.tcp = none\nlisteners.ssl.default = 5671\nssl_options.certfile = /c.pem\nssl_options.keyfile = /k.pem\nssl_options.versions.1 = tlsv1.3", func(c *Config) {
			c.AMQP, c.AMQPS = nil, []string{":5671"}
			c.TLS = TLS{CertFile: "/c.pem", KeyFile: "/k.pem", Versions: []string{"tlsv1.3"}}
		}},
		{"ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\nssl_options.cacertfile = '/ca #1.pem'", func(c *Config) {
			c.TLS = TLS{CAFile: "/ca #1.pem", Verify: true, RequireCert: true}
		}},
		{"heartbeat = 0", func(c *Config) { c.Heartbeat = 0 }},
		{"heartbeat=30 # seconds", func(c *Config) { c.Heartbeat = 30 * time.Second }},
		{"channel_max = 16", func(c *Config) { c.ChannelMax = 16 }},
		{"max_channels_per_connection = 17", func(c *Config) { c.ChannelMax = 17 }},
		{"frame_max = 4096", func(c *Config) { c.FrameMax = 4096 }},
		{"handshake_timeout = 2500", func(c *Config) { c.HandshakeTimeout = 2500 * time.Millisecond }},
		{"max_message_size = 1MiB", func(c *Config) { c.MaxMessageSize = 1 << 20 }},
		{"connection_max = 100\nconsumer_max_per_channel = 20\ncluster_queue_limit = infinity", func(c *Config) { c.ConnectionMax, c.ConsumerMaxPerChannel = 100, 20 }},
		{"loopback_users.guest = false", func(c *Config) { delete(c.LoopbackUsers, "guest") }},
		{"loopback_users = none", func(c *Config) { clear(c.LoopbackUsers) }},
		{`loopback_users.a\.b = true`, func(c *Config) { c.LoopbackUsers["a.b"] = true }},
		{"default_user = ann\ndefault_pass = 'p#1'\ndefault_vhost = shop", func(c *Config) { c.DefaultUser, c.DefaultPass, c.DefaultVHost = "ann", "p#1", "shop" }},
		{"default_permissions.write = ^a", func(c *Config) { c.DefaultPermissions.Write = "^a" }},
		{"default_user_tags.administrator = false\ndefault_user_tags.monitoring = true", func(c *Config) { c.DefaultUserTags = []string{"monitoring"} }},
		{"management.tcp.port = 8080", func(c *Config) { c.HTTP = ":8080" }},
		{"management.tcp.ip = ::1", func(c *Config) { c.HTTP = "[::1]:15672" }},
		{"prometheus.tcp.port = 9100\nprometheus.tcp.ip = 127.0.0.1", func(c *Config) { c.Metrics = "127.0.0.1:9100" }},
		{"prometheus.tcp.listener = none", func(c *Config) { c.Metrics = "" }},
		{"log.console.level = debug\nlog.file = warren.log\nlog.dir = /var/log", func(c *Config) { c.Log.ConsoleLevel, c.Log.File, c.Log.Dir = "debug", "warren.log", "/var/log" }},
		{"log.file = false", func(c *Config) {}},
		{"log.console.formatter = json", func(c *Config) { c.Log.ConsoleJSON = true }},
		{"vm_memory_high_watermark.relative = 0.4", func(c *Config) { c.MemoryWatermark = Threshold{Relative: 0.4} }},
		{"vm_memory_high_watermark.absolute = 2GB", func(c *Config) { c.MemoryWatermark = Threshold{Absolute: 2e9} }},
		{"disk_free_limit.relative = 1.5", func(c *Config) { c.DiskFreeLimit = Threshold{Relative: 1.5} }},
		{"disk_free_limit.absolute = 1G", func(c *Config) { c.DiskFreeLimit = Threshold{Absolute: 1 << 30} }},
		{"auth_mechanisms.1 = PLAIN", func(c *Config) { c.AuthMechanisms = []string{"PLAIN"} }},
		{"auth_backends.1 = internal", func(c *Config) {}},
		{"deprecated_features.permit.transient_nonexcl_queues = false\ndeprecated_features.permit.global_qos = false", func(c *Config) { c.PermitTransientQueues, c.PermitGlobalQoS = false, false }},
		{"quorum_queue.property_equivalence.relaxed_checks_on_redeclaration = true\nconsumer_timeout = 900000", func(c *Config) { c.RelaxedRedeclaration, c.ConsumerTimeout = true, 15*time.Minute }},
		{"quorum_queue.initial_cluster_size = 5", func(c *Config) { c.QuorumGroupSize = 5 }},
		{"default_queue_type = quorum", func(c *Config) { c.DefaultQueueType = "quorum" }},
		{"default_queue_type = rabbit_stream_queue", func(c *Config) { c.DefaultQueueType = "stream" }},
		{"warren.product = RabbitMQ\nwarren.version = 4.3.6\nwarren.memory_bound = 64MiB", func(c *Config) { c.Product, c.ProductVersion, c.MemoryBound = "RabbitMQ", "4.3.6", 64<<20 }},
		{"\ufeff## a comment\r\n\r\n  heartbeat = 10\r\nheartbeat = 20\r\n", func(c *Config) { c.Heartbeat = 20 * time.Second }},
		{"default_pass = $(SECRET)", func(c *Config) { c.DefaultPass = "s3" }},
	}
	for _, test := range tests {
		c, warnings, err := load(t, test.text, Sources{LookupEnv: environment(map[string]string{"SECRET": "s3"})})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%q: %v %v", test.text, warnings, err)
			continue
		}
		want := Default()
		want.ClusterName, want.File = want.NodeName, c.File
		test.want(&want)
		if !reflect.DeepEqual(c, want) {
			t.Errorf("%q:\ngot  %+v\nwant %+v", test.text, c, want)
		}
	}
}

// What is refused names the line, the key and the remedy.
func TestFaults(t *testing.T) {
	tests := []struct{ text, want string }{
		{"\nlistners.tcp.default = 5672", "warren.conf:2: unknown key listners.tcp.default; did you mean listeners.tcp.NAME?"},
		{"hearbeat = 3", "unknown key hearbeat; did you mean heartbeat?"},
		{"heartbaet = 3", "did you mean heartbeat?"},
		{"log.consol.level = info", "did you mean log.console.level?"},
		{"zzzzzzzzzz = 1", "warren.conf:1: unknown key zzzzzzzzzz"},
		{"heartbeat", `warren.conf:1: "heartbeat" is no setting: expected key = value`},
		{"heartbeat =", "heartbeat has no value"},
		{"heart beat = 3", `"heart beat" is no key`},
		{"a..b = 3", `"a..b" is no key`},
		{"heartbeat = '60", "opening quote"},
		{"heartbeat = many", `heartbeat: "many" is no integer from 0 to 65535`},
		{"frame_max = 4095", "below 4096"},
		{"max_message_size = 1GiB", "above 536870912"},
		{"max_message_size = 99999999999999999999PB", "no amount of bytes"},
		{"max_message_size = 20000000PiB", "no amount of bytes"},
		{"listeners.tcp.default = 70000", "no address"},
		{"listeners.tcp = 5672", "not none"},
		{"connection_max = 0", "no integer from 1"},
		{"default_pass = $(NOT_SET)", "environment variable NOT_SET is not set"},
		{"default_pass = encrypted:abc", "encrypted values are not supported"},
		{"auth_backends.1 = ldap", "the authentication backend ldap is not built yet"},
		{"auth_mechanisms.1 = EXTERNAL", "EXTERNAL is not built yet"},
		{"proxy_protocol = true", "would not be safe"},
		{"listeners.ssl.default = 5671", "needs a certificate"},
		{"warren.memory_bound = 10", "at least 1MiB"},
		{"log.console.level = loud", `"loud" is none of: debug, info`},
	}
	for _, test := range tests {
		_, _, err := load(t, test.text, Sources{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %q", test.text, err, test.want)
		}
	}
	_, _, err := load(t, "aaaaaaaaaaaa = 1\nheartbeat = x\nbbbbbbbbbbbb = 2", Sources{})
	if n := strings.Count(err.Error(), "\n"); n != 2 {
		t.Errorf("three faults in %d lines: %v", n+1, err)
	}
}

func TestInertKeysAreWarnings(t *testing.T) {
	for _, text := range []string{"raft.wal_max_size_bytes = 1", "num_acceptors.tcp = 4", "cluster_formation.k8s.host = h", "management.ssl.port = 15671",
		"vm_memory_high_watermark_paging_ratio = 0.5", "management.oauth_client_id = x", "stream.listeners.tcp.default = 5552"} {
		_, warnings, err := load(t, text, Sources{})
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], ":1: "+strings.Fields(text)[0]+" has no effect") {
			t.Errorf("%q: %v %v", text, warnings, err)
		}
	}
	if _, warnings, err := load(t, "proxy_protocol = false", Sources{}); err != nil || warnings != nil {
		t.Error(warnings, err)
	}
}

// The order is flag, --set, environment, RabbitMQ's environment, file, default.
func TestPrecedence(t *testing.T) {
	file := "listeners.tcp.1 = 1\nlisteners.tcp.2 = 2\nmanagement.tcp.port = 1\ndefault_user = file\ndefault_pass = file\ndefault_vhost = file\nlog.console.level = error"
	c, _, err := load(t, file, Sources{
		Flags:    map[string]string{"listen": "127.0.0.1:4"},
		Settings: []string{"listeners.tcp.1 = 3", "default_user=set"},
		LookupEnv: environment(map[string]string{"WARREN_LISTEN": "2", "WARREN_HTTP": "0.0.0.0:2", "WARREN_DEFAULT_USER": "env", "WARREN_DEFAULT_PASS": "env",
			"RABBITMQ_DEFAULT_PASS": "rabbit", "RABBITMQ_DEFAULT_VHOST": "rabbit", "WARREN_METRICS": "none"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{strings.Join(c.AMQP, " "), c.HTTP, c.Metrics, c.DefaultUser, c.DefaultPass, c.DefaultVHost, c.Log.ConsoleLevel}
	want := []string{"127.0.0.1:4", "0.0.0.0:2", "", "set", "env", "rabbit", "error"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOptionFaultsNameTheirPlace(t *testing.T) {
	_, _, err := Load(Sources{Flags: map[string]string{"listen": "x"}, LookupEnv: environment(map[string]string{"WARREN_HTTP": "y"}), Settings: []string{"heartbeat=z"}})
	for _, want := range []string{"--listen: ", "WARREN_HTTP: ", "--set heartbeat: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if _, _, err = Load(Sources{Flags: map[string]string{"config": "/does/not/exist"}}); err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Error(err)
	}
}

func TestDirectoryOfFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"10-a.conf": "heartbeat = 1\nchannel_max = 1", "20-b.conf": "heartbeat = 2", "note.txt": "no setting"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, _, err := Load(Sources{Flags: map[string]string{"config": dir}})
	if err != nil || c.Heartbeat != 2*time.Second || c.ChannelMax != 1 {
		t.Error(c.Heartbeat, c.ChannelMax, err)
	}
}

func TestDocumentedKeys(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		name := strings.Replace(k.pattern, ".*", ".", 1)
		if !strings.Contains(string(text), "`"+name) {
			t.Errorf("docs/configuration.md does not name %s", k.pattern)
		}
	}
	for _, o := range Options() {
		if !strings.Contains(string(text), "`--"+o.Name+"`") || !strings.Contains(string(text), o.Variable()) {
			t.Errorf("docs/configuration.md does not name --%s and %s", o.Name, o.Variable())
		}
	}
}

// No text makes the parser panic, and what it reads can be written and read again.
func FuzzParse(f *testing.F) {
	f.Add("listeners.tcp.default = 5672\n# c\n a\\.b.c = 'x # y' # z")
	f.Add("a = $(B")
	f.Fuzz(func(t *testing.T, text string) {
		settings, problems := Parse("f", text)
		if lines := strings.Count(text, "\n") + 1; len(settings)+len(problems) > lines {
			t.Fatalf("%d settings and %d problems in %d lines", len(settings), len(problems), lines)
		}
		d := draft{Config: Default()}
		for _, s := range settings {
			d.apply(s, environment(nil))
			written := s.Name() + " = " + s.Value
			if s.Quoted {
				written = s.Name() + " = '" + s.Value + "'"
			}
			again, faults := Parse("f", written)
			if len(faults) > 0 || len(again) != 1 || again[0].Value != s.Value || again[0].Name() != s.Name() {
				t.Fatalf("%q read as %+v, again as %+v %v", text, s, again, faults)
			}
		}
		d.finish()
	})
}
