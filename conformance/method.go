package conformance

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// specification lists every method: class.method, name ('+' when content follows), fields in the order of the wire.
// Source: AMQP 0-9-1 with RabbitMQ's extensions.
const specification = `
10.10 connection.start version-major:octet version-minor:octet server-properties:table mechanisms:longstr locales:longstr
10.11 connection.start-ok client-properties:table mechanism:shortstr response:longstr locale:shortstr
10.20 connection.secure challenge:longstr
10.21 connection.secure-ok response:longstr
10.30 connection.tune channel-max:short frame-max:long heartbeat:short
10.31 connection.tune-ok channel-max:short frame-max:long heartbeat:short
10.40 connection.open virtual-host:shortstr reserved-1:shortstr reserved-2:bit
10.41 connection.open-ok known-hosts:shortstr
10.50 connection.close reply-code:short reply-text:shortstr class-id:short method-id:short
10.51 connection.close-ok
10.60 connection.blocked reason:shortstr
10.61 connection.unblocked
10.70 connection.update-secret new-secret:longstr reason:shortstr
10.71 connection.update-secret-ok
20.10 channel.open reserved-1:shortstr
20.11 channel.open-ok channel-id:longstr
20.20 channel.flow active:bit
20.21 channel.flow-ok active:bit
20.40 channel.close reply-code:short reply-text:shortstr class-id:short method-id:short
20.41 channel.close-ok
30.10 access.request realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit
30.11 access.request-ok ticket:short
40.10 exchange.declare ticket:short exchange:shortstr type:shortstr passive:bit durable:bit auto-delete:bit internal:bit nowait:bit arguments:table
40.11 exchange.declare-ok
40.20 exchange.delete ticket:short exchange:shortstr if-unused:bit nowait:bit
40.21 exchange.delete-ok
40.30 exchange.bind ticket:short destination:shortstr source:shortstr routing-key:shortstr nowait:bit arguments:table
40.31 exchange.bind-ok
40.40 exchange.unbind ticket:short destination:shortstr source:shortstr routing-key:shortstr nowait:bit arguments:table
40.51 exchange.unbind-ok
50.10 queue.declare ticket:short queue:shortstr passive:bit durable:bit exclusive:bit auto-delete:bit nowait:bit arguments:table
50.11 queue.declare-ok queue:shortstr message-count:long consumer-count:long
50.20 queue.bind ticket:short queue:shortstr exchange:shortstr routing-key:shortstr nowait:bit arguments:table
50.21 queue.bind-ok
50.30 queue.purge ticket:short queue:shortstr nowait:bit
50.31 queue.purge-ok message-count:long
50.40 queue.delete ticket:short queue:shortstr if-unused:bit if-empty:bit nowait:bit
50.41 queue.delete-ok message-count:long
50.50 queue.unbind ticket:short queue:shortstr exchange:shortstr routing-key:shortstr arguments:table
50.51 queue.unbind-ok
60.10 basic.qos prefetch-size:long prefetch-count:short global:bit
60.11 basic.qos-ok
60.20 basic.consume ticket:short queue:shortstr consumer-tag:shortstr no-local:bit no-ack:bit exclusive:bit nowait:bit arguments:table
60.21 basic.consume-ok consumer-tag:shortstr
60.30 basic.cancel consumer-tag:shortstr nowait:bit
60.31 basic.cancel-ok consumer-tag:shortstr
60.40 basic.publish+ ticket:short exchange:shortstr routing-key:shortstr mandatory:bit immediate:bit
60.50 basic.return+ reply-code:short reply-text:shortstr exchange:shortstr routing-key:shortstr
60.60 basic.deliver+ consumer-tag:shortstr delivery-tag:longlong redelivered:bit exchange:shortstr routing-key:shortstr
60.70 basic.get ticket:short queue:shortstr no-ack:bit
60.71 basic.get-ok+ delivery-tag:longlong redelivered:bit exchange:shortstr routing-key:shortstr message-count:long
60.72 basic.get-empty cluster-id:shortstr
60.80 basic.ack delivery-tag:longlong multiple:bit
60.90 basic.reject delivery-tag:longlong requeue:bit
60.100 basic.recover-async requeue:bit
60.110 basic.recover requeue:bit
60.111 basic.recover-ok
60.120 basic.nack delivery-tag:longlong multiple:bit requeue:bit
60.200 basic.credit consumer-tag:shortstr credit:long drain:bit
85.10 confirm.select nowait:bit
85.11 confirm.select-ok
90.10 tx.select
90.11 tx.select-ok
90.20 tx.commit
90.21 tx.commit-ok
90.30 tx.rollback
90.31 tx.rollback-ok
`

