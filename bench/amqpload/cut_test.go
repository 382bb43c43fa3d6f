package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The policy names the queue and nothing else, and what the broker refuses is an error.
func TestCutPolicy(t *testing.T) {
	var asked *http.Request
	var body struct {
		Pattern    string         `json:"pattern"`
		Definition map[string]int `json:"definition"`
	}
	status := http.StatusCreated
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
		w.Write([]byte("no such key"))
	}))
	defer s.Close()
	w := presets()["cut"].workload
	w.HTTP, w.endpoint = s.URL, endpoint{user: "u", password: "p", vhost: "/"}
	if err := w.setPolicy(http.MethodPut, "q.1", map[string]any{"max-length": cutTo}); err != nil {
		t.Fatal(err)
	}
	user, password, _ := asked.BasicAuth()
	if asked.RequestURI != "/api/policies/%2F/amqpload-cut" || asked.Method != http.MethodPut || user != "u" || password != "p" {
		t.Errorf("%s %s as %s:%s", asked.Method, asked.RequestURI, user, password)
	}
	if body.Pattern != "^q.1$" || body.Definition["max-length"] != cutTo {
		t.Errorf("%+v", body)
	}
	status = http.StatusBadRequest
	if err := w.setPolicy(http.MethodPut, "q.1", nil); err == nil || !strings.Contains(err.Error(), "no such key") {
		t.Error(err)
	}
}

func TestCutNeedsHTTP(t *testing.T) {
	w := presets()["cut"].workload
	w.Name = "cut"
	if err := w.validate(); err == nil {
		t.Error("no API, and no error")
	}
	w.HTTP = "http://127.0.0.1:15672"
	if err := w.validate(); err != nil {
		t.Error(err)
	}
}
