package main

import (
	"os"
	"testing"
	"time"
)

func TestSettledNeedsSeveralLikeReadings(t *testing.T) {
	for _, c := range []struct {
		readings []uint64
		want     bool
	}{
		{nil, false},
		{[]uint64{100, 100, 100}, false},
		{[]uint64{1000, 1001, 1005, 1009}, true},
		{[]uint64{1000, 1001, 1005, 1020}, false},
		{[]uint64{10, 500, 1000, 1000, 1000, 1000}, true},
	} {
		if got := settled(c.readings); got != c.want {
			t.Errorf("%v: %v", c.readings, got)
		}
	}
}

func TestIdleSourcesHoldFewerConnectionsThanPorts(t *testing.T) {
	loopback := endpoint{address: "127.0.0.1:5672"}
	used := map[string]int{}
	for i := range 25_000 {
		used[idleSource(loopback, i).String()]++
	}
	if len(used) != 3 || used["127.0.1.1"] != perSource || used["127.0.1.3"] != 5000 {
		t.Errorf("sources %v", used)
	}
	if ip := idleSource(endpoint{address: "192.0.2.1:5672"}, 0); ip != nil {
		t.Errorf("source %v for a broker elsewhere", ip)
	}
}

func TestIdleMissesConnectionsThatEnded(t *testing.T) {
	w := presets()["idle"].workload
	w.endpoint, w.Connections = startFakeBroker(t, func(uint64) int { return 1 }), 20
	conns, err := openIdle(&w)
	if err != nil || len(conns) != 20 {
		t.Fatal(len(conns), err)
	}
	for _, c := range conns[:7] {
		c.Close()
	}
	if answered := askIdle(conns, 4); answered != 13 {
		t.Errorf("%d of 13 open connections answered", answered)
	}
}

func TestIdleAsksEveryConnection(t *testing.T) {
	w := presets()["idle"].workload
	w.endpoint = startFakeBroker(t, func(uint64) int { return 1 })
	w.Connections, w.Duration, w.settleInterval = 50, time.Second, time.Millisecond
	r, err := runIdle(&w, &meter{broker: &processTree{root: os.Getpid()}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict.Received != 50 || r.Verdict.Lost != 0 || r.Idle.Before == 0 || r.Idle.Open == 0 {
		t.Errorf("verdict %+v, memory %+v", r.Verdict, r.Idle)
	}
}