// properties lists the basic properties, most significant flag first.
const properties = `content-type:shortstr content-encoding:shortstr headers:table delivery-mode:octet priority:octet
	correlation-id:shortstr reply-to:shortstr expiration:shortstr message-id:shortstr timestamp:timestamp type:shortstr
	user-id:shortstr app-id:shortstr cluster-id:shortstr`

// A fieldSpec is the name and the domain of a method's field or a property.
type fieldSpec struct{ name, domain string }

// A methodSpec says how one method lies on the wire.
type methodSpec struct {
	class, method uint16
	name          string
	content       bool
	fields        []fieldSpec
}

func (m *methodSpec) field(name string) (fieldSpec, bool) { return findField(m.fields, name) }

func findField(fields []fieldSpec, name string) (fieldSpec, bool) {
	for _, f := range fields {
		if f.name == name {
			return f, true
		}
	}
	return fieldSpec{}, false
}

var (
	methodsByName, methodsByID = parseSpecification(specification)
	propertySpecs              = parseFieldSpecs(strings.Fields(properties))
)

func parseSpecification(text string) (map[string]*methodSpec, map[uint32]*methodSpec) {
	byName, byID := map[string]*methodSpec{}, map[uint32]*methodSpec{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		m := &methodSpec{fields: parseFieldSpecs(words[2:])}
		m.name, m.content = strings.CutSuffix(words[1], "+")
		if _, err := fmt.Sscanf(words[0], "%d.%d", &m.class, &m.method); err != nil {
			panic(err) // a mistake in the constant above
		}
		byName[m.name], byID[methodID(m.class, m.method)] = m, m
	}
	return byName, byID
}

func parseFieldSpecs(words []string) []fieldSpec {
	specs := make([]fieldSpec, len(words))
	for i, w := range words {
		specs[i].name, specs[i].domain, _ = strings.Cut(w, ":")
	}
	return specs
}

func methodID(class, method uint16) uint32 { return uint32(class)<<16 | uint32(method) }

// methodName names a pair of ids as a close method carries them; 0,0 is "none".
func methodName(class, method uint16) string {
	if class == 0 && method == 0 {
		return "none"
	}
	if m := methodsByID[methodID(class, method)]; m != nil {
		return m.name
	}
	return fmt.Sprintf("%d.%d", class, method)
}

// bodyFrames is the name under which a message that came tells in how many frames its body was, as if it were a field.
const bodyFrames = "body-frames"

// A message is one method with its fields by name and, when content follows, its properties and body. Fields and
// properties share one map: AMQP gives no name twice.
type message struct {
	spec   *methodSpec
	values map[string]any
	body   []byte
}

// encodeFields writes values in the order of specs; what is missing is zero.
func encodeFields(dst []byte, specs []fieldSpec, values map[string]any) ([]byte, error) {
	bits, bit := byte(0), 0
	flush := func() {
		if bit > 0 {
			dst, bits, bit = append(dst, bits), 0, 0
		}
	}
	for _, f := range specs {
		v, given := values[f.name]
		if f.domain == "bit" {
			if on, _ := v.(bool); on {
				bits |= 1 << bit
			}
			bit++
			continue
		}
		flush()
		if !given {
			v = zeroOf(f.domain)
		}
		var err error
		if dst, err = appendField(dst, f, v); err != nil {
			return nil, err
		}
	}
	flush()
	return dst, nil
}

func zeroOf(domain string) any {
	switch domain {
	case "shortstr", "longstr":
		return ""
	case "table":
		return table{}
	}
	return uint64(0)
}

