package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// replicaColumns are those of a quorum queue's status, under RabbitMQ's names.
var replicaColumns = []string{"Node Name", "Raft State", "Membership", "Last Log Index", "Last Written", "Last Applied", "Commit Index", "Snapshot Index", "Term", "Machine Version"}

// replicasCommand shows the replicas of a quorum queue as rows.
func (p *program) replicasCommand(use string, rabbit bool) *cobra.Command {
	var show printing
	show.rabbit = rabbit
	d := deed{use: use, short: "Show the replicas of a quorum queue", args: cobra.ExactArgs(1), hosted: true, rabbit: rabbit,
		long:    "Show which members have a replica of a quorum queue, which of them leads, and how far each is. A member that does not answer is shown as noproc.",
		example: "  warren queue status orders\n  warren queue status orders --format json",
		flags: func(d *deed, c *cobra.Command) {
			if !d.rabbit {
				show.flags(c)
				return
			}
			c.Flags().StringVar(&show.format, "formatter", "", "table, csv or json")
		},
		do: func(d *deed, args []string) error {
			var items []map[string]any
			if err := d.ask("GET", []string{"queues", "quorum", d.vhost, args[0], "status"}, nil, &items, d.inVHost("queue %q", args[0])); err != nil {
				return err
			}
			rows := make([][]any, len(items))
			for i, item := range items {
				for _, column := range replicaColumns {
					rows[i] = append(rows[i], item[column])
				}
			}
			if d.rabbit {
				show.quiet, show.silent, show.banner = d.quiet, d.silent, fmt.Sprintf("Status of quorum queue %s ...", args[0])
			}
			return show.print(p, replicaColumns, rows)
		}}
	return p.command(d)
}

func transferLeader(use string, rabbit bool) deed {
	return deed{use: use, short: "Have another member lead a quorum queue", args: cobra.ExactArgs(2), hosted: true, rabbit: rabbit,
		long: `Have member NODE lead a quorum queue. Queues that lie in the same slot share their leader, and move with it. It happens soon after the
command has returned, if that member is up and has caught up.`,
		example: "  warren queue transfer orders warren@b",
		do: func(d *deed, args []string) error {
			d.banner("Transferring leadership of quorum queue %s to %s", args[0], args[1])
			return d.ask("PUT", []string{"warren", "queues", d.vhost, args[0], "leader"}, map[string]any{"node": args[1]}, nil, d.inVHost("queue %q", args[0]))
		}}
}

func rebalance(use string, rabbit bool) deed {
	args := cobra.NoArgs
	if rabbit {
		args = cobra.ExactArgs(1)
	}
	return deed{use: use, short: "Spread the leaders of quorum queues over the members", args: args, rabbit: rabbit,
		long:    "Have each member lead about as many slots, and with them quorum queues, as the others. It happens soon after the command has returned. Classic queues stay where they are.",
		example: "  warren queue rebalance",
		flags: func(d *deed, c *cobra.Command) {
			if d.rabbit {
				patterns(c)
			}
		},
		do: func(d *deed, args []string) error {
			if d.rabbit {
				switch args[0] {
				case "all", "quorum", "stream", "classic":
				default:
					return &failure{code: exitData, text: fmt.Sprintf("there is no type %q of queues to rebalance: it is all, quorum or stream", args[0])}
				}
				d.banner("Rebalancing replica distribution of %s queues", args[0])
			}
			return d.ask("POST", []string{"rebalance", "queues"}, nil, nil, "")
		}}
}

// patterns adds flags of RabbitMQ's tool that choose queues. Here all queues of a slot move together, so they choose nothing.
func patterns(c *cobra.Command) {
	for _, name := range []string{"vhost-pattern", "queue-pattern", "membership"} {
		c.Flags().String(name, "", "has no effect")
		_ = c.Flags().MarkHidden(name)
	}
	c.Flags().Bool("errors-only", false, "has no effect")
	_ = c.Flags().MarkHidden("errors-only")
}

func grow(use string, rabbit bool) deed {
	args := cobra.ExactArgs(1)
	if rabbit {
		args = cobra.ExactArgs(2)
	}
	return deed{use: use, short: "Give a member the replicas that it lacks", args: args, rabbit: rabbit,
		long:    "Give member NODE a replica of each quorum queue that it has none of. Every member has all of them, so this helps only where joining was interrupted; else nothing is done.",
		example: "  warren queue grow warren@c",
		flags: func(d *deed, c *cobra.Command) {
			if d.rabbit {
				patterns(c)
			}
		},
		do: func(d *deed, args []string) error {
			strategy := "all"
			if d.rabbit {
				strategy = args[1]
			}
			d.banner("Growing %s quorum queues on %s", strategy, args[0])
			return d.ask("POST", []string{"queues", "quorum", "replicas", "on", args[0], "grow"}, map[string]any{"strategy": strategy}, nil, "")
		}}
}

func shrink(use string, rabbit bool) deed {
	return deed{use: use, short: "Take the replicas from a node", args: cobra.ExactArgs(1), rabbit: rabbit,
		long: `Take the replicas of quorum queues from a node. Every member has one of each, so this is refused for members: a node that is gone for good
leaves with 'warren cluster forget', and its replicas with it.`,
		example: "  warren queue shrink warren@c",
		flags: func(d *deed, c *cobra.Command) {
			if d.rabbit {
				c.Flags().Bool("errors-only", false, "has no effect")
				_ = c.Flags().MarkHidden("errors-only")
			}
		},
		do: func(d *deed, args []string) error {
			d.banner("Shrinking quorum queues on %s", args[0])
			return d.ask("DELETE", []string{"queues", "quorum", "replicas", "on", args[0], "shrink"}, nil, nil, "")
		}}
}
