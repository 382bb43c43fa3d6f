package amqp

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// every is a table with a value of each type, and the values in Go.
func every() Table {
	return Table(nil).
		AppendBool("t", true).
		AppendValue("b", Value{TagInt8, []byte{0xff}}).
		AppendValue("B", Value{TagUint8, []byte{0xff}}).
		AppendValue("s", Value{TagInt16, []byte{0xff, 0xfe}}).
		AppendValue("u", Value{TagUint16, []byte{0xff, 0xfe}}).
		AppendInt32("I", -3).
		AppendValue("i", Value{TagUint32, []byte{0xff, 0xff, 0xff, 0xfd}}).
		AppendInt64("l", -4).
		AppendValue("L", Value{TagInt64L, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfc}}).
		AppendValue("f", Value{TagFloat, []byte{0x3f, 0xc0, 0, 0}}).
		AppendDouble("d", 2.5).
		AppendValue("D", Value{TagDecimal, []byte{2, 0, 0, 0, 125}}).
		AppendString("S", "str").
		AppendBinary("x", []byte{0xff}).
		AppendArray("A", Array(nil).AppendString("a").AppendInt64(1).AppendTable(nil)).
		AppendTable("F", Table(nil).AppendVoid("v")).
		AppendTime("T", 1700000000).
		AppendVoid("V")
}

func TestEveryType(t *testing.T) {
	table := every()
	if err := table.Validate(); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"t": true, "b": int64(-1), "B": int64(255), "s": int64(-2), "u": int64(0xfffe),
		"I": int64(-3), "i": int64(0xfffffffd), "l": int64(-4), "L": int64(-4),
		"f": 1.5, "d": 2.5, "D": 1.25, "S": "str", "x": "\xff",
		"A": []any{"a", int64(1), map[string]any{}}, "F": map[string]any{"v": nil},
		"T": uint64(1700000000), "V": nil,
	}
	if got := table.Map(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	names := map[string]string{
		"t": "bool", "b": "byte", "B": "unsignedbyte", "s": "short", "u": "unsignedshort",
		"I": "signedint", "i": "unsignedint", "l": "long", "L": "long", "f": "float", "d": "double",
		"D": "decimal", "S": "longstr", "x": "binary", "A": "array", "F": "table", "T": "timestamp", "V": "void",
	}
	n := 0
	for k, v := range table.All() {
		n++
		if v.TypeName() != names[string(k)] || v.Tag != k[0] {
			t.Errorf("%s: tag %c, %s", k, v.Tag, v.TypeName())
		}
		if got, ok := table.Get(string(k)); !ok || !got.Equal(v) || !v.Matches(got) {
			t.Errorf("Get(%s) = %v, %v", k, got, ok)
		}
	}
	if n != len(names) || table.Len() != n {
		t.Errorf("%d entries", n)
	}
	if _, ok := table.Get("none"); ok {
		t.Error("found what is not there")
	}
}

func TestMalformedTables(t *testing.T) {
	nested := func(depth int) Table {
		table := Table(nil)
		for range depth {
			table = Table(nil).AppendTable("", table)
		}
		return table
	}
	arrays := func(depth int) Table {
		array := Array(nil)
		for range depth - 1 {
			array = Array(nil).AppendValue(ArrayValue(array))
		}
		return Table(nil).AppendArray("", array)
	}
	tests := map[string]struct {
		table Table
		ok    bool
	}{
		"empty":             {nil, true},
		"empty key":         {Table("\x00V"), true},
		"key without value": {Table("\x01a"), false},
		"cut key":           {Table("\x02a"), false},
		"U is no tag":       {Table("\x01aU\x00\x01"), false},
		"zero tag":          {Table("\x01a\x00"), false},
		"cut int":           {Table("\x01aI\x00\x00\x00"), false},
		"cut string size":   {Table("\x01aS\x00\x00\x00"), false},
		"cut string":        {Table("\x01aS\x00\x00\x00\x02x"), false},
		"huge string":       {Table("\x01aS\xff\xff\xff\xffx"), false},
		"cut in a nested":   {Table("\x01aF\x00\x00\x00\x02\x01b\x01cV"), false},
		"bad in an array":   {Table("\x01aA\x00\x00\x00\x02VU"), false},
		"good array":        {Table("\x01aA\x00\x00\x00\x02VV"), true},
		"not UTF-8":         {Table("\x01\xffS\x00\x00\x00\x01\xff"), true},
		"repeated key":      {Table("\x01aV\x01aV"), true},
		"trailing":          {Table("\x01aV\x00"), false},
		"NaN":               {Table(nil).AppendDouble("d", math.NaN()), false},
		"infinity":          {Table(nil).AppendDouble("d", math.Inf(-1)), false},
		"largest":           {Table(nil).AppendDouble("d", math.MaxFloat64), true},
		"float NaN":         {Table("\x01af\x7f\xc0\x00\x00"), false},
		"float infinity":    {Table("\x01af\xff\x80\x00\x00"), false},
		"float":             {Table("\x01af\xff\x7f\xff\xff"), true},
		"deep":              {nested(MaxDepth), true},
		"too deep":          {nested(MaxDepth + 1), false},
		"deep arrays":       {arrays(MaxDepth), true},
		"too deep arrays":   {arrays(MaxDepth + 1), false},
		"hostile":           {arrays(20000), false},
	}
	for name, test := range tests {
		if err := test.table.Validate(); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		} else if err != nil && err != ErrTable {
			t.Errorf("%s: error %v", name, err)
		}
		for range test.table.All() {
		}
		test.table.Get("none")
		test.table.Canonical()
	}
}

