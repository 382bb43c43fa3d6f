package server

import (
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

func ok(t testing.TB) func(error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
}

// refusedOpen logs in and returns the error that connection.open is answered with.
func (n *node) refusedOpen(t testing.TB) (code uint16, text string) {
	t.Helper()
	w := n.wire(t)
	w.raw([]byte(amqp.ProtocolHeader))
	w.expect(0, &amqp.ConnectionStart{})
	w.send(0, &amqp.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	var tune amqp.ConnectionTune
	w.expect(0, &tune)
	w.send(0, &amqp.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax})
	w.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	return w.closed()
}

// TestLimits: limits of virtual hosts and users count at once, and what is closed makes room.
func TestLimits(t *testing.T) {
	n := start(t, nil)
	v := n.broker.VHost("/")
	w := n.open(t, nil)
	v.SetLimit("max-connections", 1, ok(t))
	if code, text := n.refusedOpen(t); code != 530 || text != "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached" {
		t.Error(code, text)
	}
	v.ClearLimit("max-connections", ok(t))
	n.broker.SetUserLimit("guest", "max-connections", 1, ok(t))
	if code, text := n.refusedOpen(t); code != 530 || text != "NOT_ALLOWED - connection refused for user 'guest': user connection limit (1) is reached" {
		t.Error(code, text)
	}
	n.broker.SetUserLimit("guest", "max-channels", 2, ok(t))
	w.send(2, &amqp.ChannelOpen{})
	w.expect(2, &amqp.ChannelOpenOk{})
	w.send(2, &amqp.ChannelClose{ReplyCode: 200})
	w.expect(2, &amqp.ChannelCloseOk{})
	w.send(2, &amqp.ChannelOpen{})
	w.expect(2, &amqp.ChannelOpenOk{})
	w.send(3, &amqp.ChannelOpen{})
	if code, text := w.closed(); code != 530 || text != "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of 2" {
		t.Error(code, text)
	}
	w.Close()
	n.broker.SetUserLimit("guest", "max-channels", 1, ok(t))
	until(t, "the place is free", func() bool {
		a, err := n.broker.Open("/", n.broker.User("guest"))
		a.End()
		return err == nil
	})
	n.open(t, nil)
}

// TestQueueLimitOnWire: queue.declare past the limit closes the channel.
func TestQueueLimitOnWire(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, nil)
	w.declare("a")
	n.broker.VHost("/").SetLimit("max-queues", 1, ok(t))
	w.send(1, &amqp.QueueDeclare{Queue: "b"})
	var c amqp.ChannelClose
	w.expect(1, &c)
	if c.ReplyCode != 406 || c.ReplyText != "PRECONDITION_FAILED - cannot declare queue 'b': queue limit in vhost '/' (1) is reached" {
		t.Errorf("%+v", c)
	}
}

// TestRevokedAtOnce: permissions that are taken away are missing at once on a channel that has used them.
func TestRevokedAtOnce(t *testing.T) {
	n := start(t, nil)
	v := n.broker.VHost("/")
	w := n.open(t, nil)
	w.declare("q")
	publish := func() { w.raw(publishFrames(1, "q", new(amqp.PropertyList), []byte("x"), 4096)) }
	refused := func(text string) {
		t.Helper()
		var c amqp.ChannelClose
		w.expect(1, &c)
		if c.ReplyCode != 403 || c.ReplyText != text {
			t.Errorf("%d %s", c.ReplyCode, c.ReplyText)
		}
		w.send(1, &amqp.ChannelCloseOk{})
		w.send(1, &amqp.ChannelOpen{})
		w.expect(1, &amqp.ChannelOpenOk{})
	}
	for range 3 {
		publish()
	}
	if got := w.ready("q"); got != 3 {
		t.Fatalf("%d ready", got)
	}
	v.SetPermissions("guest", ".*", "^$", ".*", ok(t))
	publish()
	refused("ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'guest'")
	v.SetPermissions("guest", ".*", ".*", "^other$", ok(t))
	publish()
	w.send(1, &amqp.BasicGet{Queue: "q"})
	refused("ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'guest'")
	if got := w.ready("q"); got != 4 {
		t.Errorf("%d ready", got)
	}
	topic := func(key string) {
		w.send(1, &amqp.BasicPublish{Exchange: []byte("amq.topic"), RoutingKey: []byte(key)})
		header, err := amqp.AppendHeader(nil, 0, new(amqp.PropertyList))
		if err != nil {
			t.Fatal(err)
		}
		w.raw(amqp.AppendFrame(nil, amqp.FrameHeader, 1, header))
	}
	topic("a.b")
	w.sync()
	v.SetTopicPermissions("guest", "amq.topic", "^b", "", ok(t))
	topic("b.c")
	topic("a.b")
	refused("ACCESS_REFUSED - write access to topic 'a.b' in exchange 'amq.topic' in vhost '/' refused for user 'guest'")
	v.ClearPermissions("guest", func(bool, error) {})
	publish()
	refused("ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'guest'")
}

