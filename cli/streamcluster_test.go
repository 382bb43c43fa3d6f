package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/stream/slots"
)

// streamAt is a stream as node i has it.
func (c *nodes) streamAt(i int, name string) *slots.Queue {
	c.t.Helper()
	r := c.list[i].engine.(*rooms)
	var found *slots.Queue
	until(c.t, "the stream is known", func() error {
		if v := r.broker.VHost("/"); v != nil {
			if q := v.Queue(name); q != nil {
				found, _ = q.Queue.(*slots.Queue)
			}
		}
		if found == nil {
			return fmt.Errorf("node %d does not know it", i+1)
		}
		return nil
	})
	return found
}

// consume reads a stream on a channel of its own.
func consumeStream(t *testing.T, conn *amqp091.Connection, name string, args amqp091.Table) (*amqp091.Channel, <-chan amqp091.Delivery) {
	t.Helper()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Qos(10, 0, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	from, err := ch.Consume(name, "", false, false, false, false, args)
	if err != nil {
		t.Fatal(err)
	}
	return ch, from
}

func offsetOf(d amqp091.Delivery) int64 { n, _ := d.Headers["x-stream-offset"].(int64); return n }

// TestStreamsInCluster: a stream is declared on one node, published to on another and read on the third. Committed offsets are those of
// all: a consumer goes on where another one of its name on another node stopped, or ends that.
func TestStreamsInCluster(t *testing.T) {
	c := runCluster(t, 3)
	conn1, one := c.list[0].dial()
	_, two := c.list[1].dial()
	conn3, _ := c.list[2].dial()
	if _, err := one.QueueDeclare("s", true, false, false, false, amqp091.Table{"x-queue-type": "stream"}); err != nil {
		t.Fatal(err)
	}
	c.streamAt(1, "s")
	for i := range 20 {
		publishConfirmed(t, two, "", "s", fmt.Sprint(i), "")
	}
	c.streamAt(2, "s")
	_, from := consumeStream(t, conn3, "s", amqp091.Table{"x-stream-offset": "first"})
	for i := range 20 {
		d := receive(t, from, fmt.Sprint(i))
		if offsetOf(d) != int64(i) {
			t.Fatalf("message %d has offset %d", i, offsetOf(d))
		}
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}

	// A name's consumer on node 1 is ended by one on node 3, which goes on behind what was acknowledged.
	named := amqp091.Table{"x-stream-consumer-name": "n", "x-stream-offset-reset": "first"}
	ch1, from1 := consumeStream(t, conn1, "s", named)
	cancelled := ch1.NotifyCancel(make(chan string, 1))
	for i := range 8 {
		if err := receive(t, from1, fmt.Sprint(i)).Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	committed := func(node int, next uint64) {
		t.Helper()
		until(t, "the offset is committed", func() error {
			for _, x := range c.streamAt(node, "s").Offsets(false) {
				if x.Name == "n" && x.Next == next {
					return nil
				}
			}
			return fmt.Errorf("node %d has %v", node+1, c.streamAt(node, "s").Offsets(false))
		})
	}
	committed(2, 8)

	// Every node says what clients of all nodes do.
	for i := range c.list {
		for path, want := range map[string]string{
			"/queues/%2F/s?columns=consumers,readers,message_stats.publish,message_stats.ack,consumer_details.channel_details.node": `{"message_stats":{"ack":28,"publish":20},"consumers":2,` +
				`"readers":{"n@1":1,"n@2":0,"n@3":1},"consumer_details":[{"channel_details":{"node":"n@1"}},{"channel_details":{"node":"n@3"}}]}`,
			"/queues/%2F?columns=name,consumers":                          `[{"name":"s","consumers":2}]`,
			"/warren/streams/%2F/s/offsets?columns=name,online":           `[{"name":"n","online":true}]`,
			"/overview?columns=object_totals.consumers,message_stats.ack": `{"message_stats":{"ack":28},"object_totals":{"consumers":2}}`,
		} {
			until(t, "the node tells of the stream", func() error {
				code, text := c.list[i].do("guest", "GET", path, "")
				text = regexp.MustCompile(`(\{"channel_details":\{"node":"n@\d"\}\}),(\{"channel_details":\{"node":"n@1"\}\})`).ReplaceAllString(text, "$2,$1") // its own come first
				if code != 200 || strings.TrimSpace(text) != want {
					return fmt.Errorf("node %d %s: %d %s, want %s", i+1, path, code, text, want)
				}
				return nil
			})
		}
	}
	_, from3 := consumeStream(t, conn3, "s", named)
	select {
	case <-cancelled:
	case <-time.After(20 * time.Second):
		t.Fatal("the earlier consumer of the name goes on")
	}
	for i := 8; i < 12; i++ {
		if err := receive(t, from3, fmt.Sprint(i)).Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	committed(0, 12)
	committed(1, 12)

	// The node with the consumer stops: the offset is there for others.
	conn3.Close()
	c.list[2].stop()
	again(t, "another node serves the name", conn1, func(ch *amqp091.Channel) error {
		if err := ch.Qos(10, 0, false); err != nil {
			return err
		}
		from, err := ch.Consume("s", "", false, false, false, false, named)
		if err != nil {
			return err
		}
		select {
		case d := <-from:
			if offsetOf(d) != 12 {
				return fmt.Errorf("it begins at %d", offsetOf(d))
			}
		case <-time.After(20 * time.Second):
			return fmt.Errorf("nothing comes")
		}
		return nil
	})
	publishConfirmed(t, two, "", "s", "while one is down", "")
	c.start(2)
	until(t, "the node catches up", func() error {
		if next := c.streamAt(2, "s").Status().Next; next != 21 {
			return fmt.Errorf("it is at %d", next)
		}
		return nil
	})

	// Management on each node tells of the members.
	r := c.list[1].engine.(*rooms)
	until(t, "members", func() error {
		var q management.Queue
		if !r.Queue("/", "s", &q) || q.Stream == nil || q.Home != "" || len(q.Stream.Members) != 3 || len(q.Stream.Online) != 3 || q.Stream.Leader == "" {
			return fmt.Errorf("%+v", q.Stream)
		}
		return nil
	})
	var names []string
	for _, s := range r.member.Slots() {
		if strings.HasPrefix(s.Name, "stream-") && len(s.Members) == 3 && s.Voting {
			names = append(names, s.Name)
		}
	}
	if !slices.Equal(names, []string{"stream-0", "stream-1", "stream-2"}) {
		t.Fatalf("slots of streams: %v", names)
	}
}

// TestStreamLeaderStops: nothing that was confirmed is lost when the node stops that leads a stream's slot while others publish, and
// all nodes have the same at the same offsets.
func TestStreamLeaderStops(t *testing.T) {
	c := runCluster(t, 3)
	_, ch := c.list[0].dial()
	if _, err := ch.QueueDeclare("s", true, false, false, false, amqp091.Table{"x-queue-type": "stream"}); err != nil {
		t.Fatal(err)
	}
	var leader uint64
	until(t, "a leader", func() error {
		if leader = c.streamAt(0, "s").Leader(); leader == 0 {
			return fmt.Errorf("there is none")
		}
		return nil
	})
	victim := int(leader) - 1
	from := (victim + 1) % 3
	c.streamAt(from, "s")
	_, ch = c.list[from].dial()
	const n = 60
	stopped := make(chan struct{})
	for i := range n {
		if i == n/3 {
			go func() { c.list[victim].stop(); close(stopped) }()
		}
		publishConfirmed(t, ch, "", "s", fmt.Sprint(i), "")
	}
	<-stopped
	c.start(victim)
	for i := range c.list {
		conn, _ := c.list[i].dial()
		c.streamAt(i, "s")
		_, msgs := consumeStream(t, conn, "s", amqp091.Table{"x-stream-offset": "first"})
		for k := range n {
			d := receive(t, msgs, fmt.Sprint(k))
			if offsetOf(d) != int64(k) {
				t.Fatalf("node %d has message %d at %d", i+1, k, offsetOf(d))
			}
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestStreamIsMended: a node whose segments were lost while it was down has them again from the others.
func TestStreamIsMended(t *testing.T) {
	c := runCluster(t, 3)
	_, ch := c.list[0].dial()
	if _, err := ch.QueueDeclare("s", true, false, false, false, amqp091.Table{"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1000}); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		publishConfirmed(t, ch, "", "s", fmt.Sprint(i), "")
	}
	until(t, "the replica has all", func() error {
		if next := c.streamAt(2, "s").Status().Next; next != 60 {
			return fmt.Errorf("it is at %d", next)
		}
		return nil
	})
	c.list[2].stop()
	files, err := filepath.Glob(filepath.Join(c.dirs[2], "streams", "slot-*", "*", "*.seg"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%v %v", files, err)
	}
	for _, i := range []int{0, len(files) - 1} {
		if err := os.Remove(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	c.start(2)
	conn, _ := c.list[2].dial()
	q := c.streamAt(2, "s")
	_, from := consumeStream(t, conn, "s", amqp091.Table{"x-stream-offset": "first"})
	for i := range 60 {
		if err := receive(t, from, fmt.Sprint(i)).Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	r := c.list[2].engine.(*rooms)
	until(t, "nothing is lacking", func() error {
		totals, list := r.StreamFigures(false)
		if s := q.Status(); s.Mending != "" || totals.Mended == 0 || len(list) != 1 || list[0].Lacks {
			return fmt.Errorf("%+v %+v %+v", s, totals, list)
		}
		return nil
	})
}
