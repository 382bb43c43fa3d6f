package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/remote"
	"github.com/warrenmq/warren/storage"
)

const (
	// joinPause is between two attempts to reach the node whose cluster shall be joined, joinPatience how long it is tried.
	joinPause    = time.Second
	joinPatience = time.Minute
	// minSecret is how many octets a cluster's secret has at the least.
	minSecret = 16
)

// keyWelcome is what the cluster said when this node joined it, as JSON: what is needed before metadata is there.
var keyWelcome = []byte("c/welcome")

// membership is this node's part in a cluster: who it is, the link to the others, and what is done when they come and go.
type membership struct {
	rooms     *rooms
	log       *slog.Logger
	identity  cluster.Identity
	listener  net.Listener // until the link has it
	advertise string
	apart     bool    // it is the only member, and nobody can reach it
	welcome   welcome // zero for the founder
	options   cluster.Options
	link      *cluster.Node
	transport *quorum.Transport
	remote    *remote.Host
	meta      *quorum.Meta
	api       atomic.Pointer[management.API]
	changed   chan struct{}   // members or slots have; one slot
	ready     chan struct{}   // closed when metadata is there
	context   context.Context // until the node stops
	quit      context.CancelFunc
	running   sync.WaitGroup

	mu      sync.Mutex // guards what follows; a leaf
	reached map[cluster.NodeID]bool
	ids     map[uint64]cluster.NodeID // of members, by their numbers
	moved   map[cluster.NodeID]string // where those are reached who have said so in this start
	placed  map[cluster.NodeID]bool   // they have said so since they were last down
}

// know remembers who the members are.
func (m *membership) know(members []broker.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range members {
		m.ids[x.Number] = cluster.NodeID(x.NodeID)
	}
}

// request is what a node says that wants to become a member.
type request struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// welcome is the answer.
type welcome struct {
	Number  uint64          `json:"number"`
	Raft    uint64          `json:"raft"` // the Raft engine's deployment
	Members []broker.Member `json:"members"`
}

// openCluster makes this node a member of a cluster, if it is to be one, and says so to the rooms that are opened next.
func (r *rooms) openCluster(raft *quorum.Options, meta *broker.Options) error {
	apart, err := r.apart()
	if err != nil || r.cfg.Cluster.Listen == "" && !apart {
		return err
	}
	m, err := r.openMembership(apart)
	if err != nil {
		return err
	}
	if err := m.open(); err != nil {
		m.listener.Close()
		return err
	}
	r.member = m
	raft.Node, raft.Clustered, raft.ClusterID, raft.Transport = m.identity.Number, true, m.welcome.Raft, m.transport
	if r.restoring {
		raft.Transport = quorum.StandIns()
	}
	raft.Led = m.stir
	meta.Member, meta.NoDefaults = m.identity.Number, meta.NoDefaults || m.identity.Number != 1
	meta.MembersChanged, meta.SlotsChanged, meta.SoftChanged = m.stir, m.slotsFor, m.tellSoft
	meta.SlotsWanted, meta.GroupSize = slotsClustered, uint64(r.cfg.QuorumGroupSize)
	meta.CatchUp = m.catchUpSoon
	meta.CanRun = func(typ string) bool { return typ == broker.Classic || typ == broker.Quorum || typ == broker.Stream }
	meta.Decides = func(id broker.QueueID) bool { return r.quorum.Leads(uint64(id)) }
	return nil
}

// openMembership finds out which member of which cluster this node is. One that is none yet joins the cluster it was told
// to, or founds one of its own.
func (r *rooms) openMembership(apart bool) (m *membership, err error) {
	c := r.cfg.Cluster
	m = &membership{rooms: r, log: r.log, apart: apart, changed: make(chan struct{}, 1), ready: make(chan struct{}), reached: map[cluster.NodeID]bool{}, ids: map[uint64]cluster.NodeID{}, moved: map[cluster.NodeID]string{}, placed: map[cluster.NodeID]bool{}}
	if m.identity, err = cluster.Start(r.db, r.cfg.NodeName); err != nil {
		return nil, err
	}
	known, err := broker.ReadMembers(r.db)
	if err != nil {
		return nil, err
	}
	m.know(known)
	if apart {
		m.stayApart(known)
		return m, nil
	}
	if m.options, err = clusterOptions(c, m.identity); err != nil {
		return nil, err
	}
	if m.listener, err = net.Listen("tcp", c.Listen); err != nil {
		return nil, refusedListener("other nodes", c.Listen, "cluster-listen", plain(err))
	}
	defer func(l net.Listener) {
		if err != nil {
			l.Close()
		}
	}(m.listener)
	if m.advertise, err = advertised(c, m.listener.Addr()); err != nil {
		return nil, err
	}
	text, err := r.db.Get(keyWelcome)
	if err == nil && text != nil {
		err = json.Unmarshal(text, &m.welcome)
	}
	if err != nil {
		return nil, fmt.Errorf("what the cluster said when this node joined: %w", err)
	}
	switch {
	case m.identity.Number != 0:
	case c.Join != "":
		if err = m.join(); err != nil {
			return nil, err
		}
	default:
		if err = cluster.Become(r.db, 1); err != nil {
			return nil, err
		}
		m.identity.Number = 1
		m.log.Info("this node is a cluster of its own now: others may join it", "address", m.advertise)
	}
	m.options.Identity = m.identity
	m.know(m.welcome.Members)
	m.know(known)
	return m, nil
}

