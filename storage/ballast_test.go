package storage

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBallast(t *testing.T) {
	fs := NewFaultFS(1)
	open := func(size int64) *Ballast {
		t.Helper()
		b, err := OpenBallast(fs, ".", size)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	fs.SetSpace(5 << 20)
	b := open(3 << 20)
	if b.Held() || b.Missing() != 0 || b.GiveUp() {
		t.Fatal("there is one already")
	}
	if err := b.Fill(); err != nil {
		t.Fatal(err)
	}
	if free, _ := fs.Free("."); free != 2<<20 || !b.Held() {
		t.Fatalf("%d octets are free", free)
	}
	fs = fs.Crash(1)
	b = open(3 << 20)
	if !b.Held() {
		t.Fatal("it did not survive")
	}
	if !b.GiveUp() || b.GiveUp() || b.Missing() != 3<<20 {
		t.Fatal("it was not given up once")
	}
	fs.SetSpace(1 << 20)
	if err := b.Fill(); !IsNoSpace(err) {
		t.Fatal(err)
	}
	if names, _ := fs.List("."); slices.Contains(names, ballastName) || b.Held() || b.Missing() == 0 {
		t.Fatal("half a ballast was left")
	}
	fs.SetSpace(3 << 20)
	if err := b.Fill(); err != nil || b.Missing() != 0 {
		t.Fatal(err)
	}
	if b = open(1 << 20); b.Held() {
		t.Fatal("one of another size counts")
	}
	if names, _ := fs.List("."); slices.Contains(names, ballastName) {
		t.Fatal("one of another size is left")
	}
	if b = open(0); b.Fill() != nil || b.Held() {
		t.Fatal("there is one though there is to be none")
	}
	b = nil
	if b.Fill() != nil || b.Held() || b.GiveUp() || b.Missing() != 0 || b.Size() != 0 {
		t.Fatal("nil does something")
	}
}

// TestJournalLivesOnBallast: a record that finds no room gets the ballast's, at once.
func TestJournalLivesOnBallast(t *testing.T) {
	fs := NewFaultFS(1)
	b, err := OpenBallast(fs, ".", 1<<20)
	if err == nil {
		err = b.Fill()
	}
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	var failed error
	o := JournalOptions{manual: true, NoSpace: func() { asked++; b.GiveUp() }, Synced: func(_ Mark, err error) { failed = err }}
	j, _, _ := reopen(t, fs, o, 0)
	fs.SetSpace(0)
	mark, _ := j.Append(1, bytes.Repeat([]byte("a"), 10_000))
	if !j.round() || failed != nil || asked != 1 || j.Synced() != mark {
		t.Fatalf("asked for room %d times, %v", asked, failed)
	}
	mark, _ = j.Append(1, bytes.Repeat([]byte("b"), 2<<20)) // more than there is
	if j.round() || failed == nil || j.Err() == nil || j.Synced() == mark {
		t.Fatal("it was written to nowhere")
	}
	fs.SetSpace(64 << 20)
	if !j.round() || j.Synced() != mark || failed != nil {
		t.Fatal("it was not written when there was room again")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, got := reopen(t, fs, JournalOptions{manual: true}, 0)
	if len(got) != 2 {
		t.Fatalf("%d records", len(got))
	}
}

// TestRoomy: the DB gets room, and goes on.
func TestRoomy(t *testing.T) {
	fs := NewFaultFS(1)
	asked := 0
	db, err := OpenDB(Roomy(fs, func() bool { asked++; fs.SetSpace(1 << 20); return true }), "db", DBOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fs.SetSpace(10)
	for i := range 100 {
		var batch Batch
		batch.Set([]byte{byte(i)}, make([]byte, 1000))
		if err := db.Commit(&batch, true); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := db.Close(); err != nil || asked == 0 {
		t.Fatal(err, asked)
	}
	fs.Heal()
	if db, err = OpenDB(fs, "db", DBOptions{}); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i := range 100 {
		if v, err := db.Get([]byte{byte(i)}); len(v) != 1000 {
			t.Fatal(i, err)
		}
	}
	fs.Inject(Fault{Op: OpWrite, Err: unix.EIO, Times: -1})
	if asked = 0; db.Commit(func() *Batch { b := new(Batch); b.Set([]byte("x"), nil); return b }(), true) == nil || asked != 0 {
		t.Error("room does not help against an I/O error")
	}
}
