package slots

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"time"

	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/stream"
)

// Network connects this node with the other members, which it knows by their numbers.
type Network interface {
	// Others are the numbers of all other members, whether they can be reached or not.
	Others() []uint64
	// Dial makes a connection to a member, who gives it to the Accept of his Host. It ends with the context.
	Dial(ctx context.Context, member uint64, purpose uint8) (net.Conn, error)
}

// source is another replica of a slot, which is asked for what is missing here. What it gives is good until the next call.
type source interface {
	list(id, dir uint64) (listing, error)
	octets(id, dir, base uint64, pos int64) ([]byte, error)
	sum(id, dir, base uint64, pos int64) (uint32, error)
}

// listing is what a replica has of a stream.
type listing struct {
	first, next uint64
	segs        []stream.SegmentInfo // of which LastTime and MaxTime are not filled in
}

// Why a replica does not give what it is asked for.
var (
	errUnknownStream = errors.New("it does not know the stream")
	errCutThere      = errors.New("retention has removed it there")
	errDamagedThere  = errors.New("it is damaged there, too")
	errSilent        = errors.New("it does not answer")
)

// given is a machine as a source for others.
type given struct {
	m      *machine
	noted  func() // called when damage was found
	memory []byte
}

func (g *given) log(id, dir uint64) (*stream.Log, error) {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	q := g.m.streams[id]
	if q == nil || q.dir != dir || g.m.closed {
		return nil, errUnknownStream
	}
	return q.log, nil
}

func (g *given) list(id, dir uint64) (listing, error) {
	l, err := g.log(id, dir)
	if err != nil {
		return listing{}, err
	}
	first, next := l.Range()
	return listing{first, next, l.Segments()}, nil
}

func (g *given) octets(id, dir, base uint64, pos int64) ([]byte, error) {
	l, err := g.log(id, dir)
	if err != nil {
		return nil, err
	}
	if cap(g.memory) > 4<<20 { // of one large message
		g.memory = nil
	}
	g.memory, err = l.Octets(g.memory[:0], base, pos)
	if err = g.reason(l, err); len(g.memory) > 0 { // what is sound before damage
		err = nil
	}
	return g.memory, err
}

func (g *given) sum(id, dir, base uint64, pos int64) (uint32, error) {
	l, err := g.log(id, dir)
	if err != nil {
		return 0, err
	}
	sum, err := l.Sum(base, pos)
	return sum, g.reason(l, err)
}

// reason is an error as the other side may know it. Damage is noted, and will be mended here.
func (g *given) reason(l *stream.Log, err error) error {
	var removed *stream.RemovedError
	var damage *stream.DamageError
	switch {
	case errors.As(err, &removed):
		return errCutThere
	case errors.Is(err, stream.ErrClosed):
		return errUnknownStream
	case errors.As(err, &damage):
		if l.Note(damage.Damage) {
			g.m.log.Error("a stream is damaged", "file", damage.File, "reason", damage.Error(), "from", damage.From, "to", damage.To)
		}
		if g.noted != nil {
			g.noted()
		}
		return errDamagedThere
	}
	return err
}

