package storage

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// DB is a small ordered key-value store for what must change atomically. Its keys are shared out by prefix:
//
//	m/  metadata: virtual hosts, users, exchanges, queues, bindings (package broker)
//	q/  consumption records of queues
//	r/  runs
//	s/  the state of the store
//	k/  replicated queues (package quorum), and k/stream streams (package stream/slots)
//
// It is a Pebble database that was told to stay small: a few MiB of memory, a few dozen open files, one compaction at a
// time. Methods may be called concurrently, a Batch belongs to one goroutine.
//
// When a write fails, nobody can tell what of it will be there after a restart. The DB then takes no further writes: Commit
// returns the same error from then on, DBOptions.Failed has been called, and the process had better end. The same comes of
// background work that has done nothing but fail for a while, unless a full disk is why: sooner or later every Commit would
// wait for it.
type DB struct {
	fs     FS
	dir    string
	pebble *pebble.DB
	o      DBOptions

	mu      sync.Mutex // guards what follows
	failed  error      // no more writes
	trouble time.Time  // since when background work fails; zero: it does not
	warned  time.Time  // of that, last
}

// DBOptions are what a DB tells its owner. Both functions may be called from any goroutine, and must not call the DB but
// for Err.
type DBOptions struct {
	Failed func(error) // called once, when the DB takes no more writes
	Warn   func(error) // something went wrong in the background and will be tried again
}

const (
	memTable  = 4 << 20
	cacheSize = 8 << 20
	openFiles = 64
)

// ErrClosed is returned by what was closed, and by what that interrupted.
var ErrClosed = errors.New("storage: closed")

// OpenDB opens the DB in a directory, which is made if it does not exist, and has no other user.
func OpenDB(fs FS, dir string, o DBOptions) (*DB, error) {
	if err := checkDB(fs, dir); err != nil {
		return nil, err
	}
	db := &DB{fs: fs, dir: dir, o: o}
	po := &pebble.Options{
		FS:                          pebbleFS{fs, db.fail},
		FormatMajorVersion:          dbFormat,
		MemTableSize:                memTable,
		MemTableStopWritesThreshold: 4,
		CacheSize:                   cacheSize,
		MaxOpenFiles:                openFiles,
		MaxManifestFileSize:         1 << 20,
		DisableTableStats:           true,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 1 },
		Logger:                      pebbleLog{db},
	}
	po.Experimental.FileCacheShards = 1
	trouble := make(chan error, 1)
	po.EventListener = &pebble.EventListener{
		BackgroundError: func(err error) {
			select {
			case trouble <- err:
			default:
			}
			db.background(err)
		},
		FlushEnd:      func(i pebble.FlushInfo) { db.worked(i.Err) },
		CompactionEnd: func(i pebble.CompactionInfo) { db.worked(i.Err) },
	}
	opened, err := openPebble(dir, po, trouble)
	if err == nil {
		err = db.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("storage: open the key-value store in %s: %w", dir, err)
	}
	db.pebble = opened
	return db, nil
}

// checkDB refuses a directory that Pebble would take for a new one, and empty, although it is not.
func checkDB(fs FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return nil // there is none
	}
	used, marked := "", false
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "marker.manifest."):
			marked = true
		case strings.HasPrefix(name, "MANIFEST-"), strings.HasSuffix(name, ".sst"), strings.HasSuffix(name, ".log"):
			used = name
		}
	}
	if used != "" && !marked {
		return fmt.Errorf("storage: open the key-value store in %s: it has %s, but no file marker.manifest.* that names its manifest", dir, used)
	}
	return nil
}

// patience is how long the opening may go on after an error of the disk.
const patience = time.Second

// openPebble opens the database. Pebble, where it cannot write what it recovers, tries again without end; it is given up
// then, and closed should it come through.
func openPebble(dir string, o *pebble.Options, trouble <-chan error) (*pebble.DB, error) {
	type answer struct {
		db  *pebble.DB
		err error
	}
	opened := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if p := recover(); p != nil { // of Pebble, over files that were damaged
				a = answer{err: fmt.Errorf("%v", p)}
			}
			opened <- a
		}()
		a.db, a.err = pebble.Open(dir, o)
	}()
	var cause error
	var end <-chan time.Time
	for {
		select {
		case a := <-opened:
			return a.db, a.err
		case err := <-trouble:
			if cause == nil {
				cause, end = err, time.After(patience)
			}
		case <-end:
			go func() {
				if a := <-opened; a.err == nil {
					a.db.Close()
				}
			}()
			return nil, cause
		}
	}
}

// dbFormat is the format of the database's files. It can be raised when the version of Pebble that comes before ours can
// read the next one.
const dbFormat = pebble.FormatWALSyncChunks

// Err is why the DB takes no more writes, nil if it does.
func (db *DB) Err() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.failed
}

func (db *DB) fail(cause error) {
	err := fmt.Errorf("storage: key-value store: %w", cause)
	db.mu.Lock()
	first := db.failed == nil
	if first {
		db.failed = err
	}
	db.mu.Unlock()
	if first && db.o.Failed != nil {
		db.o.Failed(err)
	}
}

const (
	// endurance is how long background work may fail, again and again, before the DB takes it to be for good.
	endurance = 5 * time.Second
	// warnEvery is how often that is told meanwhile: Pebble tries again at once.
	warnEvery = time.Second
)

