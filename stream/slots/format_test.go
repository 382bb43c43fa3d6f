package slots

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"

	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/stream"
)

// TestFormats: the log and the database have these octets since the first version. Whoever changes them gives them a new number,
// and reads the old ones.
func TestFormats(t *testing.T) {
	h := propose.Header{At: 0x0102030405, Node: 7, Boot: 8, Number: 0x1122334455667788, Done: 9}
	put := make([]byte, propose.HeaderLen)
	h.Put(put)
	m := newMachine(1)
	m.now, m.lastDir = 0x0102030405, 300
	m.origins = origins{{Node: 1, Boot: 2, Last: 300}, {Node: 1 << 40, Boot: 1, Last: 9, Answers: []propose.Answered[[]result]{
		{Number: 3, Answer: []result{{ordinal: 1, code: codeOutside, offset: 700, generation: 2, lost: 1 << 40}, {ordinal: 2}}}}}}
	for _, x := range []struct {
		what string
		got  []byte
		want string
	}{
		{"header", put, "0105040302010000000700000000000000080000000000000088776655443322110900000000000000"},
		{"create", appendLimits(binary.AppendUvarint(appendCommand(nil, cmdCreate, 300), 500_000_000), stream.Limits{Bytes: 1 << 40, Age: 86400}), "02ac0280cab5ee010980808080804080c60a"},
		{"commit", binary.AppendUvarint(binary.AppendUvarint(appendName(appendCommand(nil, cmdCommit, 7), "name"), 3), 1000), "0707046e616d6503e807"},
		{"slot", m.common(nil), "018a9098a020ac02020102ac020080808080802001090103020105bc05028080808080200200000000"},
	} {
		if got := fmt.Sprintf("%x", x.got); got != x.want {
			t.Errorf("%s: %s, want %s", x.what, got, x.want)
		}
	}
	if got, commands, err := propose.ReadHeader(append(put, 1, 2)); err != nil || got != h || len(commands) != 2 {
		t.Errorf("%+v, %x, %v", got, commands, err)
	}
	var again machine
	if err := again.readCommon(m.common(nil)); err != nil || again.now != m.now || again.lastDir != m.lastDir || !reflect.DeepEqual(again.origins, m.origins) {
		t.Errorf("%v: %+v", err, again.origins)
	}
}
