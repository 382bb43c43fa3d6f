package cli

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// listing is a command that shows one of the API's lists as rows.
type listing struct {
	client   client
	printing printing
	columns  []string
	vhost    string
	all      bool // virtual hosts

	path  []string
	known []string          // columns that can be asked for
	usual []string          // those shown if nothing is said
	named map[string]string // fields of the API for the columns that have another name
	fixed map[string]any    // columns that are the same everywhere
	// of is what the list is of, for RabbitMQ's banner; hosted says that the list can be cut by virtual host.
	of     string
	hosted bool
	quoted bool // RabbitMQ's tool puts the virtual host into quotes here
	// byHeader says that the virtual host stands in the header x-vhost rather than in the path.
	byHeader bool
	// locate, if not nil, is the path in the place of path and the virtual host.
	locate func(l *listing) []string
}

// flags adds those of all lists.
func (l *listing) flags(p *program, c *cobra.Command) {
	l.client.flags(p, c)
	l.printing.flags(c)
	c.Flags().StringSliceVar(&l.columns, "columns", nil, "columns to show, separated by commas; naming them as arguments does the same")
	if l.hosted {
		c.Flags().StringVarP(&l.vhost, "vhost", "p", "/", "virtual host")
		c.Flags().BoolVarP(&l.all, "all-vhosts", "A", false, "all virtual hosts")
	}
}

func (l *listing) run(p *program, c *cobra.Command, args []string) error {
	columns, err := choose(l.columns, args, l.known, l.usual)
	if err != nil {
		return err
	}
	if _, err := l.printing.kind(p.terminal); err != nil { // before the node is asked
		return err
	}
	path := l.path
	header := map[string]string{}
	if l.byHeader && !l.all {
		header["X-Vhost"] = l.vhost
	} else if l.hosted && !l.all {
		path = append(path[:len(path):len(path)], l.vhost)
	}
	if l.locate != nil {
		path = l.locate(l)
	}
	fields := make([]string, len(columns))
	for i, column := range columns {
		fields[i] = column
		if name, ok := l.named[column]; ok {
			fields[i] = name
		}
	}
	var items []map[string]any
	query := url.Values{"columns": {strings.Join(fields, ",")}}
	if err := l.client.call(p, c, "GET", path, query, header, &items); err != nil {
		if f, ok := err.(*failure); ok && f.missing && l.hosted && !l.all {
			f.text, f.remedy = fmt.Sprintf("there is no virtual host %q, or user %q has no permissions in it", l.vhost, l.client.user), "Choose one with --vhost, or --all-vhosts."
		}
		return err
	}
	rows := make([][]any, len(items))
	for i, item := range items {
		rows[i] = make([]any, len(fields))
		for j, field := range fields {
			if v, ok := l.fixed[field]; ok {
				rows[i][j] = v
			} else {
				rows[i][j] = member(item, field)
			}
		}
	}
	if l.printing.rabbit {
		l.printing.banner = fmt.Sprintf("Listing %s ...", l.of)
		if l.hosted {
			l.printing.banner = fmt.Sprintf("Listing %s for vhost %s ...", l.of, l.vhost)
			if l.quoted {
				l.printing.banner = fmt.Sprintf("Listing %s for vhost \"%s\" ...", l.of, l.vhost)
			}
		}
	}
	return l.printing.print(p, columns, rows)
}

// member finds what a path such as message_stats.publish leads to, or nil.
func member(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = object[name]
	}
	return v
}

func queueListing() *listing {
	return &listing{of: "queues", hosted: true, path: []string{"queues"},
		usual: []string{"name", "type", "state", "messages_ready", "messages_unacknowledged", "messages", "consumers"},
		known: []string{"name", "vhost", "type", "state", "durable", "auto_delete", "exclusive", "arguments", "node", "messages", "messages_ready",
			"messages_unacknowledged", "messages_persistent", "messages_ram", "messages_ready_ram", "messages_unacknowledged_ram", "message_bytes",
			"message_bytes_ready", "message_bytes_unacknowledged", "message_bytes_persistent", "message_bytes_ram", "consumers", "consumer_utilisation",
			"consumer_capacity", "memory", "exclusive_consumer_tag", "single_active_consumer_tag", "head_message_timestamp", "idle_since", "policy",
			"operator_policy", "effective_policy_definition", "leader", "members", "online", "delivery_limit", "delayed_retry", "messages_delayed", "messages_dlx",
			"message_bytes_dlx", "publish_rate", "deliver_rate", "owner"},
		named: map[string]string{"publish_rate": "message_stats.publish_details.rate", "deliver_rate": "message_stats.deliver_get_details.rate", "owner": "owner_pid_details.name"}}
}

func connectionListing() *listing {
	return &listing{of: "connections", path: []string{"connections"},
		usual: []string{"name", "user", "vhost", "state", "channels", "connection_name"},
		known: []string{"name", "connection_name", "user", "vhost", "state", "channels", "host", "port", "peer_host", "peer_port", "protocol", "auth_mechanism", "ssl",
			"ssl_protocol", "ssl_cipher", "peer_cert_subject", "timeout", "frame_max", "channel_max", "connected_at", "client_properties", "recv_oct", "send_oct",
			"recv_cnt", "send_cnt", "send_pend", "node", "type", "user_provided_name"},
		named: map[string]string{"connection_name": "client_properties.connection_name"}}
}

