package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream/slots"
)

// The data directory:
//
//	lock       held by the node that uses it
//	meta/      metadata, consumption records, the list of runs
//	journal/   what durable queues were given and gave away lately
//	runs/      messages that wait
//	raft/      the Raft log, and quorum queues' messages that wait; there from the first quorum queue or stream on
//	streams/   segments of streams; there from the first of them on
//	ballast    room that is given up when the disk is full

// openData opens the data directory and gives broker and queues what they had.
func (r *rooms) openData() error {
	dir := r.cfg.DataDir
	begun := time.Now()
	var err error
	if r.unlock, err = lockDir(dir); err != nil {
		return err
	}
	if r.fs == nil {
		r.fs = storage.OS{}
	}
	fs := r.fs
	if r.ballast, err = storage.OpenBallast(fs, dir, int64(r.cfg.DiskBallast)); err != nil {
		return fmt.Errorf("ballast in %s: %w", dir, err)
	}
	noSpace := func() bool {
		gave := r.ballast.GiveUp()
		if gave {
			r.log.Error("the disk is full: the ballast was given up, publishers and declarations wait for room", "octets", r.ballast.Size())
			r.alarms.Set(broker.StorageAlarm, true)
		}
		return gave
	}
	fatal := func(err error) {
		select {
		case r.failed <- err:
		default: // nobody listens
		}
	}
	warn := func(err error) { r.log.Warn("metadata", "error", err.Error()) }
	if r.db, err = openMetadata(storage.Roomy(fs, noSpace), dir, storage.DBOptions{Failed: fatal, Warn: warn}); err != nil {
		return err
	}
	r.store, err = queue.OpenStore(queue.StoreOptions{FS: fs, Dir: dir, DB: r.db, Pool: r.pool, Clock: r.clock, Log: r.log,
		FlushAt: int64(r.cfg.FlushAt), JournalMax: int64(r.cfg.JournalMax),
		NoSpace: func() { noSpace() }})
	if err != nil {
		return r.unopened("messages in "+dir, err)
	}
	raft := quorum.Options{FS: fs, Dir: filepath.Join(dir, "raft"), DB: r.db, Pool: r.pool, Clock: r.clock, Log: r.log, Fatal: r.raftFailed}
	meta := broker.Options{
		Node: r.cfg.NodeName, Pool: r.pool, Clock: r.clock, NewQueue: r.newQueue, Store: r.db, Log: r.log,
		Alarms: &r.alarms, NoDefaults: r.cfg.Definitions.Path != "",
		DefaultVHost: r.cfg.DefaultVHost, DefaultUser: r.cfg.DefaultUser, DefaultPass: r.cfg.DefaultPass,
		LoopbackUsers: loopback(r.cfg), DefaultQueueType: r.cfg.DefaultQueueType, RefuseTransient: !r.cfg.PermitTransientQueues,
		VHostDeleted: r.vhostDeleted, UserDeleted: r.userDeleted,
		RelaxedRedeclaration: r.cfg.RelaxedRedeclaration, ConsumerTimeout: r.cfg.ConsumerTimeout.Milliseconds(),
	}
	if err := r.openCluster(&raft, &meta); err != nil {
		return err
	}
	if r.quorum, err = quorum.Open(raft); err != nil {
		return r.unopened("quorum queues in "+filepath.Join(dir, "raft"), err)
	}
	r.streams, err = slots.Open(slots.Options{FS: storage.Roomy(fs, noSpace), Dir: filepath.Join(dir, "streams"), DB: r.db, Pool: r.pool, Log: r.log,
		Quorum: r.quorum, Network: r.streamNetwork(), Fatal: r.streamsFailed})
	if err != nil {
		return r.unopened("streams in "+filepath.Join(dir, "streams"), err)
	}
	if r.broker, err = broker.Open(meta); err != nil {
		return r.unopened("metadata in "+filepath.Join(dir, "meta"), err)
	}
	if r.member != nil {
		if err := r.member.start(); err != nil {
			return r.unopened("the cluster's metadata", err)
		}
	}
	report, err := r.store.Recover()
	if err != nil {
		return r.unopened("messages in "+dir, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), catchUp)
	defer cancel()
	replicated, err := r.quorum.Recover(ctx)
	if err != nil {
		return r.unopened("quorum queues in "+filepath.Join(dir, "raft"), err)
	}
	streams, err := r.streams.Recover(ctx)
	if err != nil {
		return r.unopened("streams in "+filepath.Join(dir, "streams"), err)
	}
	if streams.Unknown > 0 {
		r.log.Warn("there were streams that are not declared: they were deleted shortly before the node stopped, unless the metadata lost its end",
			"streams", streams.Unknown)
	}
	if replicated.Unknown > 0 {
		r.log.Warn("there were quorum queues that are not declared: they were deleted shortly before the node stopped, unless the metadata lost its end",
			"queues", replicated.Unknown)
	}
	if r.member != nil && !r.restoring {
		if err := r.member.run(); err != nil {
			return err
		}
	}
	j := &report.Journal
	r.log.Info("data directory opened", "queues", report.Queues+replicated.Queues+streams.Streams, "messages", report.Messages+replicated.Messages+streams.Records, "clean", j.Clean,
		"journal_records", j.Records, "took", time.Since(begun).Round(time.Millisecond).String())
	for _, f := range j.Faults {
		r.log.Error("the journal is damaged", "fault", fmt.Sprint(f))
	}
	if report.Unknown > 0 {
		r.log.Warn("the journal has messages of queues that are not declared: they were deleted shortly before the node stopped, unless the metadata lost its end",
			"records", report.Unknown)
	}
	if j.Torn > 0 {
		r.log.Warn("the journal ends in something that was never synced, and is dropped: nothing in it was confirmed, unless the disk lost what it had synced", "octets", j.Torn)
	}
	if j.Lost > 0 || report.Damaged > 0 {
		r.log.Error("some messages or acknowledgements are lost", "octets", j.Lost, "records", report.Damaged)
	}
	return nil
}

