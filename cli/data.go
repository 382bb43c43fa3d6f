package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// The data directory:
//
//	lock       held by the node that uses it
//	meta/      metadata, consumption records, the list of runs
//	journal/   what durable queues were given and gave away lately
//	runs/      messages that wait

// openData opens the data directory and gives broker and queues what they had.
func (r *rooms) openData() error {
	dir := r.cfg.DataDir
	begun := time.Now()
	var err error
	if r.unlock, err = lockDir(dir); err != nil {
		return err
	}
	fs := storage.OS{}
	fatal := func(err error) {
		r.log.Error("metadata cannot be written any more; restart the node when the disk is well", "error", err.Error())
	}
	warn := func(err error) { r.log.Warn("metadata", "error", err.Error()) }
	if r.db, err = storage.OpenDB(fs, filepath.Join(dir, "meta"), storage.DBOptions{Failed: fatal, Warn: warn}); err != nil {
		return fmt.Errorf("metadata in %s: %w", dir, err)
	}
	r.store, err = queue.OpenStore(queue.StoreOptions{FS: fs, Dir: dir, DB: r.db, Pool: r.pool, Clock: r.clock, Log: r.log})
	if err != nil {
		return fmt.Errorf("messages in %s: %w", dir, err)
	}
	r.broker, err = broker.Open(broker.Options{
		Node: r.cfg.NodeName, Pool: r.pool, Clock: r.clock, NewQueue: r.newQueue, Store: r.db, NoDefaults: r.cfg.Definitions.Path != "",
		DefaultVHost: r.cfg.DefaultVHost, DefaultUser: r.cfg.DefaultUser, DefaultPass: r.cfg.DefaultPass,
		LoopbackUsers: loopback(r.cfg), DefaultQueueType: r.cfg.DefaultQueueType, RefuseTransient: !r.cfg.PermitTransientQueues,
	})
	if err != nil {
		return fmt.Errorf("metadata in %s: %w", dir, err)
	}
	report, err := r.store.Recover()
	if err != nil {
		return fmt.Errorf("messages in %s: %w", dir, err)
	}
	j := &report.Journal
	r.log.Info("data directory opened", "queues", report.Queues, "messages", report.Messages, "clean", j.Clean,
		"journal_records", j.Records, "took", time.Since(begun).Round(time.Millisecond).String())
	for _, f := range j.Faults {
		r.log.Error("the journal is damaged", "fault", fmt.Sprint(f))
	}
	if j.Lost > 0 || report.Damaged > 0 {
		r.log.Error("some messages or acknowledgements are lost", "octets", j.Lost, "records", report.Damaged)
	}
	return nil
}

func (r *rooms) newQueue(q broker.NewQueue) queue.Queue {
	if q.Type != broker.Classic {
		return nil
	}
	return r.store.NewClassic(storage.LogID(q.ID), q.Durable, queue.ClassicRules(q.MaxPriority), q.Config, q.DeadLetters)
}

// closeData writes what is in memory and closes everything that openData opened.
func (r *rooms) closeData() error {
	var errs []error
	if r.broker != nil {
		errs = append(errs, r.broker.Close())
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	if r.db != nil {
		errs = append(errs, r.db.Close())
	}
	r.clock.Close()
	if r.unlock != nil {
		r.unlock()
	}
	return errors.Join(errs...)
}

// lockDir makes sure that no other node uses a data directory.
func lockDir(dir string) (unlock func(), err error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &failure{code: exitConfig, text: fmt.Sprintf("another node uses the data directory %s", dir), err: err,
			remedy: "Stop it, or choose another directory with --data-dir."}
	}
	return func() { f.Close() }, nil
}
