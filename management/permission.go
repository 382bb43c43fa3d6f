package management

import (
	"errors"
	"net/http"
)

type permissionView struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

type topicPermissionView struct {
	User     string `json:"user"`
	VHost    string `json:"vhost"`
	Exchange string `json:"exchange"`
	Write    string `json:"write"`
	Read     string `json:"read"`
}

// permissions are those of the user and the virtual host in the path, or of all.
func (a *API) permissions(r *request) (found []permissionView) {
	user, vhost, byUser, byVHost := r.about()
	for _, p := range a.Broker.Permissions() {
		if (!byUser || p.User == user) && (!byVHost || p.VHost == vhost) {
			found = append(found, p.shown())
		}
	}
	return found
}

func (p *Permission) shown() permissionView {
	return permissionView{p.User, p.VHost, p.Configure, p.Write, p.Read}
}

func (a *API) topicPermissions(r *request) (found []topicPermissionView) {
	user, vhost, byUser, byVHost := r.about()
	for _, p := range a.Broker.TopicPermissions() {
		if (!byUser || p.User == user) && (!byVHost || p.VHost == vhost) {
			found = append(found, topicPermissionView{p.User, p.VHost, p.Exchange, p.Write, p.Read})
		}
	}
	return found
}

// about are the user and the virtual host in the path. The latter is checked by the route if it is named vhost, and not if it is named in,
// where a missing one has an answer of its own.
func (r *request) about() (user, vhost string, byUser, byVHost bool) {
	user, byUser = r.vars["user"]
	if vhost, byVHost = r.vars["vhost"]; !byVHost {
		vhost, byVHost = r.vars["in"]
	}
	return user, vhost, byUser, byVHost
}

func (a *API) listPermissions(r *request) {
	if !a.known(r) {
		return
	}
	sendAll(a, r, false, a.permissions(r), func(v permissionView) (vhost, name string) { return v.VHost, v.User })
}

func (a *API) listTopicPermissions(r *request) {
	if !a.known(r) {
		return
	}
	sendAll(a, r, false, a.topicPermissions(r), func(v topicPermissionView) (vhost, name string) { return v.VHost, v.User + "\x00" + v.Exchange })
}

// known answers that there is no user of the name in the path.
func (a *API) known(r *request) bool {
	if _, byUser := r.vars["user"]; byUser {
		_, ok := a.account(r)
		return ok
	}
	return true
}

func (a *API) onePermission(r *request) {
	if found := a.permissions(r); len(found) > 0 {
		a.answer(r, found[0])
		return
	}
	a.missing(r.w)
}

// oneTopicPermission answers with a list: a user has topic permissions for each exchange.
func (a *API) oneTopicPermission(r *request) {
	if found := a.topicPermissions(r); len(found) > 0 {
		sendAll(a, r, false, found, func(v topicPermissionView) (vhost, name string) { return v.VHost, v.Exchange })
		return
	}
	a.missing(r.w)
}

// pairExists answers that the user or the virtual host in the path does not exist.
func (a *API) pairExists(r *request) bool {
	for _, u := range a.Broker.Users() {
		if u.Name == r.vars["user"] && a.Broker.HasVHost(r.vars["in"]) {
			return true
		}
	}
	a.bad(r.w, "vhost_or_user_not_found")
	return false
}

func (a *API) putPermission(r *request) {
	body, ok := a.body(r)
	if !ok || !a.pairExists(r) {
		return
	}
	p := Permission{User: r.vars["user"], VHost: r.vars["in"]}
	if !a.texts(r, body, wanted{"configure", &p.Configure}, wanted{"write", &p.Write}, wanted{"read", &p.Read}) {
		return
	}
	created, err := a.Broker.SetPermissions(p)
	a.put(r, created, err)
}

func (a *API) deletePermission(r *request) {
	existed, err := a.Broker.ClearPermissions(r.vars["in"], r.vars["user"])
	a.removed(r, existed, err)
}

func (a *API) putTopicPermission(r *request) {
	body, ok := a.body(r)
	if !ok || !a.pairExists(r) {
		return
	}
	p := TopicPermission{User: r.vars["user"], VHost: r.vars["in"]}
	if !a.texts(r, body, wanted{"exchange", &p.Exchange}, wanted{"write", &p.Write}, wanted{"read", &p.Read}) {
		return
	}
	if _, ok := a.exchange(p.VHost, p.Exchange); !ok {
		a.bad(r.w, []any{"no_such_exchange", p.Exchange})
		return
	}
	existed := len(a.topicPermissions(r)) > 0
	err := a.Broker.SetTopicPermissions(p)
	var pattern *InvalidPattern
	if errors.As(err, &pattern) { // other than with permissions, RabbitMQ shows the pattern as text
		a.bad(r.w, []any{"invalid_regexp", pattern.Pattern, []any{[]rune(pattern.Text), pattern.At}})
		return
	}
	a.put(r, !existed, err)
}

func (a *API) deleteTopicPermissions(r *request) {
	if len(a.topicPermissions(r)) == 0 {
		a.missing(r.w)
		return
	}
	a.done(r, a.Broker.ClearTopicPermissions(r.vars["in"], r.vars["user"], "", true))
}

func (a *API) deleteTopicPermission(r *request) {
	a.done(r, a.Broker.ClearTopicPermissions(r.vars["in"], r.vars["user"], exchangeName(r.vars["exchange"]), false))
}

// wanted is a text that a body must have, and where it goes.
type wanted struct {
	name string
	into *string
}

// texts reads texts out of a body, or answers which are missing.
func (a *API) texts(r *request, body map[string]any, fields ...wanted) bool {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if !a.present(r, body, names...) {
		return false
	}
	for _, f := range fields {
		text, ok := body[f.name].(string)
		if !ok {
			a.bad(r.w, []any{"not_string", f.name})
			return false
		}
		*f.into = text
	}
	return true
}

// put answers a change that made something, or changed what was there.
func (a *API) put(r *request, created bool, err error) {
	switch {
	case err != nil:
		a.refuse(r.w, err)
	case created:
		r.w.WriteHeader(http.StatusCreated)
	default:
		r.w.WriteHeader(http.StatusNoContent)
	}
}

// removed answers a removal.
func (a *API) removed(r *request, existed bool, err error) {
	switch {
	case err != nil:
		a.refuse(r.w, err)
	case !existed:
		a.missing(r.w)
	default:
		r.w.WriteHeader(http.StatusNoContent)
	}
}