// vhostDeleted closes the connections to a virtual host, whoever deleted it.
func (r *rooms) vhostDeleted(name string) {
	if s := r.amqp.Load(); s != nil {
		s.CloseVHost(name)
	}
}

// userDeleted closes the connections of a user, whoever deleted it.
func (r *rooms) userDeleted(name string) {
	if s := r.amqp.Load(); s != nil {
		s.CloseUser(name, "user '"+name+"' is deleted")
	}
}

// raftFailed ends the process at once: what the Raft log has not taken must not be confirmed.
func (r *rooms) raftFailed(err error) {
	code, what := exitSoftware, "quorum queues cannot go on; the node ends: please report it"
	var engine *quorum.EngineError
	if errors.As(err, &engine) && engine.Disk || max(troubleOf(err), r.trouble()) != diskWell {
		code, what = exitDisk, "the disk failed: the log of quorum queues cannot be written or read any more; the node ends"
	}
	r.log.Error(what, "error", err.Error())
	os.Exit(code)
}

// streamNetwork reaches the other members for streams; nil: the node is alone.
func (r *rooms) streamNetwork() slots.Network {
	if r.member == nil {
		return nil
	}
	return raftNetwork{r.member.link}
}

// streamsFailed is the same for segments of streams.
func (r *rooms) streamsFailed(err error) {
	r.raftFailed(&quorum.EngineError{Why: err.Error(), Disk: true})
}

// catchUp is how long a start waits for quorum queues to have done what they were told before the node stopped.
const catchUp = 5 * time.Minute

func (r *rooms) newQueue(q broker.NewQueue) queue.Queue {
	switch {
	case q.Type == broker.Quorum && r.quorum != nil:
		if r.member != nil {
			r.member.slotsFor()
		}
		return r.quorum.NewQueue(uint64(q.ID), q.Config, q.DeadLetters)
	case q.Type == broker.Quorum || q.Type == broker.Stream && r.quorum == nil: // of a node that is stopped: its messages are not looked at
		return queue.NewClassic(queue.QuorumRules(), q.Config, r.pool, r.clock, nil)
	case q.Type == broker.Stream && r.streams != nil:
		if r.member != nil {
			r.member.slotsFor()
		}
		return r.streams.NewQueue(uint64(q.ID), slots.Config{Name: q.Name, Limits: q.Config, SegmentBytes: q.SegmentBytes, FilterSize: q.FilterSize})
	case q.Type != broker.Classic:
		return nil
	}
	if r.member != nil {
		if proxy := r.member.proxy(q); proxy != nil {
			return proxy
		}
	}
	return r.store.NewClassic(storage.LogID(q.ID), q.Durable, queue.ClassicRules(q.MaxPriority), q.Config, q.DeadLetters)
}

