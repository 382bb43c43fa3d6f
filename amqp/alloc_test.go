package amqp

import "testing"

// The inputs of the hot path.
type hot struct {
	publish, bare, transient, whole, frame []byte
	table                                  Table
	deliver                                BasicDeliver
	dst                                    []byte
}

func newHot(t testing.TB) *hot {
	publish := BasicPublish{Exchange: []byte("exchange"), RoutingKey: []byte("routing.key")}
	all := full()
	return &hot{
		publish:   publish.Append(nil)[4:],
		bare:      header(t, PropertyList{}),
		transient: header(t, PropertyList{DeliveryMode: Transient}),
		whole:     header(t, all),
		frame:     AppendFrame(nil, FrameBody, 1, make([]byte, 16)),
		table:     every(),
		deliver: BasicDeliver{ConsumerTag: []byte("ctag-1"), DeliveryTag: 1,
			Exchange: []byte("exchange"), RoutingKey: []byte("routing.key")},
		dst: make([]byte, 0, 4096),
	}
}

func (h *hot) paths() map[string]func() {
	var publish BasicPublish
	var head Header
	return map[string]func(){
		"ParseFrame": func() {
			if _, n, err := ParseFrame(h.frame, 131072); n == 0 || err != nil {
				panic(err)
			}
		},
		"publish.Decode": func() {
			if err := publish.Decode(h.publish); err != nil {
				panic(err)
			}
		},
		"deliver.Append": func() {
			h.dst = h.deliver.Append(BeginFrame(h.dst[:0], FrameMethod, 1))
			h.dst = EndFrame(h.dst, 0)
		},
		"Header.Decode/bare":  func() { head.mustDecode(h.bare) },
		"Header.Decode/mode":  func() { head.mustDecode(h.transient) },
		"Header.Decode/whole": func() { head.mustDecode(h.whole) },
		"ParseHeader": func() {
			if _, err := ParseHeader(h.transient); err != nil {
				panic(err)
			}
		},
		"Properties.AppID": func() {
			if err := head.Decode(h.whole); err != nil {
				panic(err)
			}
			if _, ok := head.AppID(); !ok {
				panic("no app-id")
			}
		},
		"Table.Validate": func() {
			if err := h.table.Validate(); err != nil {
				panic(err)
			}
		},
		"Table.Get": func() {
			if _, ok := h.table.Get("T"); !ok {
				panic("no T")
			}
		},
		"Table.All": func() {
			for k, v := range h.table.All() {
				if _, ok := v.Int(); ok && len(k) == 0 {
					panic("no key")
				}
			}
		},
		"AppendBodyFrames": func() { h.dst = AppendBodyFrames(h.dst[:0], 1, h.frame, 131072) },
		"AppendEdited": func() {
			h.dst = h.table.AppendEdited(h.dst[:0], Edit{Key: "V", Remove: true})
		},
	}
}

func (h *Header) mustDecode(payload []byte) {
	if err := h.Decode(payload); err != nil || h.BodySize != 1234 {
		panic("bad header")
	}
}

func TestNoAllocation(t *testing.T) {
	for name, path := range newHot(t).paths() {
		if n := testing.AllocsPerRun(100, path); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkHot(b *testing.B) {
	for name, path := range newHot(b).paths() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				path()
			}
		})
	}
}
