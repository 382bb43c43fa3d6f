package quorum

import (
	"context"
	"errors"
	"sync"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// network takes messages between hosts of one process. Each direction between two of them can fail by itself.
type network struct {
	mu     sync.Mutex // guards what follows
	hosts  map[string]*endpoint
	faults map[way]fault
	healed chan struct{} // closed when faults change
	chunks int           // of snapshots, that were taken
}

type way struct{ from, to string }

type fault uint8

const (
	fine  fault = iota
	cut         // sending fails
	lossy       // what is sent is lost, and nobody is told
	stuck       // sending waits
)

func newNetwork() *network {
	return &network{hosts: map[string]*endpoint{}, faults: map[way]fault{}, healed: make(chan struct{})}
}

// set has a direction fail, or not.
func (n *network) set(from, to uint64, f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults[way{address(from), address(to)}] = f
	close(n.healed)
	n.healed = make(chan struct{})
}

// isolate has both directions between a node and others fail, or not.
func (n *network) isolate(node uint64, f fault, others ...uint64) {
	for _, o := range others {
		n.set(node, o, f)
		n.set(o, node, f)
	}
}

var errCut = errors.New("the network is cut")

// pass waits for the other end, and returns nil where what is sent is lost.
func (n *network) pass(ctx context.Context, w way) (*endpoint, error) {
	for {
		n.mu.Lock()
		e, f, healed := n.hosts[w.to], n.faults[w], n.healed
		n.mu.Unlock()
		switch {
		case f == lossy:
			return nil, nil
		case f == cut || f == fine && e == nil:
			return nil, errCut
		case f == fine:
			return e, nil
		}
		select {
		case <-healed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Create implements config.TransportFactory.
func (n *network) Create(c config.NodeHostConfig, m raftio.MessageHandler, k raftio.ChunkHandler) raftio.ITransport {
	e := &endpoint{network: n, address: c.RaftAddress, message: m, chunk: k}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// Validate implements config.TransportFactory.
func (n *network) Validate(string) bool { return true }

// endpoint is one host's end of the network.
type endpoint struct {
	network *network
	address string
	message raftio.MessageHandler
	chunk   raftio.ChunkHandler
	ctx     context.Context
	cancel  func()

	mu     sync.RWMutex // held while something is delivered
	closed bool
}

func (e *endpoint) Name() string { return "network" }

func (e *endpoint) Start() error {
	e.network.mu.Lock()
	defer e.network.mu.Unlock()
	e.network.hosts[e.address] = e
	return nil
}

func (e *endpoint) Close() error {
	e.cancel()
	e.network.mu.Lock()
	if e.network.hosts[e.address] == e {
		delete(e.network.hosts, e.address)
	}
	e.network.mu.Unlock()
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	return nil
}

// deliver delivers something at the other end, or loses it.
func (e *endpoint) deliver(to string, f func(*endpoint) error) error {
	other, err := e.network.pass(e.ctx, way{e.address, to})
	if err != nil || other == nil {
		return err
	}
	other.mu.RLock()
	defer other.mu.RUnlock()
	if other.closed {
		return errCut
	}
	return f(other)
}

type connection struct {
	e  *endpoint
	to string
}

func (e *endpoint) GetConnection(_ context.Context, to string) (raftio.IConnection, error) {
	_, err := e.network.pass(e.ctx, way{e.address, to})
	return connection{e, to}, err
}

func (e *endpoint) GetSnapshotConnection(_ context.Context, to string) (raftio.ISnapshotConnection, error) {
	_, err := e.network.pass(e.ctx, way{e.address, to})
	return connection{e, to}, err
}

func (connection) Close() {}

// SendMessageBatch implements raftio.IConnection. What arrives shares nothing with what was sent.
func (c connection) SendMessageBatch(b raftpb.MessageBatch) error {
	return c.e.deliver(c.to, func(other *endpoint) error {
		data, err := b.Marshal()
		var copied raftpb.MessageBatch
		if err == nil {
			err = copied.Unmarshal(data)
		}
		if err == nil {
			other.message(copied)
		}
		return err
	})
}

// SendChunk implements raftio.ISnapshotConnection.
func (c connection) SendChunk(k raftpb.Chunk) error {
	return c.e.deliver(c.to, func(other *endpoint) error {
		data, err := k.Marshal()
		var copied raftpb.Chunk
		if err == nil {
			err = copied.Unmarshal(data)
		}
		if err == nil && !other.chunk(copied) {
			err = errors.New("a chunk was refused")
		}
		c.e.network.mu.Lock()
		c.e.network.chunks++
		c.e.network.mu.Unlock()
		return err
	})
}
