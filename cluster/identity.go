package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/warrenmq/warren/storage"
)

// A NodeID is a node for ever: it is drawn at random at its first start and kept in its data directory. No node has 0.
type NodeID uint64

func (id NodeID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// A ClusterID is a cluster for ever. A node that has never joined another is a cluster of its own.
type ClusterID [16]byte

func (id ClusterID) String() string { return hex.EncodeToString(id[:]) }

// Identity is who a node is during one of its starts.
type Identity struct {
	Node    NodeID
	Cluster ClusterID
	Boot    uint64 // how many times the node was started, this time included
	Name    string // for people; at most 255 octets
	Number  uint64 // as a member of the cluster, from 1 on; 0 as long as none was given to it

	// Starts is how many of its starts the cluster has confirmed, and Mark a random number of the next one, until it is. An older
	// copy of the directory knows of fewer than the cluster does, however often it is started.
	Starts, Mark uint64
}

// MaxName is how many octets a node's name has at the most.
const MaxName = 255

// identityFormat is of the keys below "c/". A data directory of a greater one is refused.
const identityFormat = 1

var (
	keyFormat  = []byte("c/format")  // u16
	keyNode    = []byte("c/node")    // u64
	keyCluster = []byte("c/cluster") // 16 octets
	keyBoot    = []byte("c/boot")    // u64
	keyName    = []byte("c/name")
	keyNumber  = []byte("c/number")  // u64; not there before there is one
	keyLeaving = []byte("c/leaving") // empty: the node has a cluster of its own, and has not yet settled what it has of the last one
	keyStarts  = []byte("c/starts")  // u64 | u64: Starts and Mark; not there before the second start of a member
)

// Start reads a node's identity from the database of its data directory, makes it at the first start, and raises the boot
// number. When it returns, the new number is on disk: no two starts ever have the same, unless somebody
// puts back an old copy of the directory. A name that is not empty is kept as the node's name; without one a node is called
// warren- and its id.
//
// It is called once in the life of a process, by one goroutine.
func Start(db *storage.DB, name string) (Identity, error) {
	if len(name) > MaxName {
		return Identity{}, fmt.Errorf("cluster: a node's name has at most %d octets", MaxName)
	}
	id, known, err := readIdentity(db)
	if err != nil {
		return Identity{}, err
	}
	var b storage.Batch
	if !known {
		for id.Node == 0 {
			id.Node = NodeID(random64())
		}
		rand.Read(id.Cluster[:])
		b.Set(keyFormat, binary.LittleEndian.AppendUint16(nil, identityFormat))
		b.Set(keyNode, binary.LittleEndian.AppendUint64(nil, uint64(id.Node)))
		b.Set(keyCluster, id.Cluster[:])
	}
	id.Boot++
	b.Set(keyBoot, binary.LittleEndian.AppendUint64(nil, id.Boot))
	if id.Mark == 0 {
		for id.Mark == 0 {
			id.Mark = random64()
		}
		b.Set(keyStarts, starts(id.Starts, id.Mark))
	}
	if name != "" && name != id.Name {
		id.Name = name
		b.Set(keyName, []byte(name))
	}
	if err := db.Commit(&b, true); err != nil {
		return Identity{}, fmt.Errorf("cluster: keep the node's identity: %w", err)
	}
	if id.Name == "" {
		id.Name = "warren-" + id.Node.String()
	}
	return id, nil
}

// Read is the identity of the last start of the node of a database; the zero Identity before the first one.
func Read(db *storage.DB) (Identity, error) {
	id, _, err := readIdentity(db)
	return id, err
}

// Leave makes the node of a database a member, under its number, of a new cluster, which nobody else belongs to: the others of the one
// that it was in refuse it, and it refuses them. Until Settle the node is Leaving. Both are on disk when Leave returns.
func Leave(db *storage.DB) error {
	id, _, err := readIdentity(db)
	if err != nil {
		return err
	}
	if id.Number == 0 {
		return errNoNumber
	}
	rand.Read(id.Cluster[:]) // never fails
	var b storage.Batch
	b.Set(keyCluster, id.Cluster[:])
	b.Set(keyLeaving, []byte{})
	if err := db.Commit(&b, true); err != nil {
		return fmt.Errorf("cluster: keep the cluster's id: %w", err)
	}
	return nil
}

// Leaving reports whether Leave was called and Settle was not.
func Leaving(db *storage.DB) (bool, error) {
	v, err := db.Get(keyLeaving)
	return v != nil, err
}

// Settle says that the node has all that it needs to be a cluster of its own. It is on disk when Settle returns, and all that was
// written to the database before.
func Settle(db *storage.DB) error {
	var b storage.Batch
	b.Delete(keyLeaving)
	if err := db.Commit(&b, true); err != nil {
		return fmt.Errorf("cluster: settle: %w", err)
	}
	return nil
}

func starts(confirmed, mark uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, confirmed), mark)
}

