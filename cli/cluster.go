package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// clusterInfo is what a status shows of the API's answer.
type clusterInfo struct {
	Name    string `json:"name"`
	Node    string `json:"node"`
	Members []struct {
		Number   json.Number `json:"number"`
		Name     string      `json:"name"`
		Address  string      `json:"address"`
		Up       bool        `json:"up"`
		Answers  bool        `json:"answers"`
		Since    string      `json:"since"`
		Protocol []int       `json:"protocol"`
		Version  string      `json:"version"`
		Alarms   []string    `json:"alarms"`
	} `json:"members"`
	Links []struct {
		Node      string      `json:"node"`
		Peer      string      `json:"peer"`
		Class     string      `json:"class"`
		Connected bool        `json:"connected"`
		Since     string      `json:"since"`
		Made      json.Number `json:"made"`
		Held      json.Number `json:"held"`
		Lost      string      `json:"lost"`
	} `json:"links"`
	Slots []struct {
		Name     string      `json:"name"`
		Leader   string      `json:"leader"`
		Term     json.Number `json:"term"`
		Members  []string    `json:"members"`
		Online   []string    `json:"online"`
		Queues   json.Number `json:"queues"`
		Replicas []struct {
			Node    string `json:"node"`
			Applied uint64 `json:"applied"`
			Digest  string `json:"digest"`
		} `json:"replicas"`
	} `json:"slots"`
}

func (p *program) clusterCommand() *cobra.Command {
	return group("cluster", "Try a cluster, look at its members, wait for them, remove one, restore a lost majority", "  warren cluster try\n  warren cluster status\n  warren cluster await 3\n  warren cluster forget warren@c\n  warren cluster restore --data-dir /var/lib/warren",
		p.tryCommand(), p.clusterStatusCommand(), p.command(awaitMembers("await COUNT", false)), p.command(checkCritical("critical", false)), p.command(forget("forget NODE", false)),
		p.restoreCommand("restore", false))
}

func (p *program) clusterStatusCommand() *cobra.Command {
	var to client
	var format string
	c := &cobra.Command{
		Use:   "status",
		Short: "Show members, slots, links and alarms",
		Long: `Show the members of the cluster as the node that is asked sees them: who is up, who leads which slot, how far each replica is, the links
between the members, and alarms. Slots carry the quorum queues; every member has a replica of each. The user needs the tag monitoring or
administrator.`,
		Example: "  warren cluster status\n  warren cluster status --format json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if format != "" && format != "table" && format != "json" {
				return usage("there is no format %q for a status; formats are table and json", format)
			}
			var about json.RawMessage
			if err := to.call(p, c, "GET", []string{"warren", "cluster"}, nil, nil, &about); err != nil {
				return err
			}
			if format == "json" {
				return printJSON(p.out, about)
			}
			var info clusterInfo
			if err := json.Unmarshal(about, &info); err != nil {
				return &failure{code: exitSoftware, text: "the node's answer cannot be read: " + err.Error(), err: err}
			}
			return p.printCluster(&info)
		},
	}
	to.flags(p, c)
	c.Flags().StringVar(&format, "format", "", "table or json")
	c.Flags().StringVar(&format, "formatter", "", "the same, under the name of RabbitMQ's tools")
	_ = c.Flags().MarkHidden("formatter")
	return c
}

