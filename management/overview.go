package management

import (
	"encoding/json"
	"net/http"
	"reflect"
	"runtime"
	"strings"
)

// overviewView is what /overview shows to everybody.
type overviewView struct {
	ManagementVersion string            `json:"management_version"`
	RatesMode         string            `json:"rates_mode"`
	Retention         map[string][]int  `json:"sample_retention_policies"`
	ExchangeTypes     []capabilityView  `json:"exchange_types"`
	ProductVersion    string            `json:"product_version"`
	ProductName       string            `json:"product_name"`
	RabbitMQVersion   string            `json:"rabbitmq_version"`
	ClusterName       string            `json:"cluster_name"`
	ClusterTags       struct{}          `json:"cluster_tags"`
	NodeTags          struct{}          `json:"node_tags"`
	ErlangVersion     string            `json:"erlang_version"`
	ErlangFullVersion string            `json:"erlang_full_version"`
	CryptoLibVersion  string            `json:"crypto_lib_version"`
	DisableStats      bool              `json:"disable_stats"`
	DefaultQueueType  string            `json:"default_queue_type"`
	PolicyUpdating    bool              `json:"is_op_policy_updating_enabled"`
	QueueTotals       bool              `json:"enable_queue_totals"`
	RequireJSON       bool              `json:"require_definition_json_extension"`
	MessageStats      *messageStatsView `json:"message_stats,omitempty"`
	Churn             churnView         `json:"churn_rates"`
	Queues            queueTotalsView   `json:"queue_totals"`
	Objects           map[string]uint64 `json:"object_totals"`
	EventQueue        int               `json:"statistics_db_event_queue"`
	Node              string            `json:"node,omitempty"`
	Listeners         []listenerView    `json:"listeners,omitempty"`
	Contexts          []contextView     `json:"contexts,omitempty"`
}

// capabilityView is an exchange type or an authentication mechanism.
type capabilityView struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
}

// exchangeTypes are those of the build.
var exchangeTypes = []capabilityView{
	{"direct", "AMQP direct exchange, as per the AMQP specification", true},
	{"fanout", "AMQP fanout exchange, as per the AMQP specification", true},
	{"headers", "AMQP headers exchange, as per the AMQP specification", true},
	{"topic", "AMQP topic exchange, as per the AMQP specification", true},
	{"x-consistent-hash", "Consistent hashing exchange", true},
	{"x-local-random", "Picks one random local binding (queue) to route via (to).", true},
	{"x-modulus-hash", "Modulus hashing exchange", true},
	{"x-random", "Picks one random binding (queue) to route via (to).", true},
}

type listenerView struct {
	Node     string `json:"node"`
	Protocol string `json:"protocol"`
	Address  string `json:"ip_address"`
	Port     int    `json:"port"`
	TLS      bool   `json:"tls"`
}

type contextView struct {
	Node        string `json:"node"`
	Description string `json:"description"`
	Path        string `json:"path"`
	Port        int    `json:"port"`
	IP          string `json:"ip,omitempty"`
}

type queueTotalsView struct {
	Messages        uint64  `json:"messages"`
	MessagesDetails details `json:"messages_details"`
	Ready           uint64  `json:"messages_ready"`
	ReadyDetails    details `json:"messages_ready_details"`
	Unacked         uint64  `json:"messages_unacknowledged"`
	UnackedDetails  details `json:"messages_unacknowledged_details"`
}

type churnView struct {
	ConnectionCreated        uint64  `json:"connection_created"`
	ConnectionCreatedDetails details `json:"connection_created_details"`
	ConnectionClosed         uint64  `json:"connection_closed"`
	ConnectionClosedDetails  details `json:"connection_closed_details"`
	ChannelCreated           uint64  `json:"channel_created"`
	ChannelCreatedDetails    details `json:"channel_created_details"`
	ChannelClosed            uint64  `json:"channel_closed"`
	ChannelClosedDetails     details `json:"channel_closed_details"`
	QueueDeclared            uint64  `json:"queue_declared"`
	QueueDeclaredDetails     details `json:"queue_declared_details"`
	QueueCreated             uint64  `json:"queue_created"`
	QueueCreatedDetails      details `json:"queue_created_details"`
	QueueDeleted             uint64  `json:"queue_deleted"`
	QueueDeletedDetails      details `json:"queue_deleted_details"`
}

