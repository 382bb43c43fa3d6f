package broker

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/test/seeds"
)

var update = flag.Bool("update", false, "write the golden files anew")

// commands are one of each kind, no field zero.
func commands() []Command {
	arguments := amqp.Table(nil).AppendString("k", "v").AppendInt32("n", 7)
	b := Binding{Source: "s", Destination: "d", ToExchange: true, Key: "k.#", Arguments: arguments}
	return []Command{
		PutVHost{"v", "described", []string{"a", "b"}, Quorum, true},
		DeleteVHost{"v"},
		PutUser{User{"u", []byte{1, 2, 3, 4, 255}, SHA512, []string{"administrator"}}},
		DeleteUser{"u"},
		SetPermissions{"v", "u", "c", "w", "r"},
		ClearPermissions{"v", "u"},
		SetTopicPermissions{"v", "u", "x", "w", "r"},
		ClearTopicPermissions{"v", "u", "x", true},
		PutExchange{"v", exchange.Declaration{Name: "x", Type: exchange.Topic, Durable: true, AutoDelete: true, Internal: true, Arguments: arguments}},
		DeleteExchange{"v", "x", true, true},
		PutQueue{"v", QueueDeclaration{"q", true, true, true, arguments}, 300, true, 1 << 63, 2},
		DeleteQueue{"v", "q", 300, true},
		Bind{"v", b, true},
		Unbind{"v", b, true},
		PutPolicy{"v", true, Policy{"p", "^a", "queues", -3, map[string]any{"max-length": json.Number("10"), "overflow": "drop-head"}}},
		DeletePolicy{"v", true, "p"},
		SetParameter{"v", "c", "n", []byte(`{"a":[1,null]}`)},
		ClearParameter{"v", "c", "n"},
		SetGlobalParameter{"n", []byte(`"x"`)},
		ClearGlobalParameter{"n"},
		SetUserLimits{"u", []byte(`{"max-channels":7}`)},
		PutMember{Member{3, 1 << 60, "n", "h:1", 1, 2, 7, 1 << 61}},
		DeleteMember{300, []uint64{1, 301}},
		PutSlots{6, []uint64{1, 2, 300}, 2},
		PutReplica{Replica{17, 300, Votes, 5}},
	}
}

func TestCommandsGolden(t *testing.T) {
	const name = "testdata/commands.golden"
	var text strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&text, "%T %s\n", c, hex.EncodeToString(AppendCommand(nil, c)))
	}
	if *update {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("commands are written in another way than before:\n%s\nwant\n%s", text.String(), want)
	}
}

func TestCommandsRoundTrip(t *testing.T) {
	for _, full := range commands() {
		for _, c := range []Command{full, reflect.Zero(reflect.TypeOf(full)).Interface().(Command)} {
			b := AppendCommand(nil, c)
			got, err := DecodeCommand(b)
			if err != nil || !reflect.DeepEqual(got, c) {
				t.Errorf("got %+v, %v, want %+v", got, err, c)
			}
			for n := range b {
				if got, err := DecodeCommand(b[:n]); err == nil {
					t.Errorf("%d of %d octets of %+v are %+v", n, len(b), c, got)
				}
			}
			if _, err := DecodeCommand(append(b[:len(b):len(b)], 0)); err == nil {
				t.Errorf("%+v and an octet", c)
			}
			b[1]++
			if _, err := DecodeCommand(b); err == nil || !strings.Contains(err.Error(), "newer version") {
				t.Errorf("%+v of another version: %v", c, err)
			}
		}
	}
	for _, k := range []byte{0, byte(kindEnd), 255} {
		if _, err := DecodeCommand([]byte{k, 1}); err == nil || !strings.Contains(err.Error(), "unknown kind") {
			t.Errorf("kind %d: %v", k, err)
		}
	}
}

// FuzzDecodeCommand: any octets are an error or a command that is written and read as itself.
func FuzzDecodeCommand(f *testing.F) {
	for _, c := range commands() {
		f.Add(AppendCommand(nil, c))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		c, err := DecodeCommand(b)
		if !bytes.Equal(b, before) {
			t.Fatal("the octets were changed")
		}
		if err != nil {
			return
		}
		again, err := DecodeCommand(AppendCommand(nil, c))
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Fatalf("%+v became %+v, %v", c, again, err)
		}
	})
}

// TestFormerVersions: what was written before kinds had more fields is read as it was meant.
func TestFormerVersions(t *testing.T) {
	arguments := amqp.Table(nil).AppendString("k", "v").AppendInt32("n", 7)
	for octets, want := range map[string]Command{
		"010101760964657363726962656402016101620671756f72756d": PutVHost{"v", "described", []string{"a", "b"}, Quorum, false},
		"0a010176017801": DeleteExchange{"v", "x", true, false},
		"0b01017601710f0f016b530000000176016e4900000007ac0280808080808080808001": PutQueue{"v", QueueDeclaration{"q", true, true, true, arguments}, 300, true, 1 << 63, 0},
	} {
		b, err := hex.DecodeString(octets)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeCommand(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

// TestRandomCommands: commands with anything in their fields are written and read as themselves.
func TestRandomCommands(t *testing.T) {
	r := rand.New(rand.NewPCG(seeds.Of(t), 0))
	for range 300 {
		for _, c := range commands() {
			v := reflect.New(reflect.TypeOf(c)).Elem()
			scramble(r, v)
			c = v.Interface().(Command)
			if got, err := DecodeCommand(AppendCommand(nil, c)); err != nil || !reflect.DeepEqual(got, c) {
				t.Fatalf("got %+v, %v, want %+v", got, err, c)
			}
		}
	}
}

// scramble sets a value to a random one.
func scramble(r *rand.Rand, v reflect.Value) {
	octets := func() []byte {
		b := make([]byte, r.IntN(4)*r.IntN(100))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	switch p := v.Addr().Interface().(type) {
	case *amqp.Table:
		for i := range r.IntN(3) {
			*p = p.AppendString(fmt.Sprint("s", i), string(octets())).AppendInt32(fmt.Sprint("n", i), int32(r.Uint32()))
		}
		return
	case *Algorithm:
		*p = Algorithm(r.IntN(3))
		return
	case *map[string]any:
		*p = map[string]any{}
		for i := range r.IntN(4) {
			(*p)[fmt.Sprint("k", i)] = []any{json.Number(fmt.Sprint(r.IntN(99) - 50)), "text", true, nil, []any{}}[r.IntN(5)]
		}
		return
	case *[]byte: // of JSON, or a hash
		*p = []byte(fmt.Sprintf(`{"a":[%d,"%x"]}`, r.IntN(9), octets()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			scramble(r, v.Field(i))
		}
	case reflect.String:
		v.SetString(string(octets()))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int64:
		v.SetInt(int64(r.Uint64() >> r.IntN(64)))
	case reflect.Uint16, reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64) & (1<<v.Type().Bits() - 1))
	case reflect.Slice:
		for range r.IntN(3) {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		}
		for i := range v.Len() {
			scramble(r, v.Index(i))
		}
	default:
		panic(v.Type())
	}
}
