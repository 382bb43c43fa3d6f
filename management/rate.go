package management

import (
	"math"
	"strconv"
	"time"
)

// maxSampledQueues bounds the memory of queue samples (about 150 bytes each). Queues past it have no rates.
const maxSampledQueues = 1 << 17

// decimal is a float that is written with a point even if it is whole, as Erlang writes it.
type decimal float64

func (d decimal) MarshalJSON() ([]byte, error) {
	b := strconv.AppendFloat(make([]byte, 0, 16), float64(d), 'f', -1, 64)
	if d == decimal(int64(d)) {
		b = append(b, ".0"...)
	}
	return b, nil
}

// details is what stands beside a number: how fast it changes, per second.
type details struct {
	Rate decimal `json:"rate"`
}

// perSecond is a rate to three places.
func perSecond(now, before uint64, elapsed float64) decimal {
	if elapsed <= 0 {
		return 0
	}
	return decimal(math.Round(float64(int64(now-before))/elapsed*1000) / 1000)
}

// rates are of the whole node.
type rates struct {
	received, confirmed, dropped, returned, diskReads, diskWrites decimal
	connectionsOpened, connectionsClosed                          decimal
	channelsOpened, channelsClosed                                decimal
	queuesDeclared, queuesCreated, queuesDeleted                  decimal
	ready, unacked                                                decimal
	delivery                                                      queueRates
}

// queueRates are of one queue, or of all.
type queueRates struct {
	publish, deliver, deliverNoAck, get, getNoAck, getEmpty, redeliver, ack decimal
	ready, unacked                                                          decimal // of one queue only
}

func (r queueRates) deliverGet() decimal { return r.deliver + r.deliverNoAck + r.get + r.getNoAck }

func ratesOf(now, before QueueCounts, elapsed float64) queueRates {
	return queueRates{
		publish:      perSecond(now.Publish, before.Publish, elapsed),
		deliver:      perSecond(now.Deliver, before.Deliver, elapsed),
		deliverNoAck: perSecond(now.DeliverNoAck, before.DeliverNoAck, elapsed),
		get:          perSecond(now.Get, before.Get, elapsed),
		getNoAck:     perSecond(now.GetNoAck, before.GetNoAck, elapsed),
		getEmpty:     perSecond(now.GetEmpty, before.GetEmpty, elapsed),
		redeliver:    perSecond(now.Redeliver, before.Redeliver, elapsed),
		ack:          perSecond(now.Ack, before.Ack, elapsed),
	}
}

// queueState is the last sample of a queue and the rates since the one before.
type queueState struct {
	last  QueueSample
	rates queueRates
	seen  time.Time
}

// delivered sums the counts of all queue types.
func delivered(c *Counts) (sum QueueCounts) {
	for i := range c.Delivery {
		d := &c.Delivery[i].QueueCounts
		sum.Publish += d.Publish
		sum.Deliver += d.Deliver
		sum.DeliverNoAck += d.DeliverNoAck
		sum.Get += d.Get
		sum.GetNoAck += d.GetNoAck
		sum.GetEmpty += d.GetEmpty
		sum.Redeliver += d.Redeliver
		sum.Ack += d.Ack
	}
	return sum
}

// take makes a sample. Queues are looked at only if something happened since the last one, so an idle node with many queues pays nothing.
func (s *samples) take(b Broker, now time.Time) {
	var counts Counts
	b.Counts(&counts)
	totals := b.Totals()

	s.mu.Lock()
	elapsed := now.Sub(s.at).Seconds()
	if s.at.IsZero() {
		elapsed = 0
	}
	old, sum := &s.counts, delivered(&counts)
	moved := sum != delivered(old) || counts.Received != old.Received || counts.QueuesCreated != old.QueuesCreated || counts.QueuesDeleted != old.QueuesDeleted ||
		totals.Ready != s.totals.Ready || totals.Unacked != s.totals.Unacked
	s.rates = rates{
		received:          perSecond(counts.Received, old.Received, elapsed),
		confirmed:         perSecond(counts.Confirmed, old.Confirmed, elapsed),
		dropped:           perSecond(counts.Dropped, old.Dropped, elapsed),
		returned:          perSecond(counts.Returned, old.Returned, elapsed),
		diskReads:         perSecond(counts.DiskReads, old.DiskReads, elapsed),
		diskWrites:        perSecond(counts.DiskWrites, old.DiskWrites, elapsed),
		connectionsOpened: perSecond(counts.ConnectionsOpened, old.ConnectionsOpened, elapsed),
		connectionsClosed: perSecond(counts.ConnectionsClosed, old.ConnectionsClosed, elapsed),
		channelsOpened:    perSecond(counts.ChannelsOpened, old.ChannelsOpened, elapsed),
		channelsClosed:    perSecond(counts.ChannelsClosed, old.ChannelsClosed, elapsed),
		queuesDeclared:    perSecond(counts.QueuesDeclared, old.QueuesDeclared, elapsed),
		queuesCreated:     perSecond(counts.QueuesCreated, old.QueuesCreated, elapsed),
		queuesDeleted:     perSecond(counts.QueuesDeleted, old.QueuesDeleted, elapsed),
		ready:             perSecond(totals.Ready, s.totals.Ready, elapsed),
		unacked:           perSecond(totals.Unacked, s.totals.Unacked, elapsed),
		delivery:          ratesOf(sum, delivered(old), elapsed),
	}
	s.at, s.counts, s.totals = now, counts, totals
	if !moved && !s.busy {
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()

	// The broker is asked without the lock, so that a request never waits for the walk; only this goroutine replaces the map.
	var list []QueueSample
	for sample := range b.QueueSamples() {
		if len(list) == maxSampledQueues {
			break
		}
		list = append(list, sample)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues == nil {
		s.queues = map[uint64]*queueState{}
	}
	s.busy = false
	for _, sample := range list {
		q := s.queues[sample.ID]
		if q == nil {
			q = &queueState{}
			if elapsed == 0 || s.full {
				q.last = sample // it may be older than the last sample: no rate yet
			}
			s.queues[sample.ID] = q
		}
		q.rates = ratesOf(sample.Counts, q.last.Counts, elapsed)
		q.rates.ready = perSecond(sample.Ready, q.last.Ready, elapsed)
		q.rates.unacked = perSecond(sample.Unacked, q.last.Unacked, elapsed)
		q.last, q.seen = sample, now
		s.busy = s.busy || q.rates != queueRates{}
	}
	s.full = len(list) == maxSampledQueues
	if len(s.queues) > len(list) {
		for id, q := range s.queues {
			if q.seen != now {
				delete(s.queues, id)
			}
		}
	}
}

// queue returns the rates of a queue, if it was sampled.
func (s *samples) queue(id uint64) (queueRates, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[id]
	if q == nil {
		return queueRates{}, false
	}
	return q.rates, true
}

// node returns the rates of the whole node.
func (s *samples) node() rates {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rates
}
