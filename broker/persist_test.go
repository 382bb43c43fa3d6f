package broker

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// disk is a broker on a file system that can fail.
type disk struct {
	testing.TB
	*Broker
	fs      *storage.FaultFS
	db      *storage.DB
	clock   *queue.Clock
	made    []NewQueue // queues made since the start
	stopped bool
	refused string // queue type that the node cannot run
	options func(*Options)
}

func openDisk(t testing.TB, fs *storage.FaultFS) *disk {
	t.Helper()
	d := &disk{TB: t, fs: fs}
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.stop() })
	return d
}

func (d *disk) open() (err error) {
	if d.db, err = storage.OpenDB(d.fs, "metadata", storage.DBOptions{}); err != nil {
		return err
	}
	d.clock = queue.NewClock()
	pool := queue.NewPool(1 << 20)
	d.made = nil
	o := Options{Node: "warren@test", Pool: pool, Clock: d.clock, Store: d.db, NewQueue: func(q NewQueue) queue.Queue {
		if q.Type == d.refused {
			return nil
		}
		d.made = append(d.made, q)
		return queue.NewClassic(queue.ClassicRules(q.MaxPriority), q.Config, pool, d.clock, q.DeadLetters)
	}}
	if d.options != nil {
		d.options(&o)
	}
	d.Broker, err = Open(o)
	if d.stopped = err != nil; d.stopped {
		d.clock.Close()
		d.db.Close()
	}
	return err
}

// stop ends the broker in order.
func (d *disk) stop() error {
	if d.stopped {
		return nil
	}
	d.stopped = true
	err := d.Broker.Close()
	d.clock.Close()
	d.db.Close()
	return err
}

func (d *disk) restart() {
	d.Helper()
	if err := d.stop(); err != nil {
		d.Fatal(err)
	}
	if err := d.open(); err != nil {
		d.Fatal(err)
	}
}

// crash cuts the power; what was being written may or may not be there.
func (d *disk) crash(r *rand.Rand) {
	d.Helper()
	after := d.fs.Image(r.Uint64())
	d.stop() // which the disk we go on with knows nothing of
	d.fs = after
	if err := d.open(); err != nil {
		d.Fatal(err)
	}
}

// await calls op, and waits until it is answered.
func await[T any](op func(done func(T))) T {
	c := make(chan T, 1)
	op(func(v T) { c <- v })
	return <-c
}

// state lists everything durable.
func (d *disk) state() map[string]string {
	m := map[string]string{}
	for _, u := range d.Users() {
		m["user "+u.Name] = fmt.Sprint(u.Hash, u.Algorithm, u.Tags, d.UserLimits(u.Name))
	}
	for _, p := range d.GlobalParameters() {
		m["global "+p.Name] = fmt.Sprint(p.Value)
	}
	for _, v := range d.VHosts() {
		m["vhost "+v.Name] = fmt.Sprint(v.Description(), v.Limits())
		for _, p := range v.Policies(false) {
			m["policy "+v.Name+" "+p.Name] = fmt.Sprint(p)
		}
		for _, p := range v.Parameters() {
			m["parameter "+v.Name+" "+p.Component+" "+p.Name] = fmt.Sprint(p.Value)
		}
		for _, p := range v.Permissions() {
			m["permission "+v.Name+" "+p.User] = fmt.Sprint(p)
		}
		for u, topics := range v.topics {
			for x, p := range topics {
				m["topic "+v.Name+" "+u+" "+x] = p.Write + " " + p.Read
			}
		}
		for _, x := range v.Exchanges() {
			if x.Durable {
				m["exchange "+v.Name+" "+x.Name] = fmt.Sprint(x, v.topology.Exchange(x.Name).Alternate)
			}
		}
		durable := map[string]bool{}
		for _, q := range v.Queues() {
			if q.Durable {
				durable[q.Name] = true
				m["queue "+v.Name+" "+q.Name] = fmt.Sprint(q.ID, q.Type, q.AutoDelete, q.Arguments, q.Effective())
			}
		}
		for _, b := range v.Bindings() { // their order at one source counts
			x, _ := v.Exchange(b.Source)
			to, _ := v.Exchange(b.Destination)
			if b.Source != "" && x.Durable && (!b.ToExchange && durable[b.Destination] || b.ToExchange && to.Durable) {
				m["bindings "+v.Name+" "+b.Source] += fmt.Sprintf("%+v, ", b)
			}
		}
	}
	return m
}

