//go:build sabotage

package quorum

import (
	"os"
	"time"
)

var (
	sabotageConfirm = os.Getenv("WARREN_SABOTAGE") == "confirm"
	sabotageTwice   = os.Getenv("WARREN_SABOTAGE") == "twice"
	sabotageForget  = os.Getenv("WARREN_SABOTAGE") == "forget"
	sabotageClock   = os.Getenv("WARREN_SABOTAGE") == "clock"
	sabotageDiffer  = os.Getenv("WARREN_SABOTAGE") == "differ"
)

func sabotaged(e engine) engine {
	if sabotageTwice || os.Getenv("WARREN_SABOTAGE") == "again" {
		return &stutterer{engine: e}
	}
	return e
}

// stutterer proposes each eighth batch twice, which does no harm while machines pass over the second one.
type stutterer struct {
	engine
	n int
}

func (s *stutterer) propose(b []byte, timeout time.Duration) (Proposal, error) {
	if s.n++; s.n%8 == 0 {
		if first, err := s.engine.propose(b, timeout); err == nil {
			go func() {
				<-first.ResultC()
				first.Release()
			}()
		}
	}
	return s.engine.propose(b, timeout)
}
