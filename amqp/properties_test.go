package amqp

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func full() PropertyList {
	return PropertyList{
		ContentType: "text/plain", ContentEncoding: "gzip", Headers: every(), DeliveryMode: Persistent, Priority: 5,
		CorrelationID: "corr", ReplyTo: "reply", Expiration: "1000", MessageID: "msg", Timestamp: 1700000000,
		Type: "type", UserID: "guest", AppID: "app", ClusterID: "cluster",
	}
}

func header(t testing.TB, l PropertyList) []byte {
	t.Helper()
	payload, err := AppendHeader(nil, 1234, &l)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

func TestHeaderBytes(t *testing.T) {
	for _, test := range []struct {
		list PropertyList
		want string
	}{
		{PropertyList{}, "003c 0000 00000000000004d2 0000"},
		{PropertyList{DeliveryMode: 2}, "003c 0000 00000000000004d2 1000 02"},
		{PropertyList{ContentType: "a", Headers: Table("\x01kV"), Priority: 3, Timestamp: 1},
			"003c 0000 00000000000004d2 a840 01 61 00000003 016b56 03 0000000000000001"},
		{PropertyList{Zero: Headers | Priority | ClusterID}, "003c 0000 00000000000004d2 2804 00000000 00 00"},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(test.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := header(t, test.list); !bytes.Equal(got, want) {
			t.Errorf(" got %x\nwant %x", got, want)
		}
	}
}

// list reads the properties back through the accessors.
func list(p Properties) PropertyList {
	str := func(b []byte, _ bool) string { return string(b) }
	var l PropertyList
	l.ContentType = str(p.ContentType())
	l.ContentEncoding = str(p.ContentEncoding())
	l.Headers, _ = p.Headers()
	l.DeliveryMode, _ = p.DeliveryMode()
	l.Priority, _ = p.Priority()
	l.CorrelationID = str(p.CorrelationID())
	l.ReplyTo = str(p.ReplyTo())
	l.Expiration = str(p.Expiration())
	l.MessageID = str(p.MessageID())
	l.Timestamp, _ = p.Timestamp()
	l.Type = str(p.Type())
	l.UserID = str(p.UserID())
	l.AppID = str(p.AppID())
	l.ClusterID = str(p.ClusterID())
	l.Zero = p.Set()
	return l
}

// Every one of the 16384 sets of properties is read back as it was written, and
// nothing shorter or longer is valid.
func TestHeaderRoundTrip(t *testing.T) {
	all := full()
	whole, err := ParseHeader(header(t, all))
	if err != nil {
		t.Fatal(err)
	}
	for set := range 1 << 14 {
		p := PropertySet(set) << 2
		payload, err := whole.AppendChanged(nil, new(PropertyList), ^p)
		if err != nil {
			t.Fatal(err)
		}
		h, err := ParseHeader(payload)
		if err != nil {
			t.Fatalf("%04x: %v", p, err)
		}
		if h.Class != ClassBasic || h.Weight != 0 || h.BodySize != 1234 || h.Set() != p {
			t.Fatalf("%04x: %+v", p, h)
		}
		l := list(h.Properties)
		if again := header(t, l); !bytes.Equal(again, payload) {
			t.Fatalf("%04x:\n got %x\nwant %x", p, again, payload)
		}
		if _, err := ParseHeader(payload[:len(payload)-1]); err != ErrProperties {
			t.Fatalf("%04x: a byte less: %v", p, err)
		}
		if _, err := ParseHeader(append(payload, 0)); err != ErrProperties {
			t.Fatalf("%04x: a byte more: %v", p, err)
		}
	}
}

func TestMalformedHeaders(t *testing.T) {
	fixed := "\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07"
	for name, rest := range map[string]string{
		"no flags":         "",
		"half a flag":      "\x00",
		"mode and more":    "\x10\x00\x02\x00",
		"mode missing":     "\x10\x00",
		"short string":     "\x80\x00\x02a",
		"no table size":    "\x20\x00\x00\x00\x00",
		"huge table":       "\x20\x00\xff\xff\xff\xff",
		"bad table":        "\x20\x00\x00\x00\x00\x05\x01aU\x00\x01",
		"short timestamp":  "\x00\x40\x00\x00\x00\x00\x00\x00\x00",
		"list, no flags":   "\x00\x00\x00",
		"continuation bit": "\x00\x01\x00\x00",
	} {
		h, err := ParseHeader([]byte(fixed + rest))
		if err != ErrProperties {
			t.Errorf("%s: %v", name, err)
		}
		if h.Class != ClassBasic || h.BodySize != 7 || h.Set() != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
	if _, err := ParseHeader([]byte(fixed[:11])); err != ErrProperties {
		t.Errorf("11 bytes: %v", err)
	}
	h, err := ParseHeader([]byte(fixed + "\x10\x03\x09"))
	if mode, ok := h.DeliveryMode(); err != nil || !ok || mode != 9 || h.Persistent() || h.Set() != DeliveryMode {
		t.Errorf("reserved flags: %v, %+v", err, h)
	}
}

func TestAppendChanged(t *testing.T) {
	all := full()
	h, err := ParseHeader(header(t, all))
	if err != nil {
		t.Fatal(err)
	}
	table := Table(nil).AppendString("new", "headers")
	for _, test := range []struct {
		name   string
		set    PropertyList
		remove PropertySet
		change func(*PropertyList)
	}{
		{"nothing", PropertyList{}, 0, func(*PropertyList) {}},
		{"headers", PropertyList{Headers: table}, 0, func(l *PropertyList) { l.Headers = table }},
		{"empty headers", PropertyList{Zero: Headers}, 0, func(l *PropertyList) { l.Headers, l.Zero = nil, Headers }},
		{"no expiration", PropertyList{}, Expiration, func(l *PropertyList) { l.Expiration = "" }},
		{"other reply-to, no user", PropertyList{ReplyTo: "elsewhere"}, UserID | Expiration, func(l *PropertyList) {
			l.ReplyTo, l.UserID, l.Expiration = "elsewhere", "", ""
		}},
		{"set counts", PropertyList{Expiration: "1"}, Expiration, func(l *PropertyList) { l.Expiration = "1" }},
	} {
		want := full()
		test.change(&want)
		got, err := h.AppendChanged([]byte("before"), &test.set, test.remove)
		if err != nil || string(got) != "before"+string(header(t, want)) {
			t.Errorf("%s: %v\n got %q\nwant %q", test.name, err, got, header(t, want))
		}
	}

	odd, err := ParseHeader([]byte("\x00\x3c\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07\x10\x03\x02"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := odd.AppendChanged(nil, &PropertyList{ContentType: "a"}, DeliveryMode|3)
	if want := "\x00\x3c\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07\x80\x03\x01a"; err != nil || string(got) != want {
		t.Errorf("%v, %q, want %q", err, got, want)
	}
	long := PropertyList{MessageID: "m", AppID: strings.Repeat("a", 256)}
	if got, err := h.AppendChanged([]byte("before"), &long, 0); err != ErrTooLong || string(got) != "before" {
		t.Errorf("%v, %q", err, got)
	}
}
