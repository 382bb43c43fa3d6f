package management

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

// listVHosts shows monitors all virtual hosts, others those they may enter.
func (a *API) listVHosts(r *request) {
	q, ok := a.query(r, true)
	if !ok {
		return
	}
	sees := a.visible(r.user)
	l := rows{query: q}
	var kept []vhostView
	for v := range a.Broker.VHosts() {
		if r.user.monitors() || sees(v.Name) {
			view := a.vhostView(v)
			kept = append(kept, view)
			l.add("", v.Name, len(kept)-1, func() any { return view })
		}
	}
	a.send(r, &l, func(row row) (any, bool) { return kept[row.at], true })
}

func (a *API) oneVHost(r *request) {
	for v := range a.Broker.VHosts() {
		if v.Name == r.vars["vhost"] {
			view := a.vhostView(v)
			defer a.answer(r, view)
			return
		}
	}
	a.missing(r.w)
}
