package server

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
)

// TestChurnLeavesNothing: queues made, consumed from and dropped on one connection that lives long leave nothing behind,
// whichever way they go.
func TestChurnLeavesNothing(t *testing.T) {
	rounds := 4000
	if testing.Short() {
		rounds = 400
	}
	for _, c := range []struct {
		name   string
		queue  amqp.QueueDeclare
		delete bool
	}{
		{"auto-delete", amqp.QueueDeclare{Exclusive: true, AutoDelete: true}, false},
		{"deleted, with x-expires", amqp.QueueDeclare{Arguments: amqp.Table(nil).AppendInt64("x-expires", 3_600_000)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := start(t, nil)
			w := n.open(t, nil)
			round := func(i int) {
				var ok amqp.QueueDeclareOk
				w.send(1, &c.queue)
				w.expect(1, &ok)
				w.send(1, &amqp.QueueBind{Queue: ok.Queue, Exchange: "amq.topic", RoutingKey: fmt.Sprint("k.", i)})
				w.expect(1, &amqp.QueueBindOk{})
				w.send(1, &amqp.BasicConsume{Queue: ok.Queue, ConsumerTag: fmt.Sprint("c", i), NoAck: true})
				w.expect(1, &amqp.BasicConsumeOk{})
				w.send(1, &amqp.BasicCancel{ConsumerTag: fmt.Sprint("c", i)})
				w.expect(1, &amqp.BasicCancelOk{})
				if c.delete {
					w.send(1, &amqp.QueueDelete{Queue: ok.Queue})
					w.expect(1, &amqp.QueueDeleteOk{})
				}
			}
			heap := func() int64 {
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			for i := range rounds / 4 {
				round(i)
			}
			before := heap()
			for i := range rounds {
				round(i)
			}
			if n := len(n.broker.VHost("/").Queues()); n != 0 {
				t.Errorf("%d queues are left", n)
			}
			if b := len(n.broker.VHost("/").Bindings()); b != 0 {
				t.Errorf("%d bindings are left", b)
			}
			// What earlier tests leave behind comes and goes; a queue that stays is more than a thousand octets.
			grown := heap() - before
			for end := time.Now().Add(5 * time.Second); grown > limit(rounds) && time.Now().Before(end); grown = heap() - before {
				time.Sleep(100 * time.Millisecond)
			}
			if grown > limit(rounds) {
				t.Errorf("%d octets more after %d rounds", grown, rounds)
			}
		})
	}
}

// limit is how many octets the heap may have grown.
func limit(rounds int) int64 { return 512<<10 + int64(rounds)*100 }
