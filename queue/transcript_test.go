package queue

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestStateTranscripts replays the conversations in testdata/state. A line is a command, or, after ">", what must have
// come of it; "#" starts a comment. A message is a word, with facts after it: a:p=9:ttl=10:size=5:delivered. Time stands
// still but for "at".
//
//	new [classic|quorum] levels= ttl= length= bytes= limit= reject|reject-dlx single   a new queue
//	attach [priority= prefetch= window= noack exclusive getter]                        consumers are numbered from 1
//	publish MESSAGE...; get CONSUMER [noack]; ready, block, cancel, remove CONSUMER
//	ack, return, fail, discard, discard-failed CONSUMER IDS...                         ids as 1 or 1-5
//	set ttl= ...; at TIME; purge; continue; budget N; counts
//	cold LEVEL PLACE; away LEVEL PLACE...; warm; wants                                 not in memory: from a place on, these
//	down SESSION; buried MESSAGE...; kept; snapshot                                    what only replicated queues do
//	restart [unclean] [without MESSAGE...]                                             from a record and what is stored
//
// WARREN_UPDATE=1 writes what came into the files.
func TestStateTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/state/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(text))
			if os.Getenv("WARREN_UPDATE") != "" {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				want, have := strings.Split(string(text), "\n"), strings.Split(got, "\n")
				for i, line := range have {
					if i >= len(want) || want[i] != line {
						t.Fatalf("%s:%d: %q; all:\n%s", file, i+1, line, got)
					}
				}
				t.Fatalf("%s: more is expected than came:\n%s", file, got)
			}
		})
	}
}

// transcript is one conversation with one State.
type transcript struct {
	t     *testing.T
	s     *State
	rules Rules
	conf  Config
	log   *testLog
	at    Time
	due   Time
	names map[Seq]string
	batch []string // names of the batch being published
	out   strings.Builder
}

// Put learns the names of messages on their way to the log.
func (p *transcript) Put(seq Seq, expiry Time, m *Message) {
	p.names[seq] = p.batch[m.Ref.Off]
	p.log.Put(seq, expiry, m)
}

func (p *transcript) Next(after Seq) (Meta, bool) { return p.log.Next(after) }

func (p *transcript) Resident(seq Seq) bool { return p.log.Resident(seq) }

func replay(t *testing.T, text string) string {
	p := &transcript{t: t}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, ">") {
			continue
		}
		p.out.WriteString(line)
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			fx := Effects{Due: p.due} // of what is no command
			p.do(words[0], words[1:], &fx)
			p.report(&fx)
			if p.s != nil {
				if err := p.s.Check(); err != nil {
					t.Fatalf("after %q: %v", line, err)
				}
			}
		}
	}
	return p.out.String()
}

func (p *transcript) say(format string, args ...any) { fmt.Fprintf(&p.out, "> "+format+"\n", args...) }

func (p *transcript) number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *transcript) settings(words []string) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "classic":
			p.rules = Rules{Levels: 1, ExclusiveConsumers: true, RejectBefore: true, DropBefore: true}
		case "quorum":
			p.rules = QuorumRules()
		case "levels":
			p.rules.Levels = int(p.number(value))
		case "ttl":
			p.conf.TTL = p.number(value)
		case "length":
			p.conf.MaxLength = p.number(value)
		case "bytes":
			p.conf.MaxBytes = p.number(value)
		case "limit":
			p.conf.DeliveryLimit = p.number(value)
		case "reject":
			p.conf.Overflow = RejectPublish
		case "reject-dlx":
			p.conf.Overflow = RejectPublishDLX
		case "single":
			p.conf.SingleActive = true
		case "delay": // type:min:max
			parts := strings.Split(value, ":")
			p.conf.DelayType = DelayType(slices.Index([]string{"none", "all", "failed", "returned"}, parts[0]))
			p.conf.DelayMin, p.conf.DelayMax = p.number(parts[1]), p.number(parts[2])
		case "timeout":
			p.conf.ConsumerTimeout = p.number(value)
		case "keep":
			p.conf.KeepDiscards = value == ""
		default:
			p.t.Fatalf("setting %q", word)
		}
	}
}

