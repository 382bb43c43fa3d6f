package message

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/warrenmq/warren/amqp"
)

// Delivery is an entry as an AMQP 0-9-1 message. It is filled by Decode, which reuses its memory; all of it are views of that
// and of the entry.
type Delivery struct {
	// Exchange and Key are those it was published with. From is false if the entry does not say: they are then the default
	// exchange and the stream's name.
	Exchange, Key []byte
	From          bool
	// Header is the payload of the content header frame. It may be longer than a frame can be: then it cannot be delivered.
	Header []byte
	// Body are the pieces of the body, and Size their octets.
	Body [][]byte
	Size int

	props  [14][]byte // short strings
	set    amqp.PropertySet
	mode   byte
	prio   byte
	time   uint64
	fields []field
	made   []byte // what fields and properties need that is no view of the entry

	// What came last, for those that differ from it in their body only, as a publisher's often do.
	before   []byte // all before the body, which is the rest
	names    []byte // exchange and key
	offsetAt int    // where Header has the offset
}

// field is a header: made of a value of the entry, or a field that is encoded already.
type field struct {
	key   []byte
	value value
	field []byte
}

// The keys of the headers that are made here.
var (
	offsetKey   = []byte("x-stream-offset")
	ccKey       = []byte("CC")
	deathKey    = []byte("x-death")
	receivedKey = []byte("timestamp_in_ms")
	messageKey  = []byte("x-message-id")
	relationKey = []byte("x-correlation-id")
	xPrefix     = []byte("x-")
	basic       = []byte(basicPrefix)
)

// Decode fills d with an entry. ErrMessage is of an entry that is no AMQP 1.0 message; d holds nothing then.
func (d *Delivery) Decode(entry []byte, offset uint64) error {
	if d.again(entry, offset) {
		return nil
	}
	d.reset()
	d.made = binary.BigEndian.AppendUint64(append(d.made, amqp.TagInt64), offset)
	d.fields = append(d.fields, field{key: offsetKey, field: d.made}) // before a publisher's: the first counts
	hasHeader, kind, lone := false, byte(0), 0
	for b := entry; len(b) > 0; {
		code, v, whole, rest, ok := nextSection(b)
		if !ok {
			return d.fail()
		}
		b = rest
		switch code {
		case sectionHeader:
			hasHeader, ok = true, d.header(v)
		case sectionMessageAnnotations:
			ok = d.annotations(v, hasHeader)
		case sectionProperties:
			ok = d.properties(v)
		case sectionApplication:
			ok = d.application(v)
		case sectionData:
			var data []byte
			if data, ok = v.binary(); ok && kind == 0 && len(rest) == 0 {
				lone = len(entry) - len(data) - v.lead()
			}
			if ok && (kind == 0 || kind == sectionData) {
				d.Body, d.Size, kind = append(d.Body, data), d.Size+len(data), sectionData
			}
		case sectionSequence, sectionValue, sectionFooter:
			if code == sectionFooter && (kind == sectionData || kind == 0) {
				continue
			}
			d.Body, d.Size, kind = append(d.Body, whole), d.Size+len(whole), code
			d.text(amqp.Type, []byte(typeEncoded))
		}
		if !ok {
			return d.fail()
		}
	}
	if kind == 0 && len(entry) == 0 {
		return d.fail()
	}
	if !hasHeader && d.set&amqp.DeliveryMode == 0 {
		d.mode = amqp.Persistent // AMQP 1.0 says false; RabbitMQ's default says true
	}
	d.encode()
	if lone > 0 {
		d.remember(entry, lone)
	}
	return nil
}

// remember keeps what again needs. The data section, which is the end of the entry, has the constructor of its value at at.
func (d *Delivery) remember(entry []byte, at int) {
	d.before = append(d.before[:0], entry[:at]...)
	d.names = append(append(d.names[:0], d.Exchange...), d.Key...)
	d.Exchange, d.Key = d.names[:len(d.Exchange):len(d.Exchange)], d.names[len(d.Exchange):]
}

// again fills d with an entry that is, but for its body, the one that came last.
func (d *Delivery) again(entry []byte, offset uint64) bool {
	n := len(d.before)
	if n == 0 || len(entry) < n || !bytes.Equal(entry[:n], d.before) {
		return false
	}
	data, ok := dataAt(entry, n)
	if !ok {
		return false
	}
	d.Body, d.Size = append(d.Body[:0], data), len(data)
	binary.BigEndian.PutUint64(d.Header[4:], uint64(len(data)))
	binary.BigEndian.PutUint64(d.Header[d.offsetAt:], offset)
	return true
}

// dataAt is the value of a data section that is the end of an entry. Its constructor stands at at.
func dataAt(entry []byte, at int) ([]byte, bool) {
	v, rest, ok := nextValue(entry[at:])
	data, isBinary := v.binary()
	return data, ok && isBinary && len(rest) == 0
}

