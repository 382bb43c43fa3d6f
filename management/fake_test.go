package management

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// fake is a broker made of slices.
type fake struct {
	totals      Totals
	counts      Counts
	vhosts      []VHost
	queues      []Queue
	exchanges   []Exchange
	bindings    []Binding
	connections []Connection
	channels    []Channel
	consumers   []Consumer
	alarms      []Alarm
	stopped     bool
	logins      map[string]User // password is the name
	enters      map[string][]string
	closed      []string
	refusal     error // of the next change
	walks       int   // of QueueSamples
	records
}

func newFake() *fake {
	f := &fake{
		vhosts: []VHost{{Name: "/", Description: "Default virtual host", Ready: 3}, {Name: "shop"}},
		logins: map[string]User{"guest": {"guest", []string{"administrator"}}, "ann": {"ann", []string{"management"}},
			"mon": {"mon", []string{"monitoring"}}, "app": {"app", nil}},
		enters: map[string][]string{"guest": {"/", "shop"}, "ann": {"shop"}},
	}
	f.accounts = []Account{{Name: "ann", Algorithm: defaultAlgorithm, Tags: []string{"management"}}, {Name: "guest", Hash: []byte("hello"), Algorithm: defaultAlgorithm, Tags: []string{"administrator"}}}
	f.permissions = []Permission{{"guest", "/", ".*", ".*", ".*"}}
	for _, name := range []string{"", "amq.direct", "amq.topic"} {
		kind := "direct"
		if name == "amq.topic" {
			kind = "topic"
		}
		f.exchanges = append(f.exchanges, Exchange{VHost: "/", Name: name, Type: kind, Durable: true})
	}
	return f
}

func (f *fake) Authenticate(name, password string, from netip.Addr) (User, error) {
	u, ok := f.logins[name]
	switch {
	case !ok || password != name:
		return User{}, ErrLogin
	case name == "guest" && !from.IsLoopback():
		return User{}, ErrLoopback
	}
	return u, nil
}

func (f *fake) MayEnter(user, vhost string) bool { return slices.Contains(f.enters[user], vhost) }
func (f *fake) Totals() Totals {
	t := f.totals
	t.Queues, t.Connections, t.Channels, t.Exchanges = uint64(len(f.queues)), uint64(len(f.connections)), uint64(len(f.channels)), uint64(len(f.exchanges))
	t.Consumers = uint64(len(f.consumers))
	for _, q := range f.queues {
		t.Ready, t.Unacked = t.Ready+q.Ready, t.Unacked+q.Unacked
	}
	return t
}
func (f *fake) Counts(into *Counts) { *into = f.counts }

// each yields copies in one reused value, as the interface allows, and clears it afterwards so that a reader who kept it is found out.
func each[T any](list []T, want func(*T) bool) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		var one, zero T
		for i := range list {
			if one = list[i]; want(&one) && !yield(&one) {
				return
			}
			one = zero
		}
	}
}

