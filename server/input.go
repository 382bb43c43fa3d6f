package server

import (
	"crypto/tls"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/socket"
)

// input is the reader's buffer: a slab borrowed from the pool while there is something in it, so that a connection at
// rest has none. When most of what was read stays in queues, the slab is left to the messages and another one borrowed.
type input struct {
	pool  *queue.Pool
	slab  *queue.Slab // nil: nothing buffered, or it is in rest or large
	large []byte      // instead of the slab for a frame that does not fit one
	r, w  int         // unread octets are [r, w) of the buffer
	rest  []byte      // the start of a frame, while waiting for more of it
	given bool        // messages in queues lie in the slab
	small []byte      // where a TLS socket is read into
	read  func(fd uintptr) bool
	err   error
	much  bool // the last read brought it, and so will the next
	mail  bool // fill returned because there is mail
}

const (
	maxRest = 16 << 10 // a longer start of a frame keeps its slab
	minRoom = 4 << 10  // less room than this at the end of the buffer: move what is unread to the front
)

func (in *input) buffer() []byte {
	if in.large != nil {
		return in.large
	}
	if in.slab == nil {
		return nil
	}
	return in.slab.Buf
}

func (in *input) bytes() []byte { return in.buffer()[in.r:in.w] }

func (in *input) skip(n int) { in.r += n }

// need is told that b, all that is unread, is not a whole frame.
func (in *input) need(b []byte) {
	const head = 7
	if len(b) < head {
		return
	}
	size := int(b[3])<<24 | int(b[4])<<16 | int(b[5])<<8 | int(b[6])
	want := size + head + 1
	if want <= queue.SlabSize || in.large != nil && in.w < len(in.large) {
		return
	}
	// It grows with what has come, not with what was announced.
	large := make([]byte, min(want, max(2*queue.SlabSize, 2*len(b))))
	in.w = copy(large, b)
	in.r = 0
	in.release()
	in.large = large
}

// tidy makes room for the next read after everything whole was handled.
func (in *input) tidy() {
	buf := in.buffer()
	unread := buf[in.r:in.w]
	switch {
	case buf == nil:
	case len(unread) == 0:
		in.r, in.w = 0, 0
		if in.given || in.large != nil {
			in.release()
		}
	case in.large != nil && in.r == 0:
		// still the same frame
	case in.large != nil || in.given:
		fresh := in.pool.Get()
		in.r, in.w = 0, copy(fresh.Buf, unread)
		in.release()
		in.slab = fresh
	case in.r > 0 && len(buf)-in.w < minRoom, in.r >= len(buf)/2:
		in.w = copy(buf, unread)
		in.r = 0
	}
}

// borrow takes a slab and puts what was set aside into it.
func (in *input) borrow() {
	in.slab = in.pool.Get()
	in.r, in.w = 0, copy(in.slab.Buf, in.rest)
	in.rest = in.rest[:0]
}

// release gives the slab, or the reader's part in it, back.
func (in *input) release() {
	if in.slab != nil {
		in.pool.Release(in.slab.ID, 1)
		in.slab = nil
	}
	in.large, in.given = nil, false
}

// putAside empties the buffer while nothing comes, unless much is in it.
func (in *input) putAside() {
	if in.slab == nil || in.w-in.r > maxRest {
		return
	}
	in.lend()
}

// lend empties the buffer, so that the pool has the slab.
func (in *input) lend() {
	if in.slab == nil {
		return
	}
	if n := in.w - in.r; n > 0 {
		in.rest = append(in.rest[:0], in.bytes()...)
	} else if cap(in.rest) > 0 {
		in.rest = nil
	}
	in.r, in.w = 0, 0
	in.release()
}

func (in *input) drop() {
	in.r, in.w, in.rest = 0, 0, nil
	in.release()
}

// from reads what a socket has.
func (in *input) from(fd int, b []byte) (int, error) {
	if in.much {
		return syscall.Read(fd, b)
	}
	return socket.ReadNow(fd, b)
}

func (c *conn) initInput() {
	in := &c.in
	in.pool = c.server.pool
	in.read = func(fd uintptr) bool {
		for {
			if in.buffer() == nil {
				in.borrow()
			}
			n, err := in.from(int(fd), in.buffer()[in.w:])
			switch {
			case err == syscall.EINTR:
				continue
			case err == syscall.EAGAIN:
				in.putAside()
				in.mail = !c.mail.rest()
				return in.mail
			case err != nil:
				in.err = err
			case n == 0:
				in.err = io.EOF
			default:
				in.w += n
				in.much = n >= inlineBytes
				c.read(n)
			}
			return true
		}
	}
}

// fill reads what the socket has, waiting for something if there is nothing, and returns false at its end. It also
// returns when there is mail.
func (c *conn) fill() bool {
	in := &c.in
	in.tidy()
	var err error
	if c.raw != nil {
		err = c.raw.Read(in.read)
	} else {
		err = c.fillTLS()
	}
	if err == nil {
		err, in.err = in.err, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // somebody wants our attention
		c.socket.SetReadDeadline(time.Time{})
		err = nil
	}
	c.mail.wake()
	return err == nil
}

func (c *conn) fillTLS() error {
	in := &c.in
	if in.small == nil {
		in.small = make([]byte, 4<<10)
	}
	in.putAside()
	if !c.mail.rest() {
		return nil
	}
	room := queue.SlabSize - len(in.rest)
	if b := in.buffer(); b != nil {
		if in.r > 0 && len(b)-in.w < len(in.small) {
			in.w = copy(b, in.bytes())
			in.r = 0
		}
		room = len(b) - in.w
	}
	n, err := c.socket.Read(in.small[:min(len(in.small), room)])
	if n > 0 {
		if in.buffer() == nil {
			in.borrow()
		}
		if c.secured == nil {
			state := c.socket.(*tls.Conn).ConnectionState()
			c.mu.Lock()
			c.secured = &state
			c.mu.Unlock()
		}
		in.w += copy(in.buffer()[in.w:], in.small[:n])
		c.read(n)
		if n == len(in.small) && n < 16<<10 {
			in.small = make([]byte, 16<<10)
		}
		err = nil // if it stays, it comes again
	}
	return err
}

// read counts a read that brought octets.
func (c *conn) read(n int) {
	c.received.Add(uint64(n))
	c.reads.Add(1)
}
