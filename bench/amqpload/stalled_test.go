package main

import "testing"

func TestStalledComparesWithTheRateBeforeAndAfter(t *testing.T) {
	var s stalledReport
	s.compare([]phase{
		{Seconds: 2, Delivered: 2000, DeliveryRate: 1000}, {Seconds: 1, Delivered: 700, DeliveryRate: 700}, {Seconds: 3, Delivered: 2000, DeliveryRate: 667},
	})
	if s.Alone != 800 || s.Beside != 700 {
		t.Errorf("%+v", s)
	}
}

func TestStalledQueueMustHoldWhatWasSent(t *testing.T) {
	for ready, want := range map[uint64]verdict{
		99:  {Sent: 100, Expected: 100, Received: 100}, // one is with the consumer
		95:  {Sent: 100, Expected: 100, Received: 96, Lost: 4},
		101: {Sent: 100, Expected: 100, Received: 102, Duplicated: 2},
	} {
		if got := stalledVerdict(100, ready); got != want {
			t.Errorf("%d ready: %+v, want %+v", ready, got, want)
		}
	}
}

func TestVerdictsAddUp(t *testing.T) {
	v := verdict{1, 2, 3, 4, 5, 6, 7, 8}
	v.add(verdict{10, 20, 30, 40, 50, 60, 70, 80})
	if want := (verdict{11, 22, 33, 44, 55, 66, 77, 88}); v != want {
		t.Errorf("%+v", v)
	}
}
