package storage

import (
	"bytes"
	"fmt"
	"testing"
)

type replayed struct {
	epoch Epoch
	at    Mark
	kind  uint8
	data  string
}

// reopen opens a journal and returns what it replays.
func reopen(t testing.TB, fs FS, o JournalOptions, from Epoch) (*Journal, Report, []replayed) {
	t.Helper()
	var got []replayed
	j, report, err := OpenJournal(fs, "data/journal", o, from, func(e Epoch, at Mark, kind uint8, record []byte) error {
		got = append(got, replayed{e, at, kind, string(record)})
		return nil
	})
	if err != nil {
		t.Fatalf("open: %v\n%v", err, report)
	}
	return j, report, got
}

func TestJournalReplaysWhatWasAppended(t *testing.T) {
	fs := NewFaultFS(1)
	synced := make(chan Mark, 1000)
	j, report, got := reopen(t, fs, JournalOptions{FileSize: 64 << 10, Synced: func(m Mark, err error) {
		if err != nil {
			t.Error(err)
		}
		synced <- m
	}}, 0)
	if !report.Clean || len(got) != 0 {
		t.Fatalf("a new journal: %v", report)
	}
	var want []replayed
	for i := range 500 {
		data := bytes.Repeat([]byte{byte(i)}, i*7%2000)
		mark, epoch := j.Append(uint8(i), data[:len(data)/2], data[len(data)/2:])
		want = append(want, replayed{epoch, mark, uint8(i), string(data)})
		if i%10 == 0 {
			j.Commit(mark)
			for m := range synced {
				if m >= mark {
					break
				}
			}
		}
		if i%100 == 99 {
			j.Rotate()
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, report, got = reopen(t, fs, JournalOptions{FileSize: 64 << 10}, 0)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("replayed %d records, want %d: %v", len(got), len(want), report)
	}
	if !report.Clean || len(report.Faults) > 0 || report.Torn > 0 {
		t.Error(report)
	}
	from := want[250].epoch
	if err := j.Release(from); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, report, got = reopen(t, fs, JournalOptions{FileSize: 64 << 10}, from)
	if len(got) != 300 || got[0] != want[200] || len(report.Faults) > 0 {
		t.Fatalf("replayed %d records after a release, want 300: %v", len(got), report)
	}
	j.Close()
}
