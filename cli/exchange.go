package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func exchangeListing() *listing {
	return &listing{of: "exchanges", hosted: true, path: []string{"exchanges"}, usual: []string{"name", "type", "durable", "policy"},
		known: []string{"name", "vhost", "type", "durable", "auto_delete", "internal", "arguments", "policy", "publish_in", "publish_out"},
		named: map[string]string{"publish_in": "message_stats.publish_in", "publish_out": "message_stats.publish_out"}}
}

// exchangePath is where an exchange is; the default exchange has a name of its own there.
func exchangePath(vhost, name string) []string {
	if name == "" {
		name = "amq.default"
	}
	return []string{"exchanges", vhost, name}
}

func (p *program) exchangeCommand() *cobra.Command {
	var ifUnused bool
	return group("exchange", "Look at exchanges, declare and delete them", "  warren exchange list\n  warren exchange declare events --type topic",
		p.listCommand(exchangeListing(), "list [COLUMN...]", "List the exchanges of a virtual host", "  warren exchange list\n  warren exchange list name policy -p shop"),
		p.command(declareExchange()),
		p.command(deed{use: "delete NAME", short: "Delete an exchange", args: cobra.ExactArgs(1), hosted: true, long: "Delete an exchange with its bindings.",
			example:  "  warren exchange delete events\n  warren exchange delete events --if-unused --yes",
			question: func(d *deed, args []string) string { return "Delete exchange " + args[0] + "?" },
			flags: func(_ *deed, c *cobra.Command) {
				c.Flags().BoolVar(&ifUnused, "if-unused", false, "only if it has no bindings")
			},
			do: func(d *deed, args []string) error {
				return d.remove(exchangePath(d.vhost, args[0]), d.inVHost("exchange %q", args[0]), condition{"if-unused", ifUnused})
			}}))
}

// condition is a parameter of a removal.
type condition struct {
	name string
	set  bool
}

// remove deletes something under conditions.
func (d *deed) remove(path []string, what string, conditions ...condition) error {
	query := map[string][]string{}
	for _, c := range conditions {
		if c.set {
			query[c.name] = []string{"true"}
		}
	}
	return missing(d.client.call(d.program, d.cmd, "DELETE", path, query, nil, nil), what)
}

func declareExchange() deed {
	var kind string
	var durable, autoDelete, internal bool
	var arguments []string
	return deed{use: "declare NAME", short: "Declare an exchange", args: cobra.ExactArgs(1), hosted: true,
		long:    "Declare an exchange. One that is there already and equal is no error.",
		example: "  warren exchange declare events --type topic\n  warren exchange declare orders --argument alternate-exchange=lost",
		flags: func(_ *deed, c *cobra.Command) {
			c.Flags().StringVar(&kind, "type", "direct", "direct, fanout, topic, headers, x-consistent-hash …")
			c.Flags().BoolVar(&durable, "durable", true, "survives a restart")
			c.Flags().BoolVar(&autoDelete, "auto-delete", false, "is deleted with its last binding")
			c.Flags().BoolVar(&internal, "internal", false, "clients cannot publish to it")
			c.Flags().StringArrayVar(&arguments, "argument", nil, "an argument, as `NAME=VALUE`; repeatable")
		},
		do: func(d *deed, args []string) error {
			table, err := pairs(arguments)
			if err != nil {
				return err
			}
			body := map[string]any{"type": kind, "durable": durable, "auto_delete": autoDelete, "internal": internal, "arguments": table}
			return d.ask("PUT", exchangePath(d.vhost, args[0]), body, nil, fmt.Sprintf("virtual host %q", d.vhost))
		}}
}
