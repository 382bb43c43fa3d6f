package cli

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/management"
)

// stream makes a stream and publishes to it, one chunk a message.
func (c *peer) stream(name string, messages int, args amqp091.Table) {
	c.Helper()
	if args == nil {
		args = amqp091.Table{}
	}
	args["x-queue-type"] = "stream"
	c.declare(name, true, false, args)
	for i := range messages {
		c.publish("", name, amqp091.Publishing{Body: fmt.Appendf(nil, "%d", i)})
	}
}

// replay begins to read a stream on a channel of its own.
func (c *peer) replay(name string, args amqp091.Table) <-chan amqp091.Delivery {
	c.Helper()
	ch, err := c.conn.Channel()
	c.must(err)
	c.must(ch.Qos(1000, 0, false))
	ds, err := ch.Consume(name, "", false, false, false, false, args)
	c.must(err)
	return ds
}

// reads takes the next deliveries, whose bodies are numbers that are their offsets, and acknowledges them.
func reads(t *testing.T, ds <-chan amqp091.Delivery, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		select {
		case d := <-ds:
			if at := d.Headers["x-stream-offset"]; at != int64(i) || string(d.Body) != fmt.Sprint(i) {
				t.Fatalf("offset %v, %q; want %d", at, d.Body, i)
			}
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%d does not come", i)
		}
	}
}

// TestStreamsAcrossARestart: messages, committed offsets and limits are what they were.
func TestStreamsAcrossARestart(t *testing.T) {
	dir := t.TempDir()
	n := runNodeIn(t, dir)
	c := n.peer()
	c.stream("s", 60, amqp091.Table{"x-stream-max-segment-size-bytes": int32(1000), "x-max-age": "1h"})
	c.stream("gone", 5, nil)
	reads(t, c.replay("s", amqp091.Table{"x-stream-consumer-name": "n", "x-stream-offset": "first"}), 0, 60)
	c.publish("", "s", amqp091.Publishing{Body: []byte("60")})
	if _, err := c.QueueDelete("gone", false, false, false); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n = runNodeIn(t, dir)
	c = n.peer()
	reads(t, c.replay("s", amqp091.Table{"x-stream-offset": "first"}), 0, 61)
	reads(t, c.replay("s", amqp091.Table{"x-stream-consumer-name": "n"}), 60, 61)
	c.publish("", "s", amqp091.Publishing{Body: []byte("61")})
	n.expect([][5]any{
		{"guest", "GET", "/queues/%2F/s?columns=type,messages,first_offset,committed_offset,readers", "",
			`{"type":"stream","messages":62,"readers":{"` + n.engine.(*rooms).cfg.NodeName + `":2},"first_offset":0,"committed_offset":61}`},
		{"guest", "GET", "/queues/%2F/gone", "", 404},
	})
	if q, err := c.QueueInspect("s"); err != nil || q.Messages != 62 || q.Consumers != 0 {
		t.Error(q, err)
	}
}

