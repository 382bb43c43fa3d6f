package management

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrape returns an endpoint's text after Prometheus' own parser has accepted it.
func scrape(t *testing.T, api *API, path string, headers ...string) string {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	api.Metrics().ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	text := w.Body.String()
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		text = string(plain)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(text)); err != nil {
		t.Fatalf("%s: %v\n%s", path, err, text)
	}
	return text
}

// series are the lines of a text that begin so, without their values.
func series(text, prefix string) (names []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, prefix) {
			names = append(names, line[:strings.LastIndexByte(line, ' ')])
		}
	}
	return names
}

func metricsFake() *fake {
	f := queues(2)
	f.queues[0].Name = "a \"b\"\\\n"
	f.connect(1, "guest", "/", "q000")
	f.exchanges[1].In, f.exchanges[1].Counted = 5, true
	f.totals.Publishers = 1
	f.counts = Counts{Received: 12, Routed: 11, Dropped: 1, Confirmed: 3, Refused: 3, DeadUnrouted: 4, DeadRefused: 5, ConnectionsOpened: 4, Sizes: []uint64{5, 4, 0, 0, 0, 0, 2, 0, 1}, SizeSum: 1 << 30,
		Delivery: []TypeCounts{{Type: "classic", QueueCounts: QueueCounts{Publish: 11, Deliver: 6, DeliverNoAck: 2, Get: 1}, DeadExpired: 2}, {Type: "quorum"}}}
	return f
}

