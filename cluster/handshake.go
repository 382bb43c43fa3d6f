package cluster

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"net"
)

// opening is one side of the conversation at the beginning of a connection, up to where both know that they want to talk
// with each other.
type opening struct {
	conn   net.Conn
	dialer bool
	own    hello
	secret []byte

	// check is asked whether to talk with a node that has proved that it knows the secret.
	check func(peer *hello) *Refusal
}

// Roles in the proof. They differ so that nobody can be answered with his own words.
const (
	roleDialer   = "warren link: dialer"
	roleListener = "warren link: listener"
)

// run returns what the other node says of itself, or why it will not do. The deadline of the connection has been set, and
// whoever called run closes it.
func (o *opening) run() (peer hello, err error) {
	peer, err = o.talk()
	var refusal *Refusal
	if errors.As(err, &refusal) {
		refusal.Peer, refusal.Addr = peer.node, o.conn.RemoteAddr().String()
		if !refusal.ByPeer {
			refusal.send(o.conn)
		}
	}
	return peer, err
}

func (o *opening) talk() (hello, error) {
	own := o.own.append(nil)
	if o.dialer {
		if _, err := o.conn.Write(own); err != nil {
			return hello{}, err
		}
	}
	peer, theirs, err := readHello(o.conn)
	var refusal *Refusal
	if !o.dialer && (err == nil || errors.As(err, &refusal)) {
		o.own.class, o.own.purpose = peer.class, peer.purpose // the dialer's choice
		own = o.own.append(nil)
		if _, err := o.conn.Write(own); err != nil {
			return peer, err
		}
	}
	if err != nil {
		return peer, err
	}
	if o.dialer {
		if err := say(o.conn, sayProof, o.proof(roleDialer, own, theirs)); err != nil {
			return peer, err
		}
		got, err := listen(o.conn, sayProof, sha256.Size)
		if err != nil {
			return peer, err
		}
		if !hmac.Equal(got, o.proof(roleListener, own, theirs)) {
			return peer, refuse(WrongSecret, "node %v does not know the secret of the cluster", peer.node)
		}
		if r := o.check(&peer); r != nil {
			return peer, r
		}
		return peer, say(o.conn, sayReady, nil)
	}
	got, err := listen(o.conn, sayProof, sha256.Size)
	if err != nil {
		return peer, err
	}
	if !hmac.Equal(got, o.proof(roleDialer, theirs, own)) {
		return peer, refuse(WrongSecret, "node %v does not know the secret of the cluster", peer.node)
	}
	if r := o.check(&peer); r != nil {
		return peer, r
	}
	if err := say(o.conn, sayProof, o.proof(roleListener, theirs, own)); err != nil {
		return peer, err
	}
	_, err = listen(o.conn, sayReady, 0)
	var late *Refusal
	if errors.As(err, &late) {
		late.Proved = true
	}
	return peer, err
}

// proof is what only who knows the secret can say, in this conversation only: the nonces of both sides are in it.
func (o *opening) proof(role string, dialer, listener []byte) []byte {
	m := hmac.New(sha256.New, o.secret)
	m.Write([]byte(role))
	m.Write(dialer)
	m.Write(listener)
	if c, ok := o.conn.(*tls.Conn); ok {
		// RFC 9266: who sits between two TLS connections cannot pass the proofs on.
		state := c.ConnectionState()
		if key, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32); err == nil {
			m.Write(key)
		}
	}
	return m.Sum(nil)
}
