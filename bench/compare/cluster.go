package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// clusterNodes is how many nodes a cluster has that is measured.
const clusterNodes = 3

// wholeLimit is how long a cluster may take until all its nodes work.
const wholeLimit = 60 * time.Second

// warrenCluster is a cluster of Warren nodes, on data directories that every start finds empty.
type warrenCluster struct {
	nodes []*warren
}

// newWarrenCluster returns one whose nodes' directories are in dir.
func newWarrenCluster(binary, dir string) *warrenCluster {
	c := &warrenCluster{}
	for i := range clusterNodes {
		c.nodes = append(c.nodes, &warren{binary: binary, dir: filepath.Join(dir, fmt.Sprint("node", i+1))})
	}
	return c
}

func (c *warrenCluster) uri() string {
	var uris []string
	for _, n := range c.nodes {
		uris = append(uris, n.uri())
	}
	return strings.Join(uris, ",")
}

func (c *warrenCluster) pids() (pids []int) {
	for _, n := range c.nodes {
		pids = append(pids, n.pids()...)
	}
	return pids
}

// start makes a new cluster unless all nodes run.
func (c *warrenCluster) start(ctx context.Context) error {
	if c.alive() {
		return nil
	}
	if err := c.stop(); err != nil {
		return err
	}
	if err := c.startNodes(ctx); err != nil {
		return errors.Join(err, c.stop())
	}
	return nil
}

func (c *warrenCluster) alive() bool {
	for _, n := range c.nodes {
		if !n.alive() {
			return false
		}
	}
	return true
}

func (c *warrenCluster) startNodes(ctx context.Context) error {
	secret := filepath.Join(filepath.Dir(c.nodes[0].dir), "secret")
	if err := os.MkdirAll(filepath.Dir(secret), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(secret, []byte(rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	ports, err := freeAddresses(clusterNodes)
	if err != nil {
		return err
	}
	for i, n := range c.nodes {
		n.membership = []string{"--node-name", fmt.Sprintf("warren@n%d", i+1), "--cluster-listen", ports[i], "--cluster-secret-file", secret}
		if i > 0 {
			n.membership = append(n.membership, "--join", ports[0])
		}
		if err := n.start(ctx); err != nil {
			return fmt.Errorf("node %d: %w", i+1, err)
		}
	}
	return c.awaitWhole(ctx)
}

// awaitWhole waits until each node says that it works with all replicas of all slots.
func (c *warrenCluster) awaitWhole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wholeLimit)
	defer cancel()
	for i, n := range c.nodes {
		for {
			lacks := lacking(ctx, n.http())
			if lacks == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("node %d: %w; the end of its log:\n%s", i+1, lacks, n.logTail())
			case <-time.After(greetInterval):
			}
		}
	}
	return nil
}

// clusterStatus is what is read of a node's view of its cluster.
type clusterStatus struct {
	Members []struct {
		Name string `json:"name"`
		Up   bool   `json:"up"`
	} `json:"members"`
	Slots []struct {
		Name   string   `json:"name"`
		Leader string   `json:"leader"`
		Online []string `json:"online"`
	} `json:"slots"`
}

// lacking asks a node for its cluster and tells what that lacks to be whole.
func lacking(ctx context.Context, api string) error {
	request, err := http.NewRequestWithContext(ctx, "GET", api+"/api/warren/cluster", nil)
	if err != nil {
		return err
	}
	request.SetBasicAuth("guest", "guest")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", request.URL, answer.Status)
	}
	var s clusterStatus
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		return err
	}
	return s.lacks()
}

func (s *clusterStatus) lacks() error {
	var up int
	for _, m := range s.Members {
		if m.Up {
			up++
		}
	}
	if up < clusterNodes {
		return fmt.Errorf("%d of %d members are up", up, clusterNodes)
	}
	if len(s.Slots) == 0 {
		return errors.New("there are no slots")
	}
	for _, slot := range s.Slots {
		if slot.Leader == "" || len(slot.Online) < clusterNodes {
			return fmt.Errorf("slot %s is led by %q, with %d of %d replicas online", slot.Name, slot.Leader, len(slot.Online), clusterNodes)
		}
	}
	return nil
}

// stop ends all nodes at once.
func (c *warrenCluster) stop() error {
	ended := make(chan error, len(c.nodes))
	for _, n := range c.nodes {
		go func() { ended <- n.stop() }()
	}
	var errs []error
	for range c.nodes {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}
