package message

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// ErrEncoded is of a message whose type is amqp-1.0 and whose body is no such thing. RabbitMQ closes the publisher's connection
// with 541.
var ErrEncoded = errors.New("stream: a body of type amqp-1.0 is not encoded as AMQP 1.0")

// The annotations that the mapping uses itself. A publisher's headers of these names are dropped.
const (
	annotationExchange = "x-exchange"
	annotationKey      = "x-routing-key"
	annotationCC       = "x-cc"
	annotationDeaths   = "x-opt-deaths"
	annotationReceived = "x-opt-rabbitmq-received-time"
	basicPrefix        = "x-basic-"
	annotationType     = basicPrefix + "type"
	typeEncoded        = "amqp-1.0"
	filterHeader       = "x-stream-filter-value"
	uuidPrefix         = "urn:uuid:"
	queuesPrefix       = "/queues/"
)

// Append appends a message as a stream's entry. history tells that the header x-death was written by a broker; a publisher's
// own is dropped on delivery. filter is the value for the chunk's bloom filter, a view of the message, empty if there is none.
// Errors are ErrEncoded and amqp.ErrProperties; dst is returned unchanged then.
func Append(dst []byte, m queue.Stored, history bool) (entry, filter []byte, err error) {
	h, err := amqp.ParseHeader(m.Header)
	if err != nil {
		return dst, nil, err
	}
	headers, _ := h.Headers()
	kind, hasType := h.Type()
	encoded := string(kind) == typeEncoded
	out := appendHeader(dst, &h)
	out, filter, others := appendAnnotations(out, m, headers, history, kind, hasType && !encoded)
	out = appendProperties(out, &h)
	if others {
		out = appendApplication(out, headers)
	}
	if encoded {
		start := len(out)
		if out = m.AppendBody(out); !validBody(out[start:]) {
			return dst, nil, ErrEncoded
		}
		return out, filter, nil
	}
	out = appendSection(out, sectionData)
	if h.BodySize <= 255 {
		out = append(out, codeBin8, byte(h.BodySize))
	} else {
		out = binary.BigEndian.AppendUint32(append(out, codeBin32), uint32(h.BodySize))
	}
	return m.AppendBody(out), filter, nil
}

// appendHeader appends the header section.
func appendHeader(dst []byte, h *amqp.Header) []byte {
	dst = appendSection(dst, sectionHeader)
	start := len(dst)
	dst = beginCompound(dst, codeList8)
	durable := byte(codeFalse)
	if h.Persistent() {
		durable = codeTrue
	}
	dst = append(dst, durable)
	if p, ok := h.Priority(); ok {
		dst = append(dst, codeUbyte, p)
	} else {
		dst = append(dst, codeNull)
	}
	if ttl, ok := expiration(h); ok {
		dst = binary.BigEndian.AppendUint32(append(dst, codeUint), ttl)
	} else {
		dst = append(dst, codeNull)
	}
	dst = append(dst, codeTrue, codeUint0) // first-acquirer, delivery-count
	return endCompound(dst, start, 5)
}

func expiration(h *amqp.Header) (uint32, bool) {
	text, ok := h.Expiration()
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text), 10, 32)
	return uint32(n), err == nil
}

// appendAnnotations appends the message annotations. others: there are headers for the application properties.
func appendAnnotations(dst []byte, m queue.Stored, headers amqp.Table, history bool, kind []byte, hasType bool) (out, filter []byte, others bool) {
	dst = appendSection(dst, sectionMessageAnnotations)
	start, n := len(dst), 0
	dst = beginCompound(dst, codeMap8)
	for key, v := range headers.All() {
		before := len(dst)
		ok := false
		switch {
		case string(key) == "CC" && v.Tag == amqp.TagArray:
			dst = appendVariable(dst, codeSym8, annotationCC)
			dst, ok = appendValue(dst, v, true)
		case string(key) == "CC" || string(key) == "BCC":
		case !bytes.HasPrefix(key, []byte("x-")):
			others = true
		case string(key) == "x-death" && history:
			dst = appendVariable(dst, codeSym8, annotationDeaths)
			dst, ok = appendDeaths(dst, v)
		case ours(key):
		default:
			if string(key) == filterHeader && v.Tag == amqp.TagString && utf8.Valid(v.Raw) && filter == nil {
				filter = v.Raw
			}
			dst = appendVariable(dst, codeSym8, key)
			dst, ok = appendValue(dst, v, true)
		}
		if !ok {
			dst = dst[:before]
			continue
		}
		n += 2
	}
	if hasType {
		dst = appendVariable(dst, codeSym8, annotationType)
		dst = appendVariable(dst, codeStr8, kind)
		n += 2
	}
	dst = appendVariable(dst, codeSym8, annotationExchange)
	dst = appendVariable(dst, codeStr8, m.Exchange)
	dst = appendVariable(dst, codeSym8, annotationKey)
	dst = appendVariable(dst, codeStr8, m.Key)
	return endCompound(dst, start, n+4), filter, others
}

