package cli

import (
	"encoding/json"
	"fmt"
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
	PID         string `json:"os_pid"`
	Uptime      int64  `json:"uptime"`
	MemoryUsed  uint64 `json:"mem_used"`
	MemoryLimit uint64 `json:"mem_limit"`
	MemoryAlarm bool   `json:"mem_alarm"`
	DiskFree    uint64 `json:"disk_free"`
	DiskLimit   uint64 `json:"disk_free_limit"`
	DiskAlarm   bool   `json:"disk_free_alarm"`
	FilesUsed   uint64 `json:"fd_used"`
	FilesTotal  uint64 `json:"fd_total"`
	DataDir     string `json:"db_dir"`
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
			var about, nodes json.RawMessage
			if err := to.call(p, c, "GET", []string{"overview"}, nil, nil, &about); err != nil {
				return err
			}
			if err := to.call(p, c, "GET", []string{"nodes"}, nil, nil, &nodes); err != nil {
				return err
			}
			if format == "json" {
				return printJSON(p.out, map[string]json.RawMessage{"overview": about, "nodes": nodes})
			}
			var o overview
			var n []nodeInfo
			if err := json.Unmarshal(about, &o); err != nil {
				return &failure{code: exitSoftware, text: "the node's overview cannot be read: " + err.Error(), err: err}
			}
			if err := json.Unmarshal(nodes, &n); err != nil || len(n) == 0 {
				return &failure{code: exitSoftware, text: "the node's list of nodes cannot be read", err: err}
			}
			p.printStatus(&o, &n[0])
			return nil
		},
	}
	to.flags(p, c)
	c.Flags().StringVar(&format, "format", "", "table or json")
	return c
}

func (p *program) printStatus(o *overview, n *nodeInfo) {
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
	alarms := "none"
	switch {
	case n.MemoryAlarm && n.DiskAlarm:
		alarms = "memory and disk: publishers are blocked"
	case n.MemoryAlarm:
		alarms = "memory: publishers are blocked"
	case n.DiskAlarm:
		alarms = "disk: publishers are blocked"
	}
	line("alarms", "%s", alarms)
	line("totals", "%d connections, %d channels, %d consumers, %d queues, %d exchanges", o.Objects["connections"], o.Objects["channels"], o.Objects["consumers"], o.Objects["queues"], o.Objects["exchanges"])
	line("messages", "%d ready, %d unacknowledged", o.Queues.Ready, o.Queues.Unacked)
}

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
