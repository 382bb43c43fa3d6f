package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

const threeMembers = `{"name":"three","node":"warren@a","members":[
{"number":1,"name":"warren@a","address":"10.0.0.1:25672","up":true,"answers":true,"boot":3,"since":"2026-01-02T03:04:05Z","protocol":[1,1],"version":"0.1.0","alarms":[]},
{"number":2,"name":"warren@b","address":"10.0.0.2:25672","up":true,"answers":false,"boot":3,"protocol":[1,2],"alarms":[]},
{"number":3,"name":"warren@c","address":"10.0.0.3:25672","up":false,"answers":false,"boot":3,"alarms":["disk"]}],
"links":[{"node":"warren@a","peer":"warren@b","class":"control","connected":true,"made":1,"held":0},{"node":"warren@a","peer":"warren@c","class":"control","connected":false,"made":2,"lost":"timeout","held":9}],
"slots":[{"shard":1,"name":"metadata","leader":"","term":4,"members":["warren@a","warren@b","warren@c"],"online":["warren@a"],"queues":0,"replicas":[{"node":"warren@a","applied":50}]},
{"shard":16,"name":"0","leader":"warren@a","term":7,"members":["warren@a","warren@b","warren@c"],"online":["warren@a","warren@b"],"queues":12,
"replicas":[{"node":"warren@a","applied":99,"digest":"x"},{"node":"warren@b","applied":99,"digest":"y"}]}]}`

func TestStatusOfACluster(t *testing.T) {
	url := answers{"GET /api/warren/cluster": {200, threeMembers}}.serve(t, nil)
	const want = `cluster three, as warren@a sees it

members
number  name      address         state            since                 version  protocol
     1  warren@a  10.0.0.1:25672  up               2026-01-02T03:04:05Z  0.1.0    1
     2  warren@b  10.0.0.2:25672  does not answer                                 1-2
     3  warren@c  10.0.0.3:25672  down                                            

slots
slot      leader    term  online  queues  applied
metadata  none         4  1 of 3       0  warren@a 50
0         warren@a     7  2 of 3      12  warren@a 99, warren@b 99

links
from      to        class    connections  held  since  state
warren@a  warren@b  control            1     0         connected
warren@a  warren@c  control            2     9         down: timeout

alarm: disk of warren@c has run low; publishers are blocked
slot metadata has no leader: a majority of its members must be there
slot 0: replicas with the same commands differ (warren@b at 99). That must not be; please report it
`
	if code, out, err := command(t, url, nil, "cluster", "status"); code != 0 || out != want || err != "" {
		t.Errorf("%d %s\n%s\nwant\n%s", code, err, out, want)
	}
	code, out, _ := command(t, url, nil, "cluster", "status", "--formatter", "json")
	var got, same any
	if code != 0 || json.Unmarshal([]byte(out), &got) != nil || json.Unmarshal([]byte(threeMembers), &same) != nil || text(got) != text(same) {
		t.Error(code, out)
	}
	if code, _, _ := command(t, url, nil, "cluster", "status", "--format", "csv"); code != exitUsage {
		t.Error(code)
	}
}

const rabbitNodes = `[{"name":"warren@a","running":true,"processors":2,"rabbitmq_version":"4.3.6","erlang_version":"1.25","alarms":["disk"]},{"name":"warren@b","running":false}]`

func TestRabbitStatusOfACluster(t *testing.T) {
	url := answers{
		"GET /api/overview":      {200, `{"cluster_name":"three","node":"warren@a","listeners":[{"node":"warren@a","protocol":"amqp","ip_address":"::","port":5672}]}`},
		"GET /api/nodes":         {200, rabbitNodes},
		"GET /api/feature-flags": {200, `[{"name":"quorum_queue","state":"enabled"}]`},
	}.serve(t, nil)
	const want = `Cluster status of node warren@a ...
Basics

Cluster name: three
Total CPU cores available cluster-wide: 2

Cluster Tags

(none)

Disk Nodes

warren@a
warren@b

Running Nodes

warren@a

Versions

warren@a: RabbitMQ 4.3.6 on Erlang 1.25

CPU Cores

Node: warren@a, available CPU cores: 2

Maintenance status

Node: warren@a, status: not under maintenance

Alarms

Disk alarm on node warren@a

Network Partitions

(none)

Listeners

Node: warren@a, interface: [::], port: 5672, protocol: amqp, purpose: AMQP 0-9-1

Feature flags

Flag: quorum_queue, state: enabled
`
	if code, out, err := command(t, url, nil, "cluster_status"); code != 0 || out != want {
		t.Errorf("%d %s\n%s\nwant\n%s", code, err, out, want)
	}
	code, out, _ := command(t, url, nil, "cluster_status", "--formatter", "json")
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	for member, want := range map[string]string{
		"cluster_name": "three", "disk_nodes": `["warren@a","warren@b"]`, "running_nodes": `["warren@a"]`, "ram_nodes": `[]`, "partitions": `{}`,
		"versions":      `{"warren@a":{"erlang_version":"1.25","rabbitmq_name":"RabbitMQ","rabbitmq_version":"4.3.6"}}`,
		"alarms":        `[{"node":"warren@a","resource":"disk","type":"resource_limit"}]`,
		"listeners":     `{"warren@a":[{"interface":"::","node":"warren@a","port":5672,"protocol":"amqp","purpose":"AMQP 0-9-1"}]}`,
		"feature_flags": `[{"name":"quorum_queue","state":"enabled"}]`, "maintenance_status": `{"warren@a":"not under maintenance"}`,
	} {
		if text(got[member]) != want {
			t.Errorf("%s is %s, want %s", member, text(got[member]), want)
		}
	}
}

