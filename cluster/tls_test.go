package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

// testTLS is a configuration for both sides, with a certificate of its own authority that both ask for.
func testTLS(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
}

func TestTLS(t *testing.T) {
	conf := testTLS(t)
	secured := func(o *Options) { o.TLS = conf }
	a, b := sit(t, 1, 1, secured), sit(t, 2, 1, secured)
	meet(a, b)
	send(a.stream(2, Data, 1), 1, []byte("x"))
	b.saw("data 1: 1 x")
	// One with a certificate of another authority, and one without TLS, get nowhere.
	other, plain := testTLS(t), sit(t, 4, 1, nil)
	c := sit(t, 3, 1, func(o *Options) { o.TLS = other })
	if err := c.node.SetPeers(Book{a.peer()}); err != nil {
		t.Fatal(err)
	}
	if err := plain.node.SetPeers(Book{a.peer()}); err != nil {
		t.Fatal(err)
	}
	if err := c.node.dial(t.Context(), c.node.link(1, Control), a.addr); err == nil {
		t.Error("no error for a wrong authority")
	}
	if err := plain.node.dial(t.Context(), plain.node.link(1, Control), a.addr); err == nil {
		t.Error("no error without TLS")
	}
}

// Who has a certificate, but not the secret, gets nowhere by standing between two nodes and passing on what they say.
func TestTLSInTheMiddle(t *testing.T) {
	conf := testTLS(t)
	n := alone(t, 9, 1, func(o *Options) { o.TLS = conf })
	l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		a, err := l.Accept()
		if err != nil {
			return
		}
		client := conf.Clone()
		client.ServerName = "127.0.0.1"
		b, err := tls.Dial("tcp", n.addr, client)
		if err != nil {
			a.Close()
			return
		}
		go func() {
			io.Copy(a, b)
			a.Close()
		}()
		io.Copy(b, a)
		b.Close()
	}()
	other := sit(t, 1, 1, func(o *Options) { o.TLS = conf })
	if err := other.node.SetPeers(Book{{ID: 9}}); err != nil {
		t.Fatal(err)
	}
	err = other.node.dial(t.Context(), other.node.link(9, Data), l.Addr().String())
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != WrongSecret {
		t.Error(err)
	}
	if err := other.node.dial(t.Context(), other.node.link(9, Data), n.addr); err != nil {
		t.Error("without anybody between:", err)
	}
}
