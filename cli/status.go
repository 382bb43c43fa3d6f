package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// overview and nodeInfo are the members of the API's answers that a status shows.
type overview struct {
	ProductName    string            `json:"product_name"`
	ProductVersion string            `json:"product_version"`
	ClusterName    string            `json:"cluster_name"`
	Node           string            `json:"node"`
	Objects        map[string]uint64 `json:"object_totals"`
	Queues         struct {
		Ready   uint64 `json:"messages_ready"`
		Unacked uint64 `json:"messages_unacknowledged"`
	} `json:"queue_totals"`
	Listeners []struct {
		Protocol string `json:"protocol"`
		Address  string `json:"ip_address"`
		Port     int    `json:"port"`
	} `json:"listeners"`
}

type nodeInfo struct {
	Name        string   `json:"name"`
	PID         string   `json:"os_pid"`
	Uptime      int64    `json:"uptime"`
	MemoryUsed  uint64   `json:"mem_used"`
	MemoryLimit uint64   `json:"mem_limit"`
	MemoryAlarm bool     `json:"mem_alarm"`
	Alarms      []string `json:"alarms"`
	DiskFree    uint64   `json:"disk_free"`
	DiskLimit   uint64   `json:"disk_free_limit"`
	DiskAlarm   bool     `json:"disk_free_alarm"`
	FilesUsed   uint64   `json:"fd_used"`
	FilesTotal  uint64   `json:"fd_total"`
	DataDir     string   `json:"db_dir"`
}

func (p *program) statusCommand() *cobra.Command {
	var to client
	var format string
	c := &cobra.Command{
		Use:     "status",
		Short:   "Show what a node is doing",
		Long:    "Show a node's version, addresses, memory, disk, alarms and totals. The user needs the tag monitoring or administrator.",
		Example: "  warren status\n  warren status --format json\n  warren status --url http://host:15672 -u ann --password-file pw",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if format != "" && format != "table" && format != "json" {
				return usage("there is no format %q for a status; formats are table and json", format)
			}
			var about, nodes, connections json.RawMessage
			if err := to.call(p, c, "GET", []string{"overview"}, nil, nil, &about); err != nil {
				return err
			}
			if err := to.call(p, c, "GET", []string{"nodes"}, nil, nil, &nodes); err != nil {
				return err
			}
			columns := url.Values{"columns": {"name,user,vhost,state"}}
			if err := to.call(p, c, "GET", []string{"connections"}, columns, nil, &connections); err != nil {
				return err
			}
			var all, kept []waiting
			if err := json.Unmarshal(connections, &all); err != nil {
				return &failure{code: exitSoftware, text: "the node's list of connections cannot be read: " + err.Error(), err: err}
			}
			kept = []waiting{}
			for _, one := range all {
				if one.State == "blocked" || one.State == "flow" {
					kept = append(kept, one)
				}
			}
			if format == "json" {
				return printJSON(p.out, map[string]any{"overview": about, "nodes": nodes, "waiting": kept})
			}
			var o overview
			var n []nodeInfo
			if err := json.Unmarshal(about, &o); err != nil {
				return &failure{code: exitSoftware, text: "the node's overview cannot be read: " + err.Error(), err: err}
			}
			if err := json.Unmarshal(nodes, &n); err != nil || len(n) == 0 {
				return &failure{code: exitSoftware, text: "the node's list of nodes cannot be read", err: err}
			}
			which := max(slices.IndexFunc(n, func(n nodeInfo) bool { return n.Name == o.Node }), 0)
			p.printStatus(&o, &n[which], kept)
			return nil
		},
	}
	to.flags(p, c)
	c.Flags().StringVar(&format, "format", "", "table or json")
	return c
}

func (p *program) printStatus(o *overview, n *nodeInfo, waiting []waiting) {
	line := func(name, format string, a ...any) {
		fmt.Fprintf(p.out, "%-12s "+format+"\n", append([]any{name}, a...)...)
	}
	line("node", "%s, process %s", o.Node, n.PID)
	line("version", "%s %s", o.ProductName, o.ProductVersion)
	line("up", "%s", (time.Duration(n.Uptime) * time.Millisecond).Round(time.Second))
	var listeners []string
	for _, l := range o.Listeners {
		listeners = append(listeners, fmt.Sprintf("%s %s:%d", l.Protocol, bracket(l.Address), l.Port))
	}
	line("listening", "%s", strings.Join(listeners, ", "))
	line("data", "%s", n.DataDir)
	line("memory", "%s of %s", amount(n.MemoryUsed), amount(n.MemoryLimit))
	line("disk free", "%s, at least %s needed", amount(n.DiskFree), amount(n.DiskLimit))
	line("files", "%d of %d", n.FilesUsed, n.FilesTotal)
	alarms := n.Alarms
	if alarms == nil { // RabbitMQ's own
		if n.MemoryAlarm {
			alarms = append(alarms, "memory")
		}
		if n.DiskAlarm {
			alarms = append(alarms, "disk")
		}
	}
	if len(alarms) == 0 {
		line("alarms", "none")
	} else {
		line("alarms", "%s: publishers are blocked", strings.Join(alarms, ", "))
	}
	for i, w := range waiting {
		if i == maxWaiting {
			line("waiting", "… and %d more: 'warren connection list name state' shows all", len(waiting)-i)
			break
		}
		why := "the node takes in no more for the moment"
		if w.State == "blocked" {
			why = "blocked by an alarm: " + cmp.Or(strings.Join(alarms, ", "), "of another node; 'warren cluster status' tells of which")
		}
		line("waiting", "%s (user %s, vhost %s): %s", w.Name, w.User, w.VHost, why)
	}
	line("totals", "%d connections, %d channels, %d consumers, %d queues, %d exchanges", o.Objects["connections"], o.Objects["channels"], o.Objects["consumers"], o.Objects["queues"], o.Objects["exchanges"])
	line("messages", "%d ready, %d unacknowledged", o.Queues.Ready, o.Queues.Unacked)
}

// waiting is a connection whose publishes wait.
type waiting struct {
	Name  string `json:"name"`
	User  string `json:"user"`
	VHost string `json:"vhost"`
	State string `json:"state"`
}

// maxWaiting is how many of them a status names.
const maxWaiting = 10

// bracket puts an IPv6 address in brackets.
func bracket(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// amount is a number of bytes for a reader.
func amount(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}
