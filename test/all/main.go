// All runs every test of this tree, from formatting to client programs of other languages, on what the machine has. It
// is what `make test` calls.
//
//	go run ./test/all [-strict] [part …]
//
// It ends with the outcome of each part, a list of what was left out and why, and a line "N passed, N failed, N skipped"
// for the whole. With -strict, or CI=true in the environment, anything left out is a failure.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/warrenmq/warren/test/netns"
)

// part is one kind of test.
type part struct {
	name string
	// needs names what this machine lacks for the part; empty: it can run.
	needs func() string
	run   func(context.Context, *tree) (outcome, error)
}

// The parts in the order they run: what is quick and what explains later failures comes first.
var parts = []part{
	{"format", nil, format},
	{"vet", nil, vet},
	{"unit", nil, unit},
	{"race", needsCompiler, race},
	{"drill", nil, drill},
	{"faults", func() string { return netns.Missing("ip") }, faults},
	{"conformance", nil, transcripts},
	{"clients", needsBash, clients},
	{"amqp091-go", func() string { return netns.Missing() }, amqp091},
}

// outcome is what a part found. A part that counts nothing counts as one.
type outcome struct {
	passed, failed int
	left           []string // what was left out, and why
}

func main() {
	strict := flag.Bool("strict", os.Getenv("CI") == "true", "what is left out is a failure (as with CI=true)")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "go run ./test/all [-strict] [%s]\n", strings.Join(names(), "|"))
	}
	flag.Parse()
	for _, name := range flag.Args() {
		if !slices.Contains(names(), name) {
			flag.Usage()
			os.Exit(2)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !runAll(ctx, flag.Args(), *strict) {
		os.Exit(1)
	}
}

func names() []string {
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

// runAll runs the parts with these names, or all, and reports whether all is well.
func runAll(ctx context.Context, only []string, strict bool) bool {
	t := &tree{}
	var total outcome
	var table strings.Builder
	for _, p := range parts {
		if len(only) > 0 && !slices.Contains(only, p.name) {
			continue
		}
		if ctx.Err() != nil {
			total.failed++
			fmt.Fprintf(&table, "  FAILED    %-12s interrupted\n", p.name)
			continue
		}
		if p.needs != nil {
			if lacks := p.needs(); lacks != "" {
				total.left = append(total.left, p.name+": "+lacks)
				fmt.Fprintf(&table, "  left out  %s\n", p.name)
				continue
			}
		}
		fmt.Printf("\n== %s\n", p.name)
		start := time.Now()
		o, err := p.run(ctx, t)
		if err != nil {
			fmt.Println("FAILED:", err)
		}
		switch {
		case err != nil && o.failed == 0:
			o.failed = 1
		case err == nil && o.passed == 0 && o.failed == 0 && len(o.left) == 0:
			o.passed = 1
		}
		word := "passed"
		if o.failed > 0 {
			word = "FAILED"
		}
		fmt.Fprintf(&table, "  %-9s %-12s %5d passed, %d failed, %d left out, %.0f s\n",
			word, p.name, o.passed, o.failed, len(o.left), time.Since(start).Seconds())
		total.passed, total.failed = total.passed+o.passed, total.failed+o.failed
		for _, l := range o.left {
			total.left = append(total.left, p.name+": "+l)
		}
	}

	if err := t.stop(); err != nil {
		fmt.Println("FAILED:", err)
		total.failed++
		table.WriteString("  FAILED    the broker that the parts shared\n")
	}

	fmt.Printf("\n== summary\n%s", table.String())
	if len(total.left) == 0 {
		fmt.Println("nothing was left out")
	} else {
		fmt.Println("left out:")
		for _, l := range total.left {
			fmt.Println("  " + l)
		}
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", total.passed, total.failed, len(total.left))
	if strict && len(total.left) > 0 {
		fmt.Println("FAILED: in this mode nothing may be left out")
		return false
	}
	return total.failed == 0
}
