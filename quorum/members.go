package quorum

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/raftio"

	"github.com/warrenmq/warren/storage"
)

const (
	// changeTimeout is how long a change of a slot's members may take before it is tried again.
	changeTimeout = 5 * time.Second
	// changePause is how long it rests in between, and between two looks at how far a new member is.
	changePause = 50 * time.Millisecond
	// handOverPatience is how long a stop waits for others to lead.
	handOverPatience = time.Second
)

// down is the starts of a node, up to one, that are known to have ended.
type down struct{ node, boot uint64 }

// SlotStatus is one slot as this node sees it.
type SlotStatus struct {
	Slot    int
	Stream  bool     // it is one of streams, which have numbers of their own
	Shard   uint64   // what the Raft engine and Place know it by
	Replica uint64   // generation of this node's replica
	Leader  uint64   // number of the member that leads, 0: none is known to
	Term    uint64   // of the leader
	Members []uint64 // that have a vote, ascending
	Voting  bool     // this node has one
	Applied uint64   // index of the last entry applied here
	Lacks   bool     // this node has not all that lies before it: another one may have it
	Leads   uint64   // the member that carries out what is done once; it follows Leader a moment later
}

// listener passes on who leads. The Raft engine calls it on one goroutine for all shards.
type listener struct{ h *Host }

func (l listener) LeaderUpdated(info raftio.LeaderInfo) {
	l.h.mu.Lock()
	f := l.h.listeners[info.ShardID]
	if info.ReplicaID != replicaID(l.h.o.Node, l.h.generations[info.ShardID]) { // of one that has another in its place
		f = nil
	}
	node := l.h.o.Node
	l.h.mu.Unlock()
	if info.LeaderID = memberOf(info.LeaderID); f == nil {
		return
	}
	f(info)
	if info.LeaderID == node && l.h.o.Led != nil {
		l.h.o.Led()
	}
}

// watch has f told of each change of the leader of a shard. f must not wait. It is called before the replica is started.
func (h *Host) watch(shard uint64, f func(raftio.LeaderInfo)) {
	h.mu.Lock()
	h.listeners[shard] = f
	h.mu.Unlock()
}

// pace is that of this node's replicas.
func (h *Host) pace() pace {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.o.Clustered {
		return paceOf(h.tick)
	}
	return pace{aloneElection, 1}
}

// errNoEngine is that nothing has called for the Raft engine yet.
var errNoEngine = errors.New("quorum: the Raft engine is not open")

// raft is the Raft engine, once it is open.
func (h *Host) raft() (*dragonboat.NodeHost, error) {
	h.mu.Lock()
	opening := h.opening
	h.mu.Unlock()
	if opening == nil {
		return nil, errNoEngine
	}
	<-opening
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return nil, h.err
	}
	if h.engine == nil || h.closed {
		return nil, errNoEngine
	}
	return h.engine, nil
}

// Boot is the number of this start, which batches of this node carry.
func (h *Host) Boot() uint64 { return h.boot }

// ClusterID is the number under which the Raft engines of all members know each other, 0 before there is one.
func (h *Host) ClusterID() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.o.ClusterID
}

// SlotCount is how many slots there are, 0 before they are made.
func (h *Host) SlotCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.slots)
}

// Cluster makes this node one of a cluster, with a number of its own, never given out before, and the ClusterID of the
// others; 0 is its own. The Raft engine is opened if it is not, and the replicas of a node that was alone go on with the
// timings that several members need. A node that has slots or an engine keeps its number and its ClusterID.
func (h *Host) Cluster(node, clusterID uint64) error {
	if node == 0 || node > math.MaxUint32 {
		return fmt.Errorf("quorum: %d is no number of a member", node)
	}
	h.mu.Lock()
	opening := h.opening
	h.mu.Unlock()
	if opening != nil {
		<-opening
	}
	h.building.Lock()
	h.mu.Lock()
	was := h.o
	has := h.opening != nil
	if h.err != nil {
		defer h.mu.Unlock()
		defer h.building.Unlock()
		return h.err
	}
	if has && (node != was.Node || clusterID != 0 && clusterID != was.ClusterID) {
		defer h.mu.Unlock()
		defer h.building.Unlock()
		return fmt.Errorf("quorum: this is member %d of cluster %x, and cannot become %d of %x", was.Node, was.ClusterID, node, clusterID)
	}
	h.o.Node, h.o.Clustered = node, true
	if clusterID != 0 {
		h.o.ClusterID = clusterID
	}
	if node != was.Node {
		h.complete = false
	}
	engine, slots := h.engine, h.slots
	if !has {
		h.opening = make(chan struct{})
	}
	h.mu.Unlock()
	if !has {
		h.building.Unlock()
		h.start()
		return h.err
	}
	defer h.building.Unlock()
	if was.Clustered {
		return nil
	}
	if len(h.streams) > 0 {
		return errors.New("quorum: a node that has streams becomes clustered when it starts")
	}
	for _, s := range slots {
		s.clustered(true)
		if err := engine.StopShard(shardOf(s.number)); err != nil {
			return fmt.Errorf("slot %d: %w", s.number, err)
		}
	}
	return h.startReplicas(engine)
}