func appendField(dst []byte, f fieldSpec, v any) ([]byte, error) {
	switch f.domain {
	case "shortstr", "longstr":
		s, ok := v.(string)
		if b, isBytes := v.([]byte); isBytes {
			s, ok = string(b), true
		}
		if !ok {
			return nil, fmt.Errorf("%s is not a string", f.name)
		}
		if f.domain == "longstr" {
			return appendLongstr(dst, s), nil
		}
		if len(s) > 255 {
			return nil, fmt.Errorf("%s has %d octets, a short string holds 255", f.name, len(s))
		}
		return appendShortstr(dst, s), nil
	case "table":
		switch t := v.(type) {
		case table:
			return appendTable(dst, t), nil
		case []byte: // a table body written by hand
			return appendLongstr(dst, string(t)), nil
		}
		return nil, fmt.Errorf("%s is not a table", f.name)
	}
	n, ok := asInteger(v)
	if !ok {
		return nil, fmt.Errorf("%s is not a number", f.name)
	}
	switch f.domain {
	case "octet":
		return append(dst, byte(n)), nil
	case "short":
		return binary.BigEndian.AppendUint16(dst, uint16(n)), nil
	case "long":
		return binary.BigEndian.AppendUint32(dst, uint32(n)), nil
	}
	return binary.BigEndian.AppendUint64(dst, uint64(n)), nil
}

func decodeField(d *decoder, f fieldSpec) any {
	switch f.domain {
	case "shortstr":
		return d.shortstr()
	case "longstr":
		return d.longstr()
	case "table":
		return d.table(0)
	case "octet":
		return d.uint(1)
	case "short":
		return d.uint(2)
	case "long":
		return d.uint(4)
	}
	return d.uint(8)
}

// encodeMethod returns the payload of the method frame.
func (m message) encodeMethod() ([]byte, error) {
	dst := binary.BigEndian.AppendUint16(nil, m.spec.class)
	dst = binary.BigEndian.AppendUint16(dst, m.spec.method)
	return encodeFields(dst, m.spec.fields, m.values)
}

// encodeHeader returns the payload of a content header frame for a body of size octets.
func encodeHeader(class, weight uint16, size uint64, values map[string]any) ([]byte, error) {
	dst := binary.BigEndian.AppendUint16(nil, class)
	dst = binary.BigEndian.AppendUint16(dst, weight)
	dst = binary.BigEndian.AppendUint64(dst, size)
	var flags uint16
	var set []fieldSpec
	for i, p := range propertySpecs {
		if _, ok := values[p.name]; ok {
			flags |= 0x8000 >> i
			set = append(set, p)
		}
	}
	return encodeFields(binary.BigEndian.AppendUint16(dst, flags), set, values)
}

func decodeMethod(payload []byte) (message, error) {
	d := decoder{b: payload}
	class, method := uint16(d.uint(2)), uint16(d.uint(2))
	m := message{spec: methodsByID[methodID(class, method)], values: map[string]any{}}
	if m.spec == nil {
		return m, fmt.Errorf("an unknown method %d.%d", class, method)
	}
	bits, bit := byte(0), 8
	for _, f := range m.spec.fields {
		if f.domain != "bit" {
			bit = 8
			m.values[f.name] = decodeField(&d, f)
			continue
		}
		if bit == 8 {
			bits, bit = byte(d.uint(1)), 0
		}
		m.values[f.name] = bits&(1<<bit) != 0
		bit++
	}
	if d.err != nil {
		return m, fmt.Errorf("a malformed %s: %w", m.spec.name, d.err)
	}
	if len(d.b) > 0 {
		return m, fmt.Errorf("a %s with %d octets too many", m.spec.name, len(d.b))
	}
	return m, nil
}

// decodeHeader adds the properties of a content header to m and returns the size of the body that follows.
func (m message) decodeHeader(payload []byte) (uint64, error) {
	d := decoder{b: payload}
	class, weight, size, flags := d.uint(2), d.uint(2), d.uint(8), uint16(d.uint(2))
	for i, p := range propertySpecs {
		if flags&(0x8000>>i) != 0 {
			m.values[p.name] = decodeField(&d, p)
		}
	}
	switch {
	case d.err != nil:
		return 0, fmt.Errorf("a malformed content header: %w", d.err)
	case len(d.b) > 0 || flags&3 != 0 || weight != 0 || class != uint64(m.spec.class):
		return 0, fmt.Errorf("a content header of class %d, weight %d, flags %#x and %d octets too many", class, weight, flags, len(d.b))
	}
	return size, nil
}

// asInteger returns any of the integer types of a table or a method field.
func asInteger(v any) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case uint8:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	case longL:
		return int64(v), true
	case uint64:
		return int64(v), true
	case stamp:
		return int64(v), true
	case int:
		return int64(v), true
	}
	return 0, false
}
