package remote

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// TestFormats: nodes of other versions send and expect these octets.
func TestFormats(t *testing.T) {
	limits := queue.Config{TTL: 1000, MaxLength: -1, MaxBytes: 1 << 40, Overflow: queue.RejectPublishDLX, DeliveryLimit: 20, SingleActive: true, KeepDiscards: true,
		DelayType: queue.DelayReturned, DelayMin: 5, DelayMax: 600, ConsumerTimeout: 1800000}
	ranges := []queue.Range{{First: 5, Last: 5}, {First: 300, Last: 1 << 62}}
	offered := queue.Offered{ID: 301, Redelivered: true, Acquired: 2, Failed: 1,
		Message: queue.Message{Flags: 1, Priority: 5, Size: 4, TTL: 60000, Ref: queue.Ref{Len: 29}}}
	stats := queue.Stats{Ready: 1, Unacked: 200, Returned: 3}
	for _, x := range []struct {
		what string
		got  []byte
		want string
	}{
		{"command", appendCommand(nil, cmdPurge, ID{Scope: 2, Number: 300}), "0702ac02"},
		{"report", appendReport(nil, repPurged, 1<<40), "06808080808020"},
		{"delivery", appendOffered(nil, &offered, 1), "ac02030201010504c0a9071d"},
		{"ranges", queue.AppendRanges(nil, ranges), "020500a702d4fdffffffffffff3f"},
		{"limits", queue.AppendConfig(nil, &limits), "d00f01808080808040022803030ab00980dddb01"},
		{"counts", appendStats(nil, &stats, 300), "01c80100000000000000000000000000000000000003ac02"},
	} {
		if got := fmt.Sprintf("%x", x.got); got != x.want {
			t.Errorf("%s: %s, want %s", x.what, got, x.want)
		}
	}
	r := newReader(appendOffered(nil, &offered, 1))
	if got := r.offered(1); r.Bad || len(r.B) > 0 || got != offered {
		t.Errorf("%+v", got)
	}
	r = newReader(queue.AppendConfig(nil, &limits))
	if got := queue.ReadConfig(&r.Reader); r.Bad || len(r.B) > 0 || got != limits {
		t.Errorf("%+v", got)
	}
	r = newReader(queue.AppendRanges(nil, ranges))
	if got := r.ranges(nil); r.Bad || len(r.B) > 0 || !reflect.DeepEqual(got, ranges) {
		t.Errorf("%+v", got)
	}
}