func diff(t testing.TB, got, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if g, ok := got[k]; !ok || g != v {
			t.Errorf("%s: got %q (%t), want %q", k, g, ok, v)
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s: got %q, want none", k, v)
		}
	}
}

// change makes one change at random, pipelined. What a client would see of it may be an error.
func (d *disk) change(r *rand.Rand) {
	pick := func(kind string, n int) string { return fmt.Sprint(kind, r.IntN(n)) }
	v := d.VHost("/")
	if r.IntN(4) == 0 {
		v = d.VHost("other")
	}
	if v == nil {
		v = d.VHost("/")
	}
	a := Actor{Connection: 1 + uint64(r.IntN(2)), Pipelined: true}
	ignore := func(*amqp.Error) {}
	chance := func(n int) bool { return r.IntN(n) == 0 }
	switch n := r.IntN(48); {
	case n < 8:
		decl := QueueDeclaration{Name: pick("q", 12), Durable: !chance(4), Exclusive: chance(5), AutoDelete: chance(4)}
		if chance(3) {
			decl.Arguments = args("x-max-length", r.IntN(5))
		}
		v.DeclareQueue(a, decl, func(*Queue, *amqp.Error) {})
	case n < 12:
		v.DeclareExchange(a, exchange.Declaration{Name: pick("x", 6), Type: exchange.Fanout, Durable: !chance(4), AutoDelete: chance(2)}, ignore)
	case n < 24:
		b := Binding{Source: pick("x", 6), Destination: pick("q", 12), Key: pick("k", 3)}
		if chance(4) {
			b.Source = "amq.topic"
		}
		if chance(3) {
			b.Destination, b.ToExchange = pick("x", 6), true
		}
		if chance(3) {
			b.Arguments = args("a", r.IntN(2))
		}
		v.Bind(a, b, ignore)
	case n < 28:
		all := v.Bindings()
		if len(all) > 0 {
			v.Unbind(a, all[r.IntN(len(all))], ignore)
		}
	case n < 31:
		var w queue.Wake
		v.DeleteQueue(a, pick("q", 12), false, false, &w, func(uint64, *amqp.Error) {})
	case n < 33:
		v.DeleteExchange(a, pick("x", 6), chance(2), ignore)
	case n == 33:
		var w queue.Wake
		v.ConnectionClosed(a.Connection, &w, func() {})
	case n == 34:
		d.PutUser(User{Name: pick("u", 3), Hash: []byte{1, 2, 3, byte(r.IntN(5))}, Tags: []string{"a", "b"}[:r.IntN(3)]}, func(error) {})
	case n == 35:
		v.SetPermissions(pick("u", 3), "a", pick("b", 3), "", func(error) {})
	case n == 36:
		v.SetTopicPermissions(pick("u", 3), pick("x", 2), "a", pick("b", 3), func(error) {})
	case n == 37:
		v.ClearPermissions(pick("u", 3), func(bool, error) {})
	case n == 38:
		d.DeleteUser(pick("u", 3), func(bool, error) {})
	case n < 43:
		p := Policy{Name: pick("p", 4), Pattern: pick("", 12) + "$", Priority: int64(r.IntN(5) - 2), Definition: map[string]any{"max-length": r.IntN(9)}}
		operator := chance(3)
		if !operator {
			p.Definition["alternate-exchange"] = pick("x", 6)
		}
		v.SetPolicy(operator, p, func(bool, error) {})
	case n == 43:
		v.ClearPolicy(chance(3), pick("p", 4), func(bool, error) {})
	case n == 44:
		switch {
		case v.Name == "/": // where the tests need room
		case chance(2):
			v.ClearLimit("max-queues", func(error) {})
		default:
			v.SetLimit("max-queues", 5+r.IntN(10), func(error) {})
		}
	case n == 45:
		if chance(2) {
			d.ClearGlobalParameter(pick("g", 2), func(bool, error) {})
		} else {
			d.SetGlobalParameter(pick("g", 2), []any{pick("v", 3)}, func(bool, error) {})
		}
	case n == 46:
		if chance(3) {
			d.ClearUserLimit(pick("u", 3), "max-channels", func(error) {})
		} else {
			d.SetUserLimit(pick("u", 3), "max-channels", r.IntN(3), func(error) {})
		}
	default:
		if chance(3) {
			d.DeleteVHost("other", func(bool, error) {})
		} else {
			d.PutVHost(PutVHost{Name: "other", Description: pick("d", 3), Tags: []string{"t"}}, func(error) {})
		}
	}
}

