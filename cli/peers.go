package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/stream/slots"
)

const (
	// slotsClustered is how many slots for quorum queues a cluster is made with.
	slotsClustered = 6
	// lookAgain is how often the keeper looks whether members and replicas are as they should be.
	lookAgain = 2 * time.Second
	// changeTime is how long one change of the members of the Raft shards may take before others have their turn.
	changeTime = 20 * time.Second
	// catchUpTime is how long a client waits for metadata when something is not there that may be on other nodes.
	catchUpTime = 3 * time.Second
	// waitingFor is how often a start says what it waits for.
	waitingFor = 5 * time.Second
)

// The kinds of questions to other nodes.
const (
	askManagement = 1 // for its HTTP API
	askAddress    = 2 // where it is reached now: it may have moved, and metadata hears of that through others only
	askReplicas   = 3 // how far its replicas are
)

// start makes this node's metadata that of the cluster, and returns when it is as new as that of the others.
func (m *membership) start() error {
	r := m.rooms
	if err := m.begin(); err != nil {
		return err
	}
	var err error
	if m.meta, err = r.quorum.StartMeta(quorum.MetaOptions{Join: m.identity.Number != 1, Store: r.broker}); err != nil {
		return err
	}
	if err := r.broker.Replicate(m.meta, m.identity.Number); err != nil {
		return err
	}
	if err := m.catchUp(); err != nil {
		return err
	}
	// By this the others see that this node has caught up.
	if err := m.insist(func(done func(uint64, error)) { r.broker.PutMember(m.self(), done) }); err != nil {
		return err
	}
	if err := m.confirmed(); err != nil {
		return err
	}
	if n := r.quorum.SlotCount(); n > 0 && !r.broker.HasSlots() { // of its time alone
		err := m.insist(func(done func(uint64, error)) { r.broker.PutSlots(uint64(n), []uint64{m.identity.Number}, done) })
		if err != nil {
			return err
		}
	}
	close(m.ready)
	return m.makeSlots()
}

// confirmed notes that metadata knows of this start: from here on an older copy of the directory is known for what it is.
func (m *membership) confirmed() error {
	for _, x := range m.rooms.broker.Members() {
		if self := m.self(); x.Number == self.Number && (x.Start != self.Start || x.Mark != self.Mark) {
			m.outdated(fmt.Sprintf("the cluster has seen start %d of this node, and the directory knows of %d", x.Start, m.identity.Starts))
		}
	}
	return cluster.Confirm(m.rooms.db, m.identity)
}

// outdated ends the process at once: its directory is an old copy, and has forgotten what the node promised to others, for which it
// voted and what it has. It must promise nothing more.
func (m *membership) outdated(why string) {
	m.log.Error("the data directory is an old copy; the node ends. 'warren cluster forget' it at another node, and let it join with an empty directory", "why", why)
	os.Exit(exitData)
}

// run begins the work that goes on beside clients. Queues have what they had.
func (m *membership) run() error {
	ctx := m.context
	m.remote.Serve()
	dropped := make(chan struct{})
	m.rooms.broker.DropTransient(func() { close(dropped) })
	select {
	case <-dropped:
	case <-time.After(changeTime): // they go when there is a majority
	}
	m.running.Go(func() { m.keep(ctx) })
	m.running.Go(func() {
		n, err := m.rooms.quorum.Reconcile(ctx, m.meta.CaughtUp)
		switch {
		case err != nil && ctx.Err() == nil:
			m.log.Error("quorum queues were not compared with metadata", "error", err.Error())
		case n > 0:
			m.log.Warn("there were quorum queues that are not declared: they were deleted while this node was down", "queues", n)
		}
	})
	m.running.Go(func() {
		n, err := m.rooms.streams.Reconcile(ctx, m.meta.CaughtUp)
		switch {
		case err != nil && ctx.Err() == nil:
			m.log.Error("streams were not compared with metadata", "error", err.Error())
		case n > 0:
			m.log.Warn("there were streams that are not declared: they were deleted while this node was down", "streams", n)
		}
	})
	return nil
}

// catchUp waits for metadata, and says from time to time what it waits for.
func (m *membership) catchUp() error {
	for begun := time.Now(); ; {
		ctx, cancel := context.WithTimeout(context.Background(), waitingFor)
		err := m.meta.CaughtUp(ctx)
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if m.rooms.restoring && (m.meta.Follows() || time.Since(begun) > leadPatience) {
			return quorum.ErrNoVote
		}
		m.sayWaiting()
	}
}

