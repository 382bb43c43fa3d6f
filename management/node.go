package management

import (
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
	ClusterLinks      []struct{}       `json:"cluster_links"`
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
		ClusterLinks: []struct{}{}, RabbitMQVersion: a.RabbitMQVersion, ErlangVersion: goNumber(), ErlangFullVersion: goVersion(),
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

func (a *API) nodes(r *request) { a.answer(r, []nodeView{a.nodeView()}) }

func (a *API) node(r *request) {
	if r.vars["node"] != a.Node {
		a.missing(r.w)
		return
	}
	a.answer(r, a.nodeView())
}