func TestAggregatedMetrics(t *testing.T) {
	api := New(Options{Broker: metricsFake(), Node: "warren@test", ProductVersion: "0.1.0", MemoryLimit: 100, DiskLimit: 200, Storage: func() StorageFigures {
		return StorageFigures{JournalOctets: 7, RunLive: 4, MessagesInMemory: 1,
			Syncs: Histogram{Bounds: []time.Duration{time.Millisecond, time.Second}, Counts: []uint64{1, 0, 2}, Sum: 1500 * time.Millisecond}}
	}})
	text := scrape(t, api, "/metrics")
	for _, want := range []string{
		`rabbitmq_identity_info{rabbitmq_node="warren@test",rabbitmq_cluster="warren@test",rabbitmq_cluster_permanent_id="warren@test",rabbitmq_endpoint="aggregated"} 1`,
		`product_version="0.1.0",product_name="Warren"} 1`,
		"# TYPE rabbitmq_build_info untyped",
		"rabbitmq_connections 1", "rabbitmq_channels 1", "rabbitmq_consumers 1", "rabbitmq_queues 2",
		"rabbitmq_connections_opened_total 4",
		"rabbitmq_queue_messages_ready 1", "rabbitmq_queue_messages_unacked 2", "rabbitmq_queue_messages 3", "rabbitmq_queue_consumers 1",
		"rabbitmq_queue_messages_delivered_ack_total 6",
		"rabbitmq_channel_messages_unacked 2", "rabbitmq_connection_incoming_bytes_total 100",
		`rabbitmq_global_messages_received_total{protocol="amqp091"} 12`, `rabbitmq_global_publishers{protocol="amqp091"} 1`,
		`rabbitmq_global_messages_delivered_total{protocol="amqp091",queue_type="rabbit_classic_queue"} 9`,
		`rabbitmq_global_messages_delivered_total{protocol="amqp091",queue_type="rabbit_quorum_queue"} 0`,
		`rabbitmq_global_messages_dead_lettered_expired_total{queue_type="rabbit_classic_queue",dead_letter_strategy="at_most_once"} 2`,
		`rabbitmq_global_messages_dead_lettered_maxlen_total{queue_type="rabbit_classic_queue",dead_letter_strategy="disabled"} 0`,
		`rabbitmq_message_size_bytes_bucket{protocol="amqp091",le="100.0"} 5`, `rabbitmq_message_size_bytes_bucket{protocol="amqp091",le="100000.0"} 9`,
		`rabbitmq_message_size_bytes_bucket{protocol="amqp091",le="1e+06"} 9`, `rabbitmq_message_size_bytes_bucket{protocol="amqp091",le="5e+07"} 11`,
		`rabbitmq_message_size_bytes_bucket{protocol="amqp091",le="+Inf"} 12`, `rabbitmq_message_size_bytes_count{protocol="amqp091"} 12`,
		"rabbitmq_alarms_memory_used_watermark 0", "rabbitmq_resident_memory_limit_bytes 100", "rabbitmq_disk_space_available_limit_bytes 200",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	for _, want := range []string{`warren_alarm{resource="storage"} 0`, "warren_publishes_refused_total 3", "warren_dead_letters_unroutable_total 4", "warren_dead_letters_refused_total 5", "warren_journal_bytes 7", `warren_journal_sync_seconds_bucket{le="0.001"} 1`,
		`warren_journal_sync_seconds_bucket{le="+Inf"} 3`, "warren_journal_sync_seconds_sum 1.5", "warren_journal_sync_seconds_count 3",
		"# TYPE warren_flush_seconds histogram", "warren_messages_in_memory 1", "warren_messages_on_disk_only 2", "warren_run_live_bytes 4"} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	// What the dashboards and alert rules of RabbitMQ ask for, as far as it exists.
	for _, name := range []string{"erlang_uptime_seconds", "process_open_fds", "process_max_fds", "process_resident_memory_bytes", "disk_space_available_bytes",
		"channels_opened_total", "channels_closed_total", "connections_closed_total", "queues_declared_total", "queues_created_total", "queues_deleted_total",
		"global_consumers", "global_messages_routed_total", "global_messages_confirmed_total", "global_messages_received_confirm_total",
		"global_messages_unroutable_dropped_total", "global_messages_unroutable_returned_total", "global_messages_delivered_consume_auto_ack_total",
		"global_messages_delivered_consume_manual_ack_total", "global_messages_delivered_get_auto_ack_total", "global_messages_delivered_get_manual_ack_total",
		"global_messages_get_empty_total", "global_messages_redelivered_total", "global_messages_acknowledged_total",
		"alarms_free_disk_space_watermark", "alarms_file_descriptor_limit", "unreachable_cluster_peers_count", "auth_attempts_total"} {
		if !strings.Contains(text, "\n# TYPE rabbitmq_"+name+" ") || len(series(text, "rabbitmq_"+name)) == 0 {
			t.Errorf("no rabbitmq_%s", name)
		}
	}
	for _, name := range []string{"go_goroutines", "go_memstats_heap_inuse_bytes", "process_cpu_seconds_total"} {
		if len(series(text, name+" ")) != 1 {
			t.Errorf("no %s", name)
		}
	}
	if strings.Contains(text, "queue=\"") || len(series(text, "rabbitmq_identity_info")) != 1 {
		t.Error("the aggregated endpoint tells of single queues")
	}
	if text := scrape(t, api, "/metrics", "Accept-Encoding", "gzip"); !strings.Contains(text, "rabbitmq_connections 1\n") {
		t.Error("compressed:", text)
	}
}

func TestObjectMetrics(t *testing.T) {
	api := New(Options{Broker: metricsFake(), Node: "n"})
	text := scrape(t, api, "/metrics/per-object")
	want := []string{`rabbitmq_queue_messages_ready{vhost="/",queue="a \"b\"\\\n"}`, `rabbitmq_queue_messages_ready{vhost="/",queue="q000"}`}
	if got := series(text, "rabbitmq_queue_messages_ready{"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, line := range []string{`rabbitmq_queue_consumers{vhost="/",queue="q000"} 1`, `rabbitmq_queue_info{vhost="/",queue="q000",queue_type="rabbit_classic_queue",membership="leader"} 1`,
		`rabbitmq_channel_messages_unacked{channel="127.0.0.1:1 -> 127.0.0.1:5672 (1)"} 2`, `rabbitmq_connection_channels{channel="127.0.0.1:1 -> 127.0.0.1:5672"} 1`,
		`rabbitmq_exchange_messages_published_total{vhost="/",exchange="amq.direct"} 5`, `rabbitmq_endpoint="per-object"} 1`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
	if per := scrape(t, New(Options{Broker: metricsFake(), Node: "n", PerObject: true}), "/metrics"); !strings.Contains(per, `queue="q000"`) {
		t.Error("return_per_object_metrics has no effect")
	}
}

func TestDetailedMetrics(t *testing.T) {
	api := New(Options{Broker: metricsFake(), Node: "n"})
	text := scrape(t, api, "/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&family=nonsense&queue=^q0")
	want := []string{`rabbitmq_detailed_queue_messages_ready{vhost="/",queue="q000"}`, `rabbitmq_detailed_queue_messages_unacked{vhost="/",queue="q000"}`,
		`rabbitmq_detailed_queue_messages{vhost="/",queue="q000"}`, `rabbitmq_detailed_queue_consumers{vhost="/",queue="q000"}`,
		`rabbitmq_detailed_queue_info{vhost="/",queue="q000",queue_type="rabbit_classic_queue",membership="leader"}`}
	got := series(text, "rabbitmq_detailed_")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := series(scrape(t, api, "/metrics/detailed"), "rabbitmq_"); len(got) != 2 {
		t.Errorf("without a family: %q", got)
	}
	if got := series(scrape(t, api, "/metrics/detailed?family=queue_coarse_metrics&vhost=shop"), "rabbitmq_detailed_"); len(got) != 0 {
		t.Errorf("of an empty virtual host: %q", got)
	}
	both := scrape(t, api, "/metrics/detailed?family=queue_metrics&family=queue_consumer_count")
	if n := strings.Count(both, "# TYPE rabbitmq_detailed_queue_consumers "); n != 1 {
		t.Errorf("queue_consumers is there %d times", n)
	}
	if cluster := series(scrape(t, api, "/metrics/detailed?family=vhost_status&family=exchange_bindings&family=exchange_names"), "rabbitmq_cluster_"); len(cluster) != 2+2+3 {
		t.Errorf("%q", cluster)
	}
}

func TestMetricsRefusals(t *testing.T) {
	api := New(Options{Broker: metricsFake(), Node: "n", MetricsAuth: true})
	for _, test := range []struct {
		method, path, user string
		want               int
	}{
		{"GET", "/metrics", "", 401}, {"GET", "/metrics", "ann", 401}, {"GET", "/metrics", "mon", 200}, {"GET", "/metrics/", "mon", 200},
		{"GET", "/metrics/nope", "mon", 404}, {"POST", "/metrics", "mon", 405},
		{"GET", "/metrics/detailed?family=queue_metrics&queue=(", "mon", 400}, {"GET", "/metrics/detailed?queue=a&queue=b", "mon", 400},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		if test.user != "" {
			r.SetBasicAuth(test.user, test.user)
		}
		w := httptest.NewRecorder()
		if api.Metrics().ServeHTTP(w, r); w.Code != test.want {
			t.Errorf("%s %s as %q: %d %s", test.method, test.path, test.user, w.Code, w.Body)
		}
	}
}

// A scrape of 100,000 queues is written in pieces and keeps numbers only.
func BenchmarkScrapeOf100000Queues(b *testing.B) {
	f := newFake()
	for i := range 100_000 {
		f.queues = append(f.queues, Queue{ID: uint64(i + 1), VHost: "/", Name: fmt.Sprint("queue.", i), Type: "classic"})
	}
	api := New(Options{Broker: f, Node: "n"})
	for _, path := range []string{"/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics"} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				api.Metrics().ServeHTTP(nothing{http.Header{}}, httptest.NewRequest("GET", path, nil))
			}
		})
	}
}

