package cli

import "time"

// troubleTime is for how long what the keeper finds wrong must last before it is told.
const troubleTime = 3 * lookAgain

// trouble is something that is wrong. For a moment something always is, as long as leaders are being elected.
type trouble struct{ since time.Time }

// lasts is told what is wrong now, nil if nothing is, and reports whether that is to be told.
func (t *trouble) lasts(err error, now time.Time) bool {
	switch {
	case err == nil:
		t.since = time.Time{}
	case t.since.IsZero():
		t.since = now
	}
	return err != nil && now.Sub(t.since) >= troubleTime
}