func (d *Delivery) reset() {
	clear(d.props[:])
	clear(d.Body)
	clear(d.fields)
	d.Exchange, d.Key, d.From = nil, nil, false
	d.Body, d.Size, d.fields, d.made = d.Body[:0], 0, d.fields[:0], d.made[:0]
	d.set, d.mode, d.prio, d.time = 0, amqp.Transient, 0, 0
	d.before = d.before[:0]
}

func (d *Delivery) fail() error {
	d.reset()
	d.Header = d.Header[:0]
	return ErrMessage
}

// place is the place of a property in props.
func place(p amqp.PropertySet) int { return bits.TrailingZeros16(uint16(p / amqp.ClusterID)) }

// text sets a property that is a short string, if v can be one.
func (d *Delivery) text(p amqp.PropertySet, v []byte) bool {
	if len(v) > amqp.MaxShortstr {
		return false
	}
	d.set |= p
	d.props[place(p)] = v
	return true
}

// header reads the header section.
func (d *Delivery) header(v value) bool {
	n, items, ok := v.list()
	if !ok {
		return false
	}
	for i := range n {
		var e value
		if e, items, ok = nextValue(items); !ok {
			return false
		}
		switch i {
		case 0:
			if durable, _ := e.boolean(); durable {
				d.mode = amqp.Persistent
			}
		case 1:
			if p, ok := e.unsigned(); ok {
				d.priority(p)
			}
		case 2:
			if ttl, ok := e.unsigned(); ok {
				d.expiration(ttl)
			}
		default:
			return true
		}
	}
	return true
}

func (d *Delivery) priority(p uint64) {
	d.set |= amqp.Priority
	d.prio = byte(min(p, 255))
}

func (d *Delivery) expiration(ttl uint64) {
	at := len(d.made)
	d.made = strconv.AppendUint(d.made, ttl, 10)
	d.text(amqp.Expiration, d.made[at:])
}

// annotations reads the message annotations. Those of properties that the header section has do not count.
func (d *Delivery) annotations(v value, hasHeader bool) bool {
	n, items, ok := v.pairs()
	if !ok {
		return false
	}
	for range n / 2 {
		key, rest, ok := nextValue(items)
		if !ok {
			return false
		}
		e, rest, ok := nextValue(rest)
		if !ok {
			return false
		}
		items = rest
		name, isSymbol := key.symbol()
		if !isSymbol || len(name) > amqp.MaxShortstr || !bytes.HasPrefix(name, xPrefix) {
			continue
		}
		switch string(name) {
		case annotationExchange:
			if text, ok := e.text(); ok && len(text) <= amqp.MaxShortstr {
				d.Exchange, d.From = text, true
			}
		case annotationKey:
			if text, ok := e.text(); ok && len(text) <= amqp.MaxShortstr {
				d.Key, d.From = text, true
			}
		case annotationCC:
			d.fields = append(d.fields, field{key: ccKey, value: e})
		case annotationDeaths:
			if deaths := deathsOf(e); deaths != nil {
				f := binary.BigEndian.AppendUint32([]byte{amqp.TagArray}, uint32(len(deaths)))
				d.fields = append(d.fields, field{key: deathKey, field: append(f, deaths...)})
			}
		case annotationReceived:
			if e.code == codeTimestamp {
				d.fields = append(d.fields, field{key: receivedKey, field: append([]byte{amqp.TagInt64}, e.raw...)})
			}
		case "x-death":
		default:
			if bytes.HasPrefix(name, basic) {
				d.basic(name, e, hasHeader)
				continue
			}
			d.fields = append(d.fields, field{key: name, value: e})
		}
	}
	return true
}

// basic reads an annotation that stands for a property.
func (d *Delivery) basic(name []byte, e value, hasHeader bool) {
	switch string(name[len(basicPrefix):]) {
	case "type":
		if text, ok := e.text(); ok {
			d.text(amqp.Type, text)
		}
	case "delivery-mode":
		if mode, ok := e.unsigned(); ok && !hasHeader {
			d.set |= amqp.DeliveryMode
			if mode == amqp.Persistent {
				d.mode = amqp.Persistent
			}
		}
	case "priority":
		if p, ok := e.unsigned(); ok && d.set&amqp.Priority == 0 {
			d.priority(p)
		}
	case "expiration":
		if text, ok := e.text(); ok && d.set&amqp.Expiration == 0 {
			d.text(amqp.Expiration, text)
		}
	}
}

