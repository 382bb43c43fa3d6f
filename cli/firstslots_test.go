package cli

import (
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/broker"
)

// replace has a new node take the place of a member, which is gone for good.
func (c *nodes) replace(i int) {
	c.t.Helper()
	c.args, c.dirs, c.list = append(c.args, nil), append(c.dirs, c.t.TempDir()), append(c.list, nil)
	c.list[i].stop()
	gone := fmt.Sprintf("n@%d", i+1)
	until(c.t, gone+" is forgotten", func() error { return c.list[0].engine.(*rooms).member.Forget(gone, false) })
	c.start(len(c.list) - 1)
	until(c.t, "three vote on metadata", func() error {
		if s := c.list[0].engine.(*rooms).member.Slots()[0]; len(s.Members) != 3 || len(c.list[0].engine.(*rooms).broker.Members()) != 3 {
			return fmt.Errorf("%d", s.Members)
		}
		return nil
	})
}

// serves has a queue take messages at one node, and give them at another.
func (c *nodes) serves(queue, typ string, at, from int) {
	c.t.Helper()
	_, ch := c.list[at].dial()
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp091.Table{"x-queue-type": typ}); err != nil {
		c.t.Fatal(err)
	}
	for i := 1; i <= 5; i++ {
		publishConfirmed(c.t, ch, "", queue, fmt.Sprint(i), "")
	}
	var args amqp091.Table
	if typ == "stream" {
		args = amqp091.Table{"x-stream-offset": "first"}
	}
	until(c.t, "the other node knows it", func() error {
		if v := c.list[from].engine.(*rooms).broker.VHost("/"); v == nil || v.Queue(queue) == nil {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	_, ch = c.list[from].dial()
	takes(c.t, ch, queue, args, 1, 5)
}

// TestSlotsOfReplacedMembers: two of three members are replaced, one after the other. The slots that the first stream and the first quorum
// queue lie in have leaders and voters that are there, whether they began with the members that are gone or begin now.
func TestSlotsOfReplacedMembers(t *testing.T) {
	for _, begun := range []bool{true, false} {
		t.Run(fmt.Sprint(begun), func(t *testing.T) {
			t.Parallel()
			c := runCluster(t, 3)
			if begun {
				c.serves("q", "quorum", 1, 2)
				c.list[0].votersAre(3)
			}
			for _, i := range []int{1, 2} {
				c.replace(i)
				if begun {
					c.list[0].votersAre(3)
				}
			}
			for i := range 3 { // in each slot
				c.serves(fmt.Sprint("s", i), "stream", 3, 4)
			}
			c.serves("r", "quorum", 4, 0)
			c.list[0].votersAre(3)
			c.list[0].stop()
			c.serves("t", "stream", 4, 3)
		})
	}
}

// TestSlotsBeginWithMembersThatCame: a node that was about to become a member, and never came, has no vote in slots that begin then.
func TestSlotsBeginWithMembersThatCame(t *testing.T) {
	c := runCluster(t, 1)
	r := c.list[0].engine.(*rooms)
	done := make(chan error, 1)
	r.broker.PutMember(broker.Member{NodeID: 99, Name: "n@2", Address: "127.0.0.1:1"}, func(_ uint64, err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	c.serves("s", "stream", 0, 0)
	c.serves("q", "quorum", 0, 0)
	if err := r.member.Forget("n@2", false); err != nil {
		t.Fatal(err)
	}
	until(t, "it has the votes alone", func() error {
		for _, s := range r.member.Slots() {
			if fmt.Sprint(s.Members) != "[1]" {
				return fmt.Errorf("%+v", s)
			}
		}
		return nil
	})
}
