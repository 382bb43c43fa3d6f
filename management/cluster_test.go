package management

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestListsHaveWhatAllNodesHave(t *testing.T) {
	c := clients(t)
	for _, n := range c.nodes {
		for path, want := range map[string][]int{
			"/api/connections":                                 {11, 21, 31, 12, 22, 32}, // by virtual host
			"/api/channels":                                    {11, 21, 31, 12, 22, 32},
			"/api/connections?sort=recv_oct":                   {31, 21, 11, 32, 22, 12},
			"/api/connections?sort=recv_oct&sort_reverse=true": {12, 22, 32, 11, 21, 31},
			"/api/connections?page=1&page_size=2&sort=recv_oct&sort_reverse=true":         {12, 22},
			"/api/connections?page=2&page_size=2&sort=recv_oct&sort_reverse=true":         {32, 11},
			"/api/connections?page=3&page_size=2&sort=recv_oct&columns=name":              {22, 12},
			"/api/connections?page=1&name=:2":                                             {21, 22},
			"/api/vhosts/shop/connections":                                                {12, 22, 32},
			"/api/vhosts/%2F/channels":                                                    {11, 21, 31},
			"/api/connections/username/ann":                                               {12, 22, 32},
			"/api/connections/127.0.0.1:22%20-%3E%20127.0.0.1:5672/channels":              {22},
			"/api/connections/127.0.0.1:11%20-%3E%20127.0.0.1:5672/channels?columns=name": {11},
		} {
			if got := ports(n.client.get(path)); !slices.Equal(got, want) {
				t.Errorf("node %d %s: %v, want %v", n.number, path, got, want)
			}
		}
		page := n.client.object("/api/connections?page=2&page_size=2&name=127")
		for field, want := range map[string]float64{"total_count": 6, "filtered_count": 6, "item_count": 2, "page_count": 3} {
			if page[field] != want {
				t.Errorf("%s is %v, want %v", field, page[field], want)
			}
		}
		if status, _, text := n.client.do("GET", "/api/connections?page=5&page_size=2", ""); status != 400 || !strings.Contains(text, "len: 6") {
			t.Error(status, text)
		}
		if got := ports(n.client.as("ann").get("/api/connections")); !slices.Equal(got, []int{12, 22, 32}) {
			t.Error("ann sees ", got)
		}
	}
	_, _, inShop := c.nodes[0].client.do("GET", "/api/connections?columns=vhost", "", "x-vhost", "shop")
	if want := `[{"vhost":"shop"},{"vhost":"shop"},{"vhost":"shop"}]`; inShop != want {
		t.Error("by the header: ", inShop)
	}
	nodes := map[string]bool{}
	for _, item := range c.nodes[1].client.get("/api/connections?columns=node").([]any) {
		if len(item.(map[string]any)) != 1 {
			t.Error("columns: ", item)
		}
		nodes[item.(map[string]any)["node"].(string)] = true
	}
	if len(nodes) != 3 {
		t.Error(nodes)
	}
	if consumers := c.nodes[2].client.get("/api/consumers").([]any); len(consumers) != 6 {
		t.Error(len(consumers), " consumers")
	}
	if consumers := c.nodes[2].client.get("/api/consumers/shop").([]any); len(consumers) != 3 {
		t.Error(len(consumers), " consumers of a virtual host")
	}
	if consumers := c.nodes[2].client.get("/api/consumers").([]any)[0].(map[string]any)["channel_details"].(map[string]any); consumers["node"] != "warren@a" {
		t.Error(consumers)
	}
}