func (p *program) queueCommand() *cobra.Command {
	l := queueListing()
	list := &cobra.Command{
		Use:   "list [COLUMN...]",
		Short: "List the queues of a virtual host",
		Long:  "List the queues of a virtual host, sorted by name.\n\nColumns: " + strings.Join(l.known, ", ") + ".",
		Example: `  warren queue list
  warren queue list name messages consumers
  warren queue list -p shop --columns name,publish_rate --format csv
  warren queue list --all-vhosts --format json`,
		RunE: func(c *cobra.Command, args []string) error { return l.run(p, c, args) },
	}
	l.flags(p, list)
	return group("queue", "Look at queues, declare and delete them, look at their messages", "  warren queue list\n  warren queue declare orders\n  warren queue get orders --count 3",
		append([]*cobra.Command{list}, p.queueCommands()...)...)
}

func (p *program) connectionCommand() *cobra.Command {
	l := connectionListing()
	list := &cobra.Command{
		Use:   "list [COLUMN...]",
		Short: "List the connections of clients",
		Long:  "List the connections of clients.\n\nColumns: " + strings.Join(l.known, ", ") + ".",
		Example: `  warren connection list
  warren connection list name user peer_host recv_oct send_oct
  warren connection list --format json`,
		RunE: func(c *cobra.Command, args []string) error { return l.run(p, c, args) },
	}
	l.flags(p, list)
	return group("connection", "Look at connections of clients, and close them", "  warren connection list\n  warren connection close '127.0.0.1:40001 -> 127.0.0.1:5672'", list, p.closeCommand())
}

func (p *program) closeCommand() *cobra.Command {
	var to client
	var reason string
	var yes bool
	c := &cobra.Command{
		Use:   "close NAME",
		Short: "Close a client's connection",
		Long: `Close a client's connection. The client is told 320 CONNECTION_FORCED and the reason; most clients connect again.

NAME is what 'warren connection list' shows, in quotes because of the arrow in it. On a terminal the command asks first.`,
		Example: `  warren connection close '127.0.0.1:40001 -> 127.0.0.1:5672'
  warren connection close '127.0.0.1:40001 -> 127.0.0.1:5672' --reason 'maintenance at noon' --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if p.terminal && !yes && !p.confirmed("Close connection "+args[0]+"?") {
				return &failure{code: exitUsage, text: "nothing was closed"}
			}
			header := map[string]string{}
			if reason != "" {
				header["X-Reason"] = reason
			}
			err := to.call(p, c, "DELETE", []string{"connections", args[0]}, nil, header, nil)
			if f, ok := err.(*failure); ok && f.missing {
				f.text, f.remedy = fmt.Sprintf("there is no connection %q", args[0]), "'warren connection list name' shows the names there are."
			}
			return err
		},
	}
	to.flags(p, c)
	c.Flags().StringVar(&reason, "reason", "", "what the client is told")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// confirmed asks a question on a terminal.
func (p *program) confirmed(question string) bool {
	fmt.Fprint(p.err, question+" [y/N] ")
	var answer string
	_, _ = fmt.Fscanln(p.in, &answer) // no answer is a no
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes")
}

// ctlCommands are commands under the names, and with the output, of RabbitMQ's tools, for scripts that use those.
func (p *program) ctlCommands() []*cobra.Command {
	alias := func(use, short string, l *listing, usual ...string) *cobra.Command {
		l.usual, l.printing.rabbit = usual, true
		c := &cobra.Command{Use: use + " [COLUMN...]", Short: short, Hidden: true,
			RunE: func(c *cobra.Command, args []string) error { return l.run(p, c, args) }}
		l.flags(p, c)
		return c
	}
	lists := []*cobra.Command{
		alias("list_queues", "As rabbitmqctl list_queues", queueListing(), "name", "messages"),
		alias("list_connections", "As rabbitmqctl list_connections", connectionListing(), "user", "peer_host", "peer_port", "state"),
		alias("list_exchanges", "As rabbitmqctl list_exchanges", exchangeListing(), "name", "type"),
		alias("list_bindings", "As rabbitmqctl list_bindings", ctlBindingListing(), "source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments"),
		alias("list_users", "As rabbitmqctl list_users", userListing(), "user", "tags"),
		alias("list_vhosts", "As rabbitmqctl list_vhosts", vhostListing(), "name"),
		alias("list_permissions", "As rabbitmqctl list_permissions", permissionListing(), "user", "configure", "write", "read"),
		alias("list_topic_permissions", "As rabbitmqctl list_topic_permissions", topicPermissionListing(), "user", "exchange", "write", "read"),
		alias("list_policies", "As rabbitmqctl list_policies", policyListing(), "vhost", "name", "pattern", "apply-to", "definition", "priority"),
		alias("list_operator_policies", "As rabbitmqctl list_operator_policies", operatorPolicyListing(), "vhost", "name", "pattern", "apply-to", "definition", "priority"),
		alias("list_parameters", "As rabbitmqctl list_parameters", parameterListing(), "component", "name", "value"),
		alias("list_global_parameters", "As rabbitmqctl list_global_parameters", globalParameterListing(), "name", "value"),
		alias("list_user_limits", "As rabbitmqctl list_user_limits", userLimitListing(), "user", "limits"),
		alias("list_vhost_limits", "As rabbitmqctl list_vhost_limits", vhostLimitListing(), "vhost", "limits"),
	}
	lists = append(lists, p.ctlClusterStatus(), p.replicasCommand("quorum_status QUEUE", true), p.restoreCommand("force_standalone_khepri_boot", true))
	return append(append(lists, p.ctlUserLists()...), p.ctlDeeds()...)
}
