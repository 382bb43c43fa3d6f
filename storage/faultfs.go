package storage

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Sector is the unit in which a disk writes: FaultFS keeps a sector whole, old or new, and tears between sectors.
const Sector = 512

// ErrDead is what the file systems and files of a process return after Crash, Kill or the operation named by StopAfter.
var ErrDead = errors.New("storage: the machine is off")

// FaultFS is an FS in memory that remembers what would survive a power cut, and that fails when it is told to. It is for
// tests. What it chooses at random depends on its seeds and the order of the calls only.
//
// Its disk is as unkind as POSIX allows: a write that was not synced survives in whole, in part or not at all, each of its
// sectors by itself and whatever became of the writes before it; so does a name made, renamed or removed until SyncDir,
// even when the file was synced. Directories themselves are durable at once.
type FaultFS struct {
	mu       sync.Mutex // guards everything, the files' contents too
	rng      *rand.Rand
	dirs     map[string]bool
	names    map[string]*faultNode // as the process sees them
	durable  map[string]*faultNode // as they are after a power cut
	pending  []nameChange          // not synced yet, in order
	faults   []*Fault
	sabotage Sabotage
	observe  func(Event)
	space    int64 // octets left, where limited
	limited  bool
	stop     int64 // changes until death, where dying
	dying    bool
	dead     bool
}

// Sabotage makes a FaultFS lie, so that a drill can show that it would notice.
type Sabotage struct {
	NoSync    bool // SyncData says yes and does nothing
	NoSyncDir bool // SyncDir says yes and does nothing
	DropWrite bool // the last write before each SyncData never reaches the disk

	Name string // part of the name of the files and directories that it lies about; "" is all
}

// Op is a kind of operation on a FaultFS.
type Op uint8

// The operations that can be observed and made to fail.
const (
	OpCreate Op = iota
	OpOpen
	OpRead
	OpWrite
	OpTruncate
	OpSync
	OpRename
	OpRemove
	OpSyncDir
)

// An Event is an operation about to happen.
type Event struct {
	Op     Op
	Name   string
	Offset int64 // of reads and writes
	Length int   // of reads and writes
}

// A Fault makes operations fail.
type Fault struct {
	Op    Op
	Name  string // part of the name; "" is any
	After int    // matching operations that still succeed
	Times int    // how often it fails; 0 is once, below 0 for ever
	Err   error  // nil is EIO
	Short int    // octets that a failing write or read does before it fails
}

type faultNode struct {
	data   []byte // as the process sees it
	disk   []byte // as it is after a power cut, but for pending
	change []dataChange
}

// A dataChange is a write, or a new size if data is nil.
type dataChange struct {
	off  int64
	data []byte
}

// A nameChange takes a name away, makes one, or both.
type nameChange struct {
	dir      string
	from, to string
	node     *faultNode
}

// NewFaultFS makes an empty file system without faults.
func NewFaultFS(seed uint64) *FaultFS {
	return &FaultFS{
		rng:     rand.New(rand.NewPCG(seed, 0)),
		dirs:    map[string]bool{".": true, "/": true},
		names:   map[string]*faultNode{},
		durable: map[string]*faultNode{},
	}
}

// Inject adds a fault.
func (f *FaultFS) Inject(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault.Err == nil {
		fault.Err = unix.EIO
	}
	if fault.Times == 0 {
		fault.Times = 1
	}
	f.faults = append(f.faults, &fault)
}

// Heal removes all faults and gives back all space.
func (f *FaultFS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.limited = nil, false
}

// SetSpace lets files grow by n octets more before ENOSPC; removing and truncating gives room back.
func (f *FaultFS) SetSpace(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.space, f.limited = n, true
}

// SetSabotage chooses how the file system lies from now on.
func (f *FaultFS) SetSabotage(s Sabotage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sabotage = s
}

// Observe has fn called before each operation, without a lock held.
func (f *FaultFS) Observe(fn func(Event)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observe = fn
}

// StopAfter lets n more changes (writes, syncs, names) happen; everything after them fails with ErrDead. A Crash or Kill
// then shows what the disk holds at that point.
func (f *FaultFS) StopAfter(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stop, f.dying = n, true
}

// Crash cuts the power: it returns what a start afterwards finds. The old file system is dead.
func (f *FaultFS) Crash(seed uint64) *FaultFS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	return f.image(seed)
}

