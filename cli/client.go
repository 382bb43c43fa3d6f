package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// client asks a node over its HTTP API.
type client struct {
	url, user, password, passwordFile string
	timeout                           float64 // seconds; 0: no bound
}

// flags adds those that say whom to ask, with the environment's values as defaults.
func (c *client) flags(p *program, cmd *cobra.Command) {
	f := cmd.Flags()
	from := func(name, fallback string) string {
		if v, ok := p.env(name); ok && v != "" {
			return v
		}
		return fallback
	}
	f.StringVarP(&c.url, "url", "U", from("WARREN_URL", "http://127.0.0.1:15672"), "the node's HTTP API; also WARREN_URL")
	f.StringVarP(&c.user, "username", "u", from("WARREN_USERNAME", "guest"), "user; also WARREN_USERNAME")
	f.StringVar(&c.password, "password", "", "password, guest if nothing is said; better WARREN_PASSWORD or --password-file, which other users do not see")
	f.StringVar(&c.passwordFile, "password-file", from("WARREN_PASSWORD_FILE", ""), "file whose first line is the password")
	f.Float64VarP(&c.timeout, "timeout", "t", 60, "seconds to wait for an answer; 0 waits for ever")
}

// secret is the password, from the strongest place that has one.
func (c *client) secret(p *program, cmd *cobra.Command) (string, error) {
	if cmd.Flags().Changed("password") {
		return c.password, nil
	}
	if c.passwordFile != "" {
		text, err := os.ReadFile(c.passwordFile)
		if err != nil {
			return "", &failure{code: exitUsage, text: "cannot read the password: " + err.Error(), err: err}
		}
		line, _, _ := strings.Cut(string(text), "\n")
		return strings.TrimSuffix(line, "\r"), nil
	}
	if v, ok := p.env("WARREN_PASSWORD"); ok {
		return v, nil
	}
	return "guest", nil
}

// call sends a request without a body. segments are the path below /api, each escaped on its own; query may be nil; into, if not nil, takes the JSON of the answer.
func (c *client) call(p *program, cmd *cobra.Command, method string, segments []string, query url.Values, header map[string]string, into any) error {
	return c.send(p, cmd, method, segments, query, header, nil, into)
}

// send is call with a body, which is sent as JSON, or as it is if it is bytes; nil is none.
func (c *client) send(p *program, cmd *cobra.Command, method string, segments []string, query url.Values, header map[string]string, body, into any) error {
	base, err := url.Parse(c.url)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return usage("%q is no address of an HTTP API; write for example http://127.0.0.1:15672", c.url)
	}
	address := strings.TrimSuffix(c.url, "/") + "/api"
	for _, s := range segments {
		address += "/" + url.PathEscape(s)
	}
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	content, isBytes := body.([]byte)
	if body != nil && !isBytes {
		if content, err = json.Marshal(body); err != nil {
			return usage("that cannot be sent as JSON: %v", err)
		}
	}
	r, err := http.NewRequestWithContext(cmd.Context(), method, address, bytes.NewReader(content))
	if err != nil {
		return usage("%q is no address of an HTTP API: %v", c.url, err)
	}
	password, err := c.secret(p, cmd)
	if err != nil {
		return err
	}
	r.SetBasicAuth(c.user, password)
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	h := &http.Client{Timeout: time.Duration(c.timeout * float64(time.Second))}
	answer, err := h.Do(r)
	if err != nil {
		return c.unreached(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return c.unreached(err)
	}
	if answer.StatusCode/100 != 2 {
		return c.refused(answer.StatusCode, text)
	}
	switch into := into.(type) {
	case nil:
		return nil
	case *[]byte: // as it came
		*into = text
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return &failure{code: exitSoftware, text: fmt.Sprintf("the answer of %s is no JSON: %v", c.url, err), remedy: "Is that the address of the HTTP API, and not of AMQP or the metrics?", err: err}
	}
	return nil
}

// unreached explains why no answer came.
func (c *client) unreached(err error) *failure {
	f := &failure{code: exitUnavailable, text: fmt.Sprintf("no node answers at %s: %v", c.url, innermost(err)), err: err,
		remedy: "Is it running? 'warren server' starts one. If it listens elsewhere, say so with --url or WARREN_URL."}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		f.code, f.text = exitTemporary, fmt.Sprintf("the node at %s did not answer within %g s", c.url, c.timeout)
		f.remedy = "Wait longer with --timeout, or look at the node's log."
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		f.text = fmt.Sprintf("no node answers at %s: connection refused", c.url)
	}
	return f
}

// innermost is the error at the bottom, without the request's address that is told already.
func innermost(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refused explains an answer that is an error.
func (c *client) refused(status int, body []byte) *failure {
	var said struct {
		Error  string `json:"error"`
		Reason any    `json:"reason"`
	}
	_ = json.Unmarshal(body, &said) // what is no JSON has no reason
	reason := http.StatusText(status)
	switch r := said.Reason.(type) {
	case string:
		reason = r
	case nil:
	default:
		text, _ := json.Marshal(r)
		reason = string(text)
		if pattern, why, ok := wrongPattern(r); ok {
			reason = fmt.Sprintf("%q is no regular expression: %s", pattern, why)
		}
	}
	f := &failure{code: exitData, text: fmt.Sprintf("the node at %s refused: %s", c.url, strings.TrimSpace(reason)), body: body}
	switch {
	case status == http.StatusNotFound:
		f.missing = true
	case status == http.StatusUnauthorized && (said.Error == "" || said.Error == "not_authorized"):
		f.code, f.text = exitPermission, fmt.Sprintf("the node at %s does not know user %q with that password", c.url, c.user)
		f.remedy = "Say who you are with --username and --password-file, or WARREN_USERNAME and WARREN_PASSWORD."
	case status == http.StatusUnauthorized:
		f.code, f.text = exitPermission, fmt.Sprintf("user %q may not do that: %s", c.user, reason)
		f.remedy = "Ask with another user (--username), or give this one a tag or a permission."
	case status == http.StatusServiceUnavailable:
		f.code = exitUnavailable
	case status >= 500:
		f.code, f.remedy = exitSoftware, "The node's log says more."
	}
	return f
}

// wrongPattern reads the answer to a wrong regular expression, in which texts are lists of characters.
func wrongPattern(reason any) (pattern, why string, ok bool) {
	list, _ := reason.([]any)
	if len(list) != 3 || list[0] != "invalid_regexp" {
		return "", "", false
	}
	text := func(v any) string {
		if s, ok := v.(string); ok {
			return s
		}
		var b strings.Builder
		characters, _ := v.([]any)
		for _, c := range characters {
			if n, ok := c.(float64); ok {
				b.WriteRune(rune(n))
			}
		}
		return b.String()
	}
	details, _ := list[2].([]any)
	if len(details) == 0 {
		return "", "", false
	}
	return text(list[1]), text(details[0]), true
}