// TestRestart changes everything at random and compares what is durable before a restart with what is there after.
func TestRestart(t *testing.T) {
	seed := seeds.Of(t)
	r := rand.New(rand.NewPCG(seed, 0))
	d := openDisk(t, storage.NewFaultFS(1))
	most := 0
	for range 30 {
		for range r.IntN(100) {
			d.change(r)
		}
		want := d.state()
		most = max(most, len(want))
		d.restart()
		diff(t, d.state(), want)
		d.oneQueueOnce()
		if t.Failed() {
			t.FailNow()
		}
	}
	if most < 40 {
		t.Errorf("never more than %d things", most)
	}
}

// oneQueueOnce checks that what was recovered was made with the ids it is known by.
func (d *disk) oneQueueOnce() {
	d.Helper()
	ids := map[QueueID]bool{}
	for _, q := range d.made {
		if ids[q.ID] || !q.Durable {
			d.Errorf("made %+v", q)
		}
		ids[q.ID] = true
	}
	n := 0
	for _, v := range d.VHosts() {
		for _, q := range v.Queues() {
			n++
			if !ids[q.ID] {
				d.Errorf("queue %s has id %d, and none was made for it", q.Name, q.ID)
			}
		}
	}
	if n != len(d.made) {
		d.Errorf("made %d queues for %d", len(d.made), n)
	}
}

// TestPowerCut cuts the power between random changes. What is found must be what some number of changes have made, and not
// less than were answered.
func TestPowerCut(t *testing.T) {
	seed := seeds.Of(t)
	r := rand.New(rand.NewPCG(seed, 0))
	d := openDisk(t, storage.NewFaultFS(1))
	given := map[QueueID]bool{}
	behind := 0
	for round := range 40 {
		history := []map[string]string{d.state()}
		answered := 0
		for range r.IntN(50) {
			d.change(r)
			history = append(history, d.state())
			switch r.IntN(6) {
			case 0:
				if err := await(d.Sync); err != nil {
					t.Fatal(err)
				}
				answered = len(history) - 1
			case 1:
				time.Sleep(time.Duration(r.IntN(100)) * time.Microsecond)
			}
		}
		for _, q := range d.made {
			given[q.ID] = true
		}
		d.crash(r)
		got := d.state()
		at := slices.IndexFunc(history[answered:], func(want map[string]string) bool { return maps.Equal(got, want) })
		if at < 0 {
			diff(t, got, history[len(history)-1])
			t.Fatalf("round %d: what was found is not what any of the last %d changes left", round, len(history)-answered)
		}
		if answered+at < len(history)-1 {
			behind++
		}
		d.oneQueueOnce()
		q := await(func(done func(*Queue)) {
			d.VHost("/").DeclareQueue(Actor{}, QueueDeclaration{Name: "fresh"}, func(q *Queue, err *amqp.Error) { done(q) })
		})
		if given[q.ID] {
			t.Fatalf("round %d: queue id %d was given out before", round, q.ID)
		}
		d.restart()
	}
	t.Logf("%d of 40 cuts lost something that was not answered", behind)
}

