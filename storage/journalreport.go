package storage

import (
	"fmt"
	"strings"
)

// Report says what a start found in the journal.
type Report struct {
	Clean   bool         // the journal was closed, or there was none: nothing can be missing at its end
	Files   []FileReport // those that were read, in the journal's order
	Faults  []FaultReport
	Spares  int // files ready to be overwritten
	First   Epoch
	Last    Epoch
	Newest  Epoch  // the highest of any frame, kept or not; 0 if there is none
	End     Mark   // behind the last record that was kept
	Frames  int    // with records that were replayed
	Records int    // replayed
	Octets  int64  // of data in them
	Torn    int64  // octets at the end whose sync never returned, dropped
	Lost    uint64 // octets of records that had been synced and are gone, as far as that can be known
}

// FileReport is one file in a Report.
type FileReport struct {
	Name    string
	Size    int64
	Frames  int // replayed
	Records int
	Octets  int64
	Old     int   // frames of released epochs, not replayed
	Skipped int64 // damaged octets between frames
	Torn    int64 // octets dropped at the end
}

// FaultReport is something that should not be.
type FaultReport struct {
	File   string
	Offset int64
	Octets int64  // damaged octets in the file; 0 if that cannot be said
	Lost   uint64 // octets of records that are gone because of it
	What   string
}

func (f FaultReport) String() string {
	s := f.File + ": " + f.What
	if f.Octets > 0 {
		s += fmt.Sprintf(" at %d (%d octets)", f.Offset, f.Octets)
	}
	if f.Lost > 0 {
		s += fmt.Sprintf(", %d octets of records lost", f.Lost)
	}
	return s
}

// String is the report in a line, and a line for each fault.
func (r Report) String() string {
	var b strings.Builder
	how := "unclean"
	if r.Clean {
		how = "clean"
	}
	fmt.Fprintf(&b, "journal: %s, %d files, epochs %d to %d, %d records in %d frames (%d octets)",
		how, len(r.Files), r.First, r.Last, r.Records, r.Frames, r.Octets)
	if r.Torn > 0 {
		fmt.Fprintf(&b, ", %d octets of torn tail dropped", r.Torn)
	}
	for _, f := range r.Faults {
		fmt.Fprintf(&b, "\n  %s", f)
	}
	return b.String()
}
