package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/management"
)

// engine is the broker and the AMQP server, as far as a node needs to know them.
type engine interface {
	management.Broker
	// Listen accepts AMQP connections on an address until Stop, and returns the address it got. With secure set, TLS comes first.
	Listen(address string, secure bool) (net.Addr, error)
	// Failed hears, once, why the engine cannot go on: what it keeps cannot be kept any more. It must be stopped then.
	Failed() <-chan error
	// Stop closes the addresses, tells every client that the node goes down, and returns when all are gone; those who have not gone when
	// ctx ends are cut off.
	Stop(ctx context.Context) error
}

// opener makes the engine of a configuration. version is announced to clients; memory is that of the machine, in bytes.
type opener func(cfg config.Config, version string, memory uint64, log *slog.Logger) (engine, error)

// listener is an address in use.
type listener struct {
	net.Addr
	protocol string       // as the management API calls it
	http     net.Listener // nil for AMQP, whose sockets are the engine's
}

// shown is the address in a form that a client on this machine can use.
func (l listener) shown() string {
	at, ok := l.Addr.(*net.TCPAddr)
	if !ok {
		return l.Addr.String()
	}
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(at.Port))
}

// node is everything of a running node. stop ends it.
type node struct {
	engine    engine
	listeners []listener
	services  []*http.Server
	portsFile string
	failed    chan error // a listener that ended by itself
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// start opens the engine and all addresses, serves, and writes the ports file. If one step fails, what was opened is closed again.
func start(cfg config.Config, memory uint64, open opener, log *slog.Logger) (started *node, err error) {
	if err := os.MkdirAll(cfg.DataDir, 0o750); err != nil {
		return nil, &failure{code: exitConfig, text: "cannot make the data directory: " + err.Error(), err: err, remedy: "Choose another with --data-dir."}
	}
	n := &node{portsFile: cfg.PortsFile}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.Background(), stopTime)
			defer cancel()
			_ = n.stop(ctx) // the error that is told came first
		}
	}()
	version := cfg.ProductVersion
	if version == "" {
		version = release
	}
	if n.engine, err = open(cfg, version, memory, log); err != nil {
		var f *failure
		if !errors.As(err, &f) {
			err = &failure{code: exitSoftware, text: "the broker did not start: " + err.Error(), err: err}
		}
		return nil, err
	}
	if err := n.listen(cfg); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.serve(ctx, cfg, version, memory, log)
	if cfg.PortsFile != "" {
		if err := n.writePorts(cfg.PortsFile); err != nil {
			return nil, &failure{code: exitConfig, text: "cannot write the ports file: " + err.Error(), err: err, remedy: "Choose another with --ports-file."}
		}
	}
	return n, nil
}

// listen opens all addresses.
func (n *node) listen(cfg config.Config) error {
	for _, group := range []struct {
		addresses            []string
		protocol, what, flag string
	}{
		{some(cfg.HTTP), "http", "the HTTP API", "http"}, {some(cfg.Metrics), "http/prometheus", "metrics", "metrics"},
		{cfg.AMQP, "amqp", "AMQP", "listen"}, {cfg.AMQPS, "amqp/ssl", "AMQP over TLS", "tls-listen"}, // last: clients come when all is there
	} {
		for _, address := range group.addresses {
			l := listener{protocol: group.protocol}
			var err error
			if strings.HasPrefix(group.protocol, "amqp") {
				l.Addr, err = n.engine.Listen(address, group.protocol == "amqp/ssl")
			} else if l.http, err = net.Listen("tcp", address); err == nil {
				l.Addr = l.http.Addr()
			}
			if err != nil {
				return refusedListener(group.what, address, group.flag, plain(err))
			}
			n.listeners = append(n.listeners, l)
		}
	}
	n.failed = make(chan error, len(n.listeners))
	return nil
}

