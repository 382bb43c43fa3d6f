package server

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"sync"

	"github.com/warrenmq/warren/queue"
)

// replyQueue is the pseudo-queue of direct reply-to (RabbitMQ docs: direct reply-to). Who consumes from it gets a name of
// its own, under which replies go straight into its outbox.
const replyQueue = "amq.rabbitmq.reply-to"

var replyPrefix = []byte(replyQueue + ".")

// replies are the requesters of a node that wait for direct replies, by name.
type replies struct {
	mu     sync.RWMutex // guards byName; a leaf
	byName map[string]*consumer
}

// add gives k a name that nobody can guess.
func (r *replies) add(k *consumer) {
	var secret [18]byte
	rand.Read(secret[:])
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
func (r *replies) find(key []byte) (k *consumer, known bool) {
	r.mu.RLock()
	k = r.byName[string(key)]
	r.mu.RUnlock()
	if k != nil {
		return k, true
	}
	a, b, ok := strings.Cut(string(key[len(replyPrefix):]), ".")
	return nil, ok && len(a) == 8 && len(b) == 16 && isBase64URL(a) && isBase64URL(b)
}

// live reports whether name is that of a requester.
func (r *replies) live(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byName[name] != nil
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
