package cli

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

func bindingListing() *listing {
	return &listing{of: "bindings", hosted: true, path: []string{"bindings"}, usual: []string{"source", "destination", "destination_type", "routing_key", "arguments"},
		known: []string{"source", "vhost", "destination", "destination_type", "routing_key", "arguments", "properties_key"}}
}

// ctlBindingListing has the names of RabbitMQ's tools. A source is always an exchange.
func ctlBindingListing() *listing {
	return &listing{of: "bindings", hosted: true, path: []string{"bindings"},
		known: []string{"source_name", "source_kind", "destination_name", "destination_kind", "routing_key", "arguments", "vhost"},
		named: map[string]string{"source_name": "source", "destination_name": "destination", "destination_kind": "destination_type"},
		fixed: map[string]any{"source_kind": "exchange"}}
}

// bindingEnd says whether a binding leads to an exchange, and has which arguments.
type bindingEnd struct {
	toExchange bool
	arguments  []string
}

func (e *bindingEnd) flags(_ *deed, c *cobra.Command) {
	c.Flags().BoolVar(&e.toExchange, "to-exchange", false, "DESTINATION is an exchange, not a queue")
	c.Flags().StringArrayVar(&e.arguments, "argument", nil, "an argument, as `NAME=VALUE`; repeatable")
}

func (e *bindingEnd) path(d *deed, args []string) []string {
	kind := "q"
	if e.toExchange {
		kind = "e"
	}
	return []string{"bindings", d.vhost, "e", args[0], kind, args[1]}
}

func keyOf(args []string) string {
	if len(args) > 2 {
		return args[2]
	}
	return ""
}

func (p *program) bindingCommand() *cobra.Command {
	var added, removed bindingEnd
	return group("binding", "Look at bindings, add and delete them", "  warren binding list\n  warren binding add events orders 'order.*'",
		p.listCommand(bindingListing(), "list [COLUMN...]", "List the bindings of a virtual host", "  warren binding list\n  warren binding list source destination routing_key"),
		p.command(deed{use: "add SOURCE DESTINATION [KEY]", short: "Bind a queue or an exchange to an exchange", args: cobra.RangeArgs(2, 3), hosted: true,
			long:    "Bind the queue DESTINATION to the exchange SOURCE. One that is there already is no error.",
			example: "  warren binding add events orders 'order.*'\n  warren binding add events audit --to-exchange",
			flags:   added.flags,
			do: func(d *deed, args []string) error {
				table, err := pairs(added.arguments)
				if err != nil {
					return err
				}
				body := map[string]any{"routing_key": keyOf(args), "arguments": table}
				return d.ask("POST", added.path(d, args), body, nil, fmt.Sprintf("exchange %q or %q to bind in virtual host %q", args[0], args[1], d.vhost))
			}}),
		p.command(deed{use: "delete SOURCE DESTINATION [KEY]", short: "Delete a binding", args: cobra.RangeArgs(2, 3), hosted: true,
			long:    "Delete the binding with this routing key and these arguments.",
			example: "  warren binding delete events orders 'order.*'",
			flags:   removed.flags,
			do:      func(d *deed, args []string) error { return deleteBinding(d, args, &removed) }}))
}

// deleteBinding looks up under which name the API knows the binding.
func deleteBinding(d *deed, args []string, end *bindingEnd) error {
	table, err := pairs(end.arguments)
	if err != nil {
		return err
	}
	what := d.inVHost("binding from %q to %q with routing key %q and these arguments", args[0], args[1], keyOf(args))
	var found []struct {
		Key        string         `json:"routing_key"`
		Arguments  map[string]any `json:"arguments"`
		Properties string         `json:"properties_key"`
	}
	if err := d.ask("GET", end.path(d, args), nil, &found, what); err != nil {
		return err
	}
	for _, b := range found {
		if b.Key == keyOf(args) && sameJSON(b.Arguments, table) {
			return d.ask("DELETE", append(end.path(d, args), b.Properties), nil, nil, what)
		}
	}
	return &failure{code: exitData, text: "there is no " + what, missing: true}
}

// sameJSON says whether two values are written alike.
func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