// A connection for copies carries questions one way and an answer to each the other way. All numbers are little endian.
//
//	frame     size u32 | kind u8 | CRC-32C u32 of kind and body | body of size octets
//	question  kind 1 list, 2 octets, 3 sum; body: slot u16 | id, directory u64 | 2, 3: first offset of a segment, position u64
//	answer    kind 0 done, 1 unknown, 2 cut, 3 damaged: nothing, 4 another reason: its text
//	  list    first, next u64 | for each segment: first, next, size u64
//	  octets  whole chunks
//	  sum     u32
const (
	askList = iota + 1
	askOctets
	askSum

	answerDone = iota - 3
	answerUnknown
	answerCut
	answerDamaged
	answerText

	copyFrameHead = 4 + 1 + 4
	maxQuestion   = 2 + 4*8
	maxAnswer     = 1 << 30
	// copyPatience is how long an answer may take, and how long another question may be waited for.
	copyPatience = 15 * time.Second
	// maxGiven is how many members are given copies at once.
	maxGiven = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func writeFrame(c net.Conn, kind byte, body []byte) error {
	head := binary.LittleEndian.AppendUint32(make([]byte, 0, copyFrameHead), uint32(len(body)))
	head = append(head, kind)
	head = binary.LittleEndian.AppendUint32(head, crc32.Update(crc32.Update(0, castagnoli, head[4:5]), castagnoli, body))
	if err := c.SetWriteDeadline(time.Now().Add(copyPatience)); err != nil {
		return err
	}
	_, err := (&net.Buffers{head, body}).WriteTo(c)
	return err
}

// readFrame reads a frame into memory, which grows as it comes.
func readFrame(c net.Conn, r *bufio.Reader, memory []byte, most int) (kind byte, body []byte, err error) {
	var head [copyFrameHead]byte
	if err := c.SetReadDeadline(time.Now().Add(copyPatience)); err != nil {
		return 0, memory, err
	}
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, memory, err
	}
	size := int(binary.LittleEndian.Uint32(head[:]))
	if size > most {
		return 0, memory, fmt.Errorf("%w: a frame of %d octets", errFormat, size)
	}
	body = memory[:0]
	for len(body) < size {
		n := min(size-len(body), 1<<20)
		body = slices.Grow(body, n)
		if err := c.SetReadDeadline(time.Now().Add(copyPatience)); err != nil {
			return 0, body, err
		}
		if _, err := io.ReadFull(r, body[len(body):len(body)+n]); err != nil {
			return 0, body, err
		}
		body = body[:len(body)+n]
	}
	if crc32.Update(crc32.Update(0, castagnoli, head[4:5]), castagnoli, body) != binary.LittleEndian.Uint32(head[5:]) {
		return 0, body, fmt.Errorf("%w: a frame's checksum", errFormat)
	}
	return head[4], body, nil
}

// Accept takes a connection on which another member asks for what it lacks. It does not wait.
func (h *Host) Accept(member uint64, c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.giving) >= maxGiven {
		c.Close()
		return
	}
	h.giving[c] = struct{}{}
	h.serving.Go(func() {
		err := h.give(c)
		c.Close()
		h.mu.Lock()
		delete(h.giving, c)
		h.mu.Unlock()
		if errors.Is(err, errFormat) {
			h.o.Log.Warn("another member asks for a copy of streams in a way that makes no sense", "member", member, "error", err.Error())
		}
	})
}

// give answers what is asked on a connection until it ends.
func (h *Host) give(c net.Conn) error {
	r := bufio.NewReader(c)
	sources := map[uint16]*given{}
	var question, answer []byte
	for {
		kind, body, err := readFrame(c, r, question, maxQuestion)
		if err != nil {
			return err
		}
		question = body
		if len(body) < 2+2*8 || kind != askList && len(body) != maxQuestion {
			return fmt.Errorf("%w: a question of kind %d and %d octets", errFormat, kind, len(body))
		}
		le := binary.LittleEndian
		slot, id, dir := le.Uint16(body), le.Uint64(body[2:]), le.Uint64(body[10:])
		g := sources[slot]
		if g == nil {
			if g = h.given(slot); g == nil {
				if err := writeFrame(c, answerUnknown, nil); err != nil {
					return err
				}
				continue
			}
			sources[slot] = g
		}
		answer = answer[:0]
		switch kind {
		case askList:
			var l listing
			l, err = g.list(id, dir)
			answer = l.append(answer)
		case askOctets:
			var b []byte
			if b, err = g.octets(id, dir, le.Uint64(body[18:]), int64(le.Uint64(body[26:]))); err == nil {
				if err := writeFrame(c, answerDone, b); err != nil {
					return err
				}
				continue
			}
		case askSum:
			var sum uint32
			sum, err = g.sum(id, dir, le.Uint64(body[18:]), int64(le.Uint64(body[26:])))
			answer = le.AppendUint32(answer, sum)
		default:
			return fmt.Errorf("%w: a question of kind %d", errFormat, kind)
		}
		code := byte(answerDone)
		switch {
		case err == nil:
		case errors.Is(err, errUnknownStream):
			code, answer = answerUnknown, answer[:0]
		case errors.Is(err, errCutThere):
			code, answer = answerCut, answer[:0]
		case errors.Is(err, errDamagedThere):
			code, answer = answerDamaged, answer[:0]
		default:
			code, answer = answerText, append(answer[:0], err.Error()...)
		}
		if err := writeFrame(c, code, answer); err != nil {
			return err
		}
	}
}