// Of the items that come first each node tells no more than could be on the page, and is asked once.
func TestAPageCostsAPage(t *testing.T) {
	var brokers []*fake
	for i := range 3 {
		f := newFake()
		for j := range 200 {
			f.connect(1000*(i+1)+j, "guest", "/", "")
		}
		brokers = append(brokers, f)
	}
	c := cluster(t, brokers...)
	before := c.asked.Load()
	page := c.nodes[2].client.object("/api/connections?page=3&page_size=50")
	if asked := c.asked.Load() - before; asked != 2 {
		t.Error(asked, " questions")
	}
	if got := ports(page); len(got) != 50 || got[0] != 1100 || page["filtered_count"] != 600.0 || page["page_count"] != 12.0 {
		t.Error(got, page["filtered_count"], page["page_count"])
	}
	r := reply{}
	q := question{Method: "GET", Path: "/api/connections", Query: "page=3&page_size=50", User: User{"guest", []string{"administrator"}}, Rows: true, First: 150}
	r = *c.nodes[1].api.do(&q)
	if len(r.Rows) != 150 || r.Filtered != 200 || r.All != 200 {
		t.Error(len(r.Rows), r.Filtered, r.All)
	}
}

// An item that goes while a list is told is not counted.
func TestWhatHasGoneIsNotTold(t *testing.T) {
	l, to := rows{all: 3, rows: []row{{name: "a"}, {name: "b"}, {name: "c"}}}, reply{first: 2}
	l.reply(&to, func(r row) (any, bool) { return r.name, r.name != "b" })
	if len(to.Rows) != 1 || to.Rows[0].Name != "a" || to.Filtered != 2 || to.All != 3 {
		t.Error(to)
	}
}

func TestWhoDoesNotAnswerIsLeftOut(t *testing.T) {
	c := clients(t)
	c.nodes[1].set(func() { c.nodes[1].silent = true })
	c.nodes[2].set(func() { c.nodes[2].down = true })
	before := c.asked.Load()
	if got := ports(c.nodes[0].client.get("/api/connections")); !slices.Equal(got, []int{11, 12}) {
		t.Error(got)
	}
	if asked := c.asked.Load() - before; asked != 1 {
		t.Error("one that is down was asked: ", asked)
	}
	list := c.nodes[0].client.get("/api/nodes").([]any)
	if links := list[0].(map[string]any)["cluster_links"].([]any); len(links) != 1 {
		t.Error("links to who is down: ", links)
	}
	for i, want := range []bool{true, false, false} {
		if node := list[i].(map[string]any); node["running"] != want || node["name"] != memberOf(uint64(i+1)) || want != (len(node) > 4) {
			t.Errorf("%d: %v", i, node)
		}
	}
	for _, name := range []string{"warren@b", "warren@c"} {
		if node := c.nodes[0].client.object("/api/nodes/" + name); node["running"] != false || node["type"] != "disc" {
			t.Error(node)
		}
		if status, _, _ := c.nodes[0].client.do("GET", "/api/healthchecks/node/"+name, ""); status != 503 {
			t.Error(status)
		}
	}
	if status, _, _ := c.nodes[0].client.do("GET", "/api/nodes/warren@d", ""); status != 404 {
		t.Error(status)
	}
}

// What is no answer counts as none.
func TestAnswersThatAreNone(t *testing.T) {
	c := clients(t)
	for _, says := range []string{"\x00", "\x00{}", "\x00null", "\x00nonsense", "\x00{\"status\":404,\"body\":{}}", "\x01nonsense", "\x02short", "\x02idididid\x00\x00\x00\x02"} {
		c.nodes[1].set(func() { c.nodes[1].says = says })
		if got := ports(c.nodes[0].client.get("/api/connections")); !slices.Equal(got, []int{11, 31, 12, 32}) {
			t.Errorf("%q: %v", says, got)
		}
		if status, _, _ := c.nodes[0].client.do("GET", "/api/connections/127.0.0.1:21%20-%3E%20127.0.0.1:5672", ""); status != 404 {
			t.Errorf("%q: %d", says, status)
		}
		if node := c.nodes[0].client.get("/api/nodes").([]any)[1].(map[string]any); node["running"] != false || node["name"] != "warren@b" {
			t.Errorf("%q: %v", says, node)
		}
	}
}

