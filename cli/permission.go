package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func permissionListing() *listing {
	return &listing{of: "permissions", hosted: true, quoted: true, usual: []string{"user", "vhost", "configure", "write", "read"},
		known:  []string{"user", "vhost", "configure", "write", "read"},
		locate: func(l *listing) []string { return l.ofVHost("permissions") }}
}

func topicPermissionListing() *listing {
	return &listing{of: "topic permissions", hosted: true, quoted: true, usual: []string{"user", "vhost", "exchange", "write", "read"},
		known:  []string{"user", "vhost", "exchange", "write", "read"},
		locate: func(l *listing) []string { return l.ofVHost("topic-permissions") }}
}

// ofVHost is the path of permissions in a virtual host, or in all.
func (l *listing) ofVHost(what string) []string {
	if l.all {
		return []string{what}
	}
	return []string{"vhosts", l.vhost, what}
}

// ofUser makes a listing that of one user.
func (l *listing) ofUser(what string, user *string) {
	byVHost := l.locate
	l.locate = func(l *listing) []string {
		if *user == "" {
			return byVHost(l)
		}
		return []string{"users", *user, what}
	}
}

func (p *program) permissionCommand() *cobra.Command {
	list := func(l *listing, path, what, example string) *cobra.Command {
		user := new(string)
		l.ofUser(path, user)
		c := p.listCommand(l, "list [COLUMN...]", "List "+what+" in a virtual host, or of a user", example)
		c.Flags().StringVar(user, "user", "", "those of this user, in all virtual hosts")
		return c
	}
	return group("permission", "What users may do in a virtual host",
		"  warren permission list\n  warren permission set ann '^shop-.*' '^shop-.*' '.*'",
		list(permissionListing(), "permissions", "permissions", "  warren permission list\n  warren permission list -p shop\n  warren permission list --user ann"),
		p.command(deed{use: "set USER CONFIGURE WRITE READ", short: "Set a user's permissions in a virtual host", args: cobra.ExactArgs(4), hosted: true,
			long: `Set what a user may do in a virtual host. The three are regular expressions that may match anywhere in the name of a queue or an exchange;
write ^ and $ for the whole name. An empty one allows nothing. They count at once, on open connections too.`,
			example: "  warren permission set ann '.*' '.*' '.*'\n  warren permission set reader '' '' '^shop-' -p shop",
			do:      setPermissions}),
		p.command(deed{use: "clear USER", short: "Take a user's permissions in a virtual host away", args: cobra.ExactArgs(1), hosted: true,
			example: "  warren permission clear ann -p shop", do: clearPermissions}),
		group("topic", "Which routing keys users may use at topic exchanges", "  warren permission topic list",
			list(topicPermissionListing(), "topic-permissions", "topic permissions", "  warren permission topic list\n  warren permission topic list --user ann"),
			p.command(deed{use: "set USER EXCHANGE WRITE READ", short: "Limit a user's routing keys at a topic exchange", args: cobra.ExactArgs(4), hosted: true,
				long: `Limit the routing keys that a user may publish with (WRITE) and bind with (READ) at a topic exchange. In the regular expressions {username} and
{vhost} stand for the user and the virtual host.`,
				example: "  warren permission topic set ann amq.topic '^{username}\\.' '.*'", do: setTopicPermissions}),
			p.command(deed{use: "clear USER [EXCHANGE]", short: "Take a user's limits at one or all topic exchanges away", args: cobra.RangeArgs(1, 2), hosted: true,
				example: "  warren permission topic clear ann amq.topic\n  warren permission topic clear ann", do: clearTopicPermissions})))
}

func setPermissions(d *deed, args []string) error {
	d.banner("Setting permissions for user \"%s\" in vhost \"%s\"", args[0], d.vhost)
	return d.ask("PUT", []string{"permissions", d.vhost, args[0]}, map[string]any{"configure": args[1], "write": args[2], "read": args[3]}, nil, "")
}

func clearPermissions(d *deed, args []string) error {
	d.banner("Clearing permissions for user \"%s\" in vhost \"%s\"", args[0], d.vhost)
	return d.ask("DELETE", []string{"permissions", d.vhost, args[0]}, nil, nil, d.inVHost("permission of user %q", args[0]))
}

func setTopicPermissions(d *deed, args []string) error {
	d.banner("Setting topic permissions on \"%s\" for user \"%s\" in vhost \"%s\"", args[1], args[0], d.vhost)
	return d.ask("PUT", []string{"topic-permissions", d.vhost, args[0]}, map[string]any{"exchange": args[1], "write": args[2], "read": args[3]}, nil, "")
}

func clearTopicPermissions(d *deed, args []string) error {
	on := ""
	path := []string{"topic-permissions", d.vhost, args[0]}
	if len(args) == 2 {
		on = fmt.Sprintf(" on %q", args[1])
		path = append(path, args[1])
	}
	d.banner("Clearing topic permissions%s for user \"%s\" in vhost \"%s\"", on, args[0], d.vhost)
	return d.ask("DELETE", path, nil, nil, d.inVHost("topic permission of user %q", args[0]))
}
