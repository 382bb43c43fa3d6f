package main

import (
	"fmt"
	"time"
)

const (
	// fairPublishers publish to the neighbour, with fairUnconfirmed messages unconfirmed each.
	fairPublishers, fairUnconfirmed = 4, 20_000
	// fairApart is how many declarations after the quiet queue its neighbour comes: a multiple of any number of slots that Warren has
	// on one node or on three, so that both are in the same.
	fairApart = 12
	// fairMore is how much longer than the quiet queue is measured its neighbour is published to.
	fairMore = time.Second
)

// runFair measures the confirms of a queue with little to do, alone and beside one that takes as much as the broker can.
func runFair(w *workload, m *meter) (*report, error) {
	w.Queues, w.Exchange, w.Messages = 1, "default", 0
	admin, err := dial(w.endpoint)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	between, flood, neighbour := *w, *w, *w
	neighbour.Name = w.Name + "-neighbour" // a stream is read from its beginning
	between.Name, between.Queues = w.Name+"-between", fairApart-1
	flood.Name, flood.Producers, flood.Confirm, flood.Rate, flood.AckEvery = w.Name+"-flood", fairPublishers, fairUnconfirmed, 0, 100
	flood.Duration += fairMore
	all := []*workload{w, &neighbour, &between, &flood}
	for _, x := range all {
		if err := x.declare(admin); err != nil {
			return nil, fmt.Errorf("declaring: %w", err)
		}
	}
	r := &report{workload: w}
	var beside, flooded report
	if err := r.measure("alone", w, m); err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	go func() { failed <- newLoad(&flood, &meter{}).run(&flooded) }()
	err = newLoad(&neighbour, m).run(&beside)
	floodErr := <-failed
	if err := r.phase("beside", &beside, err); err != nil {
		return nil, err
	}
	if err := r.phase("flood", &flooded, floodErr); err != nil {
		return nil, err
	}
	for _, x := range all {
		if err := x.remove(admin); err != nil {
			return nil, err
		}
	}
	return r, nil
}
