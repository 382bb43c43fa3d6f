package quorum

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
)

// someOrigins has one of everything that an origin may keep.
func someOrigins() origins {
	return origins{{Node: 1, Boot: 2, Last: 300}, {Node: 1 << 40, Boot: 1, Last: 9, Answers: []propose.Answered[answer]{
		{Number: 3, Answer: answer{results: []result{{ordinal: 1, code: codeInUse, count: 700}, {ordinal: 2,
			got: queue.Delivery{Seq: 1, ID: 2, Consumer: 3, Direct: -1, Redelivered: true, Acquired: 4, Failed: 5}}}}},
		{Number: 9, Answer: answer{refused: []refusal{{1, 200}, {2, 0}}}}}}}
}

// TestFormats: the log and the database have these octets since the first version. Whoever changes them gives them a new number,
// and reads the old ones.
func TestFormats(t *testing.T) {
	pool := queue.NewPool(1 << 20)
	defer pool.Close()
	h := propose.Header{At: 0x0102030405, Node: 7, Boot: 8, Number: 0x1122334455667788, Done: 9}
	put := make([]byte, propose.HeaderLen)
	h.Put(put)
	limits := queue.Config{TTL: 1000, MaxLength: -1, MaxBytes: 1 << 40, Overflow: queue.RejectPublishDLX, DeliveryLimit: 20, SingleActive: true, KeepDiscards: true,
		DelayType: queue.DelayReturned, DelayMin: 5, DelayMax: 600, ConsumerTimeout: 1800000}
	m := pool.NewMessage([]byte("x"), []byte("k"), make([]byte, 14), func(yield func([]byte) bool) { yield([]byte("body")) }, 4, 1)
	m.Flags, m.Priority, m.TTL = 1, 5, 60000
	numbering := metaOrigins{{Node: 1, Boot: 2, Last: 300}, {Node: 1 << 40, Boot: 1, Last: 9}}
	for _, x := range []struct {
		what string
		got  []byte
		want string
	}{
		{"header", put, "0105040302010000000700000000000000080000000000000088776655443322110900000000000000"},
		{"publish", appendPublish(nil, 300, []queue.Message{m}, pool), "03ac0201010502c0a907270178016bce0200000000000e0000000000000000000000000000ce03000000000004626f6479ce"},
		{"settle", appendSettle(nil, 7, 200, outcomeTaken, []queue.Range{{First: 5, Last: 5}, {First: 300, Last: 1 << 62}}), "0607c80105020500a702d4fdffffffffffff3f"},
		{"limits", appendConfig(nil, &limits), "14d00f01808080808040022803030ab00980dddb01"},
		{"origins", someOrigins().Append(nil, appendAnswer), "020102ac020080808080802001090203020103bc05000200000102030104050009000201c8010200"},
		{"entry of metadata", metaHeader{7, 8, 0x1122334455667788}.append(nil), "01070000000000000008000000000000008877665544332211"},
		{"numbering of metadata", appendMetaOrigins(nil, numbering), "010102ac028080808080200109"},
	} {
		if got := fmt.Sprintf("%x", x.got); got != x.want {
			t.Errorf("%s: %s, want %s", x.what, got, x.want)
		}
	}
	if got, commands, err := propose.ReadHeader(append(put, 1, 2)); err != nil || got != h || len(commands) != 2 {
		t.Errorf("%+v, %x, %v", got, commands, err)
	}
	r := octet.Reader{B: someOrigins().Append(nil, appendAnswer)}
	if got := propose.ReadOrigins(&r, readAnswer); r.Bad || len(r.B) > 0 || !reflect.DeepEqual(got, someOrigins()) {
		t.Errorf("%+v", got)
	}
	if got, err := readMetaOrigins(appendMetaOrigins(nil, numbering)); err != nil || !reflect.DeepEqual(got, numbering) {
		t.Errorf("%+v, %v", got, err)
	}
}
