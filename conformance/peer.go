package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueued bounds the octets of bodies that wait to be looked at by a case.
const maxQueued = 128 << 20

var errTimeLimit = errors.New("nothing came in time")

// An event is what came from the broker: a method with its content, a protocol header, or a heartbeat.
type event struct {
	msg      message
	protocol []byte // the four octets after "AMQP"
}

func (e event) name() string {
	if e.protocol != nil {
		return "protocol"
	}
	return e.msg.spec.name
}

func (e event) String() string {
	if e.protocol != nil {
		return "protocol " + format(e.protocol)
	}
	return e.msg.String()
}

// asynchronous reports whether the broker may send it between a request and its reply.
func (e event) asynchronous() bool {
	switch e.name() {
	case "basic.deliver", "basic.return", "basic.ack", "basic.nack", "basic.cancel", "connection.blocked", "connection.unblocked":
		return true
	}
	return false
}

// A channelState is what the interpreter knows of a channel of a peer.
type channelState struct {
	open     bool
	byHand   bool // "unopened", or the close handshake is written out
	ignored  bool // "ignore": what is left at the end is no error
	last     *methodSpec
	confirms bool
	sent     uint64            // publishes since confirm.select
	results  map[uint64]string // publish number -> ack or nack
}

// A peer is the client's end of one connection. One goroutine reads; all else belongs to the case's goroutine.
type peer struct {
	name     string
	conn     net.Conn
	log      *trace
	frameMax atomic.Uint32 // negotiated; 0 before tuning
	ready    bool          // the interpreter made the handshake
	done     bool          // closed, by either side, as the case expected
	hold     bool          // "together": collect instead of write
	held     []byte
	channels map[uint16]*channelState
	tune     message     // the last connection.tune
	last     *methodSpec // sent on any channel

	gate    sync.Mutex // the reader passes it before each frame; held while stalled
	stalled bool
	arrived chan struct{} // holds a token after something came
	readers sync.WaitGroup

	mu         sync.Mutex // guards what follows
	queues     map[uint16][]event
	heartbeats int
	queued     int
	closed     error
}

func dial(ctx context.Context, name, address string, log *trace) (*peer, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	p := &peer{name: name, conn: conn, log: log, channels: map[uint16]*channelState{}, queues: map[uint16][]event{},
		arrived: make(chan struct{}, 1)}
	p.readers.Add(1)
	go func() {
		defer p.readers.Done()
		err := p.read()
		p.log.add("%s <  socket closed (%v)", p.name, err)
		p.mu.Lock()
		p.closed = err
		p.mu.Unlock()
		p.signal()
	}()
	return p, nil
}

func (p *peer) signal() {
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// A pending content is a method whose header or body has not come whole.
type pending struct {
	msg    message
	header bool
	left   uint64 // octets of the body to come
	frames uint64 // of the body, so far
}

// read assembles frames into events until the socket ends or the broker breaks the protocol.
func (p *peer) read() error {
	r := bufio.NewReaderSize(p.conn, 32<<10)
	open := map[uint16]*pending{}
	for {
		p.gate.Lock()
		p.gate.Unlock()
		if first, err := r.Peek(1); err != nil {
			return err
		} else if first[0] == 'A' {
			var header [8]byte
			if _, err := io.ReadFull(r, header[:]); err != nil {
				return err
			}
			if string(header[:4]) != "AMQP" {
				return fmt.Errorf("octets %q that are neither a frame nor a protocol header", header)
			}
			p.push(0, event{protocol: header[4:]})
			continue
		}
		f, err := readFrame(r)
		if err != nil {
			return err
		}
		if err := p.frame(f, open); err != nil {
			return fmt.Errorf("the broker broke the protocol: %w", err)
		}
	}
}

func (p *peer) frame(f frame, open map[uint16]*pending) error {
	content := open[f.channel]
	switch f.typ {
	case frameHeartbeat:
		if f.channel != 0 || len(f.payload) != 0 {
			return fmt.Errorf("a heartbeat on channel %d with %d octets", f.channel, len(f.payload))
		}
		p.mu.Lock()
		p.heartbeats++
		p.mu.Unlock()
		p.signal()
		return nil
	case frameMethod:
		if content != nil {
			return errors.New("a method frame inside content")
		}
		m, err := decodeMethod(f.payload)
		if err != nil {
			return err
		}
		if m.spec.content {
			open[f.channel] = &pending{msg: m}
			return nil
		}
		p.push(f.channel, event{msg: m})
		return nil
	case frameHeader:
		if content == nil || content.header {
			return errors.New("a content header without its method")
		}
		size, err := content.msg.decodeHeader(f.payload)
		if err != nil {
			return err
		}
		content.header, content.left = true, size
		content.msg.body = []byte{}
	case frameBody:
		if content == nil || !content.header {
			return errors.New("a body without its content header")
		}
		n := uint64(len(f.payload))
		limit := uint64(p.frameMax.Load())
		switch {
		case n > content.left:
			return fmt.Errorf("a body of %d octets where %d are left", n, content.left)
		case limit > 0 && n > limit-8:
			return fmt.Errorf("a body frame of %d octets with frame-max %d", n, limit)
		}
		content.msg.body = append(content.msg.body, f.payload...)
		content.left -= n
		content.frames++
	default:
		return fmt.Errorf("a frame of type %d", f.typ)
	}
	if content.left == 0 {
		delete(open, f.channel)
		content.msg.values[bodyFrames] = content.frames
		p.push(f.channel, event{msg: content.msg})
	}
	return nil
}

func (p *peer) push(channel uint16, e event) {
	p.log.add("%s/%d <  %s", p.name, channel, e)
	p.mu.Lock()
	p.queues[channel] = append(p.queues[channel], e)
	p.queued += len(e.msg.body)
	full := p.queued > maxQueued
	p.mu.Unlock()
	if full {
		p.conn.Close()
	}
	p.signal()
}

// first picks the first event of a queue.
func first(queue []event) int {
	if len(queue) > 0 {
		return 0
	}
	return -1
}

// take waits for an event on channel that pick chooses and removes it. A close that waits on the channel watch, or a closed
// socket, ends the wait early: the close is returned with the second result true and stays where it is.
func (p *peer) take(ctx context.Context, channel, watch uint16, limit time.Duration, pick func([]event) int) (event, bool, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		p.mu.Lock()
		queue := p.queues[channel]
		if i := pick(queue); i >= 0 {
			e := queue[i]
			p.queues[channel] = append(queue[:i:i], queue[i+1:]...)
			p.queued -= len(e.msg.body)
			p.mu.Unlock()
			return e, false, nil
		}
		if watch != channel && len(p.queues[watch]) > 0 && strings.HasSuffix(p.queues[watch][0].name(), ".close") {
			e := p.queues[watch][0]
			p.mu.Unlock()
			return e, true, nil
		}
		closed := p.closed
		p.mu.Unlock()
		if closed != nil {
			return event{}, false, fmt.Errorf("the socket was closed (%w)", closed)
		}
		select {
		case <-p.arrived:
		case <-timer.C:
			return event{}, false, errTimeLimit
		case <-ctx.Done():
			return event{}, false, ctx.Err()
		}
	}
}

