package broker

import (
	"fmt"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

const frame = "Validation failed\n\n%s\n"

// TestPolicyTexts: every refusal, with the text that RabbitMQ 4.3.6 gives, for policies of users and of operators.
func TestPolicyTexts(t *testing.T) {
	unknown := func(terms string) string { return terms + " are not recognised policy settings" }
	for _, c := range []struct{ definition, user, operator string }{
		{`{"message-ttl":-1}`, "-1 is not a valid message TTL", ""},
		{`{"message-ttl":"x"}`, `<<"x">> is not a valid message TTL`, ""},
		{`{"message-ttl":1.5}`, "1.5 is not a valid message TTL", ""},
		{`{"message-ttl":1.0}`, "1.0 is not a valid message TTL", ""},
		{`{"message-ttl":99999999999999999999999}`, "ok", ""},
		{`{"message-ttl":-99999999999999999999999}`, "-99999999999999999999999 is not a valid message TTL", ""},
		{`{"message-ttl":true}`, "true is not a valid message TTL", ""},
		{`{"message-ttl":null}`, "null is not a valid message TTL", ""},
		{`{"message-ttl":[1]}`, "[1] is not a valid message TTL", ""},
		{`{"message-ttl":{"a":1}}`, `#{<<"a">> => 1} is not a valid message TTL`, ""},
		{`{"message-ttl":0}`, "ok", ""},
		{`{"expires":0}`, "0 is not a valid queue expiry", ""},
		{`{"expires":-5}`, "-5 is not a valid queue expiry", ""},
		{`{"max-length":-1}`, "-1 is not a valid maximum length", ""},
		{`{"max-length-bytes":-1}`, "-1 is not a valid maximum length in bytes", ""},
		{`{"max-length-bytes":"q"}`, `<<"q">> is not a valid maximum length in bytes`, ""},
		{`{"overflow":"foo"}`, `<<"foo">> is not a valid overflow value`, ""},
		{`{"overflow":5}`, "5 is not a valid overflow value", ""},
		{`{"overflow":"reject-publish-dlx"}`, "ok", ""},
		{`{"delivery-limit":"x"}`, `<<"x">> is not a valid delivery limit`, ""},
		{`{"delivery-limit":1.0}`, "1.0 is not a valid delivery limit", ""},
		{`{"delivery-limit":-7}`, "ok", ""},
		{`{"consumer-timeout":-1}`, "-1 is not a valid consumer timeout", unknown(`[{<<"consumer-timeout">>,-1}]`)},
		{`{"consumer-disconnected-timeout":-1}`, "-1 is not a valid consumer disconnected timeout", unknown(`[{<<"consumer-disconnected-timeout">>,-1}]`)},
		{`{"dead-letter-exchange":5}`, "5 is not a valid dead letter exchange name", unknown(`[{<<"dead-letter-exchange">>,5}]`)},
		{`{"dead-letter-exchange":"x"}`, "ok", unknown(`[{<<"dead-letter-exchange">>,<<"x">>}]`)},
		{`{"dead-letter-routing-key":5}`, "5 is not a valid dead letter routing key", unknown(`[{<<"dead-letter-routing-key">>,5}]`)},
		{`{"dead-letter-strategy":"x"}`, `<<"x">> is not a valid dead letter strategy`, unknown(`[{<<"dead-letter-strategy">>,<<"x">>}]`)},
		{`{"dead-letter-strategy":5}`, "5 is not a valid dead letter strategy", unknown(`[{<<"dead-letter-strategy">>,5}]`)},
		{`{"max-age":"x"}`, `<<"x">> is not a valid max age`, unknown(`[{<<"max-age">>,<<"x">>}]`)},
		{`{"max-age":"0D"}`, `<<"0D">> is not a valid max age`, unknown(`[{<<"max-age">>,<<"0D">>}]`)},
		{`{"max-age":5}`, "5 is not a valid max age", unknown(`[{<<"max-age">>,5}]`)}, // RabbitMQ: 500
		{`{"max-age":"7D"}`, "ok", unknown(`[{<<"max-age">>,<<"7D">>}]`)},
		{`{"stream-max-segment-size-bytes":-1}`, "-1 is not a valid segment size", unknown(`[{<<"stream-max-segment-size-bytes">>,-1}]`)},
		{`{"stream-max-segment-size-bytes":3000000001}`, "3000000001 is not a valid segment size", unknown(`[{<<"stream-max-segment-size-bytes">>,3000000001}]`)},
		{`{"stream-max-segment-size-bytes":3000000000}`, "ok", unknown(`[{<<"stream-max-segment-size-bytes">>,3000000000}]`)},
		{`{"stream-filter-size-bytes":5}`, "5 is not a valid filter size. Valid range is 16-255", unknown(`[{<<"stream-filter-size-bytes">>,5}]`)},
		{`{"stream-filter-size-bytes":256}`, "256 is not a valid filter size. Valid range is 16-255", unknown(`[{<<"stream-filter-size-bytes">>,256}]`)},
		{`{"initial-cluster-size":-1}`, "-1 is not a valid cluster size", unknown(`[{<<"initial-cluster-size">>,-1}]`)},
		{`{"initial-cluster-size":"x"}`, `<<"x">> is not a valid cluster size`, unknown(`[{<<"initial-cluster-size">>,<<"x">>}]`)},
		{`{"initial-cluster-size":0}`, "ok", unknown(`[{<<"initial-cluster-size">>,0}]`)},
		{`{"queue-leader-locator":"x"}`, `<<"x">> is not a valid queue leader locator value`, unknown(`[{<<"queue-leader-locator">>,<<"x">>}]`)},
		{`{"queue-leader-locator":"min-masters"}`, `<<"min-masters">> is not a valid queue leader locator value`, unknown(`[{<<"queue-leader-locator">>,<<"min-masters">>}]`)},
		{`{"queue-leader-locator":"random"}`, "ok", unknown(`[{<<"queue-leader-locator">>,<<"random">>}]`)},
		{`{"alternate-exchange":5}`, "5 is not a valid alternate exchange name", unknown(`[{<<"alternate-exchange">>,5}]`)},
		{`{"queue-mode":"x"}`, `<<"x">> is not a valid queue-mode value`, unknown(`[{<<"queue-mode">>,<<"x">>}]`)},
		{`{"queue-version":3}`, "3 is not a valid queue-version value", ""},
		{`{"queue-version":1}`, "ok", ""},
		{`{"max-in-memory-length":-1}`, "-1 is not a valid maximum memory in bytes", ""},
		{`{"max-in-memory-bytes":-1}`, "-1 is not a valid maximum memory in bytes", ""},
		{`{"target-group-size":0}`, "0 is not a valid qq target count value", ""},
		{`{"delayed-retry-type":"x"}`, `<<"x">> is not a valid delayed retry type. Must be one of: all, failed, returned, disabled`, ""},
		{`{"delayed-retry-type":"all"}`, "delayed-retry-min is required when delayed-retry-type is all", ""},
		{`{"delayed-retry-type":"all","delayed-retry-min":0}`, "0 is not a valid delayed retry minimum delay. Must be a positive integer", ""},
		{`{"delayed-retry-type":"all","delayed-retry-min":10,"delayed-retry-max":5}`, "delayed-retry-max (5) must not be smaller than delayed-retry-min (10)", ""},
		{`{"delayed-retry-min":"x"}`, `<<"x">> is not a valid delayed retry minimum delay. Must be a positive integer`, ""},
		{`{"delayed-retry-max":0}`, "0 is not a valid delayed retry maximum delay. Must be a positive integer", ""},
		{`{"delayed-retry-min":5}`, "ok", ""},
		{`{"delayed-retry-max":10}`, "ok", ""},
		{`{"queue-master-locator":"min-masters"}`, "use of deprecated queue-master-locator argument is not permitted", ""},
		{`{"foo":1}`, unknown(`[{<<"foo">>,1}]`), ""},
		{`{"foo":"bar","baz":[1,2]}`, unknown(`[{<<"baz">>,[1,2]},{<<"foo">>,<<"bar">>}]`), ""},
		{`{"foo":{"a":1}}`, unknown(`[{<<"foo">>,#{<<"a">> => 1}}]`), ""},
		{`{"foo":null}`, unknown(`[{<<"foo">>,null}]`), ""},
		{`{"foo":1.5}`, unknown(`[{<<"foo">>,1.5}]`), ""},
		{`{"foo":1e+30}`, unknown(`[{<<"foo">>,1.0e30}]`), ""},
		{`{"message-ttl":-1,"foo":1}`, "-1 is not a valid message TTL", ""},
		{`{"message-ttl":-1,"expires":0}`, "0 is not a valid queue expiry", ""},
		{`{"max-length":10,"max-age":"1D"}`, "ok", unknown(`[{<<"max-age">>,<<"1D">>}]`)},
		{`{"ha-mode":"all"}`, unknown(`[{<<"ha-mode">>,<<"all">>}]`), ""},
		{`{}`, "no policy provided", ""},
	} {
		v, err := DecodeJSON([]byte(c.definition))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{c.user, c.operator} {
			if want == "" {
				want = c.user // the same
			}
			if want != "ok" {
				want = fmt.Sprintf(frame, want)
			}
			got := "ok"
			if _, err := compilePolicy(Policy{Definition: v.(map[string]any)}, i == 1); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%s, operator %v: got %q, want %q", c.definition, i == 1, got, want)
			}
		}
	}
}