// TestStreamsOverHTTP: who may do what, and what is answered to nonsense.
func TestStreamsOverHTTP(t *testing.T) {
	n := runNode(t)
	c := n.peer()
	c.stream("s", 5, nil)
	c.declare("q", true, false, nil)
	path := "/warren/streams/%2F/s"
	read := func(body string) any { _, text := n.do("guest", "POST", path+"/messages", body); return text }
	n.expect([][5]any{
		{"guest", "PUT", "/users/ann", `{"password":"ann","tags":"management"}`, 201},
		{"guest", "PUT", "/permissions/%2F/ann", `{"configure":".*","write":".*","read":"^q$"}`, 201},
		{"ann", "GET", path, "", 401},
		{"ann", "POST", path + "/messages", `{"from":0}`, 401},
		{"ann", "PUT", path + "/offsets/n", `{"to":0}`, 401},
		{"guest", "PUT", "/permissions/%2F/ann", `{"configure":".*","write":".*","read":".*"}`, 204},
		{"ann", "GET", path + "?columns=first_offset,next_offset,damage", "", `{"first_offset":0,"next_offset":5,"damage":[]}`},
		{"ann", "PUT", path + "/skip", `{"below":3}`, 401},
		{"ann", "POST", path + "/recover", ``, 401},
		{"guest", "PUT", path + "/skip", `{"below":3}`, 204},
		{"guest", "PUT", path + "/skip", `{"below":-3}`, 400},
		{"guest", "POST", path + "/recover", ``, `{"error":"bad_request","reason":"stream: this node's replica lacks nothing"}`},
		{"guest", "GET", "/warren/streams/%2F/none", "", 404},
		{"guest", "GET", "/warren/streams/%2F/q", "", `{"error":"bad_request","reason":"queue 'q' in vhost '/' is no stream"}`},
		{"guest", "PUT", path + "/offsets/n", `{"to":2}`, `{"offset":2}`},
		{"guest", "PUT", path + "/offsets/n", `{"to":-1}`, `{"offset":4}`},
		{"guest", "PUT", path + "/offsets/n", `{"to":6}`, `{"error":"bad_request","reason":"stream: the stream does not reach there"}`},
		{"guest", "PUT", path + "/offsets/n", `{"to":"soon"}`, 400},
		{"guest", "PUT", path + "/offsets/n", `{"to":"stored"}`, 400},
		{"guest", "PUT", path + "/offsets/n", `{"to":true}`, 400},
		{"guest", "PUT", path + "/offsets/n", `{}`, 400},
		{"guest", "GET", path + "/offsets?columns=name,offset,lag,online", "", `[{"name":"n","offset":4,"lag":1,"online":false}]`},
		{"guest", "DELETE", path + "/offsets/n", "", 204},
		{"guest", "DELETE", path + "/offsets/n", "", 404},
		{"guest", "POST", path + "/messages", `{"from":"stored"}`, 400},
		{"guest", "POST", path + "/messages", `{"from":1,"filter":[1]}`, 400},
		{"guest", "POST", path + "/messages", `{}`, 400},
	})
	for body, want := range map[string]string{
		`{"from":0,"count":2}`:                      `"next_offset":2,"end":false`,
		`{"from":3}`:                                `"next_offset":5,"end":true`,
		`{"from":"first","to":3}`:                   `"next_offset":3,"end":true`,
		`{"from":4,"to":2}`:                         `{"messages":[],"next_offset":2,"end":true`,
		`{"from":"next"}`:                           `{"messages":[],"next_offset":5,"end":true`,
		`{"from":0,"filter":"none"}`:                `{"messages":[],"next_offset":5,"end":true`,
		`{"from":"1h","count":1}`:                   `"payload":"0"`,
		`{"from":2,"truncate":0}`:                   `"payload":""`,
		`{"from":0,"to":"first"}`:                   `{"messages":[]`,
		`{"from":"2020-01-01T00:00:00Z","count":1}`: `"offset":0`,
	} {
		if got := fmt.Sprint(read(body)); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// TestStreamMetrics: lags are there, of single consumers where single objects are asked for.
func TestStreamMetrics(t *testing.T) {
	n := runNode(t)
	c := n.peer()
	c.stream("s", 5, nil)
	n.expect([][5]any{{"guest", "PUT", "/warren/streams/%2F/s/offsets/n", `{"to":2}`, `{"offset":2}`}})
	r := n.engine.(*rooms)
	metrics := management.New(management.Options{Broker: r, Streams: r, Log: r.log}).Metrics()
	for path, want := range map[string][]string{
		"/metrics": {"warren_streams 1\n", "warren_stream_max_lag_messages 3\n"},
		"/metrics/per-object": {`warren_stream_consumer_lag_messages{vhost="/",queue="s",consumer_name="n"} 3`,
			`warren_stream_consumer_offset{vhost="/",queue="s",consumer_name="n"} 2`, `warren_stream_consumer_lag_seconds{`,
			`warren_stream_next_offset{vhost="/",queue="s"} 5`},
	} {
		answer := httptest.NewRecorder()
		metrics.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		text := answer.Body.String()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s has no %s", path, w)
			}
		}
	}
}

