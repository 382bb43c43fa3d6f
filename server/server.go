// Package server speaks AMQP 0-9-1 with clients: it owns sockets, connections and channels, checks what they send, and
// turns it into calls of the broker and its queues.
//
// A connection has one goroutine that reads, and one that writes while there is something to write. A read brings a batch
// of frames; what they publish and acknowledge is gathered and handed to the queues once, after the last of them. What
// goes out passes through the connection's outbox, which gives deliveries their tags in the order in which they are
// written. See docs/design/data-path.md.
//
// The package never changes topology itself and knows no queue but by the contract in package queue. A reader never waits
// for a queue, a disk or another connection: answers come back through its mailbox.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
)

// Options of a Server. See DefaultOptions.
type Options struct {
	Product, Version string        // announced to clients
	ClusterName      string        // announced to clients
	ChannelMax       uint16        // channels a connection may have, 0: no limit
	FrameMax         uint32        // octets, 0: no limit
	Heartbeat        uint16        // seconds suggested to clients, 0: none
	HandshakeTimeout time.Duration // from accept to connection.open
	MaxMessageSize   int           // octets of a body
	ConnectionMax    int           // connections of the node, -1: no limit
	ConsumerMax      int           // consumers of a channel, 0: no limit
	Mechanisms       []string      // SASL
	AnonymousUser    string        // whom ANONYMOUS logs in as
	AnonymousPass    string
	RefuseGlobalQoS  bool   // basic.qos with global counts as without, as in RabbitMQ 4.3
	CertLoginFrom    string // where EXTERNAL finds the user name
	Others           Others // nil: the node is alone
	Log              *slog.Logger
}

// DefaultOptions are those of RabbitMQ.
func DefaultOptions() Options {
	return Options{
		Product: "Warren", ClusterName: "warren", ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60,
		HandshakeTimeout: 10 * time.Second, MaxMessageSize: 16 << 20, ConnectionMax: -1,
		Mechanisms:    []string{"PLAIN", "AMQPLAIN", "ANONYMOUS"},
		AnonymousUser: "guest", AnonymousPass: "guest",
		Log: slog.Default(),
	}
}

// Server serves connections. Its methods may be called concurrently.
type Server struct {
	options Options
	broker  *broker.Broker
	pool    *queue.Pool
	clock   *queue.Clock
	log     *slog.Logger
	replies replies

	plain, encrypted greeting // of connections without and with TLS

	Counters    Counters
	nextConn    atomic.Uint64
	nextChannel atomic.Uint64
	open        atomic.Int64 // connections past connection.open
	uncommitted atomic.Int64 // octets of messages in transactions
	late        atomic.Int64 // octets taken in during an alarm

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
	conns     map[uint64]*conn
	stopping  bool
	running   sync.WaitGroup // listeners and connections
	undoing   sync.WaitGroup // of those who take back what was granted to a channel that had ended
}

// New makes a Server.
func New(o Options, b *broker.Broker, pool *queue.Pool, clock *queue.Clock) *Server {
	s := &Server{options: o, broker: b, pool: pool, clock: clock, log: o.Log, conns: make(map[uint64]*conn)}
	s.replies.others, s.replies.pool = o.Others, pool
	s.plain, s.encrypted = o.greeting(false), o.greeting(true)
	b.Alarms.Watch(s.alarmsChanged)
	s.alarmsChanged(b.Alarms.Own(), b.Alarms.On())
	return s
}

// Listen accepts plain TCP connections on an address until Shutdown, and returns the address it got.
func (s *Server) Listen(address string) (net.Addr, error) { return s.listen(address, nil) }

// ListenTLS is Listen with TLS.
func (s *Server) ListenTLS(address string, files TLSFiles) (net.Addr, error) {
	certs, err := newCertificates(files, func(err error) { s.log.Warn("TLS files not reloaded", "error", err.Error()) })
	if err != nil {
		return nil, err
	}
	return s.listen(address, &tls.Config{GetConfigForClient: certs.forClient})
}

func (s *Server) listen(address string, config *tls.Config) (net.Addr, error) {
	// Keep-alive costs four system calls a connection; heartbeats do its work.
	l, err := (&net.ListenConfig{KeepAlive: -1}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("AMQP listener: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		l.Close()
		return nil, errors.New("AMQP listener: the server is stopping")
	}
	s.listeners = append(s.listeners, l)
	s.running.Add(1)
	go s.accept(l, config)
	return l.Addr(), nil
}

func (s *Server) accept(l net.Listener, config *tls.Config) {
	defer s.running.Done()
	for {
		socket, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as no more descriptors: it may pass
			s.log.Error("accept failed", "error", err.Error())
			time.Sleep(50 * time.Millisecond)
			continue
		}
		s.serve(socket, config)
	}
}

// serve starts a connection.
func (s *Server) serve(socket net.Conn, config *tls.Config) {
	c := &conn{server: s, socket: socket, wire: socket, id: s.nextConn.Add(1), opened: time.Now(), channels: make(map[uint16]*channel)}
	c.seed = uint64(c.opened.UnixNano())
	c.name = socket.RemoteAddr().String() + " -> " + socket.LocalAddr().String()
	if config != nil {
		c.socket = tls.Server(socket, config)
	} else if t, ok := socket.(*net.TCPConn); ok {
		c.raw, _ = t.SyscallConn()
	}
	c.out.idle.L = &c.out.mu
	c.mail.more.L = &c.mail.mu
	c.mail.kick = func() { socket.SetReadDeadline(time.Unix(1, 0)) }
	c.timing.conn = c
	c.initInput()
	c.initWriter()

	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		socket.Close()
		return
	}
	s.conns[c.id] = c
	s.running.Add(1)
	s.mu.Unlock()
	s.Counters.ConnectionsOpened.Add(1)
	c.timing.closeIn(s.options.HandshakeTimeout)
	go c.run()
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	delete(s.conns, c.id)
	s.mu.Unlock()
	if c.counted {
		s.open.Add(-1)
	}
	c.admission.End()
	s.Counters.ConnectionsClosed.Add(1)
	s.running.Done()
}

// Shutdown stops listening, tells clients that the node stops and waits, until the context ends, for them to go; those
// who do not are cut off.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.stopping = true
	for _, l := range s.listeners {
		l.Close()
	}
	for _, c := range s.conns {
		c.post(func() {
			if c.state < running {
				c.state = closed
				return
			}
			c.fail(amqp.Errorf(amqp.ConnectionForced, "broker forced connection closure with reason 'shutdown'"))
		})
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		s.undoing.Wait()
		return
	case <-ctx.Done():
	}
	s.mu.Lock()
	for _, c := range s.conns {
		c.cut()
	}
	s.mu.Unlock()
	<-done
	s.undoing.Wait()
}

// full reports whether publishes of c must wait for room. A connection that holds unacknowledged deliveries may go a
// little further, so that nobody waits for what only he can release.
func (s *Server) full(c *conn) bool {
	return s.alarmed() || s.pool.Full(0) && (!c.holdsDeliveries() || s.pool.InUse() >= s.pool.Bound()+s.pool.Bound()/8)
}

// holdsDeliveries reports whether a channel has unacknowledged deliveries. It looks once per batch.
func (c *conn) holdsDeliveries() bool {
	if !c.looked {
		c.looked, c.holds = true, c.anyUnacked()
	}
	return c.holds
}

func (c *conn) anyUnacked() bool {
	for _, ch := range c.channels {
		ch.mu.Lock()
		n := ch.unacked.Len()
		ch.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}
