package quorum

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"
)

const (
	// tick is the unit of time of a Raft engine that has peers, in milliseconds: who leads says once in it that it lives. aloneTick is
	// that of one without, which elects itself sooner.
	tick, aloneTick = 100, 50
	// aloneElection is after how many ticks, or twice as many, a single voter elects itself: the least that the engine takes.
	aloneElection = 3
	// electionTime is the same with several voters, in milliseconds: a busy machine must not be taken for a dead one.
	electionTime = 500
	// writeBuffer is how many octets the log writes without allocating memory for them; it has 16 such buffers.
	writeBuffer = 2 << 20
	// firstShard is the shard of slot 0; those below are for metadata and streams.
	firstShard = 16
)

func shardOf(slot uint16) uint64 { return firstShard + uint64(slot) }

// address is where a node is, for the Raft engine, which writes it down and never wants it changed: a name of our own
// making, so that an operator may change his.
func address(node uint64) string { return fmt.Sprintf("warren-%d:25672", node) }

// engineOptions are what the Raft engine is opened with.
type engineOptions struct {
	dir           string
	node, cluster uint64
	tick          uint64 // milliseconds
	transport     config.TransportFactory
	listener      raftio.IRaftEventListener
	log           *slog.Logger
	fatal         func(error)
}

// pace is after how many ticks without a leader, or twice as many, a replica calls for an election, and how many lie between two
// signs of life.
type pace struct{ election, heartbeat uint64 }

// paceOf is that of a replica that has, or may have, peers, on an engine of a tick in milliseconds.
func paceOf(ms uint64) pace { return pace{electionTime / ms, tick / ms} }

// openEngine starts the Raft engine on a directory, which is made if need be.
func openEngine(o engineOptions) (*dragonboat.NodeHost, error) {
	quiet(o.log, o.fatal)
	dir := o.dir
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	if err := adopt(dir); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := trimLog(dir); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return dragonboat.NewNodeHost(o.config())
}

func (o *engineOptions) config() config.NodeHostConfig {
	logDB := config.GetTinyMemLogDBConfig()
	logDB.KVWriteBufferSize = writeBuffer
	workers := config.GetDefaultEngineConfig()
	workers.ApplyShards = 2 * firstShard // metadata does not wait behind a slot that waits for its disk
	return config.NodeHostConfig{
		DeploymentID:      o.cluster,
		NodeHostDir:       o.dir,
		RTTMillisecond:    o.tick,
		RaftAddress:       address(o.node),
		RaftEventListener: o.listener,
		Expert: config.ExpertConfig{
			LogDBFactory:     partedLog,
			LogDB:            logDB,
			Engine:           workers,
			TransportFactory: o.transport,
		},
	}
}

// startReplica starts a replica of this node of a shard, among those that have had a vote in it from the start, or, with none, as one
// that was or will be added to them.
func startReplica(host *dragonboat.NodeHost, m sm.IOnDiskStateMachine, shard, id uint64, voters []uint64, p pace) error {
	initial := initialMembers(voters)
	return host.StartOnDiskReplica(initial, len(initial) == 0,
		func(uint64, uint64) sm.IOnDiskStateMachine { return m },
		config.Config{
			ReplicaID: id, ShardID: shard, IsNonVoting: len(initial) == 0, // until it is told that it votes
			ElectionRTT: p.election, HeartbeatRTT: p.heartbeat, PreVote: true, CheckQuorum: true, OrderedConfigChange: true,
			EntryCompressionType: config.NoCompression, SnapshotCompressionType: config.NoCompression,
		})
}

// initialMembers are members as the engine wants to hear of them; nil: there are none.
func initialMembers(members []uint64) (initial map[uint64]dragonboat.Target) {
	for _, n := range members {
		if initial == nil {
			initial = map[uint64]dragonboat.Target{}
		}
		initial[n] = address(n)
	}
	return initial
}

