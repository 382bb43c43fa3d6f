package quorum

import (
	"context"
	"errors"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// StandIns is the transport of a node that is to go on without members that are gone for good. They say yes to everything in
// their stead: they vote for this node and have what it sends, so that it leads, and its whole log counts as agreed on. That
// is the truth for nobody but the only one who is left; see docs/design/cluster.md, A majority that is lost.
//
// Where this node only follows, one of them leads for a moment, and gives it a vote: see Host.enfranchise.
func StandIns() config.TransportFactory { return new(standIns) }

type standIns struct {
	cluster  uint64 // the deployment
	messages raftio.MessageHandler
}

// Create implements config.TransportFactory. It is called once.
func (s *standIns) Create(c config.NodeHostConfig, messages raftio.MessageHandler, _ raftio.ChunkHandler) raftio.ITransport {
	s.cluster, s.messages = c.GetDeploymentID(), messages
	return standInTransport{messages: messages}
}

// Validate implements config.TransportFactory.
func (*standIns) Validate(string) bool { return true }

// say has one who is gone say something to this node. What it answers nobody hears.
func (s *standIns) say(m raftpb.Message) {
	s.messages(raftpb.MessageBatch{Requests: []raftpb.Message{m}, DeploymentId: s.cluster, BinVer: raftio.TransportBinVersion})
}

type standInTransport struct {
	alone
	messages raftio.MessageHandler
}

// Name is for the engine's log.
func (standInTransport) Name() string { return "stand-ins" }

// GetConnection implements raftio.ITransport.
func (t standInTransport) GetConnection(context.Context, string) (raftio.IConnection, error) {
	return standIn(t), nil
}

var errNoCopy = errors.New("quorum: who is gone needs no copy")

// GetSnapshotConnection implements raftio.ITransport. Who has agreed to everything is sent no snapshot.
func (standInTransport) GetSnapshotConnection(context.Context, string) (raftio.ISnapshotConnection, error) {
	return nil, errNoCopy
}

// standIn is a connection to a member that is gone.
type standIn standInTransport

func (standIn) Close() {}

// SendMessageBatch answers the messages.
func (s standIn) SendMessageBatch(b raftpb.MessageBatch) error {
	answers := b
	answers.SourceAddress, answers.Requests = "", nil
	for i := range b.Requests {
		if a, ok := agreed(&b.Requests[i]); ok {
			answers.Requests = append(answers.Requests, a)
		}
	}
	if len(answers.Requests) > 0 {
		s.messages(answers)
	}
	return nil
}

// agreed is the answer of a member that agrees. What is no question has none.
func agreed(m *raftpb.Message) (raftpb.Message, bool) {
	a := raftpb.Message{From: m.To, To: m.From, ShardID: m.ShardID, Term: m.Term}
	switch m.Type {
	case raftpb.RequestPreVote:
		a.Type = raftpb.RequestPreVoteResp
	case raftpb.RequestVote:
		a.Type = raftpb.RequestVoteResp
	case raftpb.Replicate:
		a.Type, a.LogIndex = raftpb.ReplicateResp, m.LogIndex+uint64(len(m.Entries))
	case raftpb.Heartbeat:
		a.Type, a.Hint, a.HintHigh = raftpb.HeartbeatResp, m.Hint, m.HintHigh
	default:
		return a, false
	}
	return a, true
}
