package management

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

type vhostView struct {
	Name             string            `json:"name"`
	Description      string            `json:"description"`
	Tags             []string          `json:"tags"`
	DefaultQueueType string            `json:"default_queue_type"`
	Protected        bool              `json:"protected_from_deletion"`
	Tracing          bool              `json:"tracing"`
	Metadata         vhostMetadataView `json:"metadata"`
	ClusterState     map[string]string `json:"cluster_state"`
	Messages         uint64            `json:"messages"`
	Ready            uint64            `json:"messages_ready"`
	Unacked          uint64            `json:"messages_unacknowledged"`
}

type vhostMetadataView struct {
	Description      string   `json:"description"`
	Tags             []string `json:"tags"`
	DefaultQueueType string   `json:"default_queue_type"`
}

func (a *API) vhostView(v *VHost) vhostView {
	kind := v.DefaultQueueType
	if kind == "" {
		kind = a.DefaultQueueType
	}
	return vhostView{Name: v.Name, Description: v.Description, Tags: list(v.Tags), DefaultQueueType: kind,
		Metadata:     vhostMetadataView{v.Description, list(v.Tags), kind},
		ClusterState: map[string]string{a.Node: "running"},
		Messages:     v.Ready + v.Unacked, Ready: v.Ready, Unacked: v.Unacked}
}

// vhostViews are all virtual hosts, with the messages that are on all nodes.
func (a *API) vhostViews(r *request) []vhostView {
	var views []vhostView
	for v := range a.Broker.VHosts() {
		views = append(views, a.vhostView(v))
	}
	for _, one := range a.others(r, question{Method: http.MethodGet, Path: "/api/vhosts", User: r.user}) {
		var theirs []vhostView
		state := "nodedown"
		if one.reply != nil && one.Status == http.StatusOK && json.Unmarshal(one.Body, &theirs) == nil {
			state = "running"
		}
		known := map[string]*vhostView{}
		for i := range theirs {
			known[theirs[i].Name] = &theirs[i]
		}
		for i := range views {
			v := &views[i]
			v.ClusterState[one.Name] = state
			if more := known[v.Name]; more != nil {
				v.Messages, v.Ready, v.Unacked = v.Messages+more.Messages, v.Ready+more.Ready, v.Unacked+more.Unacked
			}
		}
	}
	return views
}

// listVHosts shows monitors all virtual hosts, others those they may enter.
func (a *API) listVHosts(r *request) {
	q, ok := a.query(r, true)
	if !ok {
		return
	}
	sees := a.visible(r.user)
	l := rows{query: q}
	kept := a.vhostViews(r)
	if r.asked {
		r.w.Write(encode(list(kept)))
		return
	}
	for i := range kept {
		if v := &kept[i]; r.user.monitors() || sees(v.Name) {
			l.add("", v.Name, i, func() any { return *v })
		}
	}
	a.send(r, &l, func(row row) (any, bool) { return kept[row.at], true })
}

func (a *API) oneVHost(r *request) {
	if !a.Broker.HasVHost(r.vars["in"]) {
		a.missing(r.w)
		return
	}
	for _, v := range a.vhostViews(r) {
		if v.Name == r.vars["in"] {
			a.answer(r, v)
			return
		}
	}
	a.missing(r.w) // it has gone since
}

// queueTypes are the names of queue types, and those that RabbitMQ's own code has for them.
var queueTypes = map[string]string{"": "", "undefined": "", "classic": "classic", "quorum": "quorum", "stream": "stream", "rabbit_classic_queue": "classic",
	"rabbit_quorum_queue": "quorum", "rabbit_stream_queue": "stream"}

func (a *API) putVHost(r *request) {
	body, ok := a.body(r)
	if !ok {
		return
	}
	v := VHost{Name: r.vars["in"]}
	if v.Name == "" || len(v.Name) > 255 {
		a.bad(r.w, "the name of a virtual host has 1 to 255 bytes")
		return
	}
	if text, given := body["description"]; given && text != nil {
		if v.Description, ok = text.(string); !ok {
			a.bad(r.w, []any{"not_string", "description"})
			return
		}
	}
	if v.Tags, ok = readTags(body["tags"]); !ok {
		a.bad(r.w, []any{"not_tags", body["tags"]})
		return
	}
	for _, key := range []string{"defaultqueuetype", "default_queue_type"} { // the first is of old clients
		kind, given := body[key]
		if !given || kind == nil {
			continue
		}
		name, _ := kind.(string)
		if v.DefaultQueueType, ok = queueTypes[strings.TrimSpace(name)]; !ok {
			a.bad(r.w, fmt.Sprintf("%v is not a valid queue type", kind))
			return
		}
	}
	tracing, ok := a.boolean(r, body, "tracing")
	if !ok {
		return
	}
	if tracing {
		a.fail(r.w, http.StatusNotImplemented, "not_implemented", "tracing is not built yet")
		return
	}
	created, err := a.Broker.PutVHost(r.user, v)
	a.put(r, created, err)
}

func (a *API) deleteVHost(r *request) {
	existed, err := a.Broker.DeleteVHost(r.vars["in"])
	a.removed(r, existed, err)
}
