package conformance

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"
)

// play runs one transcript of cases against a fake broker and returns the results.
func play(t *testing.T, broker fakeBroker, text string) []Result {
	t.Helper()
	if broker.product == "" {
		broker.product = "Fake"
	}
	if broker.answer == nil {
		broker.answer = func(frame, message) []byte { return nil }
	}
	cases, err := parseFile("test.txt", text)
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Options{URI: broker.start(t), Cases: cases, Limit: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return report.Results
}

// answers maps a method's name to what the fake broker writes; %q means the queue the method names.
func answers(m map[string]func(ch uint16, in message) []byte) func(frame, message) []byte {
	return func(f frame, in message) []byte {
		if a := m[in.spec.name]; a != nil {
			return a(f.channel, in)
		}
		return nil
	}
}

func declareOK(ch uint16, in message) []byte {
	return reply(ch, "queue.declare-ok", map[string]any{"queue": in.values["queue"], "message-count": uint64(3)})
}

// TestVerdicts plays each step against a broker that is right and against brokers that are wrong.
func TestVerdicts(t *testing.T) {
	deliver := func(redelivered bool, body ...string) func(uint16, message) []byte {
		return func(ch uint16, _ message) []byte {
			values := map[string]any{"consumer-tag": "c", "delivery-tag": uint64(1), "redelivered": redelivered, "routing-key": "k",
				"content-type": "a/b", "headers": table{{"n", int32(5)}, {"s", "x"}}}
			return append(reply(ch, "basic.consume-ok", map[string]any{"consumer-tag": "c"}), reply(ch, "basic.deliver", values, body...)...)
		}
	}
	closeWith := func(name string, values map[string]any) func(uint16, message) []byte {
		return func(ch uint16, _ message) []byte {
			if name == "connection.close" {
				ch = 0
			}
			return reply(ch, name, values)
		}
	}
	get := "queue.declare"
	notFound := map[string]any{"reply-code": uint64(404), "reply-text": "NOT_FOUND - no queue 'q'", "class-id": uint64(50), "method-id": uint64(10)}
	for _, c := range []struct {
		name   string
		text   string
		method string
		answer func(uint16, message) []byte
		wrong  string // part of the error; empty: the case passes
	}{
		{"call", "queue.declare queue=q -> queue=q message-count=3", get, declareOK, ""},
		{"call with another count", "queue.declare queue=q -> message-count=2", get, declareOK, "message-count"},
		{"call with another name", "queue.declare queue=q -> queue=r", get, declareOK, `"q", expected "r"`},
		{"call with another reply", "queue.declare queue=q", get, closeWith("queue.bind-ok", nil), "came queue.bind-ok"},
		{"call without a reply", "queue.declare queue=q", get, nil, "nothing came in time"},
		{"reply on another channel", "queue.declare queue=q", get, func(ch uint16, m message) []byte { return declareOK(ch+1, m) }, "nothing came in time"},
		{"regexp", "queue.declare queue=qq -> queue=~`^q+$`", get, declareOK, ""},
		{"regexp that fails", "queue.declare queue=qq -> queue=~`^q$`", get, declareOK, "does not match"},
		{"capture", "queue.declare queue=q -> queue=?n\n    queue.declare queue=$n -> queue=$n", get, declareOK, ""},

		{"channel error", "> queue.declare queue=q\n    ! 404 NOT_FOUND - no queue 'q'", get, closeWith("channel.close", notFound), ""},
		{"channel error of any text", "> queue.declare queue=q\n    ! 404", get, closeWith("channel.close", notFound), ""},
		{"channel error with another code", "> queue.declare queue=q\n    ! 405 NOT_FOUND - no queue 'q'", get, closeWith("channel.close", notFound), "code 404"},
		{"channel error with another text", "> queue.declare queue=q\n    ! 404 NOT_FOUND - no queue 'r'", get, closeWith("channel.close", notFound), "expected"},
		{"channel error with another method", "> queue.declare queue=q\n    ! 404 (basic.get) NOT_FOUND - no queue 'q'", get, closeWith("channel.close", notFound), "failing method"},
		{"no channel error", "> queue.declare queue=q\n    ! 404", get, declareOK, "another method"},
		{"channel error instead of a connection's", "> queue.declare queue=q\n    !! 404", get, closeWith("channel.close", notFound), "came channel.close"},
		{"connection error instead of a channel's", "> queue.declare queue=q\n    ! 404", get, closeWith("connection.close", notFound), "came connection.close"},
		{"connection error", "> queue.declare queue=q\n    !! 404 NOT_FOUND - no queue 'q'", get, closeWith("connection.close", notFound), ""},
		{"connection error in a call", "queue.declare queue=q", get, closeWith("connection.close", notFound), "came connection.close"},

		{"delivery", "basic.consume queue=q\n    < basic.deliver content-type=\"a/b\" headers={n: 5, s: \"x\"} \"body\"", "basic.consume", deliver(false, "body"), ""},
		{"delivery in two frames", "basic.consume queue=q\n    < basic.deliver body-frames=2 \"body\"", "basic.consume", deliver(false, "bo", "dy"), ""},
		{"delivery in a frame too many", "basic.consume queue=q\n    < basic.deliver body-frames=1 \"body\"", "basic.consume", deliver(false, "bo", "dy"), "body-frames"},
		{"delivery with another body", "basic.consume queue=q\n    < basic.deliver \"other\"", "basic.consume", deliver(false, "body"), "body:"},
		{"delivery marked redelivered", "basic.consume queue=q\n    < basic.deliver \"body\"", "basic.consume", deliver(true, "body"), "redelivered"},
		{"delivery expected redelivered", "basic.consume queue=q\n    < basic.deliver redelivered \"body\"", "basic.consume", deliver(false, "body"), "redelivered"},
		{"delivery nobody waits for", "basic.consume queue=q", "basic.consume", deliver(false, "body"), "no step waits"},
		{"delivery that is ignored", "basic.consume queue=q\n    ignore", "basic.consume", deliver(false, "body"), ""},
		{"a header of another type", "basic.consume queue=q\n    < basic.deliver headers={n: l(5), s: \"x\"}", "basic.consume", deliver(false, "body"), "expected 5"},
		{"a header too many", "basic.consume queue=q\n    < basic.deliver headers={n: 5}", "basic.consume", deliver(false, "body"), "entries"},
		{"some headers", "basic.consume queue=q\n    < basic.deliver headers={n: I(5), ...}", "basic.consume", deliver(false, "body"), ""},
		{"a header too few", "basic.consume queue=q\n    < basic.deliver headers={z: 5, ...}", "basic.consume", deliver(false, "body"), `no "z"`},
		{"a property that must be absent", "basic.consume queue=q\n    < basic.deliver content-type=none", "basic.consume", deliver(false, "body"), "content-type is there"},
		{"a property that is absent", "basic.consume queue=q\n    < basic.deliver expiration=none", "basic.consume", deliver(false, "body"), ""},
		{"a property that is missing", "basic.consume queue=q\n    < basic.deliver expiration=5", "basic.consume", deliver(false, "body"), "expiration is missing"},
		{"nothing", "basic.consume queue=q\n    nothing within 50ms", "basic.consume", deliver(false, "body"), "came"},

		{"either first", "> basic.consume queue=q\n    either\n        < basic.consume-ok consumer-tag=c\n        < basic.deliver \"body\"\n    or\n        ! 404", "basic.consume", deliver(false, "body"), ""},
		{"either second", "> queue.declare queue=q\n    either\n        < queue.declare-ok\n    or\n        ! 404", get, closeWith("channel.close", notFound), ""},
		{"either neither", "> queue.declare queue=q\n    either\n        < queue.declare-ok\n    or\n        ! 404", get, closeWith("queue.bind-ok", nil), "2 alternatives"},
		{"any order", "> basic.consume queue=q\n    any order\n        < basic.deliver \"body\"\n        < basic.consume-ok consumer-tag=c", "basic.consume", deliver(false, "body"), ""},
		{"any order with one missing", "> basic.consume queue=q\n    any order\n        < basic.deliver \"other\"\n        < basic.consume-ok consumer-tag=c", "basic.consume", deliver(false, "body"), "any order"},

		{"garbage", "queue.declare queue=q", get, func(uint16, message) []byte { return []byte("garbage that is no frame at all....") }, "closed"},
		{"malformed reply", "queue.declare queue=q", get, func(ch uint16, _ message) []byte {
			return appendFrame(nil, frameMethod, ch, []byte{0, 50, 0, 11, 9})
		}, "broke the protocol"},
		{"unknown method", "queue.declare queue=q", get, func(ch uint16, _ message) []byte {
			return appendFrame(nil, frameMethod, ch, []byte{0, 99, 0, 11})
		}, "unknown method"},
		{"body before its header", "queue.declare queue=q", get, func(ch uint16, _ message) []byte {
			return appendFrame(nil, frameBody, ch, []byte("x"))
		}, "broke the protocol"},
		{"body frame above frame-max", "> basic.get queue=q\n    < basic.get-ok", "basic.get", func(ch uint16, _ message) []byte {
			return reply(ch, "basic.get-ok", nil, strings.Repeat("x", 8185))
		}, "frame-max"},
		{"get with a message", "basic.get queue=q -> \"m\"", "basic.get", func(ch uint16, _ message) []byte { return reply(ch, "basic.get-ok", nil, "m") }, ""},
		{"get that should be empty", "basic.get queue=q -> empty", "basic.get", func(ch uint16, _ message) []byte { return reply(ch, "basic.get-ok", nil, "m") }, "came basic.get-ok"},
		{"get that is empty", "basic.get queue=q -> empty", "basic.get", closeWith("basic.get-empty", nil), ""},
		{"get that should not be empty", "basic.get queue=q -> \"m\"", "basic.get", closeWith("basic.get-empty", nil), "came basic.get-empty"},

		{"a socket that stays open", "> queue.declare queue=q\n    within 50ms closes", get, nil, "expected the socket to be closed"},
		{"a frame before the end", "> connection.close\n    closes within 50ms", get, nil, "came A/0 < connection.close-ok"},
		{"too early", "> queue.declare queue=q\n    after 5s < queue.declare-ok", get, declareOK, "expected not before"},
		{"on another product", "on rabbitmq: a reason\n        queue.declare queue=q", get, nil, ""},
		{"on this product", "on fake: a reason\n        queue.declare queue=q", get, nil, "nothing came in time"},
		{"repeat", "repeat 3\n        queue.declare queue=\"q$i\" -> queue=\"q$i\"", get, declareOK, ""},
		{"together", "together\n        > queue.declare queue=a\n        > queue.declare queue=b\n    < queue.declare-ok queue=a\n    < queue.declare-ok queue=b", get, declareOK, ""},
		{"another order", "together\n        > queue.declare queue=a\n        > queue.declare queue=b\n    < queue.declare-ok queue=b", get, declareOK, `"a", expected "b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			broker := fakeBroker{answer: answers(map[string]func(uint16, message) []byte{c.method: c.answer})}
			if c.answer == nil {
				broker.answer = nil
			}
			r := play(t, broker, "case c\n    "+c.text+"\n")[0]
			switch {
			case c.wrong == "" && r.Status != Passed:
				t.Fatalf("%s: %v\n%s", r.Status, r.Err, strings.Join(r.Frames, "\n"))
			case c.wrong != "" && (r.Status != Failed || !strings.Contains(r.Err.Error(), c.wrong)):
				t.Fatalf("%s %v, expected an error with %q", r.Status, r.Err, c.wrong)
			case c.wrong != "" && !regexp.MustCompile(`^transcripts/test\.txt:\d+: `).MatchString(r.Err.Error()):
				t.Fatalf("%v names no line", r.Err)
			}
		})
	}
}

func TestConfirmsAreCountedOnce(t *testing.T) {
	const text = "case c\n    confirm.select\n    > basic.publish \"1\"\n    > basic.publish \"2\"\n    > basic.publish \"3\"\n    confirms ack=1-3\n    nothing within 30ms\n"
	ack := func(ch uint16, name string, tag uint64, multiple bool) []byte {
		return reply(ch, name, map[string]any{"delivery-tag": tag, "multiple": multiple})
	}
	for name, c := range map[string]struct {
		confirm func(n int, ch uint16) []byte
		wrong   string
	}{
		"single":   {func(n int, ch uint16) []byte { return ack(ch, "basic.ack", uint64(n), false) }, ""},
		"multiple": {func(n int, ch uint16) []byte { return map[int][]byte{3: ack(ch, "basic.ack", 3, true)}[n] }, ""},
		"twice": {func(n int, ch uint16) []byte {
			return map[int][]byte{1: ack(ch, "basic.ack", 1, false), 2: ack(ch, "basic.ack", 1, false)}[n]
		}, "confirmed twice"},
		"of a nack":      {func(n int, ch uint16) []byte { return map[int][]byte{3: ack(ch, "basic.nack", 3, true)}[n] }, "came nack"},
		"never":          {func(n int, ch uint16) []byte { return map[int][]byte{2: ack(ch, "basic.ack", 2, true)}[n] }, "confirm of publish 3"},
		"of the unknown": {func(n int, ch uint16) []byte { return map[int][]byte{3: ack(ch, "basic.ack", 4, true)}[n] }, "publish 4 of 3"},
		"once too often": {func(n int, ch uint16) []byte {
			return map[int][]byte{3: append(ack(ch, "basic.ack", 3, true), ack(ch, "basic.ack", 3, true)...)}[n]
		}, "basic.ack"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			r := play(t, fakeBroker{answer: func(f frame, m message) []byte {
				switch m.spec.name {
				case "confirm.select":
					return reply(f.channel, "confirm.select-ok", nil)
				case "basic.publish":
					n++
					return c.confirm(n, f.channel)
				}
				return nil
			}}, text)[0]
			if c.wrong == "" && r.Err != nil || c.wrong != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), c.wrong)) {
				t.Fatalf("%v, expected %q", r.Err, c.wrong)
			}
		})
	}
}

func TestDifferencesNeedAReason(t *testing.T) {
	for _, text := range []string{
		"case c\n    on rabbitmq:\n        queue.declare\n",
		"case c\n    on rabbitmq\n        queue.declare\n",
		"case c\n    not on rabbitmq:\n    queue.declare\n",
	} {
		if _, err := parseFile("t.txt", text); err == nil || !strings.Contains(err.Error(), "reason") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestMistakesInTranscripts(t *testing.T) {
	for text, want := range map[string]string{
		"case c\n    queue.declare queue=$q\n":                       "t.txt:2: no variable $q",
		"case c\n    names q\n    queue.declare queue=\"$r\"\n":      "t.txt:3: no variable $r",
		"case c\n    queue.decline\n":                                `no method "queue.decline"`,
		"case c\n    queue.declare name=q\n":                         "queue.declare has no name",
		"case c\n    queue.declare -> name=q\n":                      "queue.declare-ok has no name",
		"case c\n    basic.publish \"m\"\n":                          "write > basic.publish",
		"case c\n    < queue.declare-ok durable\n":                   "has no durable",
		"queue.declare\n":                                            "t.txt:1: neither",
		"case c\n    or\n        closes\n":                           "or without either",
		"case c\n    either\n":                                       "nothing is indented",
		"case c\n    tcp\n        closes\n":                          "nothing may be indented",
		"case c\n    > basic.publish headers={a 1}\n":                "a key without ':'",
		"case c\n    > basic.publish \"m\n":                          "does not end",
		"case c\n    ! abc\n":                                        "invalid syntax",
		"case c\n    within never closes\n":                          "invalid duration",
		"case c\n    set v <w>\n    rows v | w\n        1\n":         "1 cells for 2 columns",
		"case c\n    > basic.publish headers={a: I(1, 2)} \"m\"\n":   "",
		"case c\n    A/x queue.declare\n":                            "no channel number",
		"case c\n    confirms ok=1\n":                                "confirms are",
		"case c\n    http GET /api\n":                                "http METHOD PATH",
		"case c\n    closes now\n":                                   `too much: "now"`,
		"case c\n    queue.declare arguments={a: $b}\n":              "no variable $b",
		"case c\n    queue.declare\n    ! 404 no '$nothing' there\n": "no variable $nothing",
	} {
		_, err := parseFile("t.txt", text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, expected %q", text, err, want)
		}
	}
}

func TestRowsMakeCases(t *testing.T) {
	cases, err := parseFile("t.txt", "case name\n    > basic.publish routing-key=<key> \"<body>\"\n    rows key | body\n        a | 1\n        \"b c\" |\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 2 || cases[0].FullName() != "t/name [a | 1]" || cases[1].Line != 5 {
		t.Fatalf("%+v", cases)
	}
	if f := cases[1].steps[0].fields[0].value; f.text != "b c" {
		t.Fatalf("%+v", f)
	}
}

func TestSkippedCasesSayWhy(t *testing.T) {
	r := play(t, fakeBroker{}, "case one\n    not on fake: it is not built\n    queue.declare\ncase two\n    http GET /x -> 200\n")
	if r[0].Status != Skipped || r[0].Reason != "it is not built" {
		t.Errorf("%+v", r[0])
	}
	if r[1].Status != Skipped || !strings.Contains(r[1].Reason, "management") {
		t.Errorf("%+v", r[1])
	}
}

func TestRunNeedsABroker(t *testing.T) {
	for name, broker := range map[string]fakeBroker{
		"another protocol": {greet: []byte("SSH-2.0-OpenSSH\r\n"), hangUp: true},
		"a refusal":        {greet: []byte("AMQP\x00\x01\x00\x00"), hangUp: true},
		"silence":          {greet: []byte{}, hangUp: true},
		"a closed login":   {refuse: reply(0, "connection.close", map[string]any{"reply-code": uint64(403)})},
	} {
		if _, err := Run(t.Context(), Options{URI: broker.start(t), Limit: 300 * time.Millisecond}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, uri := range []string{"", "http://x", "amqp://", "amqp://127.0.0.1:1"} {
		if _, err := Run(t.Context(), Options{URI: uri}); err == nil {
			t.Errorf("%q: no error", uri)
		}
	}
}

func TestARunCanBeStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cases, err := parseFile("t.txt", "case a\n    queue.declare\ncase b\n    queue.declare\ncase c\n    queue.declare\n")
	if err != nil {
		t.Fatal(err)
	}
	uri := fakeBroker{product: "Fake", answer: func(frame, message) []byte { cancel(); return nil }}.start(t)
	report, err := Run(ctx, Options{URI: uri, Cases: cases, Parallel: 1})
	if err != nil || report.Count(Passed) != 0 || report.Duration > 5*time.Second {
		t.Fatalf("%v %+v", err, report)
	}
}

// TestTablesSurvive writes a table of every type and reads it back.
func TestTablesSurvive(t *testing.T) {
	in := table{{"t", true}, {"b", int8(-1)}, {"B", uint8(200)}, {"s", int16(-2)}, {"u", uint16(60000)}, {"I", int32(-3)}, {"i", uint32(4e9)},
		{"l", int64(-4)}, {"L", longL(5)}, {"f", float32(1.5)}, {"d", 2.5}, {"D", decimal{2, 314}}, {"S", "text"}, {"x", []byte{0, 255}},
		{"A", []any{int32(1), "two", table{}}}, {"F", table{{"a", []any{}}}}, {"T", stamp(9)}, {"V", nil}}
	d := decoder{b: appendTable(nil, in)}
	out := d.table(0)
	if d.err != nil || len(d.b) != 0 || !same(in, out) {
		t.Fatalf("%v\n%s\n%s", d.err, format(in), format(out))
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 50, 0, 10, 0, 0, 1, 'q', 0, 0, 0, 0, 4, 1, 'a', 't', 1})
	f.Add([]byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMethod(b); err == nil {
			_ = m.String()
		}
		m := message{spec: methodsByName["basic.deliver"], values: map[string]any{}}
		if _, err := m.decodeHeader(b); err == nil {
			_ = m.String()
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("case c\n    names q\n    > basic.publish routing-key=$q headers={a: [I(1), {b: void}], ...} \"x\"*3\n    ! 404 ~ x\n")
	f.Add("case c\n    either\n        < basic.ack\n    or\n        closes within 1s\n    rows a | b\n        1 | 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parseFile("f.txt", text)
	})
}
