package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// ctlUserLists are the lists of RabbitMQ's tools that are of one user.
func (p *program) ctlUserLists() []*cobra.Command {
	list := func(use, path string, l *listing, usual ...string) *cobra.Command {
		user := new(string)
		l.ofUser(path, user)
		l.usual, l.printing.rabbit, l.hosted = usual, true, false
		of := l.of
		c := &cobra.Command{Use: use + " USER", Short: "As rabbitmqctl " + use, Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				*user = args[0]
				l.of = fmt.Sprintf("%s for user \"%s\"", of, args[0])
				return missing(l.run(p, c, nil), fmt.Sprintf("user %q", args[0]))
			}}
		l.flags(p, c)
		return c
	}
	return []*cobra.Command{
		list("list_user_permissions", "permissions", permissionListing(), "vhost", "configure", "write", "read"),
		list("list_user_topic_permissions", "topic-permissions", topicPermissionListing(), "vhost", "exchange", "write", "read"),
	}
}

// ctlDeeds are the commands of RabbitMQ's tools that change something, with their arguments in those tools' order.
func (p *program) ctlDeeds() []*cobra.Command {
	yes, no := true, false
	one, two, four := cobra.ExactArgs(1), cobra.ExactArgs(2), cobra.ExactArgs(4)
	deeds := []deed{
		ctlPassword("add_user USER [PASSWORD]", ctlAddUser), ctlPassword("change_password USER [PASSWORD]", ctlChangePassword),
		ctl("delete_user USER", one, false, deleteUser),
		ctl("clear_password USER", one, false, func(d *deed, args []string) error {
			d.banner("Clearing password for user \"%s\"", args[0])
			u, err := d.account(args[0])
			if err != nil {
				return err
			}
			return d.putUser(args[0], map[string]any{"tags": u.Tags})
		}),
		ctl("set_user_tags USER [TAG...]", cobra.MinimumNArgs(1), false, tagUser),
		ctl("set_user_limits USER LIMITS", two, false, func(d *deed, args []string) error {
			d.banner("Setting user limits to \"%s\" for user \"%s\"", args[1], args[0])
			return d.setLimits([]string{"user-limits", args[0]}, args[1], fmt.Sprintf("user %q", args[0]))
		}),
		ctl("clear_user_limits USER LIMIT", two, false, func(d *deed, args []string) error {
			d.banner("Clearing \"%s\" limit for user \"%s\"", args[1], args[0])
			names := []string{args[1]}
			if args[1] == "all" {
				names = []string{"max-connections", "max-channels"}
			}
			return d.clearLimits([]string{"user-limits", args[0]}, fmt.Sprintf("user %q", args[0]), names...)
		}),
		ctl("set_permissions USER CONFIGURE WRITE READ", four, true, setPermissions),
		ctl("clear_permissions USER", one, true, clearPermissions),
		ctl("set_topic_permissions USER EXCHANGE WRITE READ", four, true, setTopicPermissions),
		ctl("clear_topic_permissions USER [EXCHANGE]", cobra.RangeArgs(1, 2), true, clearTopicPermissions),
		addVHost("add_vhost VHOST", true), ctl("delete_vhost VHOST", one, false, deleteVHost),
		ctl("set_vhost_limits LIMITS", one, true, func(d *deed, args []string) error {
			d.banner("Setting vhost limits to \"%s\" for vhost \"%s\"", args[0], d.vhost)
			return d.setLimits([]string{"vhost-limits", d.vhost}, args[0], fmt.Sprintf("virtual host %q", d.vhost))
		}),
		ctl("clear_vhost_limits", cobra.NoArgs, true, func(d *deed, args []string) error {
			d.banner("Clearing vhost \"%s\" limits", d.vhost)
			return d.clearLimits([]string{"vhost-limits", d.vhost}, fmt.Sprintf("virtual host %q", d.vhost), "max-connections", "max-queues")
		}),
		setPolicy("set_policy NAME PATTERN DEFINITION", true, &no), clearPolicy("clear_policy NAME", true, &no),
		setPolicy("set_operator_policy NAME PATTERN DEFINITION", true, &yes), clearPolicy("clear_operator_policy NAME", true, &yes),
		setParameter("set_parameter COMPONENT NAME VALUE", true), clearParameter("clear_parameter COMPONENT NAME", true),
		setGlobalParameter("set_global_parameter NAME VALUE", true), clearGlobalParameter("clear_global_parameter NAME", true),
		purgeQueue("purge_queue QUEUE", true), deleteQueue("delete_queue QUEUE", true),
		forget("forget_cluster_node NODE", true), awaitMembers("await_online_nodes COUNT", true), checkCritical("check_if_node_is_quorum_critical", true),
		grow("grow NODE STRATEGY", true), shrink("shrink NODE", true), rebalance("rebalance TYPE", true), transferLeader("transfer_leadership QUEUE NODE", true),
		exportDefinitions("export_definitions [FILE]", true), importDefinitions("import_definitions [FILE]", true),
	}
	var list []*cobra.Command
	for _, d := range deeds {
		list = append(list, p.command(d))
	}
	return list
}

// ctlPassword is a command that takes a password as its second argument, as RabbitMQ's tool does, or from the input.
func ctlPassword(use string, do func(d *deed, args []string, password map[string]any) error) deed {
	var hashed bool
	d := ctl(use, cobra.RangeArgs(1, 2), false, nil)
	d.flags = func(_ *deed, c *cobra.Command) {
		c.Flags().BoolVar(&hashed, "pre-hashed-password", false, "the password is a hash, as definitions show it")
	}
	d.do = func(d *deed, args []string) error {
		body := map[string]any{}
		from := newPassword{hashed: hashed}
		if len(args) == 2 {
			given := *d.program
			given.in = strings.NewReader(args[1] + "\n")
			if err := from.into(&given, body); err != nil {
				return err
			}
		} else if err := from.into(d.program, body); err != nil {
			return err
		}
		return do(d, args, body)
	}
	return d
}

func ctlAddUser(d *deed, args []string, body map[string]any) error {
	d.banner("Adding user \"%s\"", args[0])
	if err := d.exists([]string{"users", args[0]}, fmt.Sprintf("User %q already exists", args[0])); err != nil {
		return err
	}
	body["tags"] = ""
	if err := d.putUser(args[0], body); err != nil {
		return err
	}
	if !d.quiet && !d.silent {
		fmt.Fprintln(d.out, "Done. Don't forget to grant the user permissions to some virtual hosts! See 'warren permission set --help' to learn more.")
	}
	return nil
}

func ctlChangePassword(d *deed, args []string, body map[string]any) error {
	d.banner("Changing password for user \"%s\"", args[0])
	u, err := d.account(args[0])
	if err != nil {
		return err
	}
	body["tags"] = u.Tags
	return d.putUser(args[0], body)
}
