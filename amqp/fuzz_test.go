package amqp

import (
	"bytes"
	"reflect"
	"testing"
)

// A whole frame is what AppendFrame makes of its parts, and more bytes after it
// change nothing.
func FuzzParseFrame(f *testing.F) {
	f.Add(AppendHeartbeat(nil), uint32(4096))
	f.Add(AppendFrame(nil, FrameBody, 1, []byte("body")), uint32(0))
	f.Add(AppendMethodFrame(nil, 0, &ConnectionTune{}), uint32(131072))
	f.Add([]byte("\x03\x00\x01\xff\xff\xff\xff"), uint32(4096))
	f.Add([]byte("\x03\x00\x01\x00\x00\x00\x01x\x00"), uint32(4096))
	f.Fuzz(func(t *testing.T, buf []byte, max uint32) {
		frame, n, err := ParseFrame(buf, max)
		if err != nil {
			if e, ok := err.(*Error); !ok || !e.Hard() || len(e.Text) > MaxShortstr {
				t.Fatalf("error %#v", err)
			}
		}
		if n == 0 {
			return
		}
		if got := AppendFrame(nil, frame.Type, frame.Channel, frame.Payload); !bytes.Equal(got, buf[:n]) {
			t.Fatalf("%q became %q", buf[:n], got)
		}
		if _, m, err2 := ParseFrame(append(buf[:n:n], buf...), max); m != n || (err == nil) != (err2 == nil) {
			t.Fatalf("n = %d, then %d", n, m)
		}
	})
}

// What decodes, encodes to something that decodes to the same.
func FuzzDecodeMethod(f *testing.F) {
	for _, id := range methodIDs() {
		f.Add(NewMethod(id).Append(nil))
	}
	f.Add((&QueueDeclare{Queue: "q", Durable: true, Arguments: every()}).Append(nil))
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := DecodeMethod(payload)
		if err != nil {
			if id, args, split := SplitMethod(payload); split == nil {
				if e := DecodeError(id, args, err); !e.Hard() || len(e.Text) > MaxShortstr {
					t.Fatalf("%+v", *e)
				}
			}
			return
		}
		again, err := DecodeMethod(m.Append(nil))
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		if !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v", m, again)
		}
	})
}

// A valid table survives being read in every way, and being rebuilt entry by
// entry; an invalid one harms nobody.
func FuzzTable(f *testing.F) {
	f.Add([]byte(every()))
	f.Add([]byte("\x01aV\x01aV"))
	f.Add([]byte("\x01aA\x00\x00\x00\x02VU"))
	f.Fuzz(func(t *testing.T, in []byte) {
		table := Table(in)
		before := string(in)
		valid := table.Validate() == nil
		var rebuilt Table
		for k, v := range table.All() {
			rebuilt = rebuilt.AppendValue(string(k), v)
			first, ok := table.Get(string(k))
			if !ok {
				t.Fatalf("%q is not found", k)
			}
			if _, isFloat := v.Float(); !isFloat || valid {
				if !v.Equal(v) || !v.Matches(v) || !first.Equal(first) {
					t.Fatalf("%v is not equal to itself", v)
				}
			}
			if v.TypeName() == "" {
				t.Fatalf("no name for %c", v.Tag)
			}
		}
		canonical := table.Canonical()
		if valid {
			if !bytes.Equal(rebuilt, table) {
				t.Fatalf("%q became %q", table, rebuilt)
			}
			table.Map()
			if len(canonical) != len(table) || canonical.Validate() != nil {
				t.Fatalf("canonical %q", canonical)
			}
			if !bytes.Equal(canonical.Canonical(), canonical) || !table.Equal(canonical) {
				t.Fatalf("canonical %q is not", canonical)
			}
			edited := table.AppendEdited(nil, Edit{Key: "a", Remove: true}, Edit{Key: "b", Value: BoolValue(true)})
			if edited.Validate() != nil {
				t.Fatalf("edited %q", edited)
			}
			if _, ok := edited.Get("a"); ok {
				t.Fatal("a is still there")
			}
			if v, _ := edited.Get("b"); !v.Equal(BoolValue(true)) {
				t.Fatal("b is not set")
			}
		}
		if string(in) != before {
			t.Fatal("the table changed")
		}
	})
}

// A valid header can be changed, and what was not changed stays.
func FuzzHeader(f *testing.F) {
	all := full()
	f.Add(header(f, all))
	f.Add(header(f, PropertyList{}))
	f.Add(header(f, PropertyList{DeliveryMode: 2}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		h, err := ParseHeader(payload)
		if err != nil {
			list(h.Properties)
			return
		}
		same, err := h.AppendChanged(nil, new(PropertyList), 0)
		if err != nil || !bytes.Equal(same, payload) {
			t.Fatalf("%q became %q, %v", payload, same, err)
		}
		l := list(h.Properties)
		if back, err := h.AppendChanged(nil, &l, ^PropertySet(0)); err != nil || !bytes.Equal(back, payload) {
			t.Fatalf("%q was listed as %q, %v", payload, back, err)
		}
		changed, err := h.AppendChanged(nil, &PropertyList{ReplyTo: "r", Zero: Headers}, Expiration)
		if err != nil {
			t.Fatal(err)
		}
		g, err := ParseHeader(changed)
		if err != nil {
			t.Fatalf("%q: %v", changed, err)
		}
		want := l
		want.ReplyTo, want.Headers, want.Expiration = "r", Table{}, ""
		want.Zero = (l.Zero | Headers | ReplyTo) &^ Expiration
		if got := list(g.Properties); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}
