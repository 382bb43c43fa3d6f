package server

import (
	"runtime"
	"syscall"
	"unsafe"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/socket"
)

// byReference is the size of messages, in octets, from which on they are written from where they lie. Below it a copy is as
// cheap.
const byReference = 16 << 10

// chunk is what one write takes to the socket: a buffer, and bytes of messages that belong in between. Those are held
// until the write is done.
type chunk struct {
	pooled *[]byte // what buf was borrowed as
	buf    []byte
	refs   []reference
	held   []uint32 // slabs, one for each message in refs
	extra  int      // octets in refs
	iov    []syscall.Iovec
	next   int // of iov: what comes before is written
	rest   []byte
	ready  bool // iov or rest are what is to be written
}

// reference is bytes that come when at octets of the buffer have.
type reference struct {
	at    int
	bytes []byte
}

// begin borrows a buffer, unless there is one.
func (k *chunk) begin() {
	if k.pooled == nil {
		k.pooled = writeBuffers.Get().(*[]byte)
		k.buf = (*k.pooled)[:0]
	}
}

// end gives the buffer back. A chunk that is nothing but frames of a stream has none.
func (k *chunk) end(pool *queue.Pool) {
	k.clear(pool)
	if k.pooled == nil {
		return
	}
	*k.pooled = k.buf
	writeBuffers.Put(k.pooled)
	k.pooled, k.buf = nil, nil
}

// clear makes room for the next write.
func (k *chunk) clear(pool *queue.Pool) {
	release := queue.Releaser{Pool: pool}
	for _, slab := range k.held {
		release.Add(slab)
	}
	release.Flush()
	clear(k.refs)
	clear(k.iov)
	k.held, k.refs, k.iov = k.held[:0], k.refs[:0], k.iov[:0]
	k.extra, k.next, k.rest, k.ready = 0, 0, nil, false
	if cap(k.buf) > 4*writeBytes {
		k.buf = make([]byte, 0, writeBytes+writeBytes/8)
	}
	k.buf = k.buf[:0]
}

func (k *chunk) octets() int { return len(k.buf) + k.extra }

// refer makes b come after dst, which is to become the buffer.
func (k *chunk) refer(dst, b []byte) []byte {
	k.refs = append(k.refs, reference{len(dst), b})
	k.extra += len(b)
	return dst
}

// prepare makes the list of what is to be written.
func (k *chunk) prepare() {
	if k.ready {
		return
	}
	k.ready = true
	if len(k.refs) == 0 {
		k.rest = k.buf
		return
	}
	from := 0
	for _, r := range k.refs {
		k.add(k.buf[from:r.at])
		k.add(r.bytes)
		from = r.at
	}
	k.add(k.buf[from:])
}

func (k *chunk) add(b []byte) {
	if len(b) > 0 {
		v := syscall.Iovec{Base: &b[0]}
		v.SetLen(len(b))
		k.iov = append(k.iov, v)
	}
}

// unwritten reports whether a write has begun and not ended.
func (k *chunk) unwritten() bool { return k.ready && (len(k.rest) > 0 || k.next < len(k.iov)) }

// maxIovecs is what a system takes in one writev, at the least.
const maxIovecs = 1024

// write writes what the socket takes at once.
func (k *chunk) write(fd uintptr) (err error) {
	for k.unwritten() && err == nil {
		if len(k.rest) > 0 {
			var n int
			write := syscall.Write
			if len(k.rest) < inlineBytes {
				write = socket.WriteNow
			}
			if n, err = write(int(fd), k.rest); n > 0 {
				k.rest = k.rest[n:]
			}
		} else {
			list := k.iov[k.next:min(len(k.iov), k.next+maxIovecs)]
			n, _, errno := syscall.Syscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&list[0])), uintptr(len(list)))
			runtime.KeepAlive(list)
			if errno != 0 {
				err = errno
			} else {
				k.skip(int(n))
			}
		}
		if err == syscall.EINTR {
			err = nil
		}
	}
	return err
}

// skip notes that n octets of iov were written.
func (k *chunk) skip(n int) {
	for n > 0 {
		v := &k.iov[k.next]
		size := int(v.Len)
		if n < size {
			v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), n))
			v.SetLen(size - n)
			return
		}
		n -= size
		k.next++
	}
}

func (c *conn) initWriter() {
	wr := &c.writer
	wr.run = c.writeAll
	step := func(fd uintptr) bool {
		err := wr.chunk.write(fd)
		if err != nil && err != syscall.EAGAIN {
			wr.err = err
		}
		return err != syscall.EAGAIN
	}
	wr.all = step
	wr.try = func(fd uintptr) bool {
		step(fd)
		return true
	}
}

// writeChunk writes the chunk. With wait it waits for the socket, otherwise something may be left.
func (c *conn) writeChunk(wait bool) {
	wr := &c.writer
	k := &wr.chunk
	if !k.ready {
		c.sent.Add(uint64(k.octets()))
		c.writes.Add(1)
	}
	k.prepare()
	if wr.err == nil {
		var err error
		switch {
		case c.raw == nil:
			_, err = c.socket.Write(k.rest)
		case wait:
			err = c.raw.Write(wr.all)
		default:
			err = c.raw.Write(wr.try)
		}
		if err != nil && wr.err == nil {
			wr.err = err
		}
		if wr.err != nil {
			c.cut()
		}
	}
	if wr.err != nil || c.raw == nil {
		k.rest, k.iov, k.next = nil, k.iov[:0], 0
	}
}
