package broker

import (
	"fmt"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

func failed(t *testing.T, what string, err error, text string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != text {
		t.Errorf("%s: got %q, want %q", what, got, text)
	}
}

// TestLimitTexts: what is refused as a limit or a parameter, as RabbitMQ 4.3.6 says it.
func TestLimitTexts(t *testing.T) {
	n := newNode(t)
	vhost := func(name string, value any, want string) {
		t.Helper()
		n.v.SetLimit(name, value, func(err error) { failed(t, name, err, want) })
	}
	vhost("max-queues", "x", fmt.Sprintf(frame, `max-queues should be a number, actually was <<"x">>`))
	vhost("max-queues", 1.5, fmt.Sprintf(frame, "max-queues should be a number, actually was 1.5"))
	vhost("foo", 1, fmt.Sprintf(frame, `Unrecognised terms [{<<"foo">>,1}] in limits`))
	vhost("max-queues", -5, "")
	vhost("max-connections", 10, "")
	if got := fmt.Sprint(n.v.Parameters()); got != "[{/ vhost-limits limits map[max-connections:10 max-queues:-5]}]" {
		t.Error(got)
	}
	user := func(user, name string, value any, want string) {
		t.Helper()
		n.SetUserLimit(user, name, value, func(err error) { failed(t, name, err, want) })
	}
	user("guest", "max-channels", "x", `max-channels should be a number, actually was <<"x">>`)
	user("guest", "foo", 1, `Unrecognised terms [{<<"foo">>,1}] in user-limits`)
	user("none", "max-channels", 1, "no such user")
	user("guest", "max-channels", 3, "")
	user("guest", "max-connections", 4, "")
	n.ClearUserLimit("guest", "max-channels", func(err error) { failed(t, "clear", err, "") })
	if got := fmt.Sprint(n.UserLimits("guest")); got != "map[max-connections:4]" {
		t.Error(got)
	}
	parameter := func(component, name string, value any, want string) {
		t.Helper()
		n.v.SetParameter(component, name, value, func(_ bool, err error) { failed(t, component, err, want) })
	}
	rule := map[string]any{"pattern": "a", "definition": map[string]any{"max-length": 1}}
	parameter("policy", "x", rule, "policies may not be set using this method")
	parameter("operator_policy", "x", rule, fmt.Sprintf(frame, `Key "priority" not found in x`))
	parameter("foo", "x", 1, fmt.Sprintf(frame, "component foo not found"))
	parameter("shovel", "x", 1, fmt.Sprintf(frame, "component shovel not found"))
	parameter("vhost-limits", "limits", map[string]any{"max-queues": 4, "bar": 3}, fmt.Sprintf(frame, `Unrecognised terms [{<<"bar">>,3}] in limits`))
	parameter("vhost-limits", "other", map[string]any{"max-queues": 4}, fmt.Sprintf(frame, "name of limits should be 'limits' but was 'other'"))
	rule["priority"] = 3
	parameter("operator_policy", "x", rule, "")
	if p, ok := n.v.Policy(true, "x"); !ok || p.Priority != 3 {
		t.Error(p)
	}
	n.v.ClearParameter("operator_policy", "x", func(existed bool, err error) { failed(t, "clear", err, "") })
	n.v.ClearLimit("max-queues", func(err error) { failed(t, "clear", err, "") })
	n.v.ClearLimit("max-connections", func(err error) { failed(t, "clear", err, "") })
	if got := n.v.Parameters(); len(got) != 0 || n.v.Limits() != nil {
		t.Error(got)
	}
	n.SetGlobalParameter("g", map[string]any{"a": []any{1, nil}}, func(_ bool, err error) { failed(t, "global", err, "") })
	n.SetGlobalParameter(ImportedHash, "h", func(_ bool, err error) { failed(t, "hash", err, "") })
	if got := fmt.Sprint(n.GlobalParameters()); got != "[{  g map[a:[1 <nil>]]}]" {
		t.Error(got)
	}
	if v, ok := n.GlobalParameter(ImportedHash); v != "h" || !ok {
		t.Error(v)
	}
	n.ClearGlobalParameter("g", func(existed bool, err error) {
		if failed(t, "clear", err, ""); !existed {
			t.Error("did not exist")
		}
	})
}

// TestAdmission: what connections and channels are counted against, in the order of the checks.
func TestAdmission(t *testing.T) {
	n := newNode(t)
	guest := n.User("guest")
	n.PutUser(User{Name: "u"}, func(error) {})
	u := n.User("u")
	open := func(vhost string, u *User, want string) *Admission {
		t.Helper()
		a, err := n.Broker.Open(vhost, u)
		if want != "" {
			want = "NOT_ALLOWED - " + want
		}
		n.want("open", err, want)
		return a
	}
	set := func(name string, value int) {
		n.v.SetLimit(name, value, func(err error) { failed(t, name, err, "") })
	}
	setUser := func(name string, value int) {
		n.SetUserLimit("guest", name, value, func(err error) { failed(t, name, err, "") })
	}
	set("max-connections", 0)
	open("none", guest, "vhost none not found")
	open("/", guest, "access to vhost '/' refused for user 'guest': connection limit (0) is reached")
	open("/", u, "access to vhost '/' refused for user 'u': connection limit (0) is reached")
	set("max-connections", 2)
	open("/", u, "access to vhost '/' refused for user 'u'")
	setUser("max-connections", 1)
	a := open("/", guest, "")
	open("/", guest, "connection refused for user 'guest': user connection limit (1) is reached")
	setUser("max-connections", -1)
	b := open("/", guest, "")
	open("/", guest, "access to vhost '/' refused for user 'guest': connection limit (2) is reached")
	set("max-connections", -3)
	c := open("/", guest, "")

	setUser("max-channels", 2)
	n.want("channel", a.OpenChannel(), "")
	n.want("channel", b.OpenChannel(), "")
	reached := "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of 2"
	n.want("channel", c.OpenChannel(), reached)
	a.CloseChannel()
	n.want("channel", c.OpenChannel(), "")
	n.want("channel", a.OpenChannel(), reached)
	b.End()
	b.End()
	n.want("channel", a.OpenChannel(), "")
	setUser("max-channels", 0)
	n.want("channel", a.OpenChannel(), "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of 0")
	a.End()
	c.End()
	(*Admission)(nil).End()
	n.DeleteUser("guest", func(bool, error) {})
	if s := &n.accounts; len(s.users) > 0 || len(s.vhosts) > 0 {
		t.Errorf("left over: %v, %v", s.users, s.vhosts)
	}
}

// TestQueueLimit counts exclusive queues too, leaves those that exist, and holds when many declare at once.
func TestQueueLimit(t *testing.T) {
	n := newNode(t)
	n.mustDeclare("a", nil)
	n.declare(Actor{Connection: 1}, QueueDeclaration{Name: "own", Exclusive: true})
	n.v.SetLimit("max-queues", 2, func(err error) { failed(t, "limit", err, "") })
	_, err := n.declare(Actor{}, QueueDeclaration{Name: "b"})
	n.want("third", err, "PRECONDITION_FAILED - cannot declare queue 'b': queue limit in vhost '/' (2) is reached")
	n.mustDeclare("a", nil)
	n.v.SetLimit("max-queues", 5, func(err error) { failed(t, "limit", err, "") })
	n.commit(PutQueue{VHost: "/", Queue: QueueDeclaration{Name: "a2", Arguments: args("x-queue-type", Classic)}}, func(r result) { n.want("command", r.refused, "") })
	for i := range 2 {
		n.commit(PutQueue{VHost: "/", Queue: QueueDeclaration{Name: fmt.Sprint("b", i), Arguments: args("x-queue-type", Classic)}}, func(result) {})
	}
	n.commit(PutQueue{VHost: "/", Queue: QueueDeclaration{Name: "b2", Arguments: args("x-queue-type", Classic)}}, func(r result) {
		n.want("a command that another overtook", r.refused, "PRECONDITION_FAILED - cannot declare queue 'b2': queue limit in vhost '/' (5) is reached")
	})
	done := make(chan bool)
	for i := range 16 {
		go func() {
			n.v.DeclareQueue(Actor{}, QueueDeclaration{Name: fmt.Sprint("q", i)}, func(*Queue, *amqp.Error) { done <- true })
		}()
	}
	for range 16 {
		<-done
	}
	if got := len(n.v.Queues()); got != 5 {
		t.Errorf("%d queues", got)
	}
}
