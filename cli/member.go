package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/storage"
)

const (
	// joinPause is between two attempts to reach the node whose cluster shall be joined, joinPatience how long it is tried.
	joinPause    = time.Second
	joinPatience = time.Minute
	// minSecret is how many octets a cluster's secret has at the least.
	minSecret = 16
)

// Keys of what a member knows of its cluster before its metadata is there.
var (
	keyBook = []byte("c/book") // JSON of a welcome
)

// member is this node's part in a cluster.
type member struct {
	rooms     *rooms
	log       *slog.Logger
	identity  cluster.Identity
	advertise string
	welcome   welcome // what the cluster said when this node joined; zero for the founder
	link      *cluster.Node
	transport *quorum.Transport
	stop      context.CancelFunc
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
