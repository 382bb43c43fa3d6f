package quorum

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// What a connection between the Raft engines of two members is for.
const (
	PurposeMessages uint8 = 1
	PurposeSnapshot uint8 = 2
	PurposeStreams  uint8 = 3 // of those who keep the machines of streams: a Transport does not take it
)

// Network connects this node with the other members, which it knows by their numbers.
type Network interface {
	// Dial makes a connection to a member, who gives it to the Accept of his Transport. It ends with the context.
	Dial(ctx context.Context, member uint64, purpose uint8) (net.Conn, error)
}

// Transport carries the Raft engine's messages and snapshots over connections that a Network makes. It listens nowhere: whoever
// listens calls Accept. Its methods may be called concurrently.
//
// A connection carries frames one way, from who has made it. Numbers are little-endian:
//
//	frame    size u32 | kind u8 | ask u8 | 0 u16 | crc u32 | body of size octets
//
//	kind     1 messages: a MessageBatch of the engine    2 chunk: of a snapshot    3 end: there is nothing more
//
// The crc is CRC-32C of the first eight octets and the body. Whoever reads the head of a frame that asks writes one octet
// back, 1. A sender asks once a second at the most, and gives up the connection when no answer comes: what the system took
// from it may lie in a buffer for many minutes when the network to the other node, or from it, is dead.
//
// At the end of a snapshot's connection the sender says so and waits until the other side closes: if it closed first,
// with an answer on its way to it, the system could throw away what the other side has not read yet.
type Transport struct {
	network Network
	log     *slog.Logger

	mu      sync.Mutex // guards what follows
	running *carrier
}

// NewTransport makes the transport of a node, for config.ExpertConfig.TransportFactory.
func NewTransport(network Network, log *slog.Logger) *Transport {
	return &Transport{network: network, log: log}
}

// Create is called by the Raft engine.
func (t *Transport) Create(c config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler) raftio.ITransport {
	own, _ := memberAt(c.RaftAddress)
	return &carrier{Transport: t, own: own, messages: messages, chunks: chunks, conns: make(map[net.Conn]struct{})}
}

// Validate reports whether an address is one of a member.
func (t *Transport) Validate(address string) bool {
	_, ok := memberAt(address)
	return ok
}

// memberAt is the reverse of address.
func memberAt(a string) (uint64, bool) {
	digits, isOne := strings.CutPrefix(a, "warren-")
	digits, hasPort := strings.CutSuffix(digits, ":25672")
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, isOne && hasPort && err == nil && n > 0 && address(n) == a
}

// Accept takes a connection that a member's Network has made for a purpose. It does not wait. The connection is closed if the
// engine does not run, or the purpose is not its.
func (t *Transport) Accept(member uint64, purpose uint8, c net.Conn) {
	t.mu.Lock()
	k := t.running
	t.mu.Unlock()
	if k == nil || member == 0 || purpose != PurposeMessages && purpose != PurposeSnapshot || !k.add(c) {
		c.Close()
		return
	}
	go k.serve(member, purpose, c)
}

const (
	// messagesPatience and chunksPatience are how long a sender waits for an answer, or until a piece is written. A chunk is
	// written to the disk of the other node.
	messagesPatience = 4 * time.Second
	chunksPatience   = 15 * time.Second
	askEvery         = time.Second
	// idleTime is how long a connection may be silent between two frames. The engine closes one that is idle for a minute.
	idleTime = 2 * time.Minute
	// goodbyeTime is how long the end of a snapshot may take. The engine waits for it when it stops.
	goodbyeTime = 5 * time.Second
	// piece is how many octets must be written, or come, within the patience.
	piece = 1 << 20

	transportHead = 12
	// maxMessages is the engine's limit of a batch, 64 MiB, which the last message may exceed by all it has: a proposal with
	// a message of 512 MiB.
	maxMessages = (64 + 512 + 64) << 20
	maxChunk    = 4 << 20 // the engine's are of 2 MiB

	kindMessages = 1
	kindChunk    = 2
	kindEnd      = 3
	heard        = 1 // the answer
)

var (
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
	errMalformed = errors.New("quorum: malformed message from another member")
	errStopped   = errors.New("quorum: the Raft engine has stopped")
	errUnheard   = errors.New("quorum: no answer from the other member")
)

// frameMemory has the memory of frames that are written or read at the moment, for all connections.
var frameMemory = sync.Pool{New: func() any { return new([]byte) }}

// carrier is the transport of an engine while it runs.
type carrier struct {
	*Transport
	own      uint64
	messages raftio.MessageHandler
	chunks   raftio.ChunkHandler

	work   sync.WaitGroup // goroutines that read
	connMu sync.Mutex     // guards what follows; a leaf
	closed bool
	conns  map[net.Conn]struct{}
}

