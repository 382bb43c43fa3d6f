package queue

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/storage"
)

// StoreOptions say what a Store works with.
type StoreOptions struct {
	FS    storage.FS
	Dir   string      // holds the directories journal and runs
	DB    *storage.DB // the keys below q/, r/ and s/ are the store's
	Pool  *Pool
	Clock *Clock
	Log   *slog.Logger
	// NoSpace is called when there is no room for the journal, before it tries once more; nil does nothing.
	NoSpace func()
	// FlushAt is how many octets of messages in memory start a flush; 0 is half of the pool's bound.
	FlushAt int64
	// JournalMax is how many octets of journal start one; 0 is 256 MiB. The journal's files are at most a quarter of it.
	JournalMax int64
}

// Store keeps what the classic queues of a node cannot keep in memory: the journal of what is durable, and runs of what
// waits. docs/design/storage.md tells how. Its methods may be called concurrently.
//
//	s, err := OpenStore(...)
//	q := s.NewClassic(...)     // for each queue that metadata knows
//	report, err := s.Recover() // they have their messages again, and others may be made
//	s.Close()
type Store struct {
	o       StoreOptions
	pool    *Pool
	journal *storage.Journal
	runs    *storage.RunSet

	mu         sync.Mutex // guards what follows; a leaf
	queues     map[storage.LogID]*Classic
	dirty      map[*Classic]struct{} // with messages in memory, or records in the journal that their consumption record lacks
	gone       []storage.LogID       // deleted since the last flush
	records    map[storage.LogID][]byte
	firstEpoch storage.Epoch
	reached    journalEnd // what the journal is known to have come to before this start
	nextRun    storage.RunID
	recovered  bool

	confirms      pendingConfirms
	loads         loader
	background    background
	kick          chan struct{} // the flusher has something to look at; one slot
	flushes       chan struct{} // the compactor has; one slot
	stop          context.CancelFunc
	running       sync.WaitGroup
	failing       atomic.Bool // the journal cannot be written
	flushTimes    storage.Durations
	flushFailures atomic.Uint64
}

// Keys of the database.
var (
	keyEpoch   = []byte("s/epoch") // first live epoch, u64
	keyNextRun = []byte("s/run")   // next run's id, u64
	keyReached = []byte("s/mark")  // the journal reaches at least to this Mark, and has a frame of this Epoch or a later one, u64 each
)

func queueKey(id storage.LogID) []byte {
	return binary.BigEndian.AppendUint64([]byte("q/"), uint64(id))
}

func runKey(id storage.RunID) []byte {
	return binary.BigEndian.AppendUint64([]byte("r/"), uint64(id))
}

