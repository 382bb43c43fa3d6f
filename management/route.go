package management

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// need is who may call a route. Source: RabbitMQ docs, management, "Permissions".
type need uint8

const (
	nobody  need = iota // no login
	manage              // any of the four tags
	enter               // any of the four tags, and access to the virtual host in the path
	monitor             // monitoring or administrator
	policy              // policymaker or administrator, and access to the virtual host if there is one in the path
	admin               // administrator
)

// action answers one method of a route.
type action func(*API, *request)

// route is a path with what can be done there. A segment that begins with : takes any text, handed over under that name.
type route struct {
	path    []string
	need    need
	methods verbs
}

// request is one request with what was found out about it.
type request struct {
	w http.ResponseWriter
	*http.Request
	user User
	vars map[string]string

	// asked says that another member asks, and is to hear what this node knows. reply is what it gets, rows that it wants those of a list.
	asked, rows bool
	reply       *reply
}

// on makes a route.
func on(path string, need need, methods verbs) route {
	return route{strings.Split(strings.TrimPrefix(path, "/"), "/"), need, methods}
}

// verbs are the actions of a route by method.
type verbs map[string]action

// get are the verbs of what can be read.
func get(a action) verbs { return verbs{http.MethodGet: a} }

// post are the verbs of what can only be asked to do something.
func post(a action) verbs { return verbs{http.MethodPost: a} }

// put and delete add a method each.
func (v verbs) put(a action) verbs    { return v.and(a, http.MethodPut) }
func (v verbs) delete(a action) verbs { return v.and(a, http.MethodDelete) }

// and adds methods.
func (v verbs) and(a action, methods ...string) verbs {
	for _, method := range methods {
		v[method] = a
	}
	return v
}