// Name is for the engine's log.
func (k *carrier) Name() string { return "warren" }

// Start lets connections in.
func (k *carrier) Start() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = k
	return nil
}

// Close closes all connections, and returns when nobody reads them any more.
func (k *carrier) Close() error {
	k.mu.Lock()
	if k.running == k {
		k.running = nil
	}
	k.mu.Unlock()
	k.connMu.Lock()
	k.closed = true
	conns := slices.Collect(maps.Keys(k.conns))
	k.connMu.Unlock()
	var closing sync.WaitGroup
	for _, c := range conns {
		closing.Go(func() { c.Close() }) // TLS says goodbye to who may not listen
	}
	closing.Wait()
	k.work.Wait()
	return nil
}

// add notes a connection with a goroutine, unless the carrier is closed.
func (k *carrier) add(c net.Conn) bool {
	k.connMu.Lock()
	defer k.connMu.Unlock()
	if k.closed {
		return false
	}
	k.conns[c] = struct{}{}
	k.work.Add(1)
	return true
}

// over is told by the goroutine of a connection that it ends.
func (k *carrier) over(c net.Conn) {
	c.Close()
	k.connMu.Lock()
	delete(k.conns, c)
	k.connMu.Unlock()
	k.work.Done()
}

// GetConnection is a line for messages.
func (k *carrier) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	if !k.Validate(target) {
		return nil, fmt.Errorf("quorum: %q is no member's address", target)
	}
	return &line{k: k, ctx: ctx, target: target}, nil
}

// GetSnapshotConnection makes a connection for a snapshot.
func (k *carrier) GetSnapshotConnection(ctx context.Context, target string) (raftio.ISnapshotConnection, error) {
	s, err := k.dial(ctx, target, PurposeSnapshot, chunksPatience)
	if err != nil {
		return nil, err
	}
	return &snapshotSender{sender: s}, nil
}

func (k *carrier) dial(ctx context.Context, target string, purpose uint8, patience time.Duration) (*sender, error) {
	member, ok := memberAt(target)
	if !ok {
		return nil, fmt.Errorf("quorum: %q is no member's address", target)
	}
	ctx, cancel := context.WithTimeout(ctx, messagesPatience)
	defer cancel()
	c, err := k.network.Dial(ctx, member, purpose)
	if err != nil {
		return nil, err
	}
	return k.sender(c, patience, askEvery)
}

// sender makes a connection one that frames are sent on.
func (k *carrier) sender(c net.Conn, patience, every time.Duration) (*sender, error) {
	if !k.add(c) {
		c.Close()
		return nil, errStopped
	}
	s := &sender{c: c, patience: patience, every: every, ended: make(chan struct{})}
	go func() {
		s.listen()
		k.over(c)
		close(s.ended)
	}()
	return s, nil
}

// serve reads a connection that another member has made.
func (k *carrier) serve(member uint64, purpose uint8, c net.Conn) {
	defer k.over(c)
	f := frames{c: c, r: bufio.NewReaderSize(c, 64<<10), purpose: purpose, patience: messagesPatience}
	if purpose == PurposeSnapshot {
		f.patience = chunksPatience
	}
	for {
		err := f.next(func(kind uint8, body []byte) error { return k.take(member, kind, body) })
		switch {
		case err == io.EOF:
			return
		case errors.Is(err, errMalformed):
			k.log.Warn("a Raft connection is closed", "member", member, "error", err.Error())
			return
		case err != nil:
			k.log.Debug("a Raft connection ended", "member", member, "error", err.Error())
			return
		}
	}
}

var errUnwanted = errors.New("quorum: the Raft engine does not want the snapshot")

// take gives what came in a frame to the engine. The error is EOF for the last one.
func (k *carrier) take(member uint64, kind uint8, body []byte) error {
	switch kind {
	case kindMessages:
		batch, err := decodeMessages(body, member)
		if err != nil {
			return err
		}
		k.messages(batch)
	case kindChunk:
		chunk, err := decodeChunk(body, member, k.own)
		if err != nil {
			return err
		}
		if !k.chunks(chunk) {
			return errUnwanted
		}
	case kindEnd:
		return io.EOF
	}
	return nil
}

// frames reads the frames of a connection, and answers those that ask.
type frames struct {
	c        net.Conn
	r        *bufio.Reader
	purpose  uint8
	patience time.Duration
	head     [transportHead]byte
}

