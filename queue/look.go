package queue

import (
	"encoding/binary"

	"github.com/warrenmq/warren/storage"
)

// What a Store on a copy of a directory, or on a storage.Overlay, tells those who only look.

// Abandon ends the store without moving anything to disk. Nobody may use the queues any more.
func (s *Store) Abandon() {
	if s.stop != nil {
		s.stop()
		s.running.Wait()
	}
	if s.journal != nil {
		_ = s.journal.Close() // what it did not write is not wanted
	}
	s.runs.Close()
}

// Runs are the runs of the store.
func (s *Store) Runs() []storage.RunInfo { return s.runs.Runs() }

// Registered are the runs that are written down in a database, in order.
func Registered(db *storage.DB) (runs []storage.RunID, err error) {
	err = db.Iterate([]byte("r/"), func(key, _ []byte) error {
		if len(key) == 10 {
			runs = append(runs, storage.RunID(binary.BigEndian.Uint64(key[2:])))
		}
		return nil
	})
	return runs, err
}

// Recorded are the queues that have a consumption record in a database, in order.
func Recorded(db *storage.DB) (queues []storage.LogID, err error) {
	err = db.Iterate([]byte("q/"), func(key, _ []byte) error {
		if len(key) == 10 {
			queues = append(queues, storage.LogID(binary.BigEndian.Uint64(key[2:])))
		}
		return nil
	})
	return queues, err
}