// TestPolicyBodies: what is around the definition.
func TestPolicyBodies(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"pattern":"^z","definition":{"max-length":1}}`, "ok"},
		{`{"pattern":"^z","definition":{"max-length":1},"priority":-4,"apply-to":"exchanges","extra":1}`, "ok"},
		{`{"pattern":"^z","definition":{"max-length":1},"priority":null,"apply-to":null}`, "ok"},
		{`{"pattern":"^z","definition":{"max-length":1},"priority":99999999999999999999}`, "ok"},
		{`{"pattern":"^z"}`, "[{key_missing,definition}]"},
		{`{"definition":{"max-length":1}}`, "[{key_missing,pattern}]"},
		{`{"pattern":5,"definition":{"max-length":1}}`, fmt.Sprintf(frame, "pattern should be a binary but was 5")},
		{`{"pattern":"^z","definition":[]}`, fmt.Sprintf(frame, "definition should be an object but was []")},
		{`{"pattern":"^z","definition":{"max-length":1},"priority":"x"}`, fmt.Sprintf(frame, `priority should be a number, actually was <<"x">>`)},
		{`{"pattern":"^z","definition":{"max-length":1},"apply-to":"foo"}`, fmt.Sprintf(frame, "apply-to 'foo' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'")},
		{`{"pattern":"(","definition":{"max-length":1}}`, fmt.Sprintf(frame, "pattern should be regular expression but is invalid: missing closing ): (")},
	} {
		v, err := DecodeJSON([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		got := "ok"
		p, err := ParsePolicy("p", v.(map[string]any))
		if err == nil {
			_, err = compilePolicy(p, false)
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.body, got, c.want)
		}
	}
}

// TestUnsupportedKeys: a key that a type does not know keeps the whole policy from queues of that type.
func TestUnsupportedKeys(t *testing.T) {
	value := map[string]any{}
	for _, c := range []struct {
		key                     string
		value                   any
		classic, quorum, stream bool // whether the policy counts
	}{
		{"dead-letter-exchange", "x", true, true, false},
		{"dead-letter-routing-key", "x", true, true, false},
		{"dead-letter-strategy", "at-most-once", false, true, false},
		{"message-ttl", 1, true, true, false},
		{"expires", 1, true, true, false},
		{"max-length", 1, true, true, false},
		{"max-length-bytes", 1, true, true, true},
		{"overflow", "drop-head", true, true, false},
		{"delivery-limit", 1, false, true, false},
		{"consumer-timeout", 1, true, true, true},
		{"consumer-disconnected-timeout", 1, true, true, true},
		{"delayed-retry-min", 1, true, true, true},
		{"target-group-size", 1, false, true, false},
		{"queue-leader-locator", "balanced", true, true, true},
		{"max-age", "1D", false, false, true},
		{"stream-max-segment-size-bytes", 1, false, false, true},
		{"stream-filter-size-bytes", 16, true, true, true},
		{"initial-cluster-size", 1, false, false, true},
		{"queue-mode", "lazy", true, false, false},
		{"queue-version", 2, true, true, true},
		{"max-in-memory-length", 1, false, true, false},
		{"max-in-memory-bytes", 1, false, true, false},
		{"alternate-exchange", "x", true, true, true},
	} {
		value[c.key] = c.value
		p, err := compilePolicy(Policy{Definition: map[string]any{c.key: c.value, "max-length-bytes": 1}}, false)
		if err != nil {
			t.Fatal(err)
		}
		for typ, want := range map[string]bool{Classic: c.classic, Quorum: c.quorum, Stream: c.stream} {
			if got := p.applies(typ, "q"); got != want {
				t.Errorf("%s on %s: counts is %v, want %v", c.key, typ, got, want)
			}
		}
		if !p.applies("", "x") {
			t.Errorf("%s keeps the policy from exchanges", c.key)
		}
	}
	for i := range policyKeys {
		k := &policyKeys[i]
		if k.bad&k.used != 0 {
			t.Errorf("%s has an effect on types that do not know it", k.name)
		}
		if _, ok := value[k.name]; !ok && k.name != "delayed-retry-max" && k.name != "delayed-retry-type" && k.name != "queue-master-locator" {
			t.Errorf("%s is not tested", k.name)
		}
		if i > 0 && policyKeys[i-1].name >= k.name {
			t.Errorf("%s is out of order", k.name)
		}
	}
}

// TestPrecedence: which of argument, policy and operator policy counts. Of each row the three are given, nil for none.
func TestPrecedence(t *testing.T) {
	type row struct {
		typ, key                 string
		argument, user, operator any
		want                     any
		origin                   string
	}
	none := ""
	user, operator := "policy u", "operator policy o"
	var rows []row
	// The lower of three numbers, wherever it is; of equal ones the operator's, then the user's.
	for _, k := range []struct {
		typ, key  string
		unlimited bool // three sides; otherwise the operator has none
	}{
		{Classic, "message-ttl", true}, {Classic, "expires", true}, {Classic, "max-length", true}, {Classic, "max-length-bytes", true},
		{Quorum, "message-ttl", true}, {Quorum, "expires", true}, {Quorum, "max-length", true}, {Quorum, "max-length-bytes", true},
		{Quorum, "delivery-limit", true}, {Quorum, "delayed-retry-max", true},
		{Quorum, "consumer-timeout", false}, {Quorum, "consumer-disconnected-timeout", false},
	} {
		rows = append(rows,
			row{k.typ, k.key, nil, nil, nil, nil, none},
			row{k.typ, k.key, 5, nil, nil, 5, "argument"},
			row{k.typ, k.key, nil, 6, nil, 6, user},
			row{k.typ, k.key, 5, 6, nil, 5, "argument"},
			row{k.typ, k.key, 7, 6, nil, 6, user},
			row{k.typ, k.key, 6, 6, nil, 6, user},
		)
		if k.unlimited {
			rows = append(rows,
				row{k.typ, k.key, nil, nil, 7, 7, operator},
				row{k.typ, k.key, nil, 6, 7, 6, user},
				row{k.typ, k.key, nil, 8, 7, 7, operator},
				row{k.typ, k.key, nil, 7, 7, 7, operator},
				row{k.typ, k.key, 5, 6, 7, 5, "argument"},
				row{k.typ, k.key, 9, 6, 7, 6, user},
				row{k.typ, k.key, 9, 8, 7, 7, operator},
			)
		}
	}
	rows = append(rows,
		// A number without a limit gives way to one with.
		row{Quorum, "delivery-limit", 20, -1, nil, 20, "argument"},
		row{Quorum, "delivery-limit", -1, 20, nil, 20, user},
		row{Quorum, "delivery-limit", -1, -2, nil, -1, "argument"},
		row{Quorum, "delivery-limit", nil, -1, 5, 5, operator},
		row{Quorum, "delivery-limit", nil, 5, -1, 5, user},
		row{Quorum, "delivery-limit", nil, -1, nil, -1, user},
		// The argument wins.
		row{Classic, "overflow", "drop-head", "reject-publish", nil, "drop-head", "argument"},
		row{Classic, "overflow", "drop-head", nil, "reject-publish", "drop-head", "argument"},
		row{Classic, "overflow", nil, "reject-publish", nil, "reject-publish", user},
		row{Classic, "dead-letter-exchange", "a", "b", nil, "a", "argument"},
		row{Quorum, "dead-letter-exchange", "a", "b", nil, "a", "argument"},
		row{Classic, "dead-letter-exchange", nil, "b", nil, "b", user},
		row{Classic, "dead-letter-routing-key", "a", "b", nil, "a", "argument"},
		row{Quorum, "dead-letter-routing-key", "a", "b", nil, "a", "argument"},
		row{Quorum, "dead-letter-strategy", "at-most-once", "at-least-once", nil, "at-most-once", "argument"},
		// The policy wins, and the operator's before the user's.
		row{Quorum, "overflow", "drop-head", "reject-publish", nil, "reject-publish", user},
		row{Quorum, "overflow", "drop-head", nil, nil, "drop-head", "argument"},
		row{Quorum, "overflow", "drop-head", "drop-head", "reject-publish", "reject-publish", operator},
		row{Classic, "overflow", nil, "reject-publish", "drop-head", "drop-head", operator},
		row{Quorum, "delayed-retry-type", "disabled", "disabled", nil, "disabled", user},
		row{Quorum, "delayed-retry-type", nil, "disabled", "disabled", "disabled", operator},
		row{Stream, "max-length-bytes", 5, 6, nil, 6, user},
		row{Stream, "max-length-bytes", 5, nil, nil, 5, "argument"},
		row{Stream, "max-length-bytes", 5, 8, 7, 7, operator},
		row{Stream, "max-age", "1D", "7D", nil, "7D", user},
		row{Stream, "stream-max-segment-size-bytes", 5, 6, nil, 6, user},
		row{Stream, "stream-filter-size-bytes", 16, 17, nil, 17, user},
		row{Stream, "initial-cluster-size", 1, 2, nil, 2, user},
		// The higher of the two policies.
		row{Quorum, "target-group-size", nil, 3, 5, 5, operator},
		row{Quorum, "target-group-size", nil, 5, 3, 5, user},
		row{Quorum, "delayed-retry-min", nil, 3, 5, 5, operator},
		row{Quorum, "delayed-retry-min", 4, 3, 5, 4, "argument"},
		// What has no effect on a type.
		row{Classic, "delivery-limit", 5, nil, nil, nil, none},
		row{Classic, "consumer-timeout", 5, 5, nil, nil, none},
		row{Stream, "message-ttl", 5, nil, nil, nil, none},
	)
	for _, r := range rows {
		var args amqp.Table
		if r.argument != nil {
			v, err := amqp.ValueOf(r.argument)
			if err != nil {
				t.Fatal(err)
			}
			args = args.AppendValue("x-"+r.key, v)
			if r.key == "stream-max-segment-size-bytes" || r.key == "stream-filter-size-bytes" {
				args = amqp.Table(nil).AppendValue("x-"+r.key, v)
			}
		}
		compiled := func(name string, value any, operator bool) *policy {
			if value == nil {
				return nil
			}
			p, err := compilePolicy(Policy{Name: name, Definition: map[string]any{r.key: value}}, operator)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		q := &Queue{Type: r.typ, Arguments: args}
		q.settings.Store(effective(r.typ, args, compiled("u", r.user, false), compiled("o", r.operator, true)))
		var got any
		origin := ""
		for _, e := range q.Effective() {
			if e.Key == r.key {
				got, origin = e.Value, e.Origin
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(r.want) || origin != r.origin {
			t.Errorf("%s %s: argument %v, policy %v, operator policy %v: %v of %q, want %v of %q", r.typ, r.key, r.argument, r.user, r.operator, got, origin, r.want, r.origin)
		}
	}
}

// TestSettings: what becomes of the keys for the queue that runs.
func TestSettings(t *testing.T) {
	args := amqp.Table(nil).AppendInt32("x-max-length", 7).AppendString("x-dead-letter-exchange", "dlx").AppendBool("x-single-active-consumer", true).AppendInt32("x-max-priority", 0)
	u, err := compilePolicy(Policy{Name: "u", Definition: map[string]any{
		"message-ttl": 1 << 50, "expires": 9, "max-length": 8, "max-length-bytes": 3, "overflow": "reject-publish-dlx",
		"dead-letter-exchange": "other", "dead-letter-routing-key": "k",
	}}, false)
	if err != nil {
		t.Fatal(err)
	}
	s := effective(Classic, args, u, nil)
	if c := s.Config; c.TTL != maxMillis || c.MaxLength != 7 || c.MaxBytes != 3 || c.Overflow != 2 || !c.SingleActive || c.DeliveryLimit != 20 {
		t.Errorf("%+v", c)
	}
	if s.Expires != 9 || s.MaxPriority != 1 || !s.DeadLetter || s.DeadLetterExchange != "dlx" || !s.RouteDeadLetters || s.DeadLetterKey != "k" || s.Policy != "u" {
		t.Errorf("%+v", s)
	}
	if s := effective(Classic, nil, nil, nil); s.Config.TTL != -1 || s.Config.MaxLength != -1 || s.Config.MaxBytes != -1 || s.Expires != -1 || s.DeadLetter || s.Policy != "" {
		t.Errorf("of nothing %+v", s)
	}
}
