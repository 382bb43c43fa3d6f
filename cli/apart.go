package cli

import (
	"crypto/rand"
	"fmt"
	"net"
	"sync"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/cluster"
)

// apart reports whether this node is a member of a cluster and reaches nobody: it is the only one, and has no address for others, or
// is about to become the only one. A member that has others must be able to reach them.
func (r *rooms) apart() (bool, error) {
	leaving, err := cluster.Leaving(r.db)
	switch {
	case err != nil || r.restoring:
		return true, err
	case leaving:
		return false, &failure{code: exitConfig, text: "a restore of " + r.cfg.DataDir + " has begun and not ended",
			remedy: "Run 'warren cluster restore --data-dir " + r.cfg.DataDir + "' again; it goes on from where it was."}
	case r.cfg.Cluster.Listen != "":
		return false, nil
	}
	number, err := cluster.Number(r.db)
	if err != nil || number == 0 {
		return false, err
	}
	members, err := broker.ReadMembers(r.db)
	if err != nil || len(members) == 1 && members[0].Number == number {
		return true, err
	}
	return false, &failure{code: exitConfig, text: fmt.Sprintf("this node is member %d of a cluster, and has no address for the others", number),
		remedy: "Give --cluster-listen and --cluster-secret-file."}
}

// stayApart gives a member what it needs where nobody reaches it. Metadata goes on to know it at the address that it had.
func (m *membership) stayApart(known []broker.Member) {
	m.options.Identity, m.options.Secret = m.identity, []byte(rand.Text())
	m.listener = &unreached{closed: make(chan struct{})}
	for _, x := range known {
		if x.Number == m.identity.Number {
			m.advertise = x.Address
		}
	}
}

// unreached is a listener that nobody can connect to.
type unreached struct {
	once   sync.Once
	closed chan struct{}
}

func (d *unreached) Accept() (net.Conn, error) { <-d.closed; return nil, net.ErrClosed }
func (d *unreached) Addr() net.Addr            { return &net.TCPAddr{} }

func (d *unreached) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}
