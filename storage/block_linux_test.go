package storage

import (
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
)

// What is ready runs before a call returns that may block: its processor is not kept.
func TestBlockedCallsGiveTheirProcessorAway(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f, err := OS{}.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, call := range map[string]func(){
		"Sleep": func() { Sleep(1) },
		"SyncData": func() {
			if err := f.SyncData(); err != nil {
				t.Error(err)
			}
		},
	} {
		const calls = 200
		first := 0 // calls that others ran before the end of
		for range calls {
			var ran atomic.Bool
			go ran.Store(true)
			call()
			if ran.Load() {
				first++
			}
		}
		if first < calls/4*3 { // not all: the caller may be back before the other has begun
			t.Errorf("%s kept its processor in %d of %d calls", name, calls-first, calls)
		}
	}
}
