package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/server"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream/slots"
)

// rooms are the broker's rooms joined into an engine.
type rooms struct {
	fs       storage.FS // of the data directory; nil: the operating system's
	cfg      config.Config
	pool     *queue.Pool
	clock    *queue.Clock
	db       *storage.DB
	store    *queue.Store
	quorum   *quorum.Host
	member   *membership // nil: the node is alone
	streams  *slots.Host
	ballast  *storage.Ballast
	alarms   broker.Alarms
	broker   *broker.Broker
	server   *server.Server
	amqp     atomic.Pointer[server.Server] // server, for who may come before it
	log      *slog.Logger
	unlock   func()
	failed   chan error // why the database takes no more writes; one slot
	serving  atomic.Bool
	watching sync.WaitGroup
	cancel   context.CancelFunc

	restoring bool // this member goes on without the others, for good; see inherit
}

// openEngine joins the rooms.
func openEngine(cfg config.Config, version string, memory uint64, log *slog.Logger) (engine, error) {
	r := &rooms{cfg: cfg, pool: queue.NewPool(int64(cfg.MemoryBound)), clock: queue.NewClock(), log: log}
	if err := r.open(version, memory); err != nil {
		return nil, err
	}
	return r, nil
}

// open joins them on the data directory.
func (r *rooms) open(version string, memory uint64) error {
	cfg, log := r.cfg, r.log
	r.failed = make(chan error, 1)
	if err := r.openData(); err != nil {
		r.closeData()
		return err
	}
	if err := r.seed(); err != nil {
		r.closeData()
		return err
	}
	if err := r.importDefinitions(); err != nil {
		r.closeData()
		return err
	}
	var others server.Others
	if r.member != nil {
		others = r.member
	}
	r.server = server.New(server.Options{
		Others:  others,
		Product: cfg.Product, Version: version, ClusterName: cfg.ClusterName,
		ChannelMax: cfg.ChannelMax, FrameMax: cfg.FrameMax, Heartbeat: uint16(cfg.Heartbeat / time.Second),
		HandshakeTimeout: cfg.HandshakeTimeout, MaxMessageSize: int(cfg.MaxMessageSize),
		ConnectionMax: unlimited(cfg.ConnectionMax), ConsumerMax: cfg.ConsumerMaxPerChannel,
		Mechanisms: mechanisms(cfg), AnonymousUser: cfg.AnonymousUser, AnonymousPass: cfg.AnonymousPass,
		RefuseGlobalQoS: !cfg.PermitGlobalQoS, CertLoginFrom: "distinguished_name", Log: log,
	}, r.broker, r.pool, r.clock)
	r.amqp.Store(r.server)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go r.trim(ctx)
	w := r.watch(memory)
	w.look(time.Now())
	r.watching.Go(func() { w.run(ctx) })
	return nil
}

// seed gives the default user, when it was made just now, the permissions and tags of the configuration.
func (r *rooms) seed() error {
	if !r.broker.Fresh() || r.cfg.Definitions.Path != "" {
		return nil
	}
	if p := r.cfg.DefaultPermissions; p != config.Default().DefaultPermissions {
		done := make(chan error, 1)
		r.broker.VHost(r.cfg.DefaultVHost).SetPermissions(r.cfg.DefaultUser, p.Configure, p.Write, p.Read, func(err error) { done <- err })
		if err := <-done; err != nil {
			return &failure{code: exitConfig, text: "default_permissions: " + err.Error(), err: err, remedy: "Write a regular expression, such as ^shop-.*"}
		}
	}
	if u := r.broker.User(r.cfg.DefaultUser); !slices.Equal(u.Tags, r.cfg.DefaultUserTags) {
		changed := *u
		changed.Tags = r.cfg.DefaultUserTags
		done := make(chan error, 1)
		r.broker.PutUser(changed, func(err error) { done <- err })
		return <-done
	}
	return nil
}

// Listen implements engine.
func (r *rooms) Listen(address string, secure bool) (net.Addr, error) {
	defer r.serving.Store(true)
	if !secure {
		return r.server.Listen(address)
	}
	t := r.cfg.TLS
	return r.server.ListenTLS(address, server.TLSFiles{Cert: t.CertFile, Key: t.KeyFile, CA: t.CAFile, Verify: t.Verify, Require: t.RequireCert})
}

// Peers are the other nodes, for the management API; nil if the node is alone.
func (r *rooms) Peers() management.Cluster {
	if r.member == nil {
		return nil
	}
	return r.member
}

// ClusterAddr is where other nodes reach this one; nil if it is alone.
func (r *rooms) ClusterAddr() net.Addr {
	if r.member == nil || r.member.apart {
		return nil
	}
	return r.member.listener.Addr()
}

// Answer has the API answer what other nodes ask.
func (r *rooms) Answer(api *management.API) { r.member.api.Store(api) }

// Failed implements engine.
func (r *rooms) Failed() <-chan error { return r.failed }

// Stop implements engine.
func (r *rooms) Stop(ctx context.Context) error {
	r.serving.Store(false)
	r.cancel()
	r.server.Shutdown(ctx)
	r.watching.Wait()
	return errors.Join(ctx.Err(), r.closeData())
}

func loopback(cfg config.Config) []string {
	list := []string{}
	for user, only := range cfg.LoopbackUsers {
		if only {
			list = append(list, user)
		}
	}
	return list
}

func unlimited(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// mechanisms are those configured, ANONYMOUS only while there is somebody to be.
func mechanisms(cfg config.Config) []string {
	list := slices.Clone(cfg.AuthMechanisms)
	if cfg.AnonymousUser == "" {
		list = slices.DeleteFunc(list, func(name string) bool { return name == "ANONYMOUS" })
	}
	return list
}

func isLoopback(from netip.Addr) bool {
	return from.IsLoopback() || from.Is4In6() && from.Unmap().IsLoopback()
}
