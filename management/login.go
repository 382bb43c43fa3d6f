package management

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
)

// login finds out who sends a request, or answers that nobody known does.
func (a *API) login(r *request) bool {
	name, password, ok := r.BasicAuth()
	if !ok {
		r.w.Header().Set("WWW-Authenticate", `Basic realm="RabbitMQ Management"`)
		if r.Header.Get("Authorization") == "" {
			r.w.WriteHeader(http.StatusUnauthorized)
		} else {
			a.fail(r.w, http.StatusUnauthorized, "not_authorized", "Only basic authentication is supported")
		}
		return false
	}
	user, err := a.Broker.Authenticate(name, password, remote(r.Request))
	switch {
	case errors.Is(err, ErrLoopback):
		a.fail(r.w, http.StatusUnauthorized, "not_authorised", "User can only log in via localhost")
	case errors.Is(err, ErrLogin):
		a.fail(r.w, http.StatusUnauthorized, "not_authorized", "Not_Authorized")
	case err != nil:
		a.Log.Error("cannot check a login", "user", name, "error", err)
		a.fail(r.w, http.StatusInternalServerError, "internal_server_error", "the login could not be checked")
	default:
		r.user = user
		return true
	}
	return false
}

// permitted says whether a user may use a route, or answers that he may not.
func (a *API) permitted(need need, r *request) bool {
	refuse := func(reason string) bool {
		a.fail(r.w, http.StatusUnauthorized, "not_authorised", reason)
		return false
	}
	switch {
	case need == nobody:
		return true
	case !r.user.has("management", "policymaker", "monitoring", "administrator"):
		return refuse("Not management user")
	case need == monitor && !r.user.monitors():
		return refuse("Not monitor user")
	case need == policy && !r.user.has("policymaker", "administrator"):
		return refuse("User not authorised to access object")
	case need == admin && !r.user.administers():
		return refuse("Not administrator user")
	}
	vhost, inPath := r.vars["vhost"]
	if inPath && !a.Broker.HasVHost(vhost) {
		if r.Method == http.MethodPut || r.Method == http.MethodPost {
			a.fail(r.w, http.StatusNotFound, "not_found", "vhost_not_found")
		} else {
			a.missing(r.w)
		}
		return false
	}
	if inPath && (need == enter || need == policy) && !a.sees(r.user, vhost) {
		a.fail(r.w, http.StatusNotFound, "not_found", "Not Found")
		return false
	}
	return true
}

// sees says whether what lies in a virtual host is shown to a user.
func (a *API) sees(u User, vhost string) bool {
	return u.administers() || a.Broker.MayEnter(u.Name, vhost)
}

// visible returns sees for one user, asking the broker once per virtual host: it serves within the loops over its iterators, so what it
// needs is looked up before.
func (a *API) visible(u User) func(vhost string) bool {
	if u.administers() {
		return func(string) bool { return true }
	}
	names := map[string]bool{}
	for vhost := range a.Broker.VHosts() {
		names[vhost.Name] = false
	}
	for name := range names {
		names[name] = a.Broker.MayEnter(u.Name, name)
	}
	return func(vhost string) bool { return names[vhost] }
}

func (u User) has(tags ...string) bool {
	return slices.ContainsFunc(u.Tags, func(tag string) bool { return slices.Contains(tags, tag) })
}

func (u User) monitors() bool    { return u.has("monitoring", "administrator") }
func (u User) administers() bool { return u.has("administrator") }

// remote is the address a request comes from.
func remote(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