func TestGetFindsTheFirst(t *testing.T) {
	table := Table(nil).AppendInt32("a", 1).AppendInt32("b", 2).AppendInt32("a", 3)
	if v, ok := table.Get("a"); !ok || !v.Equal(Value{TagInt32, []byte{0, 0, 0, 1}}) {
		t.Errorf("%v, %v", v, ok)
	}
	if m := table.Map(); m["a"] != int64(1) {
		t.Errorf("%v", m)
	}
}

// The rules are those of a headers exchange.
func TestMatches(t *testing.T) {
	val := func(v any) Value {
		w, err := ValueOf(v)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	void := Value{Tag: TagVoid}
	decimal := Value{TagDecimal, []byte{2, 0, 0, 0, 125}}
	for _, test := range []struct {
		name           string
		binding, value Value
		want           bool
	}{
		{"void argument", void, val("x"), true},
		{"void argument, void header", void, void, true},
		{"void argument, no header", void, Value{}, false},
		{"void header", val("x"), void, false},
		{"no header", val("x"), Value{}, false},
		{"equal strings", val("x"), val("x"), true},
		{"other strings", val("x"), val("y"), false},
		{"string and bytes", val("x"), val([]byte("x")), true},
		{"empty string and void", val(""), void, false},
		{"integer widths", val(int8(5)), val(int64(5)), true},
		{"negative integers", val(int8(-5)), val(int32(-5)), true},
		{"signed and unsigned", val(int8(-1)), val(uint8(255)), false},
		{"l and L", val(int64(7)), Value{TagInt64L, []byte{0, 0, 0, 0, 0, 0, 0, 7}}, true},
		{"int and double", val(5), val(5.0), false},
		{"double and int", val(5.0), val(5), false},
		{"float and double", val(float32(1.5)), val(1.5), true},
		{"doubles", val(1.5), val(1.6), false},
		{"zeros", val(0.0), val(math.Copysign(0, -1)), true},
		{"string and bool", val("true"), val(true), false},
		{"bools", val(true), val(true), true},
		{"other bools", val(true), val(false), false},
		{"true however written", val(true), Value{TagBool, []byte{2}}, true},
		{"true and 1", val(true), val(1), false},
		{"decimals", decimal, decimal, true},
		{"timestamps", TimeValue(9), TimeValue(9), true},
		{"timestamp and int", TimeValue(9), val(9), false},
		{"arrays", val([]any{1, "a"}), val([]any{1, "a"}), true},
		{"arrays of other order", val([]any{1, "a"}), val([]any{"a", 1}), false},
		{"widths in arrays", val([]any{int8(1)}), val([]any{int16(1)}), false},
		{"l and L in arrays", val([]any{int64(1)}), val([]any{Value{TagInt64L, []byte{0, 0, 0, 0, 0, 0, 0, 1}}}), true},
		{"strings and bytes in arrays", val([]any{"x"}), val([]any{[]byte("x")}), false},
		{"tables", val(map[string]any{"a": true}), val(map[string]any{"a": Value{TagBool, []byte{9}}}), true},
		{"table and array", val(map[string]any{}), val([]any{}), false},
	} {
		if got := test.binding.Matches(test.value); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestTableEqual(t *testing.T) {
	a := Table(nil).AppendString("a", "1")
	for _, test := range []struct {
		name string
		t, u Table
		want bool
	}{
		{"empty", nil, Table{}, true},
		{"order", a.AppendBool("b", true), Table(nil).AppendBool("b", true).AppendString("a", "1"), true},
		{"value", a, Table(nil).AppendString("a", "2"), false},
		{"key", a, Table(nil).AppendString("b", "1"), false},
		{"more", a, every(), false},
		{"type", a, Table(nil).AppendBinary("a", []byte("1")), false},
		{"L", Table(nil).AppendInt64("n", 1), Table("\x01nL\x00\x00\x00\x00\x00\x00\x00\x01"), true},
		{"true", Table("\x01nt\x01"), Table("\x01nt\xff"), true},
		{"order of repeated keys", Table("\x01nt\x01\x01nt\x00"), Table("\x01nt\x00\x01nt\x01"), false},
		{"order within", Table(nil).AppendTable("f", Table("\x01aV\x01bV")), Table(nil).AppendTable("f", Table("\x01bV\x01aV")), false},
	} {
		if got := test.t.Equal(test.u); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
		if got := bytes.Equal(test.t.Canonical(), test.u.Canonical()); got != test.want {
			t.Errorf("%s: canonical %v", test.name, got)
		}
	}
	// Enough entries that a sort which is not stable shows.
	var many, sorted Table
	for i := range int64(100) {
		many = many.AppendInt64(string(rune('a'+i%3)), i)
	}
	for key := range int64(3) {
		for i := key; i < 100; i += 3 {
			sorted = sorted.AppendInt64(string(rune('a'+key)), i)
		}
	}
	if !bytes.Equal(many.Canonical(), sorted) {
		t.Error("entries of equal keys changed their order")
	}

	in := Table("\x01bt\xff\x01aL\x00\x00\x00\x00\x00\x00\x00\x01")
	before := string(in)
	if want, got := "\x01al\x00\x00\x00\x00\x00\x00\x00\x01\x01bt\x01", string(in.Canonical()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if string(in) != before {
		t.Error("Canonical changed the table")
	}
}

func TestAppendEdited(t *testing.T) {
	in := Table(nil).AppendInt32("a", 1).AppendString("b", "x").AppendInt32("a", 2).AppendVoid("c")
	for _, test := range []struct {
		name  string
		edits []Edit
		want  Table
	}{
		{"nothing", nil, in},
		{"set the first", []Edit{{Key: "a", Value: BoolValue(true)}},
			Table(nil).AppendBool("a", true).AppendString("b", "x").AppendInt32("a", 2).AppendVoid("c")},
		{"add", []Edit{{Key: "z", Value: StringValue("1")}, {Key: "y", Value: StringValue("2")}},
			in[:len(in):len(in)].AppendString("z", "1").AppendString("y", "2")},
		{"remove all of a key", []Edit{{Key: "a", Remove: true}}, Table(nil).AppendString("b", "x").AppendVoid("c")},
		{"remove what is not there", []Edit{{Key: "n", Remove: true}}, in},
		{"both", []Edit{{Key: "c", Value: BoolValue(false)}, {Key: "b", Remove: true}},
			Table(nil).AppendInt32("a", 1).AppendInt32("a", 2).AppendBool("c", false)},
	} {
		if got := in.AppendEdited(Table("before"), test.edits...); string(got) != "before"+string(test.want) {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got[len("before"):], test.want)
		}
	}
}

func TestTableOf(t *testing.T) {
	got, err := TableOf(map[string]any{
		"z": int8(-1), "y": uint8(1), "x": int16(-2), "w": uint16(2), "v": int32(-3), "u": uint32(3),
		"t": int64(4), "s": 5, "r": uint64(6), "q": uint(7), "p": float32(0.5), "o": 0.25,
		"n": json.Number("8"), "m": json.Number("8.5"), "l": "str", "k": []byte("bin"),
		"j": time.Unix(9, 0), "i": nil, "h": []any{"a"}, "g": []string{"b"}, "f": map[string]any{"c": true},
		"e": Table(nil).AppendVoid("d"), "d": Array(nil).AppendInt64(1), "c": Value{TagDecimal, []byte{0, 0, 0, 0, 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tags := ""
	for _, v := range got.All() {
		tags += string(v.Tag)
	}
	if want := "DAFFAAVTxSdldflllliIusBb"; tags != want {
		t.Errorf("tags %s, want %s", tags, want)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	inner := Table(nil)
	for range MaxDepth - 1 {
		inner = Table(nil).AppendTable("", inner)
	}
	deep := any(nil)
	for range MaxDepth + 2 {
		deep = []any{deep}
	}
	for name, v := range map[string]any{
		"struct": struct{}{}, "NaN": math.NaN(), "infinity": float32(math.Inf(1)), "large": uint64(math.MaxUint64),
		"number": json.Number("1e999"), "bad value": Value{TagInt32, []byte{1}}, "bad tag": Value{'U', nil},
		"bad table": Table("\x01"), "deep": deep, "deep together": map[string]any{"": inner}, strings.Repeat("k", 256): 1,
	} {
		if table, err := TableOf(map[string]any{name: v}); err == nil {
			t.Errorf("%s: %q", name, table)
		}
	}
}

// Accessors refuse values made by hand whose bytes do not fit their tag.
func TestBrokenValues(t *testing.T) {
	for tag := range 256 {
		for size := range 10 {
			v := Value{byte(tag), make([]byte, size)}
			v.Int()
			v.Bool()
			v.Float()
			v.Decimal()
			v.Timestamp()
			v.Any()
			v.Matches(v)
			v.Equal(Value{v.Tag, bytes.Repeat([]byte{1}, size)})
		}
	}
}
