package cli

import (
	"fmt"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/warrenmq/warren/conformance"
)

func (p *program) conformanceCommand() *cobra.Command {
	o := conformance.Options{URI: "amqp://guest:guest@127.0.0.1:5672"}
	var match string
	var list, verbose bool
	c := &cobra.Command{
		Use:   "conformance",
		Short: "Judge an AMQP 0-9-1 broker from outside",
		Long: `Play transcripts of protocol conversations against a broker, this one or another, and tell where it answers otherwise.

A case is one conversation: what is sent, what must come back, down to reply codes and texts. Where brokers differ for a reason, the
transcript says so. Queues and exchanges of a run have names of their own and are deleted at its end. The exit code is 0 when every
case passed, 69 when one failed or no broker answered.`,
		Example: `  warren conformance
  warren conformance --uri amqp://guest:guest@rabbit:5672 --http http://rabbit:15672
  warren conformance --run '^routing/topic' --verbose
  warren conformance --list`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if match != "" {
				re, err := regexp.Compile(match)
				if err != nil {
					return usage("--run %q is no regular expression: %v", match, err)
				}
				o.Match = re
			}
			if list {
				return p.listCases(o.Match)
			}
			o.Trace = verbose
			report, err := conformance.Run(c.Context(), o)
			if err != nil {
				return &failure{code: exitUnavailable, text: err.Error(), err: err, remedy: "Give the broker's address with --uri."}
			}
			if verbose {
				p.printFrames(report)
			}
			if err := report.Write(p.out); err != nil {
				return err
			}
			switch n := report.Count(conformance.Failed); {
			case len(report.Results) == 0:
				return usage("no case matches --run %q", match)
			case n > 0:
				return &failure{code: exitUnavailable, text: fmt.Sprintf("%d of %d cases failed", n, len(report.Results))}
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.URI, "uri", o.URI, "the broker's `URI`, amqp://user:password@host:port/vhost")
	f.StringVar(&o.HTTP, "http", "", "the `URL` of its management API, for the cases that need one")
	f.StringVar(&o.Product, "product", "", "the broker's `name` in the transcripts: warren or rabbitmq (default: what it announces)")
	f.StringVar(&match, "run", "", "only cases whose FILE/NAME matches a regular `expression`")
	f.IntVar(&o.Parallel, "parallel", 0, "cases at a time (default 64)")
	f.DurationVar(&o.Limit, "limit", 0, "how long an answer may take where the transcript does not say (default 10s)")
	f.BoolVar(&list, "list", false, "list the cases and play none")
	f.BoolVarP(&verbose, "verbose", "v", false, "print all frames of every case")
	return c
}

func (p *program) listCases(match *regexp.Regexp) error {
	cases, err := conformance.Cases()
	if err != nil {
		return err
	}
	for _, c := range cases {
		if match == nil || match.MatchString(c.FullName()) {
			fmt.Fprintln(p.out, c.FullName())
		}
	}
	return nil
}

func (p *program) printFrames(report conformance.Report) {
	for _, r := range report.Results {
		if r.Status == conformance.Failed {
			continue // the report prints them
		}
		fmt.Fprintf(p.out, "%s %s\n", r.Status, r.Case.FullName())
		for _, f := range r.Frames {
			fmt.Fprintf(p.out, "        %s\n", f)
		}
	}
}
