package amqp

import (
	"bytes"
	"strings"
	"testing"
)

func TestParseFrame(t *testing.T) {
	frame := func(typ byte, channel uint16, payload string) string {
		return string(AppendFrame(nil, typ, channel, []byte(payload)))
	}
	long := strings.Repeat("a", 20)
	tests := []struct {
		name, in string
		n        int // -1 when all of in
		code     uint16
		text     string
	}{
		{"nothing", "", 0, 0, ""},
		{"part of a head", "\x01\x00\x01\x00\x00\x00", 0, 0, ""},
		{"no end octet yet", "\x03\x00\x01\x00\x00\x00\x01x", 0, 0, ""},
		{"method", frame(1, 0, "\x00\x0a\x00\x33"), -1, 0, ""},
		{"header", frame(2, 1, "123456789012"), -1, 0, ""},
		{"body", frame(3, 65535, "x"), -1, 0, ""},
		{"empty body", frame(3, 1, ""), -1, 0, ""},
		{"heartbeat", "\x08\x00\x00\x00\x00\x00\x00\xce", -1, 0, ""},
		{"full payload and slack", frame(3, 1, strings.Repeat("a", 4096)), -1, 0, ""},
		{"too large, by its head alone", "\x03\x00\x01\x00\x00\x10\x01", 0, FrameError,
			"FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4097,4088}"},
		{"huge", "\x03\x00\x01\xff\xff\xff\xff", 0, FrameError,
			"FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4294967295,4088}"},
		{"wrong end", "\x03\x00\x01\x00\x00\x00\x03abc\x2a", 0, FrameError,
			`FRAME_ERROR - type 3, all octets = <<"abc">>: {invalid_frame_end_marker,42}`},
		{"wrong end, long", "\x03\x00\x01\x00\x00\x00\x14" + long + "\x00", 0, FrameError,
			`FRAME_ERROR - type 3, first 16 octets = <<"aaaaaaaaaaaaaaaa">>: {invalid_frame_end_marker,0}`},
		{"unknown type", frame(4, 1, "\x00\x3c\x00"), -1, FrameError,
			"FRAME_ERROR - type 4, all octets = <<0,60,0>>: unknown_frame"},
		{"short method", frame(1, 1, "\x00\x3c\x00"), -1, FrameError,
			"FRAME_ERROR - type 1, all octets = <<0,60,0>>: unknown_frame"},
		{"short header", frame(2, 1, "12345678901"), -1, FrameError,
			`FRAME_ERROR - type 2, all octets = <<"12345678901">>: unknown_frame`},
		{"short header on channel 0", frame(2, 0, "1"), -1, FrameError,
			`FRAME_ERROR - type 2, all octets = <<"1">>: unknown_frame`},
		{"heartbeat with payload", frame(8, 0, "x"), -1, FrameError,
			`FRAME_ERROR - type 8, all octets = <<"x">>: unknown_frame`},
		{"heartbeat of a channel", frame(8, 1, ""), -1, UnexpectedFrame,
			"UNEXPECTED_FRAME - type 8, all octets = <<>>"},
		{"body on channel 0", frame(3, 0, "x"), -1, UnexpectedFrame,
			`UNEXPECTED_FRAME - type 3, all octets = <<"x">>`},
		{"header on channel 0", frame(2, 0, long), -1, UnexpectedFrame,
			`UNEXPECTED_FRAME - type 2, first 16 octets = <<"aaaaaaaaaaaaaaaa">>`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := test.n
			if want < 0 {
				want = len(test.in)
			}
			f, n, err := ParseFrame([]byte(test.in + "next")[:len(test.in)], 4096)
			if n != want {
				t.Errorf("n = %d, want %d", n, want)
			}
			if test.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if n > 0 && string(AppendFrame(nil, f.Type, f.Channel, f.Payload)) != test.in {
					t.Errorf("frame %v does not lead back to %q", f, test.in)
				}
				return
			}
			e, ok := err.(*Error)
			if !ok {
				t.Fatalf("error %v", err)
			}
			if e.Code != test.code || e.Text != test.text || !e.Hard() || e.Class != 0 || e.Method != 0 {
				t.Errorf("got %+v\nwant %d %s", *e, test.code, test.text)
			}
		})
	}
}

func TestNoLimit(t *testing.T) {
	big := AppendFrame(nil, FrameBody, 1, make([]byte, 1<<20))
	if f, n, err := ParseFrame(big, 0); err != nil || n != len(big) || len(f.Payload) != 1<<20 {
		t.Errorf("n = %d, err = %v", n, err)
	}
}

// Frames that follow one another come out as they went in, however the bytes
// are cut on the way.
func TestFramesInPieces(t *testing.T) {
	var in []byte
	in = AppendMethodFrame(in, 1, &BasicPublish{Exchange: []byte("e"), RoutingKey: []byte("k")})
	in = AppendFrame(in, FrameHeader, 1, make([]byte, 14))
	in = AppendBodyFrames(in, 1, bytes.Repeat([]byte("b"), 10000), 4096)
	in = AppendHeartbeat(in)

	var out []byte
	var types []byte
	from := 0
	for to := 0; to <= len(in); to++ {
		f, n, err := ParseFrame(in[from:to], 4096)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			out = AppendFrame(out, f.Type, f.Channel, f.Payload)
			types = append(types, f.Type)
			from += n
		}
	}
	if !bytes.Equal(in, out) {
		t.Error("the frames changed")
	}
	if want := []byte{1, 2, 3, 3, 3, 8}; !bytes.Equal(types, want) {
		t.Errorf("types %v, want %v", types, want)
	}
}

func TestBodyFrames(t *testing.T) {
	for _, test := range []struct {
		body, frameMax int
		want           []int
	}{
		{0, 4096, nil},
		{1, 4096, []int{1}},
		{4088, 4096, []int{4088}},
		{4089, 4096, []int{4088, 1}},
		{8176, 4096, []int{4088, 4088}},
		{10000, 1, []int{4088, 4088, 1824}},
		{100000, 0, []int{100000}},
	} {
		out := AppendBodyFrames(nil, 7, make([]byte, test.body), uint32(test.frameMax))
		var sizes []int
		for len(out) > 0 {
			f, n, err := ParseFrame(out, 0)
			if err != nil || n == 0 {
				t.Fatalf("n = %d, err = %v", n, err)
			}
			sizes = append(sizes, len(f.Payload))
			out = out[n:]
		}
		if len(sizes) != len(test.want) {
			t.Errorf("%d bytes, frame-max %d: %v, want %v", test.body, test.frameMax, sizes, test.want)
			continue
		}
		for i := range sizes {
			if sizes[i] != test.want[i] {
				t.Errorf("%d bytes, frame-max %d: %v, want %v", test.body, test.frameMax, sizes, test.want)
			}
		}
	}
}

func TestAcceptsProtocol(t *testing.T) {
	for head, want := range map[string]bool{
		"AMQP\x00\x00\x09\x01": true,
		"AMQP\x01\x01\x00\x09": true,
		"AMQP\x03\x01\x00\x00": false,
		"AMQP\x01\x01\x08\x00": false,
		"GET / HT":             false,
		"AMQP":                 false,
		"":                     false,
	} {
		if AcceptsProtocol([]byte(head)) != want {
			t.Errorf("%q: %v", head, !want)
		}
	}
}
