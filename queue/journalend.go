package queue

import (
	"encoding/binary"

	"github.com/warrenmq/warren/storage"
)

// journalEnd is what the journal is known to have come to: it is synced up to the mark, and has a frame of the epoch. It is
// written down at each start and with each flush. A journal that lost its newest files ends before that, and looks like a
// whole one otherwise. The end of a file that was synced since cannot be told from one that never was.
type journalEnd struct {
	mark  storage.Mark
	epoch storage.Epoch
}

func (e journalEnd) encode() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(e.mark)), uint64(e.epoch))
}

// readJournalEnd is what a database says; all is zero if it says nothing.
func readJournalEnd(db *storage.DB) (e journalEnd, err error) {
	v, err := db.Get(keyReached)
	if err == nil && len(v) == 16 {
		e.mark, e.epoch = storage.Mark(binary.LittleEndian.Uint64(v)), storage.Epoch(binary.LittleEndian.Uint64(v[8:]))
	}
	return e, err
}

// check adds to a report what is missing at the journal's end.
func (e journalEnd) check(r *storage.Report) {
	if r.End >= e.mark && r.Newest >= e.epoch {
		return
	}
	lost := uint64(e.mark - min(e.mark, r.End))
	r.Clean = false
	r.Lost += lost
	r.Faults = append(r.Faults, storage.FaultReport{
		File: "journal", Lost: lost, What: "the newest files are missing, or their ends: all that followed is lost",
	})
}
