package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"
)

// sender is a connection that this node has made. It is used by one goroutine; another one listens for answers.
type sender struct {
	c        net.Conn
	patience time.Duration
	every    time.Duration // between two questions, at least
	ended    chan struct{} // nobody listens any more, and c is closed
	asked    time.Time     // last

	mu   sync.Mutex // guards what follows
	owed bool       // there is a question without an answer
	why  error      // listening ended
}

// Close closes the connection.
func (s *sender) Close() {
	s.c.Close()
	<-s.ended
}

// SendMessageBatch sends messages.
func (s *sender) SendMessageBatch(batch raftpb.MessageBatch) error {
	memory := frameMemory.Get().(*[]byte)
	defer frameMemory.Put(memory)
	b := sized(memory, transportHead+batch.SizeUpperLimit())
	n, err := batch.MarshalTo(b[transportHead:])
	if err != nil {
		return err
	}
	return s.write(kindMessages, b[:transportHead+n])
}

// sized makes memory n octets long, whatever is in it.
func sized(memory *[]byte, n int) []byte {
	*memory = slices.Grow((*memory)[:0], n)[:n]
	return *memory
}

// write writes a frame, of which the body is there.
func (s *sender) write(kind uint8, b []byte) error {
	size := len(b) - transportHead
	if size > limitOf(kind) {
		return fmt.Errorf("quorum: a frame of %d octets", size)
	}
	ask := uint8(0)
	if now := time.Now(); now.Sub(s.asked) >= s.every && s.ask(now) {
		s.asked, ask = now, 1
	}
	binary.LittleEndian.PutUint32(b, uint32(size))
	b[4], b[5], b[6], b[7] = kind, ask, 0, 0
	binary.LittleEndian.PutUint32(b[8:], frameSum(b))
	for len(b) > 0 {
		n := min(len(b), piece)
		s.c.SetWriteDeadline(time.Now().Add(s.patience))
		if _, err := s.c.Write(b[:n]); err != nil {
			return s.reason(err)
		}
		b = b[n:]
	}
	return nil
}

// frameSum is the checksum of a frame.
func frameSum(b []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, b[:8]), castagnoli, b[transportHead:])
}

// ask notes that a question will be asked, if none is open.
func (s *sender) ask(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed {
		return false
	}
	s.owed = true
	s.c.SetReadDeadline(now.Add(s.patience))
	return true
}

// reason is why nothing can be written, given what the write said.
func (s *sender) reason(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != nil {
		return s.why
	}
	return err
}

// listen reads answers until the connection ends.
func (s *sender) listen() {
	var b [1]byte
	for {
		_, err := s.c.Read(b[:])
		s.mu.Lock()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = errUnheard
		case err == nil && (!s.owed || b[0] != heard):
			err = errMalformed
		case err == nil:
			s.owed = false
			s.c.SetReadDeadline(time.Time{})
		}
		if err != nil {
			s.why = err
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// snapshotSender is a connection for a snapshot.
type snapshotSender struct {
	*sender
	failed bool
}

// SendChunk sends a chunk.
func (s *snapshotSender) SendChunk(chunk raftpb.Chunk) error {
	memory := frameMemory.Get().(*[]byte)
	defer frameMemory.Put(memory)
	b := sized(memory, transportHead+chunk.Size())
	n, err := chunk.MarshalTo(b[transportHead:])
	if err == nil {
		err = s.write(kindChunk, b[:transportHead+n])
	}
	s.failed = s.failed || err != nil
	return err
}

// Close closes the connection when the other side has read what was sent.
func (s *snapshotSender) Close() {
	if !s.failed && s.write(kindEnd, make([]byte, transportHead)) == nil {
		late := time.NewTimer(goodbyeTime)
		defer late.Stop()
		select {
		case <-s.ended:
		case <-late.C:
		}
	}
	s.sender.Close()
}
