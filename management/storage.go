package management

import (
	"strconv"
	"time"
)

// StorageFigures are what the node's storage does. Octets are of files unless said otherwise.
type StorageFigures struct {
	JournalOctets, JournalUnsynced uint64 // of records: not moved to runs or dropped yet; of these not on the disk yet
	JournalFaults                  uint64 // writes and syncs that failed
	Syncs, Flushes                 Histogram
	FlushFailures                  uint64
	ConfirmsWaiting                uint64 // publishes that are confirmed with the next sync
	Runs                           uint64
	RunOctets, RunLive             uint64 // of all runs; of the parts in which something is alive
	MessagesInMemory               uint64
	// Memory of messages: in use, kept for reuse, and what the first should stay below, in octets.
	PoolInUse, PoolFree, PoolBound uint64
	Ballast                        uint64 // 0 while it is given up
}

// Histogram counts how long something took.
type Histogram struct {
	Bounds []time.Duration // ascending
	Counts []uint64        // up to each of Bounds, and above the last; not added up
	Sum    time.Duration
}

// storageMetrics are those of storage, all our own.
func (a *API) storageMetrics(e *exposition, totals *Totals) {
	if a.Storage == nil {
		return
	}
	s := a.Storage()
	e.one("warren_journal_bytes", gauge, "Records in the journal that are still needed", float64(s.JournalOctets))
	e.one("warren_journal_unsynced_bytes", gauge, "Records that are not on the disk yet", float64(s.JournalUnsynced))
	e.one("warren_journal_faults_total", counter, "Writes and syncs of the journal that failed", float64(s.JournalFaults))
	e.histogram("warren_journal_sync_seconds", "Time that syncs of the journal (fdatasync) took", &s.Syncs)
	e.one("warren_confirms_waiting", gauge, "Publishes whose confirm waits for the journal", float64(s.ConfirmsWaiting))
	e.histogram("warren_flush_seconds", "Time that moving messages from memory to a run took", &s.Flushes)
	e.one("warren_flush_failures_total", counter, "Moves of messages to runs that failed and were tried again", float64(s.FlushFailures))
	e.one("warren_runs", gauge, "Run files", float64(s.Runs))
	e.one("warren_run_bytes", gauge, "Size of the run files", float64(s.RunOctets))
	e.one("warren_run_live_bytes", gauge, "Size of those parts of run files in which a message is alive", float64(s.RunLive))
	all := totals.Ready + totals.Unacked
	e.one("warren_messages_in_memory", gauge, "Messages of queues that are in memory", float64(s.MessagesInMemory))
	e.one("warren_messages_on_disk_only", gauge, "Messages of queues that are on the disk and not in memory", float64(all-min(all, s.MessagesInMemory)))
	e.one("warren_message_memory_free_bytes", gauge, "Memory that is kept for messages to come", float64(s.PoolFree))
	e.one("warren_message_memory_bound_bytes", gauge, "Memory of messages above which publishers wait", float64(s.PoolBound))
	e.one("warren_disk_ballast_bytes", gauge, "Disk space held back for when the disk is full; 0 when it was given up", float64(s.Ballast))
}

// histogram is a family of one histogram.
func (e *exposition) histogram(name, help string, h *Histogram) {
	e.family(name, "histogram", help)
	sum := uint64(0)
	for i, n := range h.Counts {
		le := "+Inf"
		if i < len(h.Bounds) {
			le = strconv.FormatFloat(h.Bounds[i].Seconds(), 'g', -1, 64)
		}
		sum += n
		e.sample("_bucket", labels("le", le), float64(sum))
	}
	e.sample("_sum", nil, h.Sum.Seconds())
	e.sample("_count", nil, float64(sum))
}
