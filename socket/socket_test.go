package socket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

func pair(t *testing.T) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return Calm(here), Calm(there)
}

// What is written, little and much, is what is read, though the buffers of the system fill up, and then comes the end.
func TestConn(t *testing.T) {
	here, there := pair(t)
	if _, ok := here.(*Conn); !ok {
		t.Fatalf("a %T", here)
	}
	sent := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{1}).Read(sent)
	written := make(chan error, 1)
	go func() {
		defer here.Close()
		for rest, n := sent, 1; len(rest) > 0; n = n%100_000*3 + 1 {
			size := min(n, len(rest))
			if k, err := here.Write(rest[:size]); err != nil || k != size {
				written <- errors.Join(err, io.ErrShortWrite)
				return
			}
			rest = rest[size:]
		}
		written <- nil
	}()
	var got []byte
	for b := make([]byte, 100<<10); ; {
		n, err := there.Read(b[:1+len(got)%len(b)])
		got = append(got, b[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Fatalf("%d octets came of %d, or others", len(got), len(sent))
	}
}

// Deadlines and Close end what waits, with the errors that callers look for.
func TestConnEnds(t *testing.T) {
	here, _ := pair(t)
	var b [10]byte
	here.SetReadDeadline(time.Now().Add(time.Millisecond))
	var timeout net.Error
	if _, err := here.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("read at the deadline: %v", err)
	}
	here.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	err := error(nil)
	for little := make([]byte, 1000); err == nil; {
		_, err = here.Write(little)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write at the deadline: %v", err)
	}
	here.SetReadDeadline(time.Time{})
	ended := make(chan error, 1)
	go func() {
		_, err := here.Read(b[:])
		ended <- err
	}()
	here.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read while it was closed: %v", err)
	}
	if _, err := here.Write(b[:]); !errors.Is(err, net.ErrClosed) {
		t.Errorf("written after Close: %v", err)
	}
	if n, err := Calm(struct{ net.Conn }{here}).Read(nil); n != 0 {
		t.Errorf("%d octets, %v", n, err)
	}
}

// A reset is an error of the system, as without Calm.
func TestConnReset(t *testing.T) {
	here, there := pair(t)
	there.(*Conn).SetLinger(0)
	there.Close()
	var b [10]byte
	var failed *net.OpError
	if _, err := here.Read(b[:]); err == io.EOF || !errors.As(err, &failed) || failed.Op != "read" {
		t.Errorf("read of a connection that was reset: %v", err)
	}
}

func BenchmarkRead(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	there, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	here, there = Calm(here), Calm(there)
	b.ReportAllocs()
	var one [1]byte
	for b.Loop() {
		here.Write(one[:])
		there.Read(one[:])
	}
}