func (p *transcript) do(verb string, args []string, fx *Effects) {
	consumer := func() ConsumerID { return ConsumerID(p.number(args[0])) }
	switch verb {
	case "new":
		p.conf, p.at, p.due, p.names = unlimited, 1000, 0, map[Seq]string{}
		p.settings(append([]string{"classic"}, args...))
		p.log = newTestLog(p.rules.Levels)
		p.s = New(p.rules, p.conf, p)
	case "set":
		p.settings(args)
		p.s.Configure(p.at, p.conf, fx)
	case "attach":
		var spec ConsumerSpec
		for _, word := range args {
			name, value, _ := strings.Cut(word, "=")
			switch name {
			case "priority":
				spec.Priority = int32(p.number(value))
			case "prefetch":
				spec.Prefetch = uint32(p.number(value))
			case "window":
				spec.Window = uint32(p.number(value))
			case "noack":
				spec.NoAck = true
			case "exclusive":
				spec.Exclusive = true
			case "getter":
				spec.Getter = true
			case "session":
				spec.Session = uint64(p.number(value))
			case "timeout":
				spec.Timeout = p.number(value)
			default:
				p.t.Fatalf("consumer %q", word)
			}
		}
		if id, err := p.s.Attach(p.at, spec, fx); err != nil {
			p.say("%v", err)
		} else {
			p.say("consumer %d", id)
		}
	case "publish":
		p.batch = p.batch[:0]
		var batch []Message
		for i, word := range args {
			facts := strings.Split(word, ":")
			m := Message{TTL: -1, Size: 1}
			m.Ref.Off = uint32(i)
			for _, fact := range facts[1:] {
				name, value, _ := strings.Cut(fact, "=")
				switch name {
				case "p":
					m.Priority, m.Flags = uint8(p.number(value)), m.Flags|HasPriority
				case "ttl":
					m.TTL = p.number(value)
				case "size":
					m.Size = uint32(p.number(value))
				case "delivered":
					m.Flags |= WasDelivered
				case "failures":
					m.Flags = m.Flags.WithFailures(uint32(p.number(value)))
				default:
					p.t.Fatalf("message %q", word)
				}
			}
			p.batch, batch = append(p.batch, facts[0]), append(batch, m)
		}
		p.s.Publish(p.at, batch, fx)
	case "ack", "return", "fail", "discard", "discard-failed":
		o := Outcome(slices.Index([]string{"ack", "return", "fail", "discard", "discard-failed"}, verb))
		var ids []Range
		for _, word := range args[1:] {
			first, last, ok := strings.Cut(word, "-")
			if !ok {
				last = first
			}
			ids = append(ids, Range{uint64(p.number(first)), uint64(p.number(last))})
		}
		p.s.Settle(p.at, consumer(), ids, o, fx)
	case "get":
		d, ok := p.s.Get(p.at, consumer(), len(args) > 1, fx)
		if !ok {
			p.say("nothing to get")
			return
		}
		p.delivery(d)
		if d.Settled {
			p.log.free(d.Seq)
		}
	case "ready":
		p.s.Ready(p.at, consumer(), fx)
	case "block":
		p.s.Block(consumer())
	case "cancel":
		p.s.Detach(p.at, consumer(), Cancel, fx)
	case "remove":
		p.s.Detach(p.at, consumer(), Remove, fx)
	case "purge":
		p.say("purged %d", p.s.Purge(p.at, fx))
	case "at":
		p.at = Time(p.number(args[0]))
		p.s.Tick(p.at, fx)
	case "continue":
		p.s.Continue(p.at, fx)
	case "budget":
		p.s.maxEffects = int(p.number(args[0]))
	case "cold":
		p.log.coldFrom[p.number(args[0])] = uint64(p.number(args[1]))
	case "away":
		for _, place := range args[1:] {
			p.log.cold[seqOf(uint8(p.number(args[0])), uint64(p.number(place)))] = true
		}
		p.s.Unloaded()
	case "wants":
		if seq, ok := p.s.Wants(); ok {
			p.say("%s", p.names[seq])
		} else {
			p.say("nothing")
		}
	case "restart":
		p.restart(args, fx)
	case "down":
		p.s.Down(p.at, uint64(p.number(args[0])), fx)
	case "buried":
		var ranges []SeqRange
		for _, seq := range p.log.live() {
			if slices.Contains(args, p.names[seq]) {
				ranges = append(ranges, SeqRange{seq, seq})
			}
		}
		p.s.Buried(p.at, ranges, fx)
	case "kept":
		for d := range p.s.KeptDiscards() {
			p.say("kept, %s", p.discarded(d))
		}
	case "snapshot":
		s, err := RestoreSnapshot(p.rules, p.conf, p, p.s.AppendSnapshot(nil))
		if err != nil {
			p.t.Fatal(err)
		}
		p.s = s
	case "warm":
		p.log.warm()
		p.s.Loaded(p.at, fx)
	case "counts":
		st := p.s.Stats()
		line := fmt.Sprintf("ready %d (%d octets), unacked %d (%d octets), consumers %d", st.Ready, st.ReadyBytes, st.Unacked, st.UnackedBytes, st.Consumers)
		if st.Delayed+st.Kept > 0 {
			line += fmt.Sprintf(", delayed %d (%d octets), kept %d (%d octets)", st.Delayed, st.DelayedBytes, st.Kept, st.KeptBytes)
		}
		p.say("%s", line)
	default:
		p.t.Fatalf("command %q", verb)
	}
}