// CrashLosing is a Crash that takes along everything that was not synced: no name and no write survives but those that had
// to.
func (f *FaultFS) CrashLosing() *FaultFS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	after := NewFaultFS(f.rng.Uint64())
	after.sabotage, after.dirs = f.sabotage, f.dirs
	for name, node := range f.durable {
		n := &faultNode{data: slices.Clone(node.disk), disk: slices.Clone(node.disk)}
		after.names[name], after.durable[name] = n, n
	}
	return after
}

// Image is what Crash would return now. The file system lives on, and the two have nothing in common.
func (f *FaultFS) Image(seed uint64) *FaultFS {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.image(seed)
}

func (f *FaultFS) image(seed uint64) *FaultFS {
	after := NewFaultFS(seed)
	after.sabotage = f.sabotage
	after.dirs = f.dirs
	names := make(map[string]*faultNode, len(f.durable))
	for name, node := range f.durable {
		names[name] = node
	}
	for _, c := range f.pending {
		if after.rng.IntN(2) == 0 {
			c.apply(names)
		}
	}
	for _, name := range sortedNames(names) {
		node := names[name]
		disk := slices.Clone(node.disk)
		for _, c := range node.change {
			disk = c.tear(disk, after.rng)
		}
		n := &faultNode{data: disk, disk: slices.Clone(disk)}
		after.names[name], after.durable[name] = n, n
	}
	return after
}

// Kill ends the process and leaves the machine on: it returns what a start afterwards finds, every change that returned.
// What was not synced is still not synced. The old file system is dead.
func (f *FaultFS) Kill() *FaultFS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	after := NewFaultFS(f.rng.Uint64())
	after.sabotage = f.sabotage
	after.dirs, after.names, after.durable, after.pending = f.dirs, f.names, f.durable, f.pending
	return after
}

// Create implements FS.
func (f *FaultFS) Create(name string) (File, error) {
	name = filepath.Clean(name)
	fault, err := f.begin(Event{Op: OpCreate, Name: name})
	defer f.mu.Unlock()
	switch {
	case err != nil:
		return nil, pathError("create", name, err)
	case fault != nil:
		return nil, pathError("create", name, fault.Err)
	case f.names[name] != nil:
		return nil, pathError("create", name, fs.ErrExist)
	case !f.dirs[filepath.Dir(name)]:
		return nil, pathError("create", name, fs.ErrNotExist)
	}
	node := &faultNode{}
	f.rename(nameChange{dir: filepath.Dir(name), to: name, node: node})
	return &faultFile{fs: f, node: node, name: name}, nil
}

// Open implements FS.
func (f *FaultFS) Open(name string) (File, error) {
	name = filepath.Clean(name)
	fault, err := f.begin(Event{Op: OpOpen, Name: name})
	defer f.mu.Unlock()
	node := f.names[name]
	switch {
	case err != nil:
		return nil, pathError("open", name, err)
	case fault != nil:
		return nil, pathError("open", name, fault.Err)
	case node == nil:
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	return &faultFile{fs: f, node: node, name: name}, nil
}

// List implements FS.
func (f *FaultFS) List(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return nil, pathError("readdir", dir, ErrDead)
	}
	if !f.dirs[dir] {
		return nil, pathError("readdir", dir, fs.ErrNotExist)
	}
	var list []string
	for name := range f.names {
		if filepath.Dir(name) == dir {
			list = append(list, filepath.Base(name))
		}
	}
	for name := range f.dirs {
		if name != dir && filepath.Dir(name) == dir {
			list = append(list, filepath.Base(name))
		}
	}
	slices.Sort(list)
	return list, nil
}

// MkdirAll implements FS.
func (f *FaultFS) MkdirAll(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return pathError("mkdir", dir, ErrDead)
	}
	dirs := make(map[string]bool, len(f.dirs)+1)
	for d := range f.dirs {
		dirs[d] = true
	}
	for dir = filepath.Clean(dir); !dirs[dir]; dir = filepath.Dir(dir) {
		dirs[dir] = true
	}
	f.dirs = dirs
	return nil
}