func TestNodesShowThemselves(t *testing.T) {
	c := clients(t)
	c.nodes[1].broker.alarms = []Alarm{{"memory"}}
	list := c.nodes[0].client.get("/api/nodes").([]any)
	for i, n := range c.nodes {
		node := list[i].(map[string]any)
		if node["name"] != memberOf(n.number) || node["running"] != true || node["db_dir"] != n.api.DataDir || node["mem_alarm"] != (i == 1) || node["sockets_used"] != 2.0 {
			t.Error(node)
		}
		one := c.nodes[0].client.object("/api/nodes/" + memberOf(n.number))
		if one["db_dir"] != n.api.DataDir {
			t.Error(one["name"], one["db_dir"])
		}
		if len(node["cluster_links"].([]any)) != 2 {
			t.Error(node["cluster_links"])
		}
	}
	if link := list[0].(map[string]any)["cluster_links"].([]any)[0].(map[string]any); link["name"] != "warren@b" || link["peer_addr"] != "10.0.0.2" || link["peer_port"] != 25672.0 {
		t.Error(link)
	}
	if status, _, text := c.nodes[0].client.do("GET", "/api/nodes?columns=name", ""); strings.TrimSpace(text) != `[{"name":"warren@a"},{"name":"warren@b"},{"name":"warren@c"}]` {
		t.Error(status, text)
	}
}

func TestAConnectionIsFoundWhereverItIs(t *testing.T) {
	c := clients(t)
	first := c.nodes[0].client
	const path, other = "/api/connections/127.0.0.1:21%20-%3E%20127.0.0.1:5672", "/api/connections/127.0.0.1:32%20-%3E%20127.0.0.1:5672"
	if one := first.object(path); one["node"] != "warren@b" || one["peer_port"] != 21.0 {
		t.Error(one)
	}
	if status, _, text := first.do("HEAD", path, ""); status != 200 || text != "" {
		t.Error("HEAD: ", status, text)
	}
	if one := first.object("/api/channels/127.0.0.1:21%20-%3E%20127.0.0.1:5672%20(1)"); one["node"] != "warren@b" || len(one["consumer_details"].([]any)) != 1 {
		t.Error(one)
	}
	if status, _, text := first.as("ann").do("GET", path, ""); status != 401 || !strings.Contains(text, "not authorised to access object") {
		t.Error("somebody else's: ", status, text)
	}
	if status, _, _ := first.do("GET", "/api/connections/none", ""); status != 404 {
		t.Error(status)
	}
	if status, _, text := first.do("DELETE", path, "", "X-Reason", "because"); status != 204 || text != "" {
		t.Error(status, text)
	}
	if got, want := c.nodes[1].broker.closed, []string{"127.0.0.1:21 -> 127.0.0.1:5672: because"}; !slices.Equal(got, want) {
		t.Error(got)
	}
	if status, _, _ := first.do("DELETE", path, ""); status != 404 {
		t.Error("again: ", status)
	}
	if status, _, _ := first.as("ann").do("DELETE", other, ""); status != 204 || len(c.nodes[2].broker.closed) != 1 {
		t.Error("her own: ", status, c.nodes[2].broker.closed)
	}
	if status, _, _ := first.do("DELETE", "/api/connections/username/ann", "", "X-Reason", "gone"); status != 204 || len(first.get("/api/connections/username/ann").([]any)) != 0 {
		t.Error(status)
	}
	if got := c.nodes[1].broker.closed; len(got) != 2 || !strings.HasSuffix(got[1], ": gone") {
		t.Error(got)
	}
}

// spread is a cluster of three with queues that all nodes know: classic ones on a, b and c, and a quorum queue that b leads.
func spread(t *testing.T) *mesh {
	var brokers []*fake
	members := []string{"warren@a", "warren@b", "warren@c"}
	for i := range members {
		f := newFake()
		f.connect(11+10*i, "guest", "/", "on-b")
		for j, home := range members {
			q := Queue{ID: uint64(j + 1), VHost: "/", Name: "on-" + string('a'+byte(j)), Type: "classic", State: "running", Durable: true, Home: home, Capacity: -1}
			if i == j {
				q.Ready, q.Counts.Publish = uint64(10*(3-j)), 5
			}
			f.queues = append(f.queues, q)
		}
		f.queues = append(f.queues, Queue{ID: 4, VHost: "/", Name: "q", Type: "quorum", State: "running", Durable: true, Capacity: -1, Ready: 25,
			Quorum: &QuorumQueue{Leader: "warren@b", Members: members, Online: members, DeliveryLimit: 20, DelayedRetry: "disabled", Slot: "3"}})
		brokers = append(brokers, f)
	}
	c := cluster(t, brokers...)
	for i, n := range c.nodes {
		n.slots = []Slot{{Shard: 1, Name: "metadata", Leader: 1, Leads: 1, Term: 4, Members: []uint64{1, 2, 3}, Voting: true, Applied: 50, Digest: "d"},
			{Shard: 19, Name: "3", Leader: 2, Leads: 2, Term: 7, Members: []uint64{1, 2, 3}, Voting: true, Applied: uint64(100 - i), Committed: 101, Queues: 1}}
	}
	return c
}