// properties reads the properties section.
func (d *Delivery) properties(v value) bool {
	n, items, ok := v.list()
	if !ok {
		return false
	}
	for i := range n {
		var e value
		if e, items, ok = nextValue(items); !ok {
			return false
		}
		if e.code == codeNull {
			continue
		}
		switch i {
		case 0:
			d.id(amqp.MessageID, messageKey, e)
		case 1:
			if b, ok := e.binary(); ok && utf8.Valid(b) {
				d.text(amqp.UserID, b)
			}
		case 4:
			if text, ok := e.text(); ok {
				d.replyTo(text)
			}
		case 5:
			d.id(amqp.CorrelationID, relationKey, e)
		case 6:
			if s, ok := e.symbol(); ok {
				d.text(amqp.ContentType, s)
			}
		case 7:
			if s, ok := e.symbol(); ok {
				d.text(amqp.ContentEncoding, s)
			}
		case 9:
			if e.code == codeTimestamp {
				d.set |= amqp.Timestamp
				d.time = uint64(max(int64(binary.BigEndian.Uint64(e.raw)), 0)) / 1000
			}
		case 10:
			if text, ok := e.text(); ok {
				d.text(amqp.AppID, text)
			}
		}
	}
	return true
}

// id reads a message or correlation id. What is no short string becomes a header.
func (d *Delivery) id(p amqp.PropertySet, header []byte, e value) {
	if text, ok := e.text(); ok {
		if !d.text(p, text) {
			d.fields = append(d.fields, field{key: header, value: e})
		}
		return
	}
	if b, ok := e.binary(); ok {
		f := binary.BigEndian.AppendUint32([]byte{amqp.TagBinary}, uint32(len(b)))
		d.fields = append(d.fields, field{key: header, field: append(f, b...)})
		return
	}
	at := len(d.made)
	if e.code == codeUUID {
		d.made = appendUUID(d.made, e.raw)
	} else if n, ok := e.unsigned(); ok {
		d.made = strconv.AppendUint(d.made, n, 10)
	} else {
		return
	}
	d.text(p, d.made[at:])
}

// replyTo reads an address.
func (d *Delivery) replyTo(text []byte) {
	name, found := bytes.CutPrefix(text, []byte(queuesPrefix))
	if !found || bytes.IndexByte(name, '%') < 0 {
		d.text(amqp.ReplyTo, name)
		return
	}
	at := len(d.made)
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '%' {
			if i+2 >= len(name) {
				d.text(amqp.ReplyTo, text)
				return
			}
			high, low := hexDigit(name[i+1]|0x20), hexDigit(name[i+2]|0x20)
			if high|low > 15 {
				d.text(amqp.ReplyTo, text)
				return
			}
			c, i = high<<4|low, i+2
		}
		d.made = append(d.made, c)
	}
	d.text(amqp.ReplyTo, d.made[at:])
}

// application reads the application properties.
func (d *Delivery) application(v value) bool {
	n, items, ok := v.pairs()
	if !ok {
		return false
	}
	for range n / 2 {
		key, rest, ok := nextValue(items)
		if !ok {
			return false
		}
		e, rest, ok := nextValue(rest)
		if !ok {
			return false
		}
		items = rest
		if name, ok := key.text(); ok && len(name) <= amqp.MaxShortstr {
			d.fields = append(d.fields, field{key: name, value: e})
		}
	}
	return true
}

// encode makes the content header. Headers are sorted, and of those with one key the first counts, as in RabbitMQ's deliveries.
func (d *Delivery) encode() {
	byKey := func(a, b field) int { return bytes.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(d.fields, byKey) {
		slices.SortStableFunc(d.fields, byKey)
	}
	d.set |= amqp.Headers | amqp.DeliveryMode
	h := binary.BigEndian.AppendUint16(d.Header[:0], amqp.ClassBasic)
	h = binary.BigEndian.AppendUint16(h, 0)
	h = binary.BigEndian.AppendUint64(h, uint64(d.Size))
	h = binary.BigEndian.AppendUint16(h, uint16(d.set))
	for p := amqp.ContentType; p >= amqp.ClusterID; p >>= 1 {
		if d.set&p == 0 {
			continue
		}
		switch p {
		case amqp.Headers:
			h = d.table(h)
		case amqp.DeliveryMode:
			h = append(h, d.mode)
		case amqp.Priority:
			h = append(h, d.prio)
		case amqp.Timestamp:
			h = binary.BigEndian.AppendUint64(h, d.time)
		default:
			v := d.props[place(p)]
			h = append(append(h, byte(len(v))), v...)
		}
	}
	d.Header = h
}

// table appends the headers with their length.
func (d *Delivery) table(h []byte) []byte {
	start := len(h)
	h = append(h, 0, 0, 0, 0)
	for i, f := range d.fields {
		if i > 0 && bytes.Equal(f.key, d.fields[i-1].key) {
			continue
		}
		before := len(h)
		h = append(append(h, byte(len(f.key))), f.key...)
		if f.field != nil {
			if string(f.key) == string(offsetKey) {
				d.offsetAt = len(h) + 1
			}
			h = append(h, f.field...)
			continue
		}
		var ok bool
		if h, ok = appendFieldOf(h, f.value, maxDepth); !ok {
			h = h[:before]
		}
	}
	binary.BigEndian.PutUint32(h[start:], uint32(len(h)-start-4))
	return h
}