// advertised is the address at which others reach this node.
func advertised(c config.Cluster, bound net.Addr) (string, error) {
	if c.Advertise != "" {
		return c.Advertise, nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", err
		}
	}
	_, port, err := net.SplitHostPort(bound.String())
	return net.JoinHostPort(host, port), err
}

// join makes this node a member of the cluster of another. A directory with things of its own is refused: they would be
// gone.
func (m *membership) join() error {
	db, at := m.rooms.db, m.rooms.cfg.Cluster.Join
	if has, err := broker.HasMetadata(db); err != nil || has {
		return errors.Join(err, &failure{code: exitConfig, text: "this node has a data directory of its own and cannot join the cluster of " + at,
			remedy: "Start it with an empty --data-dir; definitions can be exported here and imported there."})
	}
	ask, err := json.Marshal(request{Name: m.identity.Name, Address: m.advertise})
	if err != nil {
		return err
	}
	m.log.Info("joining a cluster", "at", at)
	ctx, cancel := context.WithTimeout(context.Background(), joinPatience)
	defer cancel()
	var by cluster.Member
	var answer []byte
	for {
		if by, answer, err = cluster.Join(ctx, m.options, at, ask); err == nil {
			break
		}
		var refusal *cluster.Refusal
		if errors.As(err, &refusal) || ctx.Err() != nil {
			return &failure{code: exitUnavailable, text: "this node was not taken into the cluster of " + at + ": " + err.Error(), err: err,
				remedy: "Check the address, and that both nodes have the same secret and version."}
		}
		m.log.Warn("the cluster cannot be joined yet; it will be tried again", "at", at, "error", err.Error())
		select {
		case <-time.After(joinPause):
		case <-ctx.Done():
		}
	}
	if err := json.Unmarshal(answer, &m.welcome); err != nil {
		return fmt.Errorf("the answer of %s makes no sense: %w", at, err)
	}
	var b storage.Batch
	b.Set(keyWelcome, answer)
	if err := db.Commit(&b, true); err != nil {
		return err
	}
	if err := cluster.Enter(db, by.Cluster, m.welcome.Number); err != nil {
		return err
	}
	m.identity.Cluster, m.identity.Number = by.Cluster, m.welcome.Number
	m.log.Info("this node is a member now", "number", m.welcome.Number, "taken_in_by", by.Name)
	return nil
}

// open opens the link, by which nobody is reached before begin.
func (m *membership) open() (err error) {
	m.remote = remote.Open(remote.Options{Pool: m.rooms.pool, Clock: m.rooms.clock, Waits: true, Find: m.find, Direct: m.direct, Changed: m.softChanged,
		Broken: func(peer cluster.NodeID, err error) {
			m.log.Error("another node sends what makes no sense; the link begins anew", "node", peer.String(), "error", err.Error())
			go m.anew(peer)
		}})
	o := &m.options
	o.Up, o.Down = m.up, m.down
	o.Reset = m.remote.Reset
	o.Receive = func(b cluster.Batch) {
		if remote.Owns(b.Stream.ID()) {
			m.remote.Receive(b)
			return
		}
		b.Credit.Return()
	}
	o.Answer = m.answer
	o.Join = m.admit
	o.Accept = func(id cluster.NodeID, _ uint64, purpose uint8, c net.Conn) {
		p, ok := m.link.Peers().Find(id)
		if !ok || p.Number == 0 {
			c.Close()
			return
		}
		if purpose == quorum.PurposeStreams {
			m.rooms.acceptStreams(p.Number, c)
			return
		}
		m.transport.Accept(p.Number, purpose, c)
	}
	o.Refused = func(r *cluster.Refusal) {
		m.log.Warn("this node and another do not talk", "why", r.Error())
		if r.ByPeer && r.Proved && r.Reason == cluster.OldBoot {
			m.outdated(r.Text)
		}
	}
	if m.link, err = cluster.Open(*o); err != nil {
		return err
	}
	m.transport = quorum.NewTransport(raftNetwork{m.link}, m.log)
	return nil
}

// raftNetwork finds members for the Raft engine.
type raftNetwork struct{ link *cluster.Node }

func (n raftNetwork) Dial(ctx context.Context, member uint64, purpose uint8) (net.Conn, error) {
	p, ok := n.link.Peers().Member(member)
	if !ok {
		return nil, cluster.ErrUnknown
	}
	return n.link.Dial(ctx, p.ID, purpose)
}

// Others are the numbers of all other members.
func (n raftNetwork) Others() (others []uint64) {
	for _, p := range n.link.Peers() {
		if p.Number != 0 {
			others = append(others, p.Number)
		}
	}
	return others
}

