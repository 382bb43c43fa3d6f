package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// printing is how a command shows its rows.
type printing struct {
	format        string
	quiet, silent bool
	noHeaders     bool
	columns       []string
	banner        string // RabbitMQ's tools say first what they list
	rabbit        bool   // in their place: tab-separated text is the default, and is called table
}

func (o *printing) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.format, "format", "", "table, tsv, csv, json or jsonl (default: table on a terminal, tsv in a pipe)")
	f.StringVar(&o.format, "formatter", "", "the same, under the name of RabbitMQ's tools")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no banner")
	f.BoolVarP(&o.silent, "silent", "s", false, "no banner and no line of column names")
	f.BoolVar(&o.noHeaders, "no-table-headers", false, "no line of column names")
	_ = f.MarkHidden("formatter")
}

// kind is the format to use.
func (o *printing) kind(terminal bool) (string, error) {
	switch o.format {
	case "tsv", "csv", "json", "jsonl":
		return o.format, nil
	case "json_stream":
		return "jsonl", nil
	case "pretty_table":
		return "table", nil
	case "table":
		if o.rabbit {
			return "tsv", nil
		}
		return "table", nil
	case "":
		if terminal && !o.rabbit {
			return "table", nil
		}
		return "tsv", nil
	}
	return "", usage("there is no format %q; formats are table, tsv, csv, json and jsonl", o.format)
}

// print writes rows. Each row has a value for each column: texts, json.Numbers, truth values, nil, or what JSON has besides.
func (o *printing) print(p *program, columns []string, rows [][]any) error {
	kind, err := o.kind(p.terminal)
	if err != nil {
		return err
	}
	switch kind {
	case "json":
		return printJSON(p.out, objects(columns, rows))
	case "jsonl":
		for _, object := range objects(columns, rows) {
			if err := printJSON(p.out, object); err != nil {
				return err
			}
		}
		return nil
	}
	if o.banner != "" && !o.quiet && !o.silent && kind != "csv" {
		fmt.Fprintln(p.out, o.banner)
	}
	var lines [][]string
	if !o.silent && !o.noHeaders {
		lines = append(lines, columns)
	}
	for _, row := range rows {
		line := make([]string, len(row))
		for i, v := range row {
			if line[i] = text(v); o.rabbit {
				line[i] = erlangList(v, line[i])
			}
		}
		lines = append(lines, line)
	}
	switch kind {
	case "csv":
		w := csv.NewWriter(p.out)
		_ = w.WriteAll(lines)
		return w.Error()
	case "tsv":
		return printTabbed(p.out, lines)
	}
	return printTable(p.out, lines, rows)
}

// printTabbed separates with tabs; tabs and ends of lines in values become spaces.
func printTabbed(out io.Writer, lines [][]string) error {
	clean := strings.NewReplacer("\t", " ", "\n", " ", "\r", " ")
	var b strings.Builder
	for _, line := range lines {
		for i, cell := range line {
			if i > 0 {
				b.WriteByte('\t')
			}
			clean.WriteString(&b, cell)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// printTable pads the columns; those of numbers are flush right.
func printTable(out io.Writer, lines [][]string, rows [][]any) error {
	if len(lines) == 0 {
		return nil
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	right := make([]bool, len(widths))
	for i := range right {
		right[i] = len(rows) > 0 && !slices.ContainsFunc(rows, func(row []any) bool { _, number := row[i].(json.Number); return !number })
	}
	var b strings.Builder
	for _, line := range lines {
		start := b.Len()
		for i, cell := range line {
			if i > 0 {
				b.WriteString("  ")
			}
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case right[i]:
				b.WriteString(padding + cell)
			case i == len(line)-1:
				b.WriteString(cell)
			default:
				b.WriteString(cell + padding)
			}
		}
		if b.Len() > start {
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// object is a JSON object that keeps the order of its members.
type object struct {
	columns []string
	row     []any
}

func objects(columns []string, rows [][]any) []object {
	list := make([]object, len(rows))
	for i, row := range rows {
		list[i] = object{columns, row}
	}
	return list
}

func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, name := range o.columns {
		if i > 0 {
			b = append(b, ',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(o.row[i])
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, key...), ':'), value...)
	}
	return append(b, '}'), nil
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// text is a value as a cell.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return fmt.Sprint(v)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// erlangList is a list of texts as RabbitMQ's tools print it, without quotes; otherwise is what stands for anything else.
func erlangList(v any, otherwise string) string {
	list, ok := v.([]any)
	if !ok {
		return otherwise
	}
	words := make([]string, len(list))
	for i := range list {
		if words[i], ok = list[i].(string); !ok {
			return otherwise
		}
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// choose finds out which columns are wanted: those of --columns or those named as arguments, commas tolerated, or the usual ones.
func choose(flag []string, args []string, known, usual []string) ([]string, error) {
	var chosen []string
	for _, text := range append(slices.Clone(flag), args...) {
		for name := range strings.SplitSeq(text, ",") {
			if name = strings.TrimSpace(name); name == "" {
				continue
			}
			if !slices.Contains(known, name) {
				return nil, &failure{code: exitData, text: fmt.Sprintf("there is no column %q", name), remedy: "Columns are: " + strings.Join(known, ", ")}
			}
			chosen = append(chosen, name)
		}
	}
	if chosen == nil {
		return usual, nil
	}
	return chosen, nil
}