// catchUpSoon implements broker.Options.CatchUp.
func (m *membership) catchUpSoon(do func(current bool)) {
	go func() {
		select {
		case <-m.ready:
		default: // what is asked while it starts is not asked by clients
			do(true)
			return
		}
		if m.meta.Refuses() != nil { // nobody leads, and that is known
			do(false)
			return
		}
		ctx, cancel := context.WithTimeout(m.context, catchUpTime)
		err := m.meta.CaughtUp(ctx)
		cancel()
		if m.context.Err() == nil { // otherwise no client is left
			do(err == nil)
		}
	}()
}

func (m *membership) sayWaiting() {
	m.mu.Lock()
	up := 1 + len(m.reached)
	m.mu.Unlock()
	m.log.Warn("waiting for a majority of the cluster: metadata is there when it is", "reached", up, "members", max(1, len(m.link.Peers())))
}

// insist changes metadata in a way that may be repeated, as often as it takes: while there is no majority a start waits.
func (m *membership) insist(change func(done func(uint64, error))) error {
	said := time.Now()
	for {
		done := make(chan error, 1)
		change(func(_ uint64, err error) { done <- err })
		err := <-done
		var refused *amqp.Error
		if err == nil || !errors.As(err, &refused) || !quorum.Passes(refused) {
			return err
		}
		if time.Since(said) >= waitingFor {
			said = time.Now()
			m.sayWaiting()
		}
		select {
		case <-time.After(lookAgain / 8):
		case <-m.context.Done():
			return err
		}
	}
}

// makeSlots makes this node's replicas of the slots that metadata knows of.
func (m *membership) makeSlots() error {
	n, first, size := m.rooms.broker.Slots()
	if n == 0 {
		return nil
	}
	make := m.rooms.quorum.JoinSlots
	if slices.Contains(first, m.identity.Number) {
		make = func(n int) error { return m.rooms.quorum.MakeSlots(n, first, int(size)) }
	}
	if err := make(int(n)); err != nil {
		return err
	}
	return m.rooms.streams.MakeSlots()
}

// slotsFor makes the slots before the first queue that lies in one: both may have come in one entry of the log.
func (m *membership) slotsFor() {
	var err error
	switch {
	case m.rooms.quorum.SlotCount() == 0:
		err = m.makeSlots()
	case m.rooms.streams.SlotCount() == 0:
		err = m.rooms.streams.MakeSlots()
	default:
		return
	}
	if err != nil {
		m.rooms.raftFailed(fmt.Errorf("slots for quorum queues and streams: %w", err))
	}
	m.stir()
}

// keep sees to it that the link knows the members, that metadata knows this node as it is, and, on the nodes that lead metadata and
// slots, that the members have replicas and those who were forgotten have not.
func (m *membership) keep(ctx context.Context) {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	var wrong trouble
	for {
		if err := m.look(ctx); wrong.lasts(err, time.Now()) && ctx.Err() == nil {
			m.log.Warn("the cluster is not as it should be yet; it will be tried again", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		case <-again.C:
		}
	}
}

func (m *membership) look(ctx context.Context) error {
	b := m.rooms.broker
	members := b.Members()
	if err := m.setPeers(); err != nil {
		return err
	}
	i := slices.IndexFunc(members, func(x broker.Member) bool { return x.Number == m.identity.Number })
	if i < 0 {
		m.forgotten()
		return nil
	}
	if members[i] != m.self() {
		b.PutMember(m.self(), func(uint64, error) {}) // and if it fails it is tried again
	}
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	errs := m.renew()
	if leader, ok := m.meta.Leader(); ok && leader == m.identity.Number {
		errs = errors.Join(errs, m.fit(ctx))
	}
	return errors.Join(errs, m.fitReplicas(ctx, m.numbers()))
}

// numbers are those of the members, as far as this node has heard.
func (m *membership) numbers() (list []uint64) {
	for _, x := range m.rooms.broker.Members() {
		list = append(list, x.Number)
	}
	return list
}

// fit has the members be those who vote on metadata, and nobody else, and decides who votes in the slots.
func (m *membership) fit(ctx context.Context) error {
	voters, followers, err := m.meta.Members(ctx)
	if err != nil {
		return err
	}
	members := m.numbers()                               // afterwards: who is among those was made a member before, and this node has heard of it by now
	for _, n := range slices.Concat(voters, followers) { // first: until they are gone they count for a majority
		if slices.Contains(members, n) {
			continue
		}
		m.rooms.quorum.Down(n, 0)
		if err := m.meta.RemoveMember(ctx, n); err != nil {
			return fmt.Errorf("metadata, former member %d: %w", n, err)
		}
	}
	for _, n := range members {
		if slices.Contains(voters, n) {
			continue
		}
		err := m.meta.Admit(ctx, n)
		if err == nil {
			_, err = m.meta.AddMember(ctx, n)
		}
		if err != nil {
			return fmt.Errorf("metadata, member %d: %w", n, err)
		}
	}
	if err := m.decide(members); err != nil {
		return err
	}
	if n := m.rooms.broker.DropOrphans(members); n > 0 {
		m.log.Warn("classic queues of nodes that were forgotten are deleted", "queues", n)
	}
	return nil
}

// forgotten ends a node that is no member any more.
func (m *membership) forgotten() {
	select {
	case m.rooms.failed <- errForgotten:
	default:
	}
}

var errForgotten = &failure{code: exitConfig, text: "this node is no member of its cluster any more: it was forgotten",
	remedy: "Start it with an empty --data-dir to join again, under a new number."}

// up and down are told by the link.
func (m *membership) up(peer cluster.NodeID, boot uint64) {
	m.mu.Lock()
	m.reached[peer] = true
	m.mu.Unlock()
	m.remote.Up(peer, boot)
	if p, ok := m.link.Peers().Find(peer); ok {
		m.rooms.quorum.Up(p.Number, 0)
		m.log.Info("another node is there", "node", p.Name)
	}
	m.stir()
}

func (m *membership) down(peer cluster.NodeID, boot uint64) {
	m.mu.Lock()
	delete(m.reached, peer)
	delete(m.placed, peer)
	m.mu.Unlock()
	m.remote.Down(peer, boot)
	p, ok := m.link.Peers().Find(peer)
	if !ok { // it was forgotten
		return
	}
	m.log.Warn("another node cannot be reached", "node", p.Name)
	m.rooms.quorum.Down(p.Number, 0)
}

// place asks those that are there where they are reached, once each time they come: only they know if they have moved, and
// metadata hears of it through the others.
func (m *membership) place(ctx context.Context) {
	again := time.NewTicker(lookAgain / 8)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		select {
		case <-m.ready: // from here on the keeper does it
		default:
			if err := m.setPeers(); err != nil {
				m.log.Error("the link does not take the members", "error", err.Error())
			}
		}
		var ask []cluster.NodeID
		m.mu.Lock()
		for peer := range m.reached {
			if !m.placed[peer] {
				ask = append(ask, peer)
			}
		}
		m.mu.Unlock()
		for _, peer := range ask {
			m.askPlace(peer)
		}
	}
}

