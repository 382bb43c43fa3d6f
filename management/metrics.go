package management

import (
	"compress/gzip"
	"io"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
)

// Metrics serves the Prometheus endpoint: /metrics, /metrics/per-object and /metrics/detailed.
func (a *API) Metrics() http.Handler { return http.HandlerFunc(a.scrape) }

func (a *API) scrape(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "HEAD, GET")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if a.MetricsAuth {
		request := &request{w: w, Request: r}
		if !a.login(request) || !a.permitted(monitor, request) {
			return
		}
	}
	var tell func(*exposition)
	switch strings.TrimSuffix(r.URL.Path, "/") {
	case "/metrics":
		tell = a.aggregated
		if a.PerObject {
			tell = a.perObject
		}
	case "/metrics/per-object":
		tell = a.perObject
	case "/metrics/detailed":
		wanted, err := readSelection(r.URL.Query())
		if err != "" {
			http.Error(w, err, http.StatusBadRequest)
			return
		}
		tell = func(e *exposition) { a.detailed(e, wanted) }
	default:
		http.Error(w, "Unknown Registry", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		defer z.Close()
		out = z
	}
	e := &exposition{w: out}
	tell(e)
	e.flush()
}

func (a *API) aggregated(e *exposition) {
	counts, totals := a.numbers()
	a.identity(e, "aggregated")
	a.nodeMetrics(e, counts, &totals)
	// The sums over queues are the broker's, which can keep them: here this endpoint costs the same with one queue and with 100,000.
	all := Queue{Ready: totals.Ready, Unacked: totals.Unacked, ReadyBytes: totals.ReadyBytes, UnackedBytes: totals.UnackedBytes,
		Memory: totals.MemoryBytes, Consumers: int(totals.Consumers), Counts: delivered(counts)}
	sum(e, "rabbitmq_", once(&all), pick(queueFamilies, nil))
	sum(e, "rabbitmq_", a.Broker.Channels(), pick(channelFamilies, nil))
	sum(e, "rabbitmq_", a.Broker.Connections(), pick(connectionFamilies, nil))
	a.processMetrics(e)
}

func (a *API) perObject(e *exposition) {
	counts, totals := a.numbers()
	a.identity(e, "per-object")
	a.nodeMetrics(e, counts, &totals)
	a.objects(e, "rabbitmq_", selection{all: true})
	a.processMetrics(e)
}

// selection is what /metrics/detailed was asked for.
type selection struct {
	all      bool
	families []string
	vhosts   []string       // empty: all
	queue    *regexp.Regexp // nil: all
}

func readSelection(p url.Values) (s selection, fault string) {
	s.families, s.vhosts = p["family"], p["vhost"]
	patterns := p["queue"]
	if len(patterns) > 1 || len(patterns) == 1 && len(patterns[0]) > maxPattern {
		return s, "At most one queue pattern of at most 1024 characters is possible"
	}
	if len(patterns) == 1 {
		pattern, err := regexp.Compile(patterns[0])
		if err != nil {
			return s, "The queue pattern is no regular expression: " + err.Error()
		}
		s.queue = pattern
	}
	return s, ""
}

func (s *selection) has(family string) bool { return s.all || slices.Contains(s.families, family) }

func (s *selection) inVHost(name string) bool {
	return len(s.vhosts) == 0 || slices.Contains(s.vhosts, name)
}

func (s *selection) wants(q *Queue) bool {
	return s.inVHost(q.VHost) && (s.queue == nil || s.queue.MatchString(q.Name))
}