// table lists the routes; the first that matches counts. Paths are below /api.
func (a *API) table() []route {
	return append([]route{
		on("/overview", manage, get((*API).overview)),
		on("/whoami", manage, get((*API).whoami)),
		on("/version", nobody, get((*API).version)),
		on("/cluster-name", manage, get((*API).clusterName).put((*API).setClusterName)),
		on("/nodes", monitor, get((*API).nodes)),
		on("/nodes/:node", monitor, get((*API).node)),
		on("/extensions", manage, get((*API).extensions)),
		on("/aliveness-test/:vhost", enter, get((*API).alive)),
		on("/healthchecks/node", manage, get((*API).alive)),
		on("/healthchecks/node/:node", manage, get((*API).alive)),
		on("/health/checks/alarms", manage, get((*API).checkAlarms)),
		on("/health/checks/local-alarms", manage, get((*API).checkLocalAlarms)),
		on("/health/checks/metadata-store/initialized", manage, get((*API).alive)),
		on("/health/checks/metadata-store/initialized/with-data", manage, get((*API).alive)),
		on("/health/checks/port-listener/:port", manage, get((*API).checkPort)),
		on("/health/checks/protocol-listener/:protocols", manage, get((*API).checkProtocols)),
		on("/health/checks/certificate-expiration/:within/:unit", manage, get((*API).checkCertificates)),
		on("/health/checks/virtual-hosts", manage, get((*API).alive)),
		on("/health/checks/node-is-quorum-critical", manage, get((*API).checkQuorumCritical)),
		on("/health/checks/quorum-queues-without-elected-leaders/all-vhosts", manage, get((*API).checkLeaders)),
		on("/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/:pattern", manage, get((*API).checkLeaders)),
		on("/health/checks/quorum-queues-without-elected-leaders/vhost/:vhost", enter, get((*API).checkLeaders)),
		on("/health/checks/quorum-queues-without-elected-leaders/vhost/:vhost/pattern/:pattern", enter, get((*API).checkLeaders)),
		on("/health/checks/is-in-service", nobody, get((*API).checkService)),
		on("/health/checks/below-node-connection-limit", nobody, get((*API).checkConnectionLimit)),
		on("/health/checks/ready-to-serve-clients", nobody, get((*API).checkReady)),
		on("/feature-flags", manage, get((*API).listFeatureFlags)),
		on("/feature-flags/:flag/enable", admin, verbs{}.put((*API).enableFeatureFlag)),
		on("/deprecated-features", manage, get((*API).listDeprecatedFeatures)),
		on("/deprecated-features/used", manage, get((*API).listUsedFeatures)),
		on("/vhosts", manage, get((*API).listVHosts)),
		on("/vhosts/:in", admin, get((*API).oneVHost).put((*API).putVHost).delete((*API).deleteVHost)),
		on("/vhosts/:vhost/permissions", admin, get((*API).listPermissions)),
		on("/vhosts/:vhost/topic-permissions", admin, get((*API).listTopicPermissions)),
		on("/vhosts/:vhost/connections", enter, get((*API).listConnections)),
		on("/vhosts/:vhost/channels", enter, get((*API).listChannels)),
		on("/queues", manage, get((*API).listQueues)),
		on("/queues/detailed", manage, get((*API).listQueuesInFull)),
		on("/queues/:vhost", enter, get((*API).listQueues)),
		on("/queues/:vhost/:queue", enter, verbs{http.MethodGet: (*API).oneQueue, http.MethodPut: (*API).declareQueue, http.MethodDelete: (*API).deleteQueue}),
		on("/queues/:vhost/:queue/contents", enter, verbs{http.MethodDelete: (*API).purgeQueue}),
		on("/queues/:vhost/:queue/get", enter, post((*API).getMessages)),
		on("/warren/queues/:vhost/:queue/effective", enter, get((*API).effective)),
		on("/queues/quorum/:vhost/:queue/status", enter, get((*API).quorumStatus)),
		on("/queues/quorum/:vhost/:queue/replicas/add", admin, post((*API).addReplica)),
		on("/queues/quorum/:vhost/:queue/replicas/delete", admin, verbs{}.delete((*API).deleteReplica)),
		on("/queues/quorum/replicas/on/:node/grow", admin, post((*API).growReplicas)),
		on("/queues/quorum/replicas/on/:node/shrink", admin, verbs{}.delete((*API).shrinkReplicas)),
		on("/warren/queues/replicas/on/:node", admin, post((*API).setVotes)),
		on("/rebalance/queues", admin, post((*API).rebalance)),
		on("/warren/queues/:vhost/:queue/leader", admin, verbs{}.put((*API).transferLeader)),
		on("/warren/cluster", monitor, get((*API).clusterStatus)),
		on("/warren/cluster/:node", admin, verbs{}.delete((*API).forgetMember)),
		on("/queues/:vhost/:queue/bindings", enter, get((*API).queueBindings)),
		on("/exchanges", manage, get((*API).listExchanges)),
		on("/exchanges/:vhost", enter, get((*API).listExchanges)),
		on("/exchanges/:vhost/:exchange", enter, get((*API).oneExchange).put((*API).declareExchange).delete((*API).deleteExchange)),
		on("/exchanges/:vhost/:exchange/publish", enter, post((*API).publish)),
		on("/exchanges/:vhost/:exchange/bindings/source", enter, get((*API).exchangeBindings)),
		on("/exchanges/:vhost/:exchange/bindings/destination", enter, get((*API).exchangeBindings)),
		on("/bindings", manage, get((*API).listBindings)),
		on("/bindings/:vhost", enter, get((*API).listBindings)),
		on("/bindings/:vhost/e/:source/:kind/:destination", enter, get((*API).pairBindings).and((*API).bind, http.MethodPost)),
		on("/bindings/:vhost/e/:source/:kind/:destination/:properties", enter, get((*API).oneBinding).delete((*API).unbind)),
		on("/connections", manage, get((*API).listConnections)),
		on("/connections/username/:user", manage, verbs{http.MethodGet: (*API).userConnections, http.MethodDelete: (*API).closeUserConnections}),
		on("/connections/:connection", manage, verbs{http.MethodGet: (*API).oneConnection, http.MethodDelete: (*API).closeConnection}),
		on("/connections/:connection/channels", manage, get((*API).connectionChannels)),
		on("/channels", manage, get((*API).listChannels)),
		on("/channels/:channel", manage, get((*API).oneChannel)),
		on("/consumers", manage, get((*API).listConsumers)),
		on("/consumers/:vhost", enter, get((*API).listConsumers)),
		on("/users", admin, get((*API).listUsers)),
		on("/users/without-permissions", admin, get((*API).listUsersWithoutPermissions)),
		on("/users/bulk-delete", admin, post((*API).deleteUsers)),
		on("/users/:user", admin, get((*API).oneUser).put((*API).putUser).delete((*API).deleteUser)),
		on("/users/:user/permissions", admin, get((*API).listPermissions)),
		on("/users/:user/topic-permissions", admin, get((*API).listTopicPermissions)),
		on("/permissions", admin, get((*API).listPermissions)),
		on("/permissions/:in/:user", admin, get((*API).onePermission).put((*API).putPermission).delete((*API).deletePermission)),
		on("/topic-permissions", admin, get((*API).listTopicPermissions)),
		on("/topic-permissions/:in/:user", admin, get((*API).oneTopicPermission).put((*API).putTopicPermission).delete((*API).deleteTopicPermissions)),
		on("/topic-permissions/:in/:user/:exchange", admin, verbs{}.delete((*API).deleteTopicPermission)),
		on("/user-limits", admin, get((*API).listUserLimits)),
		on("/user-limits/:user", manage, get((*API).listUserLimits)),
		on("/user-limits/:user/:limit", admin, verbs{}.put((*API).putUserLimit).delete((*API).deleteUserLimit)),
		on("/vhost-limits", manage, get((*API).listVHostLimits)),
		on("/vhost-limits/:vhost", enter, get((*API).listVHostLimits)),
		on("/vhost-limits/:in/:limit", admin, verbs{}.put((*API).putVHostLimit).delete((*API).deleteVHostLimit)),
		on("/policies", manage, get((*API).listPolicies)),
		on("/policies/:vhost", enter, get((*API).listPolicies)),
		on("/policies/:vhost/:policy", policy, get((*API).onePolicy).put((*API).putPolicy).delete((*API).deletePolicy)),
		on("/operator-policies", manage, get((*API).listPolicies)),
		on("/operator-policies/:vhost", enter, get((*API).listPolicies)),
		on("/operator-policies/:vhost/:policy", admin, get((*API).onePolicy).put((*API).putPolicy).delete((*API).deletePolicy)),
		on("/parameters", policy, get((*API).listParameters)),
		on("/parameters/:component", policy, get((*API).listParameters)),
		on("/parameters/:component/:vhost", policy, get((*API).listParameters)),
		on("/parameters/:component/:vhost/:name", policy, get((*API).oneParameter).put((*API).putParameter).delete((*API).deleteParameter)),
		on("/global-parameters", policy, get((*API).listGlobalParameters)),
		on("/global-parameters/:name", policy, get((*API).oneGlobalParameter).put((*API).putGlobalParameter).delete((*API).deleteGlobalParameter)),
		on("/federation-links", monitor, get((*API).nothing)),
		on("/federation-links/:vhost", monitor, get((*API).nothing)),
		on("/shovels", monitor, get((*API).nothing)),
		on("/shovels/:vhost", monitor, get((*API).nothing)),
		on("/definitions", admin, get((*API).exportDefinitions).and((*API).importDefinitions, http.MethodPost)),
		on("/all-configuration", admin, get((*API).exportDefinitions)),
		on("/definitions/:in", admin, get((*API).exportDefinitions).and((*API).importDefinitions, http.MethodPost)),
		on("/auth/hash_password/:password", admin, get((*API).hashPassword)),
	}, streamRoutes()...)
}