// serve starts a goroutine for each listener and one for the samples; stop waits for them.
func (n *node) serve(ctx context.Context, cfg config.Config, version string, memory uint64, log *slog.Logger) {
	o := management.Options{
		Broker: n.engine, Node: cfg.NodeName, Cluster: cfg.ClusterName, Product: cfg.Product, ProductVersion: version, RabbitMQVersion: behavesAs,
		DefaultQueueType: cfg.DefaultQueueType, AuthMechanisms: cfg.AuthMechanisms, Listeners: n.shownListeners,
		MemoryLimit: cfg.MemoryWatermark.Bytes(memory), DiskLimit: cfg.DiskFreeLimit.Bytes(memory), ConnectionMax: cfg.ConnectionMax,
		DataDir: cfg.DataDir, ConfigFiles: some(cfg.File), LogFiles: some(cfg.Log.File), MaxBody: int64(cfg.HTTPMaxBody), Interval: cfg.StatisticsInterval,
		CertFile: cfg.TLS.CertFile, CAFile: cfg.TLS.CAFile, RefuseTransient: !cfg.PermitTransientQueues, RefuseGlobalQoS: !cfg.PermitGlobalQoS,
		MetricsAuth: cfg.MetricsAuth, PerObject: cfg.MetricsPerObject, Log: log}
	if s, ok := n.engine.(interface {
		Storage() management.StorageFigures
	}); ok {
		o.Storage = s.Storage
	}
	peers, _ := n.engine.(interface {
		Peers() management.Cluster
		Answer(*management.API)
	})
	if peers != nil {
		o.Peers = peers.Peers()
	}
	api := management.New(o)
	if o.Peers != nil {
		peers.Answer(api)
	}
	n.running.Go(func() { api.Run(ctx) })
	for _, l := range n.listeners {
		if l.http == nil {
			continue
		}
		handler := http.Handler(api)
		if l.protocol == "http/prometheus" {
			handler = api.Metrics()
		}
		service := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
			MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
		n.services = append(n.services, service)
		n.running.Go(func() {
			if err := service.Serve(l.http); !errors.Is(err, http.ErrServerClosed) {
				n.failed <- fmt.Errorf("the listener of %s at %s ended: %w", l.protocol, l.Addr, err)
			}
		})
	}
}

// shownListeners are the addresses in use, for the management API.
func (n *node) shownListeners() (list []management.Listener) {
	for _, l := range n.listeners {
		if at, ok := l.Addr.(*net.TCPAddr); ok {
			list = append(list, management.Listener{Protocol: l.protocol, Host: at.IP.String(), Port: at.Port, TLS: l.protocol == "amqp/ssl"})
		}
	}
	return list
}

// writePorts writes the addresses in use so that a reader sees all of them or no file.
func (n *node) writePorts(path string) error {
	names := map[string]string{"amqp": "amqp", "amqp/ssl": "amqps", "http": "http", "http/prometheus": "metrics"}
	ports := map[string]string{}
	for _, l := range n.listeners {
		if name := names[l.protocol]; ports[name] == "" { // the first of several
			ports[name] = l.shown()
		}
	}
	text, err := json.Marshal(ports)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it may be there or not
	}
	return err
}

// stop ends the node: no new connections, clients are told, the HTTP services finish what they answer. It may be called on a node that is
// only partly started.
func (n *node) stop(ctx context.Context) error {
	var errs []error
	for _, l := range n.listeners {
		if l.http != nil && n.cancel == nil {
			_ = l.http.Close() // nobody was served yet
		}
	}
	if n.engine != nil {
		errs = append(errs, n.engine.Stop(ctx))
	}
	for _, s := range n.services {
		if err := s.Shutdown(ctx); err != nil {
			errs = append(errs, err, s.Close())
		}
	}
	if n.cancel != nil {
		n.cancel()
	}
	done := make(chan struct{})
	go func() { n.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
	}
	if n.portsFile != "" && n.cancel != nil {
		_ = os.Remove(n.portsFile) // who reads it must not find addresses of nobody
	}
	return errors.Join(errs...)
}

// some is a list of one text, or of none if it is empty.
func some(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// plain is a listener's error without the address, which is told already.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
