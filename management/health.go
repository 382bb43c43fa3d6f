package management

import (
	"encoding/json"
	"net/http"
	"regexp"
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

type alarmView struct {
	Node     string `json:"node"`
	Resource string `json:"resource"`
}

// alarms are those of this node.
func (a *API) alarms() (list []alarmView) {
	for _, alarm := range a.Broker.Alarms() {
		list = append(list, alarmView{a.Node, alarm.Resource})
	}
	return list
}

// checkAlarms looks for alarms of all nodes that answer.
func (a *API) checkAlarms(r *request) {
	alarms := a.alarms()
	for _, one := range a.others(r, r.asks(http.MethodGet)) {
		var other struct {
			Alarms []alarmView `json:"alarms"`
		}
		if one.reply != nil && json.Unmarshal(one.Body, &other) == nil {
			alarms = append(alarms, other.Alarms...)
		}
	}
	a.tellAlarms(r, alarms, "There are alarms in effect in the cluster")
}

func (a *API) checkLocalAlarms(r *request) {
	a.tellAlarms(r, a.alarms(), "There are alarms in effect on the node")
}

func (a *API) tellAlarms(r *request, alarms []alarmView, reason string) {
	if len(alarms) == 0 {
		a.healthy(r, nil)
		return
	}
	a.unhealthy(r, reason, map[string]any{"alarms": alarms})
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

// criticalView is a quorum queue that a check tells of.
type criticalView struct {
	Name         string `json:"name"`
	ReadableName string `json:"readable_name"`
	VHost        string `json:"virtual_host"`
	Type         string `json:"type"`
}

func critical(q *Queue) criticalView {
	return criticalView{q.Name, "queue '" + q.Name + "' in vhost '" + q.VHost + "'", q.VHost, "rabbit_quorum_queue"}
}

// checkQuorumCritical looks for quorum queues of which no more members than a majority are there, this node among them.
func (a *API) checkQuorumCritical(r *request) {
	if len(a.members()) < 2 {
		a.healthy(r, map[string]any{"reason": "single node cluster"})
		return
	}
	queues := []criticalView{}
	for q := range a.Broker.Queues("") {
		if u := q.Quorum; u != nil && slices.Contains(u.Members, a.Node) && len(u.Online) <= len(u.Members)/2+1 {
			queues = append(queues, critical(q))
		}
	}
	if len(queues) == 0 {
		a.healthy(r, nil)
		return
	}
	a.unhealthy(r, "There are quorum queues that would lose their quorum if the target node is shut down", map[string]any{"queues": queues})
}

// checkLeaders looks for quorum queues that nobody leads, in one virtual host or in all, with names that match a pattern.
func (a *API) checkLeaders(r *request) {
	pattern, err := regexp.Compile(r.vars["pattern"])
	if err != nil {
		a.bad(r.w, "The pattern is no regular expression: "+err.Error())
		return
	}
	queues := []criticalView{}
	sees := a.visible(r.user)
	for q := range a.Broker.Queues(r.vars["vhost"]) {
		if u := q.Quorum; u != nil && u.Leader == "" && sees(q.VHost) && pattern.MatchString(q.Name) {
			queues = append(queues, critical(q))
		}
	}
	if len(queues) == 0 {
		a.healthy(r, nil)
		return
	}
	a.unhealthy(r, "Detected quorum queues without an elected leader", map[string]any{"queues": queues})
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
