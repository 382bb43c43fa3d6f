package cluster

import (
	"strings"
	"testing"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

func openDB(t *testing.T, fs storage.FS) *storage.DB {
	t.Helper()
	db, err := storage.OpenDB(fs, "db", storage.DBOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// Every start has a number of its own, also where the power was cut right after it.
func TestIdentitySurvives(t *testing.T) {
	seed := seeds.Of(t)
	fs := storage.NewFaultFS(seed)
	var first Identity
	for boot := uint64(1); boot <= 6; boot++ {
		db := openDB(t, fs)
		name := ""
		if boot == 3 {
			name = "rabbit@home"
		}
		id, err := Start(db, name)
		if err != nil {
			t.Fatal(err)
		}
		if boot == 1 {
			first = id
			if id.Node == 0 || id.Cluster == (ClusterID{}) || id.Name != "warren-"+id.Node.String() {
				t.Error(id)
			}
		}
		want := first
		want.Boot = boot
		if boot >= 3 {
			want.Name = "rabbit@home"
		}
		if boot == 3 || boot == 4 {
			want.Number = 1
		}
		if boot > 4 {
			want.Cluster, want.Number = ClusterID{4, 2}, 3
		}
		if id != want {
			t.Errorf("%+v, not %+v", id, want)
		}
		if boot == 2 {
			if err := Become(db, 0); err == nil {
				t.Error("became member 0")
			}
			if err := Become(db, 1); err != nil {
				t.Fatal(err)
			}
		}
		if boot == 3 {
			if err := Become(db, 1); err != nil {
				t.Error("is no longer what it is:", err)
			}
			if err := Become(db, 2); err == nil {
				t.Error("has two numbers")
			}
		}
		if boot == 4 {
			if err := Enter(db, ClusterID{}, 3); err == nil {
				t.Error("entered cluster 0")
			}
			if err := Enter(db, ClusterID{4, 2}, 0); err == nil {
				t.Error("entered as member 0")
			}
			if err := Enter(db, ClusterID{4, 2}, 3); err != nil {
				t.Fatal(err)
			}
		}
		cut := fs.Crash(seed + boot)
		db.Close()
		fs = cut
	}
	db := openDB(t, storage.NewFaultFS(1))
	defer db.Close()
	if other, err := Start(db, ""); err != nil || other.Node == first.Node || other.Cluster == first.Cluster {
		t.Error(other, err)
	}
}

// An identity that is not whole, or of a later format, is not made up for.
func TestIdentityDamaged(t *testing.T) {
	for _, tc := range []struct {
		change func(*storage.Batch)
		text   string
	}{
		{func(b *storage.Batch) { b.Delete(keyFormat) }, "c/format is missing"},
		{func(b *storage.Batch) { b.Delete(keyNode) }, "c/node is missing"},
		{func(b *storage.Batch) { b.Delete(keyBoot) }, "c/boot is missing"},
		{func(b *storage.Batch) { b.Delete(keyCluster) }, "c/cluster is missing"},
		{func(b *storage.Batch) { b.Set(keyBoot, []byte{1}) }, "c/boot has 1 octets"},
		{func(b *storage.Batch) { b.Set(keyNumber, []byte{1}) }, "c/number has 1 octets"},
		{func(b *storage.Batch) { b.Set(keyNode, make([]byte, 8)) }, "c/node is 0"},
		{func(b *storage.Batch) { b.Set(keyFormat, []byte{9, 0}) }, "format 9 of identities, this program knows up to 1"},
	} {
		db := openDB(t, storage.NewFaultFS(1))
		if _, err := Start(db, "x"); err != nil {
			t.Fatal(err)
		}
		var b storage.Batch
		tc.change(&b)
		if err := db.Commit(&b, true); err != nil {
			t.Fatal(err)
		}
		if id, err := Start(db, "x"); err == nil || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%+v, %v; not %s", id, err, tc.text)
		}
		db.Close()
	}
	db := openDB(t, storage.NewFaultFS(1))
	defer db.Close()
	if err := Become(db, 1); err == nil {
		t.Error("a number of a node that there never was")
	}
	if _, err := Start(db, strings.Repeat("x", MaxName+1)); err == nil {
		t.Error("a name of 256 octets")
	}
}

func TestBook(t *testing.T) {
	var b Book
	for _, id := range []NodeID{5, 3, 9, 3} {
		b = b.With(Peer{ID: id, Name: "again"})
	}
	if err := b.Check(); err != nil || len(b) != 3 {
		t.Error(b, err)
	}
	if p, ok := b.Find(5); !ok || p.ID != 5 {
		t.Error(p, ok)
	}
	if p, ok := b.Find(4); ok {
		t.Error(p)
	}
	if c := b.Without(5); len(c) != 2 || len(b) != 3 || c.Check() != nil {
		t.Error(b, c)
	}
	b = b.With(Peer{ID: 5, Number: 2}).With(Peer{ID: 9, Number: 1})
	if p, ok := b.Member(2); !ok || p.ID != 5 || b.Check() != nil {
		t.Error(p, ok, b.Check())
	}
	for _, number := range []uint64{0, 3} {
		if p, ok := b.Member(number); ok {
			t.Error(p)
		}
	}
	for _, bad := range []Book{{{}}, {{ID: 1, Number: 2}, {ID: 2}, {ID: 3, Number: 2}}, {{ID: 2}, {ID: 1}}, {{ID: 2}, {ID: 2}}, {{ID: 1, Name: strings.Repeat("x", 256)}}} {
		if bad.Check() == nil {
			t.Error(bad)
		}
	}
}

func TestVersions(t *testing.T) {
	for _, tc := range []struct {
		a, b Versions
		want uint16 // 0: none
	}{{Versions{1, 1}, Versions{1, 1}, 1}, {Versions{1, 3}, Versions{2, 5}, 3}, {Versions{2, 5}, Versions{1, 3}, 3}, {Versions{1, 2}, Versions{3, 4}, 0}, {Versions{3, 4}, Versions{1, 2}, 0}} {
		if v, ok := tc.a.common(tc.b); ok != (tc.want != 0) || ok && v != tc.want {
			t.Errorf("%v and %v: %d, %v", tc.a, tc.b, v, ok)
		}
	}
}

// A node that leaves its cluster is alone in one of its own, under the number that it had, and says so until it is settled.
func TestLeave(t *testing.T) {
	fs := storage.NewFaultFS(seeds.Of(t))
	db := openDB(t, fs)
	if err := Leave(db); err == nil {
		t.Error("a node left a cluster that it was not in")
	}
	if _, err := Start(db, "n"); err != nil {
		t.Fatal(err)
	}
	if err := Enter(db, ClusterID{4, 2}, 3); err != nil {
		t.Fatal(err)
	}
	before, err := Read(db)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // one that was interrupted is done again
		if err := Leave(db); err != nil {
			t.Fatal(err)
		}
		fs = fs.CrashLosing()
		db = openDB(t, fs)
		now, err := Read(db)
		leaving, err2 := Leaving(db)
		if err != nil || err2 != nil || !leaving || now.Cluster == before.Cluster || now.Cluster == (ClusterID{}) || now.Number != 3 || now.Node != before.Node {
			t.Error(err, err2, leaving, now)
		}
		before.Cluster = now.Cluster
	}
	if err := Settle(db); err != nil {
		t.Fatal(err)
	}
	fs = fs.CrashLosing()
	db = openDB(t, fs)
	if leaving, err := Leaving(db); err != nil || leaving {
		t.Error(leaving, err)
	}
	if now, err := Read(db); err != nil || now.Cluster != before.Cluster {
		t.Error(now, err)
	}
}
