package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func (p *program) streamCommand() *cobra.Command {
	return group("stream", "Streams: read them, move consumers back and forth, pass over damage",
		`  warren stream status events
  warren stream read events --from 1h --count 10
  warren stream offsets list events
  warren stream offsets set events billing 2026-01-02T15:00:00Z`,
		p.command(streamStatus()), p.streamReadCommand(), p.streamOffsetsCommand(), p.command(streamSkip()), p.command(streamRecover()))
}

const places = `A place is an offset (negative: from the end), first, last, next, an interval such as 90s, 5m, 1h or 7D, which is so long ago, or a
time such as 2026-01-02T15:04:05Z.`

// streamPath is a path below that of a stream.
func (d *deed) streamPath(queue string, more ...string) []string {
	return append([]string{"warren", "streams", d.vhost, queue}, more...)
}

// streamPlace is a place as the API takes it: digits are an offset.
func streamPlace(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return text
}

func streamStatus() deed {
	var format string
	return deed{use: "status QUEUE", short: "Show what a stream has, and what of it is damaged", args: cobra.ExactArgs(1), hosted: true,
		long:    "Show which offsets a stream has, its segments and readers, and what of it cannot be read.",
		example: "  warren stream status events\n  warren stream status events --format json",
		flags:   func(_ *deed, c *cobra.Command) { c.Flags().StringVar(&format, "format", "", "table or json") },
		do: func(d *deed, args []string) error {
			if err := tableOrJSON(format); err != nil {
				return err
			}
			var s struct {
				First    uint64 `json:"first_offset"`
				Next     uint64 `json:"next_offset"`
				Bytes    int64  `json:"bytes"`
				Segments int    `json:"segments"`
				LastTime int64  `json:"last_timestamp_ms"`
				Readers  int    `json:"readers"`
				Names    int    `json:"names"`
				Leader   string `json:"leader"`
				Damage   []struct {
					From   uint64 `json:"from"`
					To     uint64 `json:"to"`
					File   string `json:"file"`
					Reason string `json:"reason"`
				} `json:"damage"`
				SkipTo  uint64 `json:"skip_damage_below"`
				Broken  string `json:"broken,omitempty"`
				Mending string `json:"mending,omitempty"`
			}
			if err := d.ask("GET", d.streamPath(args[0]), nil, &s, d.inVHost("stream %q", args[0])); err != nil {
				return err
			}
			if format == "json" {
				return printJSON(d.out, s)
			}
			fmt.Fprintf(d.out, "offsets   %d to %d\nmessages  %d in %s, %d octets\nreaders   %d on this node, %d named\n",
				s.First, s.Next, s.Next-s.First, count(s.Segments, "segment"), s.Bytes, s.Readers, s.Names)
			switch {
			case s.Mending != "":
				fmt.Fprintf(d.out, "mending   %s\n", s.Mending)
			case s.Broken != "":
				fmt.Fprintf(d.out, "stopped   %s; 'warren stream recover %s' has it go on without\n", s.Broken, args[0])
			}
			for _, x := range s.Damage {
				told := "readers stop there"
				switch {
				case x.From < s.SkipTo:
					told = "readers pass over it"
				case s.Mending != "":
					told = "readers wait there"
				}
				fmt.Fprintf(d.out, "damage    offsets %d to %d: %s: %s; %s\n", x.From, x.To, x.File, x.Reason, told)
			}
			return nil
		}}
}

func (p *program) streamReadCommand() *cobra.Command {
	var show printing
	var from, to string
	var filters []string
	var unfiltered bool
	var number, truncate int
	return p.command(deed{use: "read QUEUE", short: "Read messages of a stream from any place", args: cobra.ExactArgs(1), hosted: true,
		long:    "Read messages of a stream, without any effect on it or its consumers.\n\n" + places,
		example: "  warren stream read events --from first\n  warren stream read events --from 1h --to 30m --filter invoices --format jsonl\n  warren stream read events --from -10",
		flags: func(_ *deed, c *cobra.Command) {
			show.flags(c)
			c.Flags().StringVar(&from, "from", "first", "the `PLACE` to begin at")
			c.Flags().StringVar(&to, "to", "", "the `PLACE` to end before (default: what there is now)")
			c.Flags().StringArrayVar(&filters, "filter", nil, "only chunks with this filter value; repeatable")
			c.Flags().BoolVar(&unfiltered, "match-unfiltered", false, "with --filter, also chunks with messages that have no value")
			c.Flags().IntVar(&number, "count", 100, "how many messages at the most")
			c.Flags().IntVar(&truncate, "truncate", 50_000, "octets of each body to show")
		},
		do: func(d *deed, args []string) error {
			columns := []string{"offset", "timestamp", "exchange", "routing_key", "payload_bytes", "payload", "payload_encoding", "properties"}
			var rows [][]any
			body := map[string]any{"from": streamPlace(from), "truncate": truncate, "filter": filters, "match_unfiltered": unfiltered}
			if len(filters) == 0 {
				delete(body, "filter")
			}
			if to != "" {
				body["to"] = streamPlace(to)
			}
			for len(rows) < number {
				body["count"] = min(number-len(rows), 1000)
				var page struct {
					Messages []map[string]any `json:"messages"`
					Next     json.Number      `json:"next_offset"`
					End      bool             `json:"end"`
					Removed  uint64           `json:"removed_by_retention"`
				}
				if err := d.ask("POST", d.streamPath(args[0], "messages"), body, &page, d.inVHost("stream %q", args[0])); err != nil {
					return err
				}
				if page.Removed > 0 {
					fmt.Fprintf(d.err, "%s removed by retention before they were read\n", count(int(page.Removed), "message"))
				}
				for _, m := range page.Messages {
					row := make([]any, len(columns))
					for i, column := range columns {
						row[i] = m[column]
					}
					rows = append(rows, row)
				}
				if page.End || len(page.Messages) == 0 {
					break
				}
				body["from"] = page.Next
			}
			return show.print(p, columns, rows)
		}})
}

