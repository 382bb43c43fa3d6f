package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"
)

// options is the command line.
type options struct {
	workloads []string // names or their first words; none is all

	rounds      int
	duration    time.Duration
	warmup      time.Duration
	backlog     int // messages
	queues      int
	declared    int // queues of workload declare3
	connections int
	bindings    int // of the workloads topic
	get         int // messages of workload get
	stored      int // messages of the workloads stored
	passing     int // messages of workload old-unacked
	replay      int // messages of workload replay
	quick       bool

	only         string // "warren", "peer" or "" for both
	warrenBinary string
	peerBinary   string
	peerURI      string
	peerPid      int
	peerName     string
	out          string
}

const (
	onlyWarren = "warren"
	onlyPeer   = "peer"
)

func parseOptions(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("compare", flag.ExitOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "runs of each broker, in alternation")
	flags.DurationVar(&o.duration, "duration", 10*time.Second, "measured time of a run")
	flags.DurationVar(&o.warmup, "warmup", 2*time.Second, "time before that")
	flags.IntVar(&o.backlog, "backlog", 1_000_000, "messages of workload backlog")
	flags.IntVar(&o.queues, "queues", 5000, "queues of workload queues")
	flags.IntVar(&o.declared, "declared", 1000, "queues of workload declare3")
	flags.IntVar(&o.connections, "connections", 10_000, "connections of workload idle")
	flags.IntVar(&o.bindings, "bindings", 10_000, "bindings of the workloads topic")
	flags.IntVar(&o.get, "get", 100_000, "messages of workload get, at most")
	flags.IntVar(&o.stored, "stored", 10_000_000, "messages of workloads stored and stored-queues")
	flags.IntVar(&o.replay, "replay", 100_000, "messages of workload replay")
	flags.IntVar(&o.passing, "passing", 5_000_000, "messages of workload old-unacked")
	flags.BoolVar(&o.quick, "quick", false, "short runs: all workloads that have a peer in a quarter of an hour; the others only by name")
	flags.StringVar(&o.only, "only", "", "measure one side only: warren or peer")
	flags.StringVar(&o.warrenBinary, "warren", "", "a Warren binary to measure instead of building this tree")
	flags.StringVar(&o.peerBinary, "peer-binary", "", "another Warren binary as the peer, such as one built before a change")
	flags.StringVar(&o.peerURI, "peer-uri", "", "a running broker as the peer, instead of bench/rabbitmq's")
	flags.IntVar(&o.peerPid, "peer-pid", 0, "the process id of the broker under -peer-uri")
	flags.StringVar(&o.peerName, "peer-name", "", "what to call the peer; default: what it announces")
	flags.StringVar(&o.out, "out", "", "the page to write; default docs/performance.md, or build/performance.md unless both Warren and bench/rabbitmq's peer are measured")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: compare [flags] [workload ...]\n\nWorkloads (a first word means all that begin with it):\n%s\nFlags:\n", list(workloads()))
		flags.PrintDefaults()
	}
	for rest := args; len(rest) > 0; { // flags and workloads in any order
		if err := flags.Parse(rest); err != nil {
			return nil, err
		}
		if rest = flags.Args(); len(rest) > 0 {
			o.workloads, rest = append(o.workloads, rest[0]), rest[1:]
		}
	}
	if o.quick {
		o.shorten(flags)
	}
	return o, o.validate()
}

// shorten makes the runs those of -quick, except for what the command line says. The rounds stay.
func (o *options) shorten(flags *flag.FlagSet) {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{
		"duration": "1.5s", "warmup": "500ms", "backlog": "100000", "queues": "300", "declared": "300", "connections": "1000",
		"bindings": "2500", // ten thousand cost RabbitMQ twenty seconds a run to make and to delete
		"get":      "20000", "stored": "1000000", "passing": "1000000", "replay": "5000",
	} {
		if !given[name] {
			flags.Set(name, value)
		}
	}
}

func (o *options) validate() error {
	switch {
	case o.rounds < 1 || o.backlog < 1 || o.queues < 1 || o.declared < 1 || o.connections < 1 || o.bindings < 1 || o.get < 1 || o.stored < 1 || o.passing < 1 || o.replay < 1:
		return fmt.Errorf("-rounds, -backlog, -queues, -declared, -connections, -bindings, -get, -stored, -passing and -replay must be positive")
	case o.duration <= 0 || o.warmup < 0:
		return fmt.Errorf("-duration must be positive and -warmup not negative")
	case o.only != "" && o.only != onlyWarren && o.only != onlyPeer:
		return fmt.Errorf("-only: %q is neither warren nor peer", o.only)
	case (o.peerURI == "") != (o.peerPid == 0):
		return fmt.Errorf("-peer-uri and -peer-pid belong together")
	case o.peerURI != "" && o.peerBinary != "":
		return fmt.Errorf("-peer-uri and -peer-binary exclude each other")
	}
	return nil
}

// page returns the path of the page to write: the published one only for the comparison it is about.
func (o *options) page() string {
	switch {
	case o.out != "":
		return o.out
	case o.only != "" || o.warrenBinary != "" || o.peerBinary != "" || o.peerURI != "":
		return "build/performance.md"
	}
	return "docs/performance.md"
}

// quickly returns the workloads that -quick measures when none is named.
func quickly(all []workload) []workload {
	return slices.DeleteFunc(all, func(w workload) bool { return w.alone })
}

// ofNodes returns the workloads that need no cluster, for a peer that is one broker. When they were named, none may need one.
func ofNodes(chosen []workload, named bool) ([]workload, error) {
	for _, w := range chosen {
		if w.cluster && named {
			return nil, fmt.Errorf("-peer-uri is one broker; %s is measured on clusters", w.name)
		}
	}
	return slices.DeleteFunc(chosen, func(w workload) bool { return w.cluster }), nil
}

// choose returns the workloads that are named, or whose first words are; without names all.
func choose(all []workload, names []string) ([]workload, error) {
	if len(names) == 0 {
		return all, nil
	}
	used := map[string]bool{}
	var chosen []workload
	for _, w := range all {
		for _, name := range names {
			if w.name == name || strings.HasPrefix(w.name, name+"-") {
				used[name] = true
				if len(chosen) == 0 || chosen[len(chosen)-1].name != w.name {
					chosen = append(chosen, w)
				}
			}
		}
	}
	for _, name := range names {
		if !used[name] {
			return nil, fmt.Errorf("no workload %q; there are:\n%s", name, list(all))
		}
	}
	return chosen, nil
}

// list describes workloads, a line each.
func list(all []workload) string {
	var b strings.Builder
	for _, w := range all {
		fmt.Fprintf(&b, "  %-15s %s\n", w.name, w.about)
	}
	return b.String()
}
