package management

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	defaultPageSize = 100
	maxPageSize     = 500
	maxPattern      = 1024
)

// query is what a list request says about which items it wants, and how.
type query struct {
	paged          bool
	page, size     int
	name           string         // lower case; an item's name must contain it
	pattern        *regexp.Regexp // or match this
	nothing        bool           // the pattern is no pattern: no item matches
	sort           []string       // path of a field; nil: the list's own order
	reverse        bool
	columns        *columns
	identity       bool // disable_stats: only what identifies an item
	identityTotals bool // enable_queue_totals: and a queue's messages
}

// query reads a list request's parameters, or answers that they are wrong. pages says whether the list knows pages at all.
// Source: RabbitMQ docs, management HTTP API, "Pagination Parameters", and rabbit_mgmt_util.
func (a *API) query(r *request, pages bool) (q query, ok bool) {
	p := r.URL.Query()
	q.columns = columnsOf(p.Get("columns"))
	if field := p.Get("sort"); field != "" {
		q.sort = strings.Split(field, ".")
	}
	q.reverse = p.Get("sort_reverse") == "true"
	q.identity = p.Get("disable_stats") == "true"
	q.identityTotals = p.Get("enable_queue_totals") == "true"
	if !pages || !p.Has("page") {
		return q, true
	}
	q.paged = true
	number := func(name string, fallback int) (int, bool) {
		if !p.Has(name) {
			return fallback, true
		}
		n, err := strconv.Atoi(p.Get(name))
		return n, err == nil
	}
	page, okPage := number("page", 1)
	size, okSize := number("page_size", defaultPageSize)
	if !okPage || !okSize {
		a.bad(r.w, "Pagination parameters are invalid")
		return q, false
	}
	if page < 1 || size < 1 || size > maxPageSize {
		shown := "undefined"
		if p.Has("page_size") {
			shown = strconv.Itoa(size)
		}
		a.fail(r.w, http.StatusBadRequest, "invalid_pagination_parameters", "Invalid pagination parameters: page number "+strconv.Itoa(page)+", page size "+shown)
		return q, false
	}
	q.page, q.size = page, size
	q.filter(p)
	return q, true
}

func (q *query) filter(p url.Values) {
	name := p.Get("name")
	if p.Get("use_regex") != "true" {
		q.name = strings.ToLower(name)
		return
	}
	if len(name) > maxPattern {
		q.nothing = true
		return
	}
	pattern, err := regexp.Compile("(?i)" + name)
	q.pattern, q.nothing = pattern, err != nil
}

// wants says whether an item of that name passes the filter.
func (q *query) wants(name string) bool {
	switch {
	case q.nothing:
		return false
	case q.pattern != nil:
		return q.pattern.MatchString(name)
	case q.name != "":
		return strings.Contains(strings.ToLower(name), q.name)
	}
	return true
}

// row stands for an item until it is known which are shown: what it is ordered by, and how to find it again.
type row struct {
	key         sortKey
	vhost, name string
	at          int    // index into the items that were kept, where they were
	encoded     []byte // what is shown, of an item that another node knows
}

// rows are the items of a list that passed the filter.
type rows struct {
	query
	all  int // items before the filter
	cut  int // items that passed the filter but that other members did not tell, for they come after what is shown
	rows []row
}

// add takes an item into the list if its name passes. view is asked for only if the list is sorted by one of its fields.
func (l *rows) add(vhost, name string, at int, view func() any) {
	l.all++
	if !l.wants(name) {
		return
	}
	r := row{vhost: vhost, name: name, at: at}
	if l.sort != nil {
		r.key = sortKeyOf(view(), l.sort)
	}
	l.rows = append(l.rows, r)
}

// send orders the rows, cuts the page out and writes what fetch returns for each of its rows. A row whose item has gone since is left out.
func (a *API) send(r *request, l *rows, fetch func(row) (view any, ok bool)) {
	slices.SortStableFunc(l.rows, func(x, y row) int {
		if l.sort != nil {
			if c := x.key.compare(y.key); c != 0 {
				return c
			}
		}
		if c := strings.Compare(x.vhost, y.vhost); c != 0 {
			return c
		}
		return strings.Compare(x.name, y.name)
	})
	if l.reverse {
		slices.Reverse(l.rows)
	}
	if r.rows {
		l.reply(r.reply, fetch)
		return
	}
	shown, filtered := l.rows, len(l.rows)+l.cut
	if l.paged {
		from := (l.page - 1) * l.size
		if from > len(shown) || from < 0 {
			a.fail(r.w, http.StatusBadRequest, "page_out_of_range",
				"Page out of range, page: "+strconv.Itoa(l.page)+" page size: "+strconv.Itoa(l.size)+", len: "+strconv.Itoa(filtered))
			return
		}
		shown = shown[from:min(from+l.size, len(shown))]
	}
	r.w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodHead {
		return
	}
	buf := make([]byte, 0, 64<<10)
	if l.paged {
		buf = append(buf, `{"filtered_count":`...)
		buf = strconv.AppendInt(buf, int64(filtered), 10)
		buf = append(buf, `,"total_count":`...)
		buf = strconv.AppendInt(buf, int64(l.all), 10)
		buf = append(buf, `,"page":`...)
		buf = strconv.AppendInt(buf, int64(l.page), 10)
		buf = append(buf, `,"page_size":`...)
		buf = strconv.AppendInt(buf, int64(l.size), 10)
		buf = append(buf, `,"page_count":`...)
		buf = strconv.AppendInt(buf, int64((filtered+l.size-1)/l.size), 10)
		buf = append(buf, `,"items":`...)
	}
	buf = append(buf, '[')
	count := 0
	for _, row := range shown {
		var view any
		if row.encoded == nil {
			var ok bool
			if view, ok = fetch(row); !ok {
				continue
			}
		}
		if count++; count > 1 {
			buf = append(buf, ',')
		}
		if row.encoded != nil {
			buf = append(buf, row.encoded...)
		} else {
			buf = l.columns.encode(buf, view)
		}
		if len(buf) > 48<<10 {
			if _, err := r.w.Write(buf); err != nil {
				return
			}
			buf = buf[:0]
		}
	}
	buf = append(buf, ']')
	if l.paged {
		buf = append(buf, `,"item_count":`...)
		buf = strconv.AppendInt(buf, int64(count), 10)
		buf = append(buf, '}')
	}
	r.w.Write(buf)
}

// sendAll writes a list that was made already, in the order of what identify says of its items.
func sendAll[T any](a *API, r *request, pages bool, views []T, identify func(T) (vhost, name string)) {
	if q, ok := a.query(r, pages); ok {
		sendQuery(a, r, q, views, identify)
	}
}

// sendSorted is sendAll with another order if the request asks for none.
func sendSorted[T any](a *API, r *request, views []T, by []string, identify func(T) (vhost, name string)) {
	if q, ok := a.query(r, false); ok {
		if q.sort == nil {
			q.sort = by
		}
		sendQuery(a, r, q, views, identify)
	}
}

func sendQuery[T any](a *API, r *request, q query, views []T, identify func(T) (vhost, name string)) {
	l := rows{query: q}
	for i := range views {
		vhost, name := identify(views[i])
		l.add(vhost, name, i, func() any { return views[i] })
	}
	a.send(r, &l, func(row row) (any, bool) { return views[row.at], true })
}

// vhostOf is the virtual host that a list is about: that in the path, or that in the header x-vhost, or all.
func (r *request) vhostOf() string {
	if vhost, ok := r.vars["vhost"]; ok {
		return vhost
	}
	return r.Header.Get("x-vhost")
}
