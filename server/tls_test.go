package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// authority issues certificates for a test.
type authority struct {
	testing.TB
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	pem    []byte
	serial int64
}

func newAuthority(t testing.TB) *authority {
	a := &authority{TB: t}
	a.pem, _ = a.issue("authority", true)
	return a
}

// issue returns a certificate and its key, the first one for the authority itself.
func (a *authority) issue(name string, itself bool) (cert, keyPEM []byte) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	a.serial++
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name, Organization: []string{"tests"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: itself, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if itself {
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.Fatal(err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b})
}

// config is that of a client, with a certificate if it has a name.
func (a *authority) config(name string) *tls.Config {
	a.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.pem)
	config := &tls.Config{RootCAs: roots}
	if name != "" {
		pair, err := tls.X509KeyPair(a.issue(name, false))
		if err != nil {
			a.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// files writes a server's certificate, key and authority into dir.
func (a *authority) files(dir, name string) TLSFiles {
	a.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		a.Fatal(err)
	}
	cert, key := a.issue(name, false)
	for file, b := range map[string][]byte{"cert": cert, "key": key, "ca": a.pem} {
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			a.Fatal(err)
		}
	}
	return TLSFiles{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
}

// secure dials with TLS.
func secure(t testing.TB, address string, config *tls.Config) *wire {
	t.Helper()
	c, err := tls.Dial("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return newWire(t, c)
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	n := start(t, nil)
	address, err := n.ListenTLS("127.0.0.1:0", a.files(t.TempDir(), "server"))
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*wire
	for i := range ends {
		ends[i] = secure(t, address.String(), a.config(""))
		ends[i].login(nil)
		ends[i].send(1, &amqp.ChannelOpen{})
		ends[i].expect(1, &amqp.ChannelOpenOk{})
	}
	checkSizes(t, ends[0], ends[1], 131072)
	for k := range n.Connections() {
		if k.TLS == nil || k.TLS.Version < tls.VersionTLS12 {
			t.Errorf("%+v", k)
		}
	}
	// What was published just before an abrupt end has come.
	ends[0].declare("end")
	ends[0].raw(publishFrames(1, "end", &amqp.PropertyList{}, make([]byte, 20000), 131072))
	ends[0].Close()
	until(t, "the last message came", func() bool { return ends[1].ready("end") == 1 })
}

// TestTLSGreeting: a client with another protocol learns ours, and an operator can end a connection in the handshake.
func TestTLSGreeting(t *testing.T) {
	a := newAuthority(t)
	n := start(t, nil)
	address, err := n.ListenTLS("127.0.0.1:0", a.files(t.TempDir(), "server"))
	if err != nil {
		t.Fatal(err)
	}
	w := secure(t, address.String(), a.config(""))
	w.raw([]byte("GET / HTTP/1.1\r\n\r\n"))
	w.SetReadDeadline(testDeadline())
	var b bytes.Buffer
	b.ReadFrom(w.r)
	if b.String() != amqp.ProtocolHeader {
		t.Errorf("%q", b.String())
	}
	plain, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	until(t, "it is there", func() bool { return n.Counters.ConnectionsOpened.Load() == 2 })
	n.CloseConnection(plain.LocalAddr().String()+" -> "+plain.RemoteAddr().String(), "")
	plain.SetReadDeadline(testDeadline())
	if _, err := plain.Read(make([]byte, 100)); err == nil {
		until(t, "it is closed", func() bool { return n.Counters.ConnectionsClosed.Load() == 2 })
	}
}

func TestExternal(t *testing.T) {
	a := newAuthority(t)
	n := start(t, func(o *Options) {
		o.Mechanisms = append(o.Mechanisms, "EXTERNAL")
		o.CertLoginFrom = "common_name"
	})
	n.broker.PutUser(broker.User{Name: "alice"}, func(error) {})
	n.broker.VHost("/").SetPermissions("alice", ".*", ".*", ".*", func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	})
	files := a.files(t.TempDir(), "server")
	files.Verify = true
	address, err := n.ListenTLS("127.0.0.1:0", files)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		code uint16
	}{{"alice", 0}, {"mallory", amqp.AccessRefused}, {"", amqp.AccessRefused}} {
		w := secure(t, address.String(), a.config(c.name))
		w.raw([]byte(amqp.ProtocolHeader))
		w.expect(0, &amqp.ConnectionStart{})
		can := amqp.Table(nil).AppendBool("authentication_failure_close", true)
		w.send(0, &amqp.ConnectionStartOk{Mechanism: "EXTERNAL", ClientProperties: amqp.Table(nil).AppendTable("capabilities", can)})
		if c.code == 0 {
			var tune amqp.ConnectionTune
			w.expect(0, &tune)
			w.send(0, &amqp.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax})
			w.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
			w.expect(0, &amqp.ConnectionOpenOk{})
			w.send(1, &amqp.ChannelOpen{})
			w.expect(1, &amqp.ChannelOpenOk{})
			w.declare("q")
			w.raw(publishFrames(1, "q", &amqp.PropertyList{UserID: c.name}, nil, 0)) // the user is that of the certificate
			w.sync()
			w.raw(publishFrames(1, "q", &amqp.PropertyList{UserID: "guest"}, nil, 0))
			var closed amqp.ChannelClose
			if w.expect(1, &closed); closed.ReplyText != "PRECONDITION_FAILED - user_id property set to 'guest' but authenticated user was 'alice'" {
				t.Error(closed.ReplyText)
			}
			continue
		}
		var m amqp.ConnectionClose
		if w.expect(0, &m); m.ReplyCode != c.code {
			t.Errorf("%q: %d %s", c.name, m.ReplyCode, m.ReplyText)
		}
	}
	other := newAuthority(t).config("alice")
	other.RootCAs = a.config("").RootCAs
	if c, err := tls.Dial("tcp", address.String(), other); err == nil {
		c.SetReadDeadline(testDeadline())
		c.Write([]byte(amqp.ProtocolHeader))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a certificate of a stranger's authority was taken")
		}
		c.Close()
	}
}