// TestUpdateSecret: consumers of what may no longer be read are cancelled, others stay; without any permissions the
// connection ends.
func TestUpdateSecret(t *testing.T) {
	n := start(t, nil)
	v := n.broker.VHost("/")
	w := n.open(t, nil)
	for _, q := range []string{"kept", "lost"} {
		w.declare(q)
		w.send(1, &amqp.BasicConsume{Queue: q, ConsumerTag: q})
		w.expect(1, &amqp.BasicConsumeOk{ConsumerTag: q})
	}
	secret := func() { w.send(0, &amqp.ConnectionUpdateSecret{NewSecret: "x", Reason: "y"}) }
	secret()
	w.expect(0, &amqp.ConnectionUpdateSecretOk{})
	v.SetPermissions("guest", ".*", ".*", "^kept$", ok(t))
	u := *n.broker.User("guest")
	u.Tags = nil
	n.broker.PutUser(u, ok(t))
	secret()
	ended, cancelled := false, false
	for range 2 {
		f, err := w.frame()
		if err != nil {
			t.Fatal(err)
		}
		id, args, _ := amqp.SplitMethod(f.Payload)
		switch id {
		case amqp.ConnectionUpdateSecretOkID:
			ended = true
		case amqp.BasicCancelID:
			var m amqp.BasicCancel
			if err := m.Decode(args); err != nil || m.ConsumerTag != "lost" {
				t.Errorf("%+v, %v", m, err)
			}
			cancelled = true
		default:
			t.Fatalf("%v", id)
		}
	}
	if !ended || !cancelled {
		t.Error("no update-secret-ok, or no cancel")
	}
	if got := v.Queue("lost").Consumers(); len(got) != 0 {
		t.Error(got)
	}
	if got := v.Queue("kept").Consumers(); len(got) != 1 {
		t.Error(got)
	}
	w.raw(publishFrames(1, "kept", new(amqp.PropertyList), []byte("x"), 4096))
	var d amqp.BasicDeliver
	w.expect(1, &d)
	if string(d.ConsumerTag) != "kept" {
		t.Errorf("%+v", d)
	}
	w.content(1)
	v.ClearPermissions("guest", func(bool, error) {})
	secret()
	if code, text := w.closed(); code != 530 || text != "NOT_ALLOWED - access to vhost '/' refused for user 'guest'" {
		t.Error(code, text)
	}
}

// TestPolicyOnWire: a policy counts on a channel that has declared and published before.
func TestPolicyOnWire(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, nil)
	w.declare("q")
	w.declare("stray")
	for range 20 {
		w.raw(publishFrames(1, "q", new(amqp.PropertyList), []byte("x"), 4096))
	}
	w.sync()
	set := func(p broker.Policy) {
		n.broker.VHost("/").SetPolicy(false, p, func(_ bool, err error) { ok(t)(err) })
	}
	set(broker.Policy{Name: "p", Pattern: "^q$", Definition: map[string]any{"max-length": 3, "overflow": "reject-publish"}})
	w.send(1, &amqp.ConfirmSelect{})
	w.expect(1, &amqp.ConfirmSelectOk{})
	w.raw(publishFrames(1, "q", new(amqp.PropertyList), []byte("x"), 4096))
	var nack amqp.BasicNack
	w.expect(1, &nack)
	if got := w.ready("q"); got != 20 {
		t.Errorf("%d ready", got)
	}
	set(broker.Policy{Name: "p", Pattern: "^q$", Definition: map[string]any{"max-length": 3, "dead-letter-exchange": "", "dead-letter-routing-key": "stray"}})
	if got := w.ready("q"); got != 3 {
		t.Errorf("%d ready", got)
	}
	if got := w.ready("stray"); got != 17 {
		t.Errorf("%d dead letters", got)
	}
}
