package management

import (
	"strings"
	"testing"
	"time"
)

// streaming is a cluster of three with streams s and t, which a leads. Clients of a publish to s, those of b read it, and c has both. a has no rates yet.
func streaming(t *testing.T) *mesh {
	var brokers []*fake
	members := []string{"warren@a", "warren@b", "warren@c"}
	for i := range members {
		f := newFake()
		for j, name := range []string{"s", "t"} {
			f.queues = append(f.queues, Queue{ID: uint64(j + 1), VHost: "/", Name: name, Type: "stream", State: "running", Durable: true, Capacity: -1, Ready: 25,
				IdleSince: time.Unix(1000, 0), Stream: &StreamQueue{Leader: "warren@a", Members: members, Online: members, Next: 25, Segments: 1}})
		}
		if i > 0 {
			f.connect(11+10*i, "guest", "/", "s")
			f.queues[0].Consumers, f.queues[0].Stream.Readers = 1, i
		}
		brokers = append(brokers, f)
	}
	c := cluster(t, brokers...)
	at := time.Unix(1000, 0)
	for _, n := range c.nodes[1:] {
		n.api.samples.take(n.broker, at)
	}
	brokers[0].queues[0].Counts = QueueCounts{Publish: 20}
	brokers[1].queues[0].Counts = QueueCounts{Deliver: 30, Ack: 10}
	brokers[2].queues[0].Counts = QueueCounts{Publish: 5, Deliver: 10, Ack: 5}
	brokers[0].queues[1].Counts = QueueCounts{Publish: 1}
	for _, n := range c.nodes[1:] {
		n.broker.counts.Received++
		n.api.samples.take(n.broker, at.Add(10*time.Second))
	}
	return c
}

// Every node says of a stream what all nodes together say.
func TestAStreamIsToldOfByAllNodes(t *testing.T) {
	c := streaming(t)
	const fields = "?columns=name,messages,consumers,readers,message_stats.publish,message_stats.publish_details,message_stats.deliver,message_stats.deliver_get_details,message_stats.ack"
	const s = `{"name":"s","messages":25,"message_stats":{"ack":15,"deliver":40,"deliver_get_details":{"rate":4.0},"publish":25,"publish_details":{"rate":0.5}},"consumers":2,` +
		`"readers":{"warren@a":0,"warren@b":1,"warren@c":2}}`
	const other = `{"name":"t","messages":25,"message_stats":{"ack":0,"deliver":0,"publish":1},"consumers":0,` +
		`"readers":{"warren@a":0,"warren@b":0,"warren@c":0}}`
	for _, n := range c.nodes {
		for path, want := range map[string]string{
			"/api/queues/%2F/s" + fields:                              s,
			"/api/queues/%2F" + fields:                                "[" + s + "," + other + "]",
			"/api/queues" + fields + "&sort=message_stats.publish":    "[" + other + "," + s + "]", // each is put together twice
			"/api/queues/%2F?columns=name&sort=consumers":             `[{"name":"t"},{"name":"s"}]`,
			"/api/queues/%2F?columns=name&sort=readers.warren@c":      `[{"name":"t"},{"name":"s"}]`,
			"/api/queues/%2F/t?columns=idle_since":                    `{}`,
			"/api/queues/%2F?disable_stats=true&columns=name,leader":  `[{"name":"s","leader":"warren@a"},{"name":"t","leader":"warren@a"}]`,
			"/api/queues/%2F/s?columns=consumer_details.consumer_tag": `{"consumer_details":[{"consumer_tag":"ctag"},{"consumer_tag":"ctag"}]}`,
		} {
			if status, _, text := n.client.do("GET", path, ""); status != 200 || strings.TrimSpace(text) != want {
				t.Errorf("node %d %s: %d\n%s\nwant\n%s", n.number, path, status, text, want)
			}
		}
		if one := n.client.get("/api/queues").([]any)[0].(map[string]any); one["consumers"] != 2.0 {
			t.Error(one)
		}
		if one := n.client.get("/api/queues/detailed").([]any)[0].(map[string]any); one["consumers"] != 2.0 || len(one["consumer_details"].([]any)) != 2 {
			t.Error(one)
		}
		if v := n.client.object("/api/overview")["object_totals"].(map[string]any); v["consumers"] != 2.0 {
			t.Error(v)
		}
	}
	for path, want := range map[string]int64{"s": 2, "s?columns=name": 0, "s?columns=consumers": 2, "s?disable_stats=true": 0} {
		before := c.asked.Load()
		if c.nodes[0].client.object("/api/queues/%2F/" + path); c.asked.Load()-before != want {
			t.Errorf("%s: %d questions, want %d", path, c.asked.Load()-before, want)
		}
	}
	for query, want := range map[string]int{"": 1, "columns=name": 0, "disable_stats=true": 0} {
		r := c.nodes[1].api.do(&question{Method: "GET", Path: "/api/queues", Query: query, User: User{"guest", []string{"administrator"}}, Rows: true})
		if len(r.Rows) != 0 || len(r.Shares) != want {
			t.Errorf("%s: %d rows, shares %v", query, len(r.Rows), r.Shares)
		}
	}
	// What a node says of itself to Prometheus is its own.
	if text := scrape(t, c.nodes[0].api, "/metrics/detailed?family=queue_consumer_count"); !strings.Contains(text, `rabbitmq_detailed_queue_consumers{vhost="/",queue="s"} 0`+"\n") {
		t.Error(text)
	}

	c.nodes[1].set(func() { c.nodes[1].down = true })
	c.nodes[2].set(func() { c.nodes[2].silent = true })
	if one := c.nodes[0].client.object("/api/queues/%2F/s"); one["consumers"] != 0.0 || one["message_stats"].(map[string]any)["publish"] != 20.0 || len(one["readers"].(map[string]any)) != 1 {
		t.Error(one)
	}
}
