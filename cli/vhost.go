package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func vhostListing() *listing {
	return &listing{of: "vhosts", path: []string{"vhosts"}, usual: []string{"name", "description", "tags", "default_queue_type", "messages"},
		known: []string{"name", "description", "tags", "default_queue_type", "protected_from_deletion", "tracing", "cluster_state", "metadata", "messages",
			"messages_ready", "messages_unacknowledged"}}
}

func vhostLimitListing() *listing {
	return &listing{of: "vhost limits", path: []string{"vhost-limits"}, usual: []string{"vhost", "limits"}, known: []string{"vhost", "limits"},
		named: map[string]string{"limits": "value"}}
}

func (p *program) vhostCommand() *cobra.Command {
	return group("vhost", "Virtual hosts: names and permissions of their own", "  warren vhost list\n  warren vhost add shop\n  warren vhost limits set shop max-queues 1000",
		p.listCommand(vhostListing(), "list [COLUMN...]", "List the virtual hosts", "  warren vhost list\n  warren vhost list name messages --format json"),
		p.command(addVHost("add NAME", false)),
		p.command(deed{use: "delete NAME", short: "Delete a virtual host", args: cobra.ExactArgs(1),
			long:    "Delete a virtual host with all queues, exchanges, messages and permissions in it. Its connections are closed.",
			example: "  warren vhost delete shop\n  warren vhost delete shop --yes",
			question: func(_ *deed, args []string) string {
				return "Delete virtual host " + args[0] + " with all that is in it?"
			},
			do: deleteVHost}),
		group("limits", "Limits of connections and queues of virtual hosts", "  warren vhost limits list",
			p.listCommand(vhostLimitListing(), "list", "List the limits of virtual hosts", "  warren vhost limits list"),
			p.command(deed{use: "set VHOST LIMIT NUMBER", short: "Set a limit of a virtual host", args: cobra.ExactArgs(3),
				long:    "Set max-connections or max-queues of a virtual host. A negative number is no limit. What is there stays.",
				example: "  warren vhost limits set shop max-queues 1000\n  warren vhost limits set shop max-connections 0",
				do: func(d *deed, args []string) error {
					return d.setLimit([]string{"vhost-limits", args[0], args[1]}, args[2], fmt.Sprintf("virtual host %q", args[0]))
				}}),
			p.command(deed{use: "clear VHOST LIMIT", short: "Take a limit of a virtual host away", args: cobra.ExactArgs(2),
				example: "  warren vhost limits clear shop max-queues",
				do: func(d *deed, args []string) error {
					return d.clearLimits([]string{"vhost-limits", args[0]}, fmt.Sprintf("virtual host %q", args[0]), args[1])
				}})))
}

// addVHost adds a virtual host. RabbitMQ's tool does nothing if there is one, Warren's says so.
func addVHost(use string, rabbit bool) deed {
	var description, tags, kind string
	return deed{use: use, short: "Add a virtual host", args: cobra.ExactArgs(1), rabbit: rabbit,
		long:    "Add a virtual host. The user who adds it gets all permissions in it, nobody else any.",
		example: "  warren vhost add shop\n  warren vhost add shop --description 'the shop' --tags production --default-queue-type classic",
		flags: func(_ *deed, c *cobra.Command) {
			c.Flags().StringVar(&description, "description", "", "what it is for")
			c.Flags().StringVar(&tags, "tags", "", "tags, separated by commas")
			c.Flags().StringVar(&kind, "default-queue-type", "", "type of queues declared without one: classic, quorum or stream")
		},
		do: func(d *deed, args []string) error {
			d.banner("Adding vhost \"%s\"", args[0])
			if err := d.exists([]string{"vhosts", args[0]}, fmt.Sprintf("virtual host %q already exists", args[0])); err != nil {
				if f, ok := err.(*failure); ok && f.code == exitSoftware && d.rabbit {
					return nil
				}
				return err
			}
			body := map[string]any{}
			for name, text := range map[string]string{"description": description, "tags": tags, "default_queue_type": kind} {
				if text != "" {
					body[name] = text
				}
			}
			return d.ask("PUT", []string{"vhosts", args[0]}, body, nil, "")
		}}
}

func deleteVHost(d *deed, args []string) error {
	d.banner("Deleting vhost \"%s\"", args[0])
	return d.ask("DELETE", []string{"vhosts", args[0]}, nil, nil, fmt.Sprintf("virtual host %q", args[0]))
}