func (m *membership) askPlace(peer cluster.NodeID) {
	_ = m.link.Call(peer, askAddress, nil, changeTime, func(address []byte, err error) { // not asked: it will be soon
		if err != nil || len(address) == 0 {
			return
		}
		m.mu.Lock()
		moved := m.moved[peer] != string(address)
		m.moved[peer], m.placed[peer] = string(address), true
		m.mu.Unlock()
		if !moved {
			return
		}
		go func() {
			if err := m.setPeers(); err != nil {
				m.log.Error("the link does not take the members' addresses", "error", err.Error())
			}
		}()
	})
}

// answer is asked by another node.
func (m *membership) answer(q cluster.Question) {
	api := m.api.Load()
	switch {
	case q.Kind == askAddress:
		q.Answer([]byte(m.advertise))
		return
	case q.Kind == askReplicas:
		go func() {
			b, _ := json.Marshal(m.reportReplicas())
			q.Answer(b)
		}()
		return
	case q.Kind != askManagement || api == nil:
		q.Answer(nil)
		return
	}
	question := slices.Clone(q.Body)
	go func() { q.Answer(api.Answer(question)) }()
}

// end says goodbye to the others. No connection of a client is left.
func (m *membership) end() error {
	if m.quit != nil {
		m.quit()
	}
	m.running.Wait()
	if m.meta != nil {
		return m.meta.Close()
	}
	return nil
}

// cut closes the link, after the Raft engine.
func (m *membership) cut() error {
	err := m.link.Close()
	m.remote.Close()
	return err
}

// isUp reports whether a member can be reached.
func (m *membership) isUp(number uint64) bool {
	if number == m.identity.Number {
		return true
	}
	p, ok := m.link.Peers().Member(number)
	return ok && m.reaches(p.ID)
}

// reaches reports whether the link has a peer.
func (m *membership) reaches(peer cluster.NodeID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reached[peer]
}

// Members implements management.Cluster, as do those that follow.
func (m *membership) Members() (list []management.Member) {
	links := m.link.Links()
	for _, x := range m.rooms.broker.Members() {
		one := management.Member{Number: x.Number, Name: x.Name, Address: x.Address, Least: x.Least, Most: x.Most,
			This: x.Number == m.identity.Number, Up: m.isUp(x.Number)}
		if one.This {
			one.Boot = m.identity.Boot
		}
		for _, l := range links {
			if uint64(l.Peer) == x.NodeID && l.Class == cluster.Control {
				one.Since, one.Boot = l.Since, l.Boot
			}
		}
		list = append(list, one)
	}
	return list
}

