package queue

// pressure tells publishers to slow down where consumers are at work and cannot keep up: what they take out would otherwise
// go by way of the disk, and the consumers get less of the processor than those who feed them. A queue whose consumers
// stand still, or take little of what comes, is left to fill: its publishers shall not wait for them.
type pressure struct {
	since                Time // the figures below are from then
	published, delivered uint64
	pressed              bool
}

const (
	flowWindow = 10     // milliseconds between looks
	flowReady  = 16_384 // messages that may wait without anybody slowing down
)

// look reports whether publishers should slow down.
func (f *pressure) look(now Time, s *Stats) bool {
	if now-f.since >= flowWindow {
		delivered := s.Delivered + s.DeliveredNoAck
		came, went := s.Published-f.published, delivered-f.delivered
		f.pressed = went > 0 && went >= came/4
		f.since, f.published, f.delivered = now, s.Published, delivered
	}
	return f.pressed && s.Ready > flowReady
}
