package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// TLSFiles are a server's certificate and what it asks of its clients. The files are read again when they change, also
// behind symbolic links, without a restart; when they cannot be, the last good ones stay in use.
type TLSFiles struct {
	Cert, Key string
	CA        string // authorities of clients' certificates; "": none
	Verify    bool   // verify_peer: check certificates that clients present
	Require   bool   // fail_if_no_peer_cert: refuse clients without one
}

// recheck is how long files are believed to be as they were.
const recheck = time.Second

// certificates keeps a TLS configuration up to date with its files.
type certificates struct {
	files TLSFiles
	warn  func(error)
	every time.Duration // between looks at the files

	mu      sync.Mutex // guards what follows
	config  *tls.Config
	made    contents // what config was made from
	checked time.Time
}

// contents are those of certificate, key and authorities.
type contents [3][]byte

// newCertificates reads the files once. warn hears of later failures.
func newCertificates(files TLSFiles, warn func(error)) (*certificates, error) {
	c := &certificates{files: files, warn: warn, every: recheck}
	var err error
	if c.made, err = files.read(); err != nil {
		return nil, err
	}
	if c.config, err = files.configure(c.made); err != nil {
		return nil, err
	}
	c.checked = time.Now()
	return c, nil
}

// forClient is tls.Config.GetConfigForClient.
func (c *certificates) forClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= c.every {
		c.checked = now
		if err := c.reload(); err != nil { // perhaps only half of them are written yet: look again later
			c.warn(err)
		}
	}
	return c.config, nil
}

// reload makes the configuration anew if the files are others than before. They are compared by what is in them: a link
// that was turned, or a file put in the place of another, may have any time and size.
func (c *certificates) reload() error {
	now, err := c.files.read()
	if err != nil || slices.EqualFunc(now[:], c.made[:], bytes.Equal) {
		return err
	}
	config, err := c.files.configure(now)
	if err == nil {
		c.config, c.made = config, now
	}
	return err
}

func (f *TLSFiles) read() (all contents, err error) {
	for i, name := range []string{f.Cert, f.Key, f.CA} {
		if name == "" && i == 2 {
			continue
		}
		if all[i], err = os.ReadFile(name); err != nil {
			return all, fmt.Errorf("TLS files: %w", err)
		}
	}
	return all, nil
}

func (f *TLSFiles) configure(all contents) (*tls.Config, error) {
	cert, err := tls.X509KeyPair(all[0], all[1])
	if err != nil {
		return nil, fmt.Errorf("TLS certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(all[2]) {
			return nil, fmt.Errorf("TLS authorities: no certificate in %s", f.CA)
		}
	}
	switch {
	case f.Verify && f.Require:
		config.ClientAuth = tls.RequireAndVerifyClientCert
	case f.Verify:
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config, nil
}

// certificateName is the user name in a client's certificate (RabbitMQ docs: ssl_cert_login_from): common_name, the first
// DNS name among the alternative ones, or the whole distinguished name as RFC 4514 writes it.
func certificateName(cert *x509.Certificate, from string) string {
	switch from {
	case "common_name": // there may be several
		var names []string
		for _, a := range cert.Subject.Names {
			if s, ok := a.Value.(string); ok && a.Type.String() == "2.5.4.3" {
				names = append(names, s)
			}
		}
		return strings.Join(names, ",")
	case "subject_alternative_name":
		if len(cert.DNSNames) > 0 {
			return cert.DNSNames[0]
		}
		return ""
	}
	return cert.Subject.String()
}
