package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func userListing() *listing {
	return &listing{of: "users", path: []string{"users"}, usual: []string{"name", "tags", "limits"},
		known: []string{"name", "user", "tags", "limits", "hashing_algorithm", "password_hash"}, named: map[string]string{"user": "name"}}
}

func userLimitListing() *listing {
	return &listing{of: "user limits", path: []string{"user-limits"}, usual: []string{"user", "limits"}, known: []string{"user", "limits"},
		named: map[string]string{"limits": "value"}}
}

func (p *program) userCommand() *cobra.Command {
	l := userListing()
	list := p.listCommand(l, "list [COLUMN...]", "List the users", "  warren user list\n  warren user list name tags --format json")

	limits := userLimitListing()
	return group("user", "Users: who may log in, with which tags and limits",
		"  warren user list\n  warren user add ann --tags monitoring < password.txt\n  warren user limits set ann max-connections 10",
		list, p.command(addUser()),
		p.command(deed{use: "delete NAME", short: "Delete a user", args: cobra.ExactArgs(1),
			long:     "Delete a user with its permissions and limits. Its connections are closed.",
			example:  "  warren user delete ann\n  warren user delete ann --yes",
			question: func(_ *deed, args []string) string { return "Delete user " + args[0] + " and close its connections?" },
			do:       deleteUser}),
		p.command(passwordOfUser()),
		p.command(deed{use: "tag NAME [TAG...]", short: "Set the tags of a user", args: cobra.MinimumNArgs(1),
			long: `Set the tags of a user; without tags it has none then. Tags that mean something: administrator, monitoring, policymaker and management let
it use the HTTP API, impersonator lets it set any user-id on messages, protected keeps the HTTP API from changing it.`,
			example: "  warren user tag ann monitoring policymaker\n  warren user tag ann",
			do:      tagUser}),
		group("limits", "Limits of connections and channels of users", "  warren user limits list",
			p.listCommand(limits, "list", "List the limits of users", "  warren user limits list"),
			p.command(deed{use: "set USER LIMIT NUMBER", short: "Set a limit of a user", args: cobra.ExactArgs(3),
				long:    "Set max-connections or max-channels of a user. A negative number is no limit. What is open stays open.",
				example: "  warren user limits set ann max-connections 10\n  warren user limits set ann max-channels -- -1",
				do: func(d *deed, args []string) error {
					return d.setLimit([]string{"user-limits", args[0], args[1]}, args[2], fmt.Sprintf("user %q", args[0]))
				}}),
			p.command(deed{use: "clear USER LIMIT", short: "Take a limit of a user away", args: cobra.ExactArgs(2),
				example: "  warren user limits clear ann max-connections",
				do: func(d *deed, args []string) error {
					return d.ask("DELETE", []string{"user-limits", args[0], args[1]}, nil, nil, fmt.Sprintf("user %q", args[0]))
				}})))
}

// listCommand makes a command of a listing.
func (p *program) listCommand(l *listing, use, short, example string) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: short + ".\n\nColumns: " + strings.Join(l.known, ", ") + ".", Example: example,
		RunE: func(c *cobra.Command, args []string) error { return l.run(p, c, args) }}
	l.flags(p, c)
	return c
}

// account is a user as the API shows it.
type account struct {
	Name      string   `json:"name"`
	Hash      string   `json:"password_hash"`
	Algorithm string   `json:"hashing_algorithm"`
	Tags      []string `json:"tags"`
}

func (d *deed) account(name string) (u account, err error) {
	return u, d.ask("GET", []string{"users", name}, nil, &u, fmt.Sprintf("user %q", name))
}

func (d *deed) putUser(name string, body map[string]any) error {
	return d.ask("PUT", []string{"users", name}, body, nil, "")
}

// exists makes an error of a thing that is there already.
func (d *deed) exists(path []string, text string) error {
	err := d.ask("GET", path, nil, nil, "")
	if err == nil {
		return &failure{code: exitSoftware, text: text}
	}
	if f, ok := err.(*failure); ok && f.missing {
		return nil
	}
	return err
}

func addUser() deed {
	var password newPassword
	var tags []string
	return deed{use: "add NAME", short: "Add a user", args: cobra.ExactArgs(1),
		long: `Add a user. Its password is asked for on a terminal, and otherwise read from the input or a file, so that no list of processes and no history
of a shell shows it. A new user has no permissions: see 'warren permission set'.`,
		example: `  warren user add ann
  warren user add ann --tags monitoring < password.txt
  warren user add ann --new-password-file password.txt
  warren user add app --no-password`,
		flags: func(_ *deed, c *cobra.Command) {
			password.flags(c)
			c.Flags().StringSliceVar(&tags, "tags", nil, "tags, separated by commas")
		},
		do: func(d *deed, args []string) error {
			if err := d.exists([]string{"users", args[0]}, fmt.Sprintf("User %q already exists", args[0])); err != nil {
				return err
			}
			body := map[string]any{"tags": strings.Join(tags, ",")}
			if err := password.into(d.program, body); err != nil {
				return err
			}
			return d.putUser(args[0], body)
		}}
}

func deleteUser(d *deed, args []string) error {
	d.banner("Deleting user \"%s\"", args[0])
	return d.ask("DELETE", []string{"users", args[0]}, nil, nil, fmt.Sprintf("user %q", args[0]))
}

func passwordOfUser() deed {
	var password newPassword
	return deed{use: "passwd NAME", short: "Change the password of a user", args: cobra.ExactArgs(1),
		long:    "Change the password of a user, which is asked for on a terminal, and otherwise read from the input or a file. Connections stay open.",
		example: "  warren user passwd ann\n  warren user passwd ann < password.txt\n  warren user passwd ann --no-password",
		flags:   func(_ *deed, c *cobra.Command) { password.flags(c) },
		do: func(d *deed, args []string) error {
			u, err := d.account(args[0])
			if err != nil {
				return err
			}
			body := map[string]any{"tags": u.Tags}
			if err := password.into(d.program, body); err != nil {
				return err
			}
			return d.putUser(args[0], body)
		}}
}

// tagUser changes the tags and leaves the password.
func tagUser(d *deed, args []string) error {
	d.banner("Setting tags for user \"%s\" to [%s]", args[0], strings.Join(args[1:], ", "))
	u, err := d.account(args[0])
	if err != nil {
		return err
	}
	return d.putUser(args[0], map[string]any{"tags": args[1:], "password_hash": u.Hash, "hashing_algorithm": u.Algorithm})
}

// setLimit sets one limit to a number.
func (d *deed) setLimit(path []string, number, what string) error {
	n, err := value(number)
	if err != nil {
		return &failure{code: exitData, text: fmt.Sprintf("%q is no number", number)}
	}
	return d.ask("PUT", path, map[string]any{"value": n}, nil, what)
}

// setLimits sets the limits of a JSON object.
func (d *deed) setLimits(path []string, text, what string) error {
	limits, err := d.object(text, "the limits")
	if err != nil {
		return err
	}
	for name, n := range limits {
		if err := d.ask("PUT", append(path[:len(path):len(path)], name), map[string]any{"value": n}, nil, what); err != nil {
			return err
		}
	}
	return nil
}

// clearLimits takes limits away.
func (d *deed) clearLimits(path []string, what string, names ...string) error {
	for _, name := range names {
		if err := d.ask("DELETE", append(path[:len(path):len(path)], name), nil, nil, what); err != nil {
			return err
		}
	}
	return nil
}
