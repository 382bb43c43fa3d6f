package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestJoin(t *testing.T) {
	conf := testTLS(t)
	var asked Joiner
	n := sit(t, 9, 1, func(o *Options) {
		o.TLS = conf
		o.Join = func(_ context.Context, j Joiner) ([]byte, error) {
			if string(j.Request) == "no" {
				return nil, errors.New("the cluster is full")
			}
			asked = j
			return append([]byte("welcome, "), j.Request...), nil
		}
	})
	own := Identity{Node: 4, Boot: 2, Cluster: ClusterID{44}, Name: "new"}
	o := Options{Identity: own, Secret: secret, TLS: conf}
	big := strings.Repeat("x", MaxJoin-9)
	m, answer, err := Join(t.Context(), o, n.addr, []byte(big))
	if err != nil || string(answer) != "welcome, "+big || m != (Member{9, ClusterID{1}, "node-9"}) {
		t.Error(m, len(answer), err)
	}
	if asked.Node != 4 || asked.Boot != 2 || asked.Cluster != (ClusterID{44}) || asked.Name != "new" {
		t.Errorf("%+v", asked)
	}
	for _, tc := range []struct {
		change  func(*Options)
		request string
		reason  Reason
	}{
		{func(*Options) {}, "no", NotJoined},
		{func(o *Options) { o.Secret = []byte("another") }, "yes", WrongSecret},
		{func(o *Options) { o.Identity.Node = 9 }, "yes", SameNode},
	} {
		o := o
		tc.change(&o)
		_, _, err := Join(t.Context(), o, n.addr, []byte(tc.request))
		var r *Refusal
		if !errors.As(err, &r) || r.Reason != tc.reason || !r.ByPeer || tc.reason == NotJoined && r.Text != "the cluster is full" {
			t.Errorf("%v: %v", tc.reason, err)
		}
	}
	if _, _, err := Join(t.Context(), o, n.addr, make([]byte, MaxJoin+1)); err != ErrTooLarge {
		t.Error(err)
	}
	closed := sit(t, 8, 1, nil)
	o.TLS = nil
	_, _, err = Join(t.Context(), o, closed.addr, nil)
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != WrongClass {
		t.Error(err)
	}
}
