package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// status is what the command says of the replicas of a quorum queue: the Membership of each node, and who leads.
func (n *realNode) status(queue string) (membership map[string]string, leader string, err error) {
	code, out, text := command(n.t, n.url, nil, "queue", "status", queue, "--format", "json")
	var rows []struct {
		Node       string `json:"Node Name"`
		State      string `json:"Raft State"`
		Membership string
	}
	if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil {
		return nil, "", fmt.Errorf("%d %v %s", code, err, text)
	}
	membership = map[string]string{}
	for _, r := range rows {
		if membership[r.Node] = r.Membership; r.State == "leader" {
			leader = r.Node
		}
	}
	return membership, leader, nil
}

// votersAre waits until so many have a vote in every slot, the streams' as well, and returns how many votes each member has.
func (n *realNode) votersAre(size int) (votes map[uint64]int) {
	n.t.Helper()
	until(n.t, fmt.Sprint("groups of ", size), func() error {
		votes = map[uint64]int{}
		slots := n.engine.(*rooms).member.Slots()[1:] // behind metadata
		for _, s := range slots {
			if len(s.Members) != size {
				return fmt.Errorf("slot %s has the voters %d", s.Name, s.Members)
			}
			for _, m := range s.Members {
				votes[m]++
			}
		}
		if len(slots) != 9 {
			return fmt.Errorf("%d slots", len(slots))
		}
		return nil
	})
	return votes
}

// TestShrinkAndGrow: of four members three have a vote in each slot. The one that leads a queue has its votes taken: its consumer goes
// on, and settles what it had before. It gets them back; and when a member is forgotten, others get its votes.
func TestShrinkAndGrow(t *testing.T) {
	c := runCluster(t, 4)
	_, ch := c.list[0].dial()
	for i := range 6 {
		if _, err := ch.QueueDeclare(fmt.Sprint("q", i), true, false, false, false, amqp091.Table{"x-queue-type": "quorum"}); err != nil {
			t.Fatal(err)
		}
	}
	for member, n := range c.list[0].votersAre(3) {
		if n < 6 || n > 8 {
			t.Errorf("member %d has %d votes of 27", member, n)
		}
	}
	var leader, follower string
	until(t, "a status", func() error {
		membership, leads, err := c.list[0].status("q0")
		voters := 0
		for node, m := range membership {
			switch m {
			case "voter":
				voters++
			case "non_voter":
				follower = node
			}
		}
		if leader = leads; err == nil && (voters != 3 || follower == "" || leads == "") {
			err = fmt.Errorf("%v, led by %s", membership, leads)
		}
		return err
	})
	if code, _, text := command(t, c.list[0].url, nil, "queue", "transfer", "q0", follower); code == 0 || !strings.Contains(text, "has no vote") {
		t.Errorf("one without a vote leads: %d %s", code, text)
	}
	var its, other *realNode
	for i, n := range c.list {
		switch fmt.Sprintf("n@%d", i+1) {
		case leader:
			its = n
		case follower:
			other = n
		}
	}
	_, on := its.dial()
	if err := on.Qos(1, 0, false); err != nil {
		t.Fatal(err)
	}
	from, err := on.Consume("q0", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, pub := other.dial()
	publishConfirmed(t, pub, "", "q0", "before", "")
	d := receive(t, from, "before")

	code, out, text := command(t, other.url, nil, "queue", "shrink", leader)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); code != 0 || lines[0] != "vhost\tname\tsize\tresult" || !strings.Contains(out, "/\tq0\t2\tok") {
		t.Fatalf("%d %s\n%s", code, out, text)
	}
	if _, err := pub.QueueDeclare("later", true, false, false, false, amqp091.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, pub, "", "q0", "after", "")
	if err := d.Ack(false); err != nil {
		t.Fatal(err)
	}
	d = receive(t, from, "after")
	if d.Redelivered {
		t.Error("what was acknowledged came again")
	}
	until(t, "it follows", func() error {
		membership, leads, err := c.list[0].status("q0")
		if err == nil && (membership[leader] != "non_voter" || leads == leader || leads == "") {
			err = fmt.Errorf("%v, led by %s", membership, leads)
		}
		return err
	})
	if code, out, text := command(t, other.url, nil, "queue", "grow", leader, "even"); code != 0 || !strings.Contains(out, "/\tq0\t3\tok") {
		t.Fatalf("%d %s\n%s", code, out, text)
	}
	other.votersAre(3)
	publishConfirmed(t, on, "", "q0", "at last", "")
	if err := d.Ack(false); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, from, "at last").Ack(false); err != nil {
		t.Fatal(err)
	}

	its.stop()
	m := c.list[0].engine.(*rooms).member
	if its == c.list[0] {
		m = c.list[1].engine.(*rooms).member
	}
	until(t, "it is down", func() error {
		if m.isUp(m.numberOf(leader)) {
			return fmt.Errorf("up")
		}
		return nil
	})
	if err := m.Forget(leader, false); err != nil {
		t.Fatal(err)
	}
	until(t, "the other three have all votes", func() error {
		if votes := other.votersAre(3); len(votes) != 3 {
			return fmt.Errorf("%v", votes)
		}
		return nil
	})
	publishConfirmed(t, pub, "", "q0", "three are left", "")
}

// TestVotesAsMembersJoin: a node that is alone has a queue and a stream. With two more members each slot has three voters, and nobody
// has said so: one member may be gone then, with all that was confirmed before on the other two. A fourth one follows.
func TestVotesAsMembersJoin(t *testing.T) {
	c := runCluster(t, 1)
	_, ch := c.list[0].dial()
	for name, typ := range map[string]string{"q": "quorum", "s": "stream"} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, amqp091.Table{"x-queue-type": typ}); err != nil {
			t.Fatal(err)
		}
		publishConfirmed(t, ch, "", name, "alone", "")
	}
	c.list[0].votersAre(1)
	for i := 1; i < 4; i++ {
		c.args, c.dirs, c.list = append(c.args, nil), append(c.dirs, t.TempDir()), append(c.list, nil)
		c.start(i)
		c.list[i].votersAre(min(i+1, 3))
	}
	if votes := c.list[0].votersAre(3); votes[1] != 9 || votes[4] != 0 {
		t.Fatalf("%v", votes)
	}
	c.list[0].stop()
	_, ch = c.list[1].dial()
	publishConfirmed(t, ch, "", "q", "one is gone", "")
	if err := ch.Qos(10, 0, false); err != nil {
		t.Fatal(err)
	}
	from, err := ch.Consume("q", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	receive(t, from, "alone")
	receive(t, from, "one is gone")
	if from, err = ch.Consume("s", "", false, false, false, false, amqp091.Table{"x-stream-offset": "first"}); err != nil {
		t.Fatal(err)
	}
	receive(t, from, "alone")
}