// Confirm notes that the cluster has confirmed this start of a node, which Start returned the identity of: number Starts+1, by its
// Mark. It is on disk when Confirm returns, and the next start has another mark.
func Confirm(db *storage.DB, id Identity) error {
	var b storage.Batch
	b.Set(keyStarts, starts(id.Starts+1, 0))
	if err := db.Commit(&b, true); err != nil {
		return fmt.Errorf("cluster: keep the number of confirmed starts: %w", err)
	}
	return nil
}

// Number is the member number of the node of a database, 0 if it has none.
func Number(db *storage.DB) (uint64, error) {
	id, _, err := readIdentity(db)
	return id.Number, err
}

// Enter makes the node of a database a member of another cluster, under the number that this gave it, from its next start on.
// Both are on disk when Enter returns.
func Enter(db *storage.DB, c ClusterID, number uint64) error {
	if c == (ClusterID{}) {
		return errors.New("cluster: no cluster has the id 0")
	}
	if number == 0 {
		return errNoNumber
	}
	var b storage.Batch
	b.Set(keyCluster, c[:])
	b.Set(keyNumber, binary.LittleEndian.AppendUint64(nil, number))
	if err := db.Commit(&b, true); err != nil {
		return fmt.Errorf("cluster: keep the cluster's id: %w", err)
	}
	return nil
}

var errNoNumber = errors.New("cluster: no member has the number 0")

// Become gives the node of a database a number in the cluster that it is in: a founder, who has asked nobody, gives himself the
// first one. It is on disk when Become returns. A node that has a number keeps it: another one is an error.
func Become(db *storage.DB, number uint64) error {
	if number == 0 {
		return errNoNumber
	}
	id, known, err := readIdentity(db)
	switch {
	case err != nil:
		return err
	case !known:
		return errors.New("cluster: a node that was never started has no number")
	case id.Number == number:
		return nil
	case id.Number != 0:
		return fmt.Errorf("cluster: the node is member %d, and cannot become member %d", id.Number, number)
	}
	var b storage.Batch
	b.Set(keyNumber, binary.LittleEndian.AppendUint64(nil, number))
	if err := db.Commit(&b, true); err != nil {
		return fmt.Errorf("cluster: keep the node's number: %w", err)
	}
	return nil
}

// readIdentity returns the identity of the last start, and whether there was one.
func readIdentity(db *storage.DB) (id Identity, known bool, err error) {
	get := func(key []byte, size int) []byte {
		v, e := db.Get(key)
		switch {
		case err != nil:
		case e != nil:
			err = fmt.Errorf("cluster: read the node's identity: %w", e)
		case v == nil && known:
			err = fmt.Errorf("cluster: the node's identity is damaged: %s is missing", key)
		case v != nil && size > 0 && len(v) != size:
			err = fmt.Errorf("cluster: the node's identity is damaged: %s has %d octets", key, len(v))
		}
		return v
	}
	format := get(keyFormat, 2)
	if err != nil {
		return id, false, err
	}
	if format == nil {
		if node := get(keyNode, 8); node != nil && err == nil {
			err = fmt.Errorf("cluster: the node's identity is damaged: %s is missing", keyFormat)
		}
		return id, false, err
	}
	if f := binary.LittleEndian.Uint16(format); f > identityFormat {
		return id, false, fmt.Errorf("cluster: the data directory has format %d of identities, this program knows up to %d",
			f, identityFormat)
	}
	known = true
	node, cluster, boot := get(keyNode, 8), get(keyCluster, 16), get(keyBoot, 8)
	if err != nil {
		return id, false, err
	}
	id.Node = NodeID(binary.LittleEndian.Uint64(node))
	id.Boot = binary.LittleEndian.Uint64(boot)
	copy(id.Cluster[:], cluster)
	known = false // neither a name nor a number need be there
	id.Name = string(get(keyName, 0))
	if number := get(keyNumber, 8); number != nil && err == nil {
		id.Number = binary.LittleEndian.Uint64(number)
	}
	if s := get(keyStarts, 16); s != nil && err == nil {
		id.Starts, id.Mark = binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])
	}
	if id.Node == 0 && err == nil {
		err = fmt.Errorf("cluster: the node's identity is damaged: %s is 0", keyNode)
	}
	return id, true, err
}

func random64() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
