package management

import (
	"reflect"
	"slices"
)

// share is a node's part in what is shown of a stream. Each node serves its own clients from its own replica: only it knows of them, of what
// they published and of what they got. A member tells its shares beside the queues, as it does its consumers.
type share struct {
	VHost     string `json:"vhost"`
	Queue     string `json:"queue"`
	Consumers int    `json:"consumers,omitempty"`
	Readers   int    `json:"readers,omitempty"`

	Publish     *uint64        `json:"publish,omitempty"`
	PublishRate *details       `json:"publish_rate,omitempty"`
	Delivered   *deliveredView `json:"delivered,omitempty"`
}

// memberShares are those of another member, by virtual host and queue.
type memberShares struct {
	node string
	of   map[[2]string]*share
}

// sharedFields are what each node has its share in.
var sharedFields = [...]string{"consumers", "message_stats", "readers"}

// wantsShares says whether any of these is shown, or ordered by.
func (q *query) wantsShares() bool {
	return !q.identity && slices.ContainsFunc(sharedFields[:], func(name string) bool { return q.columns.has(name) || len(q.sort) > 0 && q.sort[0] == name })
}

// tellShare tells who asked of this node's share in a stream, if it has one.
func (a *API) tellShare(r *request, want *query, q *Queue) {
	if !r.asked || q.Stream == nil || !want.wantsShares() {
		return
	}
	v := a.queueView(q, nil)
	s := share{VHost: q.VHost, Queue: q.Name, Consumers: v.Consumers, Readers: q.Stream.Readers}
	if v.Stats != nil {
		s.Publish, s.PublishRate, s.Delivered = v.Stats.Publish, v.Stats.PublishDetails, v.Stats.deliveredView
	}
	if v.Stats != nil || s.Consumers > 0 || s.Readers > 0 {
		r.reply.Shares = append(r.reply.Shares, s)
	}
}

// sharesOf are what the other members said.
func sharesOf(others []heard) (list []memberShares) {
	for _, one := range others {
		if one.reply == nil {
			continue
		}
		m := memberShares{one.Name, map[[2]string]*share{}}
		for i := range one.Shares {
			m.of[[2]string{one.Shares[i].VHost, one.Shares[i].Queue}] = &one.Shares[i]
		}
		list = append(list, m)
	}
	return list
}

// addShares adds those of the other members to what this node shows of a stream.
func (v *queueView) addShares(others []memberShares) {
	for _, m := range others {
		s := m.of[[2]string{v.VHost, v.Name}]
		if s == nil {
			v.Readers[m.node] = 0
			continue
		}
		v.Consumers += s.Consumers
		v.Readers[m.node] = s.Readers
		if s.Publish == nil || s.Delivered == nil {
			continue
		}
		if v.Stats == nil {
			v.Stats = &messageStatsView{Publish: new(uint64), deliveredView: &deliveredView{}}
		}
		*v.Stats.Publish += *s.Publish
		addUp(reflect.ValueOf(&v.Stats.PublishDetails).Elem(), reflect.ValueOf(s.PublishRate))
		addUp(reflect.ValueOf(v.Stats.deliveredView).Elem(), reflect.ValueOf(*s.Delivered))
	}
}
