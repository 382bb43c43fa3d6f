package cli

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// queueCommands are the verbs of queues besides list.
func (p *program) queueCommands() []*cobra.Command {
	return []*cobra.Command{p.command(declareQueue()), p.command(deleteQueue("delete NAME", false)), p.command(purgeQueue("purge NAME", false)),
		p.getCommand(), p.command(publishMessage()), p.replicasCommand("status QUEUE", false), p.command(transferLeader("transfer QUEUE NODE", false)),
		p.command(rebalance("rebalance", false)), p.command(grow("grow NODE [all|even]", false)), p.command(shrink("shrink NODE", false))}
}

func declareQueue() deed {
	var kind string
	var durable, autoDelete bool
	var arguments []string
	return deed{use: "declare NAME", short: "Declare a queue", args: cobra.ExactArgs(1), hosted: true,
		long:    "Declare a queue. One that is there already and equal is no error.",
		example: "  warren queue declare orders\n  warren queue declare orders --argument x-max-length=1000 --argument x-overflow=reject-publish",
		flags: func(_ *deed, c *cobra.Command) {
			c.Flags().StringVar(&kind, "type", "", "classic, quorum or stream (default: that of the virtual host)")
			c.Flags().BoolVar(&durable, "durable", true, "survives a restart")
			c.Flags().BoolVar(&autoDelete, "auto-delete", false, "is deleted with its last consumer")
			c.Flags().StringArrayVar(&arguments, "argument", nil, "an argument, as `NAME=VALUE`; repeatable")
		},
		do: func(d *deed, args []string) error {
			table, err := pairs(arguments)
			if err != nil {
				return err
			}
			if kind != "" {
				table["x-queue-type"] = kind
			}
			body := map[string]any{"durable": durable, "auto_delete": autoDelete, "arguments": table}
			return d.ask("PUT", []string{"queues", d.vhost, args[0]}, body, nil, fmt.Sprintf("virtual host %q", d.vhost))
		}}
}

func deleteQueue(use string, rabbit bool) deed {
	var ifEmpty, ifUnused bool
	return deed{use: use, short: "Delete a queue", args: cobra.ExactArgs(1), hosted: true, rabbit: rabbit,
		long:     "Delete a queue with the messages in it. Its consumers are cancelled.",
		example:  "  warren queue delete orders\n  warren queue delete orders --if-empty --if-unused --yes",
		question: func(_ *deed, args []string) string { return "Delete queue " + args[0] + " with its messages?" },
		flags: func(_ *deed, c *cobra.Command) {
			c.Flags().BoolVarP(&ifEmpty, "if-empty", "e", false, "only if it has no messages")
			c.Flags().BoolVar(&ifUnused, "if-unused", false, "only if it has no consumers") // -u is the user
		},
		do: func(d *deed, args []string) error {
			d.banner("Deleting queue '%s' on vhost '%s'", args[0], d.vhost)
			return d.remove([]string{"queues", d.vhost, args[0]}, d.inVHost("queue %q", args[0]), condition{"if-empty", ifEmpty}, condition{"if-unused", ifUnused})
		}}
}

func purgeQueue(use string, rabbit bool) deed {
	return deed{use: use, short: "Drop the messages of a queue", args: cobra.ExactArgs(1), hosted: true, rabbit: rabbit,
		long:     "Drop the messages of a queue that are ready. Those that consumers have stay.",
		example:  "  warren queue purge orders\n  warren queue purge orders --yes",
		question: func(_ *deed, args []string) string { return "Drop all ready messages of queue " + args[0] + "?" },
		do: func(d *deed, args []string) error {
			d.banner("Purging queue '%s' in vhost '%s'", args[0], d.vhost)
			return d.ask("DELETE", []string{"queues", d.vhost, args[0], "contents"}, nil, nil, d.inVHost("queue %q", args[0]))
		}}
}

