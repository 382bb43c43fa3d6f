package storage_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

func openDB(t testing.TB, fs storage.FS, dir string) *storage.DB {
	t.Helper()
	db, err := storage.OpenDB(fs, dir, storage.DBOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func contents(t testing.TB, db *storage.DB, prefix string) map[string]string {
	t.Helper()
	m := map[string]string{}
	last := ""
	err := db.Iterate([]byte(prefix), func(k, v []byte) error {
		if string(k) <= last {
			t.Errorf("%q comes after %q", k, last)
		}
		last = string(k)
		m[string(k)] = string(v)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func commit(t testing.TB, db *storage.DB, sync bool, change func(*storage.Batch)) {
	t.Helper()
	var b storage.Batch
	change(&b)
	if err := db.Commit(&b, sync); err != nil {
		t.Fatal(err)
	}
	if !b.Empty() {
		t.Error("the batch is not empty after Commit")
	}
}

func TestDB(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	begin := time.Now()
	db := openDB(t, storage.OS{}, dir)
	t.Logf("opened in %v", time.Since(begin))
	commit(t, db, true, func(b *storage.Batch) {
		for _, k := range []string{"a/1", "a/2", "a/\xff\xff", "b/1", "b/2", "c/1"} {
			b.Set([]byte(k), []byte("v"+k))
		}
		b.Set([]byte("empty"), nil)
		b.Delete([]byte("a/2"))
		b.DeletePrefix([]byte("c/"))
	})
	if _, err := storage.OpenDB(storage.OS{}, dir, storage.DBOptions{}); err == nil {
		t.Error("opened twice")
	}
	for range 2 {
		if v, err := db.Get([]byte("a/1")); string(v) != "va/1" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		if v, err := db.Get([]byte("empty")); v == nil || len(v) != 0 || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		if v, err := db.Get([]byte("c/1")); v != nil || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		if got, want := contents(t, db, "a/"), map[string]string{"a/1": "va/1", "a/\xff\xff": "va/\xff\xff"}; !maps.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		stop := errors.New("stop")
		if err := db.Iterate(nil, func(k, v []byte) error { return stop }); err != stop {
			t.Errorf("got %v", err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		db = openDB(t, storage.OS{}, dir)
		t.Logf("opened again in %v", time.Since(begin))
	}
	db.Close()
	if err := db.Commit(new(storage.Batch), true); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("commit after close: %v", err)
	}
}

// TestDBPowerCut commits at random, cuts the power at random, and expects everything that was synced, in order and batch by
// batch: what is there is what some number of commits, not less than those synced, have made.
func TestDBPowerCut(t *testing.T) {
	seed := seeds.Of(t)
	r := rand.New(rand.NewPCG(seed, 0))
	fs := storage.NewFaultFS(seed)
	db := openDB(t, fs, "db")
	model := map[string]string{}
	for round := range 40 {
		history := []map[string]string{maps.Clone(model)}
		synced := 0
		for step := range r.IntN(60) {
			sync := r.IntN(3) == 0
			commit(t, db, sync, func(b *storage.Batch) {
				for range 1 + r.IntN(20) {
					k := fmt.Sprint("k", r.IntN(100))
					switch r.IntN(8) {
					case 0:
						b.Delete([]byte(k))
						delete(model, k)
					case 1:
						b.DeletePrefix([]byte(k))
						maps.DeleteFunc(model, func(other, _ string) bool { return other == k || len(other) > len(k) && other[:len(k)] == k })
					default:
						v := fmt.Sprint(round, " ", step, " ", string(make([]byte, r.IntN(5000))))
						b.Set([]byte(k), []byte(v))
						model[k] = v
					}
				}
			})
			history = append(history, maps.Clone(model))
			if sync {
				synced = len(history) - 1
			}
		}
		fs = fs.Image(r.Uint64())
		if r.IntN(2) == 0 { // or the process ends in order; the disk we go on with knows nothing of it
			db.Close()
		}
		db = openDB(t, fs, "db")
		model = contents(t, db, "")
		if !slices.ContainsFunc(history[synced:], func(m map[string]string) bool { return maps.Equal(m, model) }) {
			t.Fatalf("round %d: what was found is not what any of the last %d commits left", round, len(history)-synced)
		}
	}
}

func TestDBFailure(t *testing.T) {
	for name, op := range map[string]storage.Op{"write": storage.OpWrite, "sync": storage.OpSync, "create": storage.OpCreate, "syncdir": storage.OpSyncDir} {
		fs := storage.NewFaultFS(1)
		failures := make(chan error, 10)
		db, err := storage.OpenDB(fs, "db", storage.DBOptions{Failed: func(err error) { failures <- err }})
		if err != nil {
			t.Fatal(err)
		}
		commit(t, db, true, func(b *storage.Batch) { b.Set([]byte("before"), nil) })
		fs.Inject(storage.Fault{Op: op, Times: -1, Err: syscall.ENOSPC})
		var b storage.Batch
		for i := 0; err == nil && i < 1000; i++ { // enough for a new log to be begun
			b.Set(fmt.Appendf(nil, "after %d", i), make([]byte, 100<<10))
			err = db.Commit(&b, true)
		}
		if err == nil {
			t.Fatalf("%s: nothing failed", name)
		}
		if got := <-failures; got.Error() != err.Error() {
			t.Errorf("%s: Failed heard %v, Commit returned %v", name, got, err)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: the error is %v", name, err)
		}
		fs.Heal()
		b = storage.Batch{}
		b.Set([]byte("late"), nil)
		if again := db.Commit(&b, true); again != err {
			t.Errorf("%s: the next commit returned %v", name, again)
		}
		if err := db.Close(); err == nil {
			t.Errorf("%s: closed without an error", name)
		}
		again := openDB(t, fs.Crash(1), "db")
		if v, err := again.Get([]byte("before")); v == nil || err != nil {
			t.Errorf("%s: lost what was synced: %v", name, err)
		}
		again.Close()
	}
}

func BenchmarkDBCommit(b *testing.B) {
	db := openDB(b, storage.OS{}, b.TempDir())
	defer db.Close()
	var batch storage.Batch
	i := 0
	for b.Loop() {
		for range 100 {
			i++
			batch.Set(fmt.Appendf(nil, "m/q%d", i), make([]byte, 50))
		}
		if err := db.Commit(&batch, true); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDBBackground: background work that only fails, or finds damage, ends the DB; a full disk does not.
func TestDBBackground(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		ends bool
	}{{"error", syscall.EIO, true}, {"no space", syscall.ENOSPC, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fs := storage.NewFaultFS(1)
			failures, warnings := make(chan error, 10), make(chan error, 1000)
			db, err := storage.OpenDB(fs, "db", storage.DBOptions{Failed: func(err error) { failures <- err }, Warn: func(err error) {
				select {
				case warnings <- err:
				default:
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			fs.Inject(storage.Fault{Op: storage.OpCreate, Name: ".sst", Times: -1, Err: c.err})
			for i := range 60 { // more than a memtable
				commit(t, db, true, func(b *storage.Batch) { b.Set(fmt.Appendf(nil, "k%d", i), make([]byte, 100<<10)) })
			}
			<-warnings
			select {
			case err := <-failures:
				if !c.ends || !errors.Is(err, c.err) {
					t.Errorf("failed with %v", err)
				}
			case <-time.After(storage.Endurance + 2*time.Second):
				if c.ends {
					t.Error("goes on for ever")
				}
			}
			if n := len(warnings); n > 10 {
				t.Errorf("warned %d times in %v", n, storage.Endurance)
			}
			fs.Heal()
			b := new(storage.Batch)
			b.Set([]byte("late"), nil)
			if err := db.Commit(b, true); (err != nil) != c.ends {
				t.Errorf("commit: %v", err)
			}
			db.Close()
			db = openDB(t, fs, "db")
			if n := len(contents(t, db, "k")); n != 60 {
				t.Errorf("%d of 60 are there", n)
			}
			db.Close()
		})
	}
}