func TestQueuesAreToldOfByTheirHomes(t *testing.T) {
	c := spread(t)
	for _, n := range c.nodes {
		for query, want := range map[string]string{
			"?columns=name,messages,node": `[{"name":"on-a","node":"warren@a","messages":30},{"name":"on-b","node":"warren@b","messages":20},` +
				`{"name":"on-c","node":"warren@c","messages":10},{"name":"q","node":"warren@b","messages":25}]`,
			"?columns=name&sort=messages": `[{"name":"on-c"},{"name":"on-b"},{"name":"q"},{"name":"on-a"}]`,
			"?columns=name,leader,online,members&page=2&page_size=3&name=.*&use_regex=true": `{"filtered_count":4,"total_count":4,"page":2,"page_size":3,"page_count":2,"items":[{"name":"q","leader":"warren@b",` +
				`"members":["warren@a","warren@b","warren@c"],"online":["warren@a","warren@b","warren@c"]}],"item_count":1}`,
			"?columns=name,consumer_details.consumer_tag,message_stats.publish&sort=name&page=2&page_size=1": `{"filtered_count":4,"total_count":4,"page":2,"page_size":1,"page_count":4,"items":[` +
				`{"name":"on-b","message_stats":{"publish":5},"consumer_details":[{"consumer_tag":"ctag"},{"consumer_tag":"ctag"},{"consumer_tag":"ctag"}]}],"item_count":1}`,
			"?disable_stats=true&enable_queue_totals=true&columns=name,messages_ready&sort=messages_ready": `[{"name":"on-c","messages_ready":10},{"name":"on-b","messages_ready":20},{"name":"q","messages_ready":25},{"name":"on-a","messages_ready":30}]`,
		} {
			if status, _, text := n.client.do("GET", "/api/queues/%2F"+query, ""); status != 200 || strings.TrimSpace(text) != want {
				t.Errorf("node %d %s: %d\n%s\nwant\n%s", n.number, query, status, text, want)
			}
		}
		for name, ready := range map[string]float64{"on-a": 30, "on-b": 20, "on-c": 10, "q": 25} {
			one := n.client.object("/api/queues/%2F/" + name)
			consumers := len(one["consumer_details"].([]any))
			if one["messages_ready"] != ready || one["state"] != "running" || consumers != map[bool]int{true: 3}[name == "on-b"] {
				t.Errorf("node %d: %v", n.number, one)
			}
		}
		before := c.asked.Load()
		for _, item := range n.client.get("/api/queues/detailed").([]any) {
			if q := item.(map[string]any); q["name"] == "on-b" != (len(q["consumer_details"].([]any)) == 3) {
				t.Error(q)
			}
		}
		if asked := c.asked.Load() - before; asked != 2 {
			t.Error(asked, " questions")
		}
	}
	// Nobody is asked for consumers that are not wanted.
	for path, want := range map[string]int64{"q": 2, "q?columns=name": 0, "q?disable_stats=true": 0, "on-a?columns=name": 0, "on-b?columns=name": 2, "on-b?disable_stats=true": 2} {
		before := c.asked.Load()
		if c.nodes[0].client.object("/api/queues/%2F/" + path); c.asked.Load()-before != want {
			t.Errorf("%s: %d questions, want %d", path, c.asked.Load()-before, want)
		}
	}
	r := c.nodes[1].api.do(&question{Method: "GET", Path: "/api/queues", Query: "columns=name", User: User{"guest", []string{"administrator"}}, Rows: true})
	if len(r.Rows) != 1 || len(r.Consumers) != 0 {
		t.Error(len(r.Rows), " rows, ", len(r.Consumers), " consumers")
	}
	if status, _, _ := c.nodes[0].client.do("GET", "/api/queues/%2F/none", ""); status != 404 {
		t.Error(status)
	}
}