func TestWhatCommandsOfAClusterSend(t *testing.T) {
	table := map[string]string{"DELETE warren/cluster/nobody": "404", "GET nodes?columns=name%2Crunning": `[{"name":"warren@a","running":true},{"name":"warren@b","running":true}]`,
		"POST warren/queues/replicas/on/warren@b":   `[{"vhost":"/","name":"q","size":3,"result":"ok"},{"vhost":"/","name":"r","size":1,"result":"error: last_node"}]`,
		"POST warren/queues/replicas/on/warren@c":   `[{"vhost":"/","name":"r","size":2,"result":"ok"}]`,
		"GET health/checks/node-is-quorum-critical": `{"status":"ok"}`, "PUT warren/queues/%2F/none/leader": "404",
		"GET queues/quorum/%2F/q/status":                          `[{"Node Name":"warren@a","Raft State":"leader","Membership":"voter","Last Applied":7,"Term":2,"Machine Version":1}]`,
		"GET queues/%2F?columns=name%2Cleader%2Conline%2Cmembers": `[{"name":"q","leader":"warren@a","online":["warren@a"],"members":["warren@a","warren@b"]},{"name":"r"}]`}
	for _, test := range []struct {
		args  string
		code  int
		asked string
		out   string
	}{
		{"cluster forget warren@c", 0, "DELETE warren/cluster/warren@c", ""},
		{"cluster forget warren@c --force", 0, "DELETE warren/cluster/warren@c?force=true", ""},
		{"cluster forget nobody", 65, "DELETE warren/cluster/nobody", ""},
		{"forget_cluster_node warren@c", 0, "DELETE warren/cluster/warren@c", "Removing node warren@c from the cluster ...\n"},
		{"forget_cluster_node warren@c --offline -q", 64, "", ""},
		{"cluster await 2", 0, "GET nodes?columns=name%2Crunning", ""},
		{"cluster await none", 65, "", ""},
		{"await_online_nodes 2 -t 9", 0, "GET nodes?columns=name%2Crunning", "Will wait for at least 2 nodes to join the cluster. Timeout: 9 seconds.\n"},
		{"cluster critical", 0, "GET health/checks/node-is-quorum-critical", ""},
		{"check_if_node_is_quorum_critical -q", 0, "GET health/checks/node-is-quorum-critical", ""},
		{"queue grow warren@b", 75, `POST warren/queues/replicas/on/warren@b {"vote":true}`, "vhost\tname\tsize\tresult\n/\tq\t3\tok\n/\tr\t1\terror: last_node\n"},
		{"grow warren@b even --vhost-pattern a.* --errors-only", 75, `POST warren/queues/replicas/on/warren@b {"strategy":"even","vhost_pattern":"a.*","vote":true}`,
			"Growing even quorum queues on warren@b ...\nvhost\tname\tsize\tresult\n/\tr\t1\terror: last_node\n"},
		{"queue shrink warren@c --queue-pattern ^r", 0, `POST warren/queues/replicas/on/warren@c {"queue_pattern":"^r","vote":false}`, "vhost\tname\tsize\tresult\n/\tr\t2\tok\n"},
		{"shrink warren@c -s --formatter csv", 0, `POST warren/queues/replicas/on/warren@c {"vote":false}`, "/,r,2,ok\n"},
		{"add_member q warren@b -q", 0, `POST queues/quorum/%2F/q/replicas/add {"node":"warren@b"}`, ""},
		{"delete_member q warren@b -q", 0, `DELETE queues/quorum/%2F/q/replicas/delete {"node":"warren@b"}`, ""},
		{"queue rebalance", 0, "POST rebalance/queues", ""},
		{"rebalance quorum -q", 0, "POST rebalance/queues", ""},
		{"rebalance odd -q", 65, "", ""},
		{"queue transfer q warren@b -p shop", 0, `PUT warren/queues/shop/q/leader {"node":"warren@b"}`, ""},
		{"transfer_leadership q warren@b", 0, `PUT warren/queues/%2F/q/leader {"node":"warren@b"}`, "Transferring leadership of quorum queue q to warren@b ...\n"},
		{"queue transfer none warren@b", 65, `PUT warren/queues/%2F/none/leader {"node":"warren@b"}`, ""},
		{"queue status q --format csv", 0, "GET queues/quorum/%2F/q/status", strings.Join(replicaColumns, ",") + "\nwarren@a,leader,voter,,,7,,,2,1\n"},
		{"quorum_status q", 0, "GET queues/quorum/%2F/q/status", "Status of quorum queue q ...\n" + strings.Join(replicaColumns, "\t") + "\nwarren@a\tleader\tvoter\t\t\t7\t\t\t2\t1\n"},
		{"queue list name leader online members", 0, "GET queues/%2F?columns=name%2Cleader%2Conline%2Cmembers",
			"name\tleader\tonline\tmembers\nq\twarren@a\t[\"warren@a\"]\t[\"warren@a\",\"warren@b\"]\nr\t\t\t\n"},
	} {
		var asked []string
		url := conversation(t, table, &asked)
		code, out, err := command(t, url, nil, strings.Fields(test.args)...)
		if code != test.code || strings.Join(asked, "; ") != test.asked || out != test.out {
			t.Errorf("%s: %d %s\nasked %v\nwant  %s\nprinted %q", test.args, code, err, asked, test.asked, out)
		}
	}
}

