package management

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Some things only the node knows on which they are: connections, channels, consumers, its memory and its alarms, what classic queues hold, who
// publishes to streams and reads them. Who is asked for them asks all other members at once the request that it got itself. They answer from
// what their own nodes know, with the rows of a list, encoded already, and what to order them by; the pages are cut where the rows come
// together. What is not there within askTime is left out.

const (
	// askTime is how long the members have for an answer, or a part of it.
	askTime = 2 * time.Second
	// keepTime is how long the rest of an answer too large for one message is kept for who asked, and maxKept how many octets of such.
	keepTime = 10 * time.Second
	maxKept  = 64 << 20
)

// A question is an octet and what it says:
//
//	0  the request, as JSON
//	1  id u64 | n u32: the n-th part of an answer given in part
//
// An answer is an octet of flags, with the second of them id u64 | parts u32, and the answer as JSON.
const (
	askRequest = 0
	askPart    = 1

	answerZipped = 1
	answerInPart = 2
)

// question is a request for another member.
type question struct {
	Method string          `json:"method"`
	Path   string          `json:"path"` // with its escapes
	Query  string          `json:"query,omitempty"`
	VHost  string          `json:"x_vhost,omitempty"`  // the headers x-vhost
	Reason string          `json:"x_reason,omitempty"` // and X-Reason
	User   User            `json:"user"`
	Body   json.RawMessage `json:"body,omitempty"`
	// Rows asks a list for its first First rows in place of JSON; 0 is all.
	Rows  bool `json:"rows,omitempty"`
	First int  `json:"first,omitempty"`
}

// reply is what a member's API answers.
type reply struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body,omitempty"`
	// All and Filtered count a list's items before and after its filter; Rows are the first of these.
	All      int        `json:"all,omitempty"`
	Filtered int        `json:"filtered,omitempty"`
	Rows     []replyRow `json:"rows,omitempty"`
	// Consumers are the member's, where details of queues are asked for.
	Consumers []consumerView `json:"consumers,omitempty"`
	// Shares are the member's, in the streams that queues were asked for.
	Shares []share `json:"shares,omitempty"`

	first int
}

type replyRow struct {
	Kind  uint8           `json:"k"`
	Num   float64         `json:"n,omitempty"`
	Text  string          `json:"t,omitempty"`
	VHost string          `json:"v"`
	Name  string          `json:"name"`
	JSON  json.RawMessage `json:"j"`
}

// heard is what became of a question to a member; reply is nil if there is none.
type heard struct {
	Member
	*reply
}

// members are all members, none if the node is alone.
func (a *API) members() []Member {
	if a.Peers == nil {
		return nil
	}
	return a.Peers.Members()
}

