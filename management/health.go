package management

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// healthy answers that a check holds, with what else there is to say.
func (a *API) healthy(r *request, more map[string]any) {
	v := map[string]any{"status": "ok"}
	for name, value := range more {
		v[name] = value
	}
	a.answer(r, v)
}

// unhealthy answers that a check failed, and why.
func (a *API) unhealthy(r *request, reason string, more map[string]any) {
	v := map[string]any{"status": "failed", "reason": reason}
	for name, value := range more {
		v[name] = value
	}
	r.w.Header().Set("Content-Type", "application/json")
	r.w.WriteHeader(http.StatusServiceUnavailable)
	r.w.Write(encode(v))
}

func (a *API) checkAlarms(r *request) {
	alarms := a.Broker.Alarms()
	if len(alarms) == 0 {
		a.healthy(r, nil)
		return
	}
	reason := "There are alarms in effect in the cluster"
	if strings.Contains(r.URL.Path, "local-alarms") {
		reason = "There are alarms in effect on the node"
	}
	type alarmView struct {
		Node     string `json:"node"`
		Resource string `json:"resource"`
	}
	var shown []alarmView
	for _, alarm := range alarms {
		shown = append(shown, alarmView{a.Node, alarm.Resource})
	}
	a.unhealthy(r, reason, map[string]any{"alarms": shown})
}

func (a *API) checkPort(r *request) {
	port, err := strconv.Atoi(r.vars["port"])
	if err != nil {
		a.bad(r.w, "Invalid port")
		return
	}
	ports := []int{}
	for _, l := range a.Listeners() {
		ports = append(ports, l.Port)
	}
	if slices.Contains(ports, port) {
		a.healthy(r, map[string]any{"port": port})
		return
	}
	a.unhealthy(r, "No active listener", map[string]any{"missing": port, "ports": ports})
}

// protocolNames are other names of the protocols of listeners. Source: RabbitMQ, rabbit_mgmt_wm_health_check_protocol_listener.
var protocolNames = map[string]string{
	"amqp091": "amqp", "amqp0.9.1": "amqp", "amqp0-9-1": "amqp", "amqp10": "amqp", "amqp1.0": "amqp", "amqp1-0": "amqp",
	"amqps": "amqp/ssl", "http_api": "http", "management": "http", "management_ui": "http", "ui": "http",
	"prometheus": "http/prometheus", "cli": "clustering", "distribution": "clustering",
}

func (a *API) checkProtocols(r *request) {
	protocols := []string{}
	for _, l := range a.Listeners() {
		if !slices.Contains(protocols, l.Protocol) {
			protocols = append(protocols, l.Protocol)
		}
	}
	slices.Sort(protocols)
	missing := []string{}
	for name := range strings.SplitSeq(r.vars["protocols"], ",") {
		protocol := strings.ToLower(strings.TrimSpace(name))
		if other, ok := protocolNames[protocol]; ok {
			protocol = other
		}
		if !slices.Contains(protocols, protocol) {
			missing = append(missing, protocol)
		}
	}
	if len(missing) == 0 {
		a.healthy(r, map[string]any{"protocols": protocols})
		return
	}
	a.unhealthy(r, "No active listener", map[string]any{"missing": missing, "protocols": protocols})
}

func (a *API) checkQuorumCritical(r *request) {
	a.healthy(r, map[string]any{"reason": "single node cluster"})
}

func (a *API) checkService(r *request) {
	if a.Broker.Serving() {
		a.healthy(r, nil)
		return
	}
	a.unhealthy(r, "the node is not in service", nil)
}

func (a *API) checkConnectionLimit(r *request) {
	if a.belowConnectionLimit() {
		a.healthy(r, nil)
		return
	}
	a.unhealthy(r, "node connection limit is reached", nil)
}

func (a *API) belowConnectionLimit() bool {
	return a.ConnectionMax == 0 || a.Broker.Totals().Connections < uint64(a.ConnectionMax)
}

func (a *API) checkReady(r *request) {
	switch {
	case !a.Broker.Serving():
		a.unhealthy(r, "the node is not in service", nil)
	case !slices.ContainsFunc(a.Listeners(), func(l Listener) bool { return l.Protocol == "amqp" || l.Protocol == "amqp/ssl" }):
		a.unhealthy(r, "no AMQP listener is active", nil)
	case !a.belowConnectionLimit():
		a.unhealthy(r, "node connection limit is reached", nil)
	default:
		a.healthy(r, nil)
	}
}
