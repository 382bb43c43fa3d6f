package management

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// quorumQueue is a queue of a fake broker that has more than a classic one.
func quorumQueue(limit int64) *fake {
	f := queues(2)
	q := &f.queues[slices.IndexFunc(f.queues, func(q Queue) bool { return q.Name == "q000" })]
	q.Type, q.Ready, q.Unacked = "quorum", 5, 2
	q.Quorum = &QuorumQueue{Leader: "warren@b", Members: []string{"warren@a", "warren@b"}, Online: []string{"warren@b"}, DeliveryLimit: limit,
		DelayedRetry: "all (min: 5ms, max: 6ms)", Delayed: 3, Kept: 4, KeptBytes: 40}
	return f
}

func TestFieldsOfQuorumQueues(t *testing.T) {
	c := serve(t, quorumQueue(20))
	one := c.object("/api/queues/%2F/q000")
	for field, want := range map[string]any{
		"type": "quorum", "node": "warren@b", "leader": "warren@b", "members": []any{"warren@a", "warren@b"}, "online": []any{"warren@b"},
		"delivery_limit": 20.0, "delayed_retry": "all (min: 5ms, max: 6ms)", "messages": 14.0, "messages_ready": 5.0, "messages_unacknowledged": 2.0,
		"messages_delayed": 3.0, "messages_dlx": 4.0, "message_bytes_dlx": 40.0, "messages_ram": 0.0, "messages_persistent": 14.0,
	} {
		if !reflect.DeepEqual(one[field], want) {
			t.Errorf("%s is %v, want %v", field, one[field], want)
		}
	}
	if _, has := one["storage_version"]; has {
		t.Error("a quorum queue has no storage_version")
	}
	list := c.get("/api/queues/%2F").([]any)
	if first := list[0].(map[string]any); first["leader"] != "warren@b" || first["delayed_retry"] == nil {
		t.Error("in a list: ", first)
	}
	for _, field := range []string{"leader", "members", "online", "delivery_limit", "delayed_retry", "messages_dlx"} {
		if _, has := list[1].(map[string]any)[field]; has {
			t.Error("a classic queue has ", field)
		}
	}
	cheap := fields(c.object("/api/queues/%2F/q000?disable_stats=true"))
	for _, field := range []string{"leader", "members", "online", "delivery_limit"} {
		if !slices.Contains(cheap, field) {
			t.Error("without statistics there is no ", field)
		}
	}
	if one := serve(t, quorumQueue(-1)).object("/api/queues/%2F/q000"); one["delivery_limit"] != "unlimited" {
		t.Error(one["delivery_limit"])
	}
}

// Fields that only some of the items have can be asked for, and be sorted by.
func TestColumnsOfQuorumQueues(t *testing.T) {
	c := serve(t, quorumQueue(20))
	for path, want := range map[string]string{
		"/api/queues/%2F?columns=name,leader,messages_dlx":                 `[{"name":"q000","leader":"warren@b","messages_dlx":4},{"name":"q001"}]`,
		"/api/queues/%2F?columns=name&sort=delivery_limit":                 `[{"name":"q001"},{"name":"q000"}]`,
		"/api/queues/%2F?columns=name&sort=messages_dlx&sort_reverse=true": `[{"name":"q000"},{"name":"q001"}]`,
	} {
		if status, _, text := c.do("GET", path, ""); status != 200 || strings.TrimSpace(text) != want {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

func TestConditionalDeleteOfQuorumQueues(t *testing.T) {
	f := quorumQueue(20)
	f.refusal = &Refusal{540, "cannot delete queue 'q000' in vhost '/'. queue.delete operations with if-unused flag set are not supported by quorum queues"}
	status, _, text := serve(t, f).do("DELETE", "/api/queues/%2F/q000?if-unused=true", "")
	if want := `{"error":"bad_request","reason":"cannot delete queue 'q000' in vhost '/'. queue.delete operations with if-unused flag set are not supported by quorum queues"}`; status != 400 || text != want {
		t.Error(status, text)
	}
}