// adopt has the Raft engine take a directory for its own under whatever name the host has now. The engine has no setting
// for it: it asks the system for the name, keeps its files in a directory of that name, and writes the name down in a file,
// where an empty one fits all.
func adopt(dir string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var old []string
	for _, e := range entries {
		if e.IsDir() {
			old = append(old, e.Name())
		}
	}
	switch {
	case len(old) > 1:
		return fmt.Errorf("it holds the directories %q, and should hold one", old)
	case len(old) == 1 && old[0] != name:
		if err := os.Rename(filepath.Join(dir, old[0]), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := forgetHost(filepath.Join(dir, "dragonboat.ds")); err != nil {
		return err
	}
	return syncDir(dir)
}

// forgetHost takes the host's name out of the engine's file: 8 octets of checksum, then the status.
func forgetHost(file string) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var status raftpb.RaftDataStatus
	if len(b) < 8 || !bytes.Equal(b[:8], statusSum(b[8:])) {
		return fmt.Errorf("%s is damaged", file)
	}
	if err := status.Unmarshal(b[8:]); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if status.Hostname == "" {
		return nil
	}
	status.Hostname = ""
	data, err := status.Marshal()
	if err != nil {
		return err
	}
	next := file + ".next"
	f, err := os.Create(next)
	if err != nil {
		return err
	}
	_, err = f.Write(append(statusSum(data), data...))
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(next, file)
}

func statusSum(b []byte) []byte {
	sum := md5.Sum(b)
	return sum[8:]
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// alone is the transport of a node that has no peers: it opens no port.
type alone struct{}

var errAlone = errors.New("quorum: this node has no peers")

func (alone) Create(config.NodeHostConfig, raftio.MessageHandler, raftio.ChunkHandler) raftio.ITransport {
	return alone{}
}
func (alone) Validate(string) bool { return true }
func (alone) Name() string         { return "alone" }
func (alone) Start() error         { return nil }
func (alone) Close() error         { return nil }
func (alone) GetConnection(context.Context, string) (raftio.IConnection, error) {
	return nil, errAlone
}
func (alone) GetSnapshotConnection(context.Context, string) (raftio.ISnapshotConnection, error) {
	return nil, errAlone
}

// engineLog passes on what the Raft engine has to say, which is much, one level lower than it says it.
type engineLog struct {
	log   *slog.Logger
	pkg   string
	fatal func(error)
}

var quietOnce sync.Once

// quiet has the engine log to the first log that it is called with, and end by the first fatal: it has one of each for the
// whole process.
func quiet(log *slog.Logger, fatal func(error)) {
	quietOnce.Do(func() {
		logger.SetLoggerFactory(func(pkg string) logger.ILogger { return engineLog{log, pkg, fatal} })
	})
}

func (l engineLog) say(level slog.Level, format string, args []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, fmt.Sprintf(format, args...), "raft", l.pkg)
	}
}

func (engineLog) SetLevel(logger.LogLevel)              {}
func (engineLog) Debugf(string, ...any)                 {}
func (l engineLog) Infof(format string, args ...any)    { l.say(slog.LevelDebug, format, args) }
func (l engineLog) Warningf(format string, args ...any) { l.say(slog.LevelDebug, format, args) }
func (l engineLog) Errorf(format string, args ...any) {
	level := slog.LevelWarn
	if l.pkg == "transport" { // of members that are not there, at each attempt: who knows of links tells that once
		level = slog.LevelDebug
	}
	l.say(level, format, args)
}

// Panicf ends the process: the engine counts on it.
func (l engineLog) Panicf(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if l.fatal != nil {
		why, _, _ := strings.Cut(what, "\n") // a stack follows
		l.fatal(fmt.Errorf("%s: %w", l.pkg, &EngineError{why, ofDisk(args)}))
	}
	panic(what)
}

// EngineError is why the Raft engine cannot go on.
type EngineError struct {
	Why  string
	Disk bool // a file could not be written or read
}

func (e *EngineError) Error() string { return e.Why }

// ofDisk reports whether there is an error of the system among args.
func ofDisk(args []any) bool {
	for _, a := range args {
		var errno syscall.Errno
		var path *fs.PathError
		if err, ok := a.(error); ok && (errors.As(err, &errno) || errors.As(err, &path)) {
			return true
		}
	}
	return false
}
