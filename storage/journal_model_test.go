package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// journalModel runs a journal on a FaultFS against a list. Everything happens in one goroutine, so that a seed is a test.
type journalModel struct {
	seed    uint64
	rng     *rand.Rand
	fs      *FaultFS
	j       *Journal
	fault   bool // the disk may fail
	appends []replayed
	synced  Mark // reported
	from    Epoch
	step    int
	log     []string
	count   map[string]int
}

func (m *journalModel) options() JournalOptions {
	o := JournalOptions{FileSize: 32 << 10, Spares: 2, manual: true}
	o.salt = m.rng.Uint32
	o.Synced = func(mark Mark, err error) {
		if err == nil {
			m.synced = mark
		}
	}
	if len(m.appends) > 0 && m.rng.IntN(4) == 0 {
		o.After = m.appends[len(m.appends)-1].at + Mark(m.rng.IntN(100))
	}
	return o
}

func (m *journalModel) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%d: ", m.step)+fmt.Sprintf(format, args...))
	if len(m.log) > 40 {
		m.log = m.log[1:]
	}
}

// open replays and compares. lossy says that what was not reported as synced may be missing.
func (m *journalModel) open(lossy bool) error {
	var got []replayed
	fs := m.fs
	j, report, err := OpenJournal(fs, "data/journal", m.options(), m.from, func(e Epoch, at Mark, kind uint8, record []byte) error {
		got = append(got, replayed{e, at, kind, string(record)})
		return nil
	})
	if err != nil {
		return err
	}
	m.note("open from %d: %v", m.from, report)
	want := slices.DeleteFunc(slices.Clone(m.appends), func(r replayed) bool { return r.epoch < m.from })
	if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
		return fmt.Errorf("replayed %d records that are no prefix of %d: %v", len(got), len(want), report)
	}
	if !lossy && len(got) < len(want) {
		return fmt.Errorf("replayed %d of %d records: %v", len(got), len(want), report)
	}
	if len(got) < len(want) && want[len(got)].at <= m.synced {
		return fmt.Errorf("replayed %d of %d records, but %d was synced and the next one ends at %d: %v", len(got), len(want), m.synced, want[len(got)].at, report)
	}
	if len(report.Faults) > 0 {
		return fmt.Errorf("faults without damage: %v", report)
	}
	if e := j.Epoch(); e <= m.from || len(got) > 0 && e <= got[len(got)-1].epoch {
		return fmt.Errorf("goes on in epoch %d", e)
	}
	m.appends = got
	m.j = j
	if j.Err() == nil {
		m.synced = j.Synced()
		if n := j.Backlog(); n != 0 {
			return fmt.Errorf("%d octets not synced after the start", n)
		}
	}
	return nil
}

func (m *journalModel) run(steps int) error {
	if err := m.open(false); err != nil {
		return err
	}
	for m.step = range steps {
		if err := m.do(); err != nil {
			return fmt.Errorf("seed %d, step %d: %w\n%s", m.seed, m.step, err, strings.Join(m.log, "\n"))
		}
	}
	m.fs.Heal()
	return m.restart("close")
}

