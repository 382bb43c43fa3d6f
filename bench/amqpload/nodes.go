package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// spreadLimit is how long a declaration may take to reach all nodes.
const spreadLimit = 20 * time.Second

func (w *workload) spreadLimit() time.Duration { return cmp.Or(w.spread, spreadLimit) }

// nodes is how many nodes of a cluster the load is spread over.
func (w *workload) nodes() int { return 1 + len(w.others) }

// at returns the address of node i, counted round and round.
func (w *workload) at(i int) endpoint {
	if i %= w.nodes(); i > 0 {
		return w.others[i-1]
	}
	return w.endpoint
}

// consumerAt returns the address of consumer i, whose queue is declared at node i. Over rounds each node's queues have consumers at
// all nodes alike.
func (w *workload) consumerAt(i int) endpoint { return w.at(i + i/w.nodes()) }

// parseEndpoints reads URIs between commas.
func parseEndpoints(uris string) (first endpoint, others []endpoint, err error) {
	for i, uri := range strings.Split(uris, ",") {
		e, err := parseEndpoint(uri)
		if err != nil {
			return first, nil, err
		}
		if i == 0 {
			first = e
		} else {
			others = append(others, e)
		}
	}
	return first, others, nil
}

// parsePids reads process ids between commas; "" is none.
func parsePids(list string) (pids []int, err error) {
	for _, word := range strings.Split(list, ",") {
		if list == "" {
			break
		}
		pid, err := strconv.Atoi(word)
		if err != nil || pid <= 0 {
			return nil, fmt.Errorf("-pid: %q is no process id", word)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// onEach deals n things to the nodes in turn and calls do for each node with a connection and its things. The first node's is c.
// What deletes and declares the same queue must do both at one node: another may still have it when the deletion is answered.
func (w *workload) onEach(c *conn, n int, do func(c *conn, share []int) error) error {
	for node := range w.nodes() {
		var share []int
		for i := node; i < n; i += w.nodes() {
			share = append(share, i)
		}
		if err := w.onNode(c, node, share, do); err != nil {
			return err
		}
	}
	return nil
}

func (w *workload) onNode(c *conn, node int, share []int, do func(c *conn, share []int) error) error {
	if node == 0 {
		return do(c, share)
	}
	other, err := dial(w.at(node))
	if err != nil {
		return err
	}
	defer other.Close()
	return do(other, share)
}

// awaitEverywhere waits until all nodes but the first know what ask asks for with a passive declare.
func (w *workload) awaitEverywhere(ask func(*conn) error) error {
	for node := 1; node < w.nodes(); node++ {
		if err := awaitKnown(w.at(node), w.spreadLimit(), ask); err != nil {
			return err
		}
	}
	return nil
}

// awaitKnown waits, at most for limit, until a node knows what ask asks for.
func awaitKnown(e endpoint, limit time.Duration, ask func(*conn) error) error {
	for end := time.Now().Add(limit); ; time.Sleep(pollInterval) {
		c, err := dial(e)
		if err != nil {
			return err
		}
		err = ask(c)
		c.Close()
		switch {
		case err == nil:
			return nil
		case !notFound(err):
			return err
		case time.Now().After(end):
			return fmt.Errorf("%s: after %v: %w", e.address, limit, err)
		}
	}
}

// notFound reports whether a broker said that it does not know what was asked for.
func notFound(err error) bool {
	var closed *closeError
	return errors.As(err, &closed) && closed.code == 404
}
