package main

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// section is what the page says of one workload.
type section struct {
	name    string
	about   string
	peer    string   // what the peer announces, or how it is called; "" when it is not measured
	context []string // how, where and when it was measured
	void    string   // why there are no figures
	rows    []row
}

// row is one figure's line.
type row struct {
	figure  string
	outcome outcome
	aim     aim
	verdict string
}

func newSection(c *campaign, w workload, done []*round) *section {
	announced := announcedPeer(done)
	s := &section{name: w.name, about: w.about}
	if _, peer := c.sides(w); peer != nil {
		s.peer = cmp.Or(c.peerName, announced, "the peer")
	}
	for _, r := range done {
		if fault := r.fault(s.peer); fault != "" {
			s.void = fmt.Sprintf("round %d, %s", r.Number, fault)
		}
	}
	s.context = contextOf(c, w, done)
	var syncs []float64
	for _, r := range done {
		syncs = append(syncs, r.SyncTimes...)
	}
	for _, f := range w.figures {
		a := f.aim.on(syncs)
		var pairs []pair
		for _, r := range done {
			pairs = append(pairs, r.pairOf(f))
		}
		o := summarise(pairs)
		line := row{figure: f.name, outcome: o, verdict: a.verdict(o, strings.HasPrefix(announced, "RabbitMQ") && c.peerName == "")}
		if line.verdict != "" {
			line.aim = a
		}
		s.rows = append(s.rows, line)
	}
	return s
}

// announcedPeer returns the product and version that the peer announces.
func announcedPeer(done []*round) string {
	for _, r := range done {
		if r.Peer != nil && r.Peer.report != nil {
			return r.Peer.report.Broker
		}
	}
	return ""
}

// contextOf tells what is needed to judge the figures or to repeat them.
func contextOf(c *campaign, w workload, done []*round) []string {
	var loads, others, syncs []float64
	for _, r := range done {
		syncs = append(syncs, r.SyncTimes...)
		for _, s := range []*side{r.Warren, r.Peer} {
			if s == nil {
				continue
			}
			loads = append(loads, s.Load)
			if s.report != nil {
				others = append(others, 100*s.report.othersShare(runtime.NumCPU()))
			}
		}
	}
	lines := []string{
		fmt.Sprintf("%s, commit %s; %s.", c.began.UTC().Format("2006-01-02"), c.source, machine()),
		fmt.Sprintf("%s; `amqpload %s`.", plural(len(done), "round"), strings.Join(w.args(c.options), " ")),
	}
	if len(loads) > 0 {
		lines = append(lines, fmt.Sprintf("Load average %.1f to %.1f.", slices.Min(loads), slices.Max(loads)))
	}
	if len(others) > 0 {
		lines = append(lines, fmt.Sprintf("Other processes used %.0f %% of the machine (at worst %.0f %%).", median(others), slices.Max(others)))
	}
	disk := fmt.Sprintf("Append and fdatasync of 4 KiB: s50 %s ms, s99 %s ms", number(median(syncs)), number(quantile(syncs, 0.99)))
	if _, ok := c.peerServer.(*rabbitmq); ok && !sameDisk(c.build, peerDir()) {
		disk += ", on Warren's disk; the peer's is another"
	}
	return append(lines, disk+".")
}

// String returns the section in Markdown.
func (s *section) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n\n%s.\n%s\n\n", sectionMark, s.name, capital(s.about), strings.Join(s.context, "\n"))
	if s.void != "" {
		fmt.Fprintf(&b, "**Void**: %s\n", strings.Join(strings.Fields(s.void), " "))
		return b.String()
	}
	fmt.Fprintf(&b, "| figure | Warren | %s | ratio (rounds) | aim | |\n|---|---|---|---|---|---|\n", cmp.Or(s.peer, "peer"))
	for _, r := range s.rows {
		ratio := number(r.outcome.ratio)
		if ratio != "–" {
			ratio += fmt.Sprintf("× (%s to %s)", number(r.outcome.lowest), number(r.outcome.highest))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.figure, number(r.outcome.warren), number(r.outcome.peer), ratio, r.aim, r.verdict)
	}
	return b.String()
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