// MakeSlots makes the slots of a cluster, in each of which FirstVoters of members and size have a vote; the others wait for
// Place. Every member does it, with the same arguments. It returns when they take commands, though they may not lead yet, and
// does nothing if they are there.
func (h *Host) MakeSlots(n int, members []uint64, size int) error {
	if !slices.Contains(members, h.o.Node) {
		return fmt.Errorf("quorum: slots of the members %d, and this is %d", members, h.o.Node)
	}
	return h.makeSlots(n, members, size)
}

// JoinSlots makes this node's replicas of slots that others have. They wait until Place has been called for them. It does
// nothing if they are there.
func (h *Host) JoinSlots(n int) error { return h.makeSlots(n, nil, 0) }

func (h *Host) makeSlots(n int, members []uint64, size int) error {
	engine, err := h.raft()
	if err != nil {
		return err
	}
	h.building.Lock()
	defer h.building.Unlock()
	if have := h.SlotCount(); have == n {
		return nil
	} else if have > 0 || n < 1 || n > 1<<16-1 {
		return fmt.Errorf("quorum: there are %d slots, and cannot be %d", have, n)
	}
	list := []byte{}
	for _, m := range members {
		list = binary.AppendUvarint(list, m)
	}
	var batch storage.Batch
	batch.Set(keyMembers, list)
	batch.Set(keySize, binary.LittleEndian.AppendUint64(nil, uint64(size)))
	batch.Set(keySlots, binary.LittleEndian.AppendUint64(nil, uint64(n)))
	if err := h.o.DB.Commit(&batch, true); err != nil {
		return err
	}
	h.mu.Lock()
	h.members, h.size = members, uint64(size)
	h.make(n)
	h.mu.Unlock()
	for _, s := range h.slots {
		if _, err := s.machine.load(); err != nil {
			return err
		}
	}
	return h.startReplicas(engine)
}

// Down says that the starts of a node up to one, or, with 0, up to the last that the slots know, have ended: what their
// consumers hold returns. Every member is told; who leads acts on it, or comes to lead.
func (h *Host) Down(node, boot uint64) {
	h.mu.Lock()
	slots := slices.Clone(h.slots)
	h.mu.Unlock()
	if boot == 0 {
		for _, s := range slots {
			m := s.machine
			m.mu.Lock()
			if o := m.origins.Of(node); o != nil {
				boot = max(boot, o.Boot)
			}
			m.mu.Unlock()
		}
	}
	h.mu.Lock()
	h.downs[node] = boot
	h.mu.Unlock()
	for _, s := range slots {
		if leader, _ := s.raftLeader(); leader == s.machine.node {
			s.end(down{node, boot})
		}
	}
}

// Up says that a node is there, or there again.
func (h *Host) Up(node, _ uint64) {
	h.mu.Lock()
	delete(h.downs, node)
	h.mu.Unlock()
}

func (h *Host) whoIsDown() (list []down) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for node, boot := range h.downs {
		list = append(list, down{node, boot})
	}
	return list
}

// shard is a Raft shard whose members are those of the cluster: a slot, or one of streams.
type shard struct {
	id     uint64
	name   string
	leader func() (node, term uint64)
}

// shards are all of them, in the order of Slots.
func (h *Host) shards() (list []shard) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.slots {
		list = append(list, shard{shardOf(s.number), ShardName(shardOf(s.number)), s.raftLeader})
	}
	for _, s := range h.streams {
		list = append(list, shard{s.shard(), ShardName(s.shard()), s.raftLeader})
	}
	return list
}

// Slots are the slots as this node sees them, those of streams behind the others.
func (h *Host) Slots() []SlotStatus {
	engine, err := h.raft()
	if err != nil {
		return nil
	}
	h.mu.Lock()
	node, slots, streams := h.o.Node, slices.Clone(h.slots), slices.Clone(h.streams)
	generations, renewals := maps.Clone(h.generations), maps.Clone(h.renewed)
	h.mu.Unlock()
	list := make([]SlotStatus, 0, len(slots)+len(streams))
	members := map[uint64]*SlotStatus{} // by shard
	for i, s := range slots {
		x := SlotStatus{Slot: i, Shard: shardOf(s.number)}
		x.Leader, x.Term = s.raftLeader()
		m := s.machine
		m.mu.Lock()
		x.Applied, x.Leads = m.applied, m.leads.node
		m.mu.Unlock()
		list = append(list, x)
		members[shardOf(s.number)] = &list[len(list)-1]
	}
	for _, s := range streams {
		x := SlotStatus{Slot: int(s.number), Stream: true, Shard: s.shard(), Applied: s.machine.Index(), Lacks: !s.machine.Whole()}
		x.Leader, x.Term = s.raftLeader()
		x.Leads = x.Leader
		list = append(list, x)
		members[s.shard()] = &list[len(list)-1]
	}
	for i := range list {
		x := &list[i]
		x.Replica = generations[x.Shard]
		if r := renewals[x.Shard]; r != nil && r.behind() {
			x.Applied = r.got.Load()
		}
	}
	info := engine.GetNodeHostInfo(dragonboat.NodeHostInfoOption{SkipLogInfo: true})
	if info == nil {
		return list
	}
	for i := range info.ShardInfoList {
		x := members[info.ShardInfoList[i].ShardID]
		if x == nil {
			continue
		}
		for id := range info.ShardInfoList[i].Replicas {
			x.Members = append(x.Members, memberOf(id))
		}
		slices.Sort(x.Members)
		x.Voting = slices.Contains(x.Members, node)
	}
	return list
}