// unbuilt are RabbitMQ's paths that are not built yet. A * stands for any segment, and what ends in /... for all below it too.
var unbuilt = []string{"/reset/...", "/auth/attempts/...", "/login",
	"/config/effective", "/stream/...", "/shovels/...", "/federation-links/...", "/queues/*/*/actions",
	"/nodes/*/memory/...", "/users/*/queues", "/vhosts/*/start/*", "/vhosts/*/deletion/protection", "/connections/*/sessions",
	"/health/checks/reached-target-cluster-size"}

// isUnbuilt says whether RabbitMQ has something at that path and Warren not yet.
func isUnbuilt(segments []string) bool {
	return slices.ContainsFunc(unbuilt, func(pattern string) bool {
		pattern, below := strings.CutSuffix(pattern[1:], "/...")
		want := strings.Split(pattern, "/")
		if len(segments) < len(want) || len(segments) > len(want) && !below {
			return false
		}
		for i := range want {
			if want[i] != "*" && want[i] != segments[i] {
				return false
			}
		}
		return true
	})
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Vary", "accept, accept-encoding, origin")
	segments, ok := split(r.URL)
	if !ok || len(segments) == 0 || segments[0] != "api" {
		a.missing(w)
		return
	}
	segments = segments[1:]
	for i := range a.routes {
		route := &a.routes[i]
		vars, ok := route.match(segments)
		if !ok {
			continue
		}
		if len(segments) == 6 && segments[0] == "bindings" && vars["kind"] != "q" && vars["kind"] != "e" {
			break
		}
		a.serve(route, &request{w: w, Request: r, vars: vars})
		return
	}
	if isUnbuilt(segments) {
		a.fail(w, http.StatusNotImplemented, "not_implemented", "this path is not built yet")
		return
	}
	a.missing(w)
}

