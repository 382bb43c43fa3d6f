package server

import (
	"bytes"
	"crypto/tls"
	"errors"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// saslStep is what a client's answer led to: a further challenge, a user, or an error. malformed: the answer did not
// follow the mechanism.
type saslStep struct {
	challenge string
	user      *broker.User
	err       error
	malformed bool
}

// sasl is one SASL exchange.
type sasl struct {
	next func(response []byte) saslStep
}

var errSASL = errors.New("malformed SASL response")

func (c *conn) newSASL(mechanism string) sasl {
	switch mechanism {
	case "PLAIN":
		return sasl{c.plain}
	case "AMQPLAIN":
		return sasl{c.amqplain}
	case "ANONYMOUS":
		return sasl{func([]byte) saslStep {
			o := &c.server.options
			return c.password(o.AnonymousUser, o.AnonymousPass)
		}}
	case "EXTERNAL":
		return sasl{c.external}
	case "RABBIT-CR-DEMO":
		return sasl{c.demo()}
	}
	panic("server: mechanism offered but not known: " + mechanism)
}

func (c *conn) password(user, password string) saslStep {
	u, err := c.server.broker.Authenticate(user, password, c.loopback())
	return saslStep{user: u, err: err}
}

// plain is RFC 4616 without an authorization identity.
func (c *conn) plain(response []byte) saslStep {
	parts := bytes.Split(response, []byte{0})
	if len(parts) != 3 || len(parts[0]) != 0 {
		return saslStep{err: errSASL, malformed: true}
	}
	return c.password(string(parts[1]), string(parts[2]))
}

// amqplain is a field table without its length.
func (c *conn) amqplain(response []byte) saslStep {
	t := amqp.Table(response)
	if t.Validate() != nil {
		return saslStep{err: errSASL, malformed: true}
	}
	login, _ := t.Get("LOGIN")
	password, _ := t.Get("PASSWORD")
	l, ok1 := login.Bytes()
	p, ok2 := password.Bytes()
	if !ok1 || !ok2 {
		return saslStep{err: errSASL, malformed: true}
	}
	return c.password(string(l), string(p))
}

// external takes the user's name from the certificate that TLS has verified.
func (c *conn) external([]byte) saslStep {
	t, ok := c.socket.(*tls.Conn)
	if !ok {
		return saslStep{err: errors.New("the connection is not encrypted")}
	}
	state := t.ConnectionState()
	if len(state.VerifiedChains) == 0 {
		return saslStep{err: errors.New("connection peer presented no TLS (x.509) certificate")}
	}
	name := certificateName(state.PeerCertificates[0], c.server.options.CertLoginFrom)
	if name == "" {
		return saslStep{err: errors.New("no name found")}
	}
	u := c.server.broker.User(name)
	if u == nil {
		return saslStep{err: errors.New("user '" + name + "' not found")}
	}
	return saslStep{user: u, err: c.server.broker.CheckLoopback(u, c.loopback())}
}

// demo is RABBIT-CR-DEMO, which tests of clients use to see a second round.
func (c *conn) demo() func([]byte) saslStep {
	var user *string
	return func(response []byte) saslStep {
		if user == nil {
			name := string(response)
			user = &name
			return saslStep{challenge: "Please tell me your password"}
		}
		password, ok := bytes.CutPrefix(response, []byte("My password is "))
		if !ok {
			return saslStep{err: errSASL, malformed: true}
		}
		return c.password(*user, string(password))
	}
}
