package broker

import (
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

func TestExchangeTexts(t *testing.T) {
	n := newNode(t)
	n.want("setup", n.exchange(Actor{}, exchange.Declaration{Name: "x", Type: "direct", Durable: true}), "")
	n.want("setup", n.exchange(Actor{}, exchange.Declaration{Name: "ae", Type: "fanout", Arguments: args("alternate-exchange", "other")}), "")
	for _, c := range []struct {
		d    exchange.Declaration
		want string
	}{
		{exchange.Declaration{Name: "", Type: "nonsense"}, "PRECONDITION_FAILED - unknown exchange type 'nonsense'"},
		{exchange.Declaration{Name: "y", Type: "x-recent-history"}, "PRECONDITION_FAILED - unknown exchange type 'x-recent-history'"},
		{exchange.Declaration{Name: "y", Type: ""}, "PRECONDITION_FAILED - unknown exchange type ''"},
		{exchange.Declaration{Name: "y", Type: "queue"}, "PRECONDITION_FAILED - unknown exchange type 'queue'"},
		{exchange.Declaration{Name: "", Type: "direct"}, "ACCESS_REFUSED - operation not permitted on the default exchange"},
		{exchange.Declaration{Name: "\n\r", Type: "direct"}, "ACCESS_REFUSED - operation not permitted on the default exchange"},
		{exchange.Declaration{Name: "amq.new", Type: "direct"}, "ACCESS_REFUSED - exchange name 'amq.new' contains reserved prefix 'amq.*'"},
		{exchange.Declaration{Name: "amq.topic", Type: "topic", Durable: true}, ""},
		{exchange.Declaration{Name: "x\n", Type: "direct", Durable: true}, ""},
		{exchange.Declaration{Name: "x", Type: "fanout"}, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'"},
		{exchange.Declaration{Name: "x", Type: "direct"}, "PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'x' in vhost '/': received 'false' but current is 'true'"},
		{exchange.Declaration{Name: "x", Type: "direct", Durable: true, AutoDelete: true, Internal: true}, "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for exchange 'x' in vhost '/': received 'true' but current is 'false'"},
		{exchange.Declaration{Name: "x", Type: "direct", Durable: true, Internal: true}, "PRECONDITION_FAILED - inequivalent arg 'internal' for exchange 'x' in vhost '/': received 'true' but current is 'false'"},
		{exchange.Declaration{Name: "x", Type: "direct", Durable: true, Arguments: args("alternate-exchange", "z")}, "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '/': received the value 'z' of type 'longstr' but current is none"},
		{exchange.Declaration{Name: "ae", Type: "fanout"}, "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'ae' in vhost '/': received none but current is the value 'other' of type 'longstr'"},
		{exchange.Declaration{Name: "ae", Type: "fanout", Arguments: args("alternate-exchange", "z")}, "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'ae' in vhost '/': received 'z' but current is 'other'"},
		{exchange.Declaration{Name: "ae", Type: "fanout", Arguments: args("alternate-exchange", "other", "x-else", 1)}, ""},
		{exchange.Declaration{Name: "y", Type: "direct", Arguments: args("alternate-exchange", int32(1))}, "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange 'y' in vhost '/'"},
		{exchange.Declaration{Name: "y", Type: "x-consistent-hash", Arguments: args("hash-header", "h", "hash-property", "message_id")}, "PRECONDITION_FAILED - hash-header and hash-property are mutually exclusive"},
		{exchange.Declaration{Name: "y", Type: "x-consistent-hash", Arguments: args("hash-property", "app_id")}, "PRECONDITION_FAILED - Unsupported property: app_id"},
	} {
		n.want("declare "+c.d.Name+" "+c.d.Type, n.exchange(Actor{}, c.d), c.want)
	}
	find := func(name string) (err *amqp.Error) {
		n.once(func(done func()) { n.v.FindExchange(Actor{}, name, func(e *amqp.Error) { err = e; done() }) })
		return err
	}
	n.want("passive", find("x"), "")
	n.want("passive", find(""), "ACCESS_REFUSED - operation not permitted on the default exchange")
	n.want("passive", find("none"), "NOT_FOUND - no exchange 'none' in vhost '/'")
	remove := func(name string, ifUnused bool) (err *amqp.Error) {
		n.once(func(done func()) {
			n.v.DeleteExchange(Actor{}, name, ifUnused, func(e *amqp.Error) { err = e; done() })
		})
		return err
	}
	n.mustDeclare("q", nil)
	n.mustBind("x", "q", "k")
	n.want("delete", remove("", false), "ACCESS_REFUSED - operation not permitted on the default exchange")
	n.want("delete", remove("amq.none", false), "ACCESS_REFUSED - deletion of system exchange 'amq.none' in vhost '/' not allowed")
	n.want("delete", remove("x", true), "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use")
	n.want("delete", remove("none", false), "")
	n.want("delete", remove("x\r\n", false), "")
	n.want("passive", find("x"), "NOT_FOUND - no exchange 'x' in vhost '/'")
	if len(n.v.BindingsTo("q", false)) != 1 {
		t.Error("a deleted exchange leaves its bindings")
	}
}

func TestBindingTexts(t *testing.T) {
	n := newNode(t)
	for _, typ := range []string{"topic", "headers", "direct", "x-consistent-hash", "x-local-random"} {
		n.want("setup", n.exchange(Actor{}, exchange.Declaration{Name: typ, Type: typ}), "")
	}
	n.mustDeclare("q", nil)
	if _, err := n.declare(Actor{Connection: 7}, QueueDeclaration{Name: "mine", Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		b      Binding
		bind   string
		unbind string
	}{
		{Binding{Source: "direct", Destination: ReplyTo + ".abc"}, "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue", "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue"},
		{Binding{Source: "", Destination: "none"}, "ACCESS_REFUSED - operation not permitted on the default exchange", "ACCESS_REFUSED - operation not permitted on the default exchange"},
		{Binding{Source: "direct", Destination: "", ToExchange: true}, "ACCESS_REFUSED - operation not permitted on the default exchange", "ACCESS_REFUSED - operation not permitted on the default exchange"},
		{Binding{Source: "none", Destination: "none"}, "NOT_FOUND - no exchange 'none' in vhost '/'", ""},
		{Binding{Source: "direct", Destination: "none"}, "NOT_FOUND - no queue 'none' in vhost '/'", ""},
		{Binding{Source: "direct", Destination: "none", ToExchange: true}, "NOT_FOUND - no exchange 'none' in vhost '/'", ""},
		{Binding{Source: "direct", Destination: "q", Key: "never bound"}, "", ""},
		{Binding{Source: "topic", Destination: "q", Key: "#.a.#.b.#"}, "PRECONDITION_FAILED - Topic binding key '#.a.#.b.#' uses 3 '#' wildcards, at most 2 are allowed", ""},
		{Binding{Source: "topic", Destination: "q", Key: "#.a#.#"}, "", ""},
		{Binding{Source: "headers", Destination: "q", Arguments: args("x-match", "some")}, `PRECONDITION_FAILED - Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x`, ""},
		{Binding{Source: "headers", Destination: "q", Arguments: args("x-match", int32(5))}, "PRECONDITION_FAILED - Invalid x-match field type signedint (value 5); expected longstr", ""},
		{Binding{Source: "headers", Destination: "q"}, "", ""},
		{Binding{Source: "x-consistent-hash", Destination: "q", Key: "x"}, `PRECONDITION_FAILED - The binding key must be an integer: <<"x">>`, ""},
		{Binding{Source: "x-consistent-hash", Destination: "q", Key: ""}, `PRECONDITION_FAILED - The binding key must be an integer: <<>>`, ""},
		{Binding{Source: "x-consistent-hash", Destination: "q", Key: "0"}, "PRECONDITION_FAILED - The binding key must be greater than 0", ""},
		{Binding{Source: "x-consistent-hash", Destination: "q", Key: "10001"}, "PRECONDITION_FAILED - The binding key must not exceed 10000", ""},
		{Binding{Source: "x-consistent-hash", Destination: "q", Key: "99999999999999999999"}, "PRECONDITION_FAILED - The binding key must not exceed 10000", ""},
		{Binding{Source: "x-local-random", Destination: "q", Key: "k"}, "PRECONDITION_FAILED - Non empty binding 'k' key not permitted", ""},
		{Binding{Source: "x-local-random", Destination: "direct", ToExchange: true}, "PRECONDITION_FAILED - Destination not found", ""},
		{Binding{Source: "direct", Destination: "mine"}, lockedText("mine"), ""},
	} {
		n.want("unbind "+c.b.Key, n.unbind(Actor{}, c.b), c.unbind)
		n.want("bind "+c.b.Key, n.bind(Actor{}, c.b), c.bind)
		if c.bind == "" {
			n.want("bind again", n.bind(Actor{}, c.b), "")
			n.want("unbind what was bound", n.unbind(Actor{}, c.b), "")
		}
	}
	n.want("owner binds", n.bind(Actor{Connection: 7}, Binding{Source: "direct", Destination: "mine"}), "")
	n.want("other unbinds", n.unbind(Actor{}, Binding{Source: "direct", Destination: "mine"}), lockedText("mine"))
}

func lockedText(q string) string {
	return amqp.ReplyText("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '" + q + "' in vhost '/'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.")
}

func TestQueueTexts(t *testing.T) {
	n := newNode(t)
	me := Actor{Connection: 7}
	declare := func(a Actor, d QueueDeclaration) *amqp.Error { _, err := n.declare(a, d); return err }
	n.want("setup", declare(me, QueueDeclaration{Name: "q", Durable: true, Arguments: args("x-max-length", int32(5), "x-unknown", 1)}), "")
	n.want("setup", declare(me, QueueDeclaration{Name: "mine", Durable: true, Exclusive: true}), "")
	const inequivalent = "PRECONDITION_FAILED - inequivalent arg "
	for _, c := range []struct {
		d    QueueDeclaration
		want string
	}{
		{QueueDeclaration{Name: "amq.x"}, "ACCESS_REFUSED - queue name 'amq.x' contains reserved prefix 'amq.*'"},
		{QueueDeclaration{Durable: true, Arguments: args("x-queue-type", "quorum")}, "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"},
		{QueueDeclaration{Arguments: args("x-queue-type", "odd")}, "PRECONDITION_FAILED - unknown queue type 'odd'"},
		{QueueDeclaration{Name: "\rq\n", Durable: true, Arguments: args("x-max-length", int64(5))}, ""},
		{QueueDeclaration{Name: "q", Durable: true, Arguments: args("x-queue-type", "classic", "x-max-length", int64(5), "x-unknown", "else")}, ""},
		{QueueDeclaration{Name: "q", Exclusive: true}, lockedText("q")},
		{QueueDeclaration{Name: "mine"}, lockedText("mine")},
		{QueueDeclaration{Name: "mine", Exclusive: true}, ""},
		{QueueDeclaration{Name: "q"}, inequivalent + "'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"},
		{QueueDeclaration{Name: "q", Durable: true, AutoDelete: true}, inequivalent + "'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'"},
		{QueueDeclaration{Name: "q", Durable: true}, inequivalent + "'x-max-length' for queue 'q' in vhost '/': received none but current is the value '5' of type 'signedint'"},
		{QueueDeclaration{Name: "q", Durable: true, Arguments: args("x-max-length", "5")}, inequivalent + "'x-max-length' for queue 'q' in vhost '/': received '5' but current is '5'"},
		{QueueDeclaration{Name: "q", Durable: true, Arguments: args("x-max-length", int64(5), "x-message-ttl", 7)}, inequivalent + "'x-message-ttl' for queue 'q' in vhost '/': received the value '7' of type 'long' but current is none"},
		{QueueDeclaration{Name: "q", Durable: true, Arguments: args("x-max-length", int64(5), "x-queue-type", "quorum")}, inequivalent + "'x-queue-type' for queue 'q' in vhost '/': received 'quorum' but current is 'classic'"},
		{QueueDeclaration{Name: "new", Arguments: args("x-dead-letter-exchange", true)}, "PRECONDITION_FAILED - invalid type 'bool' for arg 'x-dead-letter-exchange' in queue 'new' in vhost '/'"},
		{QueueDeclaration{Name: "new", AutoDelete: true, Durable: true, Arguments: args("x-queue-type", "quorum")}, "PRECONDITION_FAILED - invalid property 'auto-delete' for queue 'new' in vhost '/'"},
		{QueueDeclaration{Name: "new", Exclusive: true, Durable: true, Arguments: args("x-queue-type", "stream")}, "PRECONDITION_FAILED - invalid property 'exclusive-owner' for queue 'new' in vhost '/'"},
		{QueueDeclaration{Name: "new", Arguments: args("x-queue-type", "stream")}, "PRECONDITION_FAILED - invalid property 'non-durable' for queue 'new' in vhost '/'"},
		{QueueDeclaration{Name: "new", Durable: true, Arguments: args("x-queue-type", "stream")}, "NOT_IMPLEMENTED - queue type 'stream' is not supported by this node"},
	} {
		n.want("declare "+c.d.Name, declare(me, c.d), c.want)
	}
	n.want("foreign", declare(Actor{Connection: 8}, QueueDeclaration{Name: "mine", Exclusive: true}), lockedText("mine"))

	if err := declare(me, QueueDeclaration{Name: "old", Arguments: args("x-queue-master-locator", "min-masters")}); err != nil {
		t.Errorf("an argument of old clients without effect: %+v", err)
	}
	n.RefuseTransient = true
	err := declare(me, QueueDeclaration{Name: "new"})
	if err == nil || err.Code != 541 || !strings.HasSuffix(err.Text, "\nIts use will not be permit...") {
		t.Errorf("transient: %+v", err)
	}
	n.want("exclusive", declare(me, QueueDeclaration{Name: "new", Exclusive: true}), "")

	find := func(a Actor, name string) (err *amqp.Error) {
		n.once(func(done func()) { n.v.FindQueue(a, name, func(_ *Queue, e *amqp.Error) { err = e; done() }) })
		return err
	}
	n.want("passive", find(me, "q"), "")
	n.want("passive", find(me, ""), "NOT_FOUND - no queue '' in vhost '/'")
	n.want("passive", find(Actor{}, "mine"), lockedText("mine"))
	_, err = n.v.QueueFor(Actor{}, "mine")
	n.want("consume", err, lockedText("mine"))
	_, err = n.v.QueueFor(Actor{}, "none")
	n.want("consume", err, "NOT_FOUND - no queue 'none' in vhost '/'")

	n.publish("", "q", amqp.PropertyList{}, "hello")
	q := n.v.Queue("q")
	_, consumer, _ := n.consume(q, queueSpec(1))
	n.publish("", "q", amqp.PropertyList{}, "hello")
	_, err = n.deleteQueue(Actor{}, "mine", false, false)
	n.want("delete", err, lockedText("mine"))
	_, err = n.deleteQueue(me, "q", true, true)
	n.want("delete", err, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty")
	_, err = n.deleteQueue(me, "q", true, false)
	n.want("delete", err, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use")
	_, _, err = n.consume(q, exclusiveSpec())
	n.want("exclusive consumer", err, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use")
	n.detach(q, consumer, 0)
	if count, err := n.deleteQueue(me, "q", true, false); err != nil || count != 1 {
		t.Errorf("delete: %d, %v", count, err)
	}
	if count, err := n.deleteQueue(me, "q", true, true); err != nil || count != 0 {
		t.Errorf("delete what is gone: %d, %v", count, err)
	}
	_, _, err = n.consume(q, queueSpec(1))
	n.want("consume from what is gone", err, "NOT_FOUND - no queue 'q' in vhost '/'")
}

func TestQueueArguments(t *testing.T) {
	n := newNode(t)
	const long = int64(315360000001)
	wrong := func(arg, text string) string {
		return "PRECONDITION_FAILED - invalid arg '" + arg + "' for queue 'q' in vhost '/': " + text
	}
	unsupported := func(arg, typ string) string {
		return "PRECONDITION_FAILED - invalid arg '" + arg + "' for queue 'q' in vhost '/' of queue type rabbit_" + typ + "_queue"
	}
	const ok = ""
	for _, c := range []struct {
		typ, arg string
		value    any
		want     string
	}{
		{"classic", "x-queue-type", true, wrong("x-queue-type", "{unacceptable_type,bool}")},
		{"", "x-queue-type", "odd", wrong("x-queue-type", `"unsupported queue type 'odd'"`)},
		{"", "x-queue-type", "", ok},
		{"classic", "x-message-ttl", 0, ok},
		{"classic", "x-message-ttl", int32(-1), wrong("x-message-ttl", "{value_negative,-1}")},
		{"classic", "x-message-ttl", long, wrong("x-message-ttl", "{value_too_large,315360000001}")},
		{"classic", "x-message-ttl", "1", wrong("x-message-ttl", `"expected integer, got longstr"`)},
		{"stream", "x-message-ttl", 1, unsupported("x-message-ttl", "stream")},
		{"classic", "x-expires", 0, wrong("x-expires", "{value_zero,0}")},
		{"classic", "x-expires", -5, wrong("x-expires", "{value_negative,-5}")},
		{"classic", "x-expires", long, wrong("x-expires", "{value_too_large,315360000001}")},
		{"classic", "x-expires", 1.5, wrong("x-expires", `"expected integer, got double"`)},
		{"classic", "x-max-length", -1, wrong("x-max-length", "{value_negative,-1}")},
		{"classic", "x-max-length", uint8(3), ok},
		{"stream", "x-max-length", 1, unsupported("x-max-length", "stream")},
		{"classic", "x-max-length-bytes", -1, wrong("x-max-length-bytes", "{value_negative,-1}")},
		{"classic", "x-overflow", "drop-tail", wrong("x-overflow", "invalid_overflow")},
		{"classic", "x-overflow", 1, wrong("x-overflow", "{unacceptable_type,long}")},
		{"classic", "x-overflow", "reject-publish-dlx", ok},
		{"classic", "x-dead-letter-routing-key", "k", wrong("x-dead-letter-routing-key", "routing_key_but_no_dlx_defined")},
		{"classic", "x-dead-letter-routing-key", true, wrong("x-dead-letter-routing-key", "{unacceptable_type,bool}")},
		{"classic", "x-dead-letter-strategy", "at-most-once", unsupported("x-dead-letter-strategy", "classic")},
		{"quorum", "x-dead-letter-strategy", "never", wrong("x-dead-letter-strategy", "invalid_dlx_strategy")},
		{"classic", "x-max-priority", 255, ok},
		{"classic", "x-max-priority", 256, wrong("x-max-priority", "{max_value_exceeded,256}")},
		{"classic", "x-max-priority", -1, wrong("x-max-priority", "{value_negative,-1}")},
		{"quorum", "x-max-priority", 3, unsupported("x-max-priority", "quorum")},
		{"classic", "x-single-active-consumer", "true", wrong("x-single-active-consumer", "{unacceptable_type,longstr}")},
		{"classic", "x-single-active-consumer", true, ok},
		{"stream", "x-single-active-consumer", true, unsupported("x-single-active-consumer", "stream")},
		{"classic", "x-queue-mode", 17, ok},
		{"quorum", "x-queue-mode", "lazy", unsupported("x-queue-mode", "quorum")},
		{"classic", "x-queue-version", 2, ok},
		{"classic", "x-queue-version", 1, wrong("x-queue-version", `"unsupported queue version '1'"`)},
		{"classic", "x-queue-leader-locator", "anywhere", wrong("x-queue-leader-locator", "invalid_queue_locator_arg")},
		{"classic", "x-queue-leader-locator", "balanced", ok},
		{"quorum", "x-quorum-initial-group-size", 0, wrong("x-quorum-initial-group-size", "{value_zero,0}")},
		{"quorum", "x-quorum-initial-group-size", -1, wrong("x-quorum-initial-group-size", "{value_negative,-1}")},
		{"classic", "x-quorum-initial-group-size", 3, unsupported("x-quorum-initial-group-size", "classic")},
		{"classic", "x-delivery-limit", 3, unsupported("x-delivery-limit", "classic")},
		{"quorum", "x-consumer-timeout", -1, wrong("x-consumer-timeout", "{value_negative,-1}")},
		{"quorum", "x-queue-master-locator", "a", unsupported("x-queue-master-locator", "quorum")},
		{"classic", "x-member-placement-tag", "a", ok},
		{"quorum", "x-max-in-memory-length", -1, wrong("x-max-in-memory-length", "{value_negative,-1}")},
		{"stream", "x-max-age", "1W", wrong("x-max-age", "invalid_max_age")},
		{"stream", "x-max-age", "0h", wrong("x-max-age", "invalid_max_age")},
		{"stream", "x-max-age", 5, wrong("x-max-age", "{unacceptable_type,long}")},
		{"classic", "x-max-age", "1h", unsupported("x-max-age", "classic")},
		{"stream", "x-stream-max-segment-size-bytes", int64(3000000001), wrong("x-stream-max-segment-size-bytes", "Exceeded max value for x-stream-max-segment-size-bytes")},
		{"stream", "x-stream-filter-size-bytes", 15, wrong("x-stream-filter-size-bytes", "Invalid value for x-stream-filter-size-bytes")},
		{"stream", "x-initial-cluster-size", 0, wrong("x-initial-cluster-size", "{value_zero,0}")},
		{"classic", "x-made-up", 1, ok},
	} {
		var table amqp.Table
		if c.typ != "" && c.arg != "x-queue-type" {
			table = args("x-queue-type", c.typ)
		}
		v, _ := amqp.ValueOf(c.value)
		_, err := n.declare(Actor{}, QueueDeclaration{Name: "q", Durable: true, Arguments: table.AppendValue(c.arg, v)})
		n.want(c.typ+" "+c.arg, err, c.want)
		if err == nil {
			n.deleteQueue(Actor{}, "q", false, false)
		}
	}
}

func TestPermissionTexts(t *testing.T) {
	n := newNode(t)
	n.mustDeclare("q", nil)
	n.PutUser(User{Name: "u", Hash: HashPassword("p")}, func(error) {})
	u, err := n.Authenticate("u", "p", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Open("/", u); err == nil || err.Text != "NOT_ALLOWED - access to vhost '/' refused for user 'u'" {
		t.Errorf("open: %v", err)
	}
	if _, err := n.Open("none", u); err == nil || err.Text != "NOT_ALLOWED - vhost none not found" {
		t.Errorf("open: %v", err)
	}
	n.v.SetPermissions("u", "^c", "^(w|c|amq\\.default)", "", func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	})
	n.v.SetPermissions("u", "(", "", "", func(err error) {
		if err == nil {
			t.Error("a pattern that is none was taken")
		}
	})
	if _, err := n.Open("/", u); err != nil {
		t.Error(err)
	}
	a := Actor{User: u}
	refused := func(verb, resource string) string {
		return "ACCESS_REFUSED - " + verb + " access to " + resource + " in vhost '/' refused for user 'u'"
	}
	declare := func(name string, args amqp.Table) *amqp.Error {
		_, err := n.declare(a, QueueDeclaration{Name: name, Arguments: args})
		return err
	}
	n.want("declare", declare("c1", nil), "")
	n.want("declare", declare("q", nil), refused("configure", "queue 'q'"))
	n.want("declare with DLX", declare("c2", args("x-dead-letter-exchange", "c")), refused("read", "queue 'c2'"))
	n.want("exchange", n.exchange(a, exchange.Declaration{Name: "q", Type: "direct"}), refused("configure", "exchange 'q'"))
	n.want("exchange with AE", n.exchange(a, exchange.Declaration{Name: "c", Type: "direct", Arguments: args("alternate-exchange", "z")}), refused("read", "exchange 'c'"))
	n.want("exchange", n.exchange(a, exchange.Declaration{Name: "c", Type: "topic"}), "")
	n.want("bind", n.bind(a, Binding{Source: "c", Destination: "q"}), refused("write", "queue 'q'"))
	n.want("bind", n.bind(a, Binding{Source: "c", Destination: "none", ToExchange: true}), refused("write", "exchange 'none'"))
	n.want("bind", n.bind(a, Binding{Source: "none", Destination: "c1"}), refused("read", "exchange 'none'"))
	_, e := n.v.QueueFor(a, "none")
	n.want("consume", e, refused("read", "queue 'none'"))
	_, e = n.deleteQueue(a, "none", false, false)
	n.want("delete", e, refused("configure", "queue 'none'"))

	scope := n.v.Begin()
	_, e = scope.Publishable(u, []byte(""))
	n.want("publish", e, "")
	_, e = scope.Publishable(u, []byte("x"))
	n.want("publish", e, refused("write", "exchange 'x'"))
	_, e = scope.Publishable(u, []byte("wx"))
	n.want("publish", e, "NOT_FOUND - no exchange 'wx' in vhost '/'")
	_, e = scope.Publishable(nil, []byte("amq.rabbitmq.trace"))
	n.want("publish", e, "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'")
	scope.End()

	version := n.v.Version()
	n.v.SetPermissions("u", "", "x", "c", func(error) {})
	if n.v.Version() == version {
		t.Error("permissions changed and the version did not move")
	}
	scope = n.v.Begin()
	_, e = scope.Publishable(u, nil)
	n.want("publish", e, refused("write", "exchange 'amq.default'"))
	scope.End()

	n.v.SetTopicPermissions("u", "c", "^{username}\\.", "^r\\.", func(error) {})
	n.v.SetPermissions("u", "", ".*", ".*", func(error) {})
	n.want("topic bind", n.bind(a, Binding{Source: "c", Destination: "q", Key: "k"}), "ACCESS_REFUSED - read access to topic 'k' in exchange 'c' in vhost '/' refused for user 'u'")
	n.want("topic bind", n.bind(a, Binding{Source: "c", Destination: "q", Key: "r.k"}), "")
	scope = n.v.Begin()
	x, _ := scope.Publishable(u, []byte("c"))
	n.want("topic publish", scope.CheckTopic(u, x, []byte("v.k")), "ACCESS_REFUSED - write access to topic 'v.k' in exchange 'c' in vhost '/' refused for user 'u'")
	n.want("topic publish", scope.CheckTopic(u, x, []byte("u.k")), "")
	scope.End()

	find := func(name string) (err *amqp.Error) {
		n.v.FindQueue(a, name, func(_ *Queue, e *amqp.Error) { err = e })
		return err
	}
	n.v.SetPermissions("u", "", "^q$", "", func(error) {})
	n.want("passive with write", find("q"), "")
	n.want("passive without", find("c1"), refused("configure", "queue 'c1'"))
}
