package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (p *program) definitionsCommand() *cobra.Command {
	return group("definitions", "Definitions: users, virtual hosts, policies, queues, exchanges and bindings as one file",
		"  warren definitions export definitions.json\n  warren definitions import definitions.json --dry-run",
		p.command(exportDefinitions("export [FILE]", false)), p.command(importDefinitions("import [FILE]", false)))
}

// definitionsPath is where definitions of one virtual host are, or of all.
func definitionsPath(vhost string) []string {
	if vhost == "" {
		return []string{"definitions"}
	}
	return []string{"definitions", vhost}
}

func exportDefinitions(use string, rabbit bool) deed {
	var vhost, format string
	return deed{use: use, short: "Write the definitions of the node to a file", args: cobra.MaximumNArgs(1), rabbit: rabbit,
		long: `Write the definitions of the whole node, or of one virtual host, to a file, or to the output if there is none or it is -. The file is RabbitMQ's
and can be imported there too. It has the hashes of passwords and no messages.`,
		example: "  warren definitions export definitions.json\n  warren definitions export --vhost shop | less",
		flags: func(_ *deed, c *cobra.Command) {
			c.Flags().StringVarP(&vhost, "vhost", "p", "", "only this virtual host")
			if rabbit {
				c.Flags().StringVar(&format, "format", "json", "json")
			}
		},
		do: func(d *deed, args []string) error {
			if format != "" && format != "json" {
				return usage("definitions are written as json only")
			}
			var data []byte
			if err := d.ask("GET", definitionsPath(vhost), nil, &data, fmt.Sprintf("virtual host %q", vhost)); err != nil {
				return err
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, data, "", "  "); err != nil {
				return &failure{code: exitSoftware, text: "the definitions are no JSON: " + err.Error(), err: err}
			}
			pretty.WriteByte('\n')
			if len(args) == 0 || args[0] == "-" {
				_, err := d.out.Write(pretty.Bytes())
				return err
			}
			d.banner("Exporting definitions in JSON to a file at \"%s\"", args[0])
			if err := os.WriteFile(args[0], pretty.Bytes(), 0o600); err != nil { // hashes are nobody else's business
				return &failure{code: exitData, text: "cannot write the definitions: " + err.Error(), err: err}
			}
			return nil
		}}
}

func importDefinitions(use string, rabbit bool) deed {
	var vhost string
	var dry, skip bool
	return deed{use: use, short: "Add the definitions in a file to the node", args: cobra.MaximumNArgs(1), rabbit: rabbit,
		long: `Add the definitions in a file, or in the input if there is none or it is -, to the node. Users, permissions, policies and parameters are
replaced, queues, exchanges and bindings that are there stay as they are, and nothing is removed. --dry-run only says what would become of each.`,
		example: "  warren definitions import definitions.json --dry-run\n  warren definitions import definitions.json\n  warren definitions import --vhost shop < shop.json",
		flags: func(_ *deed, c *cobra.Command) {
			c.Flags().StringVarP(&vhost, "vhost", "p", "", "into this virtual host: the definitions of one")
			if rabbit {
				c.Flags().BoolVar(&skip, "skip-if-unchanged", false, "has no effect: what is there already does no harm")
			} else {
				c.Flags().BoolVar(&dry, "dry-run", false, "change nothing, say what would be changed")
			}
		},
		do: func(d *deed, args []string) error {
			data, err := d.file(args)
			if err != nil {
				return err
			}
			if dry {
				return d.rehearse(vhost, data)
			}
			if len(args) > 0 {
				d.banner("Importing definitions in JSON from a file at \"%s\"", args[0])
			}
			return d.ask("POST", definitionsPath(vhost), data, nil, fmt.Sprintf("virtual host %q", vhost))
		}}
}

// file reads the file that is the first argument, or the input.
func (d *deed) file(args []string) (data []byte, err error) {
	if len(args) == 0 || args[0] == "-" {
		data, err = io.ReadAll(d.in)
	} else {
		data, err = os.ReadFile(args[0])
	}
	if err != nil {
		return nil, &failure{code: exitData, text: "cannot read the definitions: " + err.Error(), err: err}
	}
	return data, nil
}

// sections are the lists in definitions, and the members that tell their items apart. Those that are not replaceable stay as they are.
var sections = []struct {
	name, what  string
	key         []string
	replaceable bool
}{
	{"users", "user", []string{"name"}, true},
	{"vhosts", "virtual host", []string{"name"}, true},
	{"permissions", "permission of user", []string{"user", "vhost"}, true},
	{"topic_permissions", "topic permission of user", []string{"user", "exchange", "vhost"}, true},
	{"global_parameters", "global parameter", []string{"name"}, true},
	{"policies", "policy", []string{"name", "vhost"}, true},
	{"parameters", "parameter", []string{"component", "name", "vhost"}, true},
	{"exchanges", "exchange", []string{"name", "vhost"}, false},
	{"queues", "queue", []string{"name", "vhost"}, false},
	{"bindings", "binding", []string{"source", "destination", "destination_type", "routing_key", "vhost", "arguments"}, false},
}

// rehearse compares definitions with those of the node.
func (d *deed) rehearse(vhost string, data []byte) error {
	var wanted, present map[string]any
	if err := json.Unmarshal(data, &wanted); err != nil {
		return &failure{code: exitData, text: "the definitions are no JSON object: " + err.Error(), err: err}
	}
	if err := d.ask("GET", definitionsPath(vhost), nil, &present, fmt.Sprintf("virtual host %q", vhost)); err != nil {
		return err
	}
	added, changed, same := 0, 0, 0
	for _, s := range sections {
		there := map[string]any{}
		items, _ := present[s.name].([]any)
		for _, item := range items {
			there[itemName(item, s.key)] = item
		}
		items, _ = wanted[s.name].([]any)
		for _, item := range items {
			name := itemName(item, s.key)
			old, exists := there[name]
			switch {
			case !exists:
				added++
				fmt.Fprintf(d.out, "add %s %s\n", s.what, name)
			case within(item, old):
				same++
			case s.replaceable:
				changed++
				fmt.Fprintf(d.out, "change %s %s\n", s.what, name)
			default:
				same++
				fmt.Fprintf(d.out, "leave %s %s, which is another than in the file\n", s.what, name)
			}
		}
	}
	fmt.Fprintf(d.out, "%d to add, %d to change, %d stay as they are\n", added, changed, same)
	return nil
}

// itemName is what tells an item apart from the others of its list.
func itemName(item any, key []string) string {
	var parts []string
	for _, name := range key {
		v := member(item, name)
		switch {
		case v == "" || v == nil && name != "vhost" && name != "arguments":
			parts = append(parts, "''")
		case v != nil && !sameJSON(v, map[string]any{}):
			parts = append(parts, text(v))
		}
	}
	return strings.Join(parts, " ")
}

// within says whether all that an item says holds of the one that is there. A queue's type may stand in its arguments.
func within(item, there any) bool {
	a, ok := item.(map[string]any)
	b, okB := there.(map[string]any)
	if !ok || !okB {
		return sameJSON(item, there)
	}
	for name, v := range a {
		if w, there := b[name]; there && !within(v, w) || !there && !empty(v) {
			return false
		}
	}
	return true
}

// empty is what may as well not be there.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return slices.Contains([]any{"", false}, v)
}
