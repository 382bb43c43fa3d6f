package message

import (
	"encoding/binary"
	"strconv"

	"github.com/warrenmq/warren/amqp"
)

// appendDeaths appends the header x-death, an array of tables that a broker wrote, as the array of maps x-opt-deaths. What is
// not as a broker writes it is left out.
func appendDeaths(dst []byte, v amqp.Value) ([]byte, bool) {
	deaths, ok := v.Array()
	if !ok {
		return dst, false
	}
	start, n := len(dst), 0
	dst = append(dst, codeArray32, 0, 0, 0, 0, 0, 0, 0, 0, codeMap32)
	for d := range deaths.All() {
		if t, ok := d.Table(); ok {
			dst = appendDeath(dst, t)
			n++
		}
	}
	binary.BigEndian.PutUint32(dst[start+1:], uint32(len(dst)-start-5))
	binary.BigEndian.PutUint32(dst[start+5:], uint32(n))
	return dst, true
}

// appendDeath appends the map of a death without its constructor.
func appendDeath(dst []byte, t amqp.Table) []byte {
	start, n := len(dst), 0
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	text := func(from string) []byte {
		v, _ := t.Get(from)
		b, _ := v.Bytes()
		return b
	}
	key := func(name string) {
		dst = appendVariable(dst, codeSym8, name)
		n += 2
	}
	if ttl, err := strconv.ParseUint(string(text("original-expiration")), 10, 32); err == nil {
		key("ttl")
		dst = binary.BigEndian.AppendUint32(append(dst, codeUint), uint32(ttl))
	}
	key("queue")
	dst = appendVariable(dst, codeStr8, text("queue"))
	key("reason")
	dst = appendVariable(dst, codeSym8, text("reason"))
	count, _ := t.Get("count")
	c, _ := count.Int()
	key("count")
	dst = binary.BigEndian.AppendUint64(append(dst, codeUlong), uint64(max(c, 0)))
	at, _ := t.Get("time")
	seconds, _ := at.Timestamp()
	for _, name := range []string{"first-time", "last-time"} {
		key(name)
		dst = appendTime(dst, min(seconds, 1<<50))
	}
	key("exchange")
	dst = appendVariable(dst, codeStr8, text("exchange"))
	key("routing-keys")
	dst = appendKeys(dst, t)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	binary.BigEndian.PutUint32(dst[start+4:], uint32(n))
	return dst
}

func appendKeys(dst []byte, t amqp.Table) []byte {
	start, n := len(dst), 0
	dst = append(dst, codeArray32, 0, 0, 0, 0, 0, 0, 0, 0, codeStr32)
	v, _ := t.Get("routing-keys")
	keys, _ := v.Array()
	for k := range keys.All() {
		if b, ok := k.Bytes(); ok {
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
			dst = append(dst, b...)
			n++
		}
	}
	binary.BigEndian.PutUint32(dst[start+1:], uint32(len(dst)-start-5))
	binary.BigEndian.PutUint32(dst[start+5:], uint32(n))
	return dst
}

// deathsOf makes the header x-death of x-opt-deaths.
func deathsOf(v value) amqp.Array {
	var deaths amqp.Array
	count, items, ok := v.array()
	if !ok || len(items) == 0 {
		return nil
	}
	code, items := items[0], items[1:]
	for range count {
		var d value
		if d, items, ok = valueAfter(code, items); !ok {
			break
		}
		if t := deathOf(d); t != nil {
			deaths = deaths.AppendTable(t)
		}
	}
	return deaths
}

func deathOf(v value) amqp.Table {
	var ttl, count, at uint64
	var hasTTL bool
	var queue, reason, exchange []byte
	var keys amqp.Array
	n, items, ok := v.pairs()
	if !ok {
		return nil
	}
	for range n / 2 {
		var key, e value
		if key, items, ok = nextValue(items); ok {
			e, items, ok = nextValue(items)
		}
		if !ok {
			return nil
		}
		name, _ := key.symbol()
		switch string(name) {
		case "ttl":
			ttl, hasTTL = e.unsigned()
		case "queue":
			queue = e.raw
		case "reason":
			reason = e.raw
		case "count":
			count, _ = e.unsigned()
		case "first-time":
			if e.code == codeTimestamp {
				at = uint64(max(int64(binary.BigEndian.Uint64(e.raw)), 0)) / 1000
			}
		case "exchange":
			exchange = e.raw
		case "routing-keys":
			if f, ok := appendFieldOf(nil, e, 1); ok && f[0] == amqp.TagArray {
				keys = amqp.Array(f[5:])
			}
		}
	}
	var t amqp.Table
	if hasTTL {
		t = t.AppendBytes("original-expiration", strconv.AppendUint(nil, ttl, 10))
	}
	t = t.AppendInt64("count", int64(count))
	t = t.AppendBytes("reason", reason)
	t = t.AppendBytes("queue", queue)
	t = t.AppendTime("time", at)
	t = t.AppendBytes("exchange", exchange)
	return t.AppendArray("routing-keys", keys)
}
