package management

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestReplicasOfAQuorumQueue(t *testing.T) {
	c := spread(t)
	first := c.nodes[0].client
	c.nodes[2].set(func() { c.nodes[2].silent = true })
	want := `[{"Node Name":"warren@a","Raft State":"follower","Membership":"voter","Last Log Index":"","Last Written":"","Last Applied":100,"Commit Index":101,"Snapshot Index":"","Term":7,"Machine Version":1},` +
		`{"Node Name":"warren@b","Raft State":"leader","Membership":"voter","Last Log Index":"","Last Written":"","Last Applied":99,"Commit Index":101,"Snapshot Index":"","Term":7,"Machine Version":1},` +
		`{"Node Name":"warren@c","Raft State":"noproc","Membership":"","Last Log Index":"","Last Written":"","Last Applied":"","Commit Index":"","Snapshot Index":"","Term":"","Machine Version":""}]`
	if status, _, text := first.do("GET", "/api/queues/quorum/%2F/q/status", ""); status != 200 || strings.TrimSpace(text) != want {
		t.Errorf("%d\n%s\nwant\n%s", status, text, want)
	}
	for _, one := range []struct {
		method, path, body string
		status             int
		text               string
		deeds              []string
	}{
		{"GET", "queues/quorum/%2F/on-a/status", "", 400, "not a quorum queue", nil},
		{"GET", "queues/quorum/%2F/none/status", "", 404, "", nil},
		{"POST", "queues/quorum/replicas/on/warren@b/grow", `{"strategy":"all","vhost_pattern":".*","queue_pattern":".*"}`, 204, "", []string{"vote warren@b true in 3"}},
		{"POST", "queues/quorum/replicas/on/warren@d/grow", `{"strategy":"all"}`, 400, "not a cluster member", nil},
		{"POST", "queues/quorum/replicas/on/warren@b/grow", `{"strategy":"odd"}`, 400, "strategy", nil},
		{"POST", "queues/quorum/%2F/q/replicas/add", `{"node":"warren@b"}`, 204, "", []string{"vote warren@b true in 3"}},
		{"POST", "queues/quorum/%2F/q/replicas/add", `{}`, 400, "node", nil},
		{"DELETE", "queues/quorum/%2F/q/replicas/delete", `{"node":"warren@b"}`, 202, "", []string{"vote warren@b false in 3"}},
		{"DELETE", "queues/quorum/replicas/on/warren@b/shrink", "", 202, "", []string{"vote warren@b false in 3"}},
		{"DELETE", "queues/quorum/replicas/on/warren@a/shrink", "", 202, "", []string{"vote warren@a false in 3"}},
		{"DELETE", "queues/quorum/replicas/on/warren@d/shrink", "", 202, "", nil},
		{"PUT", "warren/queues/%2F/q/leader", `{"node":"warren@c"}`, 204, "", []string{"transfer / q warren@c"}},
		{"PUT", "warren/queues/%2F/q/leader", `{"node":"warren@d"}`, 400, "not a cluster member", nil},
		{"PUT", "warren/queues/%2F/on-a/leader", `{"node":"warren@c"}`, 400, "not a quorum queue", nil},
		{"POST", "rebalance/queues", "", 204, "", []string{"rebalance"}},
		{"DELETE", "warren/cluster/warren@c", "", 204, "", []string{"forget warren@c false"}},
		{"DELETE", "warren/cluster/warren@c?force=true", "", 204, "", []string{"forget warren@c true"}},
		{"DELETE", "warren/cluster/warren@d", "", 404, "", nil},
		{"DELETE", "warren/cluster/warren@a", "", 400, "ask another", nil},
		{"POST", "warren/queues/replicas/on/warren@b", `{"vote":true,"strategy":"even"}`, 200, `[]`, nil},
		{"POST", "warren/queues/replicas/on/warren@b", `{"vote":true,"strategy":"all"}`, 200, `[{"vhost":"/","name":"q","size":3,"result":"ok"}]`, []string{"vote warren@b true in 3"}},
		{"POST", "warren/queues/replicas/on/warren@b", `{"vote":false,"queue_pattern":"none"}`, 200, `[]`, nil},
		{"POST", "warren/queues/replicas/on/warren@b", `{"vote":false,"queue_pattern":"^q","vhost_pattern":"/"}`, 200, `"ok"`, []string{"vote warren@b false in 3"}},
		{"POST", "warren/queues/replicas/on/warren@b", `{"vote":false,"queue_pattern":"("}`, 400, "regular expression", nil},
		{"POST", "warren/queues/replicas/on/warren@b", `{}`, 400, "vote", nil},
		{"POST", "warren/queues/replicas/on/warren@d", `{"vote":false}`, 400, "not a cluster member", nil},
	} {
		before := len(c.nodes[0].done())
		status, _, text := first.do(one.method, "/api/"+one.path, one.body)
		if got := c.nodes[0].done()[before:]; status != one.status || !strings.Contains(text, one.text) || !slices.Equal(got, one.deeds) {
			t.Errorf("%s %s: %d %s %v", one.method, one.path, status, text, got)
		}
		if status, _, _ := first.as("mon").do(one.method, "/api/"+one.path, one.body); one.method != "GET" && status != 401 {
			t.Errorf("%s %s by one who may not: %d", one.method, one.path, status)
		}
	}
	if got := c.nodes[1].done(); !slices.Equal(got, []string{"rebalance"}) {
		t.Error("the second did ", got)
	}
	for _, n := range c.nodes { // the third has no vote, the second none yet
		n.set(func() {
			n.silent, n.votes = false, errors.New("last_node")
			n.slots[1].Members, n.slots[1].Wanted, n.slots[1].Voting = []uint64{1}, []uint64{1, 2}, n.number == 1
		})
		n.broker.queues[3].Quorum.Members = []string{"warren@a"}
	}
	var rows []struct {
		Node              string `json:"Node Name"`
		Membership, State string
	}
	_, _, text := first.do("GET", "/api/queues/quorum/%2F/q/status", "")
	if err := json.Unmarshal([]byte(text), &rows); err != nil || len(rows) != 3 || rows[0].Membership != "voter" || rows[1].Membership != "promotable" || rows[2].Membership != "non_voter" {
		t.Error(text)
	}
	failed := `[{"vhost":"/","name":"q","size":1,"result":"error: last_node"}]`
	if _, _, text := first.do("POST", "/api/warren/queues/replicas/on/warren@a", `{"vote":false}`); strings.TrimSpace(text) != failed {
		t.Error(text)
	}
	if status, _, text := first.do("DELETE", "/api/queues/quorum/replicas/on/warren@a/shrink", ""); status != 503 || !strings.Contains(text, "queue 'q' in vhost '/': error: last_node") {
		t.Error(status, text)
	}
	c.nodes[0].set(func() { c.nodes[0].fault = &Refusal{406, "it is up"} })
	if status, _, text := first.do("DELETE", "/api/warren/cluster/warren@c", ""); status != 400 || !strings.Contains(text, "it is up") {
		t.Error(status, text)
	}
}