func (m *journalModel) do() error {
	switch n := m.rng.IntN(1000); {
	case n < 600:
		size := m.rng.IntN(300)
		if m.rng.IntN(50) == 0 {
			size = m.rng.IntN(50 << 10)
		}
		data := strings.Repeat(string(rune('a'+m.rng.IntN(26))), size)
		kind := uint8(m.rng.IntN(256))
		at, epoch := m.j.Append(kind, []byte(data))
		m.appends = append(m.appends, replayed{epoch, at, kind, data})
		m.count["append"]++
	case n < 850:
		if len(m.appends) > 0 {
			m.j.Commit(m.appends[len(m.appends)-1].at)
		}
		if m.j.round() {
			m.synced = m.j.Synced()
		}
		m.count["sync"]++
	case n < 930:
		m.note("epoch %d", m.j.Rotate())
		m.count["rotate"]++
	case n < 950:
		// What the caller stores as the first epoch is durable at once; it waits for what comes before.
		first := m.j.First()
		m.from = max(m.from, first+Epoch(m.rng.Uint64N(uint64(m.j.Epoch()-first)+1)))
		m.note("release %d", m.from)
		if err := m.j.Release(m.from); err != nil && !m.fault {
			return err
		}
		m.count["release"]++
	case n < 975:
		if m.fault {
			m.inject()
		}
	case n < 980:
		return m.restart("close")
	case n < 988:
		return m.restart("kill")
	case n < 996:
		return m.restart("crash")
	default:
		// Die in the middle of something.
		m.fs.StopAfter(int64(m.rng.IntN(20)))
		for range 10 {
			if err := m.doQuietly(); err != nil {
				return err
			}
		}
		return m.restart([]string{"kill", "crash"}[m.rng.IntN(2)])
	}
	return nil
}

func (m *journalModel) doQuietly() error {
	at, epoch := m.j.Append(1, []byte("last words"))
	m.appends = append(m.appends, replayed{epoch, at, 1, "last words"})
	if m.rng.IntN(3) == 0 {
		m.j.Rotate()
	}
	m.j.round()
	return nil
}

func (m *journalModel) inject() {
	op := []Op{OpCreate, OpOpen, OpWrite, OpSync, OpRemove, OpSyncDir}[m.rng.IntN(6)]
	f := Fault{Op: op, After: m.rng.IntN(4), Times: 1 + m.rng.IntN(4), Short: m.rng.IntN(4) * Sector}
	switch m.rng.IntN(8) {
	case 0:
		m.fs.Heal()
	case 1:
		m.fs.SetSpace(int64(m.rng.IntN(60 << 10)))
		m.note("space")
	default:
		m.note("fault %+v", f)
		m.fs.Inject(f)
	}
	m.count["fault"]++
}

func (m *journalModel) restart(how string) error {
	m.note("%s, %d reported", how, m.synced)
	m.count[how]++
	lossy := true
	switch how {
	case "close":
		m.fs.Heal()
		if err := m.j.Close(); err != nil {
			return err
		}
		lossy = false
		m.fs = m.fs.Kill()
	case "kill":
		m.fs = m.fs.Kill()
	case "crash":
		m.fs = m.fs.Crash(m.rng.Uint64())
	}
	return m.open(lossy)
}

func modelRun(seed uint64, steps int, fault bool, s Sabotage) (*journalModel, error) {
	m := &journalModel{seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), fs: NewFaultFS(seed), fault: fault, count: map[string]int{}}
	m.fs.SetSabotage(s)
	return m, m.run(steps)
}

func TestJournalModel(t *testing.T) {
	for _, fault := range []bool{false, true} {
		t.Run(fmt.Sprintf("faults=%v", fault), func(t *testing.T) {
			total := map[string]int{}
			for seed := range uint64(40) {
				m, err := modelRun(seed, 2000, fault, Sabotage{})
				if err != nil {
					t.Fatal(err)
				}
				for k, n := range m.count {
					total[k] += n
				}
			}
			t.Log(total)
			for _, k := range []string{"append", "sync", "rotate", "release", "close", "kill", "crash"} {
				if total[k] == 0 {
					t.Errorf("no %s", k)
				}
			}
		})
	}
}

// A drill that cannot fail shows nothing: each lie of the disk must be noticed.
func TestJournalModelNoticesSabotage(t *testing.T) {
	for name, s := range map[string]Sabotage{
		"no sync":           {NoSync: true},
		"no directory sync": {NoSyncDir: true},
		"dropped write":     {DropWrite: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				if _, err := modelRun(seed, 2000, false, s); err != nil {
					t.Logf("noticed with seed %d: %.200s", seed, err.Error())
					return
				}
			}
			t.Error("not noticed")
		})
	}
}