// ours tells the headers that would be taken for what the mapping writes itself.
func ours(key []byte) bool {
	switch string(key) {
	case annotationExchange, annotationKey, annotationCC, annotationDeaths, annotationReceived:
		return true
	}
	return bytes.HasPrefix(key, []byte(basicPrefix))
}

// appendProperties appends the properties section, if there is anything in it.
func appendProperties(dst []byte, h *amqp.Header) []byte {
	const wanted = amqp.MessageID | amqp.UserID | amqp.ReplyTo | amqp.CorrelationID | amqp.ContentType | amqp.ContentEncoding | amqp.Timestamp | amqp.AppID
	if h.Set()&wanted == 0 {
		return dst
	}
	dst = appendSection(dst, sectionProperties)
	start := len(dst)
	dst = beginCompound(dst, codeList8)
	end, n := len(dst), 0 // behind the last field that is there
	for field := range 11 {
		before := len(dst)
		switch field {
		case 0:
			dst = appendID(dst, h.MessageID)
		case 1:
			dst = appendField(dst, codeBin8, h.UserID)
		case 4:
			if v, ok := h.ReplyTo(); ok {
				dst = appendReplyTo(dst, v)
			}
		case 5:
			dst = appendID(dst, h.CorrelationID)
		case 6:
			dst = appendField(dst, codeSym8, h.ContentType)
		case 7:
			dst = appendField(dst, codeSym8, h.ContentEncoding)
		case 9:
			if t, ok := h.Timestamp(); ok {
				dst = appendTime(dst, t)
			}
		case 10:
			dst = appendField(dst, codeStr8, h.AppID)
		}
		if len(dst) > before {
			end, n = len(dst), field+1
		} else {
			dst = append(dst, codeNull)
		}
	}
	return endCompound(dst[:end], start, n)
}

func appendField(dst []byte, short byte, get func() ([]byte, bool)) []byte {
	if v, ok := get(); ok {
		return appendVariable(dst, short, v)
	}
	return dst
}

// appendID appends a message or correlation id.
func appendID(dst []byte, get func() ([]byte, bool)) []byte {
	v, ok := get()
	if !ok {
		return dst
	}
	if id, ok := parseUUID(v); ok {
		return append(append(dst, codeUUID), id[:]...)
	}
	return appendVariable(dst, codeStr8, v)
}

// parseUUID reads urn:uuid: and a UUID in lower case, the form that comes back.
func parseUUID(v []byte) (id [16]byte, ok bool) {
	if len(v) != len(uuidPrefix)+36 || string(v[:len(uuidPrefix)]) != uuidPrefix {
		return id, false
	}
	v = v[len(uuidPrefix):]
	n := 0
	for i := 0; i < len(v); {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if v[i] != '-' {
				return id, false
			}
			i++
			continue
		}
		high, low := hexDigit(v[i]), hexDigit(v[i+1])
		if high|low > 15 {
			return id, false
		}
		id[n] = high<<4 | low
		n++
		i += 2
	}
	return id, true
}

func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

func appendUUID(dst, id []byte) []byte {
	dst = append(dst, uuidPrefix...)
	for i := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, id[i:i+1])
	}
	return dst
}

// appendReplyTo appends an address: /queues/ and the name, percent-encoded.
func appendReplyTo(dst, name []byte) []byte {
	var buf [len(queuesPrefix) + 3*amqp.MaxShortstr]byte
	b := append(buf[:0], queuesPrefix...)
	for _, c := range name {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~' {
			b = append(b, c)
			continue
		}
		const digits = "0123456789ABCDEF"
		b = append(b, '%', digits[c>>4], digits[c&15])
	}
	return appendVariable(dst, codeStr8, b)
}

