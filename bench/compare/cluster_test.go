package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wholeStatus is what a node of a whole cluster says of it.
const wholeStatus = `{"members":[{"name":"a","up":true},{"name":"b","up":true},{"name":"c","up":true}],
 "slots":[{"name":"metadata","leader":"a","online":["a","b","c"]},{"name":"0","leader":"b","online":["a","b","c"]}]}`

func TestClusterIsAwaitedWhole(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"", ""}:                            "",
		{`"b","up":true`, `"b","up":false`}: "2 of 3 members",
		{`"leader":"b"`, `"leader":""`}:     `slot 0 is led by ""`,
		{`"leader":"b","online":["a","b"`, `"leader":"b","online":["a"`}: "2 of 3 replicas",
		{`"slots"`, `"others"`}: "no slots",
	} {
		var s clusterStatus
		if err := json.Unmarshal([]byte(strings.Replace(wholeStatus, change[0], change[1], 1)), &s); err != nil {
			t.Fatal(err)
		}
		if err := s.lacks(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", change, err, want)
		}
	}
}

func clusterStandIn(t *testing.T, does string) *warrenCluster {
	w := standIn(t, does)
	c := newWarrenCluster(w.binary, filepath.Join(w.dir, "cluster"))
	t.Cleanup(func() { c.stop() })
	return c
}

func TestWarrenClusterStartsAndStops(t *testing.T) {
	c := clusterStandIn(t, "serve")
	if err := c.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	first := c.pids()
	if !allRunning(first, 3) || len(strings.Split(c.uri(), ",")) != 3 {
		t.Errorf("processes %v at %s", first, c.uri())
	}
	founder := argument(c.nodes[0].started, "--cluster-listen")
	for i, n := range c.nodes {
		if join := argument(n.started, "--join"); founder == "" || (join == founder) != (i > 0) || join == "" && i > 0 {
			t.Errorf("node %d joins %q, the founder listens at %q", i+1, join, founder)
		}
		if secret := readText(argument(n.started, "--cluster-secret-file")); len(secret) < 20 {
			t.Errorf("node %d has the secret %q", i+1, secret)
		}
		for _, other := range c.nodes[:i] {
			if other.dataDir() == n.dataDir() || argument(other.started, "--node-name") == argument(n.started, "--node-name") {
				t.Errorf("node %d is like another: %v", i+1, n.started)
			}
		}
	}
	if err := c.start(context.Background()); err != nil || !slices.Equal(c.pids(), first) {
		t.Errorf("a second start: %v, then %v (%v)", first, c.pids(), err)
	}
	// Without one of its nodes it is made anew.
	if err := c.nodes[1].stop(); err != nil {
		t.Fatal(err)
	}
	if err := c.start(context.Background()); err != nil {
		t.Fatal(err)
	}
	second := c.pids()
	for i, pid := range second {
		if pid == first[i] || running(first[i]) {
			t.Errorf("node %d: process %d, then %d", i+1, first[i], pid)
		}
	}
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range second {
		if running(pid) {
			t.Errorf("process %d runs after the stop", pid)
		}
	}
}

func TestWarrenClusterThatDoesNotStartLeavesNothing(t *testing.T) {
	c := clusterStandIn(t, "refuse")
	if err := c.start(context.Background()); err == nil || !strings.Contains(err.Error(), "node 1: ") || !strings.Contains(err.Error(), "no such flag") {
		t.Errorf("error %v", err)
	}
	for _, n := range c.nodes {
		if n.alive() {
			t.Error("a node runs")
		}
	}
}

// argument returns what follows a flag.
func argument(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 {
		return args[i+1]
	}
	return ""
}

func TestRabbitMQCluster(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PEER_DIR", dir)
	t.Setenv("PEER_PORT", "5990")
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte(`echo "$1" >>"$PEER_DIR/calls"; [ "$1" = start3 ] && printf '4711\n4712\n4713\n'; exit 0`), 0o755); err != nil {
		t.Fatal(err)
	}
	const uris = "amqp://guest:guest@127.0.0.1:5990/,amqp://guest:guest@127.0.0.1:5991/,amqp://guest:guest@127.0.0.1:5992/"
	r := &rabbitmq{script: script, three: true}
	if err := r.start(context.Background()); err != nil || !slices.Equal(r.pids(), []int{4711, 4712, 4713}) || r.uri() != uris {
		t.Fatal(r.pids(), r.uri(), err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if calls := readText(filepath.Join(dir, "calls")); calls != "install\nstart3\nstop3\n" {
		t.Errorf("calls of the script: %q", calls)
	}

	// One that runs already, of which all nodes must run.
	for n, want := range [][]int{{4711, 4712, 4713}, {4711, 4712, 4713}, {1, 1, 1}} {
		if err := os.WriteFile(filepath.Join(dir, "pid"+strconv.Itoa(n+1)), []byte("1\n"), 0o644); err != nil { // the first process always runs
			t.Fatal(err)
		}
		r := &rabbitmq{script: script, three: true}
		if err := r.start(context.Background()); err != nil || !slices.Equal(r.pids(), want) {
			t.Errorf("with %d nodes: %v, %v", n+1, r.pids(), err)
		}
	}
}

// Nodes and clusters run in turn, and each workload meets the right ones.
func TestClustersAndNodesDoNotRunAtOnce(t *testing.T) {
	c, calls := stubCampaign(t, `echo "$report"`)
	c.rounds = 1
	c.warrenCluster, c.peerCluster = &stub{"warren3", calls}, &stub{"peer3", calls}
	if err := c.run(context.Background(), pick(t, "fanout", "churn3")); err != nil {
		t.Fatal(err)
	}
	if runs := readText(filepath.Join(c.root, "runs")); runs != "warren\npeer\nwarren3\npeer3\n" {
		t.Errorf("runs:\n%s", runs)
	}
	if got := strings.Join(*calls, ", "); got != "warren3 stops, peer3 stops, warren starts, peer starts, warren stops, peer stops, warren3 starts, peer3 starts" {
		t.Errorf("calls: %s", got)
	}
}

// The load is given all nodes' processes.
func TestLoadOfACluster(t *testing.T) {
	c, _ := stubCampaign(t, `echo $3 $5 >`+"`dirname $0`"+`/given; echo "$report"`)
	b := &rabbitmq{three: true, processes: []int{11, 12, 13}}
	t.Setenv("PEER_PORT", "6000")
	if _, _, err := load(context.Background(), c.amqpload, b, nil); err != nil {
		t.Fatal(err)
	}
	if given := readText(filepath.Join(c.build, "given")); given != strings.ReplaceAll("U0/,U1/,U2/ 11,12,13\n", "U", "amqp://guest:guest@127.0.0.1:600") {
		t.Errorf("given: %s", given)
	}
}

func TestOneBrokerAsPeerIsNoCluster(t *testing.T) {
	all, err := ofNodes(workloads(), false)
	if err != nil || len(all) == 0 || slices.ContainsFunc(all, func(w workload) bool { return w.cluster }) {
		t.Errorf("%s, %v", names(all), err)
	}
	if _, err := ofNodes(pick(t, "fanout", "declare3"), true); err == nil || !strings.Contains(err.Error(), "declare3") {
		t.Errorf("error %v", err)
	}
}
