package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
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

	mu      sync.Mutex // guards what follows
	config  *tls.Config
	stamps  string
	checked time.Time
}

// newCertificates reads the files once. warn hears of later failures.
func newCertificates(files TLSFiles, warn func(error)) (*certificates, error) {
	c := &certificates{files: files, warn: warn}
	config, err := files.load()
	if err != nil {
		return nil, err
	}
	c.config, c.stamps, c.checked = config, files.stamps(), time.Now()
	return c, nil
}

// forClient is tls.Config.GetConfigForClient.
func (c *certificates) forClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= recheck {
		c.checked = now
		if stamps := c.files.stamps(); stamps != c.stamps {
			config, err := c.files.load()
			if err != nil { // perhaps only half of them are written yet: look again at the next connection
				c.warn(err)
			} else {
				c.config, c.stamps = config, stamps
			}
		}
	}
	return c.config, nil
}

// stamps tells one state of the files from another.
func (f *TLSFiles) stamps() string {
	var b strings.Builder
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		if info, err := os.Stat(name); err == nil {
			fmt.Fprintln(&b, info.ModTime().UnixNano(), info.Size())
		}
	}
	return b.String()
}

func (f *TLSFiles) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("TLS authorities: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
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

// certificateName is the user name in a client's certificate (RabbitMQ docs: ssl_cert_login_from): common_name, or the
// whole distinguished name as RFC 4514 writes it.
func certificateName(cert *x509.Certificate, from string) string {
	switch from {
	case "common_name":
		return cert.Subject.CommonName
	case "subject_alternative_name":
		if len(cert.DNSNames) > 0 {
			return cert.DNSNames[0]
		}
		return ""
	}
	return cert.Subject.String()
}
