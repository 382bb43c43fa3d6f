package amqp

import "encoding/binary"

// A PropertyList holds properties to encode. A property is there when its field
// is not zero or its bit is in Zero, which is how to have an empty string, a
// priority 0 or an empty headers table.
type PropertyList struct {
	ContentType     string
	ContentEncoding string
	Headers         Table // valid
	DeliveryMode    byte
	Priority        byte
	CorrelationID   string
	ReplyTo         string
	Expiration      string
	MessageID       string
	Timestamp       uint64 // seconds since 1970
	Type            string
	UserID          string
	AppID           string
	ClusterID       string
	Zero            PropertySet
}

// Set is which properties there are.
func (l *PropertyList) Set() PropertySet {
	p := l.Zero &^ reservedFlags
	for bit := ContentType; bit >= ClusterID; bit >>= 1 {
		switch bit {
		case Headers:
			if len(l.Headers) > 0 {
				p |= bit
			}
		case DeliveryMode:
			if l.DeliveryMode != 0 {
				p |= bit
			}
		case Priority:
			if l.Priority != 0 {
				p |= bit
			}
		case Timestamp:
			if l.Timestamp != 0 {
				p |= bit
			}
		default:
			if l.shortstr(bit) != "" {
				p |= bit
			}
		}
	}
	return p
}

// shortstr is the short string of that property.
func (l *PropertyList) shortstr(bit PropertySet) string {
	switch bit {
	case ContentType:
		return l.ContentType
	case ContentEncoding:
		return l.ContentEncoding
	case CorrelationID:
		return l.CorrelationID
	case ReplyTo:
		return l.ReplyTo
	case Expiration:
		return l.Expiration
	case MessageID:
		return l.MessageID
	case Type:
		return l.Type
	case UserID:
		return l.UserID
	case AppID:
		return l.AppID
	case ClusterID:
		return l.ClusterID
	}
	return ""
}

// append appends one property, whether it is zero or not.
func (l *PropertyList) append(dst []byte, bit PropertySet) ([]byte, error) {
	switch bit {
	case Headers:
		return appendTable(dst, l.Headers), nil
	case DeliveryMode:
		return append(dst, l.DeliveryMode), nil
	case Priority:
		return append(dst, l.Priority), nil
	case Timestamp:
		return binary.BigEndian.AppendUint64(dst, l.Timestamp), nil
	}
	s := l.shortstr(bit)
	if len(s) > MaxShortstr {
		return dst, ErrTooLong
	}
	return appendShortstr(dst, s), nil
}

// AppendHeader appends the payload of a content header of class basic. Its only
// error is [ErrTooLong]; dst is returned unchanged then.
func AppendHeader(dst []byte, bodySize uint64, l *PropertyList) ([]byte, error) {
	h := Header{Class: ClassBasic, BodySize: bodySize}
	return h.AppendChanged(dst, l, 0)
}

// AppendChanged appends the payload of a content header that is h with the
// properties in set replaced by (or added from) there and those in remove taken
// away; set counts where both name one. All other properties, and the flags
// that name none, are copied byte for byte. h must come from [ParseHeader]
// without error or be made of zero Properties. Its only error is [ErrTooLong]
// for a string in set; dst is returned unchanged then. dst must not overlap h.
func (h Header) AppendChanged(dst []byte, set *PropertyList, remove PropertySet) ([]byte, error) {
	changed := set.Set()
	flags := h.flags&^(remove&^reservedFlags) | changed
	out := binary.BigEndian.AppendUint16(dst, h.Class)
	out = binary.BigEndian.AppendUint16(out, h.Weight)
	out = binary.BigEndian.AppendUint64(out, h.BodySize)
	out = binary.BigEndian.AppendUint16(out, uint16(flags))
	rest := h.list
	for bit := ContentType; bit >= ClusterID; bit >>= 1 {
		n := 0
		if h.flags&bit != 0 {
			n = propertySize(bit, rest)
		}
		if changed&bit != 0 {
			var err error
			if out, err = set.append(out, bit); err != nil {
				return dst, err
			}
		} else if flags&bit != 0 {
			out = append(out, rest[:n]...)
		}
		rest = rest[n:]
	}
	return out, nil
}