// TestAnswerIsDurable: what an actor that does not pipeline hears is durable, and so is what one hears who finds what another
// has just made.
func TestAnswerIsDurable(t *testing.T) {
	d := openDisk(t, storage.NewFaultFS(1))
	hold := make(chan bool)
	d.fs.Observe(func(e storage.Event) {
		if e.Op == storage.OpSync {
			<-hold
		}
	})
	v := d.VHost("/")
	declare := func(a Actor) chan *amqp.Error {
		c := make(chan *amqp.Error, 1)
		v.DeclareQueue(a, QueueDeclaration{Name: "q", Durable: true}, func(_ *Queue, err *amqp.Error) { c <- err })
		return c
	}
	if err := <-declare(Actor{Pipelined: true}); err != nil {
		t.Fatal(err)
	}
	other := declare(Actor{})
	synced := make(chan *amqp.Error, 1)
	d.Sync(func(err *amqp.Error) { synced <- err })
	exclusive := make(chan *amqp.Error, 1)
	v.DeclareQueue(Actor{Connection: 1, Pipelined: true}, QueueDeclaration{Name: "soft", Exclusive: true}, func(_ *Queue, err *amqp.Error) { exclusive <- err })
	if err := <-exclusive; err != nil { // waits for no disk
		t.Fatal(err)
	}
	select {
	case <-other:
		t.Error("answered before the sync")
	case <-synced:
		t.Error("synced before the sync")
	default:
	}
	close(hold)
	if err := <-other; err != nil {
		t.Error(err)
	}
	if err := <-synced; err != nil {
		t.Error(err)
	}
}

func TestDiskFull(t *testing.T) {
	d := openDisk(t, storage.NewFaultFS(1))
	v := d.VHost("/")
	declare := func(name string, exclusive bool) *amqp.Error {
		return await(func(done func(*amqp.Error)) {
			v.DeclareQueue(Actor{Connection: 1}, QueueDeclaration{Name: name, Durable: true, Exclusive: exclusive}, func(_ *Queue, err *amqp.Error) { done(err) })
		})
	}
	if err := declare("q", false); err != nil {
		t.Fatal(err)
	}
	before := d.state()
	d.fs.SetSpace(1 << 20)
	if err := declare("late", false); code(err) != amqp.InternalError || !strings.Contains(err.Text, "no space left") {
		t.Errorf("declare: %v", err)
	}
	if err := await(func(done func(error)) { d.PutUser(User{Name: "late"}, done) }); err == nil {
		t.Error("a user was made")
	}
	diff(t, d.state(), before)
	if err := declare("soft", true); err != nil {
		t.Errorf("soft state was refused: %v", err)
	}
	var w queue.Wake
	if err := await(func(done func(*amqp.Error)) {
		v.DeleteQueue(Actor{}, "q", false, false, &w, func(_ uint64, err *amqp.Error) { done(err) })
	}); err != nil {
		t.Errorf("a deletion was refused: %v", err)
	}
	d.restart()
	if d.VHost("/").Queue("q") != nil {
		t.Error("the queue is back")
	}
}