// acceptStreams gives a connection on which a member copies streams to those who have them.
func (r *rooms) acceptStreams(member uint64, c net.Conn) {
	select {
	case <-r.member.ready: // and the streams are open
		r.streams.Accept(member, c)
	default:
		c.Close()
	}
}

// begin lets the others reach this node, and begins to reach them.
func (m *membership) begin() error {
	m.remote.Start(m.link)
	m.rooms.alarms.Watch(m.tellAlarms)
	m.tellAlarms(m.rooms.alarms.Own(), 0)
	if err := m.setPeers(); err != nil {
		return err
	}
	ctx, quit := context.WithCancel(context.Background())
	m.context, m.quit = ctx, quit
	m.running.Go(func() { m.place(ctx) })
	return m.link.Serve(m.listener)
}

// setPeers gives the link the members that metadata knows, or, before it does, those that the cluster named.
func (m *membership) setPeers() error {
	members := m.rooms.broker.Members()
	if len(members) == 0 {
		members = m.welcome.Members
	}
	m.know(members)
	if m.apart {
		return nil
	}
	var book cluster.Book
	m.mu.Lock()
	for _, x := range members {
		if now, ok := m.moved[cluster.NodeID(x.NodeID)]; ok {
			x.Address = now
		}
		book = book.With(cluster.Peer{ID: cluster.NodeID(x.NodeID), Number: x.Number, Name: x.Name, Address: x.Address,
			Versions: cluster.Versions{Least: x.Least, Most: x.Most}, Start: x.Start, Mark: x.Mark})
	}
	m.mu.Unlock()
	return m.link.SetPeers(book)
}

// anew has the link to a peer begin anew.
func (m *membership) anew(peer cluster.NodeID) {
	if err := m.link.SetPeers(m.link.Peers().Without(peer)); err != nil {
		m.log.Error("a link was not closed", "error", err.Error())
	}
	m.stir()
}

// stir has the keeper look at members and slots.
func (m *membership) stir() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// self is this node as metadata is to know it.
func (m *membership) self() broker.Member {
	return broker.Member{Number: m.identity.Number, NodeID: uint64(m.identity.Node), Name: m.identity.Name, Address: m.advertise,
		Least: cluster.Spoken.Least, Most: cluster.Spoken.Most, Start: m.identity.Starts + 1, Mark: m.identity.Mark}
}

// admit implements cluster.Options.Join: another node wants to become a member.
func (m *membership) admit(ctx context.Context, j cluster.Joiner) ([]byte, error) {
	var ask request
	if err := json.Unmarshal(j.Request, &ask); err != nil {
		return nil, err
	}
	select {
	case <-m.ready:
	case <-ctx.Done():
		return nil, errors.New("this node waits for a majority of its cluster")
	}
	for _, x := range m.rooms.broker.Members() {
		if x.Name == ask.Name && x.NodeID != uint64(j.Node) {
			return nil, fmt.Errorf("there is a member of the name %s already; 'warren cluster forget %s' if it is gone for good", x.Name, x.Name)
		}
	}
	type outcome struct {
		number uint64
		err    error
	}
	done := make(chan outcome, 1)
	m.rooms.broker.PutMember(broker.Member{NodeID: uint64(j.Node), Name: ask.Name, Address: ask.Address,
		Least: cluster.Spoken.Least, Most: cluster.Spoken.Most}, func(number uint64, err error) { done <- outcome{number, err} })
	var x outcome
	select {
	case x = <-done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := m.meta.Admit(ctx, x.number); err != nil {
		return nil, err
	}
	m.stir()
	m.log.Info("a node joins the cluster", "name", ask.Name, "number", x.number, "address", ask.Address)
	return json.Marshal(welcome{Number: x.number, Raft: m.rooms.quorum.ClusterID(), Members: m.rooms.broker.Members()})
}

// clusterOptions are those for the link and for joining.
func clusterOptions(c config.Cluster, identity cluster.Identity) (o cluster.Options, err error) {
	o.Identity = identity
	secret, err := os.ReadFile(c.SecretFile)
	if err != nil {
		return o, &failure{code: exitConfig, text: "the cluster's secret cannot be read: " + err.Error(), err: err,
			remedy: "Give --cluster-secret-file a file that all nodes have; 'openssl rand -hex 32' makes a good one."}
	}
	o.Secret = []byte(strings.TrimSpace(string(secret)))
	if len(o.Secret) < minSecret {
		return o, &failure{code: exitConfig, text: fmt.Sprintf("the cluster's secret in %s has %d octets; at least %d are needed", c.SecretFile, len(o.Secret), minSecret),
			remedy: "'openssl rand -hex 32' makes a good one."}
	}
	if c.TLS.CertFile != "" {
		if o.TLS, err = clusterTLS(c.TLS); err != nil {
			return o, &failure{code: exitConfig, text: "TLS between nodes: " + err.Error(), err: err,
				remedy: "Check the files of warren.cluster.ssl_options."}
		}
	}
	return o, nil
}

// clusterTLS has each side show a certificate that the authorities have signed.
func clusterTLS(t config.TLS) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", t.CAFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		RootCAs: authorities, ClientCAs: authorities, ClientAuth: tls.RequireAndVerifyClientCert}, nil
}