// Members that are not there yet are waited for, as is a node that does not answer yet.
func TestAwaitMembers(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(503)
		case 2:
			w.Write([]byte(rabbitNodes))
		default:
			w.Write([]byte(strings.ReplaceAll(rabbitNodes, "false", "true")))
		}
	}))
	defer server.Close()
	if code, out, err := command(t, server.URL, nil, "cluster", "await", "2"); code != 0 || asked.Load() != 3 || out+err != "" {
		t.Error(code, asked.Load(), out, err)
	}
	code, _, err := command(t, server.URL, nil, "cluster", "await", "3", "--timeout", "0.1")
	if code != exitTemporary || !strings.Contains(err, "2 of 3 members are up: warren@a, warren@b") {
		t.Error(code, err)
	}
	before := asked.Load()
	refusing := answers{"GET /api/nodes": {401, `{"error":"not_authorised","reason":"Not monitor user"}`}}.serve(t, nil)
	if code, _, _ := command(t, refusing, nil, "cluster", "await", "3"); code != exitPermission || asked.Load() != before {
		t.Error("one who may not ask waits: ", code)
	}
}

func TestACriticalNode(t *testing.T) {
	url := answers{"GET /api/health/checks/node-is-quorum-critical": {503,
		`{"status":"failed","reason":"There are quorum queues","queues":[{"name":"q","readable_name":"queue 'q' in vhost '/'"},{"name":"r","readable_name":"queue 'r' in vhost '/'"}]}`}}.serve(t, nil)
	for _, args := range [][]string{{"cluster", "critical"}, {"check_if_node_is_quorum_critical"}} {
		code, _, err := command(t, url, nil, args...)
		if code != exitUnavailable || !strings.Contains(err, "There are quorum queues\n  queue 'q' in vhost '/'\n  queue 'r' in vhost '/'\n") {
			t.Error(args, code, err)
		}
	}
}

func TestAwaitQuorum(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(503)
			w.Write([]byte(`{"status":"failed","reason":"not yet","queues":[]}`))
			return
		}
		w.Write([]byte(`{"status":"ok"}`))
	}))
	defer server.Close()
	if code, _, err := command(t, server.URL, nil, "await_online_quorum_plus_one", "-t", "0.1"); code != exitTemporary || !strings.Contains(err, "not yet") {
		t.Error(code, err)
	}
	if code, out, err := command(t, server.URL, nil, "await_online_quorum_plus_one", "-q"); code != 0 || out+err != "" {
		t.Error(code, out, err)
	}
}

// Of a cluster the status is that of the node that is asked.
func TestStatusOfOneOfMany(t *testing.T) {
	url := answers{"GET /api/overview": {200, `{"node":"warren@b"}`}, "GET /api/connections": {200, `[]`},
		"GET /api/nodes": {200, `[{"name":"warren@a","os_pid":"1"},{"name":"warren@b","os_pid":"2"}]`}}.serve(t, nil)
	if code, out, err := command(t, url, nil, "status"); code != 0 || !strings.Contains(out, "warren@b, process 2\n") {
		t.Error(code, out, err)
	}
}
