package conformance

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Status is the outcome of one case.
type Status string

const (
	Passed  Status = "passed"
	Failed  Status = "FAILED"
	Skipped Status = "skipped"
)

// A Result is the outcome of one case. Err names file and line, what was expected and what came; Reason says why a case was
// skipped. Frames are the frames of the case as text, oldest first: all of them with Options.Trace, else the last forty
// of a case that failed.
type Result struct {
	Case     Case
	Status   Status
	Reason   string
	Err      error
	Duration time.Duration
	Frames   []string
}

// A Report is the outcome of a run. Results are in the order of the transcripts.
type Report struct {
	Product  string // as the transcripts name it: rabbitmq, warren, ...
	Version  string // as the broker says
	Results  []Result
	Duration time.Duration
}

// Count returns how many cases ended so.
func (r Report) Count(s Status) int {
	n := 0
	for _, result := range r.Results {
		if result.Status == s {
			n++
		}
	}
	return n
}

// Write prints the failures, what was skipped and why, and a summary.
func (r Report) Write(w io.Writer) error {
	for _, result := range r.Results {
		switch result.Status {
		case Failed:
			fmt.Fprintf(w, "FAILED %s\n    %v\n", result.Case.FullName(), result.Err)
			for _, f := range result.Frames {
				fmt.Fprintf(w, "        %s\n", f)
			}
		case Skipped:
			fmt.Fprintf(w, "skipped %s: %s\n", result.Case.FullName(), result.Reason)
		}
	}
	_, err := fmt.Fprintf(w, "%s %s: %d passed, %d failed, %d skipped in %.1f s\n", r.Product, r.Version, r.Count(Passed), r.Count(Failed),
		r.Count(Skipped), r.Duration.Seconds())
	return err
}

// traceTail is how many frames of a failed case are kept.
const traceTail = 40

// A trace collects the frames of a case as text. Peers' readers and the case add to it.
type trace struct {
	start time.Time
	all   bool

	mu    sync.Mutex // guards lines
	lines []string
}

func (t *trace) add(format string, args ...any) {
	line := fmt.Sprintf("%7.3f ", time.Since(t.start).Seconds()) + fmt.Sprintf(format, args...)
	if len(line) > 600 {
		line = line[:600] + "..."
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	if !t.all && len(t.lines) > 2*traceTail {
		t.lines = append(t.lines[:0], t.lines[len(t.lines)-traceTail:]...)
	}
}

func (t *trace) tail() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all || len(t.lines) <= traceTail {
		return append([]string(nil), t.lines...)
	}
	return append([]string(nil), t.lines[len(t.lines)-traceTail:]...)
}
