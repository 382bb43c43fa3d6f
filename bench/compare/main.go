// Compare runs the load generator against Warren and a peer in alternation and writes down what came of it.
//
// It builds and starts what it measures, takes medians over rounds and the ratio of each pair of runs,
// and notes beside them what else the machine was doing. It never reports a figure of a run that lost,
// repeated, disordered or invented a message: such a row is void, and the program fails.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	chosen, err := choose(workloads(), o.workloads)
	if err != nil {
		return err
	}
	if o.quick && len(o.workloads) == 0 {
		chosen = quickly(chosen)
	}
	if o.peerURI != "" {
		if chosen, err = ofNodes(chosen, len(o.workloads) > 0); err != nil {
			return err
		}
	}
	h, err := openHouse()
	if err != nil {
		return err
	}
	c := &campaign{options: o, house: h, log: os.Stderr}
	defer c.close()
	if err := c.open(ctx, chosen); err != nil {
		return err
	}
	return c.run(ctx, chosen)
}
