// Package config turns what an operator wrote, in a file, in the environment and on the command line, into one Config.
//
// The file has rabbitmq.conf's format and RabbitMQ's keys, so that a file that served a RabbitMQ node serves Warren. Each key is in one of
// three states, and the room keeps the lists: it has an effect (keys.go); RabbitMQ knows it and it has none here, which is a warning
// (inert.go); nobody knows it, which is an error that names file, line, key and the nearest known key. A key whose silent loss would open
// a door, such as an authentication backend that is not built, is an error too.
//
// What is given in several places counts in this order: command line, environment, file, default.
//
// The room opens no socket, starts nothing and knows no other room: it reads files and yields values. It never changes a Config after
// Load has returned it.
package config

import (
	"os"
	"strings"
	"time"
)

// Config is everything that can be decided before a node starts. Default documents the values that hold when nothing is said.
type Config struct {
	// DataDir is the directory of the node's files. One node uses it at a time.
	DataDir string
	// NodeName is how the node calls itself in the management API and in metrics, in RabbitMQ's form name@host.
	NodeName string
	// ClusterName defaults to NodeName.
	ClusterName string
	// Product and ProductVersion are announced to clients in connection.start and shown by the management API. An empty ProductVersion
	// means the version of the build.
	Product, ProductVersion string

	// AMQP and AMQPS are the listening addresses, host:port, for plain and TLS connections. An empty host means all interfaces, port 0
	// any free port. Either may be empty; a node without both serves no client.
	AMQP, AMQPS []string
	// HTTP and Metrics are the addresses of the management API and of the Prometheus endpoint; empty: not served.
	HTTP, Metrics string
	// MetricsAuth asks scrapers for a user with the tag monitoring or administrator.
	MetricsAuth bool
	// MetricsPerObject makes /metrics answer as /metrics/per-object does.
	MetricsPerObject bool
	// PortsFile, if not empty, receives the addresses in use as one JSON object once all of them listen.
	PortsFile string
	TLS       TLS

	// Heartbeat is what the server proposes in connection.tune, whole seconds from 0 (none) to 65535.
	Heartbeat time.Duration
	// ChannelMax is the most channels of a connection that the server proposes, 1 to 65535; 0 stands for 65535.
	ChannelMax uint16
	// FrameMax is the largest frame the server proposes, in bytes with header and end octet, at least 4096; 0 means no limit.
	FrameMax uint32
	// HandshakeTimeout bounds the time from accept to connection.open-ok, TLSHandshakeTimeout that of the TLS handshake before it.
	HandshakeTimeout, TLSHandshakeTimeout time.Duration
	// MaxMessageSize is the largest body accepted, in bytes, at most 512 MiB.
	MaxMessageSize uint64
	// ConnectionMax bounds the connections of the node, ConsumerMaxPerChannel the consumers of one channel, ChannelMaxPerNode the
	// channels of the node; 0 means no bound.
	ConnectionMax, ConsumerMaxPerChannel, ChannelMaxPerNode int
	// QuorumGroupSize is how many members have a vote in each slot of quorum queues and streams, if there are more.
	QuorumGroupSize int
	// QueueMax, ExchangeMax and VHostMax bound what can be declared in the whole cluster; 0 means no bound.
	QueueMax, ExchangeMax, VHostMax int
	// ConsumerTimeout is how long a delivery may stay unacknowledged where a queue type enforces it.
	ConsumerTimeout time.Duration
	// AuthMechanisms are the SASL mechanisms offered, in order. ANONYMOUS among them counts only if AnonymousUser is not empty.
	AuthMechanisms []string
	// AnonymousUser and AnonymousPass log in a client that uses ANONYMOUS; an empty user disables the mechanism.
	AnonymousUser, AnonymousPass string
	// LoopbackUsers may log in from the node's own host only.
	LoopbackUsers map[string]bool
	// TCPNoDelay switches Nagle's algorithm off. TCPBacklog is accepted for the record; the operating system's setting counts.
	TCPNoDelay bool
	TCPBacklog int
	// TCPSendBuffer and TCPReceiveBuffer are socket buffers in bytes; 0 leaves them to the operating system.
	TCPSendBuffer, TCPReceiveBuffer int

	// DefaultUser and the four after it are made when the node starts without any metadata.
	DefaultUser, DefaultPass, DefaultVHost string
	DefaultPermissions                     Permissions
	DefaultUserTags                        []string
	// DefaultQueueType is the type of a queue declared without x-queue-type: classic, quorum or stream.
	DefaultQueueType string

	// RelaxedRedeclaration lets applications that declare a classic queue find a quorum queue of that name.
	RelaxedRedeclaration bool

	// Definitions are imported when the node starts. If there are any, the default user and virtual host are not made.
	Definitions Definitions

	// MemoryBound is the most bytes of message data that are kept in memory. Past it publishers wait.
	MemoryBound uint64
	// FlushAt is how many bytes of messages in memory have the oldest written to disk; 0 is half of MemoryBound.
	FlushAt uint64
	// JournalMax is how many bytes of journal do; 0 is 256 MiB.
	JournalMax uint64
	// MemoryLimit is the soft limit given to the Go runtime, in bytes; 0: derived from MemoryWatermark. GOMEMLIMIT outranks it.
	MemoryLimit uint64
	// MemoryWatermark and DiskFreeLimit are the thresholds of the memory and disk alarms. Relative ones are of the memory available.
	MemoryWatermark, DiskFreeLimit Threshold
	// DiskBallast is the size of a file, in bytes, that is given up when the disk is full, so that acknowledgements, purges and
	// deletions, which make room, can be written; 0: none.
	DiskBallast uint64
	// MemoryTotal, if not 0, is taken for the memory available instead of what the machine or its control group says.
	MemoryTotal uint64
	// StatisticsInterval is the distance of the samples from which rates are computed.
	StatisticsInterval time.Duration
	// HTTPMaxBody is the largest request body of the management API, in bytes.
	HTTPMaxBody uint64

	// PermitTransientQueues allows queues that are neither durable nor exclusive, PermitGlobalQoS basic.qos with global set.
	PermitTransientQueues, PermitGlobalQoS bool

	Cluster Cluster

	Log Log
	// File is the configuration file that was read; empty if there was none.
	File string
}

