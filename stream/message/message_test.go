package message

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

// stored is a message as queues keep it.
func stored(t testing.TB, exchange, key string, l *amqp.PropertyList, body []byte, frame int) queue.Stored {
	t.Helper()
	header, err := amqp.AppendHeader(nil, uint64(len(body)), l)
	if err != nil {
		t.Fatal(err)
	}
	b := queue.AppendStored(nil, []byte(exchange), []byte(key), header)
	if len(body) > 0 {
		a := queue.NewAssembly(b, len(body), frame)
		a.Write(body)
		b = a.Bytes()
	}
	return queue.ParseStored(b)
}

func encode(t testing.TB, m queue.Stored, history bool) []byte {
	t.Helper()
	entry, _, err := Append(nil, m, history)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

func decode(t testing.TB, d *Delivery, entry []byte, offset uint64) amqp.Header {
	t.Helper()
	if err := d.Decode(entry, offset); err != nil {
		t.Fatalf("%v: %x", err, entry)
	}
	h, err := amqp.ParseHeader(d.Header)
	if err != nil {
		t.Fatalf("%v: %x", err, d.Header)
	}
	if h.BodySize != uint64(d.Size) || len(bytes.Join(d.Body, nil)) != d.Size {
		t.Fatalf("sizes %d, %d", h.BodySize, d.Size)
	}
	return h
}

// TestExample is the example that RabbitMQ's mapping is known by, to the octet.
func TestExample(t *testing.T) {
	m := stored(t, "e", "k", &amqp.PropertyList{
		ContentType: "text/plain", DeliveryMode: amqp.Persistent,
		Headers: amqp.Table(nil).AppendInt32("a", 1).AppendString("x-b", "c"),
	}, []byte("hi"), 4096)
	got := encode(t, m, false)
	want := "005370c006054140404143" + // durable, no priority, no ttl, first acquirer, no deliveries
		"005372c12a06" + "a303782d62a10163" + "a30a782d65786368616e6765a10165" + "a30d782d726f7574696e672d6b6579a1016b" +
		"005373c01307" + "404040404040" + "a30a746578742f706c61696e" +
		"005374c10902" + "a101617100000001" +
		"005375a0026869"
	if hex.EncodeToString(got) != want {
		t.Errorf("got  %x\nwant %s", got, want)
	}
}

// TestStreamClient delivers what a stream client publishes.
func TestStreamClient(t *testing.T) {
	var d Delivery
	h := decode(t, &d, []byte("\x00\x53\x75\xa0\x02hi"), 7)
	if mode, _ := h.DeliveryMode(); mode != amqp.Persistent || d.From || string(bytes.Join(d.Body, nil)) != "hi" {
		t.Errorf("mode %d, from %v, body %q", mode, d.From, d.Body)
	}
	headers, _ := h.Headers()
	if got := fmt.Sprint(headers.Map()); got != "map[x-stream-offset:7]" {
		t.Error(got)
	}
	h = decode(t, &d, []byte("\x00\x53\x77\xa1\x02hi"), 8)
	if kind, _ := h.Type(); string(kind) != "amqp-1.0" || string(bytes.Join(d.Body, nil)) != "\x00\x53\x77\xa1\x02hi" {
		t.Errorf("type %q, body %q", kind, d.Body)
	}
	// ids that are no strings, an address, other descriptors, a body in two pieces
	h = decode(t, &d, []byte("\x00\x53\x73\xc0\x18\x06\x53\x09\xa0\x01u\x40\x40\xa1\x0b/queues/%2f\xa0\x01c"+
		"\x00\xa3\x10amqp:data:binary\xa0\x01a\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x01b"), 9)
	id, _ := h.MessageID()
	user, _ := h.UserID()
	reply, _ := h.ReplyTo()
	headers, _ = h.Headers()
	relation, _ := headers.Get("x-correlation-id")
	if string(bytes.Join(d.Body, nil)) != "ab" || string(id) != "9" || string(user) != "u" || string(reply) != "/" || string(relation.Raw) != "c" || relation.Tag != amqp.TagBinary {
		t.Errorf("body %q, id %q, user %q, reply to %q, correlation %v", d.Body, id, user, reply, relation)
	}
}

// messages are random messages.
type messages struct{ *rand.Rand }

func (r messages) text(most int) string {
	b := make([]byte, r.IntN(most+1))
	for i := range b {
		b[i] = "abcXYZ019/%-é\x00\xff"[r.IntN(16)]
	}
	return string(b)
}

// value is a random field value. Those that come back as they were, only.
func (r messages) value(depth int, compound bool) amqp.Value {
	raw := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	switch n := r.IntN(14); {
	case n == 12 && compound && depth > 0:
		return amqp.TableValue(r.table(depth-1, true, func(string) bool { return true }))
	case n == 13 && compound && depth > 0:
		var a amqp.Array
		for range r.IntN(4) {
			a = a.AppendValue(r.value(depth-1, true))
		}
		return amqp.ArrayValue(a)
	case n == 0:
		return amqp.BoolValue(r.IntN(2) == 0)
	case n == 1:
		return amqp.Value{Tag: amqp.TagInt8, Raw: raw(1)}
	case n == 2:
		return amqp.Value{Tag: amqp.TagUint8, Raw: raw(1)}
	case n == 3:
		return amqp.Value{Tag: amqp.TagInt16, Raw: raw(2)}
	case n == 4:
		return amqp.Value{Tag: amqp.TagUint16, Raw: raw(2)}
	case n == 5:
		return amqp.Value{Tag: amqp.TagInt32, Raw: raw(4)}
	case n == 6:
		return amqp.Value{Tag: amqp.TagUint32, Raw: raw(4)}
	case n == 7:
		return amqp.Value{Tag: amqp.TagInt64, Raw: raw(8)}
	case n == 8:
		return amqp.Value{Tag: amqp.TagDouble, Raw: append([]byte{1, 2}, raw(6)...)}
	case n == 9:
		return amqp.TimeValue(r.Uint64N(1 << 40))
	case n == 10:
		return amqp.Value{Tag: amqp.TagVoid}
	}
	return amqp.StringValue(r.text(300))
}

// table is a random table of different keys.
func (r messages) table(depth int, compound bool, ok func(string) bool) amqp.Table {
	var t amqp.Table
	seen := map[string]bool{}
	for range r.IntN(6) {
		key := fmt.Sprint("k", r.IntN(1000))
		if compound && r.IntN(2) == 0 {
			key = "x-" + key
		}
		if !seen[key] && ok(key) {
			t = t.AppendValue(key, r.value(depth, compound))
			seen[key] = true
		}
	}
	return t
}

// TestRoundTrip publishes random messages and looks at what is delivered: everything that AMQP 1.0 can carry is as it was.
func TestRoundTrip(t *testing.T) {
	r := messages{rand.New(rand.NewPCG(seeds.Of(t), 0))}
	var d Delivery
	var entry []byte
	for range 20_000 {
		l := amqp.PropertyList{
			ContentType: r.text(20), ContentEncoding: r.text(5), DeliveryMode: byte(1 + r.IntN(2)), Priority: byte(r.IntN(3) * 100),
			CorrelationID: r.text(255), ReplyTo: r.text(80), MessageID: r.text(255), Timestamp: r.Uint64N(1 << 40),
			Type: r.text(20), AppID: r.text(20),
		}
		if r.IntN(2) == 0 {
			l.Expiration = fmt.Sprint(r.Uint32())
			l.UserID = "guest"
			l.MessageID = "urn:uuid:00112233-4455-6677-8899-aabbccddeeff"
			l.Zero = amqp.AppID | amqp.ContentType
		}
		if r.IntN(4) == 0 {
			l = amqp.PropertyList{DeliveryMode: 1}
		}
		plain := r.table(0, false, func(string) bool { return true })
		annotated := r.table(3, true, func(k string) bool { return k[0] == 'x' })
		l.Headers = append(append(amqp.Table{}, plain...), annotated...)
		body := make([]byte, r.IntN(3)*r.IntN(10_000))
		for i := range body {
			body[i] = byte(r.Uint32())
		}
		exchange, key := r.text(255), r.text(255)
		m := stored(t, exchange, key, &l, body, 4096)
		var err error
		if entry, _, err = Append(entry[:0], m, false); err != nil {
			t.Fatal(err)
		}
		h := decode(t, &d, entry, 5)
		if string(d.Exchange) != exchange || string(d.Key) != key || !d.From || !bytes.Equal(bytes.Join(d.Body, nil), body) {
			t.Fatalf("from %q, %q, or the body differs", d.Exchange, d.Key)
		}
		l.Headers = l.Headers.AppendInt64("x-stream-offset", 5)
		want := amqp.Header{Class: amqp.ClassBasic}
		whole, err := amqp.AppendHeader(nil, uint64(len(body)), &l)
		if err == nil {
			err = want.Decode(whole)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, _ := h.Headers()
		if !got.Canonical().Equal(l.Headers.Canonical()) {
			t.Fatalf("headers\n%v, want\n%v", got.Map(), l.Headers.Map())
		}
		rest := func(h amqp.Header) []byte {
			b, _ := h.AppendChanged(nil, &amqp.PropertyList{}, amqp.Headers)
			return b
		}
		if !bytes.Equal(rest(h), rest(want)) {
			t.Fatalf("properties\n%x, want\n%x", rest(h), rest(want))
		}
	}
}

// TestOddHeaders are those that do not come back, or not as they were.
func TestOddHeaders(t *testing.T) {
	var table amqp.Table
	table = table.AppendTable("table", amqp.Table(nil).AppendInt32("a", 1))
	table = table.AppendArray("array", amqp.Array(nil).AppendString("a"))
	table = table.AppendValue("decimal", amqp.Value{Tag: amqp.TagDecimal, Raw: []byte{1, 0, 0, 0, 15}})
	table = table.AppendValue("x-decimal", amqp.Value{Tag: amqp.TagDecimal, Raw: []byte{1, 0, 0, 0, 15}})
	table = table.AppendBinary("octets", []byte("bin"))
	table = table.AppendArray("CC", amqp.Array(nil).AppendString("c1"))
	table = table.AppendArray("BCC", amqp.Array(nil).AppendString("secret"))
	table = table.AppendArray("x-death", amqp.Array(nil).AppendString("forged"))
	table = table.AppendString("x-exchange", "forged").AppendString("x-basic-type", "forged").AppendInt64("x-stream-offset", 99)
	table = table.AppendString("twice", "1").AppendString("twice", "2")
	table = table.AppendString("x-stream-filter-value", "red")
	m := stored(t, "e", "k", &amqp.PropertyList{Headers: table, ClusterID: "gone"}, nil, 4096)
	entry, filter, err := Append(nil, m, false)
	if err != nil || string(filter) != "red" {
		t.Fatal(err, string(filter))
	}
	if n := bytes.Count(entry, []byte("forged")); n != 1 { // x-death, which nobody is given
		t.Errorf("%d forged annotations: %q", n, entry)
	}
	var d Delivery
	h := decode(t, &d, entry, 1)
	headers, _ := h.Headers()
	want := "map[CC:[c1] octets:bin twice:1 x-stream-filter-value:red x-stream-offset:1]"
	if got := fmt.Sprint(headers.Map()); got != want || string(d.Exchange) != "e" {
		t.Errorf("%s, want %s", got, want)
	}
	if _, ok := h.ClusterID(); ok {
		t.Error("a cluster id")
	}
	if mode, ok := h.DeliveryMode(); !ok || mode != amqp.Transient {
		t.Error("delivery mode", mode, ok)
	}
	if v, _ := headers.Get("octets"); v.Tag != amqp.TagString {
		t.Error("octets are", v.TypeName())
	}
	for _, value := range []amqp.Value{amqp.Int64Value(1), amqp.BoolValue(true), amqp.StringValue("\xff")} {
		m := stored(t, "", "s", &amqp.PropertyList{Headers: amqp.Table(nil).AppendValue("x-stream-filter-value", value)}, nil, 4096)
		if _, filter, err := Append(nil, m, false); err != nil || len(filter) > 0 {
			t.Errorf("%v is the value %q, %v", value, filter, err)
		}
	}
}

// TestDeaths keeps what a broker wrote about deaths.
func TestDeaths(t *testing.T) {
	death := amqp.Table(nil).AppendString("original-expiration", "500").AppendInt64("count", 3).AppendString("reason", "expired").
		AppendString("queue", "q").AppendTime("time", 1_700_000_000).AppendString("exchange", "e").
		AppendArray("routing-keys", amqp.Array(nil).AppendString("a").AppendString("b"))
	other := amqp.Table(nil).AppendInt64("count", 1).AppendString("reason", "rejected").AppendString("queue", "p").
		AppendTime("time", 1_600_000_000).AppendString("exchange", "").AppendArray("routing-keys", amqp.Array(nil).AppendString("p"))
	table := amqp.Table(nil).AppendArray("x-death", amqp.Array(nil).AppendTable(death).AppendTable(other)).AppendString("x-first-death-queue", "p")
	var d Delivery
	h := decode(t, &d, encode(t, stored(t, "", "s", &amqp.PropertyList{Headers: table}, nil, 4096), true), 0)
	headers, _ := h.Headers()
	if want := table.AppendInt64("x-stream-offset", 0); !headers.Canonical().Equal(want.Canonical()) {
		t.Errorf("%v, want\n%v", headers.Map(), want.Map())
	}
}

// TestEncodedBody takes a body of type amqp-1.0 over as it is.
func TestEncodedBody(t *testing.T) {
	for body, good := range map[string]bool{
		"\x00\x53\x77\xa1\x02hi":                                   true,
		"\x00\x53\x75\xa0\x01a\x00\x53\x75\xa0\x01b":               true,
		"\x00\x53\x76\x45\x00\x53\x76\x45\x00\x53\x78\xc1\x01\x00": true,
		"":                                 false,
		"hi":                               false,
		"\x00\x53\x77\xa1\x03hi":           false,
		"\x00\x53\x77\x40\x00\x53\x77\x40": false,
		"\x00\x53\x70\x45":                 false,
		"\x00\x53\x78\xc1\x01\x00":         false,
	} {
		m := stored(t, "", "s", &amqp.PropertyList{Type: "amqp-1.0"}, []byte(body), 4096)
		entry, _, err := Append([]byte("before"), m, false)
		if good != (err == nil) || !good && (!errors.Is(err, ErrEncoded) || string(entry) != "before") {
			t.Errorf("%q: %v", body, err)
		}
		if good && !bytes.HasSuffix(entry, []byte(body)) {
			t.Errorf("%q became %q", body, entry)
		}
	}
}

// TestAmplification drops arrays that are large out of nothing.
func TestAmplification(t *testing.T) {
	var d Delivery
	h := decode(t, &d, []byte("\x00\x53\x72\xd1\x00\x00\x00\x13\x00\x00\x00\x02\xa3\x03x-a\xf0\x00\x00\x00\x05\x00\x0f\xff\xff\x40\x00\x53\x75\xa0\x00"), 1)
	if headers, _ := h.Headers(); headers.Len() != 1 {
		t.Errorf("%d octets of headers", len(headers))
	}
}

// TestAgain decodes entries behind each other that differ in the body, before it or behind it: each comes out as if it were the
// only one.
func TestAgain(t *testing.T) {
	plain := &amqp.PropertyList{DeliveryMode: amqp.Persistent}
	var entries [][]byte
	for _, size := range []int{0, 1, 200, 255, 256, 70_000} {
		body := bytes.Repeat([]byte{byte(size)}, size)
		for _, m := range []queue.Stored{stored(t, "e", "k", plain, body, 4096), stored(t, "e", "other", plain, body, 4096), stored(t, "ek", "", plain, body, 4096),
			stored(t, "e", "k", &amqp.PropertyList{MessageID: "m", Headers: amqp.Table(nil).AppendString("x-stream-offset", "own").AppendString("a", "b")}, body, 4096)} {
			entries = append(entries, encode(t, m, false))
		}
	}
	one := entries[0]
	entries = append(entries, append(bytes.Clone(one), "\x00\x53\x75\xa0\x01b"...), append(bytes.Clone(one), "\x00\x53\x78\xc1\x01\x00"...), // more data, a footer
		append(bytes.Clone(one), 0), one[:len(one)-1], one[:len(one)-2], []byte("\x00\x53\x75\xa0\x01b"), nil)
	var d Delivery
	for i, a := range entries {
		for k, b := range entries {
			_ = d.Decode(a, 7)
			err := d.Decode(b, 8)
			var fresh Delivery
			if want := fresh.Decode(b, 8); err != want {
				t.Fatalf("%d behind %d: %v, not %v", k, i, err, want)
			}
			if !bytes.Equal(d.Header, fresh.Header) || d.Size != fresh.Size || !bytes.Equal(bytes.Join(d.Body, nil), bytes.Join(fresh.Body, nil)) ||
				string(d.Exchange) != string(fresh.Exchange) || string(d.Key) != string(fresh.Key) || d.From != fresh.From {
				t.Fatalf("%d behind %d:\n%q %q %v %x\n%q %q %v %x", k, i, d.Exchange, d.Key, d.From, d.Header, fresh.Exchange, fresh.Key, fresh.From, fresh.Header)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, stored(f, "e", "k", &amqp.PropertyList{
		ContentType: "t", ReplyTo: "a/b", MessageID: "urn:uuid:00112233-4455-6677-8899-aabbccddeeff", Type: "t", Expiration: "5",
		Headers: amqp.Table(nil).AppendInt32("a", 1).AppendTable("x-t", amqp.Table(nil).AppendString("s", "v")).AppendArray("CC", amqp.Array(nil).AppendString("c")),
	}, []byte("hi"), 4096), false))
	f.Add([]byte("\x00\x53\x72\xd1\x00\x00\x00\x20\x00\x00\x00\x02\xa3\x03x-a\xf0\x00\x00\x00\x0a\x00\x00\x00\x02\x45"))
	f.Add([]byte("\x00\x53\x77\xa1\x02hi\x00\x53\x78\xc1\x01\x00"))
	var d Delivery
	f.Fuzz(func(t *testing.T, entry []byte) {
		if err := d.Decode(entry, 1); err != nil {
			if !errors.Is(err, ErrMessage) || len(d.Header) > 0 || len(d.Body) > 0 {
				t.Fatal(err, d)
			}
			return
		}
		h, err := amqp.ParseHeader(d.Header)
		if err != nil {
			t.Fatalf("%v: %x", err, d.Header)
		}
		if h.BodySize != uint64(d.Size) || len(d.Header) > 1000+40*len(entry) {
			t.Fatalf("%d octets became a body of %d and a header of %d", len(entry), h.BodySize, len(d.Header))
		}
		if _, ok := h.DeliveryMode(); !ok {
			t.Fatal("no delivery mode")
		}
	})
}

func benchmarkMessage(b *testing.B) queue.Stored {
	return stored(b, "events", "orders.created", &amqp.PropertyList{
		ContentType: "application/json", DeliveryMode: amqp.Persistent, MessageID: "m-123456", Timestamp: 1_700_000_000,
		Headers: amqp.Table(nil).AppendString("tenant", "acme").AppendInt32("version", 3),
	}, make([]byte, 1024), 128<<10)
}

// TestNoAllocation converts both ways without a heap.
func TestNoAllocation(t *testing.T) {
	m := stored(t, "e", "k", &amqp.PropertyList{ContentType: "text/plain", DeliveryMode: amqp.Persistent, ReplyTo: "a/b", Expiration: "5", Timestamp: 9,
		Headers: amqp.Table(nil).AppendString("b", "1").AppendString("a", "2").AppendInt64("x-c", 3)}, make([]byte, 300), 4096)
	dst := make([]byte, 0, 4096)
	var d Delivery
	other := stored(t, "e", "k", &amqp.PropertyList{MessageID: "1"}, make([]byte, 300), 4096)
	convert := func() {
		for _, m := range []queue.Stored{m, m, other} { // as the one before, and not
			entry, _, err := Append(dst, m, false)
			if err == nil {
				err = d.Decode(entry, 1)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	convert()
	if n := testing.AllocsPerRun(100, convert); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func plainMessage(b *testing.B) queue.Stored {
	return stored(b, "", "s", &amqp.PropertyList{DeliveryMode: amqp.Persistent}, make([]byte, 1024), 128<<10)
}

func BenchmarkAppend(b *testing.B)      { benchmarkAppend(b, benchmarkMessage(b)) }
func BenchmarkAppendPlain(b *testing.B) { benchmarkAppend(b, plainMessage(b)) }
func BenchmarkDecode(b *testing.B)      { benchmarkDecode(b, benchmarkMessage(b)) }
func BenchmarkDecodePlain(b *testing.B) { benchmarkDecode(b, plainMessage(b)) }

func benchmarkAppend(b *testing.B, m queue.Stored) {
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Append(dst, m, false); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkDecode(b *testing.B, m queue.Stored) {
	entry := encode(b, m, false)
	var d Delivery
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(entry, 1); err != nil {
			b.Fatal(err)
		}
	}
}