func churn(c *Counts, r *rates) churnView {
	return churnView{
		c.ConnectionsOpened, details{r.connectionsOpened}, c.ConnectionsClosed, details{r.connectionsClosed},
		c.ChannelsOpened, details{r.channelsOpened}, c.ChannelsClosed, details{r.channelsClosed},
		c.QueuesDeclared, details{r.queuesDeclared}, c.QueuesCreated, details{r.queuesCreated}, c.QueuesDeleted, details{r.queuesDeleted},
	}
}

// messageStatsView is message_stats. Its families are there or not as wholes: what a channel or a node publishes, what is delivered.
type messageStatsView struct {
	*publishedView
	*deliveredView
	Publish        *uint64  `json:"publish,omitempty"`
	PublishDetails *details `json:"publish_details,omitempty"`
	*diskView
}

type publishedView struct {
	Confirm        uint64   `json:"confirm"`
	ConfirmDetails *details `json:"confirm_details,omitempty"`
	Return         uint64   `json:"return_unroutable"`
	ReturnDetails  *details `json:"return_unroutable_details,omitempty"`
	Drop           uint64   `json:"drop_unroutable"`
	DropDetails    *details `json:"drop_unroutable_details,omitempty"`
}

type deliveredView struct {
	Ack                 uint64   `json:"ack"`
	AckDetails          *details `json:"ack_details,omitempty"`
	Deliver             uint64   `json:"deliver"`
	DeliverDetails      *details `json:"deliver_details,omitempty"`
	DeliverGet          uint64   `json:"deliver_get"`
	DeliverGetDetails   *details `json:"deliver_get_details,omitempty"`
	DeliverNoAck        uint64   `json:"deliver_no_ack"`
	DeliverNoAckDetails *details `json:"deliver_no_ack_details,omitempty"`
	Get                 uint64   `json:"get"`
	GetDetails          *details `json:"get_details,omitempty"`
	GetEmpty            uint64   `json:"get_empty"`
	GetEmptyDetails     *details `json:"get_empty_details,omitempty"`
	GetNoAck            uint64   `json:"get_no_ack"`
	GetNoAckDetails     *details `json:"get_no_ack_details,omitempty"`
	Redeliver           uint64   `json:"redeliver"`
	RedeliverDetails    *details `json:"redeliver_details,omitempty"`
}

type diskView struct {
	Reads         uint64  `json:"disk_reads"`
	ReadsDetails  details `json:"disk_reads_details"`
	Writes        uint64  `json:"disk_writes"`
	WritesDetails details `json:"disk_writes_details"`
}

// messageStats are a queue's or a channel's counts, with rates if there are any; nil if nothing happened yet.
func messageStats(c *QueueCounts, r *queueRates) *messageStatsView {
	if *c == (QueueCounts{}) {
		return nil
	}
	v := &messageStatsView{Publish: &c.Publish, deliveredView: &deliveredView{
		Ack: c.Ack, Deliver: c.Deliver, DeliverGet: c.deliverGet(), DeliverNoAck: c.DeliverNoAck,
		Get: c.Get, GetEmpty: c.GetEmpty, GetNoAck: c.GetNoAck, Redeliver: c.Redeliver}}
	if r != nil {
		d := v.deliveredView
		v.PublishDetails = &details{r.publish}
		d.AckDetails, d.DeliverDetails, d.DeliverGetDetails, d.DeliverNoAckDetails = &details{r.ack}, &details{r.deliver}, &details{r.deliverGet()}, &details{r.deliverNoAck}
		d.GetDetails, d.GetEmptyDetails, d.GetNoAckDetails, d.RedeliverDetails = &details{r.get}, &details{r.getEmpty}, &details{r.getNoAck}, &details{r.redeliver}
	}
	return v
}

// nodeMessageStats are those of the whole node.
func nodeMessageStats(c *Counts, r *rates) *messageStatsView {
	sum := delivered(c)
	if sum == (QueueCounts{}) && c.Received == 0 {
		return nil
	}
	sum.Publish = c.Received
	v := messageStats(&sum, &r.delivery)
	v.PublishDetails = &details{r.received}
	v.publishedView = &publishedView{c.Confirmed, &details{r.confirmed}, c.Returned, &details{r.returned}, c.Dropped, &details{r.dropped}}
	v.diskView = &diskView{c.DiskReads, details{r.diskReads}, c.DiskWrites, details{r.diskWrites}}
	return v
}

