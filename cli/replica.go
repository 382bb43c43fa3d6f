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
		long: `Show which members have a replica of a quorum queue, which of them leads, and how far each is. Most of the voters must have a message before
it is confirmed; a non_voter follows, and one that is promotable gets its vote when it has caught up. A member that does not answer is shown as noproc.`,
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
command has returned, if that member is up and has caught up. It must have a vote: 'warren queue status' shows who has.`,
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

// patterns adds flags of RabbitMQ's tool that choose queues, where they choose nothing.
func patterns(c *cobra.Command) {
	for _, name := range []string{"vhost-pattern", "queue-pattern"} {
		c.Flags().String(name, "", "has no effect")
		_ = c.Flags().MarkHidden(name)
	}
}

// votesColumns are those of RabbitMQ's tool.
var votesColumns = []string{"vhost", "name", "size", "result"}

// votes is a command that gives a member a vote in slots, or takes it. All queues of a slot have the same voters.
func votes(d deed, vote bool, banner func(args []string) string) deed {
	body := map[string]any{"vote": vote}
	var vhosts, queues string
	var failures bool
	show := printing{rabbit: d.rabbit}
	d.flags = func(d *deed, c *cobra.Command) {
		c.Flags().BoolVar(&failures, "errors-only", false, "show only what failed")
		if vote || !d.rabbit {
			c.Flags().StringVar(&vhosts, "vhost-pattern", "", "only slots with a queue in a virtual host whose name matches this `EXPRESSION`")
			c.Flags().StringVar(&queues, "queue-pattern", "", "only slots with a queue whose name matches this `EXPRESSION`")
		}
		if !d.rabbit {
			show.flags(c)
			return
		}
		c.Flags().StringVar(&show.format, "formatter", "", "table, csv or json")
		if vote {
			c.Flags().String("membership", "", "has no effect")
			_ = c.Flags().MarkHidden("membership")
		}
	}
	d.do = func(d *deed, args []string) error {
		if len(args) > 1 {
			body["strategy"] = args[1]
		}
		for name, pattern := range map[string]string{"vhost_pattern": vhosts, "queue_pattern": queues} {
			if pattern != "" {
				body[name] = pattern
			}
		}
		var items []map[string]any
		if err := d.ask("POST", []string{"warren", "queues", "replicas", "on", args[0]}, body, &items, fmt.Sprintf("member %s", args[0])); err != nil {
			return err
		}
		var rows [][]any
		failed := 0
		for _, item := range items {
			if item["result"] != "ok" {
				failed++
			} else if failures {
				continue
			}
			rows = append(rows, []any{item["vhost"], item["name"], item["size"], item["result"]})
		}
		if d.rabbit {
			show.quiet, show.silent, show.banner = d.quiet, d.silent, banner(args)+" ..."
		}
		err := show.print(d.program, votesColumns, rows)
		if err == nil && failed > 0 {
			err = &failure{code: exitTemporary, text: fmt.Sprintf("%d of %d votes were not changed: the results say why", failed, len(items))}
		}
		return err
	}
	return d
}

func grow(use string, rabbit bool) deed {
	args := cobra.RangeArgs(1, 2)
	if rabbit {
		args = cobra.ExactArgs(2)
	}
	return votes(deed{use: use, short: "Give a member a vote for quorum queues and streams", args: args, rabbit: rabbit,
		long: `Give member NODE a vote in the slots in which quorum queues and streams lie, and so for all queues of these slots; with the strategy
even only where an even number of members has one, else with all, which is what is done if nothing is said. Every member has a replica of every
queue: one without a vote follows, serves its clients from it, and is not waited for. A confirm needs most of those that have a vote. The member
must be up; it gets its vote when it has caught up. The command waits 15 s for that. What it shows are the queues for which something
was to be done, with how many members have a vote. The exit code is 75 if something failed.`,
		example: "  warren queue grow warren@c\n  warren queue grow warren@c even --queue-pattern '^orders'"}, true,
		func(args []string) string { return fmt.Sprintf("Growing %s quorum queues on %s", args[1], args[0]) })
}

func shrink(use string, rabbit bool) deed {
	return votes(deed{use: use, short: "Take the votes for quorum queues and streams from a member", args: cobra.ExactArgs(1), rabbit: rabbit,
		long: `Take from member NODE its vote in the slots in which quorum queues and streams lie. It keeps its replicas and serves its clients from
them, but no confirm waits for it, and it leads no queue. The last vote is not taken, and none as long as most of the others that have one are
not up or have not caught up. NODE may be down. What is shown are the queues for which something was to be done, with how many
members have a vote. The exit code is 75 if something failed. A node that is gone for good leaves with 'warren cluster forget'.`,
		example: "  warren queue shrink warren@c\n  warren queue shrink warren@c --errors-only"}, false,
		func(args []string) string { return fmt.Sprintf("Shrinking quorum queues on %s", args[0]) })
}
