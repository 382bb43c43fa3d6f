package cli

import (
	"errors"
	"testing"
	"time"
)

// TestTroubleIsToldWhenItLasts: what is wrong for the moment of an election is not told, however often one looks, and what lasts is.
func TestTroubleIsToldWhenItLasts(t *testing.T) {
	wrong := errors.New("no leader")
	var tr trouble
	for _, x := range []struct {
		at   time.Duration
		err  error
		told bool
	}{
		{0, wrong, false}, {time.Millisecond, wrong, false}, {2 * time.Millisecond, wrong, false}, {3 * time.Millisecond, wrong, false}, {lookAgain, wrong, false},
		{2 * lookAgain, nil, false}, {4 * lookAgain, wrong, false}, {6 * lookAgain, wrong, false}, {7 * lookAgain, wrong, true}, {8 * lookAgain, wrong, true},
		{9 * lookAgain, nil, false}, {10 * lookAgain, wrong, false},
	} {
		if told := tr.lasts(x.err, time.Unix(1000, 0).Add(x.at)); told != x.told {
			t.Errorf("after %v: %v", x.at, told)
		}
	}
}
