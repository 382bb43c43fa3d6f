// Fault kills, stops, cuts off and takes in nodes of a cluster under load, and proves from the history of all that clients saw that
// queues of all types kept their promises.
//
//	go run ./test/fault [-duration 30m] [-nodes 3] [-seed N] [-dir DIR] [-v]
//	go run ./test/fault -failover 50
//
// Nodes are processes of their own, each in a network namespace, so that the network between them can be cut in one
// direction or both. The checks are in check.go (quorum queues), classic.go and test/streams. It prints its seed; when a promise was broken it says which message broke
// which, and keeps the data directories, the nodes' logs and the history. -failover measures how long publishers wait when the
// leader of a queue is killed.
//
// It needs Linux, ip (of iproute2), and root or a kernel that lets users make namespaces.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/warrenmq/warren/test/netns"
	"github.com/warrenmq/warren/test/node"
)

func main() {
	var o options
	flag.DurationVar(&o.duration, "duration", time.Minute, "how long there are faults")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "what is random follows from it, but for what the machine does")
	flag.BoolVar(&o.verbose, "v", false, "tell of each fault")
	flag.StringVar(&o.only, "only", "", fmt.Sprintf("these kinds of faults instead of all, with commas between them: %s", strings.Join(faultNames[:], ", ")))
	nodes := flag.Int("nodes", 0, "how many nodes; 0: 3 if Warren can, otherwise 1")
	dir := flag.String("dir", "", "work in this directory and keep it")
	failovers := flag.Int("failover", 0, "instead, kill the leader of a queue so many times and measure")
	sabotage := flag.String("sabotage", "", "what is broken on purpose, in a build with -tags sabotage: "+fmt.Sprint(sabotages))
	binary := flag.String("binary", "", "a Warren that is built already")
	inside := flag.Bool("inside", false, "internal: the network is this program's own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !*inside {
		good, err := outside(ctx, o, *binary, *nodes, *dir, *failovers, *sabotage)
		if err != nil {
			fmt.Fprintln(os.Stderr, "FAILED:", err)
		}
		if err != nil || !good {
			os.Exit(1)
		}
		return
	}
	if err := within(ctx, o, *binary, *nodes, *dir, *failovers, *sabotage); err != nil {
		fmt.Println("FAILED:", err)
		os.Exit(1)
	}
}

// sabotages are what can be broken on purpose; sabotage.go of packages quorum, cluster and stream/slots say what they are.
var sabotages = []string{"confirm", "twice", "forget", "again", "differ", "clock", "commit"}

// outside builds Warren and runs this program again in a network of its own.
func outside(ctx context.Context, o options, binary string, nodes int, dir string, failovers int, sabotage string) (good bool, err error) {
	if lacks := netns.Missing("ip"); lacks != "" {
		return false, errors.New("needs " + lacks)
	}
	own := dir == ""
	if own {
		dir, err = os.MkdirTemp("", "warren-fault-")
	} else {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return false, err
	}
	if sabotage != "" && !slices.Contains(sabotages, sabotage) {
		return false, fmt.Errorf("-sabotage %s: there are %v", sabotage, sabotages)
	}
	for _, name := range strings.Split(o.only, ",") {
		if o.only != "" && !slices.Contains(faultNames[:], name) {
			return false, fmt.Errorf("-only %s: there are %s", name, strings.Join(faultNames[:], ", "))
		}
	}
	if binary == "" {
		binary = filepath.Join(dir, "warren")
		var tags []string
		if failovers == 0 {
			tags = []string{"sabotage"} // clocks and disks can go wrong in it
		}
		if err := node.Build(binary, tags...); err != nil {
			return false, err
		}
	}
	if nodes == 0 {
		if nodes = 1; clustered(binary) {
			nodes = 3
		}
	}
	fmt.Printf("seed %d, %d nodes, in %s\n", o.seed, nodes, dir)
	good, err = netns.Run(ctx, []string{"-inside", "-binary=" + binary, fmt.Sprint("-nodes=", nodes), "-dir=" + dir, fmt.Sprint("-seed=", o.seed), fmt.Sprint("-duration=", o.duration),
		fmt.Sprint("-v=", o.verbose), "-only=" + o.only, fmt.Sprint("-failover=", failovers), "-sabotage=" + sabotage})
	if own && (good || ctx.Err() != nil) {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return good, err
}

// within is the drill, where the network is.
func within(ctx context.Context, o options, binary string, nodes int, dir string, failovers int, sabotage string) error {
	c, err := newCluster(ctx, binary, dir, nodes, "WARREN_SABOTAGE="+sabotage)
	if err != nil {
		return fmt.Errorf("%w\nthe nodes' logs are in %s", err, dir)
	}
	if failovers > 0 {
		return failover(ctx, c, failovers)
	}
	h := newHistory()
	r := drill(ctx, c, h, o)
	fmt.Println(r.String())
	if err := r.err(); err != nil {
		return keep(h, dir, err)
	}
	return nil
}

// keep writes the history beside what the nodes have left.
func keep(h *history, dir string, cause error) error {
	f, err := os.Create(filepath.Join(dir, "history"))
	if err == nil {
		err = errors.Join(h.write(f), f.Close())
	}
	if err != nil {
		return fmt.Errorf("%w\n(and the history could not be kept: %v)", cause, err)
	}
	return fmt.Errorf("%w\nthe data directories, the nodes' logs and the history are in %s", cause, dir)
}
