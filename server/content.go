package server

import (
	"encoding/binary"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// content is a basic.publish that is looked at frame by frame: because it is large, cut into pieces, interleaved with
// other channels, or wrong. Its memory grows with what has arrived, not with what was announced, and is counted in the
// pool meanwhile.
type content struct {
	stage                contentStage
	mandatory, immediate bool
	discard              bool   // the body is too large for max_message_size: count it, keep nothing
	size                 uint64 // of the body, as announced
	left                 uint64
	bytes                []byte // the message as it will be stored; only exchange and key until the header comes
	names                int    // octets of exchange and key
	frames               queue.Assembly
	charged              int // octets counted in the pool
}

type contentStage uint8

const (
	noContent contentStage = iota
	wantContentHeader
	wantBody
)

// maxBody is the largest body that RabbitMQ reads to its end, whatever max_message_size says.
const maxBody = 512 << 20

// contentFrame handles a frame of a channel whose content is being gathered, or one that should belong to a content.
// Errors close the connection.
func (ch *channel) contentFrame(f *amqp.Frame) *amqp.Error {
	p := &ch.content
	switch p.stage {
	case noContent:
		return amqp.Errorf(amqp.UnexpectedFrame, "expected method frame, got non method frame instead")
	case wantContentHeader:
		if f.Type != amqp.FrameHeader || binary.BigEndian.Uint16(f.Payload[2:]) != 0 {
			return amqp.Errorf(amqp.UnexpectedFrame, "expected content header for class 60, got non content header frame instead").In(amqp.BasicPublishID)
		}
		if class := binary.BigEndian.Uint16(f.Payload); class != amqp.ClassBasic {
			return amqp.Errorf(amqp.UnexpectedFrame, "expected content header for class 60, got one for class %d instead", class).In(amqp.BasicPublishID)
		}
		return ch.contentHeader(f.Payload)
	}
	if f.Type != amqp.FrameBody {
		return amqp.Errorf(amqp.UnexpectedFrame, "expected content body, got non content body frame instead").In(amqp.BasicPublishID)
	}
	if uint64(len(f.Payload)) > p.left {
		return amqp.Errorf(amqp.FrameError, "content body frame exceeds remaining content size").In(amqp.BasicPublishID)
	}
	p.left -= uint64(len(f.Payload))
	if p.left > 0 && !ch.conn.charge(p, len(f.Payload)) {
		return amqp.Errorf(amqp.ResourceError, "too many octets of incomplete contents on one connection").In(amqp.BasicPublishID)
	}
	if !p.discard {
		p.frames.Write(f.Payload)
	}
	if p.left == 0 {
		ch.contentComplete()
	}
	return nil
}

// charge counts octets of an incomplete content in the pool. It returns false when the connection's incomplete contents
// are more than one connection may keep the node's memory from others with.
func (c *conn) charge(p *content, n int) bool {
	if p.discard {
		return true
	}
	p.charged += n
	c.gathered += n
	c.server.pool.Charge(n)
	return c.gathered <= max(c.server.options.MaxMessageSize+1<<20, int(c.server.pool.Bound()/4))
}

// dropContent forgets what has arrived of a content.
func (c *conn) dropContent(p *content) {
	c.gathered -= p.charged
	c.server.pool.Charge(-p.charged)
	*p = content{}
}

// beginContent starts a content with its method.
func (ch *channel) beginContent(m *amqp.BasicPublish) {
	p, c := &ch.content, ch.conn
	b := append(c.spare[:0], byte(len(m.Exchange)))
	c.spare = nil
	b = append(b, m.Exchange...)
	b = append(b, byte(len(m.RoutingKey)))
	b = append(b, m.RoutingKey...)
	*p = content{stage: wantContentHeader, mandatory: m.Mandatory, immediate: m.Immediate, bytes: b, names: len(b)}
}

func (ch *channel) contentHeader(payload []byte) *amqp.Error {
	p := &ch.content
	p.size = binary.BigEndian.Uint64(payload[4:])
	if p.size > maxBody {
		return amqp.Errorf(amqp.FrameError, "content body size %d exceeds maximum allowed size %d", p.size, maxBody).In(amqp.BasicPublishID)
	}
	p.left = p.size
	p.discard = p.size > uint64(ch.conn.server.options.MaxMessageSize)
	p.stage = wantBody
	if !p.discard {
		if p.left > 0 && !ch.conn.charge(p, len(payload)) {
			return amqp.Errorf(amqp.ResourceError, "too many octets of incomplete contents on one connection").In(amqp.BasicPublishID)
		}
		exchange, key := splitNames(p.bytes)
		p.bytes = queue.AppendStored(p.bytes[:0], exchange, key, payload) // exchange and key stay where they are
		p.frames = queue.NewAssembly(p.bytes, int(p.size), int(ch.conn.pieceMax()))
	}
	if p.left == 0 {
		ch.contentComplete()
	}
	return nil
}

// pieceMax is the size of the frames that assembled bodies are kept in.
func (c *conn) pieceMax() uint32 {
	if c.frameMax == 0 {
		return 128 << 10
	}
	return min(c.frameMax, 128<<10)
}

// maxSpareContent is the largest buffer that a connection keeps for its next content.
const maxSpareContent = 16 << 10

func (ch *channel) contentComplete() {
	c, p := ch.conn, ch.content
	ch.content.bytes = nil
	c.dropContent(&ch.content)
	if p.discard {
		limit := c.server.options.MaxMessageSize
		c.raise(ch, amqp.Errorf(amqp.PreconditionFailed, "message size %d is larger than configured max size %d", p.size, limit).In(amqp.BasicPublishID))
		return
	}
	b := p.frames.Bytes()
	in := incoming{names: b[:p.names], mandatory: p.mandatory, immediate: p.immediate, header: queue.ParseStored(b).Header}
	m := queue.Message{Size: uint32(p.size), TTL: -1}
	if len(b) <= inPlaceBody {
		var dst []byte
		m.Ref, dst = c.server.pool.Reserve(len(b), 1)
		copy(dst, b)
	} else {
		m.Ref = c.server.pool.Adopt(b, 1)
	}
	if err := c.accept(ch, &in, m, false, func() {}); err != nil {
		c.raise(ch, err.In(amqp.BasicPublishID))
	}
	if cap(b) <= maxSpareContent {
		c.spare = b
	}
}