// peek returns the first event of a channel and whether the socket is closed with nothing left to read.
func (p *peer) peek(channel uint16) (e event, ok, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.queues[channel]; len(q) > 0 {
		return q[0], true, false
	}
	return event{}, false, p.closed != nil
}

// drop removes the first event of a channel.
func (p *peer) drop(channel uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queues[channel] = p.queues[channel][1:]
}

// leftover describes an event nobody waited for, on one channel or, with -1, on any that is not ignored.
func (p *peer) leftover(channel int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ch, q := range p.queues {
		if len(q) == 0 || channel >= 0 && int(ch) != channel {
			continue
		}
		if st := p.channels[ch]; channel < 0 && st != nil && st.ignored {
			continue
		}
		return fmt.Sprintf("%s/%d < %s", p.name, ch, q[0])
	}
	return ""
}

// forget drops what waits on a channel.
func (p *peer) forget(channel uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.queues, channel)
}

func (p *peer) state(channel uint16) *channelState {
	st := p.channels[channel]
	if st == nil {
		st = &channelState{}
		p.channels[channel] = st
	}
	return st
}

func (p *peer) write(b []byte) error {
	if p.hold {
		p.held = append(p.held, b...)
		return nil
	}
	if err := p.conn.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	_, err := p.conn.Write(b)
	return err
}

// send writes a message: its method frame and, unless alone, its content.
func (p *peer) send(channel uint16, m message, alone bool) error {
	payload, err := m.encodeMethod()
	if err != nil {
		return err
	}
	b := appendFrame(nil, frameMethod, channel, payload)
	if m.spec.content && !alone {
		header, err := encodeHeader(m.spec.class, 0, uint64(len(m.body)), m.values)
		if err != nil {
			return err
		}
		b = appendFrame(b, frameHeader, channel, header)
		piece := len(m.body)
		if limit := int(p.frameMax.Load()); limit > 8 {
			piece = min(piece, limit-8)
		}
		for body := m.body; len(body) > 0; body = body[min(piece, len(body)):] {
			b = appendFrame(b, frameBody, channel, body[:min(piece, len(body))])
		}
	}
	p.log.add("%s/%d  > %s", p.name, channel, m)
	st := p.state(channel)
	p.last, st.last = m.spec, m.spec
	switch m.spec.name {
	case "basic.publish":
		if st.confirms {
			st.sent++
		}
	case "confirm.select":
		if !st.confirms {
			st.confirms, st.results = true, map[uint64]string{}
		}
	}
	return p.write(b)
}

// stall stops reading from the socket, or goes on.
func (p *peer) stall(on bool) {
	if on == p.stalled {
		return
	}
	if p.stalled = on; on {
		p.gate.Lock()
	} else {
		p.gate.Unlock()
	}
}

// end closes the socket; reset makes it a TCP reset.
func (p *peer) end(reset bool) {
	if tcp, ok := p.conn.(*net.TCPConn); ok && reset {
		tcp.SetLinger(0)
	}
	p.done = true
	p.conn.Close()
	p.stall(false)
	p.readers.Wait()
}
