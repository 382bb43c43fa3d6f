package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/warrenmq/warren/socket"
)

const (
	writeBytes = 256 << 10 // octets of one write, about
	ackEvery   = 256 << 10 // octets received until an ack is worth a write of its own
	oneWrite   = 4 << 10   // octets that are put together for a write
	readLeast  = 32 << 10  // octets of the read buffer at first
	readBytes  = 256 << 10 // of one that was filled, unless a frame is larger
)

// conn is a connection that a link has: one goroutine reads it, one writes it, and it is over when both have ended.
type conn struct {
	link *link
	nc   net.Conn
	once sync.Once
	stop chan struct{} // closed by fail
	why  error         // set before that
	wake chan struct{} // for the writer; one slot
	done chan struct{} // closed when both goroutines have ended
	both sync.WaitGroup

	// Guarded by link.mu.
	idle    bool   // the writer waits for wake
	leaving bool   // say goodbye when everything is written
	acked   uint64 // what the last ack said

	// The writer's own.
	vec  [][]byte
	bufs net.Buffers
	head [2 * (frameHead + 8)]byte
	one  []byte

	rooms []func() // the reader's own
}

func newConn(l *link, nc net.Conn) *conn {
	c := &conn{link: l, nc: nc, stop: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{})}
	c.both.Add(2)
	return c
}

// fail ends the connection. What it was called with first is why.
func (c *conn) fail(err error) {
	c.once.Do(func() {
		c.why = err
		close(c.stop)
		c.nc.Close()
	})
}

// rouse wakes the writer. The caller holds link.mu.
func (c *conn) rouse() {
	if c.idle {
		c.idle = false
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// write is the writer: it writes what is in the log, and acks.
func (c *conn) write() {
	defer c.both.Done()
	l := c.link
	tick := time.NewTicker(l.node.o.Silence / 4)
	defer tick.Stop()
	written, beat := true, false // since the last tick; nothing was, so say something
	l.mu.Lock()
	for {
		received := l.received.Load()
		if l.out.next == l.out.end && received-c.acked < ackEvery && !beat && !c.leaving {
			c.idle = true
			l.mu.Unlock()
			select {
			case <-c.wake:
			case <-tick.C:
				beat, written = !written, false
			case <-c.stop:
				return
			}
			l.mu.Lock()
			c.idle = false
			continue
		}
		vec := c.vec[:0]
		head := c.head[:0]
		if received != c.acked || beat {
			head = (&frame{typ: frameAck}).appendHead(head, 8)
			head = binary.LittleEndian.AppendUint64(head, received)
			vec = append(vec, head)
		}
		vec, to := l.out.take(vec, writeBytes)
		bye := c.leaving && to == l.out.end
		if bye {
			at := len(head)
			head = (&frame{typ: frameGoodbye}).appendHead(head, 0)
			vec = append(vec, head[at:])
		}
		c.acked = received
		l.mu.Unlock()
		c.vec = vec
		if err := c.send(); err != nil {
			c.fail(err)
			return
		}
		l.mu.Lock()
		l.out.wrote(to)
		written, beat = true, false
		if bye {
			l.mu.Unlock()
			return // and read until the other side has closed
		}
	}
}

// send writes vec. What is little is put together: to copy it costs less than to say where its pieces are.
func (c *conn) send() error {
	size := 0
	for _, b := range c.vec {
		size += len(b)
	}
	if size <= oneWrite {
		c.one = c.one[:0]
		for i, b := range c.vec {
			c.one = append(c.one, b...)
			c.vec[i] = nil
		}
		_, err := c.nc.Write(c.one)
		return err
	}
	if t, ok := c.nc.(*socket.Conn); ok {
		c.bufs = c.vec
		_, err := c.bufs.WriteTo(t.TCPConn)
		clear(c.vec)
		return err
	}
	for i, b := range c.vec {
		c.vec[i] = nil
		if _, err := c.nc.Write(b); err != nil {
			return err
		}
	}
	return nil
}

var (
	errGoodbye = errors.New("cluster: the other node has said goodbye")
	errSilent  = errors.New("cluster: nothing heard from the other node")
)

// read is the reader. It also sees to the end of the connection.
func (c *conn) read() {
	err := c.readAll()
	if errors.Is(err, errFrame) || errors.Is(err, errBroken) {
		c.link.broke()
	}
	c.fail(err)
	c.both.Done()
	c.both.Wait()
	c.link.ended(c.why)
	close(c.done)
}

func (c *conn) readAll() error {
	l := c.link
	buf := make([]byte, readLeast)
	from, to := 0, 0
	filled := false // by the last read
	silence := l.node.o.Silence
	var until time.Time // the deadline that was set
	for {
		needs := 0
		for {
			var f frame
			n, least, err := f.parse(buf[from:to])
			if err != nil {
				return err
			}
			if n == 0 {
				needs = least
				break
			}
			if err := c.got(&f); err != nil {
				return err
			}
			from += n
		}
		l.received.Store(l.in.octets)
		l.mu.Lock()
		if l.in.octets-c.acked >= ackEvery {
			c.rouse()
		}
		l.mu.Unlock()

		to = copy(buf, buf[from:to])
		from = 0
		if needs > readBytes && needs > len(buf) {
			buf = append(make([]byte, 0, maxFrame+frameHead), buf[:to]...)[:maxFrame+frameHead]
		} else if (filled || needs > len(buf)) && len(buf) < readBytes {
			buf = append(make([]byte, 0, readBytes), buf[:to]...)[:readBytes]
		}
		now := time.Now()
		if until.Sub(now) < silence {
			until = now.Add(silence + silence/8)
			c.nc.SetReadDeadline(until)
		}
		n, err := c.nc.Read(buf[to:])
		to += n
		filled = to == len(buf)
		if n > 0 {
			l.heard.Store(int64(l.node.now()))
		} else if err != nil {
			var t net.Error
			if errors.As(err, &t) && t.Timeout() {
				return errSilent
			}
			return fmt.Errorf("cluster: read: %w", err)
		}
	}
}

// got does what a frame says, and counts it.
func (c *conn) got(f *frame) error {
	in := &c.link.in
	if f.logged() && f.number != in.frames {
		return errBroken
	}
	if err := c.do(f); err != nil {
		return err
	}
	if f.logged() {
		in.frames++
		in.octets += uint64(f.octets())
	}
	return nil
}

func (c *conn) do(f *frame) error {
	l := c.link
	switch f.typ {
	case frameAck:
		return c.gotAck(binary.LittleEndian.Uint64(f.body))
	case frameGoodbye:
		l.mu.Lock()
		l.left = true
		l.mu.Unlock()
		return errGoodbye
	case frameData:
		return l.gotData(f)
	case frameCredit:
		return c.gotCredit(f.stream, binary.LittleEndian.Uint64(f.body))
	case frameCall:
		l.gotCall(f)
	case frameReply:
		l.gotReply(f)
	}
	return nil
}

func (c *conn) gotAck(to uint64) error {
	l := c.link
	l.mu.Lock()
	if !l.out.ack(to) {
		l.mu.Unlock()
		return errBroken
	}
	rooms := l.roomy(c.rooms[:0])
	l.mu.Unlock()
	c.tell(rooms)
	return nil
}

// tell calls the functions of those that there is room for.
func (c *conn) tell(rooms []func()) {
	for i, f := range rooms {
		f()
		rooms[i] = nil
	}
	c.rooms = rooms
}