func (p *program) streamOffsetsCommand() *cobra.Command {
	return group("offsets", "Committed offsets of consumers that name themselves",
		"  warren stream offsets list events\n  warren stream offsets set events billing 1h\n  warren stream offsets reset events billing",
		p.streamOffsetsList(), p.command(streamOffsetsSet()), p.command(streamOffsetsReset()))
}

func (p *program) streamOffsetsList() *cobra.Command {
	var show printing
	return p.command(deed{use: "list QUEUE", short: "List committed offsets, and how far their consumers lag", args: cobra.ExactArgs(1), hosted: true,
		long:    "List the committed offsets of a stream: the offset that each named consumer reads next, how many messages it has not read, and how far it lags in time.",
		example: "  warren stream offsets list events\n  warren stream offsets list events --format json",
		flags:   func(_ *deed, c *cobra.Command) { show.flags(c) },
		do: func(d *deed, args []string) error {
			var items []map[string]any
			if err := d.ask("GET", d.streamPath(args[0], "offsets"), nil, &items, d.inVHost("stream %q", args[0])); err != nil {
				return err
			}
			columns := []string{"name", "offset", "lag", "lag_ms", "committed_at", "online"}
			rows := make([][]any, len(items))
			for i, item := range items {
				for _, column := range columns {
					rows[i] = append(rows[i], item[column])
				}
			}
			return show.print(p, columns, rows)
		}})
}

func streamOffsetsSet() deed {
	return deed{use: "set QUEUE NAME PLACE", short: "Move the committed offset of a consumer", args: cobra.ExactArgs(3), hosted: true,
		long: `Move the committed offset of a named consumer, back or forth. If the consumer is there, it is cancelled, and begins at the new place when it
subscribes again.

` + places,
		example: "  warren stream offsets set events billing 1h\n  warren stream offsets set events billing 2026-01-02T15:04:05Z\n  warren stream offsets set events billing first",
		do: func(d *deed, args []string) error {
			var answer struct {
				Offset uint64 `json:"offset"`
			}
			body := map[string]any{"to": streamPlace(args[2])}
			if err := d.ask("PUT", d.streamPath(args[0], "offsets", args[1]), body, &answer, d.inVHost("stream %q", args[0])); err != nil {
				return err
			}
			fmt.Fprintf(d.out, "%s reads offset %d next\n", args[1], answer.Offset)
			return nil
		}}
}

func streamOffsetsReset() deed {
	return deed{use: "reset QUEUE NAME", short: "Forget the committed offset of a consumer", args: cobra.ExactArgs(2), hosted: true,
		long:    "Forget the committed offset of a named consumer. If the consumer is there, it is cancelled. When it comes again it begins as one that was never there.",
		example: "  warren stream offsets reset events billing\n  warren stream offsets reset events billing --yes",
		question: func(_ *deed, args []string) string {
			return "Forget where " + args[1] + " is in stream " + args[0] + "?"
		},
		do: func(d *deed, args []string) error {
			return d.ask("DELETE", d.streamPath(args[0], "offsets", args[1]), nil, nil, d.inVHost("committed offset of %q in stream %q", args[1], args[0]))
		}}
}

func streamSkip() deed {
	var below uint64
	return deed{use: "skip QUEUE", short: "Have readers pass over damage", args: cobra.ExactArgs(1), hosted: true,
		long: `Have readers of this node pass over what is damaged below an offset, now and later. What is whole there they still read. Without this a reader
that meets damage is cancelled, and would meet it again. 'warren stream status' shows what is damaged; --below 0 undoes it.`,
		example:  "  warren stream skip events --below 120000",
		question: func(_ *deed, args []string) string { return "Pass over damage in stream " + args[0] + "?" },
		flags: func(_ *deed, c *cobra.Command) {
			c.Flags().Uint64Var(&below, "below", 0, "the offset up to which damage is passed over")
			_ = c.MarkFlagRequired("below") // it is there
		},
		do: func(d *deed, args []string) error {
			return d.ask("PUT", d.streamPath(args[0], "skip"), map[string]any{"below": below}, nil, d.inVHost("stream %q", args[0]))
		}}
}

func streamRecover() deed {
	return deed{use: "recover QUEUE", short: "Have a stream that lost its end go on without", args: cobra.ExactArgs(1), hosted: true,
		long: `Have a stream go on that takes nothing any more because the end of its files is missing. Offsets of what is lost are given again, and consumers
that had read further are moved back.`,
		example:  "  warren stream recover events",
		question: func(_ *deed, args []string) string { return "Have stream " + args[0] + " go on without what it lost?" },
		do: func(d *deed, args []string) error {
			var answer struct {
				Next uint64 `json:"next_offset"`
			}
			if err := d.ask("POST", d.streamPath(args[0], "recover"), map[string]any{}, &answer, d.inVHost("stream %q", args[0])); err != nil {
				return err
			}
			fmt.Fprintf(d.out, "%s goes on at offset %d\n", strings.TrimSpace(args[0]), answer.Next)
			return nil
		}}
}
