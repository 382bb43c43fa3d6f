package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func policyListing() *listing {
	return &listing{of: "policies", hosted: true, quoted: true, path: []string{"policies"},
		usual: []string{"name", "pattern", "apply-to", "priority", "definition"}, known: []string{"vhost", "name", "pattern", "apply-to", "priority", "definition"}}
}

func operatorPolicyListing() *listing {
	l := policyListing()
	l.of, l.path = "operator policy overrides", []string{"operator-policies"}
	return l
}

func (p *program) policyCommand() *cobra.Command {
	return group("policy", "Policies: settings for all queues and exchanges whose names match",
		"  warren policy list\n  warren policy set short '^tmp\\.' '{\"max-length\":1000}'\n  warren policy effective orders",
		p.policyList(), p.command(setPolicy("set NAME PATTERN DEFINITION", false, nil)),
		p.command(clearPolicy("clear NAME", false, nil)), p.effectiveCommand())
}

func (p *program) policyList() *cobra.Command {
	l, operators := policyListing(), operatorPolicyListing()
	var operator bool
	c := p.listCommand(l, "list [COLUMN...]", "List the policies of a virtual host, the lowest priority first",
		"  warren policy list\n  warren policy list -p shop --operator\n  warren policy list --all-vhosts --format json")
	c.Flags().BoolVar(&operator, "operator", false, "operator policies")
	c.RunE = func(c *cobra.Command, args []string) error {
		if operator {
			l.path = operators.path
		}
		return l.run(p, c, args)
	}
	return c
}

// policyPath is where policies, or the operator's, are.
func policyPath(operator bool, vhost, name string) []string {
	if operator {
		return []string{"operator-policies", vhost, name}
	}
	return []string{"policies", vhost, name}
}

// setPolicy sets a policy. A command of RabbitMQ's tools is about the ones or the others, which operator says; nil leaves it to a flag.
func setPolicy(use string, rabbit bool, operator *bool) deed {
	byFlag := operator == nil
	if byFlag {
		operator = new(bool)
	}
	var priority int64
	var to string
	return deed{use: use, short: "Set a policy", args: cobra.ExactArgs(3), hosted: true, rabbit: rabbit,
		long: `Set a policy: DEFINITION, a JSON object of settings, counts for queues and exchanges whose names the regular expression PATTERN matches
anywhere. Of several that match, the one with the highest priority counts. It takes effect at once. An operator policy limits what queues get
from arguments and policies: of two limits the lower one counts.`,
		example: `  warren policy set short '^tmp\.' '{"max-length":1000,"message-ttl":60000}' --apply-to queues
  warren policy set audit '^shop$' '{"alternate-exchange":"lost"}' --apply-to exchanges -p shop
  warren policy set bound '.*' '{"max-length":1000000}' --operator`,
		flags: func(d *deed, c *cobra.Command) {
			c.Flags().Int64Var(&priority, "priority", 0, "of several that match, the highest counts")
			c.Flags().StringVar(&to, "apply-to", "all", "queues, classic_queues, quorum_queues, streams, exchanges or all")
			if byFlag {
				c.Flags().BoolVar(operator, "operator", false, "an operator policy")
			}
		},
		do: func(d *deed, args []string) error {
			definition, err := d.object(args[2], "the definition")
			if err != nil {
				return err
			}
			what := "policy"
			if *operator {
				what = "operator policy override"
			}
			d.banner("Setting %s \"%s\" for pattern \"%s\" to \"%s\" with priority \"%d\" for vhost \"%s\"", what, args[0], args[1], args[2], priority, d.vhost)
			body := map[string]any{"pattern": args[1], "definition": definition, "priority": priority, "apply-to": to}
			return d.ask("PUT", policyPath(*operator, d.vhost, args[0]), body, nil, fmt.Sprintf("virtual host %q", d.vhost))
		}}
}

func clearPolicy(use string, rabbit bool, operator *bool) deed {
	byFlag := operator == nil
	if byFlag {
		operator = new(bool)
	}
	return deed{use: use, short: "Remove a policy", args: cobra.ExactArgs(1), hosted: true, rabbit: rabbit,
		example: "  warren policy clear short\n  warren policy clear bound --operator",
		flags: func(d *deed, c *cobra.Command) {
			if byFlag {
				c.Flags().BoolVar(operator, "operator", false, "an operator policy")
			}
		},
		do: func(d *deed, args []string) error {
			what := "policy"
			if *operator {
				what = "operator policy"
			}
			d.banner("Clearing %s \"%s\" on vhost \"%s\"", what, args[0], d.vhost)
			return d.ask("DELETE", policyPath(*operator, d.vhost, args[0]), nil, nil, d.inVHost("%s %q", what, args[0]))
		}}
}

// effectiveCommand shows what counts for a queue in the end.
func (p *program) effectiveCommand() *cobra.Command {
	var queue string
	l := &listing{hosted: true, usual: []string{"key", "value", "origin"}, known: []string{"key", "value", "origin"}}
	l.locate = func(l *listing) []string { return []string{"warren", "queues", l.vhost, queue, "effective"} }
	c := &cobra.Command{Use: "effective QUEUE", Short: "Show which settings count for a queue, and where each comes from", Args: cobra.ExactArgs(1),
		Long: `Show which settings count for a queue in the end, key by key, and whether each comes from an argument of its declaration, from a policy or
from an operator policy.`,
		Example: "  warren policy effective orders\n  warren policy effective orders -p shop --format json",
		RunE: func(c *cobra.Command, args []string) error {
			queue = args[0]
			err := l.run(p, c, nil)
			return missing(err, fmt.Sprintf("queue %q in virtual host %q, or no such virtual host", queue, l.vhost))
		}}
	l.flags(p, c)
	_ = c.Flags().MarkHidden("all-vhosts")
	return c
}
