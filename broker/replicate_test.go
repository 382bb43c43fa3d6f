package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// What was answered on one node is found on another that has not heard of it yet: that one catches up before it says that there is no such
// thing, or that there was nothing to delete.
func TestLookAgain(t *testing.T) {
	l := newCluster(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	b.CatchUp = func(do func(bool)) {
		for l.apply(b) {
		}
		do(true)
	}
	only := func(what string, op func(done func(*amqp.Error))) { // a knows it, b does not
		t.Helper()
		called := false
		op(func(err *amqp.Error) {
			if called = true; err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		})
		for l.agree(5); l.apply(a); {
		}
		if !called {
			t.Fatalf("%s: no answer", what)
		}
	}
	n := 0
	queueOn := func() string {
		n++
		name := fmt.Sprint("q", n)
		only("declare", func(done func(*amqp.Error)) {
			d := QueueDeclaration{Name: name, Durable: true, Arguments: amqp.Table(nil).AppendString("x-queue-type", Quorum)}
			a.VHost("/").DeclareQueue(Actor{}, d, func(_ *Queue, err *amqp.Error) { done(err) })
		})
		return name
	}
	exchangeOn := func() string {
		n++
		name := fmt.Sprint("x", n)
		only("declare", func(done func(*amqp.Error)) {
			a.VHost("/").DeclareExchange(Actor{}, exchange.Declaration{Name: name, Type: exchange.Fanout, Durable: true}, done)
		})
		return name
	}
	v := b.VHost("/")
	q := queueOn()
	l.done("find a queue", func(done func(*amqp.Error)) {
		v.FindQueue(Actor{}, q, func(_ *Queue, err *amqp.Error) { done(err) })
	}, "")
	x := exchangeOn()
	l.done("find an exchange", func(done func(*amqp.Error)) { v.FindExchange(Actor{}, x, done) }, "")
	q = queueOn()
	l.done("bind", func(done func(*amqp.Error)) {
		v.Bind(Actor{}, Binding{Source: "amq.fanout", Destination: q}, done)
	}, "")
	q = queueOn()
	only("bind", func(done func(*amqp.Error)) {
		a.VHost("/").Bind(Actor{}, Binding{Source: "amq.fanout", Destination: q}, done)
	})
	l.done("unbind", func(done func(*amqp.Error)) {
		v.Unbind(Actor{}, Binding{Source: "amq.fanout", Destination: q}, done)
	}, "")
	for _, e := range a.VHost("/").Bindings() {
		if e.Source == "amq.fanout" && e.Destination == q {
			t.Error("it is still bound")
		}
	}
	q = queueOn()
	l.done("delete a queue", func(done func(*amqp.Error)) {
		var w queue.Wake
		v.DeleteQueue(Actor{}, q, false, false, &w, func(_ uint64, err *amqp.Error) { done(err) })
		w.Flush()
	}, "")
	if a.VHost("/").Queue(q) != nil || v.Queue(q) != nil {
		t.Error("the queue is still there, and its deletion was answered")
	}
	looked := 0
	b.CatchUp = func(do func(bool)) { looked++; do(false) }
	l.done("find nothing", func(done func(*amqp.Error)) { v.FindExchange(Actor{}, "none", done) }, "NOT_FOUND - no exchange 'none' in vhost '/'")
	var w queue.Wake
	v.DeleteQueue(Actor{}, "none", false, false, &w, func(_ uint64, err *amqp.Error) {
		if err == nil || err.Code != amqp.InternalError {
			t.Errorf("a node that is cut off says of a queue that it does not know that it was deleted: %v", err)
		}
	})
	v.Unbind(Actor{}, Binding{Source: "amq.fanout", Destination: "none"}, func(err *amqp.Error) {
		if err == nil || err.Code != amqp.InternalError {
			t.Errorf("a node that is cut off says of a binding that it does not know that it was removed: %v", err)
		}
	})
	if looked != 3 {
		t.Errorf("it looked %d times again", looked)
	}
}

// An auto-delete exchange goes everywhere with the last binding, whichever node knows it, and the one in front of it too.
func TestAutoDeleteOfReplicas(t *testing.T) {
	l := newCluster(t, 3)
	a, b := l.nodes[0], l.nodes[1]
	me := Actor{Connection: 7}
	l.auto(a, "x")
	l.auto(a, "y")
	l.bind(a, Actor{}, "x", "y", true)
	l.declare(a, me, QueueDeclaration{Name: "soft", Exclusive: true})
	l.declare(b, Actor{}, QueueDeclaration{Name: "hard"})
	l.bind(a, me, "y", "soft", false)
	l.bind(b, Actor{}, "y", "hard", false)
	l.done("delete", func(done func(*amqp.Error)) {
		var w queue.Wake
		a.VHost("/").ConnectionClosed(7, &w, func() { done(nil) })
	}, "")
	l.exchanges("x", "y")
	l.done("if-unused", func(done func(*amqp.Error)) { b.VHost("/").DeleteExchange(Actor{}, "y", true, done) },
		"PRECONDITION_FAILED - exchange 'y' in vhost '/' in use")
	l.done("unbind", func(done func(*amqp.Error)) {
		a.VHost("/").Unbind(Actor{}, Binding{Source: "y", Destination: "hard"}, done)
	}, "")
	l.exchanges()

	// A node that sees a soft binding does not let the exchange go; another one that deletes the last hard one does.
	l.auto(a, "x")
	l.declare(a, me, QueueDeclaration{Name: "soft", Exclusive: true})
	l.bind(a, me, "x", "soft", false)
	l.bind(a, Actor{}, "x", "hard", false)
	l.done("unbind", func(done func(*amqp.Error)) {
		a.VHost("/").Unbind(Actor{}, Binding{Source: "x", Destination: "hard"}, done)
	}, "")
	l.exchanges("x")
	l.done("if-unused", func(done func(*amqp.Error)) { a.VHost("/").DeleteExchange(Actor{}, "x", true, done) },
		"PRECONDITION_FAILED - exchange 'x' in vhost '/' in use")
	l.done("delete soft", func(done func(*amqp.Error)) {
		var w queue.Wake
		a.VHost("/").DeleteQueue(me, "soft", false, false, &w, func(_ uint64, err *amqp.Error) { done(err) })
	}, "")
	l.exchanges()
	l.compare()
}

// What two nodes want at the same time, the second hears of as from one broker.
func TestOvertaken(t *testing.T) {
	l := newCluster(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	va, vb := a.VHost("/"), b.VHost("/")
	var errs [2]*amqp.Error
	var queues [2]*Queue
	va.DeclareQueue(Actor{}, QueueDeclaration{Name: "q", Durable: true}, func(q *Queue, err *amqp.Error) { queues[0], errs[0] = q, err })
	vb.DeclareQueue(Actor{}, QueueDeclaration{Name: "q"}, func(q *Queue, err *amqp.Error) { queues[1], errs[1] = q, err })
	l.settle()
	if errs[0] != nil || queues[0] == nil || queues[0].Home != 1 || errs[1] == nil || errs[1].Code != amqp.PreconditionFailed {
		t.Errorf("got %v and %v", errs, queues)
	}
	l.done("exchange", func(done func(*amqp.Error)) {
		va.DeclareExchange(Actor{}, exchange.Declaration{Name: "x", Type: exchange.Fanout, Durable: true}, done)
	}, "")
	va.DeleteExchange(Actor{}, "x", false, func(*amqp.Error) {})
	l.done("bind", func(done func(*amqp.Error)) { vb.Bind(Actor{}, Binding{Source: "x", Destination: "q"}, done) },
		"NOT_FOUND - no exchange 'x' in vhost '/'")

	// A hard queue ends the soft one of its name.
	va.DeclareQueue(Actor{Connection: 1}, QueueDeclaration{Name: "both", Exclusive: true}, func(*Queue, *amqp.Error) {})
	soft := va.Queue("both")
	l.declare(b, Actor{}, QueueDeclaration{Name: "both"})
	if q := va.Queue("both"); q == nil || q == soft || q.Owner != 0 || q.Home != 2 || soft.state != gone {
		t.Errorf("got %+v", q)
	}
	// A limit counts hard queues when it is applied, and all that its node knows before.
	l.done("limit", func(done func(*amqp.Error)) {
		va.SetLimit("max-queues", json.Number("3"), func(err error) { done(nil) })
	}, "")
	va.DeclareQueue(Actor{Connection: 1}, QueueDeclaration{Name: "s", Exclusive: true}, func(*Queue, *amqp.Error) {})
	l.done("too many", func(done func(*amqp.Error)) {
		va.DeclareQueue(Actor{}, QueueDeclaration{Name: "z"}, func(_ *Queue, err *amqp.Error) { done(err) })
	}, "PRECONDITION_FAILED - cannot declare queue 'z': queue limit in vhost '/' (3) is reached")
	l.declare(b, Actor{}, QueueDeclaration{Name: "z"})
	l.done("type", func(done func(*amqp.Error)) {
		vb.DeclareQueue(Actor{}, QueueDeclaration{Name: "st", Durable: true, Arguments: args("x-queue-type", Stream)}, func(_ *Queue, err *amqp.Error) { done(err) })
	}, "PRECONDITION_FAILED - cannot declare queue 'st': queue limit in vhost '/' (3) is reached")
	l.compare()
}

// What follows from a command is done on every node.
func TestCarriedOut(t *testing.T) {
	l := newCluster(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	var heard []string
	for _, n := range l.nodes {
		n.VHostDeleted = func(name string) { heard = append(heard, "vhost "+name) }
		n.UserDeleted = func(name string) { heard = append(heard, "user "+name) }
		n.MembersChanged = func() { heard = append(heard, fmt.Sprint("members ", len(n.Members()))) }
		n.SlotsChanged = func() { heard = append(heard, fmt.Sprint("slots ", n.slots.Count)) }
	}
	expect := func(what string, want ...string) {
		t.Helper()
		l.settle()
		if !slices.Equal(heard, want) {
			t.Errorf("%s: heard %q, want %q", what, heard, want)
		}
		heard = nil
	}
	l.declare(a, Actor{}, QueueDeclaration{Name: "q", Durable: true})
	l.done("policy", func(done func(*amqp.Error)) {
		a.VHost("/").SetPolicy(false, Policy{Name: "p", Pattern: "q", Definition: map[string]any{"max-length": json.Number("7")}}, func(bool, error) { done(nil) })
	}, "")
	q := b.VHost("/").Queue("q")
	if got := q.Settings().Config.MaxLength; got != 7 {
		t.Errorf("max-length %d on the other node", got)
	}
	out := &cancels{}
	var w queue.Wake
	q.Attach(Consumer{Spec: queueSpec(1)}, out, &w, func(queue.ConsumerID, *amqp.Error) {})
	w.Flush()
	l.done("delete", func(done func(*amqp.Error)) {
		a.VHost("/").DeleteQueue(Actor{}, "q", false, false, &w, func(_ uint64, err *amqp.Error) { done(err) })
	}, "")
	if q.state != gone || out.n != 1 {
		t.Errorf("the queue is in state %d on the other node, its consumer was cancelled %d times", q.state, out.n)
	}
	b.PutVHost(PutVHost{Name: "v"}, func(error) {})
	b.PutUser(User{Name: "u"}, func(error) {})
	l.settle()
	q = nil
	b.VHost("v").DeclareQueue(Actor{Connection: 9}, QueueDeclaration{Name: "soft", Exclusive: true}, func(made *Queue, _ *amqp.Error) { q = made })
	a.DeleteVHost("v", func(bool, error) {})
	expect("vhost", "vhost v", "vhost v")
	if q.state != gone {
		t.Error("a soft queue outlives its virtual host")
	}
	b.DeleteUser("u", func(bool, error) {})
	expect("user", "user u", "user u")
	a.VHost("/").SetPermissions("u", "", "", "", func(err error) { heard = append(heard, err.Error()) })
	expect("permissions", ErrNoUser.Error())

	number := uint64(0)
	a.PutMember(Member{NodeID: 5, Name: "a"}, func(n uint64, _ error) { number = n })
	expect("member", "members 1", "members 1")
	a.DeleteMember(number, nil, func(bool, error) {})
	expect("member", "members 0", "members 0")
	a.PutMember(Member{NodeID: 5, Name: "a"}, func(n uint64, _ error) { number = n })
	expect("member", "members 1", "members 1")
	if number != 2 {
		t.Errorf("a member that comes back has number %d", number)
	}
	a.PutMember(Member{Number: 1, NodeID: 6}, func(n uint64, err error) { heard = append(heard, err.Error()) })
	expect("number that was used", "NOT_FOUND - no member 1")
	a.PutSlots(4, []uint64{1}, func(uint64, error) {})
	b.PutSlots(6, nil, func(n uint64, _ error) { number = n })
	expect("slots", "slots 4", "slots 4")
	if number != 4 || b.slots.Count != 4 {
		t.Errorf("%d slots, then %d", number, b.slots.Count)
	}

	vote := func(member uint64, v Vote) {
		a.PutReplica(Replica{Shard: 16, Member: member, Vote: v}, func(err error) {
			if err != nil {
				heard = append(heard, err.Error())
			}
		})
	}
	a.PutMember(Member{NodeID: 7, Name: "b"}, func(uint64, error) {})
	expect("member", "members 2", "members 2")
	vote(2, Votes)
	expect("vote", "members 2", "members 2")
	vote(2, Follows)
	expect("last vote", "PRECONDITION_FAILED - last_node: nobody else has a vote in shard 16")
	vote(3, Votes)
	expect("vote", "members 2", "members 2")
	vote(2, Follows)
	expect("not the last vote", "members 2", "members 2")
	vote(4, Votes)
	expect("vote of no member", "NOT_FOUND - no member 4")
	a.DeleteMember(3, []uint64{1}, func(_ bool, err error) { heard = append(heard, err.Error()) })
	expect("one that was counted on is gone", "PRECONDITION_FAILED - member 1 was forgotten meanwhile; try again")
	a.DeleteMember(3, []uint64{2}, func(bool, error) {})
	expect("forgotten", "members 1", "members 1")
	if rs := b.Replicas(); len(rs) != 2 || rs[1].Vote != Votes { // whoever takes its place has to know
		t.Errorf("%+v", rs)
	}
	vote(3, Follows)
	expect("its vote has gone to another", "members 1", "members 1")
	if rs := b.Replicas(); len(rs) != 1 || rs[0].Vote != Follows {
		t.Errorf("%+v", rs)
	}
	l.compare()
}

// cancels is an outlet that counts how often it is cancelled.
type cancels struct{ n int }

func (*cancels) Offer([]queue.Offered, *queue.Wake) bool { return true }
func (c *cancels) Cancelled(*queue.Wake)                 { c.n++ }
func (*cancels) TimedOut(*queue.Wake)                    {}
func (*cancels) Activity(bool)                           {}

// TestReplicate: a node that was alone goes on with a log; others that take its state are its equals, and so is what comes
// back after a restart.
func TestReplicate(t *testing.T) {
	seed := seeds.Of(t)
	for round := range 10 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		l := &memoryLog{t: t}
		for i := range 2 {
			l.nodes = append(l.nodes, &replica{log: l, disk: openDisk(t, storage.NewFaultFS(uint64(i)+1))})
		}
		a, b := l.nodes[0], l.nodes[1]
		for range 150 {
			a.change(r)
			if r.IntN(4) == 0 {
				b.change(r)
			}
		}
		before := a.state()
		if err := a.Replicate(a, 1); err != nil {
			t.Fatal(err)
		}
		diff(t, a.state(), before)
		if _, err := a.ApplyEntry(1, nil, nil); err != nil {
			t.Fatal(err)
		}
		l.entries, l.results = append(l.entries, nil), append(l.results, nil)
		b.SetMember(2)
		b.take(a)
		b.change(r) // waits for the log
		if err := b.Replicate(b, 2); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			l.nodes[r.IntN(2)].change(r)
			l.agree(2)
			l.apply(l.nodes[r.IntN(2)])
		}
		l.settle()
		diff(t, b.hard(), a.hard())
		diff(t, b.store(), a.store())
		for _, n := range l.nodes {
			hard := n.hard()
			if err := n.SyncEntries(); err != nil {
				t.Fatal(err)
			}
			l.crash(n, r)
			if !n.Replicated() {
				t.Error("alone again")
			}
			diff(t, n.hard(), hard)
			n.stop()
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// What a node knows of itself refuses before anything is proposed.
func TestRefusedBeforeProposal(t *testing.T) {
	l := newCluster(t, 2)
	a := l.nodes[0]
	v := a.VHost("/")
	declare := func(done func(*amqp.Error)) {
		v.DeclareQueue(Actor{}, QueueDeclaration{Name: "q", Durable: true}, func(_ *Queue, err *amqp.Error) { done(err) })
	}
	a.Alarms.Set(StorageAlarm, true)
	l.done("no disk", declare, "INTERNAL_ERROR - metadata cannot be stored: the disk takes no writes")
	a.Alarms.Set(StorageAlarm, false)
	l.done("declare", declare, "")
	a.refuses = notStored("nobody leads")
	l.done("no majority", func(done func(*amqp.Error)) {
		var w queue.Wake
		v.DeleteQueue(Actor{}, "q", false, false, &w, func(_ uint64, err *amqp.Error) { done(err) })
	}, "INTERNAL_ERROR - metadata cannot be stored: nobody leads")
	if q := v.Queue("q"); q == nil || q.state != live {
		t.Errorf("the queue is %+v", q)
	}
	l.declare(a, Actor{Connection: 3}, QueueDeclaration{Name: "soft", Exclusive: true}) // needs nobody

	// An outcome that is not known leaves it open what becomes of the queue.
	a.refuses = nil
	var err *amqp.Error
	var w queue.Wake
	v.DeleteQueue(Actor{}, "q", false, false, &w, func(_ uint64, e *amqp.Error) { err = e })
	p := l.pending[0]
	l.pending = nil
	p.done(nil, notStored("no outcome"))
	if q := v.Queue("q"); err == nil || q == nil || q.state != ending {
		t.Errorf("%v, the queue is %+v", err, q)
	}
	p.done = func(any, *amqp.Error) {}
	l.pending = []proposal{p}
	l.settle()
	l.declare(a, Actor{}, QueueDeclaration{Name: "q", AutoDelete: true}) // as another

	var dropped bool
	a.DropTransient(func() { dropped = true })
	l.settle()
	if !dropped || v.Queue("q") != nil || l.nodes[1].VHost("/").Queue("q") != nil {
		t.Error("the queue is still there")
	}
	l.compare()
}

// A command that this version does not know stops the replica.
func TestUnknownEntry(t *testing.T) {
	l := newCluster(t, 1)
	for name, command := range map[string][]byte{
		"kind":          {99, 1},
		"version":       {byte(kindBind), 9},
		"exchange type": AppendCommand(nil, PutExchange{"/", exchange.Declaration{Name: "x", Type: "x-new"}}),
		"queue type":    AppendCommand(nil, PutQueue{VHost: "/", Queue: QueueDeclaration{Name: "new", Arguments: args("x-queue-type", Quorum)}}),
	} {
		l.nodes[0].refused = Quorum
		if _, err := l.nodes[0].ApplyEntry(99, nil, [][]byte{command}); err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.nodes[0].ApplyEntry(99, nil, [][]byte{AppendCommand(nil, Bind{Soft: true})}); err == nil {
		t.Error("a soft command came from the log")
	}
	before := l.nodes[0].hard()
	results, err := l.nodes[0].ApplyEntry(1, []byte{7}, [][]byte{AppendCommand(nil, PutVHost{Name: "again"})})
	if len(results) > 0 || err != nil {
		t.Errorf("an entry that was applied before has results %v, %v", results, err)
	}
	diff(t, l.nodes[0].hard(), before)
}

func TestDamagedCapture(t *testing.T) {
	l := newCluster(t, 1)
	capture, err := l.nodes[0].Capture()
	if err != nil {
		t.Fatal(err)
	}
	before := l.nodes[0].hard()
	for n := range capture {
		bad := bytes.Clone(capture)
		bad[n] ^= 4
		if err := l.nodes[0].Restore(bytes.NewReader(bad)); err == nil {
			t.Fatalf("octet %d", n)
		}
		if err := l.nodes[0].Restore(bytes.NewReader(capture[:n])); err == nil {
			t.Fatalf("%d octets", n)
		}
	}
	diff(t, l.nodes[0].hard(), before)
}

// told is a queue that tells what it is told, and that may be in use on a node that its own broker does not see.
type told struct {
	queue.Queue
	tell  func(string)
	inUse bool
}

func (q *told) Forget(w *queue.Wake) {
	q.tell("forget")
	q.Queue.Forget(w)
}

func (q *told) Delete(ifUnused, ifEmpty bool, w *queue.Wake, done func(uint64, error)) {
	if q.inUse && ifUnused {
		done(0, queue.ErrInUse)
		return
	}
	q.Queue.Delete(ifUnused, ifEmpty, w, done)
}

// tell has a node's queues be told ones.
func (n *replica) tell(heard func(NewQueue, string)) map[string]*told {
	all := map[string]*told{}
	made := n.NewQueue
	n.NewQueue = func(q NewQueue) queue.Queue {
		heard(q, "new")
		t := &told{Queue: made(q), tell: func(what string) { heard(q, what) }}
		all[q.VHost+q.Name] = t
		return t
	}
	return all
}

// A queue that comes with the metadata of others may have the id of one that was here before: that one goes first.
func TestRestoreForgetsFirst(t *testing.T) {
	a, b := &replica{disk: openDisk(t, storage.NewFaultFS(1))}, &replica{disk: openDisk(t, storage.NewFaultFS(2))}
	var heard []string
	b.tell(func(q NewQueue, what string) {
		heard = append(heard, fmt.Sprint(what, " ", q.Name, " ", q.ID, " of ", q.Home))
	})
	a.VHost("/").DeclareQueue(Actor{}, QueueDeclaration{Name: "theirs", Durable: true}, func(*Queue, *amqp.Error) {})
	b.VHost("/").DeclareQueue(Actor{}, QueueDeclaration{Name: "mine", Durable: true}, func(*Queue, *amqp.Error) {})
	b.take(a)
	if want := []string{"new mine 1 of 0", "forget mine 1 of 0", "new theirs 1 of 0"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
}

// Which node a queue of the cluster goes by: it expires where it lives, and an auto-delete queue stays while somebody
// consumes on another node.
func TestWhoDecides(t *testing.T) {
	l := newCluster(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	all := a.tell(func(NewQueue, string) {})
	l.declare(a, Actor{}, QueueDeclaration{Name: "e", Arguments: args("x-expires", 3600000)})
	l.declare(a, Actor{}, QueueDeclaration{Name: "auto", AutoDelete: true})
	late := a.Clock.Now() + 2*3600000
	(*expiring)(b.VHost("/").Queue("e")).Tick(late)
	l.settle()
	if a.VHost("/").Queue("e") == nil {
		t.Fatal("it has expired on a node where it does not live")
	}
	(*expiring)(a.VHost("/").Queue("e")).Tick(late)
	l.settle()
	if a.VHost("/").Queue("e") != nil || b.VHost("/").Queue("e") != nil {
		t.Error("it has not expired")
	}
	q := a.VHost("/").Queue("auto")
	leave := func() {
		var w queue.Wake
		var id queue.ConsumerID
		q.Attach(Consumer{Spec: queueSpec(1)}, &cancels{}, &w, func(c queue.ConsumerID, _ *amqp.Error) { id = c })
		q.Detach(id, queue.Remove, &w, func() {})
		w.Flush()
		l.settle()
	}
	all["/auto"].inUse = true
	leave()
	if a.VHost("/").Queue("auto") != q || q.state != live {
		t.Fatalf("it went while it was in use, state %d", q.state)
	}
	all["/auto"].inUse = false
	leave()
	if a.VHost("/").Queue("auto") != nil || b.VHost("/").Queue("auto") != nil {
		t.Error("it stays")
	}
	l.compare()
}

// Soft state that only one node has changes nothing in what becomes of a command.
func TestSoftIsNoReason(t *testing.T) {
	l := newCluster(t, 2)
	a, b := l.nodes[0], l.nodes[1]
	me := Actor{Connection: 1}
	fanout := exchange.Declaration{Name: "x", Type: exchange.Fanout, Durable: true}
	l.done("exchange", func(done func(*amqp.Error)) { a.VHost("/").DeclareExchange(Actor{}, fanout, done) }, "")
	l.declare(b, Actor{}, QueueDeclaration{Name: "q"})

	// A binding to a queue that is gone when it comes, and that on one node a soft one has followed.
	var w queue.Wake
	var bound *amqp.Error
	b.VHost("/").DeleteQueue(Actor{}, "q", false, false, &w, func(uint64, *amqp.Error) {})
	b.VHost("/").Bind(Actor{}, Binding{Source: "x", Destination: "q"}, func(err *amqp.Error) { bound = err })
	l.agree(1)
	l.apply(a)
	l.declare(a, me, QueueDeclaration{Name: "q", Exclusive: true})
	if bound == nil || bound.Error() != "NOT_FOUND - no queue 'q' in vhost '/'" {
		t.Errorf("bound to a soft queue: %v", bound)
	}
	l.compare()

	// An exchange that is not in use, but for a soft queue on one node.
	l.bind(a, me, "x", "q", false)
	l.done("delete", func(done func(*amqp.Error)) { b.VHost("/").DeleteExchange(Actor{}, "x", true, done) }, "")
	if _, ok := a.VHost("/").Exchange("x"); ok {
		t.Error("it is still there")
	}
	l.compare()
}

// A queue that another one of its name replaces has that one's bindings, though they look like its own.
func TestRestoreReplaces(t *testing.T) {
	a, b := &replica{disk: openDisk(t, storage.NewFaultFS(1))}, &replica{disk: openDisk(t, storage.NewFaultFS(2))}
	a.VHost("/").DeclareQueue(Actor{}, QueueDeclaration{Name: "other", Durable: true}, func(*Queue, *amqp.Error) {})
	for _, n := range []*replica{a, b} {
		n.VHost("/").DeclareQueue(Actor{}, QueueDeclaration{Name: "q", Durable: true}, func(*Queue, *amqp.Error) {})
		n.VHost("/").Bind(Actor{}, Binding{Source: "amq.topic", Destination: "q"}, func(*amqp.Error) {})
	}
	b.take(a)
	if list := b.VHost("/").BindingsFrom("amq.topic"); len(list) != 1 {
		t.Errorf("bindings %v", list)
	}
}