func (p *program) printCluster(info *clusterInfo) error {
	fmt.Fprintf(p.out, "cluster %s, as %s sees it\n", info.Name, info.Node)
	table := func(title string, columns []string, rows [][]any) {
		if len(rows) == 0 {
			return
		}
		lines := [][]string{columns}
		for _, row := range rows {
			line := make([]string, len(row))
			for i, v := range row {
				line[i] = text(v)
			}
			lines = append(lines, line)
		}
		fmt.Fprintf(p.out, "\n%s\n", title)
		_ = printTable(p.out, lines, rows) // what cannot be written here cannot be told either
	}
	var members, slots, links [][]any
	var notes []string
	for _, m := range info.Members {
		state := "up"
		switch {
		case !m.Up:
			state = "down"
		case !m.Answers:
			state = "does not answer"
		}
		protocol := ""
		if len(m.Protocol) == 2 {
			if protocol = strconv.Itoa(m.Protocol[1]); m.Protocol[0] != m.Protocol[1] {
				protocol = fmt.Sprintf("%d-%d", m.Protocol[0], m.Protocol[1])
			}
		}
		members = append(members, []any{m.Number, m.Name, m.Address, state, m.Since, m.Version, protocol})
		for _, alarm := range m.Alarms {
			notes = append(notes, fmt.Sprintf("alarm: %s of %s has run low; publishers are blocked", alarm, m.Name))
		}
	}
	for _, s := range info.Slots {
		leader, applied := s.Leader, []string{}
		if leader == "" {
			leader = "none"
			notes = append(notes, fmt.Sprintf("slot %s has no leader: a majority of its members must be there", s.Name))
		}
		sums := map[uint64]string{}
		for _, r := range s.Replicas {
			applied = append(applied, fmt.Sprintf("%s %d", r.Node, r.Applied))
			if other, known := sums[r.Applied]; known && other != "" && r.Digest != "" && other != r.Digest {
				notes = append(notes, fmt.Sprintf("slot %s: replicas with the same commands differ (%s at %d). That must not be; please report it", s.Name, r.Node, r.Applied))
			}
			sums[r.Applied] = r.Digest
		}
		slots = append(slots, []any{s.Name, leader, s.Term, fmt.Sprintf("%d of %d", len(s.Online), len(s.Members)), s.Queues, strings.Join(applied, ", ")})
	}
	for _, l := range info.Links {
		state := "connected"
		if !l.Connected {
			state = "down"
			if l.Lost != "" {
				state += ": " + l.Lost
			}
		}
		links = append(links, []any{l.Node, l.Peer, l.Class, l.Made, l.Held, l.Since, state})
	}
	table("members", []string{"number", "name", "address", "state", "since", "version", "protocol"}, members)
	table("slots", []string{"slot", "leader", "term", "online", "queues", "applied"}, slots)
	table("links", []string{"from", "to", "class", "connections", "held", "since", "state"}, links)
	if len(notes) == 0 {
		notes = []string{"no alarms"}
	}
	_, err := fmt.Fprintf(p.out, "\n%s\n", strings.Join(notes, "\n"))
	return err
}

func forget(use string, rabbit bool) deed {
	var force, offline bool
	return deed{use: use, short: "Remove a member that is gone for good", args: cobra.ExactArgs(1), rabbit: rabbit,
		long: `Remove a node from the cluster for ever: its replicas no longer count for a majority, and it can join again only as a new member, without
data. The classic queues that live on it, and their messages, are lost with it. Ask another member than the one to be removed.

A node that is up is refused: stop it first, or use --force.`,
		example:  "  warren cluster forget warren@c\n  warren cluster forget warren@c --yes",
		question: func(_ *deed, args []string) string { return "Remove " + args[0] + " from the cluster for ever?" },
		flags: func(d *deed, c *cobra.Command) {
			c.Flags().BoolVar(&force, "force", false, "although it is up")
			if d.rabbit {
				c.Flags().BoolVar(&offline, "offline", false, "not possible: a running member is asked")
				_ = c.Flags().MarkHidden("offline")
			}
		},
		do: func(d *deed, args []string) error {
			d.banner("Removing node %s from the cluster", args[0])
			if offline {
				return usage("a cluster cannot be changed while this node is stopped: ask a member that runs, without --offline")
			}
			return d.remove([]string{"warren", "cluster", args[0]}, fmt.Sprintf("member %q", args[0]), condition{"force", force})
		}}
}

// awaitTime is how long members are waited for if nothing is said, in seconds, as in RabbitMQ's tool.
const awaitTime = 300

func awaitMembers(use string, rabbit bool) deed {
	return deed{use: use, short: "Wait until so many members are up", args: cobra.ExactArgs(1), rabbit: rabbit,
		long:    "Wait until at least COUNT members of the cluster are up, this one included, for at most --timeout seconds (300). The exit code is 75 if they are not.",
		example: "  warren cluster await 3\n  warren cluster await 2 --timeout 30",
		do: func(d *deed, args []string) error {
			count, err := strconv.Atoi(args[0])
			if err != nil || count < 1 {
				return &failure{code: exitData, text: fmt.Sprintf("%q is no number of members", args[0])}
			}
			seconds := d.patience(awaitTime)
			if d.rabbit && !d.quiet && !d.silent {
				fmt.Fprintf(d.out, "Will wait for at least %d nodes to join the cluster. Timeout: %g seconds.\n", count, seconds)
			}
			return d.until(seconds, func() error { return d.membersUp(count) })
		}}
}

// patience is how long a command waits in all, in seconds: what --timeout says, or else what is usual. Each attempt has less.
func (d *deed) patience(usual float64) float64 {
	seconds := usual
	if d.cmd.Flags().Changed("timeout") {
		seconds = d.client.timeout
	}
	d.client.timeout = 5
	return seconds
}

