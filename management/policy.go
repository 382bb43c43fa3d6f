package management

import "strings"

type policyView struct {
	VHost      string         `json:"vhost"`
	Name       string         `json:"name"`
	Pattern    string         `json:"pattern"`
	ApplyTo    string         `json:"apply-to"`
	Definition map[string]any `json:"definition"`
	Priority   int64          `json:"priority"`
}

func viewPolicy(vhost string, p *Policy) policyView {
	return policyView{vhost, p.Name, p.Pattern, p.ApplyTo, p.Definition, p.Priority}
}

// operators says whether a path is about operator policies.
func (r *request) operators() bool { return strings.HasPrefix(r.URL.Path, "/api/operator-policies") }

// listPolicies lists policies by priority, the lowest first, as RabbitMQ does.
func (a *API) listPolicies(r *request) {
	sees := a.visible(r.user)
	var views []policyView
	for _, vhost := range a.vhostsOf(r) {
		if !sees(vhost) {
			continue
		}
		for _, p := range a.Broker.Policies(vhost, r.operators()) {
			views = append(views, viewPolicy(vhost, &p))
		}
	}
	sendSorted(a, r, views, []string{"priority"}, func(v policyView) (vhost, name string) { return v.VHost, v.Name })
}

func (a *API) onePolicy(r *request) {
	for _, p := range a.Broker.Policies(r.vars["vhost"], r.operators()) {
		if p.Name == r.vars["policy"] {
			a.answer(r, viewPolicy(r.vars["vhost"], &p))
			return
		}
	}
	a.missing(r.w)
}

func (a *API) putPolicy(r *request) {
	if body, ok := a.body(r); ok && a.present(r, body, "pattern", "definition") {
		created, err := a.Broker.SetPolicy(r.vars["vhost"], r.vars["policy"], r.operators(), body)
		a.put(r, created, err)
	}
}

func (a *API) deletePolicy(r *request) {
	existed, err := a.Broker.ClearPolicy(r.vars["vhost"], r.vars["policy"], r.operators())
	a.removed(r, existed, err)
}

// effective shows what counts for a queue in the end, and why. RabbitMQ has no such path.
func (a *API) effective(r *request) {
	keys, ok := a.Broker.Effective(r.vars["vhost"], r.vars["queue"])
	if !ok {
		a.missing(r.w)
		return
	}
	sendAll(a, r, false, keys, func(k EffectiveKey) (vhost, name string) { return "", k.Key })
}