// next reads a frame and gives it to take, during which the body is valid. The error is EOF where the connection ended between
// two frames.
func (f *frames) next(take func(kind uint8, body []byte) error) error {
	f.c.SetReadDeadline(time.Now().Add(idleTime))
	head := f.head[:]
	if _, err := io.ReadFull(f.r, head); err != nil {
		return err
	}
	size, kind := int(binary.LittleEndian.Uint32(head)), head[4]
	if !f.fits(kind, size) || head[5] > 1 || head[6] != 0 || head[7] != 0 {
		return fmt.Errorf("%w: kind %d, %d octets", errMalformed, kind, size)
	}
	if head[5] == 1 {
		f.c.SetWriteDeadline(time.Now().Add(f.patience))
		if _, err := f.c.Write([]byte{heard}); err != nil {
			return err
		}
	}
	memory := frameMemory.Get().(*[]byte)
	defer frameMemory.Put(memory)
	b, err := f.rest(append((*memory)[:0], head...), size)
	*memory = b
	if err != nil {
		return fmt.Errorf("quorum: in a frame: %w", err)
	}
	if binary.LittleEndian.Uint32(b[8:]) != frameSum(b) {
		return fmt.Errorf("%w: kind %d, wrong checksum", errMalformed, kind)
	}
	return take(kind, b[transportHead:])
}

// rest appends size octets to b, which grows as they come, not as a head says.
func (f *frames) rest(b []byte, size int) ([]byte, error) {
	for size > 0 {
		n := min(size, piece)
		b = slices.Grow(b, n)
		f.c.SetReadDeadline(time.Now().Add(f.patience))
		if _, err := io.ReadFull(f.r, b[len(b):len(b)+n]); err != nil {
			return b, err
		}
		b = b[:len(b)+n]
		size -= n
	}
	return b, nil
}

// fits reports whether a connection of this purpose may have such a frame.
func (f *frames) fits(kind uint8, size int) bool {
	switch kind {
	case kindMessages:
		return f.purpose == PurposeMessages && size > 0 && size <= maxMessages
	case kindChunk:
		return f.purpose == PurposeSnapshot && size > 0 && size <= maxChunk
	case kindEnd:
		return f.purpose == PurposeSnapshot && size == 0
	}
	return false
}

func limitOf(kind uint8) int {
	if kind == kindMessages {
		return maxMessages
	}
	return maxChunk
}

// decodeMessages decodes messages of a member, and refuses what the engine, which trusts its peers, would not survive.
func decodeMessages(b []byte, member uint64) (batch raftpb.MessageBatch, err error) {
	const requests, entries = 1, 11
	sound := fields(b, requests, func(message []byte) bool {
		return fields(message, entries, func([]byte) bool { return true })
	})
	if !sound {
		return batch, fmt.Errorf("%w: no messages", errMalformed)
	}
	if err := batch.Unmarshal(b); err != nil {
		return batch, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if batch.SourceAddress != address(member) {
		return batch, fmt.Errorf("%w: member %d says that it is %q", errMalformed, member, batch.SourceAddress)
	}
	for i := range batch.Requests {
		m := &batch.Requests[i]
		switch m.Type {
		case raftpb.LocalTick, raftpb.Election, raftpb.LeaderHeartbeat, raftpb.ConfigChangeEvent, raftpb.Unreachable,
			raftpb.CheckQuorum, raftpb.BatchedReadIndex, raftpb.SnapshotStatus, raftpb.InstallSnapshot: // told to itself only
			return batch, fmt.Errorf("%w: %v", errMalformed, m.Type)
		}
		if m.To == 0 {
			return batch, fmt.Errorf("%w: %v to nobody", errMalformed, m.Type)
		}
	}
	return batch, nil
}

// decodeChunk decodes a chunk that a member sends to a replica of this node.
func decodeChunk(b []byte, member, own uint64) (chunk raftpb.Chunk, err error) {
	if err := chunk.Unmarshal(b); err != nil {
		return chunk, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if memberOf(chunk.From) != member || memberOf(chunk.ReplicaID) != own {
		return chunk, fmt.Errorf("%w: member %d has a chunk from %d to %d", errMalformed, member, chunk.From, chunk.ReplicaID)
	}
	return chunk, nil
}

// fields reports whether b is a sequence of protobuf's fields, of numbers below 16 and of the two types that the engine uses, and
// whether each one of number nested is octets that check is content with. The engine counts the fields of a message before it
// looks whether they are whole.
func fields(b []byte, nested byte, check func([]byte) bool) bool {
	for len(b) > 0 {
		number, typ := b[0]>>3, b[0]&7
		if b[0] >= 0x80 || number == 0 {
			return false
		}
		v, n := binary.Uvarint(b[1:])
		if n <= 0 {
			return false
		}
		b = b[1+n:]
		switch {
		case typ == 0 && number != nested:
		case typ == 2 && v <= uint64(len(b)):
			if number == nested && !check(b[:v]) {
				return false
			}
			b = b[v:]
		default:
			return false
		}
	}
	return true
}