// TestCertificateReload turns the link to a directory of files, as orchestrators do, then breaks them.
func TestCertificateReload(t *testing.T) {
	a := newAuthority(t)
	dir := t.TempDir()
	old := a.files(filepath.Join(dir, "1"), "first")
	fresh := a.files(filepath.Join(dir, "2"), "second")
	link := filepath.Join(dir, "now")
	turn := func(to string) {
		t.Helper()
		if err := os.Symlink(to, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
	}
	turn("1")
	at := time.Unix(1e9, 0)
	for _, f := range []TLSFiles{old, fresh} { // times tell nothing
		for _, name := range []string{f.Cert, f.Key, f.CA} {
			if err := os.Chtimes(name, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	var warned int
	c, err := newCertificates(TLSFiles{Cert: filepath.Join(link, "cert"), Key: filepath.Join(link, "key"), CA: filepath.Join(link, "ca")}, func(error) { warned++ })
	if err != nil {
		t.Fatal(err)
	}
	c.every = 0
	name := func() string {
		t.Helper()
		config, err := c.forClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.Subject.CommonName
	}
	first, _ := c.forClient(nil)
	if again, _ := c.forClient(nil); again != first || name() != "first" {
		t.Error("files that did not change were read anew: ", name())
	}
	turn("2")
	if name() != "second" {
		t.Error("the link was turned, and nobody saw it: ", name())
	}
	for i, broken := range []func() error{
		func() error { return os.WriteFile(fresh.Key, []byte("half"), 0o600) },
		func() error { return os.Remove(fresh.Key) },
	} {
		if err := broken(); err != nil {
			t.Fatal(err)
		}
		if got := name(); got != "second" || warned != i+1 {
			t.Error(fmt.Sprint("broken files are in use, or nobody was warned: ", got, warned))
		}
	}
	turn("1")
	if name() != "first" {
		t.Error("good files after broken ones are not used: ", name())
	}
}
