package management

type parameterView struct {
	Value     any    `json:"value"`
	VHost     string `json:"vhost"`
	Component string `json:"component"`
	Name      string `json:"name"`
}

type globalParameterView struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

// parameters are those of the component and the virtual host in the path. Policies are shown as parameters only if they are asked for.
func (a *API) parameters(r *request) (found []parameterView) {
	component, one := r.vars["component"]
	sees := a.visible(r.user)
	for _, vhost := range a.vhostsOf(r) {
		if !sees(vhost) {
			continue
		}
		for _, p := range a.Broker.Parameters(vhost) {
			if !one || p.Component == component {
				found = append(found, parameterView{p.Value, vhost, p.Component, p.Name})
			}
		}
		if component != "policy" {
			continue
		}
		for _, p := range a.Broker.Policies(vhost, false) {
			value := map[string]any{"pattern": p.Pattern, "definition": p.Definition, "priority": p.Priority, "apply-to": p.ApplyTo}
			found = append(found, parameterView{value, vhost, component, p.Name})
		}
	}
	return found
}

func (a *API) listParameters(r *request) {
	sendAll(a, r, false, a.parameters(r), func(v parameterView) (vhost, name string) { return v.VHost, v.Component + "\x00" + v.Name })
}

func (a *API) oneParameter(r *request) {
	for _, p := range a.parameters(r) {
		if p.Name == r.vars["name"] {
			a.answer(r, p)
			return
		}
	}
	a.missing(r.w)
}

func (a *API) putParameter(r *request) {
	value, ok := a.limitBody(r)
	if !ok {
		return
	}
	if r.vars["component"] == "policy" {
		a.bad(r.w, "policies may not be set using this method")
		return
	}
	created, err := a.Broker.SetParameter(r.vars["vhost"], r.vars["component"], r.vars["name"], value)
	a.put(r, created, err)
}

func (a *API) deleteParameter(r *request) {
	if r.vars["component"] == "policy" {
		a.missing(r.w)
		return
	}
	existed, err := a.Broker.ClearParameter(r.vars["vhost"], r.vars["component"], r.vars["name"])
	a.removed(r, existed, err)
}

func (a *API) listGlobalParameters(r *request) {
	var views []globalParameterView
	for _, p := range a.Broker.GlobalParameters() {
		views = append(views, globalParameterView{p.Name, p.Value})
	}
	sendAll(a, r, false, views, func(v globalParameterView) (vhost, name string) { return "", v.Name })
}

func (a *API) oneGlobalParameter(r *request) {
	for _, p := range a.Broker.GlobalParameters() {
		if p.Name == r.vars["name"] {
			a.answer(r, globalParameterView{p.Name, p.Value})
			return
		}
	}
	a.missing(r.w)
}

func (a *API) putGlobalParameter(r *request) {
	if value, ok := a.limitBody(r); ok {
		created, err := a.Broker.SetGlobalParameter(r.vars["name"], value)
		a.put(r, created, err)
	}
}

func (a *API) deleteGlobalParameter(r *request) {
	existed, err := a.Broker.ClearGlobalParameter(r.vars["name"])
	a.removed(r, existed, err)
}