// closeData writes what is in memory and closes everything that openData opened.
func (r *rooms) closeData() error {
	var errs []error
	r.clock.Close() // nothing expires any more
	if r.member != nil {
		errs = append(errs, r.member.end())
	}
	if r.streams != nil {
		errs = append(errs, r.streams.Close())
	}
	if r.quorum != nil {
		errs = append(errs, r.quorum.Close())
	}
	if r.member != nil {
		errs = append(errs, r.member.cut())
	}
	if r.broker != nil {
		errs = append(errs, r.broker.Close())
	}
	if r.store != nil {
		errs = append(errs, r.store.Close())
	}
	if r.db != nil {
		errs = append(errs, r.db.Close())
	}
	r.pool.Close()
	if r.unlock != nil {
		r.unlock()
	}
	return errors.Join(errs...)
}

// openMetadata opens the key-value store of a data directory.
func openMetadata(fs storage.FS, dir string, o storage.DBOptions) (*storage.DB, error) {
	files := 0 // with messages: without metadata nobody would know their queues, and they would be deleted
	for _, part := range []string{"journal", "runs", "raft", "streams"} {
		if names, err := fs.List(filepath.Join(dir, part)); err == nil {
			files += len(names)
		}
	}
	missing := fmt.Errorf("it is gone, but there are messages in %s", count(files, "file"))
	if names, err := fs.List(filepath.Join(dir, "meta")); files > 0 && (err != nil || len(names) == 0) {
		return nil, unreadable(dir, missing)
	}
	db, err := storage.OpenDB(fs, filepath.Join(dir, "meta"), o)
	if err != nil {
		return nil, unreadable(dir, err)
	}
	if has, err := broker.HasMetadata(db); err != nil || files > 0 && !has {
		_ = db.Close() // nothing was written
		return nil, unreadable(dir, cmp.Or(err, missing))
	}
	return db, nil
}

// unreadable explains why a node without its metadata does not start: it would not know its queues, and would delete their
// messages.
func unreadable(dir string, err error) *failure {
	return unopened("metadata in "+filepath.Join(dir, "meta"), dir, err)
}

// unopened explains why a node does not start on a directory.
func unopened(what, dir string, err error) *failure {
	return unopenedOn(what, dir, err, troubleOf(err))
}

// unopened is the same, and asks storage, too: whatever stands on a disk that fails may say something else, since errors come by way
// of libraries that make texts and panics of them.
func (r *rooms) unopened(what string, err error) *failure {
	return unopenedOn(what, r.cfg.DataDir, err, max(troubleOf(err), r.trouble()))
}

func unopenedOn(what, dir string, err error, trouble diskTrouble) *failure {
	why, _, _ := strings.Cut(err.Error(), "\n")
	switch trouble {
	case diskFull:
		return &failure{code: exitTemporary, text: fmt.Sprintf("%s cannot be opened: the disk is full: %s", what, why), err: err,
			remedy: "Make room on the disk and start again. A new node needs 32 MiB, one that has run before less."}
	case diskFaulty:
		return &failure{code: exitDisk, text: fmt.Sprintf("%s cannot be opened: the disk failed: %s", what, why), err: err,
			remedy: "No message was touched. Repair the disk and start again."}
	}
	return &failure{code: exitData, text: fmt.Sprintf("%s cannot be read: %s", what, why), err: err,
		remedy: "No message was touched. If the disk is at fault, repair it first; then put back a copy of the whole directory, or start on an empty one\n" +
			"with --data-dir and keep this one. 'warren storage verify " + dir + "' tells what of the messages can be read."}
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