func TestAQueueWhoseHomeIsAway(t *testing.T) {
	c := spread(t)
	c.nodes[1].set(func() { c.nodes[1].down = true })
	c.nodes[2].set(func() { c.nodes[2].silent = true })
	for i := range c.nodes[0].broker.queues {
		if u := c.nodes[0].broker.queues[i].Quorum; u != nil {
			u.Online = []string{"warren@a"}
		}
	}
	want := map[string]string{"on-a": "running", "on-b": "down", "on-c": "down", "q": "minority"}
	got := map[string]string{}
	for _, item := range c.nodes[0].client.get("/api/queues").([]any) {
		q := item.(map[string]any)
		got[q["name"].(string)] = q["state"].(string)
		if one := c.nodes[0].client.object("/api/queues/%2F/" + q["name"].(string)); one["state"] != q["state"] || one["node"] != q["node"] {
			t.Error(one)
		}
	}
	if !maps.Equal(got, want) {
		t.Error(got)
	}
	c.nodes[0].broker.queues[3].Quorum.Online = nil
	if one := c.nodes[0].client.object("/api/queues/%2F/q"); one["state"] != "down" {
		t.Error(one["state"])
	}
}

// An argument of a client cannot stand where the consumers go.
func TestConsumersGoWhereTheyBelong(t *testing.T) {
	c := spread(t)
	for _, n := range c.nodes {
		n.broker.queues[1].Arguments = map[string]any{"consumer_details": []any{}}
	}
	one := c.nodes[0].client.object("/api/queues/%2F/on-b")
	if len(one["arguments"].(map[string]any)["consumer_details"].([]any)) != 0 || len(one["consumer_details"].([]any)) != 3 {
		t.Error(one)
	}
}

func TestDeclareOnAnotherNode(t *testing.T) {
	c := spread(t)
	status, _, text := c.nodes[0].client.do("PUT", "/api/queues/%2F/new", `{"durable":true,"arguments":{"x-max-length":5},"node":"warren@c"}`)
	if status != 201 {
		t.Fatal(status, text)
	}
	var q Queue
	if !c.nodes[2].broker.Queue("/", "new", &q) || q.Arguments["x-max-length"] != int64(5) || c.nodes[0].broker.Queue("/", "new", &q) {
		t.Error(q)
	}
	if status, _, text := c.nodes[0].client.do("PUT", "/api/queues/%2F/new", `{"node":"warren@d"}`); status != 400 || !strings.Contains(text, "not a cluster member") {
		t.Error(status, text)
	}
}

// Who is asked by a member asks nobody, whatever it is.
func TestAQuestionIsNotPassedOn(t *testing.T) {
	c := spread(t)
	for _, one := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "/api/queues/%2F/new", `{"node":"warren@c"}`, 400}, {"GET", "/api/nodes/warren@c", "", 404}, {"GET", "/api/healthchecks/node/warren@c", "", 404},
		{"GET", "/api/nodes", "", 200}, {"GET", "/api/overview", "", 200}, {"GET", "/api/queues", "", 200}, {"GET", "/api/queues/%2F/on-c", "", 404}, {"GET", "/api/vhosts", "", 200},
		{"GET", "/api/connections", "", 200}, {"GET", "/api/connections/none", "", 404}, {"GET", "/api/channels/none", "", 404}, {"GET", "/api/consumers", "", 200},
		{"GET", "/api/health/checks/alarms", "", 200}, {"GET", "/api/warren/cluster", "", 200}, {"POST", "/api/rebalance/queues", "", 204},
		{"DELETE", "/api/connections/username/ann", "", 204},
	} {
		r := c.nodes[0].api.do(&question{Method: one.method, Path: one.path, Body: []byte(one.body), User: User{"guest", []string{"administrator"}}})
		if r.Status != one.status || c.asked.Load() != 0 {
			t.Errorf("%s %s: %d %s, %d questions", one.method, one.path, r.Status, r.Body, c.asked.Load())
		}
	}
}

