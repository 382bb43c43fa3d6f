package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of a run. Only URI is needed.
type Options struct {
	// URI of the broker: amqp://user:password@host:port/vhost. Missing parts are guest, guest, 5672 and "/".
	URI string
	// HTTP is the address of the management API, http://host:port; without it the cases that need it are skipped.
	HTTP string
	// Product names the broker as the transcripts do: rabbitmq or warren. Empty: the lower-case word it announces.
	Product string
	// Match selects cases by File/Name; nil selects all.
	Match *regexp.Regexp
	// Cases replaces the transcripts of the package.
	Cases []Case
	// Parallel is how many cases run at a time, 1..; 0 means 32.
	Parallel int
	// Limit is how long an expected answer may take where the transcript does not say; 0 means 20 s.
	Limit time.Duration
	// Trace keeps all frames of every case.
	Trace bool
	// Each is called with every result as it comes, from one goroutine at a time; nil is nothing.
	Each func(Result)
}

// A target is the broker as the options describe it.
type target struct {
	address, user, password, vhost string
	http                           *url.URL
	product, version               string
	id                             string // part of every name of this run
	limit                          time.Duration
	trace                          bool
}

// Run plays the selected cases against a broker. It returns an error when it cannot begin; what the broker does wrong is in
// the report. A run leaves no connection behind and deletes the queues and exchanges that its cases declared.
func Run(ctx context.Context, o Options) (Report, error) {
	started := time.Now()
	t, err := newTarget(o)
	if err != nil {
		return Report{}, err
	}
	cases := o.Cases
	if cases == nil {
		if cases, err = Cases(); err != nil {
			return Report{}, err
		}
	}
	if err := t.identify(ctx); err != nil {
		return Report{}, fmt.Errorf("no AMQP 0-9-1 broker at %s: %w", t.address, err)
	}
	if o.Product != "" {
		t.product = o.Product
	}
	report := Report{Product: t.product, Version: t.version}
	for _, c := range cases {
		if o.Match == nil || o.Match.MatchString(c.FullName()) {
			report.Results = append(report.Results, Result{Case: c})
		}
	}
	parallel := o.Parallel
	if parallel <= 0 {
		parallel = 32
	}
	next := make(chan int)
	var workers sync.WaitGroup
	var each sync.Mutex // guards the calls of o.Each
	for range min(parallel, len(report.Results)) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			j := janitor{target: t}
			defer j.close()
			for i := range next {
				r := &report.Results[i]
				j.clean(ctx, t.play(ctx, i, r))
				if o.Each != nil {
					each.Lock()
					o.Each(*r)
					each.Unlock()
				}
			}
		}()
	}
	for _, i := range longestFirst(report.Results) {
		select {
		case next <- i:
		case <-ctx.Done():
			report.Results[i].Status, report.Results[i].Reason = Skipped, "the run was stopped"
		}
	}
	close(next)
	workers.Wait()
	report.Duration = time.Since(started)
	return report, nil
}

// longestFirst orders cases by how long they must wait, so that the waits overlap with everything else.
func longestFirst(results []Result) []int {
	order := make([]int, len(results))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(waits(results[b].Case.steps), waits(results[a].Case.steps))
	})
	return order
}

func waits(steps []*step) time.Duration {
	var d time.Duration
	for _, s := range steps {
		if d += s.after; s.verb == "nothing" || s.verb == "closes" {
			d += s.limit
		}
		d += waits(s.steps) * time.Duration(max(s.count, 1))
	}
	return d
}

func newTarget(o Options) (target, error) {
	u, err := url.Parse(o.URI)
	if err != nil || u.Scheme != "amqp" || u.Hostname() == "" {
		return target{}, fmt.Errorf("%q is no amqp://host URI", o.URI)
	}
	t := target{user: "guest", password: "guest", vhost: "/", limit: o.Limit, trace: o.Trace}
	if u.User != nil {
		t.user = u.User.Username()
		t.password, _ = u.User.Password()
	}
	if len(u.Path) > 1 {
		t.vhost = u.Path[1:]
	}
	port := u.Port()
	if port == "" {
		port = "5672"
	}
	t.address = net.JoinHostPort(u.Hostname(), port)
	if o.HTTP != "" {
		if t.http, err = url.Parse(o.HTTP); err != nil {
			return target{}, err
		}
	}
	if t.limit <= 0 {
		t.limit = 20 * time.Second
	}
	var id [3]byte
	rand.Read(id[:])
	t.id = hex.EncodeToString(id[:])
	return t, nil
}

// identify asks the broker for its product and version.
func (t *target) identify(ctx context.Context) error {
	r := &run{ctx: ctx, target: *t, vars: t.variables(), log: &trace{start: time.Now()}}
	p, err := r.connect("A", nil)
	if err != nil {
		return err
	}
	defer p.end(false)
	server, _ := r.server.get("product")
	name, _ := server.(string)
	t.product = strings.ToLower(name)
	version, _ := r.server.get("version")
	t.version, _ = version.(string)
	return nil
}

func (t *target) variables() scope {
	return scope{"vhost": t.vhost, "user": t.user, "password": t.password}
}

// play runs one case, fills its result and returns the names it may have declared.
func (t *target) play(ctx context.Context, index int, result *Result) []string {
	c := result.Case
	if reason, ok := c.skip[t.product]; ok {
		result.Status, result.Reason = Skipped, reason
		return nil
	}
	if c.http && t.http == nil {
		result.Status, result.Reason = Skipped, "needs the management API, whose address was not given"
		return nil
	}
	log := &trace{start: time.Now(), all: t.trace}
	r := &run{ctx: ctx, target: *t, index: index, vars: t.variables(), log: log, peers: map[string]*peer{}, mark: time.Now()}
	err := r.steps(c.steps)
	if err == nil {
		err = r.finish()
	}
	for _, p := range r.peers {
		p.end(false)
	}
	result.Status, result.Duration = Passed, time.Since(log.start)
	if err != nil {
		var at lineError
		if !errors.As(err, &at) {
			at = lineError{c.Line, err}
		}
		result.Status, result.Err = Failed, fmt.Errorf("transcripts/%s.txt:%d: %w", c.File, at.line, at.err)
	}
	if err != nil || t.trace {
		result.Frames = log.tail()
	}
	return r.declared
}

// A lineError is an error at a line of a transcript.
type lineError struct {
	line int
	err  error
}

func (e lineError) Error() string { return fmt.Sprintf("%d: %v", e.line, e.err) }
func (e lineError) Unwrap() error { return e.err }

// A janitor deletes what cases declared, over a connection of its own, and what they put over HTTP.
type janitor struct {
	target target
	run    *run
	peer   *peer
}

func (j *janitor) clean(ctx context.Context, names []string) {
	for _, name := range names {
		kind, name, _ := strings.Cut(name, " ")
		if kind == "http" {
			j.target.delete(ctx, name)
			continue
		}
		if j.peer == nil {
			j.run = &run{ctx: ctx, target: j.target, vars: j.target.variables(), log: &trace{start: time.Now()}, peers: map[string]*peer{}}
			p, err := j.run.connect("A", nil)
			if err != nil {
				return
			}
			j.peer, j.run.peers["A"] = p, p
		}
		m := message{spec: methodsByName[kind+".delete"], values: map[string]any{kind: name}}
		if _, err := j.run.call(j.peer, 1, m, j.target.limit); err != nil {
			j.close()
		}
	}
}

func (j *janitor) close() {
	if j.peer != nil {
		j.peer.end(false)
		j.peer = nil
	}
}
