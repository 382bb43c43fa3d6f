package queue

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/warrenmq/warren/storage"
)

// TestBlindKeys: they stand with the message and are not shown, in memory and after a restart.
func TestBlindKeys(t *testing.T) {
	d := &disk{t: t, fs: storage.NewFaultFS(1)}
	d.open()
	for _, keys := range [][]string{nil, {""}, {"a"}, {"a", "", "bcc", strings.Repeat("k", 255)}} {
		var blind [][]byte
		for _, k := range keys {
			blind = append(blind, []byte(k))
		}
		plain := d.message(1, 300)
		s := ParseStored(d.pool.Bytes(plain.Ref))
		m := d.pool.NewBlindMessage(s.Exchange, s.Key, s.Header, blind, s.Body, int(plain.Size), 1)
		m.Flags |= Persistent
		want := bytes.Clone(d.pool.Bytes(plain.Ref))
		check := func(when string, m Message) {
			b := d.pool.Bytes(m.Ref)
			if !bytes.Equal(Shown(b), want) {
				t.Errorf("%s: %q: shown are %d octets, not the %d of the message without", when, keys, len(Shown(b)), len(want))
			}
			if got := AppendBlindKeys(nil, b); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", blind) || (len(b) > len(want)) != (keys != nil) {
				t.Errorf("%s: keys %q, want %q", when, got, blind)
			}
		}
		check("made", m)
		var w Wake
		done := &confirmed{done: make(chan struct{})}
		done.left.Store(1)
		d.queue.Publish(&Batch{Messages: []Message{m}, Numbers: []uint64{1}, Confirms: done}, &w)
		w.Flush()
		<-done.done
		d.close()
		d.open()
		got := make(chan Offered, 1)
		d.queue.Get(d.getter(), true, &w, func(o Offered, _ uint64, ok bool) { got <- o })
		w.Flush()
		check("read", (<-got).Message)
	}
	d.close()
}