func (a *API) overview(r *request) {
	f := a.figures()
	if r.asked {
		a.answer(r, f)
		return
	}
	for _, one := range a.others(r, question{Method: http.MethodGet, Path: "/api/overview", User: r.user}) { // whatever columns are wanted
		var other figures
		if one.reply != nil && one.Status == http.StatusOK && json.Unmarshal(one.Body, &other) == nil {
			addUp(reflect.ValueOf(&f).Elem(), reflect.ValueOf(other))
		}
	}
	totals := a.Broker.Totals()
	v := overviewView{
		ManagementVersion: a.RabbitMQVersion, RatesMode: "basic",
		Retention:     map[string][]int{"global": {}, "basic": {}, "detailed": {}}, // no history is kept
		ExchangeTypes: exchangeTypes, ProductVersion: a.ProductVersion, ProductName: a.Product, RabbitMQVersion: a.RabbitMQVersion,
		ClusterName: a.cluster(), ErlangVersion: goNumber(), ErlangFullVersion: goVersion(), CryptoLibVersion: "Go crypto/tls " + goNumber(),
		DefaultQueueType: a.DefaultQueueType, MessageStats: f.messageStats(), Churn: f.Churn,
		Queues: f.Queues,
		Objects: map[string]uint64{"queues": totals.Queues, "exchanges": totals.Exchanges, "connections": f.Connections,
			"channels": f.Channels, "consumers": f.Consumers},
	}
	if r.user.monitors() {
		v.Node, v.Listeners, v.Contexts = a.Node, f.Listeners, f.Contexts
	} else {
		delete(v.Objects, "consumers")
	}
	a.answer(r, v)
}

// contexts are the HTTP services.
func (a *API) contexts() (list []contextView) {
	for _, l := range a.Listeners() {
		switch l.Protocol {
		case "http":
			list = append(list, contextView{a.Node, "RabbitMQ Management", "/", l.Port, l.Host})
		case "http/prometheus":
			list = append(list, contextView{a.Node, "RabbitMQ Prometheus", "/", l.Port, l.Host})
		}
	}
	return list
}

// goNumber is the version of the runtime as a plain number, which tools print as Erlang's.
func goNumber() string { return strings.TrimPrefix(runtime.Version(), "go") }

func (a *API) whoami(r *request) {
	a.answer(r, struct {
		Name     string   `json:"name"`
		Tags     []string `json:"tags"`
		Internal bool     `json:"is_internal_user"`
	}{r.user.Name, list(r.user.Tags), true})
}

func (a *API) version(r *request) { a.answer(r, a.RabbitMQVersion) }

func (a *API) clusterName(r *request) {
	a.answer(r, struct {
		Name string `json:"name"`
	}{a.cluster()})
}

// clusterParameter is the global parameter under which RabbitMQ keeps a name that was set.
const clusterParameter = "cluster_name"

// cluster is the name that was set, or else that of the configuration.
func (a *API) cluster() string {
	for _, p := range a.Broker.GlobalParameters() {
		if name, ok := p.Value.(string); ok && p.Name == clusterParameter {
			return name
		}
	}
	return a.Cluster
}

// setClusterName answers 204 always, as RabbitMQ does.
func (a *API) setClusterName(r *request) {
	if !a.permitted(admin, r) { // everybody may read it
		return
	}
	body, ok := a.body(r)
	var name string
	if !ok || !a.texts(r, body, wanted{"name", &name}) {
		return
	}
	_, err := a.Broker.SetGlobalParameter(clusterParameter, name)
	a.done(r, err)
}

func (a *API) extensions(r *request) { a.answer(r, []string{}) }

// nothing lists what Warren has none of.
func (a *API) nothing(r *request) { a.answer(r, []struct{}{}) }

// alive answers a check that holds whenever it can be asked.
func (a *API) alive(r *request) {
	node, named := r.vars["node"]
	m, isMember := a.member(node)
	switch {
	case !named || node == a.Node:
		a.healthy(r, nil)
	case !isMember || r.asked:
		a.missing(r.w)
	default:
		if m.Up {
			if answer := a.ask(m, r.asks(http.MethodGet)); answer != nil {
				answer.pass(r.w)
				return
			}
		}
		a.unhealthy(r, "the node does not answer", nil)
	}
}

// list makes an empty list of a nil one, which would be null in JSON.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