func TestAClusterIsShown(t *testing.T) {
	c := spread(t)
	c.nodes[1].broker.alarms = []Alarm{{"disk"}}
	c.nodes[2].set(func() { c.nodes[2].down = true })
	v := c.nodes[0].client.object("/api/warren/cluster")
	members, links, slots := v["members"].([]any), v["links"].([]any), v["slots"].([]any)
	if len(members) != 3 || len(links) != 8 || len(slots) != 2 || v["name"] != "three" || v["node"] != "warren@a" {
		t.Fatal(v)
	}
	for i, want := range []string{
		"map[address:10.0.0.1:25672 alarms:[] answers:true boot:3 name:warren@a number:1 protocol:[1 1] since:2023-11-14T22:13:20Z up:true version:0.1.0]",
		"map[address:10.0.0.2:25672 alarms:[disk] answers:true boot:3 name:warren@b number:2 protocol:[1 1] since:2023-11-14T22:13:20Z up:true version:0.1.0]",
		"map[address:10.0.0.3:25672 alarms:[] answers:false boot:3 name:warren@c number:3 protocol:[1 1] since:2023-11-14T22:13:20Z up:false]",
	} {
		if got := fmt.Sprint(members[i]); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	want := "map[leader:warren@b leads:warren@b members:[warren@a warren@b warren@c] name:3 online:[warren@a warren@b] queues:1 " +
		"replicas:[map[applied:100 committed:101 leader:warren@b node:warren@a term:7 voting:true] map[applied:99 committed:101 leader:warren@b node:warren@b term:7 voting:true]] shard:19 term:7]"
	if got := fmt.Sprint(slots[1]); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if slots[0].(map[string]any)["name"] != "metadata" || links[0].(map[string]any)["peer"] != "warren@b" || links[4].(map[string]any)["node"] != "warren@b" {
		t.Error(slots[0], links)
	}
	if status, _, _ := c.nodes[0].client.as("ann").do("GET", "/api/warren/cluster", ""); status != 401 {
		t.Error(status)
	}
	alone := serve(t, newFake()).object("/api/warren/cluster")
	if got := alone["members"].([]any)[0].(map[string]any); got["name"] != "warren@test" || got["answers"] != true || len(alone["slots"].([]any)) != 0 {
		t.Error(alone)
	}
}

// Whoever knows of a later term knows better who leads.
func TestTheLatestTermSaysWhoLeads(t *testing.T) {
	c := spread(t)
	c.nodes[0].slots = []Slot{{Shard: 19, Name: "3", Leader: 1, Term: 7, Members: []uint64{1, 2, 3}}}
	c.nodes[1].slots = []Slot{{Shard: 19, Name: "3", Leader: 0, Term: 8, Members: []uint64{1, 2, 3}}}
	c.nodes[2].slots = []Slot{{Shard: 19, Name: "3", Leader: 3, Term: 8, Members: []uint64{1, 2, 3}}}
	slot := c.nodes[0].client.object("/api/warren/cluster")["slots"].([]any)[0].(map[string]any)
	if slot["leader"] != "warren@c" || slot["term"] != 8.0 {
		t.Error(slot)
	}
}

func TestMetricsOfACluster(t *testing.T) {
	c := spread(t)
	c.nodes[2].set(func() { c.nodes[2].down = true })
	scrape := func(n *meshNode, path string) string {
		w := httptest.NewRecorder()
		n.api.Metrics().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Body.String()
	}
	for i, n := range c.nodes[:2] {
		n.broker.totals.Led = uint64(2 + i)
		text := scrape(n, "/metrics")
		for _, want := range []string{"rabbitmq_unreachable_cluster_peers_count 1", fmt.Sprintf("rabbitmq_queues %d", 2+i), `warren_cluster_member_up{member="warren@c"} 0`,
			`erlang_vm_dist_node_state{peer="` + memberOf(uint64(2-i)) + `"} 3`, `warren_slot_leader{slot="3"} ` + fmt.Sprint(i), `warren_slot_has_leader{slot="3"} 1`,
			`warren_slot_term_total{slot="3"} 7`, fmt.Sprintf(`warren_slot_applied_index{slot="3"} %d`, 100-i), `warren_link_connected{peer="warren@c",class="bulk"} 0`,
			`rabbitmq_node="` + memberOf(n.number) + `"`} {
			if !strings.Contains(text, want+"\n") && !strings.Contains(text, want+",") {
				t.Errorf("node %d has no %s", n.number, want)
			}
		}
	}
	if _, err := c.nodes[0].broker.SetGlobalParameter("cluster_name", "shop"); err != nil {
		t.Fatal(err)
	}
	if text := scrape(c.nodes[0], "/metrics"); !strings.Contains(text, `rabbitmq_cluster="shop"`) {
		t.Error("the name of the cluster is not that which was set")
	}
	// Each queue has its numbers on one node, and each replica is there.
	for i, want := range [][]string{{"on-a"}, {"on-b", "q"}, {"on-c"}} {
		text := scrape(c.nodes[i], "/metrics/per-object")
		var got []string
		for line := range strings.Lines(text) {
			if name, found := strings.CutPrefix(line, `rabbitmq_queue_messages_ready{vhost="/",queue="`); found {
				got = append(got, name[:strings.IndexByte(name, '"')])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("node %d has %v", i+1, got)
		}
		membership := map[bool]string{true: "leader", false: "follower"}[i == 1]
		for _, want := range []string{`rabbitmq_queue_info{vhost="/",queue="q",queue_type="rabbit_quorum_queue",membership="` + membership + `"} 1`,
			`rabbitmq_raft_term{vhost="/",queue="q"} 7`, `rabbitmq_raft_commit_index{vhost="/",queue="q"} 101`, fmt.Sprintf(`rabbitmq_raft_last_applied{vhost="/",queue="q"} %d`, 100-i)} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("node %d has no %s", i+1, want)
			}
		}
		if strings.Contains(text, "rabbitmq_raft_snapshot_index") || strings.Contains(text, `rabbitmq_raft_term{vhost="/",queue="on`) {
			t.Error("it has what is not known")
		}
		if text := scrape(c.nodes[i], "/metrics/detailed?family=ra_metrics"); !strings.Contains(text, `rabbitmq_detailed_raft_term{vhost="/",queue="q"} 7`) {
			t.Error(text)
		}
	}
}