// maxDigest is how many octets of state a digest is made of at most: nothing is applied meanwhile.
const maxDigest = 16 << 20

// Digest is a sum of the replicated state of a slot, and the index of the entry applied last: replicas at the same index have the
// same sum. It is empty where the state is too large to be looked at while the slot waits.
func (h *Host) Digest(slot int) (applied uint64, sum string) {
	h.mu.Lock()
	m := h.slots[slot].machine
	h.mu.Unlock()
	return m.digest()
}

func (m *machine) digest() (applied uint64, sum string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := sha256.New()
	b := m.common(nil)
	d.Write(b)
	octets := len(b)
	for _, id := range slices.Sorted(maps.Keys(m.queues)) {
		b = m.queues[id].record(binary.BigEndian.AppendUint64(b[:0], id))
		if octets += len(b); octets > maxDigest {
			return m.applied, ""
		}
		d.Write(b)
	}
	return m.applied, hex.EncodeToString(d.Sum(nil)[:16])
}

// handOver has others lead what this node leads, where there are any, before it stops.
func (h *Host) handOver() {
	h.mu.Lock()
	alone, node, engine := !h.o.Clustered, h.o.Node, h.engine
	h.mu.Unlock()
	if alone {
		return
	}
	shards, status := h.shards(), h.Slots()
	for begun := time.Now(); time.Since(begun) < handOverPatience; time.Sleep(aloneTick * time.Millisecond / 10) {
		led := false
		for i, s := range shards {
			leader, _ := s.leader()
			if leader != node || i >= len(status) {
				continue
			}
			h.mu.Lock()
			to := uint64(0)
			for _, m := range status[i].Members {
				if _, down := h.downs[m]; !down && m != leader {
					to = m
				}
			}
			h.mu.Unlock()
			if to != 0 {
				led = true
				_ = transferTo(engine, s.id, to) // or it happens by an election
			}
		}
		if !led {
			return
		}
	}
}

// TransferLeader has another member lead a slot, if it can; nil says only that it was asked for.
func (h *Host) TransferLeader(slot int, number uint64) error {
	engine, err := h.raft()
	if err != nil {
		return err
	}
	if slot < 0 || slot >= h.SlotCount() {
		return fmt.Errorf("quorum: there is no slot %d", slot)
	}
	return transferTo(engine, shardOf(uint16(slot)), number)
}

// TransferStreams is TransferLeader for a slot of streams.
func (h *Host) TransferStreams(slot int, number uint64) error {
	engine, err := h.raft()
	if err != nil {
		return err
	}
	if slot < 0 || slot >= maxStreams {
		return fmt.Errorf("quorum: there is no slot %d of streams", slot)
	}
	return transferTo(engine, firstStream+uint64(slot), number)
}

// Rebalance hands on slots that this node leads while others that are up lead fewer. When every member has done it, and what it
// asked for has happened, leaders are spread evenly.
func (h *Host) Rebalance() error {
	slots := h.Slots()
	h.mu.Lock()
	node := h.o.Node
	leads := map[uint64]int{}
	for _, s := range slots {
		for _, m := range s.Members {
			if _, down := h.downs[m]; !down {
				leads[m] += 0
			}
		}
	}
	h.mu.Unlock()
	for _, s := range slots {
		if _, up := leads[s.Leader]; up {
			leads[s.Leader]++
		}
	}
	var errs []error
	for _, s := range slots {
		if s.Leader != node {
			continue
		}
		to := uint64(0)
		for _, m := range s.Members {
			if n, up := leads[m]; up && (to == 0 || n < leads[to]) {
				to = m
			}
		}
		if to != 0 && leads[to]+1 < leads[node] {
			leads[to]++
			leads[node]--
			transfer := h.TransferLeader
			if s.Stream {
				transfer = h.TransferStreams
			}
			if err := transfer(s.Slot, to); !dragonboat.IsTempError(err) { // busy with the last one
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Leader is the number of the member that leads the queue's slot, 0 if none is known to.
func (q *Queue) Leader() uint64 {
	leader, _ := q.slot.raftLeader()
	return leader
}

// Members are the members of the queue's slot that have a vote, ascending.
func (q *Queue) Members() []uint64 {
	for _, s := range q.host.Slots() {
		if s.Slot == int(q.slot.number) && !s.Stream {
			return s.Members
		}
	}
	return nil
}