// Whatever stands in a name, the text stays readable.
func FuzzLabel(f *testing.F) {
	f.Add("a\\\"\n{}")
	f.Fuzz(func(t *testing.T, value string) {
		var out bytes.Buffer
		e := &exposition{w: &out}
		e.one("m", gauge, "help", 1, "l", value)
		e.flush()
		if strings.ToValidUTF8(value, "") != value {
			return // names are UTF-8; the broker refuses others
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(&out)
		if err != nil || families["m"].Metric[0].Label[0].GetValue() != value {
			t.Fatalf("%q: %v %v", value, families, err)
		}
	})
}

// The families of queues, channels, connections and exchanges, by the name under which /metrics/detailed knows them.
// Source: RabbitMQ docs, prometheus.
func TestFamilyNames(t *testing.T) {
	api := New(Options{Broker: metricsFake(), Node: "n"})
	for family, want := range map[string]string{
		"queue_coarse_metrics": "queue_messages queue_messages_ready queue_messages_unacked",
		"queue_consumer_count": "queue_consumers",
		"queue_metrics": "queue_consumers queue_head_message_timestamp queue_messages_bytes " +
			"queue_messages_ready_bytes queue_messages_unacked_bytes queue_process_memory_bytes",
		"queue_delivery_metrics": "queue_get_ack_total queue_get_empty_total queue_get_total queue_messages_acked_total queue_messages_delivered_ack_total " +
			"queue_messages_delivered_total queue_messages_redelivered_total",
		"channel_metrics":           "channel_acks_uncommitted channel_consumers channel_messages_unacked channel_messages_uncommitted channel_messages_unconfirmed channel_prefetch consumer_prefetch",
		"connection_coarse_metrics": "connection_incoming_bytes_total connection_outgoing_bytes_total",
		"connection_metrics":        "connection_channels connection_incoming_packets_total connection_outgoing_packets_total connection_pending_packets",
		"connection_churn_metrics": "channels_closed_total channels_opened_total connections_closed_total connections_opened_total queues_created_total queues_declared_total " +
			"queues_deleted_total",
		"exchange_metrics": "exchange_messages_published_total",
	} {
		var names []string
		for line := range strings.SplitSeq(scrape(t, api, "/metrics/detailed?family="+family), "\n") {
			if rest, ok := strings.CutPrefix(line, "# TYPE rabbitmq_detailed_"); ok {
				if name, _, _ := strings.Cut(rest, " "); name != "queue_info" {
					names = append(names, name)
				}
			}
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", family, got, want)
		}
	}
}
