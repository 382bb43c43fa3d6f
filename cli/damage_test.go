package cli

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/queue"
)

// small is a node without sockets on a data directory.
type small struct {
	t testing.TB
	*rooms
	log *bytes.Buffer
}

// startSmall opens a data directory as a node does, with a bound of message memory. The error is the start's.
func startSmall(t testing.TB, dir string, bound int64) (*small, error) {
	s := &small{t: t, log: new(bytes.Buffer)}
	cfg := config.Default()
	cfg.DataDir, cfg.DiskBallast = dir, 0
	s.rooms = &rooms{cfg: cfg, pool: queue.NewPool(bound), clock: queue.NewClock(), log: slog.New(slog.NewTextHandler(&locked{w: s.log}, nil))}
	if err := s.openData(); err != nil {
		_ = s.closeData()
		return s, err
	}
	return s, nil
}

// locked is a writer for many.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

const smallQueues = 3

func queueName(i int) string { return fmt.Sprintf("queue %d", i) }

// declare makes the queues.
func (s *small) declare() {
	s.t.Helper()
	v := s.broker.VHost("/")
	for i := range smallQueues {
		done := make(chan error, 1)
		v.DeclareQueue(broker.Actor{}, broker.QueueDeclaration{Name: queueName(i), Durable: true}, func(_ *broker.Queue, err *amqp.Error) { done <- refusal(err) })
		if err := <-done; err != nil {
			s.t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	s.broker.Sync(func(err *amqp.Error) { done <- refusal(err) })
	if err := <-done; err != nil {
		s.t.Fatal(err)
	}
}

// waitFor closes when so many are confirmed.
type waitFor struct {
	mu   sync.Mutex
	left int
	done chan struct{}
}

func (c *waitFor) Settled(ranges []queue.Range, _ bool, _ *queue.Wake) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range ranges {
		c.left -= int(r.Last - r.First + 1)
	}
	if c.left == 0 {
		close(c.done)
	}
}

// numberedBody is a body that shows whether it is what was published: queue, number, filling, checksum.
func numberedBody(q, n int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(q))
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	for len(b) < 200+n%300 {
		b = append(b, byte(n+len(b)))
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// publish puts messages into all queues and waits for the confirms.
func (s *small) publish(first, n int) {
	for i := range smallQueues {
		q := s.broker.VHost("/").Queue(queueName(i))
		c := &waitFor{left: n, done: make(chan struct{})}
		var w queue.Wake
		for at := first; at < first+n; at += 100 {
			b := queue.Batch{Confirms: c}
			for k := at; k < min(at+100, first+n); k++ {
				body := numberedBody(i, k)
				header := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, uint64(len(body)))
				header = append(header, 0x10, 0, amqp.Persistent)
				m := s.pool.NewMessage([]byte("x"), []byte("key"), header, func(yield func([]byte) bool) { yield(body) }, len(body), 1)
				m.Flags |= queue.Persistent
				b.Messages, b.Numbers = append(b.Messages, m), append(b.Numbers, uint64(k))
			}
			q.Publish(&b, &w)
			w.Flush()
		}
		<-c.done
	}
}

// drain takes all messages of a queue that is there, and fails on a body that was never published.
func (s *small) drain(i int) (got []int) {
	s.t.Helper()
	q := s.broker.VHost("/").Queue(queueName(i))
	if q == nil {
		return nil
	}
	var getter queue.ConsumerID
	var w queue.Wake
	q.Queue.Attach(queue.ConsumerSpec{Getter: true}, nil, &w, func(id queue.ConsumerID, _ error) { getter = id })
	for {
		type answer struct {
			o  queue.Offered
			ok bool
		}
		come := make(chan answer, 1)
		q.Get(getter, true, &w, func(o queue.Offered, _ uint64, ok bool) { come <- answer{o, ok} })
		w.Flush()
		a := <-come
		if !a.ok {
			return got
		}
		body := queue.ParseStored(s.pool.Bytes(a.o.Message.Ref)).AppendBody(nil)
		if len(body) < 8 {
			s.t.Fatalf("a body of %d octets", len(body))
		}
		n := int(binary.BigEndian.Uint32(body[4:]))
		if !bytes.Equal(body, numberedBody(i, n)) {
			s.t.Fatalf("queue %d: a corrupt body was delivered, number %d", i, n)
		}
		got = append(got, n)
		s.pool.Release(a.o.Message.Ref.Slab, 1)
	}
}

// smallDir makes the directory of a small node that was killed: messages in runs, in the journal, metadata in tables and in
// the log of the key-value store. It returns how many messages each queue has.
func smallDir(t testing.TB) (dir string, messages int) {
	t.Helper()
	dir = t.TempDir()
	for round, n := range []int{4000, 4000, 500} {
		s, err := startSmall(t, dir, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			s.declare()
		}
		s.publish(messages, n)
		messages += n
		if round < 2 {
			if err := s.closeData(); err != nil { // moves everything to runs
				t.Fatal(err)
			}
			continue
		}
		copied := t.TempDir() // the process is killed: what is there now is what a start finds
		copyDir(t, dir, copied)
		if err := s.closeData(); err != nil {
			t.Fatal(err)
		}
		dir = copied
	}
	return dir, messages
}

func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// filesIn are the files below a directory, without it.
func filesIn(t testing.TB, dir string) (names []string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// youngDir makes the directory of a small node that ended in its first life without moving its messages, with messages in a run and in the journal:
// all metadata is in the log of the key-value store.
func youngDir(t testing.TB) (dir string, messages int) {
	t.Helper()
	dir = t.TempDir()
	s, err := startSmall(t, dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	s.declare()
	for s.store.Stats().Runs.Runs == 0 {
		s.publish(messages, 1000)
		messages += 1000
	}
	if err := s.broker.Close(); err != nil {
		t.Fatal(err)
	}
	s.store.Abandon()
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	s.clock.Close()
	s.unlock()
	return dir, messages
}

// damages are what may happen to a file. nil: it goes.
var damagesOfFiles = []struct {
	name   string
	change func(b []byte) []byte
}{
	{"missing", func([]byte) []byte { return nil }},
	{"empty", func([]byte) []byte { return []byte{} }},
	{"cut in half", func(b []byte) []byte { return b[:len(b)/2] }},
	{"last octet cut", func(b []byte) []byte { return b[:max(0, len(b)-1)] }},
	{"zeroed", func(b []byte) []byte { clear(b); return b }},
	{"second half zeroed", func(b []byte) []byte { clear(b[len(b)/2:]); return b }},
	{"first page zeroed", func(b []byte) []byte { clear(b[:min(len(b), 4096)]); return b }},
	{"bit in the first octet", func(b []byte) []byte { return flip(b, 0) }},
	{"bit at a tenth", func(b []byte) []byte { return flip(b, len(b)/10) }},
	{"bit in the middle", func(b []byte) []byte { return flip(b, len(b)/2) }},
	{"bit near the end", func(b []byte) []byte { return flip(b, len(b)-20) }},
	{"bits everywhere", func(b []byte) []byte {
		for i := 0; i < len(b); i += 997 {
			b = flip(b, i)
		}
		return b
	}},
	{"doubled", func(b []byte) []byte { return append(b, b...) }},
	{"halves swapped", func(b []byte) []byte { return append(slices.Clone(b[len(b)/2:]), b[:len(b)/2]...) }},
}

func flip(b []byte, at int) []byte {
	if len(b) > 0 {
		b[min(max(at, 0), len(b)-1)] ^= 0x10
	}
	return b
}

// TestStartOnDamage damages each file of a small node in every way and starts it. It starts and says what is lost, or it refuses
// and says why and what to do; it never panics and never delivers a body that was not published; and what a start loses
// without a word is nothing.
func TestStartOnDamage(t *testing.T) {
	t.Run("old", func(t *testing.T) { startOnDamage(t, smallDir) })
	t.Run("young", func(t *testing.T) { startOnDamage(t, youngDir) })
}

func startOnDamage(t *testing.T, build func(testing.TB) (string, int)) {
	original, messages := build(t)
	files := filesIn(t, original)
	kinds := map[string]bool{}
	for _, name := range files {
		kinds[filepath.Dir(name)+"/*"+filepath.Ext(name)] = true
	}
	for _, kind := range []string{"journal/*.journal", "runs/*.run", "meta/*.log"} {
		if !kinds[kind] {
			t.Fatalf("the node has no %s: %v", kind, files)
		}
	}
	for _, name := range files {
		if name == "lock" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(original, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range damagesOfFiles {
			changed := d.change(slices.Clone(content))
			if bytes.Equal(changed, content) && changed != nil {
				continue // an empty file, most of the time
			}
			t.Run(name+"/"+d.name, func(t *testing.T) {
				dir := t.TempDir()
				copyDir(t, original, dir)
				path := filepath.Join(dir, name)
				if changed == nil {
					err = os.Remove(path)
				} else {
					err = os.WriteFile(path, changed, 0o640)
				}
				if err != nil {
					t.Fatal(err)
				}
				outcome(t, dir, name, messages)
			})
		}
	}
}

// outcome starts a node on a damaged directory and judges what comes of it.
func outcome(t *testing.T, dir, damaged string, messages int) {
	s, err := startSmall(t, dir, 64<<20)
	if err != nil {
		var f *failure
		if !errors.As(err, &f) || f.remedy == "" {
			t.Errorf("refused without a word of what to do: %v", err)
		}
		if testing.Verbose() {
			t.Log(err)
		}
		if !strings.HasPrefix(damaged, "meta") {
			t.Errorf("refused for what it could do without: %v", err)
		}
		return
	}
	lost := 0
	for i := range smallQueues {
		got := s.drain(i)
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("queue %d: out of order, or twice", i)
		}
		lost += messages - len(got)
	}
	if err := s.closeData(); err != nil {
		t.Error(err)
	}
	// The end of the journal may be torn, as after a power cut: then it is dropped with a warning.
	said := strings.Contains(s.log.String(), "level=ERROR") || strings.Contains(s.log.String(), "level=WARN msg=\"the journal ")
	if testing.Verbose() {
		t.Logf("lost %d\n%s", lost, s.log.String())
	}
	if lost > 0 && !said {
		t.Errorf("%d messages are lost without a word", lost)
	}
}

// TestMetadataGone: a node without its metadata does not start on messages, and deletes nothing.
func TestMetadataGone(t *testing.T) {
	for _, test := range []struct {
		pattern string
		build   func(testing.TB) (string, int)
	}{{"meta/marker.manifest.*", smallDir}, {"meta/*.log", youngDir}, {"meta/*", smallDir}, {"meta", smallDir}} {
		dir, _ := test.build(t)
		names, err := filepath.Glob(filepath.Join(dir, test.pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(err, test.pattern)
		}
		for _, name := range names {
			if err := os.RemoveAll(name); err != nil {
				t.Fatal(err)
			}
		}
		before := filesIn(t, dir)
		s, err := startSmall(t, dir, 64<<20)
		var f *failure
		if !errors.As(err, &f) || f.code != exitData || f.remedy == "" {
			t.Errorf("%s: %v", test.pattern, err)
		}
		if err == nil {
			_ = s.closeData()
		}
		after := filesIn(t, dir)
		for _, name := range before {
			written := strings.HasSuffix(name, ".log") || strings.Contains(name, "OPTIONS") // the key-value store begins these anew
			if !slices.Contains(after, name) && !written {
				t.Errorf("%s: %s is gone", test.pattern, name)
			}
		}
	}
}