// getCommand shows messages as rows, as a list does.
func (p *program) getCommand() *cobra.Command {
	var show printing
	var count, truncate int
	var mode string
	d := deed{use: "get QUEUE", short: "Look at the first messages of a queue", args: cobra.ExactArgs(1), hosted: true,
		long: `Get messages from a queue and give them back, marked as redelivered, or, with --ack-mode, remove them: ack_requeue_true (the default) and
reject_requeue_true give back, ack_requeue_false and reject_requeue_false remove; a rejected message counts as failed. What is no text is shown
in base64.`,
		example: "  warren queue get orders\n  warren queue get orders --count 10 --format json\n  warren queue get orders --ack-mode ack_requeue_false",
		flags: func(_ *deed, c *cobra.Command) {
			show.flags(c)
			c.Flags().IntVar(&count, "count", 1, "how many messages")
			c.Flags().IntVar(&truncate, "truncate", 50_000, "octets of each body to show")
			c.Flags().StringVar(&mode, "ack-mode", "ack_requeue_true", "what becomes of the messages")
		},
		do: func(d *deed, args []string) error {
			var items []map[string]any
			body := map[string]any{"count": count, "ackmode": mode, "encoding": "auto", "truncate": truncate}
			if err := d.ask("POST", []string{"queues", d.vhost, args[0], "get"}, body, &items, d.inVHost("queue %q", args[0])); err != nil {
				return err
			}
			columns := []string{"exchange", "routing_key", "redelivered", "message_count", "payload_bytes", "payload", "payload_encoding", "properties"}
			rows := make([][]any, len(items))
			for i, item := range items {
				for _, column := range columns {
					rows[i] = append(rows[i], item[column])
				}
			}
			return show.print(p, columns, rows)
		}}
	return p.command(d)
}

func publishMessage() deed {
	var exchange string
	var properties, headers []string
	return deed{use: "publish KEY [PAYLOAD]", short: "Publish a message", args: cobra.RangeArgs(1, 2), hosted: true,
		long: `Publish a message to the queue KEY or, with --exchange, to an exchange with KEY as routing key, and wait until it is safe. Without PAYLOAD
the body is what comes from the input. When no queue takes it, the exit code is 65.`,
		example: `  warren queue publish orders 'hello'
  warren queue publish order.new --exchange events --property content_type=application/json --header trace=on < order.json`,
		flags: func(_ *deed, c *cobra.Command) {
			c.Flags().StringVar(&exchange, "exchange", "", "exchange to publish to (default: the default exchange)")
			c.Flags().StringArrayVar(&properties, "property", nil, "a property, as `NAME=VALUE`; repeatable (delivery_mode is 2, persistent, if nothing is said)")
			c.Flags().StringArrayVar(&headers, "header", nil, "a header, as `NAME=VALUE`; repeatable")
		},
		do: func(d *deed, args []string) error {
			body, err := messageBody(d, args)
			if err != nil {
				return err
			}
			fields, err := pairs(properties)
			if err != nil {
				return err
			}
			if _, said := fields["delivery_mode"]; !said {
				fields["delivery_mode"] = 2
			}
			for _, name := range []string{"message_id", "correlation_id", "expiration", "app_id", "type"} { // texts, even if they are digits
				if v, ok := fields[name]; ok {
					fields[name] = text(v)
				}
			}
			table, err := pairs(headers)
			if err != nil {
				return err
			}
			if len(table) > 0 {
				fields["headers"] = table
			}
			request := map[string]any{"routing_key": args[0], "properties": fields, "payload": string(body), "payload_encoding": "string"}
			if !utf8.Valid(body) {
				request["payload"], request["payload_encoding"] = base64.StdEncoding.EncodeToString(body), "base64"
			}
			var answer struct {
				Routed bool `json:"routed"`
			}
			path := append(exchangePath(d.vhost, exchange), "publish")
			if err := d.ask("POST", path, request, &answer, d.inVHost("exchange %q", exchange)); err != nil {
				return err
			}
			if !answer.Routed {
				return &failure{code: exitData, text: fmt.Sprintf("no queue takes a message with routing key %q", args[0]), remedy: "'warren binding list' shows which keys lead to a queue."}
			}
			return nil
		}}
}

func messageBody(d *deed, args []string) ([]byte, error) {
	if len(args) > 1 {
		return []byte(args[1]), nil
	}
	var b strings.Builder
	if _, err := io.Copy(&b, d.in); err != nil {
		return nil, &failure{code: exitData, text: "cannot read the message: " + err.Error(), err: err}
	}
	return []byte(b.String()), nil
}