// until tries again and again, while what is wanted is not yet so or the node does not answer; 0 seconds are no bound.
func (d *deed) until(seconds float64, try func() error) error {
	ctx := d.cmd.Context()
	if seconds > 0 {
		bound, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
		defer cancel()
		ctx = bound
	}
	for {
		err := try()
		f, _ := err.(*failure)
		if f == nil || f.code != exitUnavailable && f.code != exitTemporary {
			return err
		}
		select {
		case <-ctx.Done():
			f.code = exitTemporary
			return f
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// membersUp fails for the moment while fewer members are up.
func (d *deed) membersUp(count int) error {
	var nodes []struct {
		Name    string `json:"name"`
		Running bool   `json:"running"`
	}
	if err := d.client.call(d.program, d.cmd, "GET", []string{"nodes"}, url.Values{"columns": {"name,running"}}, nil, &nodes); err != nil {
		return err
	}
	var up []string
	for _, n := range nodes {
		if n.Running {
			up = append(up, n.Name)
		}
	}
	if len(up) >= count {
		return nil
	}
	return &failure{code: exitTemporary, text: fmt.Sprintf("%d of %d members are up: %s", len(up), count, strings.Join(up, ", ")), remedy: "'warren cluster status' shows who is missing."}
}

func checkCritical(use string, rabbit bool) deed {
	return deed{use: use, short: "Check whether quorum queues need this node", args: cobra.NoArgs, rabbit: rabbit,
		long:    "Fail with exit code 69, and name them, if there are quorum queues that would lose their majority if the node that is asked stopped.",
		example: "  warren cluster critical --url http://node-a:15672 && stop-it",
		do: func(d *deed, _ []string) error {
			d.banner("Checking if the node is critical for quorum of any quorum queues")
			err := d.critical()
			if err == nil && d.rabbit && !d.quiet && !d.silent {
				fmt.Fprintln(d.out, "Node reported no quorum queues with minimum quorum")
			}
			return err
		}}
}

// critical fails, and names the queues, while quorum queues need the node.
func (d *deed) critical() error {
	err := d.client.call(d.program, d.cmd, "GET", []string{"health", "checks", "node-is-quorum-critical"}, nil, nil, nil)
	f, ok := err.(*failure)
	if !ok || f.code != exitUnavailable || len(f.body) == 0 {
		return err
	}
	var failed struct {
		Reason string `json:"reason"`
		Queues []struct {
			Name string `json:"readable_name"`
		} `json:"queues"`
	}
	if json.Unmarshal(f.body, &failed) == nil && failed.Reason != "" {
		lines := []string{failed.Reason}
		for i, q := range failed.Queues {
			if i == maxCritical {
				lines = append(lines, fmt.Sprintf("  and %d more", len(failed.Queues)-i))
				break
			}
			lines = append(lines, "  "+q.Name)
		}
		f.text, f.remedy = strings.Join(lines, "\n"), "Wait until the other members are up again: 'warren cluster status'."
	}
	return f
}

// quorumTime is how long members of quorum queues are waited for if nothing is said, in seconds, as in RabbitMQ's tool.
const quorumTime = 120

// ctlAwaitQuorum waits until the node may stop, as scripts do that restart a cluster one by one.
func ctlAwaitQuorum() deed {
	return ctl("await_online_quorum_plus_one", cobra.NoArgs, false, func(d *deed, _ []string) error {
		seconds := d.patience(quorumTime)
		if !d.quiet && !d.silent {
			fmt.Fprintf(d.out, "Will wait for a quorum + 1 of nodes to be online for all quorum queues for %g seconds...\n", seconds)
		}
		return d.until(seconds, d.critical)
	})
}

// maxCritical is how many queues a failed check names.
const maxCritical = 20

// ctlClusterStatus is RabbitMQ's cluster_status, with its members in JSON and its sections as text.
func (p *program) ctlClusterStatus() *cobra.Command {
	var to client
	var show printing
	c := &cobra.Command{Use: "cluster_status", Short: "As rabbitmqctl cluster_status", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			kind, err := show.kind(p.terminal)
			if err != nil {
				return err
			}
			var about rabbitCluster
			for path, into := range map[string]any{"overview": &about.overview, "nodes": &about.nodes, "feature-flags": &about.flags} {
				if err := to.call(p, c, "GET", []string{path}, nil, nil, into); err != nil {
					return err
				}
			}
			if kind == "json" {
				return printJSON(p.out, about.object())
			}
			if !show.quiet && !show.silent {
				fmt.Fprintf(p.out, "Cluster status of node %s ...\n", about.overview.Node)
			}
			_, err = fmt.Fprint(p.out, about.text())
			return err
		}}
	to.flags(p, c)
	show.rabbit = true
	show.flags(c)
	return c
}

// rabbitCluster is what RabbitMQ's cluster_status tells.
type rabbitCluster struct {
	overview struct {
		ClusterName    string `json:"cluster_name"`
		Node           string `json:"node"`
		ProductVersion string `json:"product_version"`
		ProductName    string `json:"product_name"`
		Listeners      []struct {
			Node     string `json:"node"`
			Protocol string `json:"protocol"`
			Address  string `json:"ip_address"`
			Port     int    `json:"port"`
		} `json:"listeners"`
	}
	nodes []struct {
		Name       string   `json:"name"`
		Running    bool     `json:"running"`
		Draining   bool     `json:"being_drained"`
		Processors int      `json:"processors"`
		Version    string   `json:"rabbitmq_version"`
		Erlang     string   `json:"erlang_version"`
		Alarms     []string `json:"alarms"`
	}
	flags []struct {
		Name  string `json:"name"`
		State string `json:"state"`
	}
}

func (r *rabbitCluster) object() map[string]any {
	all, running, alarms := []string{}, []string{}, []map[string]string{}
	versions, cores, maintenance, listeners := map[string]any{}, map[string]int{}, map[string]string{}, map[string][]map[string]any{}
	for _, n := range r.nodes {
		all = append(all, n.Name)
		if !n.Running {
			continue
		}
		running = append(running, n.Name)
		versions[n.Name] = map[string]string{"rabbitmq_name": "RabbitMQ", "rabbitmq_version": n.Version, "erlang_version": n.Erlang}
		cores[n.Name], maintenance[n.Name] = n.Processors, maintained(n.Draining)
		for _, alarm := range n.Alarms {
			alarms = append(alarms, map[string]string{"node": n.Name, "resource": alarm, "type": "resource_limit"})
		}
	}
	for _, l := range r.overview.Listeners {
		listeners[l.Node] = append(listeners[l.Node], map[string]any{"interface": l.Address, "node": l.Node, "port": l.Port, "protocol": l.Protocol, "purpose": purpose(l.Protocol)})
	}
	flags := []map[string]string{}
	for _, f := range r.flags {
		flags = append(flags, map[string]string{"name": f.Name, "state": f.State})
	}
	return map[string]any{"cluster_name": r.overview.ClusterName, "disk_nodes": all, "ram_nodes": []string{}, "running_nodes": running, "versions": versions,
		"cpu_cores": cores, "maintenance_status": maintenance, "alarms": alarms, "partitions": map[string]any{}, "listeners": listeners, "feature_flags": flags,
		"cluster_tags": []string{}}
}

func maintained(draining bool) string {
	if draining {
		return "under maintenance"
	}
	return "not under maintenance"
}

// purpose is what RabbitMQ says that a listener is for.
func purpose(protocol string) string {
	switch protocol {
	case "amqp":
		return "AMQP 0-9-1"
	case "amqp/ssl":
		return "AMQP 0-9-1 over TLS"
	case "http":
		return "HTTP API"
	case "http/prometheus":
		return "Prometheus exporter API over HTTP"
	case "clustering":
		return "inter-node communication"
	}
	return protocol
}

func (r *rabbitCluster) text() string {
	var b strings.Builder
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			lines = []string{"(none)"}
		}
		fmt.Fprintf(&b, "\n%s\n\n%s\n", title, strings.Join(lines, "\n"))
	}
	var all, running, versions, cores, maintenance, alarms, listeners, flags []string
	total := 0
	for _, n := range r.nodes {
		all = append(all, n.Name)
		if !n.Running {
			continue
		}
		total += n.Processors
		running = append(running, n.Name)
		versions = append(versions, fmt.Sprintf("%s: RabbitMQ %s on Erlang %s", n.Name, n.Version, n.Erlang))
		cores = append(cores, fmt.Sprintf("Node: %s, available CPU cores: %d", n.Name, n.Processors))
		maintenance = append(maintenance, fmt.Sprintf("Node: %s, status: %s", n.Name, maintained(n.Draining)))
		for _, alarm := range n.Alarms {
			alarms = append(alarms, fmt.Sprintf("%s alarm on node %s", strings.ToUpper(alarm[:1])+alarm[1:], n.Name))
		}
	}
	for _, l := range r.overview.Listeners {
		listeners = append(listeners, fmt.Sprintf("Node: %s, interface: %s, port: %d, protocol: %s, purpose: %s", l.Node, bracket(l.Address), l.Port, l.Protocol, purpose(l.Protocol)))
	}
	for _, f := range r.flags {
		flags = append(flags, fmt.Sprintf("Flag: %s, state: %s", f.Name, f.State))
	}
	slices.Sort(listeners)
	b.WriteString("Basics\n\n")
	fmt.Fprintf(&b, "Cluster name: %s\nTotal CPU cores available cluster-wide: %d\n", r.overview.ClusterName, total)
	section("Cluster Tags", nil)
	section("Disk Nodes", all)
	section("Running Nodes", running)
	section("Versions", versions)
	section("CPU Cores", cores)
	section("Maintenance status", maintenance)
	section("Alarms", alarms)
	section("Network Partitions", nil)
	section("Listeners", listeners)
	section("Feature flags", flags)
	return b.String()
}