// serve checks method, caller and what the caller accepts, in RabbitMQ's order, and does what is asked.
func (a *API) serve(route *route, r *request) {
	w := r.w
	w.Header().Set("Allow", route.allow())
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if method == http.MethodOptions {
		w.WriteHeader(http.StatusOK)
		return
	}
	do, ok := route.methods[method]
	if !ok {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if route.need != nobody && !a.login(r) {
		return
	}
	if !a.permitted(route.need, r) {
		return
	}
	if !acceptsJSON(r.Header.Get("Accept")) {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, a.MaxBody)
	do(a, r)
}

// allow is the Allow header of a route.
func (t *route) allow() string {
	allowed := make([]string, 0, 6)
	if t.methods[http.MethodGet] != nil {
		allowed = append(allowed, "HEAD", "GET")
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		if t.methods[method] != nil {
			allowed = append(allowed, method)
		}
	}
	return strings.Join(append(allowed, "OPTIONS"), ", ")
}

func (t *route) match(segments []string) (vars map[string]string, ok bool) {
	if len(segments) != len(t.path) {
		return nil, false
	}
	for i, want := range t.path {
		if !strings.HasPrefix(want, ":") && want != segments[i] {
			return nil, false
		}
	}
	vars = map[string]string{}
	for i, want := range t.path {
		if name, isVar := strings.CutPrefix(want, ":"); isVar {
			vars[name] = segments[i]
		}
	}
	return vars, true
}

// split cuts a path into segments and decodes each on its own, so that a %2F stays inside its segment. One slash at the end is ignored.
// A ServeMux would clean the path first, and redirect clients that do not follow.
func split(u *url.URL) (segments []string, ok bool) {
	path := strings.TrimSuffix(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for part := range strings.SplitSeq(path, "/") {
		segment, err := url.PathUnescape(part)
		if err != nil {
			return nil, false
		}
		segments = append(segments, segment)
	}
	return segments, true
}

// acceptsJSON reads an Accept header. An entry with quality 0 does not count.
func acceptsJSON(accept string) bool {
	if accept == "" {
		return true
	}
	for entry := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := strings.Cut(entry, ";")
		switch strings.ToLower(strings.TrimSpace(media)) {
		case "*/*", "application/*", "application/json":
			q := strings.ReplaceAll(parameters, " ", "")
			if q != "q=0" && q != "q=0.0" {
				return true
			}
		}
	}
	return false
}