func TestAnOverviewAddsUp(t *testing.T) {
	c := spread(t)
	for i, n := range c.nodes {
		n.broker.totals.Queues = 4
		n.broker.counts.Received, n.broker.counts.ConnectionsOpened = uint64(10+i), uint64(i)
		n.broker.counts.Delivery = []TypeCounts{{Type: "classic", QueueCounts: QueueCounts{Deliver: 2}}}
	}
	c.nodes[0].broker.counts.Received = 0 // nothing has happened on it
	c.nodes[0].broker.counts.Delivery = nil
	v := c.nodes[0].client.object("/api/overview")
	at := func(path ...string) any {
		var at any = v
		for _, p := range path {
			at = at.(map[string]any)[p]
		}
		return at
	}
	for _, one := range []struct {
		got  any
		want float64
	}{
		{at("object_totals", "connections"), 3}, {at("object_totals", "channels"), 3}, {at("object_totals", "consumers"), 3}, {at("object_totals", "queues"), 4},
		{at("message_stats", "publish"), 23}, {at("message_stats", "deliver"), 4}, {at("message_stats", "publish_details", "rate"), 0},
		{at("churn_rates", "connection_created"), 3},
	} {
		if one.got != one.want {
			t.Errorf("%v, want %v", one.got, one.want)
		}
	}
	if n := len(at("listeners").([]any)); n != 3 || at("node") != "warren@a" {
		t.Error(n, at("node"))
	}
	if _, _, text := c.nodes[0].client.do("GET", "/api/overview?columns=object_totals.channels,message_stats.publish", ""); text != `{"message_stats":{"publish":23},"object_totals":{"channels":3}}` {
		t.Error(text)
	}
	if _, has := c.nodes[0].client.as("ann").object("/api/overview")["listeners"]; has {
		t.Error("ann sees listeners")
	}
}

func TestMessagesOfAVirtualHostAddUp(t *testing.T) {
	c := spread(t)
	for i, n := range c.nodes {
		n.broker.vhosts[0].Ready, n.broker.vhosts[0].Unacked = uint64(i+1), 1
	}
	c.nodes[2].set(func() { c.nodes[2].silent = true })
	want := map[string]any{"warren@a": "running", "warren@b": "running", "warren@c": "nodedown"}
	one := c.nodes[0].client.object("/api/vhosts/%2F")
	if one["messages"] != 5.0 || one["messages_ready"] != 3.0 || one["messages_unacknowledged"] != 2.0 || !reflect.DeepEqual(one["cluster_state"], want) {
		t.Error(one)
	}
	if list := c.nodes[1].client.get("/api/vhosts?sort=messages&sort_reverse=true&columns=name,messages").([]any); !reflect.DeepEqual(list[0], map[string]any{"name": "/", "messages": 5.0}) {
		t.Error(list)
	}
	if list := c.nodes[1].client.as("ann").get("/api/vhosts").([]any); len(list) != 1 {
		t.Error("ann sees ", list)
	}
}

func TestRatesAddUp(t *testing.T) {
	into, from := figures{Churn: churnView{ChannelClosedDetails: details{0.1}}}, figures{Churn: churnView{ChannelClosedDetails: details{0.2}}, Publish: new(uint64)}
	addUp(reflect.ValueOf(&into).Elem(), reflect.ValueOf(from))
	if into.Churn.ChannelClosedDetails.Rate != 0.3 || into.Publish == nil {
		t.Error(into)
	}
}

