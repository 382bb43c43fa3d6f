package stream

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/test/seeds"
)

// TestChunkBytes is a chunk to the octet, as the stream protocol wants it.
func TestChunkBytes(t *testing.T) {
	var b Builder
	b.Reset(16)
	for _, body := range []string{"hi", "there"} {
		if err := b.Add([]byte(body), nil); err != nil {
			t.Fatal(err)
		}
	}
	chunk := bytes.Clone(b.Finish(0x0102030405, 7))
	place(chunk, 9)
	c, err := ParseChunk(chunk)
	if err != nil {
		t.Fatal(err)
	}
	want := "50" + "00" + "0002" + "00000002" + "0000000102030405" + "0000000000000007" + "0000000000000009" +
		"30cd4a87" + "0000000f" + "00000000" + "00" + "000000" + // the CRC is zlib's of the entries
		"000000026869" + "000000057468657265"
	if got := hex.EncodeToString(c.Wire()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if c.Bloom() != nil || c.Next() != 11 || c.Size() != int64(len(chunk)) {
		t.Errorf("%+v", c.Header)
	}
}

// TestEveryBit flips each bit of a chunk: every one is found out.
func TestEveryBit(t *testing.T) {
	var b Builder
	b.Reset(16)
	for _, body := range []string{"hi", "there"} {
		if err := b.Add([]byte(body), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	chunk := b.Finish(1, 1)
	for bit := range 8 * len(chunk) {
		chunk[bit/8] ^= 1 << (bit % 8)
		if _, err := ParseChunk(chunk); err == nil {
			t.Errorf("bit %d of octet %d", bit%8, bit/8)
		}
		chunk[bit/8] ^= 1 << (bit % 8)
	}
}

// TestSubBatches expands what is not compressed, passes over what is, and over what is malformed.
func TestSubBatches(t *testing.T) {
	var b Builder
	entry := func(bodies ...string) (e []byte) {
		for _, s := range bodies {
			e = append(append(e, 0, 0, 0, byte(len(s))), s...)
		}
		return e
	}
	add := func(compression uint8, records uint16, body []byte) {
		t.Helper()
		if err := b.AddBatch(compression, records, uint32(len(body)), body, nil); err != nil {
			t.Fatal(err)
		}
	}
	simple := func(s string) {
		t.Helper()
		if err := b.Add([]byte(s), nil); err != nil {
			t.Fatal(err)
		}
	}
	simple("a")                        // 0
	add(0, 2, entry("b", "c"))         // 1, 2
	add(1, 5, []byte("gzip"))          // 3 to 7
	simple("d")                        // 8
	add(0, 3, entry("e"))              // 9; 10 and 11 are not there
	add(0, 1, entry("f", "too much"))  // 12
	add(0, 2, []byte{0, 0, 0, 9, 'x'}) // 13 and 14 are malformed
	simple("")                         // 15
	if err := b.AddBatch(0, 0, 0, nil, nil); !errors.Is(err, ErrChunk) {
		t.Fatal("a sub-batch of nothing:", err)
	}
	c, err := ParseChunk(b.Finish(1, 1))
	if err != nil || c.Header.Entries != 8 || c.Header.Records != 16 {
		t.Fatalf("%v, %+v", err, c.Header)
	}
	var got []string
	var rec Record
	it := c.Records()
	for it.Next(&rec) {
		got = append(got, fmt.Sprintf("%d%s", rec.Offset, rec.Body))
	}
	if want := "[0a 1b 2c 8d 9e 12f 15]"; fmt.Sprint(got) != want || it.Err() != nil || it.Lost() != 9 {
		t.Errorf("%v, want %s; %v, lost %d", got, want, it.Err(), it.Lost())
	}
}

func TestBuilderLimits(t *testing.T) {
	var b Builder
	if b.Finish(1, 1) != nil {
		t.Error("a chunk of nothing")
	}
	for range MaxEntries {
		if err := b.Add(nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Add(nil, nil); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	c, err := ParseChunk(b.Finish(1, 1))
	if err != nil || c.Records().end != MaxEntries {
		t.Error(err, c.Header)
	}
	b.Reset(16)
	dst, err := b.Begin()
	if err != nil {
		t.Fatal(err)
	}
	_ = append(dst, "given up"...)
	if err := b.Add([]byte("kept"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	if c, err = ParseChunk(b.Finish(1, 1)); err != nil || string(c.Data()) != "\x00\x00\x00\x04kept" || len(c.Bloom()) != 16 {
		t.Errorf("%v %q", err, c.Bytes)
	}
}

// TestBloom finds every value that is in a chunk, and few that are not.
func TestBloom(t *testing.T) {
	rng := rand.New(rand.NewPCG(seeds.Of(t), 0))
	var b Bloom
	wrong, asked := 0, 0
	for range 2000 {
		size := MinFilterSize + rng.IntN(MaxFilterSize-MinFilterSize+1)
		b.Reset(uint8(size))
		if b.Bytes() != nil {
			t.Fatal("a filter of nothing")
		}
		values := map[string]bool{}
		for range rng.IntN(6) {
			v := fmt.Sprint(rng.IntN(1000))
			if rng.IntN(5) == 0 {
				v = ""
			}
			values[v] = true
			b.Add([]byte(v))
		}
		if len(values) == 0 {
			continue
		}
		for v := range values {
			if !(&Filter{Values: [][]byte{[]byte("other"), []byte(v)}}).Match(b.Bytes()) {
				t.Fatalf("%q is in %v and not found", v, values)
			}
		}
		if got := (&Filter{Values: [][]byte{[]byte("-")}, Unfiltered: true}).Match(b.Bytes()); values[""] && !got {
			t.Fatal("records without a value were not found")
		}
		if (&Filter{Values: [][]byte{nil}}).Match(b.Bytes()) != values[""] {
			t.Fatal("the empty value is not that of records without one")
		}
		for range 20 {
			asked++
			if (&Filter{Values: [][]byte{fmt.Append(nil, "not there", rng.Uint32())}}).Match(b.Bytes()) {
				wrong++
			}
		}
	}
	if wrong*100 > asked {
		t.Errorf("%d of %d values that are not there were found", wrong, asked)
	}
	for _, c := range []struct {
		filter Filter
		want   bool
	}{{Filter{}, true}, {Filter{Values: [][]byte{[]byte("a")}}, false}, {Filter{Values: [][]byte{[]byte("a")}, Unfiltered: true}, true}, {Filter{Values: [][]byte{nil}}, true}} {
		if c.filter.Match(nil) != c.want {
			t.Errorf("a chunk without a filter, %v: %v", c.filter, !c.want)
		}
	}
	if x, y := bloomBits([]byte("banana"), 16); x != 95 || y != 6 { // written to disk: must never change
		t.Errorf("the bits of banana are %d and %d", x, y)
	}
}

func TestParseFilter(t *testing.T) {
	str, yes := amqp.StringValue, amqp.BoolValue(true)
	for _, c := range []struct {
		values, unfiltered amqp.Value
		want               string
		err                error
	}{
		{amqp.Value{}, yes, "[] false", nil},
		{amqp.Int64Value(5), yes, "[] false", nil},
		{str("a"), amqp.Value{}, "[a] false", nil},
		{str(""), yes, "[] true", nil},
		{str("a"), str("true"), "[a] false", nil},
		{amqp.ArrayValue(amqp.Array(nil).AppendString("a").AppendString("b")), yes, "[a b] true", nil},
		{amqp.ArrayValue(nil), yes, "[] false", ErrFilter},
		{amqp.ArrayValue(amqp.Array(nil).AppendString("a").AppendInt64(1)), yes, "[] false", ErrFilter},
	} {
		f, err := ParseFilter(c.values, c.unfiltered)
		if got := fmt.Sprintf("%s %v", f.Values, f.Unfiltered); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v, %v: %s, %v, want %s", c.values, c.unfiltered, got, err, c.want)
		}
	}
}

// FuzzChunk parses anything.
func FuzzChunk(f *testing.F) {
	m := newModel(1)
	f.Add(m.build(3, 20).bytes)
	var b Builder
	_ = b.AddBatch(0, 2, 10, []byte("\x00\x00\x00\x01a\x00\x00\x00\x01b"), nil)
	_ = b.AddBatch(4, 2, 10, []byte("zstd"), nil)
	f.Add(bytes.Clone(b.Finish(1, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, parse := range []func([]byte) (Chunk, error){ParseChunk, viewChunk} {
			c, err := parse(data)
			if err != nil {
				continue
			}
			_, _ = c.Bloom(), c.Wire()
			it := c.Records()
			var rec Record
			at := c.First
			for it.Next(&rec) {
				if rec.Offset < at || rec.Offset >= c.Next() {
					t.Fatalf("offset %d of %d to %d", rec.Offset, at, c.Next())
				}
				at = rec.Offset + 1
			}
			if it.Offset() != c.Next() && it.Err() == nil {
				t.Fatalf("ended at %d of %d without an error", it.Offset(), c.Next())
			}
		}
	})
}
