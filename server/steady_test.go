package server

import (
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// flow is one publisher and one consumer at full speed over TCP. It allocates nothing while it runs, so that what is
// allocated meanwhile is the server's.
type flow struct {
	in, out   net.Conn
	frames    []byte // publishes, again and again
	messages  int    // in frames
	delivery  int    // octets of one delivery on the wire
	ackEvery  int    // 0: no acknowledgements
	delivered atomic.Int64
	failed    error
	progress  chan struct{} // something has been delivered
	done      chan struct{} // the consumer has ended
}

// stream begins to consume; bodies have size octets.
func (n *node) stream(t testing.TB, size, ackEvery int) *flow {
	t.Helper()
	p, c := n.open(t, nil), n.open(t, nil)
	c.declare("steady")
	c.send(1, &amqp.BasicQos{PrefetchCount: uint16(10 * ackEvery)})
	c.expect(1, &amqp.BasicQosOk{})
	c.send(1, &amqp.BasicConsume{Queue: "steady", ConsumerTag: "c", NoAck: ackEvery == 0})
	c.expect(1, &amqp.BasicConsumeOk{})
	one := publishFrames(1, "steady", &amqp.PropertyList{}, make([]byte, size), 131072)
	deliver := amqp.BasicDeliver{ConsumerTag: []byte("c"), RoutingKey: []byte("steady")}
	header := len(one) - len(publishFrames(1, "steady", &amqp.PropertyList{}, nil, 0)) // of the body frames
	delivery := len(amqp.AppendMethodFrame(nil, 1, &deliver)) + amqp.FrameOverhead + 14 + header
	s := &flow{in: p.Conn, out: c.Conn, messages: max(1, 128<<10/len(one)), delivery: delivery, ackEvery: ackEvery,
		progress: make(chan struct{}, 1), done: make(chan struct{})}
	for range s.messages {
		s.frames = append(s.frames, one...)
	}
	go s.consume()
	return s
}

func (s *flow) consume() {
	defer close(s.done)
	buf := make([]byte, 1<<20)
	ack := amqp.AppendMethodFrame(nil, 1, &amqp.BasicAck{DeliveryTag: 1, Multiple: true})
	octets, acked := 0, 0
	for {
		n, err := s.out.Read(buf)
		if err != nil {
			s.failed = err
			return
		}
		octets += n
		messages := octets / s.delivery
		s.delivered.Store(int64(messages))
		select {
		case s.progress <- struct{}{}:
		default:
		}
		if s.ackEvery > 0 && messages-acked >= s.ackEvery {
			acked = messages
			binary.BigEndian.PutUint64(ack[len(ack)-10:], uint64(acked))
			if _, err := s.out.Write(ack); err != nil {
				s.failed = err
				return
			}
		}
	}
}

// publish sends frames once, keeping at most ahead messages on the way.
func (s *flow) publish(sent *int64, ahead int64) error {
	for *sent-s.delivered.Load() > ahead {
		select {
		case <-s.done:
			return s.failed
		case <-s.progress:
		}
	}
	*sent += int64(s.messages)
	_, err := s.in.Write(s.frames)
	return err
}

// TestSteady: at full speed nothing is allocated per message, and reads and writes are large.
func TestSteady(t *testing.T) {
	if raced {
		t.Skip("the race detector makes pools forget at random, and everything slow")
	}
	for _, size := range []int{16, 1 << 10, 32 << 10} {
		for _, ackEvery := range []int{0, 100} {
			t.Run(fmt.Sprint(size, " octets, ack every ", ackEvery), func(t *testing.T) {
				n := serve(t, queue.NewPool(64<<20), nil)
				defer n.Shutdown(t.Context())
				defer n.clock.Close()
				s := n.stream(t, size, ackEvery)
				defer s.in.Close()
				defer s.out.Close()
				var sent int64
				ahead := int64(4<<20/s.delivery) + int64(2*s.messages)
				run := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); {
						if err := s.publish(&sent, ahead); err != nil {
							t.Fatal(err)
						}
					}
				}
				run(300 * time.Millisecond)
				var before, after runtime.MemStats
				var in, out, reads, writes [2]uint64
				look := func(i int) {
					for k := range n.Connections() {
						in[i], reads[i] = max(in[i], k.ReceivedOctets), max(reads[i], k.Reads)
						out[i] = max(out[i], k.SentOctets)
						if k.SentOctets == out[i] {
							writes[i] = k.Writes
						}
						if k.ReceivedOctets == in[i] {
							reads[i] = k.Reads
						}
					}
				}
				look(0)
				runtime.ReadMemStats(&before)
				first, begin := s.delivered.Load(), time.Now()
				run(time.Second)
				messages, took := s.delivered.Load()-first, time.Since(begin)
				runtime.ReadMemStats(&after)
				look(1)
				allocations := float64(after.Mallocs-before.Mallocs) / float64(messages)
				read, written := (in[1]-in[0])/(reads[1]-reads[0]), (out[1]-out[0])/(writes[1]-writes[0])
				garbage := float64(after.TotalAlloc-before.TotalAlloc) / float64(messages)
				t.Logf("%.0f messages/s, %.4f allocations and %.1f octets of garbage each, %d octets per read, %d per write",
					float64(messages)/took.Seconds(), allocations, garbage, read, written)
				if total := after.Mallocs - before.Mallocs; allocations > 0.01 && total > 2000 { // the runtime's own are a few hundred
					t.Error("allocates")
				}
				if read < 32<<10 || written < 16<<10 {
					t.Error("small reads or writes")
				}
				if total := after.TotalAlloc - before.TotalAlloc; garbage > 8 && total > 32<<20 { // the runtime's own is a few MiB
					t.Error("makes garbage")
				}
			})
		}
	}
}

// BenchmarkMessage is a message's way from a publisher's socket through the default exchange and a queue to a consumer's.
func BenchmarkMessage(b *testing.B) {
	for _, size := range []int{16, 1 << 10, 16 << 10, 64 << 10, 1 << 20} {
		for _, ackEvery := range []int{0, 100} {
			b.Run(fmt.Sprintf("size=%d/ack=%d", size, ackEvery), func(b *testing.B) {
				n := serve(b, queue.NewPool(64<<20), nil)
				defer n.Shutdown(b.Context())
				defer n.clock.Close()
				s := n.stream(b, size, ackEvery)
				defer s.in.Close()
				defer s.out.Close()
				b.SetBytes(int64(size))
				b.ReportAllocs()
				var sent int64
				ahead := int64(4<<20/s.delivery) + int64(2*s.messages)
				b.ResetTimer()
				for sent < int64(b.N) {
					if err := s.publish(&sent, ahead); err != nil {
						b.Fatal(err)
					}
				}
				for s.delivered.Load() < sent {
					<-s.progress
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(sent), "ns/message")
			})
		}
	}
}
