package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/quorum"
	process "github.com/warrenmq/warren/test/node"
)

// lostCluster is nodes in processes of their own, of which most are lost.
type lostCluster struct {
	t      *testing.T
	self   string
	secret string
	join   string // the address of one
	nodes  []*process.Process
	at     []process.Addresses
}

// add starts a new node, which joins the others.
func (c *lostCluster) add() int {
	c.t.Helper()
	p := &process.Process{Binary: c.self, Dir: c.t.TempDir(), Env: []string{"WARREN_TEST_COMMAND=1"}}
	c.nodes, c.at = append(c.nodes, p), append(c.at, process.Addresses{})
	p.Args = c.args(len(c.nodes)-1, "127.0.0.1:0")
	c.start(len(c.nodes) - 1)
	if c.join == "" {
		c.join = c.at[0].Cluster
	}
	return len(c.nodes) - 1
}

// args are those of a node; without an address for others it runs alone.
func (c *lostCluster) args(i int, cluster string) []string {
	args := []string{"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "none", "--node-name", fmt.Sprintf("n@%d", i+1)}
	if cluster != "" {
		args = append(args, "--cluster-listen", cluster, "--cluster-secret-file", c.secret)
	}
	if c.join != "" && cluster != "" {
		args = append(args, "--join", c.join)
	}
	return args
}

func (c *lostCluster) start(i int) {
	c.t.Helper()
	at, err := c.nodes[i].Start()
	if err != nil {
		c.t.Fatalf("node %d: %v\n%s", i+1, err, c.log(i))
	}
	c.at[i] = at
	p := c.nodes[i]
	c.t.Cleanup(func() {
		if p.Ended() == nil {
			p.Kill()
		}
	})
}

func (c *lostCluster) log(i int) string {
	text, _ := os.ReadFile(filepath.Join(c.nodes[i].Dir, "log"))
	return string(text)
}

func (c *lostCluster) data(i int) string { return filepath.Join(c.nodes[i].Dir, "data") }

func (c *lostCluster) kill(list ...int) {
	c.t.Helper()
	for _, i := range list {
		if err := c.nodes[i].Kill(); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *lostCluster) dial(i int) (*amqp091.Connection, *amqp091.Channel) {
	c.t.Helper()
	conn, err := amqp091.Dial("amqp://guest:guest@" + c.at[i].AMQP)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return conn, ch
}

// warren is a command in a process of its own, which is killed after a time, if that is not 0.
func (c *lostCluster) warren(killAfter time.Duration, args ...string) (code int, out, errs string) {
	c.t.Helper()
	cmd := exec.Command(c.self, args...)
	cmd.Env = append(os.Environ(), "WARREN_TEST_COMMAND=1")
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	if killAfter > 0 {
		time.AfterFunc(killAfter, func() { cmd.Process.Kill() })
	}
	_ = cmd.Wait() // the code tells
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// takes consumes what is numbered from first to last, in order.
func takes(t *testing.T, ch *amqp091.Channel, queue string, args amqp091.Table, first, last int) {
	t.Helper()
	if err := ch.Qos(1, 0, false); err != nil {
		t.Fatal(err)
	}
	from, err := ch.Consume(queue, "", false, false, false, false, args)
	if err != nil {
		t.Fatal(err)
	}
	for i := first; i <= last; i++ {
		if err := receive(t, from, fmt.Sprint(i)).Ack(false); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestore: of three nodes two are lost with their disks. The third is restored, whatever interrupts that, and has everything that was
// confirmed, but for the classic queues of the others. It runs alone or with new members, who get a copy; and one of the lost
// that comes back after all is refused.
func TestRestore(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &lostCluster{t: t, self: self, secret: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(c.secret, []byte("a secret that is long enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const one, two, three, n = 0, 1, 2, 100
	for range 3 {
		c.add()
	}
	_, ch1 := c.dial(one)
	conn, ch := c.dial(three)
	for name, typ := range map[string]string{"q": "quorum", "s": "stream", "mine": "classic"} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, amqp091.Table{"x-queue-type": typ}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ch1.QueueDeclare("theirs", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, ch1, "", "theirs", "is lost", "")
	for i := 1; i <= n; i++ {
		for _, queue := range []string{"q", "s", "mine"} {
			publishConfirmed(t, ch, "", queue, fmt.Sprint(i), "")
		}
	}
	takes(t, ch, "q", nil, 1, 10)
	named := amqp091.Table{"x-stream-consumer-name": "reader", "x-stream-offset-reset": "first"}
	takes(t, ch, "s", named, 1, 20)
	until(t, "the offset is committed", func() error {
		_, out, errs := c.warren(0, "stream", "offsets", "list", "s", "--url", "http://"+c.at[three].HTTP)
		if !strings.Contains(out, "reader\t20\t") {
			return fmt.Errorf("%s%s", out, errs)
		}
		return nil
	})
	until(t, "node 1 knows the queue", func() error {
		conn, ch := c.dial(one)
		defer conn.Close()
		_, err := ch.QueueDeclarePassive("q", true, false, false, false, nil)
		return err
	})
	_, ch1 = c.dial(one) // holds some when it dies
	if err := ch1.Qos(5, 0, false); err != nil {
		t.Fatal(err)
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "what it has not acknowledged returns", func() error {
		conn, ch := c.dial(one)
		defer conn.Close()
		q, err := ch.QueueDeclarePassive("q", true, false, false, false, nil)
		if err == nil && q.Messages != n-10 {
			err = fmt.Errorf("%d messages are ready", q.Messages)
		}
		return err
	})
	held, err := ch1.Consume("q", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	receive(t, held, "11")
	conn.Close()
	address := c.at[three].Cluster
	c.kill(one, two, three)
	if err := os.RemoveAll(c.data(two)); err != nil {
		t.Fatal(err)
	}

	restore := []string{"cluster", "restore", "--data-dir", c.data(three)}
	code, out, errs := c.warren(0, restore...)
	if code != exitUsage || !strings.Contains(errs, "--yes") {
		t.Fatal(code, out, errs)
	}
	for _, want := range []string{"n@3 is member 3 of a cluster with n@1 (member 1, ", "1 quorum queue, 1 stream, and of this node 1 classic queue\n",
		"lost: of the others 1 classic queue, with the messages:\n", "queue 'theirs' in vhost '/'", "slot 2 of streams", "slot 5", "metadata"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	var asked strings.Builder
	p := &program{in: strings.NewReader("n@1\n"), out: &asked, err: &asked, terminal: true, env: func(string) (string, bool) { return "", false }}
	if code := p.run(restore); code != exitUsage || !strings.Contains(asked.String(), "Type n@3 to go on: ") || !strings.Contains(asked.String(), "nothing was changed") {
		t.Error("the name of another node was typed: ", code, asked.String())
	}
	if err := leave(c.data(three)); err != nil { // as far as one came that was killed
		t.Fatal(err)
	}
	if code, _, why := c.warren(20*time.Second, append([]string{"server", "--data-dir", c.data(three)}, c.args(three, "")...)...); code != exitConfig ||
		!strings.Contains(why, "a restore of "+c.data(three)+" has begun and not ended") {
		t.Fatalf("a node that is not restored runs: %d %s", code, why)
	}
	restore = append(restore, "--yes")
	if code, out, errs = c.warren(300*time.Millisecond, restore...); code != -1 { // before anybody can have been elected
		t.Fatal(code, out, errs)
	}
	if code, out, errs = c.warren(0, restore...); code != 0 {
		t.Fatal(code, out, errs)
	}
	if !strings.Contains(out, "A restore of it has begun before, and goes on.") {
		t.Error("it does not say that it was interrupted: ", out)
	}
	if want := fmt.Sprintf("kept: 1 quorum queue with %d messages, 1 stream with %d messages, 1 classic queue with %d messages\n", n-10, n, n); !strings.Contains(out, want) {
		t.Errorf("want %s:\n%s", want, out)
	}

	// Alone.
	c.nodes[three].Args = c.args(three, "")
	c.start(three)
	conn, ch = c.dial(three)
	if _, err := ch.QueueDeclarePassive("theirs", true, false, false, false, nil); err == nil || !strings.Contains(err.Error(), "NOT_FOUND - no queue 'theirs'") {
		t.Error("a queue that was lost:", err)
	}
	ch, _ = conn.Channel()
	takes(t, ch, "mine", nil, 1, n)
	ch, _ = conn.Channel()
	takes(t, ch, "q", nil, 11, 20)
	ch, _ = conn.Channel()
	takes(t, ch, "s", named, 21, 30)
	conn.Close()
	if err := c.nodes[three].Stop(); err != nil {
		t.Fatal(err)
	}

	// With others, at the address where one of the lost looks for it.
	c.nodes[three].Args = c.args(three, address)
	c.start(three)
	c.join = address
	four, five := c.add(), c.add()
	if err := c.nodes[one].Launch(); err != nil {
		t.Fatal(err)
	}
	until(t, "who was lost is refused, and both say why", func() error {
		for _, i := range []int{one, three} {
			if !strings.Contains(c.log(i), "wrong cluster") {
				return fmt.Errorf("the log of node %d: %s", i+1, c.log(i))
			}
		}
		return nil
	})
	c.kill(one)
	_, ch = c.dial(three)
	publishConfirmed(t, ch, "", "q", fmt.Sprint(n+1), "")
	publishConfirmed(t, ch, "", "s", fmt.Sprint(n+1), "")
	until(t, "who joined has a vote everywhere", func() error {
		_, out, errs := c.warren(0, "cluster", "status", "--format", "json", "--url", "http://"+c.at[four].HTTP)
		var info clusterInfo
		if err := json.Unmarshal([]byte(out), &info); err != nil {
			return fmt.Errorf("%w: %s", err, errs)
		}
		for _, s := range info.Slots {
			if len(s.Members) != 3 || len(s.Online) != 3 || s.Leader == "" {
				return fmt.Errorf("%s", out)
			}
		}
		if len(info.Members) != 3 || len(info.Slots) != 1+slotsClustered+3 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	c.kill(three)
	conn, ch = c.dial(five)
	takes(t, ch, "q", nil, 21, n+1)
	ch, _ = conn.Channel()
	takes(t, ch, "s", named, 31, n+1)
}

// status is what a node says of its cluster.
func (c *lostCluster) status(i int) (info clusterInfo, err error) {
	_, out, errs := c.warren(0, "cluster", "status", "--format", "json", "--url", "http://"+c.at[i].HTTP)
	if err = json.Unmarshal([]byte(out), &info); err != nil {
		err = fmt.Errorf("%w: %s", err, errs)
	}
	return info, err
}

// TestRestoreWhatFollows: of five nodes four are lost. The one that is left has a vote in some of the slots only, and goes on with all of them.
func TestRestoreWhatFollows(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &lostCluster{t: t, self: self, secret: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(c.secret, []byte("a secret that is long enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		c.add()
	}
	const left, n = 4, 20
	_, ch := c.dial(left)
	var queues, streams []string // one in each slot
	for i := range slotsClustered {
		queues = append(queues, fmt.Sprint("q", i))
	}
	for i := range 3 {
		streams = append(streams, fmt.Sprint("s", i))
	}
	for typ, names := range map[string][]string{"quorum": queues, "stream": streams} {
		for _, name := range names {
			if _, err := ch.QueueDeclare(name, true, false, false, false, amqp091.Table{"x-queue-type": typ}); err != nil {
				t.Fatal(err)
			}
			for i := 1; i <= n; i++ {
				publishConfirmed(t, ch, "", name, fmt.Sprint(i), "")
			}
		}
	}
	named := amqp091.Table{"x-stream-consumer-name": "reader", "x-stream-offset-reset": "first"}
	for _, name := range streams {
		conn, ch := c.dial(left)
		takes(t, ch, name, named, 1, 5)
		conn.Close()
	}
	until(t, "all have a replica of all, and three a vote", func() error {
		info, err := c.status(left)
		follows := 0
		for _, s := range info.Slots {
			if s.Name == "metadata" {
				continue
			}
			if len(s.Members) != 3 || len(s.Replicas) != 5 {
				return fmt.Errorf("%+v", s)
			}
			for _, r := range s.Replicas {
				if r.Applied != s.Replicas[0].Applied {
					return fmt.Errorf("%+v", s)
				}
			}
			if !slices.Contains(s.Members, "n@5") {
				follows++
			}
		}
		if err == nil && (len(info.Slots) != 1+slotsClustered+3 || follows < 2 || follows > 5) {
			err = fmt.Errorf("%d slots, of which it follows in %d", len(info.Slots), follows)
		}
		return err
	})
	c.kill(0, 1, 2, 3, left)
	restore := []string{"cluster", "restore", "--data-dir", c.data(left), "--yes"}
	if code, out, errs := c.warren(600*time.Millisecond, restore...); code != -1 { // somewhere in between
		t.Fatal(code, out, errs)
	}
	code, out, errs := c.warren(0, restore...)
	if code != 0 {
		t.Fatal(code, out, errs)
	}
	for _, want := range []string{"In some slots this node has no vote and follows", "  slot ", "(n@", fmt.Sprintf("kept: %d quorum queues with %d messages, 3 streams with %d messages", slotsClustered, n*slotsClustered, n*3)} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}

	c.nodes[left].Args = c.args(left, "127.0.0.1:0")
	c.join = ""
	c.start(left)
	_, ch = c.dial(left)
	for _, name := range slices.Concat(queues, streams) {
		publishConfirmed(t, ch, "", name, fmt.Sprint(n+1), "")
	}
	for _, name := range queues {
		_, ch := c.dial(left)
		takes(t, ch, name, nil, 1, n+1)
	}
	for _, name := range streams {
		_, ch := c.dial(left)
		takes(t, ch, name, named, 6, n+1)
	}
	until(t, "it has all votes, and is to have them", func() error {
		info, err := c.status(left)
		for _, s := range info.Slots {
			if len(s.Members) != 1 || s.Leader != "n@5" {
				return fmt.Errorf("%+v", s)
			}
		}
		return err
	})
	if text := c.log(left); strings.Contains(text, "not as it should be") {
		t.Error(text)
	}
}

// TestWhoCannotBeRestored: who has nothing of a slot, or was no member yet, is refused at once, and told who would do.
func TestWhoCannotBeRestored(t *testing.T) {
	members := []broker.Member{{Number: 1, Name: "n@1", Start: 1}, {Number: 2, Name: "n@2", Start: 1}, {Number: 3, Name: "n@3", Start: 1}, {Number: 4, Name: "n@4", Start: 1}, {Number: 5, Name: "n@5"}}
	var replicas []broker.Replica
	for shard, voters := range map[uint64][]uint64{4: {1, 2, 3}, 16: {2, 3, 4}, 17: {1, 2, 4}} {
		for _, m := range members {
			r := broker.Replica{Shard: shard, Member: m.Number, Vote: broker.Follows}
			if slices.Contains(voters, m.Number) {
				r.Vote = broker.Votes
			}
			replicas = append(replicas, r)
		}
	}
	slices.SortFunc(replicas, func(a, b broker.Replica) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Member, b.Member))
	})
	for _, x := range []struct {
		node    uint64
		logs    []quorum.LogEnd
		refused string
		follows string
	}{
		{2, nil, "", "[]"},
		{1, []quorum.LogEnd{{Shard: 4, Last: 9}, {Shard: 16, Last: 9}}, "", "[slot 0 (n@2, n@3, n@4)]"},
		{1, []quorum.LogEnd{{Shard: 4, Last: 9}, {Shard: 16}}, "n@1 has nothing of slot 0 (n@2, n@3, n@4): it was only about to get it from those who have a vote there Restore one of those that have all of it: n@2, n@3, n@4.", "[slot 0 (n@2, n@3, n@4)]"},
		{3, nil, "n@3 has nothing of slot 1 (n@1, n@2, n@4): it was only about to get it from those who have a vote there Restore one of those that have all of it: n@1, n@2, n@4.", "[slot 1 (n@1, n@2, n@4)]"},
		{5, nil, "n@5 was only about to become a member of its cluster, and has no vote: it cannot be restored Restore another member.", "[]"},
	} {
		w := will{node: cluster.Identity{Number: x.node, Name: members[x.node-1].Name}, logs: x.logs}
		err, text := w.judge(members, replicas), ""
		var f *failure
		if errors.As(err, &f) {
			text = f.text + " " + f.remedy
		}
		if text != x.refused || fmt.Sprint(w.follows) != x.follows {
			t.Errorf("%d: %q, %v", x.node, text, w.follows)
		}
	}
	members[4].Start = 1
	w := will{node: cluster.Identity{Number: 5, Name: "n@5"}}
	if err := w.judge(members, replicas); err == nil || !strings.Contains(err.Error(), "n@5 has nothing of slot 0 of streams (n@1, n@2, n@3), slot 0 (n@2, n@3, n@4), slot 1 (n@1, n@2, n@4)") {
		t.Error(err)
	}
}

// TestNothingToRestore: what needs no others is left alone.
func TestNothingToRestore(t *testing.T) {
	alone, c := t.TempDir(), runCluster(t, 1)
	runNodeIn(t, alone).stop()
	c.list[0].stop()
	for dir, want := range map[string]string{alone: "is no member of a cluster: there is nothing to restore", c.dirs[0]: "n@1 is the only member of its cluster",
		t.TempDir(): "is no data directory of a node"} {
		if code, out, err := command(t, "", nil, "force_standalone_khepri_boot", "--yes", "--data-dir", dir); code != exitData || !strings.Contains(err, want) {
			t.Errorf("%d %s%s; want %s", code, out, err, want)
		}
	}
	c.list[0] = runNodeIn(t, c.dirs[0], "--node-name", "n@1") // its cluster is itself
}
