package server

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"

	"github.com/warrenmq/warren/queue"
)

// replyQueue is the pseudo-queue of direct reply-to (RabbitMQ docs: direct reply-to). Who consumes from it gets a name of
// its own, under which replies go straight into its outbox.
const replyQueue = "amq.rabbitmq.reply-to"

var replyPrefix = []byte(replyQueue + ".")

// requester is who waits for direct replies. The reference of m passes to it.
type requester interface {
	answer(m queue.Message, w *queue.Wake)
}

// Others are the other members of a cluster, as far as clients of this node have to do with them without a queue in
// between.
type Others interface {
	// Member is this node's number, from 1.
	Member() uint64
	// Reply hands a direct reply to the requester of a name that another member gave out, or drops it. It keeps nothing of name
	// and m.
	Reply(member uint64, name []byte, m queue.Message)
	// Reached reports whether a member is there.
	Reached(member uint64) bool
}

// replies are the requesters of a node that wait for direct replies, by name. A name begins with 48 bits of which, in a
// cluster, the first 16 are the number of the member that knows it.
type replies struct {
	others Others // nil: there are none
	pool   *queue.Pool

	mu     sync.RWMutex // guards byName; a leaf
	byName map[string]*consumer
}

// add gives k a name that nobody can guess.
func (r *replies) add(k *consumer) {
	var secret [18]byte
	rand.Read(secret[:])
	if r.others != nil {
		binary.BigEndian.PutUint16(secret[:], uint16(r.others.Member()))
	}
	text := base64.RawURLEncoding.EncodeToString(secret[:])
	k.replyTo = replyQueue + "." + text[:8] + "." + text[8:]
	r.mu.Lock()
	if r.byName == nil {
		r.byName = make(map[string]*consumer)
	}
	r.byName[k.replyTo] = k
	r.mu.Unlock()
}

func (r *replies) remove(k *consumer) {
	r.mu.Lock()
	delete(r.byName, k.replyTo)
	r.mu.Unlock()
}

// find looks for the requester that key names. known is true for a name of the right form: its message is not unroutable
// even if the requester is gone.
func (r *replies) find(key []byte) (to requester, known bool) {
	r.mu.RLock()
	k := r.byName[string(key)]
	r.mu.RUnlock()
	if k != nil {
		return k, true
	}
	a, b, ok := strings.Cut(string(key[len(replyPrefix):]), ".")
	known = ok && len(a) == 8 && len(b) == 16 && isBase64URL(a) && isBase64URL(b)
	if member := r.elsewhere(a); known && member != 0 {
		return &distant{r, member, string(key)}, true
	}
	return nil, known
}

// elsewhere is the member that gave out a name which begins so, 0 if it is this one.
func (r *replies) elsewhere(name string) uint64 {
	if r.others == nil {
		return 0
	}
	b, err := base64.RawURLEncoding.DecodeString(name)
	if err != nil || len(b) < 2 {
		return 0
	}
	if member := uint64(binary.BigEndian.Uint16(b)); member != r.others.Member() {
		return member
	}
	return 0
}

// distant is a requester of another node.
type distant struct {
	replies *replies
	member  uint64
	name    string
}

func (d *distant) answer(m queue.Message, _ *queue.Wake) {
	d.replies.others.Reply(d.member, []byte(d.name), m)
	d.replies.pool.Release(m.Ref.Slab, 1)
}

// live reports whether name is that of a requester, or of another node that is there: only that one knows.
func (r *replies) live(name string) bool {
	r.mu.RLock()
	k := r.byName[name]
	r.mu.RUnlock()
	if k != nil || r.others == nil || !strings.HasPrefix(name, string(replyPrefix)) {
		return k != nil
	}
	a, _, _ := strings.Cut(name[len(replyPrefix):], ".")
	member := r.elsewhere(a)
	return member != 0 && r.others.Reached(member)
}

// Reply is a direct reply that a client of another node gave to a requester of this one. The reference of m passes to it.
func (s *Server) Reply(name []byte, m queue.Message) {
	s.replies.mu.RLock()
	k := s.replies.byName[string(name)]
	s.replies.mu.RUnlock()
	if k == nil {
		s.pool.Release(m.Ref.Slab, 1)
		return
	}
	var w queue.Wake
	k.answer(m, &w)
	w.Flush()
}

func isBase64URL(s string) bool {
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// answer puts a reply into the requester's outbox, or drops it if too many wait there. The reference of m passes to it.
func (k *consumer) answer(m queue.Message, w *queue.Wake) {
	k.channel.conn.put(w, item{kind: itemDeliver, channel: k.channel, consumer: k, offered: queue.Offered{Message: m}})
}

// endReply ends the channel's direct reply-to consumer, if it has one.
func (ch *channel) endReply() {
	if k := ch.replies; k != nil {
		ch.conn.server.replies.remove(k)
		ch.mu.Lock()
		ch.replies = nil
		ch.mu.Unlock()
		k.close()
	}
}
