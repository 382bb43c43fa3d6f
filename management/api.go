// Package management serves the HTTP API and the Prometheus endpoint of a node, in RabbitMQ's paths, fields and names, so that its tools,
// dashboards and scripts work unchanged.
//
// It owns the translation: what RabbitMQ calls a thing, how a list is filtered, sorted and cut into pages, and the samples from which rates
// come. It sees the node through the interface Broker, which it declares, and never imports a room of the broker. It invents nothing: what
// the node does not know is left out, what is not built yet answers 501.
//
// Lists are made for 100,000 queues. The first pass over the broker keeps a name and a sort key of each; only the items of the page asked for
// are then fetched in full, one at a time, and written as they are encoded. Metrics are written straight from the broker's snapshots, in
// columns of numbers, because a metric object per queue and family would cost more than the broker itself.
package management

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Options say who the node is. All but Broker and Node may be left out.
type Options struct {
	Broker Broker
	// Node is the node's name; Cluster defaults to it. ClusterID is an identifier that stays.
	Node, Cluster, ClusterID string
	// Product and ProductVersion are what the node announces. RabbitMQVersion is the version of RabbitMQ it behaves as.
	Product, ProductVersion, RabbitMQVersion string
	DefaultQueueType                         string
	AuthMechanisms                           []string
	// Listeners returns what listens; it is asked at each request.
	Listeners func() []Listener
	// MemoryLimit and DiskLimit are the alarms' thresholds, in bytes. ConnectionMax is the node's bound, 0 for none.
	MemoryLimit, DiskLimit uint64
	ConnectionMax          int
	// Storage returns the figures of the node's storage; nil: it has none.
	Storage               func() StorageFigures
	DataDir               string
	ConfigFiles, LogFiles []string
	// CertFile and CAFile are the PEM files of the listeners that have TLS; empty: there are none.
	CertFile, CAFile string
	// RefuseTransient and RefuseGlobalQoS say that the configuration forbids transient queues that are not exclusive, and a basic.qos of
	// whole channels.
	RefuseTransient, RefuseGlobalQoS bool
	// MaxBody bounds request bodies, in bytes; 0 means 10,000,000.
	MaxBody int64
	// Interval is the time between samples; 0 means 5 s.
	Interval time.Duration
	// MetricsAuth asks scrapers for a password; PerObject makes /metrics tell of each object.
	MetricsAuth, PerObject bool
	Log                    *slog.Logger
	// Peers is the cluster that the node is a member of; nil: it is alone.
	Peers Cluster
}

// Listener is an address on which the node serves a protocol: amqp, amqp/ssl, http or http/prometheus.
type Listener struct {
	Protocol, Host string
	Port           int
	TLS            bool
}

// API serves a node's management. Make it with New, run its sampler with Run.
type API struct {
	Options
	started time.Time
	routes  []route
	samples samples
	process *prometheus.Registry
	kept    keptAnswers
	askTime time.Duration // how long the other members have for an answer
}

// New prepares an API. It starts nothing.
func New(o Options) *API {
	if o.Cluster == "" {
		o.Cluster = o.Node
	}
	if o.ClusterID == "" {
		o.ClusterID = o.Cluster
	}
	if o.Product == "" {
		o.Product = "Warren"
	}
	if o.RabbitMQVersion == "" {
		o.RabbitMQVersion = "4.3.6"
	}
	if o.ProductVersion == "" {
		o.ProductVersion = o.RabbitMQVersion
	}
	if o.DefaultQueueType == "" {
		o.DefaultQueueType = "classic"
	}
	if o.Listeners == nil {
		o.Listeners = func() []Listener { return nil }
	}
	if o.MaxBody == 0 {
		o.MaxBody = 10_000_000
	}
	if o.Interval == 0 {
		o.Interval = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{Options: o, started: time.Now(), process: prometheus.NewRegistry(), askTime: askTime}
	a.process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.routes = a.table()
	return a
}

// Run takes a sample every Interval until ctx ends.
func (a *API) Run(ctx context.Context) {
	ticker := time.NewTicker(a.Interval)
	defer ticker.Stop()
	for {
		a.samples.take(a.Broker, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// uptime is how long the API has been there, which is how long the node has.
func (a *API) uptime() time.Duration { return time.Since(a.started) }

// goVersion is the version of the runtime; RabbitMQ's fields have Erlang's in its place.
func goVersion() string { return runtime.Version() }

// samples are what rates are computed from. The zero value is ready.
type samples struct {
	mu     sync.Mutex // guards all below
	at     time.Time
	counts Counts
	totals Totals
	rates  rates
	queues map[uint64]*queueState
	busy   bool // at the last sample some queue's rates were not zero
	full   bool // at the last sample there were more queues than are sampled
}

var _ http.Handler = (*API)(nil)
