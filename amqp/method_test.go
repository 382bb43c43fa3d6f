package amqp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// methodIDs is every id that a method struct exists for.
func methodIDs() []MethodID {
	var ids []MethodID
	for class := range 256 {
		for method := range 256 {
			if id := MethodID(class<<16 | method); NewMethod(id) != nil {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// fill gives every field of m a value from rng.
func fill(m Method, rng *rand.Rand) {
	text := func() string {
		return strings.Repeat("é", rng.IntN(3)) + strings.Repeat("x", rng.IntN(5))
	}
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		switch f.Interface().(type) {
		case bool:
			f.SetBool(rng.IntN(2) == 1)
		case string:
			f.SetString(text())
		case []byte:
			f.SetBytes([]byte(text() + "\xff"))
		case Table:
			f.SetBytes(Table{}.AppendString("k", text()).AppendInt64("n", int64(rng.Uint64())))
		case uint8, uint16, uint32, uint64:
			f.SetUint(rng.Uint64() >> (64 - f.Type().Bits()))
		default:
			panic(f.Type().String())
		}
	}
}

func TestMethodRoundTrip(t *testing.T) {
	ids := methodIDs()
	if want := 66; len(ids) != want {
		t.Errorf("%d methods, want %d", len(ids), want)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, id := range ids {
		t.Run(id.String(), func(t *testing.T) {
			for range 50 {
				m := NewMethod(id)
				if m.ID() != id {
					t.Fatalf("ID() = %v", m.ID())
				}
				fill(m, rng)
				payload := m.Append([]byte("before"))[len("before"):]
				gotID, args, err := SplitMethod(payload)
				if err != nil || gotID != id {
					t.Fatalf("SplitMethod: %v, %v", gotID, err)
				}
				back := NewMethod(id)
				if err := back.Decode(args); err != nil {
					t.Fatalf("%+v: %v", m, err)
				}
				if !reflect.DeepEqual(m, back) {
					t.Fatalf("sent %+v\ngot  %+v", m, back)
				}
				// A struct that was used before is no different.
				if err := m.Decode(args); err != nil || !reflect.DeepEqual(m, back) {
					t.Fatalf("reused: %+v, %v", m, err)
				}
				for cut := range args {
					if err := NewMethod(id).Decode(args[:cut]); err != ErrArguments {
						t.Fatalf("cut to %d of %d: %v", cut, len(args), err)
					}
				}
				if err := NewMethod(id).Decode(append(args, 0)); err != ErrArguments {
					t.Fatalf("a byte too many: %v", err)
				}
			}
		})
	}
}

// The bytes are written out by hand from the grammar of AMQP 0-9-1 §4.2.
func TestMethodBytes(t *testing.T) {
	for _, test := range []struct {
		m    Method
		want string
	}{
		{&ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60},
			"000a 001f 07ff 00020000 003c"},
		{&ConnectionOpen{VirtualHost: "/"}, "000a 0028 01 2f 00 00"},
		{&ConnectionOpenOk{}, "000a 0029 00"},
		{&ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00u\x00p", Locale: "en_US"},
			"000a 000b 00000000 05 504c41494e 00000004 00750070 05 656e5f5553"},
		{&ConnectionStart{VersionMinor: 9, ServerProperties: Table(nil).AppendBool("a", true), Mechanisms: "PLAIN", Locales: "en_US"},
			"000a 000a 00 09 00000004 01 61 74 01 00000005 504c41494e 00000005 656e5f5553"},
		{&ChannelOpen{}, "0014 000a 00"},
		{&ChannelOpenOk{}, "0014 000b 00000000"},
		{&ChannelClose{ReplyCode: 404, ReplyText: "NO", ClassID: 50, MethodID: 10}, "0014 0028 0194 02 4e4f 0032 000a"},
		{&ChannelCloseOk{}, "0014 0029"},
		{&AccessRequest{Realm: "r", Exclusive: true, Write: true}, "001e 000a 01 72 09"},
		{&AccessRequestOk{Ticket: 1}, "001e 000b 0001"},
		{&ExchangeDeclare{Exchange: "e", Type: "fanout", AutoDelete: true, NoWait: true},
			"0028 000a 0000 01 65 06 66616e6f7574 14 00000000"},
		{&ExchangeUnbindOk{}, "0028 0033"},
		{&QueueDeclare{Queue: "q", Durable: true, Exclusive: true}, "0032 000a 0000 01 71 06 00000000"},
		{&QueueDeclareOk{Queue: "q", MessageCount: 1, ConsumerCount: 2}, "0032 000b 01 71 00000001 00000002"},
		{&QueueUnbind{Queue: "q", Exchange: "e", RoutingKey: "k"}, "0032 0032 0000 01 71 01 65 01 6b 00000000"},
		{&BasicQos{PrefetchCount: 10, Global: true}, "003c 000a 00000000 000a 01"},
		{&BasicConsume{Queue: "q", ConsumerTag: "t", NoAck: true}, "003c 0014 0000 01 71 01 74 02 00000000"},
		{&BasicPublish{Exchange: []byte("e"), RoutingKey: []byte("k"), Mandatory: true}, "003c 0028 0000 01 65 01 6b 01"},
		{&BasicDeliver{ConsumerTag: []byte("t"), DeliveryTag: 258, Redelivered: true, RoutingKey: []byte("k")},
			"003c 003c 01 74 0000000000000102 01 00 01 6b"},
		{&BasicGetEmpty{}, "003c 0048 00"},
		{&BasicNack{DeliveryTag: 1, Requeue: true}, "003c 0078 0000000000000001 02"},
		{&ConfirmSelect{NoWait: true}, "0055 000a 01"},
		{&TxRollbackOk{}, "005a 001f"},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(test.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := test.m.Append(nil); !bytes.Equal(got, want) {
			t.Errorf("%v:\n got %x\nwant %x", test.m.ID(), got, want)
		}
	}
}

func TestMethodFaults(t *testing.T) {
	badTable := Table("\x01aU\x00\x01")
	long := func(t Table) []byte { return appendTable(nil, t) }
	cat := func(parts ...any) []byte {
		var b []byte
		for _, p := range parts {
			switch p := p.(type) {
			case string:
				b = append(b, p...)
			case []byte:
				b = append(b, p...)
			}
		}
		return b
	}
	for _, test := range []struct {
		name string
		m    Method
		args []byte
		want error
	}{
		{"bad UTF-8", &QueueDeclare{}, cat("\x00\x00\x01\xff\x00", long(nil)), ErrUTF8},
		{"bad UTF-8 in a reserved field", &ChannelOpen{}, []byte("\x01\xff"), ErrUTF8},
		{"bad UTF-8 in a longstr", &ConnectionSecureOk{}, []byte("\x00\x00\x00\x01\xff"), nil},
		{"bad UTF-8 in publish", &BasicPublish{}, []byte("\x00\x00\x01\xff\x01\xff\x00"), nil},
		{"bad UTF-8 in deliver", &BasicDeliver{}, []byte("\x01\xff12345678\x00\x01\xff\x01\xff"), nil},
		{"bad table", &QueueDeclare{}, cat("\x00\x00\x01q\x00", long(badTable)), ErrTable},
		{"bad table and UTF-8", &QueueDeclare{}, cat("\x00\x00\x01\xff\x00", long(badTable)), ErrUTF8},
		{"bad table, UTF-8 and length", &QueueDeclare{}, cat("\x00\x00\x01\xff\x00", long(badTable), "x"), ErrArguments},
		{"table beyond the end", &QueueDeclare{}, []byte("\x00\x00\x01q\x00\xff\xff\xff\xff"), ErrArguments},
		{"unknown high bits", &ConfirmSelect{}, []byte("\xfe"), nil},
	} {
		if err := test.m.Decode(test.args); err != test.want {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	if m := (&ConfirmSelect{NoWait: true}); m.Decode([]byte("\xfe")) != nil || m.NoWait {
		t.Error("bits beyond the first count")
	}
	if _, err := DecodeMethod([]byte("\x00\x3c\x00\xff")); err != ErrUnknownMethod {
		t.Errorf("60.255: %v", err)
	}
	if _, err := DecodeMethod([]byte("\x00\x3c\x00")); err != ErrArguments {
		t.Errorf("three bytes: %v", err)
	}
}

func TestDecodeError(t *testing.T) {
	for _, test := range []struct {
		err  error
		want Error
	}{
		{ErrUTF8, Error{501, "FRAME_ERROR - Malformed UTF-8 in shortstr", 0, 0}},
		{ErrArguments, Error{501, "FRAME_ERROR - cannot decode <<0,1>>", 50, 10}},
		{ErrTable, Error{541, "INTERNAL_ERROR", 0, 0}},
		{ErrUnknownMethod, Error{503, "COMMAND_INVALID - unimplemented method", 50, 10}},
	} {
		if got := DecodeError(QueueDeclareID, []byte{0, 1}, test.err); *got != test.want {
			t.Errorf("%v: %+v, want %+v", test.err, *got, test.want)
		}
	}
	if e := DecodeError(QueueDeclareID, make([]byte, 100000), ErrArguments); len(e.Text) > MaxShortstr {
		t.Errorf("%d bytes of text", len(e.Text))
	}
}

func TestMethodID(t *testing.T) {
	for _, test := range []struct {
		id                                  MethodID
		name                                string
		known, client, server, content, has bool
	}{
		{BasicPublishID, "basic.publish", true, true, false, true, true},
		{BasicGetOkID, "basic.get-ok", true, false, true, true, true},
		{BasicAckID, "basic.ack", true, true, true, false, true},
		{BasicCreditID, "basic.credit", true, false, false, false, false},
		{ExchangeUnbindOkID, "exchange.unbind-ok", true, false, true, false, true},
		{60<<16 | 41, "60.41", false, false, false, false, false},
		{ConnectionUpdateSecretOkID, "connection.update-secret-ok", true, false, true, false, true},
	} {
		id := test.id
		if id.String() != test.name || id.Known() != test.known || id.FromClient() != test.client ||
			id.FromServer() != test.server || id.HasContent() != test.content || (NewMethod(id) != nil) != test.has {
			t.Errorf("%s: wrong facts", test.name)
		}
	}
	if id := ConnectionTuneOkID; id.Class() != 10 || id.Method() != 31 {
		t.Errorf("%v: %d.%d", id, id.Class(), id.Method())
	}
}

func TestTooLongShortstr(t *testing.T) {
	(&QueueDelete{Queue: strings.Repeat("a", 255)}).Append(nil)
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, ErrTooLong) {
			t.Errorf("panic %v", err)
		}
	}()
	(&QueueDelete{Queue: strings.Repeat("a", 256)}).Append(nil)
}
