package management

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestFeatureFlags(t *testing.T) {
	c := serve(t, queues(1))
	for _, f := range c.get("/api/feature-flags").([]any) {
		f := f.(map[string]any)
		if f["state"] != "enabled" {
			t.Error(f)
		}
		if status, _, body := c.do("PUT", "/api/feature-flags/"+f["name"].(string)+"/enable", ""); status != 204 || body != "" {
			t.Error(f["name"], status, body)
		}
	}
	status, _, body := c.do("PUT", "/api/feature-flags/nope/enable", "")
	if status != 400 || body != `{"error":"bad_request","reason":"unsupported"}` {
		t.Error(status, body)
	}
	if status, _, _ := c.as("ann").do("PUT", "/api/feature-flags/user_limits/enable", ""); status != 401 {
		t.Error("a user without the tag administrator:", status)
	}
}

func TestDeprecatedFeatures(t *testing.T) {
	f := queues(2)
	f.queues[0].Durable, f.queues[0].Exclusive, f.queues[1].Durable, f.queues[1].Exclusive = true, false, false, true
	c := serve(t, f, func(o *Options) { o.RefuseGlobalQoS = true })
	for _, v := range c.get("/api/deprecated-features").([]any) {
		v := v.(map[string]any)
		want := "permitted"
		if v["name"] == "global_qos" {
			want = "denied"
		}
		if v["state"] != want {
			t.Error(v)
		}
	}
	if used := c.get("/api/deprecated-features/used").([]any); len(used) != 0 {
		t.Error(used)
	}
	f.queues[1].Exclusive = false
	used := c.get("/api/deprecated-features/used").([]any)
	if len(used) != 1 || used[0].(map[string]any)["name"] != "transient_nonexcl_queues" {
		t.Error(used)
	}
}

// certificate writes a PEM file with a certificate of that time, after text that is no certificate.
func certificate(t *testing.T, from, to time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, &c, &c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	pem.Encode(&b, &pem.Block{Type: "PARAMETERS", Bytes: []byte("x")})
	pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	file := filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCertificateExpiration(t *testing.T) {
	const path, ok = "/api/health/checks/certificate-expiration/", `{"status":"ok"}`
	now := time.Now()
	end := now.Add(40 * 24 * time.Hour)
	file := certificate(t, now.Add(-time.Hour), end)
	listeners := func() []Listener {
		return []Listener{{"amqp", "127.0.0.1", 5672, false}, {"amqp/ssl", "::", 5671, true}}
	}
	secure := serve(t, queues(1), func(o *Options) { o.Listeners, o.CertFile = listeners, file })
	ending := `{"expired":[{"node":"warren@test","protocol":"amqp/ssl","interface":"::","port":5671,"certfile":"` + file +
		`","cacertfile":"","certfile_expires_on":["` + end.UTC().Format("2006-01-02 15:04:05") + `"],"cacertfile_expires_on":[]}],` +
		`"reason":"Certificates expiring","status":"failed"}`
	young := serve(t, queues(1), func(o *Options) {
		o.Listeners, o.CertFile, o.CAFile = listeners, file, certificate(t, now.Add(time.Hour), end)
	})
	gone := serve(t, queues(1), func(o *Options) { o.Listeners, o.CertFile = listeners, filepath.Join(t.TempDir(), "none") })
	for _, test := range []struct {
		c      *client
		path   string
		status int
		body   string // empty: not looked at
	}{
		{serve(t, queues(1)), "1000000/years", 200, ok}, // no listener with TLS
		{secure, "39/days", 200, ok},
		{secure, "41/days", 503, ending},
		{secure, "5/WEEKS", 200, ok},
		{secure, "6/weeks", 503, ending},
		{secure, "1/months", 200, ok},
		{secure, "2/months", 503, ending},
		{secure, "1/years", 503, ending},
		{secure, "9223372036854775807/years", 503, ending},
		{secure, "-9223372036854775808/days", 200, ok},
		{secure, "9223372036854775808/days", 400, `{"error":"bad_request","reason":"Invalid expiration value."}`},
		{secure, "x/days", 400, `{"error":"bad_request","reason":"Invalid expiration value."}`},
		{secure, "1/fortnights", 400, `{"error":"bad_request","reason":"Time unit not recognised. Supported units: days, weeks, months, years."}`},
		{young, "1/days", 503, ""},
		{gone, "1/days", 503, ""},
	} {
		if status, _, body := test.c.do("GET", path+test.path, ""); status != test.status || test.body != "" && body != test.body {
			t.Errorf("%s: %d %s", test.path, status, body)
		}
	}
}
