package conformance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

func (r *run) http(s *step) error {
	deadline := time.Now().Add(r.limit(s))
	for {
		err := r.request(s)
		if err == nil || !s.eventual || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

func (r *run) request(s *step) error {
	escaped := scope{}
	for name, v := range r.vars {
		escaped[name] = url.PathEscape(fmt.Sprint(v))
	}
	path, err := escaped.expand(s.words[1])
	if err != nil {
		return err
	}
	body := ""
	if len(s.words) > 2 {
		if body, err = r.vars.expand(s.words[2]); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.limit(s))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, s.words[0], strings.TrimSuffix(r.target.http.String(), "/")+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.SetBasicAuth(r.target.user, r.target.password)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return err
	}
	r.log.add("http %s %s -> %d", s.words[0], path, resp.StatusCode)
	if s.words[0] == http.MethodPut && strings.Contains(path, "cf-"+r.target.id) {
		r.declared = append(r.declared, "http "+path)
	}
	if resp.StatusCode != s.count {
		return fmt.Errorf("expected status %d\n    came %d %.300s", s.count, resp.StatusCode, got)
	}
	if s.tail == nil {
		return nil
	}
	pattern, err := r.vars.expand(s.tail.text)
	if err != nil {
		return err
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	if !re.Match(got) {
		return fmt.Errorf("expected a body that matches %q\n    came %.300s", pattern, got)
	}
	return nil
}

// delete removes what a case put, if it is still there.
func (t *target) delete(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, strings.TrimSuffix(t.http.String(), "/")+path, nil)
	if err != nil {
		return
	}
	req.SetBasicAuth(t.user, t.password)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
	}
}