func (m *membership) Links() (list []management.Link) {
	for _, l := range m.link.Links() {
		p, _ := m.link.Peers().Find(l.Peer)
		one := management.Link{Peer: p.Number, Class: l.Class.String(), Connected: l.Connected, Since: l.Since, Address: l.Address,
			Made: l.Made, Held: l.Held, Waiting: l.Waiting, Calls: l.Calls}
		if l.Lost != nil {
			one.Lost = l.Lost.Error()
		}
		list = append(list, one)
	}
	return list
}

func (m *membership) Slots() (list []management.Slot) {
	meta := management.Slot{Shard: 1, Name: "metadata"}
	meta.Leader, _ = m.meta.Leader()
	meta.Applied, _ = m.rooms.broker.Applied()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if voters, _, err := m.meta.Members(ctx); err == nil { // without a majority nobody knows for certain
		meta.Members, meta.Voting = voters, slices.Contains(voters, m.identity.Number)
	}
	list = append(list, meta)
	wanted := map[uint64][]uint64{}
	for _, r := range m.rooms.broker.Replicas() {
		if r.Vote == broker.Votes {
			wanted[r.Shard] = append(wanted[r.Shard], r.Member)
		}
	}
	for _, s := range m.rooms.quorum.Slots() {
		one := management.Slot{Shard: s.Shard, Name: slotName(s), Leader: s.Leader, Leads: s.Leads,
			Term: s.Term, Members: s.Members, Wanted: wanted[s.Shard], Voting: s.Voting, Applied: s.Applied}
		if s.Stream {
			one.Applied, one.Digest = m.rooms.streams.Digest(s.Slot)
		} else {
			one.Applied, one.Digest = m.rooms.quorum.Digest(s.Slot)
		}
		list = append(list, one)
	}
	return list
}

// streamSlot is the name of a slot of streams.
func streamSlot(n int) string { return fmt.Sprintf("stream-%d", n) }

func (m *membership) Forget(name string, force bool) error {
	n := m.numberOf(name)
	switch {
	case n == 0:
		return &management.Refusal{Code: 404, Text: fmt.Sprintf("no member is called %s", name)}
	case n == m.identity.Number:
		return &management.Refusal{Code: 406, Text: "a node cannot forget itself; ask another one"}
	case m.isUp(n) && !force:
		return &management.Refusal{Code: 406, Text: fmt.Sprintf("%s is up; stop it first, or force it", name)}
	}
	rest, err := m.spared(n)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	m.rooms.broker.DeleteMember(n, rest, func(_ bool, err error) { done <- err })
	err = <-done
	m.stir()
	return err
}

func (m *membership) TransferLeader(vhost, name, node string) error {
	var q *broker.Queue
	if v := m.rooms.broker.VHost(vhost); v != nil {
		q = v.Queue(name)
	}
	n := m.numberOf(node)
	switch {
	case q == nil:
		return &management.Refusal{Code: 404, Text: fmt.Sprintf("no queue '%s' in vhost '%s'", name, vhost)}
	case q.Type != broker.Quorum && q.Type != broker.Stream:
		return &management.Refusal{Code: 406, Text: fmt.Sprintf("queue '%s' in vhost '%s' is not a quorum queue", name, vhost)}
	case n == 0 || !m.isUp(n):
		return &management.Refusal{Code: 406, Text: fmt.Sprintf("%s is no member that is up", node)}
	case !slices.Contains(q.Queue.(interface{ Members() []uint64 }).Members(), n):
		return &management.Refusal{Code: 406, Text: fmt.Sprintf("%s has no vote in the slot of queue '%s' in vhost '%s', and cannot lead it: 'warren queue grow' gives it one", node, name, vhost)}
	}
	if at, ok := q.Queue.(*slots.Queue); ok {
		return m.rooms.quorum.TransferStreams(at.Slot(), n)
	}
	return m.rooms.quorum.TransferLeader(m.rooms.quorum.SlotOf(uint64(q.ID)), n)
}

func (m *membership) Rebalance() error { return m.rooms.quorum.Rebalance() }

func (m *membership) Ask(member uint64, question []byte, deadline time.Duration) ([]byte, error) {
	return m.call(member, askManagement, question, deadline)
}

// call asks a member something, and waits for the answer.
func (m *membership) call(member uint64, kind uint8, question []byte, deadline time.Duration) ([]byte, error) {
	p, ok := m.link.Peers().Member(member)
	if !ok || !m.reaches(p.ID) {
		return nil, errDown
	}
	type outcome struct {
		answer []byte
		err    error
	}
	done := make(chan outcome, 1)
	err := m.link.Call(p.ID, kind, question, deadline, func(b []byte, err error) { done <- outcome{slices.Clone(b), err} })
	if err != nil {
		return nil, err
	}
	x := <-done
	return x.answer, x.err
}

var errDown = errors.New("the node cannot be reached")
