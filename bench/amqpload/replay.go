package main

import "fmt"

// runReplay fills a stream and reads it from the first message, with one consumer and then with all of them at once.
func runReplay(w *workload, m *meter) (*report, error) {
	w.Queues, w.Exchange, w.QueueType = 1, "default", "stream"
	admin, err := dial(w.endpoint)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := w.declare(admin); err != nil {
		return nil, fmt.Errorf("declaring: %w", err)
	}
	r := &report{workload: w}
	filling := *w
	filling.Consumers = 0
	if err := newLoad(&filling, m).run(r); err != nil {
		return nil, fmt.Errorf("publishing: %w", err)
	}
	sent := r.Verdict.Sent
	for _, x := range []struct {
		phase     string
		consumers int
	}{{"one", 1}, {"all", w.Consumers}} {
		reading := *w
		reading.Consumers = x.consumers
		found, v, err := newLoad(&reading, m).replay(x.phase, sent)
		if err != nil {
			return nil, fmt.Errorf("%d consumers: %w", x.consumers, err)
		}
		r.Phases = append(r.Phases, found)
		r.Verdict.add(v)
	}
	return r, w.remove(admin)
}

// replay has all consumers read everything.
func (l *load) replay(name string, sent uint64) (phase, verdict, error) {
	defer l.closeAll()
	before := l.startReading()
	if err := l.startConsumers(); err != nil {
		return phase{}, verdict{}, err
	}
	expected := sent * uint64(l.Consumers)
	if err := l.awaitDeliveries(expected, nil); err != nil {
		return phase{}, verdict{}, err
	}
	found := l.meter.phase(name, before, l.read())
	for _, k := range l.consumers {
		k.stop()
	}
	l.consuming.Wait()
	v := verdict{Sent: 0, Expected: expected, Received: l.received()}
	for _, k := range l.consumers { // each has everything
		v.Foreign += k.foreign
		var unique uint64
		for i := range k.producer {
			p := &k.producer[i]
			unique += p.unique
			v.Duplicated += p.duplicates
			v.OutOfOrder += p.outOfOrder
		}
		v.Lost += sent - min(sent, unique)
	}
	return found, v, nil
}