// Rename implements FS.
func (f *FaultFS) Rename(from, to string) error {
	from, to = filepath.Clean(from), filepath.Clean(to)
	fault, err := f.begin(Event{Op: OpRename, Name: from})
	defer f.mu.Unlock()
	node := f.names[from]
	switch {
	case err != nil:
		return pathError("rename", from, err)
	case fault != nil:
		return pathError("rename", from, fault.Err)
	case node == nil:
		return pathError("rename", from, fs.ErrNotExist)
	}
	if old := f.names[to]; old != nil {
		f.space += int64(len(old.data))
	}
	f.rename(nameChange{dir: filepath.Dir(to), from: from, to: to, node: node})
	return nil
}

// Remove implements FS.
func (f *FaultFS) Remove(name string) error {
	name = filepath.Clean(name)
	fault, err := f.begin(Event{Op: OpRemove, Name: name})
	defer f.mu.Unlock()
	node := f.names[name]
	switch {
	case err != nil:
		return pathError("remove", name, err)
	case fault != nil:
		return pathError("remove", name, fault.Err)
	case node == nil:
		return pathError("remove", name, fs.ErrNotExist)
	}
	f.space += int64(len(node.data))
	f.rename(nameChange{dir: filepath.Dir(name), from: name})
	return nil
}

// SyncDir implements FS.
func (f *FaultFS) SyncDir(dir string) error {
	dir = filepath.Clean(dir)
	fault, err := f.begin(Event{Op: OpSyncDir, Name: dir})
	defer f.mu.Unlock()
	switch {
	case err != nil:
		return pathError("fsync", dir, err)
	case fault != nil:
		return pathError("fsync", dir, fault.Err)
	case f.sabotage.NoSyncDir && strings.Contains(dir, f.sabotage.Name):
		return nil
	}
	rest := f.pending[:0:0]
	for _, c := range f.pending {
		if c.dir == dir {
			c.apply(f.durable)
		} else {
			rest = append(rest, c)
		}
	}
	f.pending = rest
	return nil
}

// Free implements FS.
func (f *FaultFS) Free(string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return 0, ErrDead
	}
	if f.limited {
		return uint64(max(f.space, 0)), nil
	}
	return 1 << 40, nil
}

// Contents are a copy of what a file holds, as the process sees it; nil if there is none.
func (f *FaultFS) Contents(name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if node := f.names[filepath.Clean(name)]; node != nil {
		return append([]byte{}, node.data...)
	}
	return nil
}

// Damage changes what a file holds behind everyone's back, in memory and on the disk; what was not synced becomes so. change
// is given the contents and returns the new ones. It reports whether there is such a file.
func (f *FaultFS) Damage(name string, change func(data []byte) []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.names[filepath.Clean(name)]
	if node == nil {
		return false
	}
	node.data = change(node.data)
	node.disk, node.change = slices.Clone(node.data), nil
	return true
}

// FlipBit damages one bit of a file.
func (f *FaultFS) FlipBit(name string, offset int64, bit uint) bool {
	return f.Damage(name, func(data []byte) []byte {
		data[offset] ^= 1 << (bit % 8)
		return data
	})
}

// Zero overwrites n octets of a file with zeroes.
func (f *FaultFS) Zero(name string, offset, n int64) bool {
	return f.Damage(name, func(data []byte) []byte {
		clear(data[offset : offset+n])
		return data
	})
}

// Cut shortens a file.
func (f *FaultFS) Cut(name string, size int64) bool {
	return f.Damage(name, func(data []byte) []byte { return data[:size] })
}

// begin announces an operation and locks. The caller unlocks, whatever it returns.
func (f *FaultFS) begin(e Event) (*Fault, error) {
	f.mu.Lock()
	if f.observe != nil {
		observe := f.observe
		f.mu.Unlock()
		observe(e)
		f.mu.Lock()
	}
	if f.dying && e.Op != OpRead && e.Op != OpOpen {
		if f.stop == 0 {
			f.dead = true
		}
		f.stop--
	}
	if f.dead {
		return nil, ErrDead
	}
	for _, fault := range f.faults {
		if fault.Op != e.Op || fault.Times == 0 || !strings.Contains(e.Name, fault.Name) {
			continue
		}
		if fault.After > 0 {
			fault.After--
			continue
		}
		fault.Times--
		return fault, nil
	}
	return nil, nil
}

func (f *FaultFS) rename(c nameChange) {
	c.apply(f.names)
	f.pending = append(f.pending, c)
}

func (c nameChange) apply(names map[string]*faultNode) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.node
	}
}

func sortedNames(names map[string]*faultNode) []string {
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}