// OpenStore opens a store. Queues have no messages before Recover.
func OpenStore(o StoreOptions) (*Store, error) {
	if o.FlushAt == 0 {
		o.FlushAt = o.Pool.Bound() / 2
	}
	if o.JournalMax == 0 {
		o.JournalMax = 256 << 20
	}
	s := &Store{
		o: o, pool: o.Pool,
		queues: make(map[storage.LogID]*Classic), dirty: make(map[*Classic]struct{}), records: make(map[storage.LogID][]byte),
		kick: make(chan struct{}, 1), flushes: make(chan struct{}, 1),
	}
	s.loads.store = s
	s.confirms.store = s
	for _, dir := range []string{"/journal", "/runs"} {
		if err := o.FS.MkdirAll(o.Dir + dir); err != nil {
			return nil, err
		}
	}
	if err := o.FS.SyncDir(o.Dir); err != nil {
		return nil, err
	}
	number := func(key []byte) (uint64, error) {
		v, err := o.DB.Get(key)
		if err != nil || len(v) != 8 {
			return 0, err
		}
		return binary.LittleEndian.Uint64(v), nil
	}
	epoch, err := number(keyEpoch)
	if err != nil {
		return nil, err
	}
	next, err := number(keyNextRun)
	if err != nil {
		return nil, err
	}
	s.firstEpoch, s.nextRun = storage.Epoch(epoch), storage.RunID(max(next, 1))
	if s.reached, err = readJournalEnd(o.DB); err != nil {
		return nil, err
	}
	var registered []storage.RunID
	err = o.DB.Iterate([]byte("r/"), func(key, _ []byte) error {
		if len(key) == 10 {
			registered = append(registered, storage.RunID(binary.BigEndian.Uint64(key[2:])))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = o.DB.Iterate([]byte("q/"), func(key, value []byte) error {
		if len(key) == 10 && len(value) >= 8 {
			s.records[storage.LogID(binary.BigEndian.Uint64(key[2:]))] = append([]byte(nil), value...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var report storage.RunSetReport
	if s.runs, report, err = storage.OpenRunSet(o.FS, o.Dir+"/runs", registered, storage.RunSetOptions{}); err != nil {
		return nil, err
	}
	for _, lost := range report.Lost {
		o.Log.Error("a run of messages is lost", "run", lost.Run, "error", lost.Err.Error())
	}
	for _, name := range report.Deleted {
		o.Log.Info("a run that was transient, not finished or replaced is deleted", "file", name)
	}
	for _, id := range registered {
		s.nextRun = max(s.nextRun, id+1)
	}
	return s, nil
}

// NewClassic makes a queue. id is never given out twice. A durable queue that is made before Recover gets back what it had.
func (s *Store) NewClassic(id storage.LogID, durable bool, rules Rules, config Config, dead DeadLetters) *Classic {
	q := NewClassic(rules, config, s.pool, s.o.Clock, dead)
	q.store, q.id, q.durable = s, id, durable
	q.log.keep = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues[id] = q
	if durable && !s.recovered {
		q.restore(rules, config, s.records[id])
	}
	return q
}

// forget is told that a queue was deleted.
func (s *Store) forget(q *Classic) {
	s.mu.Lock()
	delete(s.queues, q.id)
	delete(s.dirty, q)
	if q.durable {
		s.gone = append(s.gone, q.id)
	}
	s.mu.Unlock()
}

// soil notes that the next flush has something to do for q. Called with q.mu held.
func (s *Store) soil(q *Classic) {
	if q.dirty {
		return
	}
	q.dirty = true
	s.mu.Lock()
	s.dirty[q] = struct{}{}
	s.mu.Unlock()
}

// Close writes everything to disk and ends the store: the next start finds an empty journal and knows which messages were
// delivered. After an error it finds what a killed process would have left, with everything in the journal that could be
// written. Nobody may use the queues any more.
func (s *Store) Close() error {
	if s.stop != nil {
		s.stop()
		s.running.Wait()
	}
	if s.journal == nil {
		s.runs.Close()
		return nil
	}
	for _, q := range s.all() { // deliveries leave no trace in the journal, but the records tell of them
		q.mu.Lock()
		if q.durable && !q.deleted {
			s.soil(q)
		}
		q.mu.Unlock()
	}
	_, err := s.flush(s.journal.Rotate() - 1)
	end := s.journal.Close
	if err != nil { // nobody has been told what was delivered: it is not a start after an orderly stop that follows
		end = s.journal.Leave
	}
	if e := end(); err == nil {
		err = e
	}
	s.runs.Close()
	if err != nil {
		return fmt.Errorf("closing the store: %w", err)
	}
	return nil
}

// all are the queues of now.
func (s *Store) all() []*Classic {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.queues))
}

// StoreStats are figures of now.
type StoreStats struct {
	JournalOctets, JournalUnsynced int64
	Runs                           storage.RunStats
	Failing                        bool   // nothing can be written at the moment
	JournalFaults                  uint64 // writes and syncs that failed since the start
	Syncs, Flushes                 storage.DurationCounts
	FlushFailures                  uint64
	Unconfirmed                    uint64 // publishes whose confirm waits for the journal
}

// Err is why the journal cannot be written at the moment; nil if it can.
func (s *Store) Err() error { return s.journal.Err() }

// Stats are the store's figures.
func (s *Store) Stats() StoreStats {
	return StoreStats{
		JournalOctets: s.journal.Size(), JournalUnsynced: int64(s.journal.Backlog()), Runs: s.runs.Stats(), Failing: s.failing.Load(),
		JournalFaults: s.journal.Faults(), Syncs: s.journal.Syncs(), Flushes: s.flushTimes.Now(), FlushFailures: s.flushFailures.Load(),
		Unconfirmed: s.confirms.waiting(),
	}
}
