package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// TestExitCodeOfDisk: the code that a node exits with when it does not start is that of the disk where that is to blame, whether the
// error says so, or a text that was made of it, or only the disk.
func TestExitCodeOfDisk(t *testing.T) {
	path := func(err error) error { return fmt.Errorf("open: %w", &fs.PathError{Op: "write", Path: "x", Err: err}) }
	noMore := amqp.Errorf(amqp.InternalError, "metadata cannot be stored: the disk takes no writes")
	for _, c := range []struct {
		name  string
		err   error
		space int64 // of the disk
		alarm bool  // it takes no writes
		want  int
	}{
		{"damage", errors.New("checksum mismatch"), 1 << 30, false, exitData},
		{"no space", path(syscall.ENOSPC), 1 << 30, false, exitTemporary},
		{"no space, joined", errors.Join(errors.New("late"), path(syscall.EDQUOT)), 1 << 30, false, exitTemporary},
		{"no space, in a text", fmt.Errorf("%v", fmt.Sprintf("%v\nstack", path(syscall.ENOSPC))), 1 << 30, false, exitTemporary},
		{"no space, behind the first line", fmt.Errorf("panic\n%v", path(syscall.ENOSPC)), 1 << 30, false, exitTemporary},
		{"no space, as the disk says", errors.New("no answer in time"), 1 << 20, false, exitTemporary},
		{"failed", path(syscall.EIO), 1 << 30, false, exitDisk},
		{"failed, in a text", fmt.Errorf("%v", path(syscall.EIO)), 1 << 30, false, exitDisk},
		{"takes no writes", noMore, 1 << 30, true, exitDisk},
		{"takes no writes and is full", noMore, 0, true, exitTemporary},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := storage.NewFaultFS(1)
			r := &rooms{fs: disk, cfg: config.Default()}
			var err error
			if r.db, err = storage.OpenDB(disk, "meta", storage.DBOptions{}); err != nil {
				t.Fatal(err)
			}
			defer r.db.Close()
			disk.SetSpace(c.space)
			r.alarms.Set(broker.StorageAlarm, c.alarm)
			if f := r.unopened("something", c.err); f.code != c.want {
				t.Errorf("%d, want %d: %s", f.code, c.want, f.text)
			}
		})
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{&failure{code: exitConfig, err: path(syscall.ENOSPC)}, exitTemporary},
		{&failure{code: exitSoftware, err: path(syscall.EIO)}, exitDisk},
		{&failure{code: exitConfig, err: errors.New("wrong")}, exitConfig},
		{&failure{code: exitConfig}, exitConfig},
		{&failure{code: exitData, err: path(syscall.ENOSPC)}, exitData}, // it was looked at already
	} {
		var f *failure
		if !errors.As(ofDisk(c.err), &f) || f.code != c.want {
			t.Errorf("%+v became %+v", c.err, f)
		}
	}
}

// TestMemberStartsOnFullDisk: a member of a cluster that finds its disk full starts all the same, with what the ballast had taken: what it
// tells metadata of itself was there before, and makes nothing grow.
func TestMemberStartsOnFullDisk(t *testing.T) {
	disk, dir := storage.NewFaultFS(1), t.TempDir()
	disk.SetSpace(200 << 20)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a secret that is long enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() (*rooms, *bytes.Buffer, error) {
		log := new(bytes.Buffer)
		cfg := config.Default()
		cfg.DataDir, cfg.DiskBallast, cfg.NodeName = dir, 2<<20, "n@1"
		cfg.Cluster.Listen, cfg.Cluster.SecretFile = "127.0.0.1:0", secret
		r := &rooms{fs: disk, cfg: cfg, pool: queue.NewPool(64 << 20), clock: queue.NewClock(), log: slog.New(slog.NewTextHandler(&locked{w: log}, nil)), failed: make(chan error, 1)}
		return r, log, r.openData()
	}
	r, log, err := start()
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	r.watch(1 << 30).fill()
	if err := r.closeData(); err != nil || !r.ballast.Held() {
		t.Fatal(err)
	}
	disk.SetSpace(0)
	r, log, err = start()
	if err != nil {
		t.Fatalf("on a full disk: %v\n%s", err, log)
	}
	r.watch(1 << 30).look(time.Now())
	if on := r.alarms.Own(); on&broker.StorageAlarm == 0 {
		t.Errorf("no alarm: %v", on.Names())
	}
	added := make(chan error, 1)
	r.broker.PutMember(broker.Member{NodeID: 7, Name: "n@2"}, func(_ uint64, err error) { added <- err })
	if err := <-added; err == nil {
		t.Error("a new member is taken in on a full disk")
	}
	if err := r.closeData(); err != nil {
		t.Error(err)
	}
}
