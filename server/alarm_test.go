package server

import (
	"net"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// openAware is open for a client that understands connection.blocked.
func (n *node) openAware(t testing.TB) *wire {
	t.Helper()
	w := n.wire(t)
	w.raw([]byte(amqp.ProtocolHeader))
	w.expect(0, &amqp.ConnectionStart{})
	can := amqp.Table(nil).AppendBool("connection.blocked", true)
	w.send(0, &amqp.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US", ClientProperties: amqp.Table(nil).AppendTable("capabilities", can)})
	var tune amqp.ConnectionTune
	w.expect(0, &tune)
	w.send(0, &amqp.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax})
	w.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	w.expect(0, &amqp.ConnectionOpenOk{})
	w.send(1, &amqp.ChannelOpen{})
	w.expect(1, &amqp.ChannelOpenOk{})
	return w
}

// states are how many connections are in each state.
func (n *node) states() map[string]int {
	states := map[string]int{}
	for c := range n.Connections() {
		states[c.State]++
	}
	return states
}

// TestAlarmBlocksPublishers: during an alarm a publisher is told once, when it publishes, and waits; everything else goes
// on, also on its own connection. When the last alarm is gone it is told, and its messages come in.
func TestAlarmBlocksPublishers(t *testing.T) {
	n := start(t, nil)
	other := n.open(t, nil)
	other.declare("q")
	p := n.openAware(t)
	p.raw(numbered(1, "q", 0, 5, 100))
	p.sync()

	alarms := n.broker.Alarms
	alarms.Set(broker.DiskAlarm, true)
	if s := n.states(); s["blocking"] != 2 {
		t.Errorf("states %v", s)
	}
	p.declare("topology") // methods without content still work
	if s := n.states(); s["blocking"] != 2 {
		t.Errorf("states %v after a method", s)
	}
	p.raw(numbered(1, "q", 5, 3, 100))
	var blocked amqp.ConnectionBlocked
	p.expect(0, &blocked)
	if blocked.Reason != "low on disk" {
		t.Errorf("reason %q", blocked.Reason)
	}
	if s := n.states(); s["blocked"] != 1 || s["blocking"] != 1 {
		t.Errorf("states %v after a publish", s)
	}
	// One more alarm, and one less: no word about it.
	alarms.Set(broker.MemoryAlarm, true)
	alarms.Set(broker.DiskAlarm, false)
	p.raw(numbered(1, "q", 8, 1, 100))
	// Another channel of the publisher consumes, and acknowledges.
	p.send(2, &amqp.ChannelOpen{})
	p.expect(2, &amqp.ChannelOpenOk{})
	if got := other.ready("q"); got != 5 {
		t.Errorf("%d ready, not 5", got)
	}
	p.send(2, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"})
	p.expect(2, &amqp.BasicConsumeOk{})
	for range 5 {
		var d amqp.BasicDeliver
		p.expect(2, &d)
		p.content(2)
		p.send(2, &amqp.BasicAck{DeliveryTag: d.DeliveryTag})
	}
	p.send(2, &amqp.BasicCancel{ConsumerTag: "c"})
	p.expect(2, &amqp.BasicCancelOk{})

	alarms.Set(broker.MemoryAlarm, false)
	p.expect(0, &amqp.ConnectionUnblocked{})
	p.sync()
	until(t, "what waited comes in", func() bool { return n.states()["running"] == 2 })
}

// TestAlarmReasons: RabbitMQ's words.
func TestAlarmReasons(t *testing.T) {
	for alarm, reason := range map[broker.Alarm]string{
		broker.MemoryAlarm: "low on memory", broker.DiskAlarm: "low on disk", broker.MemoryAlarm | broker.DiskAlarm: "low on disk & memory",
		broker.StorageAlarm: "low on disk",
	} {
		n := start(t, nil)
		n.broker.Alarms.Set(alarm, true) // before anyone is there
		p := n.openAware(t)
		p.raw(numbered(1, "nowhere", 0, 1, 10))
		var blocked amqp.ConnectionBlocked
		p.expect(0, &blocked)
		if blocked.Reason != reason {
			t.Errorf("%v: reason %q, not %q", alarm.Names(), blocked.Reason, reason)
		}
	}
}

// TestAlarmHoldsBackWhoHoldsDeliveries: unacknowledged deliveries are no way around an alarm.
func TestAlarmHoldsBackWhoHoldsDeliveries(t *testing.T) {
	n := start(t, nil)
	o := n.open(t, nil)
	o.declare("q")
	p := n.open(t, nil) // does not want to be told
	p.raw(numbered(1, "q", 0, 1, 10))
	p.sync()
	p.send(1, &amqp.BasicGet{Queue: "q"})
	p.expect(1, &amqp.BasicGetOk{})
	p.content(1)
	n.broker.Alarms.Set(broker.MemoryAlarm, true)
	p.raw(numbered(1, "q", 1, 1, 10))
	until(t, "the publisher is blocked", func() bool { return n.states()["blocked"] == 1 })
	if got := o.ready("q"); got != 0 {
		t.Errorf("%d messages passed the alarm", got)
	}
	n.broker.Alarms.Set(broker.MemoryAlarm, false)
	until(t, "the message comes in", func() bool { return o.ready("q") == 1 })
}

// TestAlarmPublishInPieces: what began before an alarm ends, and blocks.
func TestAlarmPublishInPieces(t *testing.T) {
	n := start(t, nil)
	o := n.open(t, nil)
	o.declare("q")
	p := n.openAware(t)
	frames := numbered(1, "q", 0, 1, 100)
	p.raw(frames[:len(frames)-108]) // without the body frame
	p.send(2, &amqp.ChannelOpen{})
	p.expect(2, &amqp.ChannelOpenOk{})
	n.broker.Alarms.Set(broker.DiskAlarm, true)
	p.raw(frames[len(frames)-108:])
	p.expect(0, &amqp.ConnectionBlocked{})
	if got := o.ready("q"); got != 1 {
		t.Errorf("%d ready", got)
	}
	n.broker.Alarms.Set(broker.DiskAlarm, false)
	p.expect(0, &amqp.ConnectionUnblocked{})
}

// TestCloseDuringAlarm: closes are answered and nothing published before them is lost, but they are no way around the
// alarm for much.
func TestCloseDuringAlarm(t *testing.T) {
	n := start(t, nil)
	o := n.open(t, nil)
	o.declare("q")
	n.broker.Alarms.Set(broker.DiskAlarm, true)
	p := n.open(t, nil)
	p.raw(numbered(1, "q", 0, 3, 100))
	p.send(0, &amqp.ConnectionClose{})
	p.expect(0, &amqp.ConnectionCloseOk{})
	if got := o.ready("q"); got != 3 {
		t.Errorf("%d ready", got)
	}
	for range 40 { // 40 times 900 KB are more than may come in
		p := n.open(t, nil)
		b := numbered(1, "q", 0, 9, 100_000)
		p.raw(append(b, amqp.AppendMethodFrame(nil, 0, &amqp.ConnectionClose{})...))
	}
	until(t, "the rest waits", func() bool { return o.ready("q") > 100 && n.states()["blocked"] > 0 })
	if used := n.pool.InUse(); used > 2*maxLate {
		t.Errorf("%d octets came in during the alarm", used)
	}
	n.broker.Alarms.Set(broker.DiskAlarm, false)
	until(t, "all of it comes in", func() bool { return o.ready("q") == 3+40*9 })
}

// TestAlarmDoesNotTimePublishersOut: a publisher that is not read from is not taken for dead.
func TestAlarmDoesNotTimePublishersOut(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 4 s")
	}
	n := start(t, nil)
	o := n.open(t, nil)
	o.declare("q")
	n.broker.Alarms.Set(broker.DiskAlarm, true)
	p := n.open(t, func(k *amqp.ConnectionTuneOk) { k.Heartbeat = 1 })
	sent, rest := p.fill("q", 50_000)
	timer := time.NewTimer(3500 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
	if s := n.states(); s["blocked"] != 1 {
		t.Errorf("states %v", s)
	}
	n.broker.Alarms.Set(broker.DiskAlarm, false)
	p.raw(rest)
	p.sync()
	until(t, "all of it comes in", func() bool { return o.ready("q") == uint32(sent) })
}

// TestPublisherDiesDuringAlarm: a publisher that is not read from is missed all the same, long before the alarm ends, and
// its exclusive queues go with it.
func TestPublisherDiesDuringAlarm(t *testing.T) {
	for _, how := range []string{"reset", "closed"} {
		t.Run(how, func(t *testing.T) {
			n := start(t, nil)
			o := n.open(t, nil)
			p := n.open(t, func(k *amqp.ConnectionTuneOk) { k.Heartbeat = 1 })
			p.send(1, &amqp.QueueDeclare{Queue: "own", Exclusive: true})
			p.expect(1, &amqp.QueueDeclareOk{})
			n.broker.Alarms.Set(broker.DiskAlarm, true)
			p.raw(numbered(1, "own", 0, 1, 100))
			until(t, "the publisher is blocked", func() bool { return n.states()["blocked"] == 1 })
			if how == "reset" {
				p.Conn.(*net.TCPConn).SetLinger(0)
			}
			p.Close()
			until(t, "the connection is gone", func() bool { return n.states()["blocked"] == 0 && n.broker.VHost("/").Queue("own") == nil })
			o.declare("other") // and nobody else
		})
	}
}
