package server

import (
	"encoding/binary"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// content is a basic.publish that is looked at frame by frame: because it is large, cut into pieces, interleaved with
// other channels, or wrong. Its memory grows with what has arrived, not with what was announced.
type content struct {
	in      incoming
	stage   contentStage
	names   []byte // in.names lies here
	head    []byte // in.header lies here
	size    uint64 // of the body, as announced
	left    uint64
	discard bool // the body is too large for max_message_size: count it, keep nothing
	bytes   []byte
	frames  queue.Assembly
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
	if !p.discard {
		p.frames.Write(f.Payload)
	}
	if p.left == 0 {
		ch.contentComplete()
	}
	return nil
}

// begin starts a content with its method.
func (p *content) begin(m *amqp.BasicPublish) {
	names := append(p.names[:0], byte(len(m.Exchange)))
	names = append(names, m.Exchange...)
	names = append(names, byte(len(m.RoutingKey)))
	names = append(names, m.RoutingKey...)
	p.names = names
	p.in = incoming{names: names, mandatory: m.Mandatory, immediate: m.Immediate}
	p.stage = wantContentHeader
}

func (ch *channel) contentHeader(payload []byte) *amqp.Error {
	p := &ch.content
	p.size = binary.BigEndian.Uint64(payload[4:])
	if p.size > maxBody {
		return amqp.Errorf(amqp.FrameError, "content body size %d exceeds maximum allowed size %d", p.size, maxBody).In(amqp.BasicPublishID)
	}
	p.left = p.size
	p.head = append(p.head[:0], payload...)
	p.in.header = p.head
	p.discard = p.size > uint64(ch.conn.server.options.MaxMessageSize)
	p.stage = wantBody
	if !p.discard {
		exchange, key := p.in.split()
		p.bytes = queue.AppendStored(p.bytes[:0], exchange, key, p.head)
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

func (ch *channel) contentComplete() {
	c, p := ch.conn, &ch.content
	p.stage = noContent
	if p.discard {
		limit := c.server.options.MaxMessageSize
		c.raise(ch, amqp.Errorf(amqp.PreconditionFailed, "message size %d is larger than configured max size %d", p.size, limit).In(amqp.BasicPublishID))
		return
	}
	m := queue.Message{Size: uint32(p.size), TTL: -1}
	p.bytes = p.frames.Bytes()
	if len(p.bytes) <= inPlaceBody {
		ref, dst := c.server.pool.Reserve(len(p.bytes), 1)
		copy(dst, p.bytes)
		m.Ref = ref
	} else {
		m.Ref = c.server.pool.Adopt(p.bytes, 1)
		p.bytes = nil
	}
	p.frames = queue.Assembly{}
	if err := c.accept(ch, &p.in, m, false, func() {}); err != nil {
		c.raise(ch, err.In(amqp.BasicPublishID))
	}
}
