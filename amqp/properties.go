package amqp

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// A PropertySet is a set of basic properties, bit by bit as in the property
// flags of a content header (AMQP 0-9-1 §4.2.6.1).
type PropertySet uint16

// The basic properties, in the order in which they follow the flags.
const (
	ContentType PropertySet = 1 << (15 - iota)
	ContentEncoding
	Headers
	DeliveryMode
	Priority
	CorrelationID
	ReplyTo
	Expiration
	MessageID
	Timestamp
	Type
	UserID
	AppID
	ClusterID
)

// reservedFlags are bits that name no property; RabbitMQ ignores them.
const reservedFlags PropertySet = 3

// Has reports whether all properties of q are in p.
func (p PropertySet) Has(q PropertySet) bool { return p&q == q }

// first is the property that comes first in a list; p must not be empty.
func (p PropertySet) first() PropertySet {
	return 1 << (15 - bits.LeadingZeros16(uint16(p)))
}

// The delivery modes. RabbitMQ takes any other for transient.
const (
	Transient  = 1
	Persistent = 2
)

// ErrProperties means that a content header is malformed. RabbitMQ answers it
// with a bare INTERNAL_ERROR once the content is complete.
var ErrProperties = errors.New("amqp: malformed content header")

// headerFixed is the size of a content header without properties.
const headerFixed = 14

// A Header is a content header; Properties are a view of its payload.
type Header struct {
	Class    uint16
	Weight   uint16 // 0
	BodySize uint64
	Properties
}

// Properties is the property list of a content header, a view. The zero value
// has no properties. Each accessor tells whether the property is there; what it
// returns is a view, too.
type Properties struct {
	flags PropertySet
	list  []byte
}

// ParseHeader is [Header.Decode] into a new Header.
func ParseHeader(payload []byte) (h Header, err error) {
	err = h.Decode(payload)
	return h, err
}

// Decode reads the payload of a header frame and validates all of it, headers
// table included. Its error is [ErrProperties]; there are no properties then,
// but class, weight and body size are set whenever payload has the 12 bytes
// that [ParseFrame] demands.
func (h *Header) Decode(payload []byte) error {
	h.Properties = Properties{}
	if len(payload) < headerFixed {
		return h.decodeShort(payload)
	}
	h.Class = binary.BigEndian.Uint16(payload)
	h.Weight = binary.BigEndian.Uint16(payload[2:])
	h.BodySize = binary.BigEndian.Uint64(payload[4:])
	flags := PropertySet(binary.BigEndian.Uint16(payload[12:]))
	list := payload[headerFixed:]
	// Most messages have no properties, or only a delivery mode.
	if !(flags == 0 && len(list) == 0 || flags == DeliveryMode && len(list) == 1) && !validProperties(flags, list) {
		return ErrProperties
	}
	h.Properties = Properties{flags, list}
	return nil
}

// decodeShort decodes a payload that ends before the property flags do.
func (h *Header) decodeShort(payload []byte) error {
	var fixed [headerFixed]byte
	if len(payload) >= 12 {
		copy(fixed[:12], payload)
	}
	h.Class = binary.BigEndian.Uint16(fixed[:])
	h.Weight = binary.BigEndian.Uint16(fixed[2:])
	h.BodySize = binary.BigEndian.Uint64(fixed[4:])
	return ErrProperties
}

// validProperties reports whether list has exactly the properties of the flags.
func validProperties(flags PropertySet, list []byte) bool {
	for left := flags &^ reservedFlags; left != 0; {
		bit := left.first()
		left &^= bit
		n := propertySize(bit, list)
		if n < 0 || bit == Headers && Table(list[4:n]).Validate() != nil {
			return false
		}
		list = list[n:]
	}
	return len(list) == 0
}

// propertySize is the encoded size of the property at the start of list, or -1
// when list ends before it does.
func propertySize(bit PropertySet, list []byte) int {
	n := 1
	switch bit {
	case DeliveryMode, Priority:
	case Timestamp:
		n = 8
	case Headers:
		if len(list) < 4 {
			return -1
		}
		size := binary.BigEndian.Uint32(list)
		if uint64(size) > uint64(len(list)-4) {
			return -1
		}
		return 4 + int(size)
	default:
		if len(list) < 1 {
			return -1
		}
		n = 1 + int(list[0])
	}
	if len(list) < n {
		return -1
	}
	return n
}

// field returns the encoded property.
func (p Properties) field(want PropertySet) ([]byte, bool) {
	if p.flags&want == 0 {
		return nil, false
	}
	list := p.list
	for before := p.flags &^ (want<<1 - 1); before != 0; {
		bit := before.first()
		before &^= bit
		list = list[propertySize(bit, list):]
	}
	return list[:propertySize(want, list)], true
}

func (p Properties) shortstr(want PropertySet) ([]byte, bool) {
	f, ok := p.field(want)
	if !ok {
		return nil, false
	}
	return f[1:len(f):len(f)], true
}

func (p Properties) octet(want PropertySet) (byte, bool) {
	f, ok := p.field(want)
	if !ok {
		return 0, false
	}
	return f[0], true
}

// Set is which properties there are.
func (p Properties) Set() PropertySet { return p.flags &^ reservedFlags }

// ContentType is the MIME type of the body.
func (p Properties) ContentType() ([]byte, bool) { return p.shortstr(ContentType) }

// ContentEncoding is the MIME encoding of the body.
func (p Properties) ContentEncoding() ([]byte, bool) { return p.shortstr(ContentEncoding) }

// Headers is the headers table.
func (p Properties) Headers() (Table, bool) {
	f, ok := p.field(Headers)
	if !ok {
		return nil, false
	}
	return Table(f[4:len(f):len(f)]), true
}

// DeliveryMode is [Transient], [Persistent] or what else the publisher sent.
func (p Properties) DeliveryMode() (byte, bool) {
	if p.flags == DeliveryMode {
		return p.list[0], true
	}
	return p.octet(DeliveryMode)
}

// Persistent reports whether the delivery mode is [Persistent].
func (p Properties) Persistent() bool {
	mode, _ := p.DeliveryMode()
	return mode == Persistent
}

// Priority is the message's priority.
func (p Properties) Priority() (byte, bool) { return p.octet(Priority) }

// CorrelationID is an identifier for the application.
func (p Properties) CorrelationID() ([]byte, bool) { return p.shortstr(CorrelationID) }

// ReplyTo is where the application wants replies.
func (p Properties) ReplyTo() ([]byte, bool) { return p.shortstr(ReplyTo) }

// Expiration is the time to live, by convention decimal milliseconds.
func (p Properties) Expiration() ([]byte, bool) { return p.shortstr(Expiration) }

// MessageID is an identifier for the application.
func (p Properties) MessageID() ([]byte, bool) { return p.shortstr(MessageID) }

// Timestamp is in seconds since 1970.
func (p Properties) Timestamp() (uint64, bool) {
	f, ok := p.field(Timestamp)
	if !ok {
		return 0, false
	}
	return binary.BigEndian.Uint64(f), true
}

// Type is the application's name for the kind of message.
func (p Properties) Type() ([]byte, bool) { return p.shortstr(Type) }

// UserID is the user who published.
func (p Properties) UserID() ([]byte, bool) { return p.shortstr(UserID) }

// AppID is the application that published.
func (p Properties) AppID() ([]byte, bool) { return p.shortstr(AppID) }

// ClusterID is deprecated in AMQP 0-9-1, and passed on.
func (p Properties) ClusterID() ([]byte, bool) { return p.shortstr(ClusterID) }