func (p *transcript) restart(args []string, fx *Effects) {
	r, err := Restore(p.rules, p.s.Encode(nil))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, seq := range p.log.live() {
		if slices.Contains(args, p.names[seq]) || !r.FoundMessage(p.log.stored[seq.Level()][seq.place()]) {
			p.log.free(seq)
		}
	}
	p.s = r.State(p.conf, p, slices.Contains(args, "unclean"))
	p.s.Tick(p.at, fx)
}

func (p *transcript) delivery(d Delivery) {
	name := p.names[d.Seq]
	if d.Direct >= 0 {
		name = p.batch[d.Direct]
	}
	line := fmt.Sprintf("%s to %d as %d", name, d.Consumer, d.ID)
	if d.Redelivered {
		line += ", redelivered"
	}
	if d.Acquired > 0 {
		line += fmt.Sprintf(", acquired %d, failed %d", d.Acquired, d.Failed)
	}
	p.say("%s", line)
}

// list names the messages of a range.
func (p *transcript) list(r SeqRange) string {
	var names []string
	for _, seq := range p.log.span(r) {
		names = append(names, p.names[seq])
	}
	return strings.Join(names, " ")
}

func (p *transcript) discarded(d Discarded) string {
	names, failed := "", ""
	if d.Direct >= 0 {
		names = p.batch[d.Direct]
	} else {
		names = p.list(d.SeqRange)
	}
	if d.Failed {
		failed = ", failed"
	}
	if d.Failures > 0 {
		failed += fmt.Sprintf(" %d", d.Failures)
	}
	return fmt.Sprintf("%s: %s%s", d.Reason, names, failed)
}

// report writes the effects, and carries them out.
func (p *transcript) report(fx *Effects) {
	for _, a := range fx.Activity {
		if a.Active {
			p.say("%d is active", a.Consumer)
		} else {
			p.say("%d is no longer active", a.Consumer)
		}
	}
	for _, d := range fx.Deliver {
		p.delivery(d)
	}
	for _, x := range fx.TimedOut {
		p.say("%d timed out, %d to %d", x.Consumer, x.First, x.Last)
	}
	for _, r := range fx.Removed {
		p.say("gone: %s", p.list(r))
	}
	for _, d := range fx.Discards {
		p.say("%s", p.discarded(d))
	}
	for _, d := range fx.Kept {
		p.say("to route, %s", p.discarded(d))
	}
	for _, i := range fx.Refused {
		p.say("refused: %s", p.batch[i])
	}
	if fx.Due != p.due && p.s != nil {
		p.say("due at %d", fx.Due)
		p.due = fx.Due
	}
	if fx.More {
		p.say("more to do")
	}
	if p.log != nil {
		p.log.carry(fx)
	}
}