func (h *Host) given(slot uint16) *given {
	h.mu.Lock()
	defer h.mu.Unlock()
	if int(slot) >= len(h.slots) {
		return nil
	}
	return &given{m: h.slots[slot].machine, noted: h.mender.wake}
}

func (l *listing) append(dst []byte) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint64(le.AppendUint64(dst, l.first), l.next)
	for _, s := range l.segs {
		dst = le.AppendUint64(le.AppendUint64(le.AppendUint64(dst, s.First), s.Next), uint64(s.Size))
	}
	return dst
}

func parseListing(b []byte) (l listing, err error) {
	if len(b) < 16 || (len(b)-16)%24 != 0 {
		return l, fmt.Errorf("%w: a list of segments", errFormat)
	}
	le := binary.LittleEndian
	l.first, l.next = le.Uint64(b), le.Uint64(b[8:])
	for b = b[16:]; len(b) > 0; b = b[24:] {
		l.segs = append(l.segs, stream.SegmentInfo{First: le.Uint64(b), Next: le.Uint64(b[8:]), Size: int64(le.Uint64(b[16:]))})
	}
	return l, nil
}

// asked is a member as a source, over a connection.
type asked struct {
	slot   uint16
	c      net.Conn
	r      *bufio.Reader
	memory []byte
}

// ask asks one question.
func (a *asked) ask(kind byte, numbers ...uint64) ([]byte, error) {
	body := binary.LittleEndian.AppendUint16(make([]byte, 0, maxQuestion), a.slot)
	for _, n := range numbers {
		body = binary.LittleEndian.AppendUint64(body, n)
	}
	err := writeFrame(a.c, kind, body)
	var code byte
	if err == nil {
		code, a.memory, err = readFrame(a.c, a.r, a.memory, maxAnswer)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errSilent, err)
	case code == answerDone:
		return a.memory, nil
	case code == answerUnknown:
		return nil, errUnknownStream
	case code == answerCut:
		return nil, errCutThere
	case code == answerDamaged:
		return nil, errDamagedThere
	}
	return nil, errors.New(string(a.memory))
}

func (a *asked) list(id, dir uint64) (listing, error) {
	b, err := a.ask(askList, id, dir)
	if err != nil {
		return listing{}, err
	}
	return parseListing(b)
}

func (a *asked) octets(id, dir, base uint64, pos int64) ([]byte, error) {
	return a.ask(askOctets, id, dir, base, uint64(pos))
}

func (a *asked) sum(id, dir, base uint64, pos int64) (uint32, error) {
	b, err := a.ask(askSum, id, dir, base, uint64(pos))
	if err == nil && len(b) != 4 {
		err = fmt.Errorf("%w: a sum", errFormat)
	}
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

// dial asks a member.
func (h *Host) dial(ctx context.Context, member uint64, slot uint16) (*asked, error) {
	ctx, cancel := context.WithTimeout(ctx, copyPatience)
	defer cancel()
	c, err := h.o.Network.Dial(ctx, member, quorum.PurposeStreams)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSilent, err)
	}
	return &asked{slot: slot, c: c, r: bufio.NewReaderSize(c, 64<<10)}, nil
}
