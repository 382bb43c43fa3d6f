package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func parameterListing() *listing {
	return &listing{of: "runtime parameters", hosted: true, quoted: true, usual: []string{"component", "name", "value"}, known: []string{"vhost", "component", "name", "value"},
		path: []string{"parameters"}, byHeader: true}
}

func globalParameterListing() *listing {
	return &listing{of: "global runtime parameters", path: []string{"global-parameters"}, usual: []string{"name", "value"}, known: []string{"name", "value"}}
}

func (p *program) parameterCommand() *cobra.Command {
	return group("parameter", "Runtime parameters of virtual hosts, and global ones", "  warren parameter list\n  warren parameter global list",
		p.parameterList(), p.command(setParameter("set COMPONENT NAME VALUE", false)), p.command(clearParameter("clear COMPONENT NAME", false)),
		group("global", "Parameters of the whole node", "  warren parameter global list",
			p.listCommand(globalParameterListing(), "list", "List the global parameters", "  warren parameter global list"),
			p.command(setGlobalParameter("set NAME VALUE", false)), p.command(clearGlobalParameter("clear NAME", false))))
}

// parameterList lists the parameters that lie in one virtual host, of all components.
func (p *program) parameterList() *cobra.Command {
	return p.listCommand(parameterListing(), "list [COLUMN...]", "List the parameters of a virtual host", "  warren parameter list\n  warren parameter list --all-vhosts --format json")
}

// parameterValue reads the JSON of a parameter.
func parameterValue(text string) (any, error) {
	v, err := value(text)
	if err != nil {
		return nil, &failure{code: exitData, text: "the value is no JSON: " + text, remedy: `Text is written with quotes, as '"text"'.`, err: err}
	}
	return v, nil
}

func setParameter(use string, rabbit bool) deed {
	return deed{use: use, short: "Set a parameter of a component", args: cobra.ExactArgs(3), hosted: true, rabbit: rabbit,
		long:    "Set a parameter of a component in a virtual host. VALUE is JSON.",
		example: "  warren parameter set vhost-limits limits '{\"max-queues\":1000}'",
		do: func(d *deed, args []string) error {
			v, err := parameterValue(args[2])
			if err != nil {
				return err
			}
			d.banner("Setting runtime parameter \"%s\" for component \"%s\" to \"%s\" in vhost \"%s\"", args[1], args[0], args[2], d.vhost)
			return d.ask("PUT", []string{"parameters", args[0], d.vhost, args[1]}, map[string]any{"value": v}, nil, fmt.Sprintf("virtual host %q", d.vhost))
		}}
}

func clearParameter(use string, rabbit bool) deed {
	return deed{use: use, short: "Remove a parameter of a component", args: cobra.ExactArgs(2), hosted: true, rabbit: rabbit,
		example: "  warren parameter clear vhost-limits limits",
		do: func(d *deed, args []string) error {
			d.banner("Clearing runtime parameter \"%s\" for component \"%s\" on vhost \"%s\"", args[1], args[0], d.vhost)
			return d.ask("DELETE", []string{"parameters", args[0], d.vhost, args[1]}, nil, nil, d.inVHost("parameter %q of component %q", args[1], args[0]))
		}}
}

func setGlobalParameter(use string, rabbit bool) deed {
	return deed{use: use, short: "Set a global parameter", args: cobra.ExactArgs(2), rabbit: rabbit, long: "Set a global parameter. VALUE is JSON.",
		example: "  warren parameter global set contact '\"ops@example.org\"'",
		do: func(d *deed, args []string) error {
			v, err := parameterValue(args[1])
			if err != nil {
				return err
			}
			d.banner("Setting global runtime parameter \"%s\" to \"%s\"", args[0], args[1])
			return d.ask("PUT", []string{"global-parameters", args[0]}, map[string]any{"value": v}, nil, "")
		}}
}

func clearGlobalParameter(use string, rabbit bool) deed {
	return deed{use: use, short: "Remove a global parameter", args: cobra.ExactArgs(1), rabbit: rabbit, example: "  warren parameter global clear contact",
		do: func(d *deed, args []string) error {
			d.banner("Clearing global runtime parameter \"%s\"", args[0])
			return d.ask("DELETE", []string{"global-parameters", args[0]}, nil, nil, fmt.Sprintf("global parameter %q", args[0]))
		}}
}
