package management

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// userLimits are the names of a user's limits.
var userLimits = []string{"max-connections", "max-channels"}

type userLimitsView struct {
	User  string           `json:"user"`
	Value map[string]int64 `json:"value"`
}

type vhostLimitsView struct {
	Value map[string]int64 `json:"value"`
	VHost string           `json:"vhost"`
}

// readLimit reads one limit, or answers what is wrong with it.
func (a *API) readLimit(r *request, known []string, where, name string, v any) (n int64, ok bool) {
	if !slices.Contains(known, name) {
		a.bad(r.w, fmt.Sprintf("Unrecognised terms [{%s,%s}] in %s", term(name), term(v), where))
		return 0, false
	}
	number, _ := v.(json.Number)
	n, err := number.Int64()
	if err != nil {
		a.bad(r.w, fmt.Sprintf("%s should be a number, actually was %s", name, term(v)))
		return 0, false
	}
	return n, true
}

// listUserLimits shows who has limits: to administrators, or a user's own.
func (a *API) listUserLimits(r *request) {
	if user, one := r.vars["user"]; one && user != r.user.Name && !r.user.monitors() {
		a.fail(r.w, http.StatusUnauthorized, "not_authorised", "User not authorised to access object")
		return
	}
	if !a.known(r) {
		return
	}
	user, one := r.vars["user"]
	var views []userLimitsView
	for _, u := range a.Broker.Users() {
		if (!one || u.Name == user) && len(u.Limits) > 0 {
			views = append(views, userLimitsView{u.Name, u.Limits})
		}
	}
	sendAll(a, r, false, views, func(v userLimitsView) (vhost, name string) { return "", v.User })
}

// limitBody reads the value of a limit.
func (a *API) limitBody(r *request) (value any, ok bool) {
	body, ok := a.body(r)
	if !ok || !a.present(r, body, "value") {
		return nil, false
	}
	return body["value"], true
}

func (a *API) putUserLimit(r *request) {
	value, ok := a.limitBody(r)
	if !ok {
		return
	}
	user, name := r.vars["user"], r.vars["limit"]
	if !slices.ContainsFunc(a.Broker.Users(), func(u Account) bool { return u.Name == user }) {
		a.bad(r.w, []any{"no_such_user", user})
		return
	}
	a.done(r, a.Broker.SetUserLimit(user, name, value))
}

func (a *API) deleteUserLimit(r *request) {
	if !a.known(r) {
		return
	}
	a.done(r, a.Broker.ClearUserLimit(r.vars["user"], r.vars["limit"]))
}

// listVHostLimits shows the limits of the virtual hosts that a user may see.
func (a *API) listVHostLimits(r *request) {
	sees := a.visible(r.user)
	var views []vhostLimitsView
	for _, vhost := range a.vhostsOf(r) {
		if limits := a.Broker.VHostLimits(vhost); sees(vhost) && len(limits) > 0 {
			views = append(views, vhostLimitsView{limits, vhost})
		}
	}
	sendAll(a, r, false, views, func(v vhostLimitsView) (vhost, name string) { return v.VHost, "" })
}

// limitedVHost is the virtual host in the path, or answers that there is none.
func (a *API) limitedVHost(r *request) (vhost string, ok bool) {
	if vhost = r.vars["in"]; !a.Broker.HasVHost(vhost) {
		a.fail(r.w, http.StatusNotFound, "not_found", "vhost_not_found")
		return vhost, false
	}
	return vhost, true
}

func (a *API) putVHostLimit(r *request) {
	vhost, ok := a.limitedVHost(r)
	if !ok {
		return
	}
	if value, ok := a.limitBody(r); ok {
		a.done(r, a.Broker.SetVHostLimit(vhost, r.vars["limit"], value))
	}
}

func (a *API) deleteVHostLimit(r *request) {
	if vhost, ok := a.limitedVHost(r); ok {
		a.done(r, a.Broker.ClearVHostLimit(vhost, r.vars["limit"]))
	}
}

// vhostsOf are the names of the virtual hosts that a list is about.
func (a *API) vhostsOf(r *request) (names []string) {
	if vhost := r.vhostOf(); vhost != "" {
		return []string{vhost}
	}
	for v := range a.Broker.VHosts() {
		names = append(names, v.Name)
	}
	return names
}