// member finds another member.
func (a *API) member(name string) (Member, bool) {
	members := a.members()
	i := slices.IndexFunc(members, func(m Member) bool { return m.Name == name && !m.This })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// memberName is the name of the member with a number, "" if there is none.
func (a *API) memberName(number uint64) string {
	for _, m := range a.members() {
		if m.Number == number {
			return m.Name
		}
	}
	return ""
}

// memberNames are the names of members, sorted.
func (a *API) memberNames(numbers []uint64) []string {
	names := []string{}
	for _, m := range a.members() {
		if slices.Contains(numbers, m.Number) {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names
}

// asks is the question of a request.
func (r *request) asks(method string) question {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return question{Method: method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, VHost: r.Header.Get("x-vhost"), Reason: r.Header.Get("X-Reason"), User: r.user}
}

// others asks all other members at once, and returns what they say in the order of their numbers. A request that is itself a question asks
// nobody.
func (a *API) others(r *request, q question) []heard {
	if r.asked {
		return nil
	}
	var all []heard
	for _, m := range a.members() {
		if !m.This {
			all = append(all, heard{Member: m})
		}
	}
	var wait sync.WaitGroup
	for i := range all {
		if all[i].Up {
			wait.Go(func() { all[i].reply = a.ask(all[i].Member, q) })
		}
	}
	wait.Wait()
	return all
}

// ask asks one member; nil: it did not answer.
func (a *API) ask(m Member, q question) *reply {
	text, err := a.askAll(m, append([]byte{askRequest}, encode(q)...))
	var answer reply
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err == nil && answer.Status < 100 {
		err = errors.New("an answer without a status")
	}
	if err != nil {
		a.Log.Warn("a member does not answer a question of the management API", "member", m.Name, "path", q.Path, "error", err.Error())
		return nil
	}
	return &answer
}

// askAll fetches all parts of an answer. Each may take askTime: a list of 100,000 queues is many, and comes while there is progress.
func (a *API) askAll(m Member, text []byte) ([]byte, error) {
	answer, err := a.Peers.Ask(m.Number, text, a.askTime)
	if err != nil {
		return nil, err
	}
	if len(answer) == 0 {
		return nil, errors.New("an empty answer")
	}
	flags, answer := answer[0], answer[1:]
	if flags&answerInPart != 0 {
		if len(answer) < 12 {
			return nil, errors.New("an answer that is cut off")
		}
		id, parts := answer[:8], binary.BigEndian.Uint32(answer[8:12])
		answer = slices.Clone(answer[12:])
		for n := uint32(1); n < parts; n++ {
			part, err := a.Peers.Ask(m.Number, binary.BigEndian.AppendUint32(append([]byte{askPart}, id...), n), a.askTime)
			if err != nil {
				return nil, err
			}
			if len(part) == 0 {
				return nil, errors.New("the rest of the answer was not kept")
			}
			answer = append(answer, part...)
		}
	}
	if flags&answerZipped == 0 {
		return answer, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(answer))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// elsewhere hands a request about something that this node does not have to the others, and passes on the answer of who has it. It is false,
// and nothing is answered, if nobody has.
func (a *API) elsewhere(r *request) bool {
	for _, one := range a.others(r, r.asks(r.Method)) {
		if one.reply != nil && one.Status != http.StatusNotFound {
			one.pass(r.w)
			return true
		}
	}
	return false
}

// pass answers with what a member said.
func (p *reply) pass(w http.ResponseWriter) {
	if len(p.Body) > 0 {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(p.Status)
	w.Write(p.Body)
}

// gather adds the other members' rows to a list, and says who was heard.
func (a *API) gather(r *request, l *rows) []heard {
	q := r.asks(http.MethodGet)
	q.Rows = true
	if l.paged { // each may have all that come first
		q.First = min(l.page, 1<<20) * l.size
	}
	all := a.others(r, q)
	for _, one := range all {
		if one.reply == nil || one.Status != http.StatusOK {
			continue
		}
		l.all += one.All
		l.cut += one.Filtered - len(one.Rows)
		for _, row := range one.Rows {
			l.rows = append(l.rows, rowOf(&row))
		}
	}
	return all
}

func rowOf(r *replyRow) row {
	return row{key: sortKey{r.Kind, r.Num, r.Text}, vhost: r.VHost, name: r.Name, encoded: r.JSON}
}

// reply fills in the rows that a member asked for.
func (l *rows) reply(to *reply, fetch func(row) (view any, ok bool)) {
	to.All, to.Filtered = l.all, len(l.rows)
	shown := l.rows
	if to.first > 0 {
		shown = shown[:min(to.first, len(shown))]
	}
	for _, row := range shown {
		if view, ok := fetch(row); ok {
			to.Rows = append(to.Rows, replyRow{row.key.kind, row.key.num, row.key.text, row.vhost, row.name, l.columns.encode(nil, view)})
		} else {
			to.Filtered-- // it has gone since
		}
	}
}

// Answer answers a question of another member's API. It may take as long as a request does, and be called by many goroutines. The question
// is not kept; the answer has at most MaxAnswer octets.
func (a *API) Answer(text []byte) []byte {
	if len(text) == 1+8+4 && text[0] == askPart {
		return a.kept.part(binary.BigEndian.Uint64(text[1:]), binary.BigEndian.Uint32(text[9:]))
	}
	var q question
	answer := &reply{Status: http.StatusBadRequest}
	if len(text) > 0 && text[0] == askRequest && json.Unmarshal(text[1:], &q) == nil {
		answer = a.do(&q)
	}
	out := encode(answer)
	flags := byte(0)
	if len(out) > 16<<10 {
		var zipped bytes.Buffer
		z, _ := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
		z.Write(out)
		z.Close()
		out, flags = zipped.Bytes(), answerZipped
	}
	const most = MaxAnswer - 1 - 12
	if len(out) <= most {
		return append([]byte{flags}, out...)
	}
	parts := slices.Collect(slices.Chunk(out, most))
	head := binary.BigEndian.AppendUint64([]byte{flags | answerInPart}, a.kept.keep(parts, len(out), time.Now()))
	return append(binary.BigEndian.AppendUint32(head, uint32(len(parts))), parts[0]...)
}

// do does what a member asks for, as far as this node is concerned. Who asks has looked at what the user may do.
func (a *API) do(q *question) *reply {
	target := "http://member" + q.Path
	if q.Query != "" {
		target += "?" + q.Query
	}
	h, err := http.NewRequestWithContext(context.Background(), q.Method, target, bytes.NewReader(q.Body))
	if err != nil {
		return &reply{Status: http.StatusBadRequest}
	}
	if q.VHost != "" {
		h.Header.Set("x-vhost", q.VHost)
	}
	if q.Reason != "" {
		h.Header.Set("X-Reason", q.Reason)
	}
	w := &written{header: http.Header{}}
	answer := &reply{first: q.First}
	r := &request{w: w, Request: h, user: q.User, asked: true, reply: answer, rows: q.Rows}
	if segments, ok := split(h.URL); ok && len(segments) > 0 {
		for i := range a.routes {
			vars, ok := a.routes[i].match(segments[1:])
			if do := a.routes[i].methods[q.Method]; ok && do != nil {
				r.vars = vars
				do(a, r)
				answer.Status, answer.Body = w.status, w.body.Bytes()
				if w.status == 0 {
					answer.Status = http.StatusOK
				}
				return answer
			}
		}
	}
	answer.Status = http.StatusNotFound
	return answer
}

// written is what an action writes for another member.
type written struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *written) Header() http.Header               { return w.header }
func (w *written) WriteHeader(status int)            { w.status = status }
func (w *written) Write(b []byte) (n int, err error) { return w.body.Write(b) }

// keptAnswers are answers that were given in part. The zero value is ready.
type keptAnswers struct {
	mu      sync.Mutex // guards all below
	last    uint64
	answers []keptAnswer // the oldest first
	octets  int
}

type keptAnswer struct {
	id     uint64
	parts  [][]byte
	octets int
	until  time.Time
}

// keep keeps an answer, and lets go of those that nobody fetched in time, or that there is no room for.
func (k *keptAnswers) keep(parts [][]byte, octets int, now time.Time) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	k.answers, k.octets = append(k.answers, keptAnswer{k.last, parts, octets, now.Add(keepTime)}), k.octets+octets
	for len(k.answers) > 1 && (k.octets > maxKept || k.answers[0].until.Before(now)) {
		k.octets -= k.answers[0].octets
		k.answers = slices.Delete(k.answers, 0, 1)
	}
	return k.last
}

// part returns a part, nil if it is not there any more. With its last part the answer goes.
func (k *keptAnswers) part(id uint64, n uint32) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.answers, func(one keptAnswer) bool { return one.id == id })
	if i < 0 || int(n) >= len(k.answers[i].parts) {
		return nil
	}
	one := k.answers[i]
	if int(n) == len(one.parts)-1 {
		k.octets -= one.octets
		k.answers = slices.Delete(k.answers, i, i+1)
	}
	return one.parts[n]
}
