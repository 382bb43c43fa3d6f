package cluster

import (
	"crypto/tls"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLink is batches of 64 messages of 1 KiB from one node to another over loopback, both in this process: what both
// sides take together.
func BenchmarkLink(b *testing.B) {
	for _, bc := range []struct {
		name string
		size int
		tls  bool
	}{{"64x1KiB", 64 << 10, false}, {"1x1KiB", 1 << 10, false}, {"64x16B", 64 * 16, false}, {"64x1KiB/tls", 64 << 10, true}} {
		b.Run(bc.name, func(b *testing.B) { benchmarkLink(b, bc.size, bc.tls) })
	}
}

func benchmarkLink(b *testing.B, size int, secured bool) {
	var conf *tls.Config
	if secured {
		conf = testTLS(b)
	}
	change := func(o *Options) { o.TLS, o.Silence = conf, 10*time.Second }
	x, y := sit(b, 1, 1, change), sit(b, 2, 1, change)
	var got, want int // want is set before the first batch is sent, and read when it comes
	done := make(chan struct{}, 1)
	y.receive = func(m Batch) {
		m.Credit.Return()
		if got++; got == want {
			got = 0
			done <- struct{}{}
		}
	}
	meet(x, y)
	x.saw("up 2/1")
	s := x.stream(2, Data, 1)
	room := make(chan struct{}, 1)
	s.Room(func() { room <- struct{}{} })
	body := make([]byte, size)
	run := func(n int) {
		want = n
		for range n {
			for !s.Send(1, body[:8], body[8:]) {
				<-room
			}
		}
		<-done
	}
	run(2000)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	before := cpu()
	b.ResetTimer()
	run(b.N)
	b.StopTimer()
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/batch")
}

// BenchmarkCall is one question after the other: a round trip, with four goroutines woken.
func BenchmarkCall(b *testing.B) {
	change := func(o *Options) { o.Silence = 10 * time.Second }
	x, y := sit(b, 1, 1, change), sit(b, 2, 1, change)
	y.answer = func(q Question) { q.Answer(q.Body) }
	meet(x, y)
	x.saw("up 2/1")
	done := make(chan error, 1)
	answer := func(_ []byte, err error) { done <- err }
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := x.node.Call(2, 1, make([]byte, 100), time.Minute, answer); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// cpu is what the process has used of it.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