// appendTime appends a time of seconds. What milliseconds cannot count is not there.
func appendTime(dst []byte, seconds uint64) []byte {
	if seconds > math.MaxInt64/1000 {
		return dst
	}
	return binary.BigEndian.AppendUint64(append(dst, codeTimestamp), seconds*1000)
}

// appendApplication appends the application properties.
func appendApplication(dst []byte, headers amqp.Table) []byte {
	whole := len(dst)
	dst = appendSection(dst, sectionApplication)
	start, n := len(dst), 0
	dst = beginCompound(dst, codeMap8)
	for key, v := range headers.All() {
		if bytes.HasPrefix(key, []byte("x-")) || string(key) == "CC" || string(key) == "BCC" || !utf8.Valid(key) {
			continue
		}
		before, ok := len(dst), false
		dst = appendVariable(dst, codeStr8, key)
		if dst, ok = appendValue(dst, v, false); !ok {
			dst = dst[:before]
			continue
		}
		n += 2
	}
	if n == 0 {
		return dst[:whole]
	}
	return endCompound(dst, start, n)
}

// appendValue appends a field value. It is false for those that have no encoding: decimals, and tables and arrays unless they
// are allowed. What has none within a table or array is left out of it.
func appendValue(dst []byte, v amqp.Value, compound bool) ([]byte, bool) {
	switch v.Tag {
	case amqp.TagString:
		return appendText(dst, v.Raw), true
	case amqp.TagBinary:
		return appendVariable(dst, codeBin8, v.Raw), true
	case amqp.TagBool:
		if b, _ := v.Bool(); b {
			return append(dst, codeTrue), true
		}
		return append(dst, codeFalse), true
	case amqp.TagVoid:
		return append(dst, codeNull), true
	case amqp.TagTimestamp:
		t, _ := v.Timestamp()
		out := appendTime(dst, t)
		return out, len(out) > len(dst)
	case amqp.TagTable:
		if !compound {
			return dst, false
		}
		start, n, ok := len(dst), 0, false
		dst = beginCompound(dst, codeMap8)
		for key, e := range amqp.Table(v.Raw).All() {
			before := len(dst)
			dst = appendVariable(dst, codeSym8, key)
			if dst, ok = appendValue(dst, e, true); !ok {
				dst = dst[:before]
				continue
			}
			n += 2
		}
		return endCompound(dst, start, n), true
	case amqp.TagArray:
		if !compound {
			return dst, false
		}
		start, n, ok := len(dst), 0, false
		dst = beginCompound(dst, codeList8)
		for e := range amqp.Array(v.Raw).All() {
			if dst, ok = appendValue(dst, e, true); ok {
				n++
			}
		}
		return endCompound(dst, start, n), true
	}
	if code := fixedCodes[v.Tag]; code != 0 {
		return append(append(dst, code), v.Raw...), true
	}
	return dst, false
}

// fixedCodes are the constructors of field types whose octets are the same in AMQP 1.0.
var fixedCodes = [256]byte{
	amqp.TagInt8: codeByte, amqp.TagUint8: codeUbyte, amqp.TagInt16: codeShort, amqp.TagUint16: codeUshort,
	amqp.TagInt32: codeInt, amqp.TagUint32: codeUint, amqp.TagInt64: codeLong, amqp.TagInt64L: codeLong,
	amqp.TagFloat: codeFloat, amqp.TagDouble: codeDouble,
}

// validBody tells whether b is body sections, with or without a footer: data, or sequences, or one value.
func validBody(b []byte) bool {
	kind, n := byte(0), 0
	for len(b) > 0 {
		code, v, _, rest, ok := nextSection(b)
		switch {
		case !ok, kind == sectionFooter:
			return false
		case code == sectionFooter:
			if _, _, ok := v.pairs(); !ok || n == 0 {
				return false
			}
		case code < sectionData, kind != 0 && (code != kind || code == sectionValue):
			return false
		case code == sectionData:
			if _, ok := v.binary(); !ok {
				return false
			}
		case code == sectionSequence:
			if _, _, ok := v.list(); !ok {
				return false
			}
		}
		kind, b, n = code, rest, n+1
	}
	return n > 0
}
