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

// campaign is one call of the program: the two brokers and the rounds so far.
type campaign struct {
	*options
	*house
	log io.Writer

	amqpload     string
	warrenServer broker // nil when it is not measured
	peerServer   broker
	began        time.Time
	source       string // the commit
	measured     []*round
}

// open builds and starts what is to be measured.
func (c *campaign) open(ctx context.Context) (err error) {
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
	}
	if c.only != onlyWarren {
		c.peerServer = c.choosePeer()
	}
	for _, b := range c.brokers() {
		if err := b.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *campaign) choosePeer() broker {
	switch {
	case c.peerURI != "":
		return &given{c.peerURI, c.peerPid}
	case c.peerBinary != "":
		return &warren{binary: c.peerBinary, dir: filepath.Join(c.build, "peer-node")}
	}
	return &rabbitmq{script: filepath.Join(c.root, "bench", "rabbitmq")}
}

// brokers returns those that are measured, in the order of a round.
func (c *campaign) brokers() (measured []broker) {
	for _, b := range []broker{c.warrenServer, c.peerServer} {
		if b != nil {
			measured = append(measured, b)
		}
	}
	return measured
}

func (c *campaign) close() {
	for _, b := range c.brokers() {
		if err := b.stop(); err != nil {
			fmt.Fprintln(c.log, "compare:", err)
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
	for n := 1; n <= w.roundsOf(c.options); n++ {
		r := &round{Workload: w.name, Arguments: w.args(c.options), Number: n, Started: time.Now()}
		if r.SyncTimes, err = syncTimes(c.build, syncsEach); err != nil {
			return nil, err
		}
		if c.warrenServer != nil {
			r.Warren = c.runSide(ctx, w, r, c.warrenServer)
			c.note(r, "warren", r.Warren)
		}
		if c.peerServer != nil && !w.alone {
			r.Peer = c.runSide(ctx, w, r, c.peerServer)
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
