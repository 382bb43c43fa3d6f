package amqp

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestErrorf(t *testing.T) {
	e := Errorf(NotFound, "no queue '%s' in vhost '%s'", "a", "/")
	if e.Error() != "NOT_FOUND - no queue 'a' in vhost '/'" || e.Hard() || e.Name() != "NOT_FOUND" {
		t.Errorf("%+v", *e)
	}
	in := e.In(QueueDeclareID)
	if in.Class != 50 || in.Method != 10 || in.Text != e.Text || e.Class != 0 {
		t.Errorf("%+v from %+v", *in, *e)
	}
	if e := Errorf(InternalError, ""); e.Text != "INTERNAL_ERROR" || !e.Hard() {
		t.Errorf("%+v", *e)
	}
	if e := Errorf(599, "x"); e.Text != "599 - x" || !e.Hard() {
		t.Errorf("%+v", *e)
	}
}

func TestReplyText(t *testing.T) {
	for in, want := range map[string]string{
		strings.Repeat("a", 255):              strings.Repeat("a", 255),
		strings.Repeat("a", 256):              strings.Repeat("a", 252) + "...",
		strings.Repeat("é", 128):              strings.Repeat("é", 126) + "...",
		"a" + strings.Repeat("é", 128):        "a" + strings.Repeat("é", 125) + "...",
		strings.Repeat("a", 251) + "é" + "bc": strings.Repeat("a", 251) + "é" + "bc",
		strings.Repeat("a", 251) + "€" + "bc": strings.Repeat("a", 251) + "...",
		"a\xffb":                              "a\uFFFDb",
		strings.Repeat("\xffa", 200):          strings.Repeat("\uFFFDa", 63) + "...",
	} {
		got := ReplyText(in)
		if got != want || len(got) > MaxShortstr || !utf8.ValidString(got) {
			t.Errorf("%d bytes: %q, want %q", len(in), got, want)
		}
	}
}

func TestCodes(t *testing.T) {
	soft := map[uint16]bool{311: true, 312: true, 313: true, 403: true, 404: true, 405: true, 406: true}
	known := 0
	for code := range uint16(1000) {
		if name := CodeName(code); name[0] >= 'A' {
			known++
			if e := (&Error{Code: code}); e.Hard() == soft[code] {
				t.Errorf("%d: hard = %v", code, e.Hard())
			}
		}
	}
	if known != 19 {
		t.Errorf("%d codes", known)
	}
}

func TestErlangBinary(t *testing.T) {
	for in, want := range map[string]string{
		"":              `<<>>`,
		"AMQP":          `<<"AMQP">>`,
		"\x00<\x00":     `<<0,60,0>>`,
		"a\"b\\c\n\x1b": `<<"a\"b\\c\n\e">>`,
		"caf\xc3\xa9":   `<<99,97,102,195,169>>`,
		"\x7f":          `<<127>>`,
	} {
		if got := ErlangBinary([]byte(in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
