// Package cli is the command line: `warren server` runs a node, everything else asks a running one over its HTTP API.
//
// It owns the tree of commands, how they print and with which codes they exit, and the wiring: it alone knows every room, opens the sockets
// that a configuration names and joins broker, AMQP server and management into one node. It keeps no state of its own.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// program is one run of the command line with all that it takes from outside.
type program struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) (string, bool)
	signals  <-chan os.Signal // of a running server; nil: those of the process
	open     opener
	terminal bool // out is a terminal
}

// Main runs a command line and returns the code to exit with.
func Main() int {
	return (&program{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv, open: openEngine, terminal: isTerminal(os.Stdout)}).run(os.Args[1:])
}

// run does what the arguments say. A failure is told once, on the error output.
func (p *program) run(args []string) int {
	root := p.root()
	root.SetArgs(args)
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	command, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var f *failure
	if !errors.As(err, &f) { // cobra's own: flags, arguments, unknown commands
		f = &failure{code: exitUsage, text: err.Error(), remedy: fmt.Sprintf("See '%s --help'.", command.CommandPath())}
	}
	fmt.Fprintf(p.err, "Error: %s\n", strings.TrimSpace(f.text))
	if f.remedy != "" {
		fmt.Fprintln(p.err, f.remedy)
	}
	return f.code
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "warren",
		Short: "An AMQP 0-9-1 message broker in one binary",
		Long: `Warren is a message broker that RabbitMQ's clients, tools and operators use unchanged.

'warren server' runs a node. The other commands ask a running node over its HTTP API, by default the one on this machine.`,
		Example: `  warren server                                  run a node on the usual ports
  warren status                                  what it is doing
  warren queue list                              its queues
  warren queue list --url http://host:15672 -u ann --password-file pw`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(p.serverCommand(), p.versionCommand(), p.statusCommand(), p.queueCommand(), p.exchangeCommand(), p.bindingCommand(), p.connectionCommand(), p.clusterCommand(),
		p.userCommand(), p.permissionCommand(), p.vhostCommand(), p.policyCommand(), p.parameterCommand(), p.definitionsCommand(), p.storageCommand(), p.conformanceCommand())
	root.AddCommand(p.ctlCommands()...)
	return root
}

// group is a command that only holds others.
func group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Example: example, SuggestionsMinimumDistance: 2}
	g.AddCommand(commands...)
	g.Args = cobra.ArbitraryArgs
	g.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		f := &failure{code: exitUsage, text: fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath()), remedy: fmt.Sprintf("See '%s --help'.", c.CommandPath())}
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			f.remedy = fmt.Sprintf("Did you mean '%s %s'?", c.CommandPath(), near[0])
		}
		return f
	}
	return g
}

// isTerminal says whether a file is a terminal rather than a pipe or a file.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