func (f *fake) VHosts() iter.Seq[*VHost] { return each(f.vhosts, func(*VHost) bool { return true }) }
func (f *fake) HasVHost(name string) bool {
	return slices.ContainsFunc(f.vhosts, func(v VHost) bool { return v.Name == name })
}
func (f *fake) Exchange(vhost, name string, into *Exchange) bool {
	for _, x := range f.exchanges {
		if x.VHost == vhost && x.Name == name {
			*into = x
			return true
		}
	}
	return false
}
func (f *fake) Queues(vhost string) iter.Seq[*Queue] {
	return each(f.queues, func(q *Queue) bool { return vhost == "" || q.VHost == vhost })
}
func (f *fake) Queue(vhost, name string, into *Queue) bool {
	for _, q := range f.queues {
		if q.VHost == vhost && q.Name == name {
			*into = q
			return true
		}
	}
	return false
}
func (f *fake) QueueSamples() iter.Seq[QueueSample] {
	f.walks++
	return func(yield func(QueueSample) bool) {
		for _, q := range f.queues {
			if !yield(QueueSample{q.ID, q.Ready, q.Unacked, q.Counts}) {
				return
			}
		}
	}
}
func (f *fake) DeclareQueue(as User, d QueueDeclaration) (bool, error) {
	if f.refusal != nil {
		return false, f.refusal
	}
	if f.Queue(d.VHost, d.Name, new(Queue)) {
		return false, nil
	}
	f.queues = append(f.queues, Queue{ID: uint64(len(f.queues) + 1), VHost: d.VHost, Name: d.Name, Type: "classic", State: "running", Durable: d.Durable,
		AutoDelete: d.AutoDelete, Arguments: d.Arguments})
	return true, nil
}
func (f *fake) DeleteQueue(as User, vhost, name string, ifUnused, ifEmpty bool) error {
	if f.refusal != nil {
		return f.refusal
	}
	n := len(f.queues)
	f.queues = slices.DeleteFunc(f.queues, func(q Queue) bool { return q.VHost == vhost && q.Name == name })
	if len(f.queues) == n {
		return &Refusal{404, "no queue '" + name + "' in vhost '" + vhost + "'"}
	}
	return nil
}
func (f *fake) PurgeQueue(as User, vhost, name string) error {
	for i := range f.queues {
		if f.queues[i].VHost == vhost && f.queues[i].Name == name {
			f.queues[i].Ready = 0
			return nil
		}
	}
	return &Refusal{404, "no queue"}
}
func (f *fake) Exchanges(vhost string) iter.Seq[*Exchange] {
	return each(f.exchanges, func(x *Exchange) bool { return vhost == "" || x.VHost == vhost })
}
func (f *fake) Bindings(vhost string) iter.Seq[*Binding] {
	return each(f.bindings, func(b *Binding) bool { return vhost == "" || b.VHost == vhost })
}
func (f *fake) Connections() iter.Seq[*Connection] {
	return each(f.connections, func(*Connection) bool { return true })
}
func (f *fake) Connection(name string, into *Connection) bool {
	for _, c := range f.connections {
		if c.Name == name {
			*into = c
			return true
		}
	}
	return false
}
func (f *fake) CloseConnection(name, reason string) bool {
	n := len(f.connections)
	f.connections = slices.DeleteFunc(f.connections, func(c Connection) bool { return c.Name == name })
	f.closed = append(f.closed, name+": "+reason)
	return len(f.connections) < n
}
func (f *fake) Channels() iter.Seq[*Channel] {
	return each(f.channels, func(*Channel) bool { return true })
}
func (f *fake) Consumers(vhost string) iter.Seq[*Consumer] {
	return each(f.consumers, func(c *Consumer) bool { return vhost == "" || c.VHost == vhost })
}
func (f *fake) Alarms() []Alarm { return f.alarms }
func (f *fake) Serving() bool   { return !f.stopped }

var _ Broker = (*fake)(nil)

// connect adds a connection with a channel and, if a queue is named, a consumer.
func (f *fake) connect(port int, user, vhost, queue string) string {
	name := fmt.Sprintf("127.0.0.1:%d -> 127.0.0.1:5672", port)
	f.connections = append(f.connections, Connection{Name: name, User: user, VHost: vhost, State: "running", AuthMechanism: "PLAIN", Host: "127.0.0.1", Port: 5672,
		PeerHost: "127.0.0.1", PeerPort: port, Heartbeat: 10 * time.Second, FrameMax: 131072, ChannelMax: 2047, Channels: 1,
		ConnectedAt:      time.UnixMilli(1700000000123),
		ClientProperties: maps.Clone(map[string]any{"connection_name": "c" + fmt.Sprint(port), "capabilities": map[string]any{"basic.nack": true}, "raw": []byte("x")}),
		ReceivedBytes:    100, SentBytes: 200, Reads: 3, Writes: 4})
	f.channels = append(f.channels, Channel{Connection: name, Number: 1, User: user, VHost: vhost, State: "running", PeerHost: "127.0.0.1", PeerPort: port, Confirm: true,
		Unacked: 2, Prefetch: 10, Counts: QueueCounts{Publish: 5}, Confirmed: 4})
	if queue != "" {
		f.consumers = append(f.consumers, Consumer{VHost: vhost, Queue: queue, Tag: "ctag", Connection: name, Channel: 1, User: user, PeerHost: "127.0.0.1", PeerPort: port,
			AckRequired: true, Prefetch: 10, Active: true, Status: "up", Timeout: 30 * time.Minute})
		f.channels[len(f.channels)-1].Consumers = 1
	}
	return name
}