func TestStoreFails(t *testing.T) {
	d := openDisk(t, storage.NewFaultFS(1))
	v := d.VHost("/")
	d.fs.Inject(storage.Fault{Op: storage.OpSync, Times: -1})
	d.fs.Inject(storage.Fault{Op: storage.OpWrite, Times: -1})
	declare := func(name string) *amqp.Error {
		return await(func(done func(*amqp.Error)) {
			v.DeclareQueue(Actor{}, QueueDeclaration{Name: name, Durable: true}, func(_ *Queue, err *amqp.Error) { done(err) })
		})
	}
	if err := declare("a"); code(err) != amqp.InternalError {
		t.Errorf("a declaration that could not be written: %v", err)
	}
	if err := declare("b"); code(err) != amqp.InternalError {
		t.Errorf("a declaration after the failure: %v", err)
	}
	if v.Queue("b") != nil {
		t.Error("what was refused was made")
	}
	if d.db.Err() == nil {
		t.Error("the store does not say that it failed")
	}
	if d.stop() == nil {
		t.Error("closed without an error")
	}
	d.fs.Heal()
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
}

func TestNewerStore(t *testing.T) {
	for name, change := range map[string]func(*storage.Batch){
		"format": func(b *storage.Batch) { b.Set([]byte(formatKey), []byte{replicatedFormat + 1}) },
		"kind":   func(b *storage.Batch) { b.Set(appendKey('q', "/", "q"), []byte{99, 1}) },
		"version": func(b *storage.Batch) {
			b.Set(appendKey('q', "/", "q"), []byte{byte(kindPutQueue), kindPutQueue.version() + 1})
		},
		"exchange type": func(b *storage.Batch) {
			b.Set(appendKey('x', "/", "x"), AppendCommand(nil, PutExchange{"/", exchange.Declaration{Name: "x", Type: "x-new"}}))
		},
	} {
		d := openDisk(t, storage.NewFaultFS(1))
		var b storage.Batch
		change(&b)
		if err := d.db.Commit(&b, true); err != nil {
			t.Fatal(err)
		}
		d.stop()
		if err := d.open(); err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// TestMillionIDs: ids are set aside before those that are there run out.
func TestMillionIDs(t *testing.T) {
	d := openDisk(t, storage.NewFaultFS(1))
	d.lastQueue.Add(idBlock - 2)
	declare := func(name string) *amqp.Error {
		return await(func(done func(*amqp.Error)) {
			d.VHost("/").DeclareQueue(Actor{}, QueueDeclaration{Name: name, Durable: true}, func(_ *Queue, err *amqp.Error) { done(err) })
		})
	}
	for i := range 10 {
		if err := declare(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	last := d.lastQueue.Load()
	d.crash(rand.New(rand.NewPCG(1, 1)))
	if got := d.lastQueue.Load(); got <= last {
		t.Errorf("begins after %d, and %d were given out", got, last)
	}
}

func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	open := func() (*Broker, *storage.DB) {
		db, err := storage.OpenDB(storage.OS{}, dir, storage.DBOptions{})
		if err != nil {
			b.Fatal(err)
		}
		clock := queue.NewClock()
		b.Cleanup(clock.Close)
		pool := queue.NewPool(64 << 20)
		broker, err := Open(Options{Pool: pool, Clock: clock, Store: db, NewQueue: func(n NewQueue) queue.Queue {
			return queue.NewClassic(queue.ClassicRules(n.MaxPriority), n.Config, pool, clock, n.DeadLetters)
		}})
		if err != nil {
			b.Fatal(err)
		}
		return broker, db
	}
	const queues = 100_000
	broker, db := open()
	v := broker.VHost("/")
	begin := time.Now()
	for i := range queues {
		name := fmt.Sprintf("queue.%d", i)
		v.DeclareQueue(Actor{Pipelined: true}, QueueDeclaration{Name: name, Durable: true}, func(*Queue, *amqp.Error) {})
		v.Bind(Actor{Pipelined: true}, Binding{Source: "amq.topic", Destination: name, Key: name}, func(*amqp.Error) {})
	}
	await(broker.Sync)
	b.Logf("%.0f commands a second", queues*2/time.Since(begin).Seconds())
	for b.Loop() {
		broker.Close()
		db.Close()
		broker, db = open()
		if n := len(broker.VHost("/").Queues()); n != queues {
			b.Fatal(n)
		}
	}
	broker.Close()
	db.Close()
}