// TLS is how AMQPS connections are secured. Paths are of PEM files.
type TLS struct {
	CertFile, KeyFile, CAFile string
	// Verify asks clients for a certificate and checks the one they send; RequireCert refuses those who send none.
	Verify, RequireCert bool
	// Versions are the protocol versions spoken, such as tlsv1.3; empty: 1.2 and 1.3.
	Versions []string
}

// Cluster is how a node works with others. Without an address it is alone.
type Cluster struct {
	// Listen is the address at which it listens for the others; Advertise is the one at which they reach it: Listen, unless
	// that names no host, which is the host's name then.
	Listen, Advertise string
	// SecretFile is a file with what all nodes of the cluster know and nobody else.
	SecretFile string
	// Join is the address of a node whose cluster this one becomes a member of, when it is not yet.
	Join string
	// TLS, if it has a certificate, secures the connections between nodes, in both directions.
	TLS TLS
}

// Definitions says what is imported when a node starts.
type Definitions struct {
	// Path is a file in the format of RabbitMQ's definitions, or a directory of such files; empty: nothing is imported.
	Path string
	// SkipIfUnchanged imports them only if they differ from those imported last, by Hash: sha, sha224, sha256, sha384 or sha512.
	SkipIfUnchanged bool
	Hash            string
}

// Permissions are the three patterns of RabbitMQ's access control.
type Permissions struct{ Configure, Write, Read string }

// Threshold is an amount of bytes, or a part of the memory available. Absolute counts if it is not 0.
type Threshold struct {
	Absolute uint64
	Relative float64
}

// Bytes is the threshold on a machine with that much memory available.
func (t Threshold) Bytes(memory uint64) uint64 {
	if t.Absolute != 0 {
		return t.Absolute
	}
	return uint64(t.Relative * float64(memory))
}

// Log says where the log goes.
type Log struct {
	// Console writes to standard error; File, if not empty, to that file as well, relative to Dir.
	Console   bool
	File, Dir string
	// ConsoleLevel and FileLevel are debug, info, notice, warning, error, critical or none.
	ConsoleLevel, FileLevel string
	// ConsoleJSON and FileJSON write one JSON object a line instead of text.
	ConsoleJSON, FileJSON bool
}

// Default is the configuration of a node of which nothing is said.
func Default() Config {
	return Config{
		DataDir:               "./warren-data",
		NodeName:              "warren@" + hostName(),
		QuorumGroupSize:       3,
		Product:               "Warren",
		AMQP:                  []string{":5672"},
		HTTP:                  ":15672",
		Metrics:               ":15692",
		Heartbeat:             60 * time.Second,
		ChannelMax:            2047,
		FrameMax:              131072,
		HandshakeTimeout:      10 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		MaxMessageSize:        16 << 20,
		ConsumerTimeout:       30 * time.Minute,
		AuthMechanisms:        []string{"PLAIN", "AMQPLAIN", "ANONYMOUS"},
		AnonymousUser:         "guest",
		AnonymousPass:         "guest",
		LoopbackUsers:         map[string]bool{"guest": true},
		TCPNoDelay:            true,
		TCPBacklog:            128,
		DefaultUser:           "guest",
		DefaultPass:           "guest",
		DefaultVHost:          "/",
		DefaultPermissions:    Permissions{Configure: ".*", Write: ".*", Read: ".*"},
		DefaultUserTags:       []string{"administrator"},
		DefaultQueueType:      "classic",
		Definitions:           Definitions{Hash: "sha256"},
		MemoryBound:           128 << 20,
		MemoryWatermark:       Threshold{Relative: 0.6},
		DiskFreeLimit:         Threshold{Absolute: 50_000_000},
		DiskBallast:           32 << 20,
		StatisticsInterval:    5 * time.Second,
		HTTPMaxBody:           10_000_000,
		PermitTransientQueues: true,
		PermitGlobalQoS:       true,
		Log:                   Log{Console: true, ConsoleLevel: "info", FileLevel: "info"},
	}
}

// hostName is the first label of the machine's name, as RabbitMQ's node names use it.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}