// TestDamagedStream: a node starts with a damaged stream, says so, and the other streams do not mind.
func TestDamagedStream(t *testing.T) {
	dir := t.TempDir()
	n := runNodeIn(t, dir)
	c := n.peer()
	c.stream("s", 60, amqp091.Table{"x-stream-max-segment-size-bytes": int32(1000)})
	c.stream("other", 3, nil)
	n.stop()
	segments, err := filepath.Glob(filepath.Join(dir, "streams", "*", "*", "*.seg"))
	if err != nil || len(segments) < 5 {
		t.Fatal(segments, err)
	}
	if err := os.Remove(segments[1]); err != nil {
		t.Fatal(err)
	}
	n = runNodeIn(t, dir)
	c = n.peer()
	reads(t, c.replay("other", amqp091.Table{"x-stream-offset": "first"}), 0, 3)
	_, text := n.do("guest", "GET", "/warren/streams/%2F/s", "")
	if !strings.Contains(text, `"reason":"missing`) {
		t.Fatal(text)
	}
	ds := c.replay("s", amqp091.Table{"x-stream-offset": "first"})
	seen := 0
	for d := range ds { // until it is cancelled
		if string(d.Body) != fmt.Sprint(seen) {
			t.Fatalf("%q", d.Body)
		}
		seen++
		c.must(d.Ack(false))
	}
	if seen == 0 || seen == 60 {
		t.Fatal(seen)
	}
	n.expect([][5]any{{"guest", "PUT", "/warren/streams/%2F/s/skip", `{"below":60}`, 204}})
	got := 0
	for d := range c.replay("s", amqp091.Table{"x-stream-offset": "first"}) {
		got++
		c.must(d.Ack(false))
		if string(d.Body) == "59" {
			break
		}
	}
	if got <= seen || got >= 60 {
		t.Errorf("%d messages", got)
	}
}

// TestStreamsOfAStoppedNode: who verifies the directory of a stopped node hears of damage in streams.
func TestStreamsOfAStoppedNode(t *testing.T) {
	dir := t.TempDir()
	n := runNodeIn(t, dir)
	n.peer().stream("s", 60, amqp091.Table{"x-stream-max-segment-size-bytes": int32(1000)})
	n.stop()
	verify := func() *verification {
		s, err := openStopped(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		if s.broken != nil {
			t.Fatal(s.broken)
		}
		v, err := s.verify()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := verify(); len(v.Damages) > 0 || v.Checked.Streams != 1 || v.Checked.StreamMessages != 60 {
		t.Errorf("%+v", v)
	}
	segments, _ := filepath.Glob(filepath.Join(dir, "streams", "*", "*", "*.seg"))
	b, err := os.ReadFile(segments[1])
	if err != nil {
		t.Fatal(err)
	}
	b[100] ^= 1
	if err := os.WriteFile(segments[1], b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(segments[3]); err != nil {
		t.Fatal(err)
	}
	if v := verify(); len(v.Damages) != 2 || v.Checked.StreamMessages >= 60 || v.Checked.StreamMessages == 0 || v.Damages[0].File != strings.TrimPrefix(segments[1], dir+"/") {
		t.Errorf("%+v", v)
	}
}

// TestStreamDeliveriesAreCountedApart: by type, as metrics show them.
func TestStreamDeliveriesAreCountedApart(t *testing.T) {
	n := runNode(t)
	c := n.peer()
	c.stream("s", 5, nil)
	reads(t, c.replay("s", amqp091.Table{"x-stream-offset": "first"}), 0, 5)
	c.declare("q", true, false, nil)
	c.publish("", "q", amqp091.Publishing{})
	c.must(c.take("q").Ack(false))
	r := n.engine.(*rooms)
	deadline := time.Now().Add(20 * time.Second)
	for {
		classic, stream := r.delivered("classic"), r.delivered("stream")
		if stream.Deliver == 5 && stream.Ack == 5 && classic.Deliver == 0 && classic.Get == 1 && classic.Ack == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %+v", classic, stream)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
