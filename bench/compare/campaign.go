package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// campaign is one call of the program: the two brokers, once as a node and once as a cluster, and the rounds so far.
type campaign struct {
	*options
	*house
	log io.Writer

	amqpload      string
	warrenServer  broker // nil when it is not measured
	peerServer    broker
	warrenCluster broker
	peerCluster   broker
	began         time.Time
	source        string // the commit
	measured      []*round
}

// open builds what is to be measured, and starts what the first of the workloads needs.
func (c *campaign) open(ctx context.Context, chosen []workload) (err error) {
	c.began, c.source = time.Now(), c.commit()
	if c.amqpload, err = c.compile(ctx, "./bench/amqpload", "amqpload"); err != nil {
		return err
	}
	if c.only != onlyPeer {
		binary := c.warrenBinary
		if binary != "" {
			c.source += ", Warren from " + binary
		} else if binary, err = c.compile(ctx, ".", "warren"); err != nil {
			return err
		}
		c.warrenServer = &warren{binary: binary, dir: filepath.Join(c.build, "warren-node")}
		c.warrenCluster = newWarrenCluster(binary, filepath.Join(c.build, "warren-cluster"))
	}
	if c.only != onlyWarren {
		c.choosePeer()
	}
	warren, peer := c.sides(chosen[0])
	for _, b := range []broker{warren, peer} {
		if b != nil {
			if err := b.start(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *campaign) choosePeer() {
	switch {
	case c.peerURI != "":
		c.peerServer = &given{c.peerURI, c.peerPid} // and none for clusters: see ofNodes
	case c.peerBinary != "":
		c.peerServer = &warren{binary: c.peerBinary, dir: filepath.Join(c.build, "peer-node")}
		c.peerCluster = newWarrenCluster(c.peerBinary, filepath.Join(c.build, "peer-cluster"))
	default:
		script := filepath.Join(c.root, "bench", "rabbitmq")
		c.peerServer, c.peerCluster = &rabbitmq{script: script}, &rabbitmq{script: script, three: true}
	}
}

// sides returns what a workload measures, in the order of a round; nil is none.
func (c *campaign) sides(w workload) (warren, peer broker) {
	warren, peer = c.warrenServer, c.peerServer
	if w.cluster {
		warren, peer = c.warrenCluster, c.peerCluster
	}
	if w.alone {
		peer = nil
	}
	return warren, peer
}

// rest stops what a workload does not measure. Nodes and clusters do not run at once: they would take time from each other, and
// RabbitMQ's take the same ports.
func (c *campaign) rest(w workload) error {
	others := []broker{c.warrenCluster, c.peerCluster}
	if w.cluster {
		others = []broker{c.warrenServer, c.peerServer}
	}
	for _, b := range others {
		if b != nil {
			if err := b.stop(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *campaign) close() {
	for _, b := range []broker{c.warrenServer, c.peerServer, c.warrenCluster, c.peerCluster} {
		if b != nil {
			if err := b.stop(); err != nil {
				fmt.Fprintln(c.log, "compare:", err)
			}
		}
	}
}

// run measures the workloads and writes the page after each, so that an interruption loses one at most.
func (c *campaign) run(ctx context.Context, chosen []workload) error {
	var void []string
	for _, w := range chosen {
		done, err := c.measure(ctx, w)
		if err != nil {
			return err
		}
		s := newSection(c, w, done)
		if s.void != "" {
			void = append(void, w.name)
		}
		if err := c.write(s); err != nil {
			return err
		}
		fmt.Fprintf(c.log, "\n%s\n", s)
	}
	fmt.Fprintf(c.log, "written: %s and %s\n", c.page(), c.rawPath())
	if len(void) > 0 {
		return fmt.Errorf("void: %s", strings.Join(void, ", "))
	}
	return nil
}

// measure runs a workload's rounds; it ends early at a round that makes the workload void.
func (c *campaign) measure(ctx context.Context, w workload) (done []*round, err error) {
	if err := c.rest(w); err != nil {
		return nil, err
	}
	warren, peer := c.sides(w)
	for n := 1; n <= w.roundsOf(c.options); n++ {
		r := &round{Workload: w.name, Arguments: w.args(c.options), Number: n, Started: time.Now()}
		if r.SyncTimes, err = syncTimes(c.build, syncsEach); err != nil {
			return nil, err
		}
		if warren != nil {
			r.Warren = c.runSide(ctx, w, r, warren)
			c.note(r, "warren", r.Warren)
		}
		if peer != nil {
			r.Peer = c.runSide(ctx, w, r, peer)
			c.note(r, "peer", r.Peer)
		}
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
		done = append(done, r)
		c.measured = append(c.measured, r)
		if r.fault("peer") != "" {
			break
		}
	}
	return done, nil
}

// runSide runs the load once. A broker that fails is stopped: what it holds must not burden the next
// run, and the next start gives a Warren node an empty data directory.
func (c *campaign) runSide(ctx context.Context, w workload, r *round, b broker) *side {
	s := &side{}
	if w.fresh {
		if err := b.stop(); err != nil {
			s.Error = err.Error()
			return s
		}
	}
	err := b.start(ctx)
	if err == nil {
		s.report, s.Raw, err = load(ctx, c.amqpload, b, r.Arguments)
	}
	s.Load = loadAverage()
	if err != nil {
		s.Error = err.Error()
		if err := b.stop(); err != nil {
			s.Error += "; " + err.Error()
		}
	}
	return s
}

func (c *campaign) note(r *round, who string, s *side) {
	text := s.Error
	if s.report != nil {
		if text = s.report.faults(); text == "" {
			for _, p := range s.report.Phases {
				text += fmt.Sprintf(" %s %s/s, %s per CPU-s;", p.Name, number(p.rate()), number(p.PerCPUSecond))
			}
		}
	}
	fmt.Fprintf(c.log, "%-15s round %d  %-6s %s\n", r.Workload, r.Number, who, strings.TrimSpace(strings.TrimSuffix(text, ";")))
}

func (c *campaign) rawPath() string {
	return filepath.Join("build", "compare", "rounds-"+c.began.UTC().Format("20060102-150405")+".json")
}

// write brings the page and the raw rounds up to date.
func (c *campaign) write(s *section) error {
	raw, err := json.MarshalIndent(map[string]any{
		"began": c.began, "commit": c.source, "machine": machine(), "rounds": c.measured,
	}, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.root, c.rawPath()), raw, 0o644); err != nil {
		return err
	}
	path := c.page()
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.root, path)
	}
	return updatePage(path, s)
}