func TestChecksOfACluster(t *testing.T) {
	c := spread(t)
	first := c.nodes[0].client
	check := func(name string, want int, has string) {
		t.Helper()
		if status, _, text := first.do("GET", "/api/health/checks/"+name, ""); status != want || !strings.Contains(text, has) {
			t.Error(name, status, text)
		}
	}
	check("alarms", 200, "ok")
	check("node-is-quorum-critical", 200, "ok")
	c.nodes[1].broker.alarms = []Alarm{{"disk"}}
	check("alarms", 503, `{"alarms":[{"node":"warren@b","resource":"disk"}],"reason":"There are alarms in effect in the cluster"`)
	check("local-alarms", 200, "ok")
	check("quorum-queues-without-elected-leaders/all-vhosts", 200, "ok")
	u := c.nodes[0].broker.queues[3].Quorum
	u.Online = []string{"warren@a", "warren@b"}
	check("node-is-quorum-critical", 503, `"queues":[{"name":"q","readable_name":"queue 'q' in vhost '/'","virtual_host":"/","type":"rabbit_quorum_queue"}]`)
	u.Members, u.Online = []string{"warren@b", "warren@c"}, []string{"warren@b"}
	check("node-is-quorum-critical", 200, "ok") // it has no replica
	u.Leader = ""
	check("quorum-queues-without-elected-leaders/all-vhosts", 503, `"reason":"Detected quorum queues without an elected leader"`)
	check("quorum-queues-without-elected-leaders/vhost/%2F/pattern/%5Eq", 503, `"name":"q"`)
	check("quorum-queues-without-elected-leaders/vhost/%2F/pattern/other", 200, "ok")
	check("quorum-queues-without-elected-leaders/vhost/%2F/pattern/%28", 400, "regular expression")
}

// An answer too large for one message comes in parts, and nothing of it is left.
func TestLargeAnswers(t *testing.T) {
	a, b := newFake(), newFake()
	x := uint64(1)
	for i := range 450 {
		name := fmt.Sprintf("127.0.0.1:%d -> 127.0.0.1:5672", i)
		var noise []byte // which cannot be zipped
		for range 2000 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			noise = append(noise, "0123456789abcdefghijklmnopqrstuvwxyz"[x%36])
		}
		b.connections = append(b.connections, Connection{Name: name, User: "guest", VHost: "/", State: "running", ClientProperties: map[string]any{"noise": string(noise)}})
	}
	c := cluster(t, a, b)
	list := c.nodes[0].client.get("/api/connections").([]any)
	if c.asked.Load() < 2 {
		t.Fatal("it came in one part")
	}
	if len(list) != 450 || list[17].(map[string]any)["client_properties"].(map[string]any)["noise"] == nil {
		t.Error(len(list))
	}
	if k := &c.nodes[1].api.kept; len(k.answers) != 0 || k.octets != 0 {
		t.Error("kept: ", len(k.answers), k.octets)
	}
	if c.nodes[1].api.Answer([]byte{askPart, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1}) != nil {
		t.Error("an answer that nobody kept")
	}
}

func TestAnswersAreNotKeptForEver(t *testing.T) {
	var k keptAnswers
	now := time.Now()
	old := k.keep([][]byte{{1}, {2}}, 2, now)
	id := k.keep([][]byte{{3}, {4}}, 2, now.Add(keepTime+time.Second))
	if k.part(old, 1) != nil || len(k.part(id, 1)) != 1 || k.octets != 0 {
		t.Error("time: ", k.answers, k.octets)
	}
	for range 5 {
		k.keep([][]byte{nil, nil}, maxKept/2, now)
	}
	if len(k.answers) != 2 || k.octets != maxKept {
		t.Error("room: ", len(k.answers), k.octets)
	}
}

func TestWhatIsNoQuestion(t *testing.T) {
	c := clients(t)
	for _, text := range []string{"", "\x00", "\x00{", "\x01", "\x02{}", "\x00{\"method\":\"GET\",\"path\":\"no path\"}", "\x00{\"method\":\"GET\",\"path\":\"/api/none\"}"} {
		answer := c.nodes[0].api.Answer([]byte(text))
		if len(answer) < 2 || answer[0] != 0 || !strings.Contains(string(answer), `"status":40`) {
			t.Errorf("%q: %q", text, answer)
		}
	}
}