// background is told that background work failed. Pebble holds its lock.
func (db *DB) background(err error) {
	now := time.Now()
	db.mu.Lock()
	if db.trouble.IsZero() || IsNoSpace(err) { // there may be room again at any time
		db.trouble = now
	}
	bad := now.Sub(db.trouble) >= endurance || pebble.IsCorruptionError(err)
	tell := now.Sub(db.warned) >= warnEvery
	if tell {
		db.warned = now
	}
	db.mu.Unlock()
	if bad {
		db.fail(err)
	} else if tell {
		db.warn(err)
	}
}

// worked is told that background work has ended.
func (db *DB) worked(err error) {
	if err != nil {
		return
	}
	db.mu.Lock()
	db.trouble = time.Time{}
	db.mu.Unlock()
}

func (db *DB) warn(err error) {
	if db.o.Warn != nil && db.Err() == nil {
		db.o.Warn(fmt.Errorf("storage: key-value store: %w", err))
	}
}

// Get returns a copy of the value under a key, nil if there is none. An empty value is not nil.
func (db *DB) Get(key []byte) ([]byte, error) {
	v, closer, err := db.pebble.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("storage: key-value store: %w", err)
	}
	defer closer.Close()
	return append([]byte{}, v...), nil
}

// Iterate calls each with every key that starts with prefix, in order, and its value. Both are valid during the call. It
// ends with the first error of each, which it returns.
func (db *DB) Iterate(prefix []byte, each func(key, value []byte) error) error {
	o := &pebble.IterOptions{UpperBound: after(prefix)}
	if len(prefix) > 0 { // built for the race detector, Pebble panics over a bound that is empty and not nil
		o.LowerBound = prefix
	}
	it, err := db.pebble.NewIter(o)
	if err != nil {
		return fmt.Errorf("storage: key-value store: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err == nil {
			err = each(it.Key(), v)
		}
		if err != nil {
			it.Close()
			return err
		}
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("storage: key-value store: %w", err)
	}
	return nil
}

// after is the least key that is greater than all that start with prefix, nil if there is none.
func after(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := append([]byte{}, prefix[:i+1]...)
			end[i]++
			return end
		}
	}
	return nil
}

// Free is how many octets can still be written where the DB is.
func (db *DB) Free() (uint64, error) { return db.fs.Free(db.dir) }

// Close ends the DB. No other method runs or is called afterwards, but for Err and Commit, which fails. It returns why the
// DB took no more writes, if it did not.
func (db *DB) Close() error {
	db.mu.Lock()
	failed := db.failed
	db.failed = cmp.Or(failed, ErrClosed)
	db.mu.Unlock()
	if err := db.pebble.Close(); err != nil && failed == nil {
		return fmt.Errorf("storage: close the key-value store: %w", err)
	}
	return failed
}

// Batch is a set of changes that are made together or not at all; of several to one key the last one counts. The zero
// value is ready. Keys and values are copied.
type Batch struct{ b *pebble.Batch }

func (b *Batch) open() *pebble.Batch {
	if b.b == nil {
		b.b = new(pebble.Batch)
	}
	return b.b
}

// Set puts a value under a key.
func (b *Batch) Set(key, value []byte) { b.open().Set(key, value, nil) }

// Delete removes a key.
func (b *Batch) Delete(key []byte) { b.open().Delete(key, nil) }

// DeletePrefix removes all keys that start with prefix, which is not empty. It costs later reads more than a few Deletes.
func (b *Batch) DeletePrefix(prefix []byte) { b.DeleteRange(prefix, after(prefix)) }

// DeleteRange removes the keys from first up to but not including end.
func (b *Batch) DeleteRange(first, end []byte) { b.open().DeleteRange(first, end, nil) }

// Empty reports whether the batch changes nothing.
func (b *Batch) Empty() bool { return b.b == nil || b.b.Empty() }

// Size is how many octets the batch takes, about.
func (b *Batch) Size() int {
	if b.b == nil {
		return 0
	}
	return b.b.Len()
}

// Commit makes the changes of a batch, which is empty afterwards. With sync it returns when they will survive a power cut,
// together with all that was committed before. After an error it is not known whether they will, and nothing can be
// committed any more.
func (db *DB) Commit(b *Batch, sync bool) error {
	if err := db.Err(); err != nil {
		return err
	}
	if b.Empty() {
		return nil
	}
	if err := db.pebble.Apply(b.b, &pebble.WriteOptions{Sync: sync}); err != nil {
		db.fail(err)
	}
	if err := db.Err(); err != nil { // Pebble may know nothing of it
		return err
	}
	b.b.Reset()
	return nil
}

// pebbleLog hears what Pebble would log.
type pebbleLog struct{ db *DB }

func (pebbleLog) Infof(string, ...any) {}

func (l pebbleLog) Errorf(format string, args ...any) { l.db.warn(fmt.Errorf(format, args...)) }

// Fatalf is called where Pebble expects the process to end. Where a write has failed it can also go on and return, as long
// as nothing more is written; everything else is a broken invariant.
func (l pebbleLog) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	switch {
	case strings.HasPrefix(format, "MANIFEST "), format == "%s":
		l.db.fail(err)
	default:
		panic("storage: key-value store: " + err.Error())
	}
}
