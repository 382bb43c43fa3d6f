package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// startDurable runs a server on a broker whose metadata is kept in a directory. stop ends it as a restart does.
func startDurable(t testing.TB, dir string) (n *node, stop func()) {
	t.Helper()
	return startOn(t, storage.OS{}, dir)
}

func startOn(t testing.TB, fs storage.FS, dir string) (n *node, stop func()) {
	t.Helper()
	db, err := storage.OpenDB(fs, filepath.Join(dir, "metadata"), storage.DBOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pool, clock := queue.NewPool(256<<20), queue.NewClock()
	b, err := broker.Open(broker.Options{
		Node: "warren@test", Pool: pool, Clock: clock, Store: db,
		NewQueue: func(q broker.NewQueue) queue.Queue {
			return queue.NewClassic(queue.ClassicRules(q.MaxPriority), q.Config, pool, clock, q.DeadLetters)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Log = slog.New(slog.DiscardHandler)
	s := New(o, b, pool, clock)
	address, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &node{Server: s, pool: pool, address: address.String()}, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Shutdown(ctx)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		clock.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// raw opens a connection and a channel by hand, so that frames can be sent in one go.
func (n *node) raw(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", n.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	out := []byte("AMQP\x00\x00\x09\x01")
	out = amqp.AppendMethodFrame(out, 0, &amqp.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	out = amqp.AppendMethodFrame(out, 0, &amqp.ConnectionTuneOk{ChannelMax: 10, FrameMax: 131072})
	out = amqp.AppendMethodFrame(out, 0, &amqp.ConnectionOpen{VirtualHost: "/"})
	out = amqp.AppendMethodFrame(out, 1, &amqp.ChannelOpen{})
	c.Write(out)
	return c
}

// methods reads methods until one is of the last kind, and returns their ids.
func methods(t testing.TB, c net.Conn, last amqp.MethodID) (ids []amqp.MethodID, all []amqp.Method) {
	t.Helper()
	var buf []byte
	chunk := make([]byte, 64<<10)
	for {
		f, n, err := amqp.ParseFrame(buf, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			k, err := c.Read(chunk)
			if err != nil {
				t.Fatalf("after %d methods: %v", len(ids), err)
			}
			buf = append(buf, chunk[:k]...)
			continue
		}
		id, args, _ := amqp.SplitMethod(f.Payload)
		m := amqp.NewMethod(id)
		if err := m.Decode(bytes.Clone(args)); err != nil {
			t.Fatal(err)
		}
		buf = buf[n:]
		ids, all = append(ids, id), append(all, m)
		if id == last {
			return ids, all
		}
	}
}

// TestPipelinedTopology: what is declared in one go is answered in order, and is there after a restart.
func TestPipelinedTopology(t *testing.T) {
	dir := t.TempDir()
	n, stop := startDurable(t, dir)
	c := n.raw(t)
	const queues = 3000
	var out []byte
	add := func(m amqp.Method) { out = amqp.AppendMethodFrame(out, 1, m) }
	add(&amqp.ExchangeDeclare{Exchange: "x", Type: "topic", Durable: true})
	for i := range queues {
		name := fmt.Sprintf("q%d", i)
		add(&amqp.QueueDeclare{Queue: name, Durable: true, NoWait: i%3 == 1})
		add(&amqp.QueueBind{Exchange: "x", RoutingKey: name}) // the queue declared last
		if i%100 == 0 {
			add(&amqp.QueueDeclare{Exclusive: true})
			add(&amqp.QueueBind{Exchange: "x", RoutingKey: name})
			add(&amqp.BasicQos{PrefetchCount: 1})
		}
	}
	add(&amqp.QueueDeclare{Queue: "q0", Durable: false}) // an error, after all that
	add(&amqp.QueueDeclare{Queue: "never", Durable: true})
	begin := time.Now()
	if _, err := c.Write(out); err != nil {
		t.Fatal(err)
	}
	ids, all := methods(t, c, amqp.ChannelCloseID)
	took := time.Since(begin)
	t.Logf("%d operations in %v: %.0f a second", 2*queues, took, 2*queues/took.Seconds())
	ids, all = ids[4:], all[4:] // start, tune, open-ok, channel.open-ok
	var want []amqp.MethodID
	want = append(want, amqp.ExchangeDeclareOkID)
	for i := range queues {
		if i%3 != 1 {
			want = append(want, amqp.QueueDeclareOkID)
		}
		want = append(want, amqp.QueueBindOkID)
		if i%100 == 0 {
			want = append(want, amqp.QueueDeclareOkID, amqp.QueueBindOkID, amqp.BasicQosOkID)
		}
	}
	want = append(want, amqp.ChannelCloseID)
	if len(ids) != len(want) {
		t.Fatalf("%d answers, want %d; the last is %+v", len(ids), len(want), all[len(all)-1])
	}
	for i := range want {
		if ids[i] != want[i] {
			t.Fatalf("answer %d is %v, want %v", i, ids[i], want[i])
		}
	}
	if e := all[len(all)-1].(*amqp.ChannelClose); e.ReplyCode != amqp.PreconditionFailed || e.MethodID != 10 {
		t.Errorf("closed with %+v", e)
	}
	c.Close()
	stop()

	n, stop = startDurable(t, dir)
	defer stop()
	v := n.broker.VHost("/")
	if got := len(v.Queues()); got != queues {
		t.Errorf("%d queues are left of %d", got, queues)
	}
	if got := len(v.BindingsFrom("x")); got != queues {
		t.Errorf("%d bindings are left of %d", got, queues)
	}
	ch := n.channel(t)
	ds, err := ch.Consume("q7", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.PublishWithContext(t.Context(), "x", "q7", false, false, amqp091.Publishing{Body: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	if d := <-ds; string(d.Body) != "hello" {
		t.Errorf("got %q", d.Body)
	}
}

// TestAnswersWaitForTheDisk: nothing is answered that is not durable, and nothing overtakes an answer on its channel.
func TestAnswersWaitForTheDisk(t *testing.T) {
	fs := storage.NewFaultFS(1)
	n, stop := startOn(t, fs, "data")
	defer stop()
	c, other := n.raw(t), n.raw(t)
	methods(t, c, amqp.ChannelOpenOkID)
	methods(t, other, amqp.ChannelOpenOkID)
	syncing, hold := make(chan bool, 100), make(chan bool)
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	fs.Observe(func(e storage.Event) {
		if e.Op == storage.OpSync {
			syncing <- true
			<-hold
		}
	})
	send := func(c net.Conn, ms ...amqp.Method) {
		var out []byte
		for _, m := range ms {
			out = amqp.AppendMethodFrame(out, 1, m)
		}
		if _, err := c.Write(out); err != nil {
			t.Fatal(err)
		}
	}
	send(c, &amqp.QueueDeclare{Queue: "q", Durable: true}, &amqp.QueueDeclare{Queue: "soft", Exclusive: true}, &amqp.QueueDeclare{Queue: "missing", Passive: true})
	<-syncing
	send(other, &amqp.QueueDeclare{Queue: "q", Passive: true}, &amqp.ChannelClose{ReplyCode: 200}) // sees what is not durable yet
	for _, c := range []net.Conn{c, other} {
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if k, err := c.Read(make([]byte, 1000)); k > 0 || err == nil {
			t.Fatalf("answered %d octets before the disk did", k)
		}
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
	}
	release()
	ids, _ := methods(t, c, amqp.ChannelCloseID)
	if want := []amqp.MethodID{amqp.QueueDeclareOkID, amqp.QueueDeclareOkID, amqp.ChannelCloseID}; !slices.Equal(ids, want) {
		t.Errorf("answers %v, want %v", ids, want)
	}
	if ids, _ := methods(t, other, amqp.ChannelCloseOkID); len(ids) != 2 || ids[0] != amqp.QueueDeclareOkID {
		t.Errorf("answers %v", ids)
	}
	c.Close()
	other.Close()
}

// TestCloseAfterDeclarations: a close that follows declarations without answers comes after them.
func TestCloseAfterDeclarations(t *testing.T) {
	for _, channel := range []bool{true, false} {
		dir := t.TempDir()
		n, stop := startDurable(t, dir)
		c := n.raw(t)
		var out []byte
		const queues = 500
		for i := range queues {
			out = amqp.AppendMethodFrame(out, 1, &amqp.QueueDeclare{Queue: fmt.Sprint("q", i), Durable: true, NoWait: true})
		}
		last := amqp.ConnectionCloseOkID
		if channel {
			out = amqp.AppendMethodFrame(out, 1, &amqp.ChannelClose{ReplyCode: 200})
			last = amqp.ChannelCloseOkID
		} else {
			out = amqp.AppendMethodFrame(out, 0, &amqp.ConnectionClose{ReplyCode: 200})
		}
		if _, err := c.Write(out); err != nil {
			t.Fatal(err)
		}
		methods(t, c, last)
		c.Close()
		stop()
		n, stop = startDurable(t, dir)
		if got := len(n.broker.VHost("/").Queues()); got != queues {
			t.Errorf("%d queues are left of %d", got, queues)
		}
		stop()
	}
}

// BenchmarkDeclare is declarations in one go, answered and durable.
func BenchmarkDeclare(b *testing.B) {
	n, stop := startDurable(b, b.TempDir())
	defer stop()
	c := n.raw(b)
	methods(b, c, amqp.ChannelOpenOkID)
	const queues = 5000
	round := 0
	for b.Loop() {
		var out []byte
		for i := range queues {
			out = amqp.AppendMethodFrame(out, 1, &amqp.QueueDeclare{Queue: fmt.Sprintf("q%d.%d", round, i), Durable: true})
		}
		out = amqp.AppendMethodFrame(out, 1, &amqp.BasicQos{PrefetchCount: 1})
		round++
		go io.Copy(c, bytes.NewReader(out))
		methods(b, c, amqp.BasicQosOkID)
	}
	b.ReportMetric(float64(queues*b.N)/b.Elapsed().Seconds(), "declares/s")
	c.Close()
}
