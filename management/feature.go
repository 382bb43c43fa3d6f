package management

import (
	"net/http"
	"slices"
)

// featureFlagView is a feature flag: behaviour that a cluster switches on once all its nodes have it.
type featureFlagView struct {
	Name            string   `json:"name"`
	Description     string   `json:"desc"`
	URL             string   `json:"doc_url"`
	State           string   `json:"state"`
	Stability       string   `json:"stability"`
	RequireLevel    string   `json:"require_level"`
	ExperimentLevel string   `json:"experiment_level"`
	Callbacks       []string `json:"callbacks"`
	Provider        string   `json:"provided_by"`
}

// featureFlags are those of RabbitMQ 4.3 that name behaviour which Warren has. All are enabled and cannot be disabled. Flags of what RabbitMQ
// is made of (Khepri, Mnesia, its own protocol between nodes) say nothing here and are left out.
var featureFlags = []struct{ name, description string }{
	{"detailed_queues_endpoint", "The HTTP API lists queues in short, and in full under /queues/detailed"},
	{"drop_unroutable_metric", "Messages that no queue took are counted"},
	{"empty_basic_get_metric", "Gets that found a queue empty are counted"},
	{"implicit_default_bindings", "Bindings of the default exchange follow from the queues"},
	{"message_containers_deaths_v2", "Cycles of dead letters are recognised by queue and reason"},
	{"quorum_queue", "Queues of the type quorum"},
	{"rabbit_exchange_type_local_random", "Exchanges of the type x-local-random"},
	{"rabbitmq_4.0.0", "Behaves as RabbitMQ 4.0"},
	{"rabbitmq_4.1.0", "Behaves as RabbitMQ 4.1"},
	{"rabbitmq_4.2.0", "Behaves as RabbitMQ 4.2"},
	{"rabbitmq_4.3.0", "Behaves as RabbitMQ 4.3"},
	{"user_limits", "Limits of connections and channels of a user"},
	{"virtual_host_metadata", "Virtual hosts have a description and tags"},
}

func (a *API) listFeatureFlags(r *request) {
	var views []featureFlagView
	for _, f := range featureFlags {
		views = append(views, featureFlagView{Name: f.name, Description: f.description, State: "enabled", Stability: "required",
			RequireLevel: "hard", ExperimentLevel: "supported", Callbacks: []string{}, Provider: "rabbit"})
	}
	sendAll(a, r, false, views, func(v featureFlagView) (vhost, name string) { return "", v.Name })
}

// enableFeatureFlag has nothing to do for a flag that there is.
func (a *API) enableFeatureFlag(r *request) {
	for _, f := range featureFlags {
		if f.name == r.vars["flag"] {
			r.w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	a.bad(r.w, "unsupported")
}

// deprecatedView is a deprecated feature, with whether clients may still use it.
type deprecatedView struct {
	Name        string `json:"name"`
	State       string `json:"state,omitempty"`
	Description string `json:"desc"`
	Phase       string `json:"deprecation_phase"`
	URL         string `json:"doc_url"`
	Provider    string `json:"provided_by"`
}

// deprecatedFeatures are RabbitMQ's that mean something here. Source: RabbitMQ 4.3, /deprecated-features; global_qos differs from it, which
// refuses it by default.
func (a *API) deprecatedFeatures() []deprecatedView {
	view := func(name, description string, refused bool) deprecatedView {
		v := deprecatedView{Name: name, State: "permitted", Description: description, Phase: "permitted_by_default", Provider: "rabbit"}
		if refused {
			v.State = "denied"
		}
		return v
	}
	return []deprecatedView{
		view("global_qos", "basic.qos with global, a limit of all consumers of a channel", a.RefuseGlobalQoS),
		view("transient_nonexcl_queues", "Queues that are neither durable nor exclusive", a.RefuseTransient),
	}
}

func (a *API) listDeprecatedFeatures(r *request) { a.answer(r, a.deprecatedFeatures()) }

// listUsedFeatures tells of deprecated features that something declared uses, without their state. What channels ask for is not known.
func (a *API) listUsedFeatures(r *request) {
	used := []deprecatedView{}
	for q := range a.Broker.Queues("") {
		if !q.Durable && !q.Exclusive {
			used = slices.DeleteFunc(a.deprecatedFeatures(), func(v deprecatedView) bool { return v.Name != "transient_nonexcl_queues" })
			used[0].State = ""
			break
		}
	}
	a.answer(r, used)
}
