package management

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"strconv"
	"strings"
	"time"
)

// certificateUnits are the units in which the check is told how far to look ahead. Source: RabbitMQ,
// rabbit_mgmt_wm_health_check_certificate_expiration.
var certificateUnits = map[string]time.Duration{
	"days": 24 * time.Hour, "weeks": 7 * 24 * time.Hour, "months": 365 * 24 * time.Hour / 12, "years": 365 * 24 * time.Hour,
}

// expiringView is a listener some of whose certificates end soon.
type expiringView struct {
	Node        string   `json:"node"`
	Protocol    string   `json:"protocol"`
	Interface   string   `json:"interface"`
	Port        int      `json:"port"`
	CertFile    string   `json:"certfile"`
	CAFile      string   `json:"cacertfile"`
	CertExpires []string `json:"certfile_expires_on"`
	CAExpires   []string `json:"cacertfile_expires_on"`
}

// checkCertificates fails if a listener's certificates end within the time in the path. The files are read anew, as the listeners do.
func (a *API) checkCertificates(r *request) {
	number, err := strconv.ParseInt(r.vars["within"], 10, 64)
	if err != nil {
		a.bad(r.w, "Invalid expiration value.")
		return
	}
	unit, ok := certificateUnits[strings.ToLower(r.vars["unit"])]
	if !ok {
		a.bad(r.w, "Time unit not recognised. Supported units: days, weeks, months, years.")
		return
	}
	const farthest = 1_000_000 * 365 * 24 * 60 * 60 // seconds: past what any certificate says, within what time.Time holds
	seconds := int64(unit / time.Second)
	number = min(max(number, -farthest/seconds), farthest/seconds)
	until := time.Unix(time.Now().Unix()+number*seconds, 0)

	var found []expiringView
	for _, l := range a.Listeners() {
		if !l.TLS {
			continue
		}
		v := expiringView{a.Node, l.Protocol, l.Host, l.Port, a.CertFile, a.CAFile, endingBefore(a.CertFile, until), endingBefore(a.CAFile, until)}
		if len(v.CertExpires) > 0 || len(v.CAExpires) > 0 {
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		a.healthy(r, nil)
		return
	}
	a.unhealthy(r, "Certificates expiring", map[string]any{"expired": found})
}

// endingBefore says of each certificate in a PEM file that ends before then when it does, or what else is wrong with it.
func endingBefore(file string, then time.Time) []string {
	dates := []string{}
	if file == "" {
		return dates
	}
	rest, err := os.ReadFile(file)
	if err != nil {
		return append(dates, err.Error())
	}
	any := false
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" { // a key, which may stand in the same file
			continue
		}
		any = true
		switch c, err := x509.ParseCertificate(block.Bytes); {
		case err != nil:
			dates = append(dates, err.Error())
		case c.NotBefore.After(time.Now()):
			dates = append(dates, "Certificate is not yet valid")
		case c.NotAfter.Before(then):
			dates = append(dates, c.NotAfter.UTC().Format("2006-01-02 15:04:05"))
		}
	}
	if !any {
		dates = append(dates, "no certificate in the file")
	}
	return dates
}
