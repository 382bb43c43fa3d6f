package cli

import (
	"strings"
	"testing"
	"time"
)

func TestAwait(t *testing.T) {
	answer := make(chan int, 1)
	if _, err := await(answer, 0); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Error("without an answer: ", err)
	}
	answer <- 5
	if v, err := await(answer, time.Minute); v != 5 || err != nil {
		t.Error(v, err)
	}
}
