// Package socket reads and writes what is little on a TCP connection without telling Go's scheduler, as package syscall does.
//
// To announce a call is right for one that may take its time, and costs the wake-up of the runtime's monitor, which then looks
// every 20 µs whether it is over: on a node at rest, which others tell every 100 ms that they live, that was a third of the time it
// took. Much is better announced: while it is copied, on a machine that others use as well, another goroutine can go on.
package socket

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

const (
	// readLittle and writeLittle are how many octets are read or written unannounced.
	readLittle  = 64 << 10
	writeLittle = 16 << 10
)

// Conn is a TCP connection of which little is read and written unannounced. In all else it is the connection.
type Conn struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out half
}

// half is one direction of a connection.
type half struct {
	mu   sync.Mutex // held while one reads or writes; guards what follows
	rest []byte
	n    int
	err  error
	do   func(fd uintptr) bool // made once
}

// Calm makes a Conn of a TCP connection, and leaves others as they are.
func Calm(c net.Conn) net.Conn {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return c
	}
	calm := &Conn{TCPConn: t, raw: raw}
	calm.in.do, calm.out.do = calm.in.read, calm.out.write
	return calm
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 || len(b) > readLittle {
		return c.TCPConn.Read(b)
	}
	h := &c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rest, h.n, h.err = b, 0, nil
	err := c.raw.Read(h.do)
	h.rest = nil
	switch {
	case err != nil:
		return 0, err
	case h.err != nil:
		return 0, c.failed("read", h.err)
	case h.n == 0:
		return 0, io.EOF
	}
	return h.n, nil
}

func (h *half) read(fd uintptr) bool {
	for {
		n, err := ReadNow(int(fd), h.rest)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		}
		h.n, h.err = n, err
		return true
	}
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	if len(b) == 0 || len(b) > writeLittle {
		return c.TCPConn.Write(b)
	}
	h := &c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rest, h.n, h.err = b, 0, nil
	err := c.raw.Write(h.do)
	h.rest = nil
	if err == nil && h.err != nil {
		err = c.failed("write", h.err)
	}
	return h.n, err
}

func (h *half) write(fd uintptr) bool {
	for len(h.rest) > 0 {
		n, err := WriteNow(int(fd), h.rest)
		switch err {
		case nil:
			h.rest, h.n = h.rest[n:], h.n+n
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			h.err = err
			return true
		}
	}
	return true
}

func (c *Conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}