func (a *API) detailed(e *exposition, s selection) {
	a.identity(e, "detailed")
	if s.has("connection_churn_metrics") {
		var counts Counts
		a.Broker.Counts(&counts)
		a.churnMetrics(e, "rabbitmq_detailed_", &counts)
	}
	a.objects(e, "rabbitmq_detailed_", s)
	if s.has("vhost_status") {
		e.family("rabbitmq_cluster_vhost_status", gauge, "Whether a virtual host is up")
		for v := range a.Broker.VHosts() {
			if s.inVHost(v.Name) {
				e.sample("", labels("vhost", v.Name), 1)
			}
		}
	}
	if s.has("exchange_names") || s.has("exchange_name") {
		e.family("rabbitmq_cluster_exchange_name", gauge, "An exchange, by type; the value means nothing")
		for x := range a.Broker.Exchanges("") {
			if s.inVHost(x.VHost) {
				e.sample("", labels("vhost", x.VHost, "exchange", x.Name, "type", x.Type), 1)
			}
		}
	}
	if s.has("exchange_bindings") {
		counts := map[[2]string]int{}
		for b := range a.Broker.Bindings("") {
			counts[[2]string{b.VHost, b.Source}]++
		}
		e.family("rabbitmq_cluster_exchange_bindings", gauge, "Bindings from an exchange")
		for x := range a.Broker.Exchanges("") {
			if s.inVHost(x.VHost) && x.Name != "" {
				e.sample("", labels("vhost", x.VHost, "exchange", x.Name), float64(counts[[2]string{x.VHost, x.Name}]))
			}
		}
	}
}

// objects writes what is known of each queue, channel, connection and exchange, as far as it is asked for.
func (a *API) objects(e *exposition, prefix string, s selection) {
	queues := pick(queueFamilies, s.has)
	if s.has("queue_metrics") {
		queues = append(queues, queueHead)
	}
	if len(queues) > 0 {
		write(e, prefix, filter(a.Broker.Queues(""), func(q *Queue) bool { return s.wants(q) && a.leads(q) }), queues, nameQueue)
		info := []metric[Queue]{{"queue_info", gauge, "A queue, by type and membership; the value means nothing", func(*Queue) float64 { return 1 }}}
		write(e, prefix, filter(a.Broker.Queues(""), func(q *Queue) bool { return s.wants(q) && a.holds(q) }), info, a.nameQueueFully)
	}
	if s.has("ra_metrics") {
		write(e, prefix, filter(a.Broker.Queues(""), func(q *Queue) bool { return s.wants(q) && q.Quorum != nil }), a.raftMetrics(), nameQueue)
	}
	if channels := pick(channelFamilies, s.has); len(channels) > 0 {
		write(e, prefix, filter(a.Broker.Channels(), func(c *Channel) bool { return s.inVHost(c.VHost) }), channels, nameChannel)
	}
	if connections := pick(connectionFamilies, s.has); len(connections) > 0 {
		write(e, prefix, filter(a.Broker.Connections(), func(c *Connection) bool { return s.inVHost(c.VHost) }), connections, nameConnection)
	}
	if exchanges := pick(exchangeFamilies, s.has); len(exchanges) > 0 {
		write(e, prefix, filter(a.Broker.Exchanges(""), func(x *Exchange) bool { return x.Counted && s.inVHost(x.VHost) }), exchanges, nameExchange)
	}
}

// pick is the metrics of the families that has accepts, each once, in an order that stays; nil accepts all.
func pick[T any](families map[string][]metric[T], has func(string) bool) (metrics []metric[T]) {
	var names []string
	for name := range families {
		if has == nil || has(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, m := range families[name] {
			if !slices.ContainsFunc(metrics, func(other metric[T]) bool { return other.name == m.name }) {
				metrics = append(metrics, m)
			}
		}
	}
	return metrics
}

func filter[T any](things iter.Seq[*T], want func(*T) bool) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for t := range things {
			if want(t) && !yield(t) {
				return
			}
		}
	}
}

func once[T any](t *T) iter.Seq[*T] {
	return func(yield func(*T) bool) { yield(t) }
}

// processMetrics are those of the Go runtime and of the process, under the names that Go programs use.
func (a *API) processMetrics(e *exposition) {
	e.flush()
	families, err := a.process.Gather()
	if err != nil {
		a.Log.Warn("some metrics of the process could not be read", "error", err)
	}
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(e.w, family); err != nil {
			return
		}
	}
}
