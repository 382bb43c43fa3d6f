package management

import (
	"maps"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
)

// nodeView holds the fields that tools cannot do without, and of the others those that are true of a Go program.
type nodeView struct {
	Name              string           `json:"name"`
	Type              string           `json:"type"`
	Running           bool             `json:"running"`
	Draining          bool             `json:"being_drained"`
	PID               string           `json:"os_pid"`
	Uptime            int64            `json:"uptime"`
	RunQueue          int              `json:"run_queue"`
	Processors        int              `json:"processors"`
	RatesMode         string           `json:"rates_mode"`
	Partitions        []string         `json:"partitions"`
	MemoryUsed        uint64           `json:"mem_used"`
	MemoryLimit       uint64           `json:"mem_limit"`
	MemoryAlarm       bool             `json:"mem_alarm"`
	MemoryStrategy    string           `json:"mem_calculation_strategy"`
	DiskFree          uint64           `json:"disk_free"`
	DiskFreeLimit     uint64           `json:"disk_free_limit"`
	DiskFreeAlarm     bool             `json:"disk_free_alarm"`
	Alarms            []string         `json:"alarms"` // ours: all that are in effect
	FDUsed            uint64           `json:"fd_used"`
	FDTotal           uint64           `json:"fd_total"`
	SocketsUsed       uint64           `json:"sockets_used"`
	SocketsTotal      uint64           `json:"sockets_total"`
	ProcUsed          int              `json:"proc_used"`
	ProcTotal         int              `json:"proc_total"`
	GCRuns            uint32           `json:"gc_num"`
	ExchangeTypes     []capabilityView `json:"exchange_types"`
	AuthMechanisms    []capabilityView `json:"auth_mechanisms"`
	Applications      []struct{}       `json:"applications"`
	Contexts          []contextView    `json:"contexts"`
	LogFiles          []string         `json:"log_files"`
	DataDir           string           `json:"db_dir"`
	ConfigFiles       []string         `json:"config_files"`
	EnabledPlugins    []string         `json:"enabled_plugins"`
	ClusterLinks      []linkView       `json:"cluster_links"`
	RabbitMQVersion   string           `json:"rabbitmq_version"`
	ErlangVersion     string           `json:"erlang_version"`
	ErlangFullVersion string           `json:"erlang_full_version"`
	CryptoLibVersion  string           `json:"crypto_lib_version"`
	churnView
}

func (a *API) nodeView() nodeView {
	var counts Counts
	a.Broker.Counts(&counts)
	rates, usage := a.samples.node(), usageOf(a.DataDir)
	alarms := a.alarmNames()
	v := nodeView{
		Name: a.Node, Type: "disc", Running: true, Draining: !a.Broker.Serving(), PID: strconv.Itoa(os.Getpid()), Uptime: a.uptime().Milliseconds(),
		Processors: runtime.GOMAXPROCS(0), RatesMode: "basic", Partitions: []string{},
		MemoryUsed: usage.resident, MemoryLimit: a.MemoryLimit, MemoryAlarm: slices.Contains(alarms, "memory"), MemoryStrategy: "rss",
		DiskFree: usage.diskFree, DiskFreeLimit: a.DiskLimit, DiskFreeAlarm: lowDisk(alarms), Alarms: alarms,
		FDUsed: usage.files, FDTotal: usage.maxFiles, SocketsUsed: a.Broker.Totals().Connections,
		ProcUsed: runtime.NumGoroutine(), ProcTotal: 1 << 20, GCRuns: usage.collections,
		ExchangeTypes: exchangeTypes, AuthMechanisms: []capabilityView{}, Applications: []struct{}{}, Contexts: list(a.contexts()),
		LogFiles: list(a.LogFiles), DataDir: a.DataDir, ConfigFiles: list(a.ConfigFiles), EnabledPlugins: []string{"rabbitmq_management", "rabbitmq_prometheus"},
		ClusterLinks: a.linkViews(), RabbitMQVersion: a.RabbitMQVersion, ErlangVersion: goNumber(), ErlangFullVersion: goVersion(),
		CryptoLibVersion: "Go crypto/tls " + goNumber(), churnView: churn(&counts, &rates)}
	for _, name := range a.AuthMechanisms {
		v.AuthMechanisms = append(v.AuthMechanisms, capabilityView{name, "SASL " + name + " authentication mechanism", true})
	}
	return v
}

// alarmNames are the resources that have run low.
func (a *API) alarmNames() []string {
	names := []string{}
	for _, alarm := range a.Broker.Alarms() {
		names = append(names, alarm.Resource)
	}
	return names
}

// lowDisk says whether RabbitMQ would show its disk alarm.
func lowDisk(alarms []string) bool {
	return slices.Contains(alarms, "disk") || slices.Contains(alarms, "storage")
}

// stoppedView is all that there is to say of a node that does not answer.
type stoppedView struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Running  bool   `json:"running"`
	Draining bool   `json:"being_drained"`
}

// linkView is the connection to another node.
type linkView struct {
	Name     string `json:"name"`
	PeerAddr string `json:"peer_addr"`
	PeerPort int    `json:"peer_port"`
}

// linkViews are the nodes to which there is a connection.
func (a *API) linkViews() []linkView {
	views := []linkView{}
	if a.Peers == nil {
		return views
	}
	for _, l := range a.Peers.Links() {
		name := a.memberName(l.Peer)
		if l.Connected && !slices.ContainsFunc(views, func(v linkView) bool { return v.Name == name }) {
			v := linkView{Name: name, PeerAddr: l.Address}
			if host, port, err := net.SplitHostPort(l.Address); err == nil {
				v.PeerAddr = host
				v.PeerPort, _ = strconv.Atoi(port) // an address without a number is shown with 0
			}
			views = append(views, v)
		}
	}
	return views
}

// nodes lists the members by name: this node, those that answer as they show themselves, and those that do not as stopped.
func (a *API) nodes(r *request) {
	if r.asked {
		a.answer(r, a.nodeView())
		return
	}
	views := map[string]any{a.Node: a.nodeView()}
	for _, one := range a.others(r, r.asks(http.MethodGet)) {
		views[one.Name] = one.node()
	}
	all := make([]any, 0, len(views))
	for _, name := range slices.Sorted(maps.Keys(views)) {
		all = append(all, views[name])
	}
	a.answer(r, all)
}

// node is how a member is shown.
func (h *heard) node() any {
	if h.reply == nil || h.Status != http.StatusOK {
		return stoppedView{Name: h.Name, Type: "disc"}
	}
	return h.Body
}

func (a *API) node(r *request) {
	m, isMember := a.member(r.vars["node"])
	switch {
	case r.vars["node"] == a.Node:
		a.answer(r, a.nodeView())
	case !isMember || r.asked:
		a.missing(r.w)
	default:
		one := heard{Member: m}
		if m.Up {
			one.reply = a.ask(m, r.asks(http.MethodGet))
		}
		a.answer(r, one.node())
	}
}
