package main

import (
	"fmt"
	"os"
	"sync"

	"github.com/warrenmq/warren/test/netns"
)

// network gives each node a namespace, joined by a router, which is this program's own namespace:
//
//	node 1  10.77.1.2 ── 10.77.1.1 ┐
//	node 2  10.77.2.2 ── 10.77.2.1 ┼ this program
//	node 3  10.77.3.2 ── 10.77.3.1 ┘
//
// What one node sends to another is forwarded, or silently dropped: in each direction by itself, as on a cable that is cut.
// This program reaches all nodes all the time.
type network struct {
	nodes []*netns.Namespace

	mu   sync.Mutex // guards what follows, and the rules of the router
	cuts map[[2]int]int
}

// newNetwork is called in a namespace of its own.
func newNetwork(n int) (*network, error) {
	w := &network{cuts: map[[2]int]int{}}
	if err := netns.RaiseLoopback(); err != nil {
		return nil, err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return nil, err
	}
	var here *netns.Namespace
	for i := 1; i <= n; i++ {
		there, err := netns.New()
		if err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, there)
		for _, step := range []struct {
			where *netns.Namespace
			what  string
		}{
			{there, fmt.Sprintf("link add name eth0 type veth peer name node%d netns %d", i, os.Getpid())},
			{there, fmt.Sprintf("addr add %s/24 dev eth0", host(i))},
			{there, "link set dev eth0 up"},
			{here, fmt.Sprintf("addr add 10.77.%d.1/24 dev node%d", i, i)},
			{here, fmt.Sprintf("link set dev node%d up", i)},
			{there, fmt.Sprintf("route add default via 10.77.%d.1", i)},
		} {
			if err := step.where.IP("%s", step.what); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

// host is the address of a node, counted from 1.
func host(node int) string { return fmt.Sprintf("10.77.%d.2", node) }

// cut drops all that a node sends to another, until it is healed as often.
func (w *network) cut(from, to int) error { return w.change(from, to, 1) }

func (w *network) heal(from, to int) error { return w.change(from, to, -1) }

func (w *network) change(from, to, by int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := [2]int{from, to}
	before := w.cuts[k]
	w.cuts[k] += by
	what := "add"
	switch {
	case before == 0 && by > 0:
	case before == 1 && by < 0:
		what = "del"
	default:
		return nil
	}
	var here *netns.Namespace
	return here.IP("rule %s from %s to %s blackhole", what, host(from), host(to))
}
