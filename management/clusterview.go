package management

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// clusterView is the cluster as /warren/cluster shows it. It is ours: RabbitMQ spreads what it has of it over several paths.
type clusterView struct {
	Name    string       `json:"name"`
	Node    string       `json:"node"` // which was asked
	Members []memberView `json:"members"`
	Links   []peerView   `json:"links"`
	Slots   []slotView   `json:"slots"`
}

type memberView struct {
	Number   uint64   `json:"number"`
	Name     string   `json:"name"`
	Address  string   `json:"address"`
	Up       bool     `json:"up"`
	Answers  bool     `json:"answers"`
	Since    string   `json:"since,omitempty"`
	Boot     uint64   `json:"boot"`
	Protocol []uint16 `json:"protocol,omitempty"` // the least and the most
	Version  string   `json:"version,omitempty"`
	Alarms   []string `json:"alarms"`
}

// peerView is a link as the node at one end of it sees it.
type peerView struct {
	Node      string `json:"node"`
	Peer      string `json:"peer"`
	Class     string `json:"class"`
	Connected bool   `json:"connected"`
	Since     string `json:"since,omitempty"`
	Address   string `json:"address,omitempty"`
	Made      uint64 `json:"made"`
	Lost      string `json:"lost,omitempty"`
	Held      int    `json:"held"`
	Waiting   int    `json:"waiting"`
	Calls     int    `json:"calls"`
}

// slotView is a slot with those of its replicas that were heard.
type slotView struct {
	Shard    uint64        `json:"shard"`
	Name     string        `json:"name"`
	Leader   string        `json:"leader"` // empty: none
	Leads    string        `json:"leads"`
	Term     uint64        `json:"term"`
	Members  []string      `json:"members"`
	Online   []string      `json:"online"`
	Queues   int           `json:"queues"`
	Replicas []replicaView `json:"replicas"`
}

// replicaView is a replica as its own node knows it. Indexes that are not known are left out.
type replicaView struct {
	Node      string `json:"node"`
	Leader    string `json:"leader"` // whom it takes for the leader
	Term      uint64 `json:"term"`
	Voting    bool   `json:"voting"`
	Applied   uint64 `json:"applied"`
	Committed uint64 `json:"committed,omitempty"`
	Last      uint64 `json:"last,omitempty"`
	Snapshot  uint64 `json:"snapshot,omitempty"`
	Digest    string `json:"digest,omitempty"`
	wanted    bool   // it shall have a vote
}

// memberReport is what a member tells of itself.
type memberReport struct {
	Version string
	Alarms  []string
	Links   []Link
	Slots   []Slot
}

func (a *API) memberReport() memberReport {
	m := memberReport{Version: a.ProductVersion, Alarms: a.alarmNames()}
	if a.Peers != nil {
		m.Links, m.Slots = a.Peers.Links(), a.Peers.Slots()
	}
	return m
}

// memberReports are those of this node and of the members that answer, by number.
func (a *API) memberReports(r *request) map[uint64]memberReport {
	reports := map[uint64]memberReport{}
	for _, m := range a.members() {
		if m.This {
			reports[m.Number] = a.memberReport()
		}
	}
	for _, one := range a.others(r, question{Method: http.MethodGet, Path: "/api/warren/cluster", User: r.user}) {
		var m memberReport
		if one.reply != nil && one.Status == http.StatusOK && json.Unmarshal(one.Body, &m) == nil {
			reports[one.Number] = m
		}
	}
	return reports
}

func (a *API) clusterStatus(r *request) {
	if r.asked {
		a.answer(r, a.memberReport())
		return
	}
	members, reports := a.members(), a.memberReports(r)
	if a.Peers == nil { // alone
		members = []Member{{Number: 1, Name: a.Node, Up: true, This: true}}
		reports[1] = a.memberReport()
	}
	v := clusterView{Name: a.cluster(), Node: a.Node, Members: []memberView{}, Links: []peerView{}, Slots: a.slotViews(reports)}
	for _, m := range members {
		report, answers := reports[m.Number]
		view := memberView{Number: m.Number, Name: m.Name, Address: m.Address, Up: m.Up, Answers: answers, Since: moment(m.Since), Boot: m.Boot,
			Version: report.Version, Alarms: list(report.Alarms)}
		if m.Most > 0 {
			view.Protocol = []uint16{m.Least, m.Most}
		}
		v.Members = append(v.Members, view)
		for _, l := range report.Links {
			v.Links = append(v.Links, peerView{Node: m.Name, Peer: a.memberName(l.Peer), Class: l.Class, Connected: l.Connected, Since: moment(l.Since),
				Address: l.Address, Made: l.Made, Lost: l.Lost, Held: l.Held, Waiting: l.Waiting, Calls: l.Calls})
		}
	}
	a.answer(r, v)
}

// moment is a time to the second, empty for none.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// slotViews puts together what the members say of the slots. Of the leader and the members that one knows best who has the highest term,
// and in it knows a leader.
func (a *API) slotViews(reports map[uint64]memberReport) []slotView {
	slots := []slotView{}
	for _, m := range a.members() {
		for _, s := range reports[m.Number].Slots {
			i, found := slices.BinarySearchFunc(slots, s.Shard, func(v slotView, shard uint64) int { return cmp.Compare(v.Shard, shard) })
			if !found {
				slots = slices.Insert(slots, i, slotView{Shard: s.Shard, Name: s.Name, Members: []string{}, Online: []string{}})
			}
			v := &slots[i]
			if !found || s.Term > v.Term || s.Term == v.Term && v.Leader == "" {
				v.Term, v.Leader, v.Leads, v.Members = s.Term, a.memberName(s.Leader), a.memberName(s.Leads), a.memberNames(s.Members)
			}
			v.Queues, v.Online = max(v.Queues, s.Queues), append(v.Online, m.Name)
			v.Replicas = append(v.Replicas, replicaView{m.Name, a.memberName(s.Leader), s.Term, s.Voting, s.Applied, s.Committed, s.Last, s.Snapshot, s.Digest,
				slices.Contains(s.Wanted, m.Number)})
		}
	}
	return slots
}

// forgetMember takes a member out of the cluster.
func (a *API) forgetMember(r *request) {
	name := r.vars["node"]
	if name == a.Node {
		a.bad(r.w, "node "+name+" cannot forget itself: ask another member")
		return
	}
	if _, ok := a.member(name); !ok {
		a.missing(r.w)
		return
	}
	a.done(r, a.Peers.Forget(name, r.URL.Query().Get("force") == "true"))
}

// rebalance has each member hand on the slots that it leads beyond its share.
func (a *API) rebalance(r *request) {
	if a.Peers != nil {
		if err := a.Peers.Rebalance(); err != nil {
			a.refuse(r.w, err)
			return
		}
		a.others(r, r.asks(http.MethodPost))
	}
	r.w.WriteHeader(http.StatusNoContent)
}
