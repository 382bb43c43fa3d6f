// Package seeds gives random tests their seeds: the same in every run, so that a run that fails fails again, unless
// WARREN_SEED asks for others.
//
//	WARREN_SEED=random go test ./...   # a new seed for each test, printed
//	WARREN_SEED=42 go test -run Model  # the one of a run that failed
package seeds

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Of is the seed for a test, which logs it.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed, err := seed(t.Name(), os.Getenv("WARREN_SEED"))
	if err != nil {
		t.Fatalf("WARREN_SEED is neither a number nor random: %v", err)
	}
	t.Logf("WARREN_SEED=%d", seed)
	return seed
}

func seed(test, wanted string) (uint64, error) {
	switch wanted {
	case "":
		h := fnv.New64a()
		_, _ = h.Write([]byte(test))
		return h.Sum64() >> 1, nil
	case "random":
		return rand.Uint64() >> 1, nil
	}
	return strconv.ParseUint(wanted, 10, 64)
}
