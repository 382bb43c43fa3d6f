package management

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Publication is a message to be published. Properties are those of the JSON API, their numbers int64 or float64.
type Publication struct {
	VHost, Exchange, Key string
	Properties           Properties
	Body                 []byte
}

// Properties are AMQP's. Pointers are nil where one is missing.
type Properties struct {
	ContentType     *string        `json:"content_type,omitempty"`
	ContentEncoding *string        `json:"content_encoding,omitempty"`
	Headers         map[string]any `json:"headers,omitzero"`
	DeliveryMode    *uint8         `json:"delivery_mode,omitempty"`
	Priority        *uint8         `json:"priority,omitempty"`
	CorrelationID   *string        `json:"correlation_id,omitempty"`
	ReplyTo         *string        `json:"reply_to,omitempty"`
	Expiration      *string        `json:"expiration,omitempty"`
	MessageID       *string        `json:"message_id,omitempty"`
	Timestamp       *uint64        `json:"timestamp,omitempty"` // seconds since 1970
	Type            *string        `json:"type,omitempty"`
	UserID          *string        `json:"user_id,omitempty"`
	AppID           *string        `json:"app_id,omitempty"`
	ClusterID       *string        `json:"cluster_id,omitempty"`
}

// Fetch says how to get messages from a queue.
type Fetch struct {
	VHost, Queue string
	Count        int // negative: all
	// MaxBytes bounds the bodies: when they are more in sum, no further message is taken.
	MaxBytes int
	// NoAck takes the messages for good. Otherwise they are given back, or removed if Requeue is not set, by basic.nack or, with Reject, by
	// basic.reject, which counts as a failure to deal with them.
	NoAck, Reject, Requeue bool
}

// Message is a message that was got.
type Message struct {
	Exchange, Key string
	Redelivered   bool
	Left          uint64 // in the queue, when it was got
	Properties    Properties
	Body          []byte
}

// maxFetched bounds what one request gets from a queue, in bytes of bodies: the answer is built in memory.
const maxFetched = 64 << 20

// publish publishes the message in the body.
func (a *API) publish(r *request) {
	body, ok := a.body(r)
	if !ok || !a.present(r, body, "routing_key", "properties", "payload", "payload_encoding") {
		return
	}
	m := Publication{VHost: r.vars["vhost"], Exchange: exchangeName(r.vars["exchange"])}
	if _, ok := a.exchange(m.VHost, m.Exchange); !ok {
		a.fail(r.w, http.StatusNotFound, "not_found", "exchange_not_found")
		return
	}
	var reason any
	if m.Body, reason = payload(body["payload"], body["payload_encoding"]); reason != nil {
		a.bad(r.w, reason)
		return
	}
	if m.Key, ok = body["routing_key"].(string); !ok {
		a.bad(r.w, []any{"not_string", "routing_key"})
		return
	}
	if m.Properties, reason = readProperties(body["properties"]); reason != nil {
		a.bad(r.w, reason)
		return
	}
	routed, err := a.Broker.Publish(r.user, &m)
	var refusal *Refusal
	switch {
	case err == nil:
		a.answer(r, map[string]bool{"routed": routed})
	case errors.Is(err, ErrRejected), errors.Is(err, ErrUnconfirmed):
		a.bad(r.w, err.Error())
	case errors.As(err, &refusal) && refusal.Code == 404:
		a.fail(r.w, http.StatusNotFound, "not_found", "exchange_not_found")
	case errors.As(err, &refusal):
		a.bad(r.w, fmt.Sprintf("%d %s - %s", refusal.Code, codeNames[refusal.Code], refusal.Text))
	default:
		a.refuse(r.w, err)
	}
}

// codeNames are AMQP's names of the codes that a publish or a get can be refused with.
var codeNames = map[uint16]string{311: "CONTENT_TOO_LARGE", 403: "ACCESS_REFUSED", 405: "RESOURCE_LOCKED", 406: "PRECONDITION_FAILED", 502: "SYNTAX_ERROR",
	506: "RESOURCE_ERROR", 530: "NOT_ALLOWED", 540: "NOT_IMPLEMENTED", 541: "INTERNAL_ERROR"}

func payload(v, encoding any) (body []byte, wrong any) {
	text, ok := v.(string)
	if !ok {
		return nil, "payload_not_string"
	}
	switch encoding {
	case "string":
		return []byte(text), nil
	case "base64":
		body, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, []any{"not_base64", text}
		}
		return body, nil
	}
	return nil, []any{"unsupported_encoding", encoding}
}

// readProperties reads the properties of a message; those it does not know are ignored.
func readProperties(v any) (p Properties, wrong any) {
	object, ok := v.(map[string]any)
	if list, isList := v.([]any); isList && len(list) == 0 { // as a message without properties is shown
		object, ok = nil, true
	}
	if !ok {
		return p, []any{"not_object", "properties"}
	}
	for name, into := range p.texts() {
		if v, given := object[name]; given {
			text, ok := v.(string)
			if !ok {
				return p, []any{"not_string", name}
			}
			*into = &text
		}
	}
	for name, into := range map[string]**uint8{"delivery_mode": &p.DeliveryMode, "priority": &p.Priority} {
		if v, given := object[name]; given {
			n, ok := whole(v, math.MaxUint8)
			if !ok {
				return p, []any{"not_int", name}
			}
			octet := uint8(n)
			*into = &octet
		}
	}
	if v, given := object["timestamp"]; given {
		n, ok := whole(v, math.MaxInt64)
		if !ok {
			return p, []any{"not_int", "timestamp"}
		}
		seconds := uint64(n)
		p.Timestamp = &seconds
	}
	if v, given := object["headers"]; given {
		headers, ok := v.(map[string]any)
		if !ok {
			return p, []any{"not_object", "headers"}
		}
		p.Headers = amqpValue(headers).(map[string]any)
	}
	return p, nil
}

// texts are the properties that are short strings, by name.
func (p *Properties) texts() map[string]**string {
	return map[string]**string{"content_type": &p.ContentType, "content_encoding": &p.ContentEncoding, "correlation_id": &p.CorrelationID,
		"reply_to": &p.ReplyTo, "expiration": &p.Expiration, "message_id": &p.MessageID, "type": &p.Type, "user_id": &p.UserID,
		"app_id": &p.AppID, "cluster_id": &p.ClusterID}
}

// whole reads an integer from 0 to most.
func whole(v any, most int64) (n int64, ok bool) {
	number, _ := v.(json.Number)
	n, err := number.Int64()
	return n, err == nil && n >= 0 && n <= most
}

// integer reads an integer, which may be text.
func (a *API) integer(r *request, v any) (n int, ok bool) {
	text, _ := v.(string)
	if number, isNumber := v.(json.Number); isNumber {
		text = number.String()
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		a.bad(r.w, []any{"not_integer", v})
	}
	return n, err == nil
}

type messageView struct {
	Bytes       int    `json:"payload_bytes"`
	Redelivered bool   `json:"redelivered"`
	Exchange    string `json:"exchange"`
	Key         string `json:"routing_key"`
	Left        uint64 `json:"message_count"`
	Properties  any    `json:"properties"`
	Payload     string `json:"payload"`
	Encoding    string `json:"payload_encoding"`
}

var ackModes = []string{"ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"}

// getMessages gets messages from a queue.
func (a *API) getMessages(r *request) {
	body, ok := a.body(r)
	if !ok || !a.present(r, body, "ackmode", "count", "encoding") {
		return
	}
	f := Fetch{VHost: r.vars["vhost"], Queue: r.vars["queue"], MaxBytes: maxFetched}
	if !a.Broker.Queue(f.VHost, f.Queue, new(Queue)) {
		a.fail(r.w, http.StatusNotFound, "not_found", "queue_not_found")
		return
	}
	mode, _ := body["ackmode"].(string)
	if !slices.Contains(ackModes, mode) {
		a.bad(r.w, fmt.Sprintf("Invalid ackmode value: %v. Valid values are: %s", body["ackmode"], strings.Join(ackModes, ", ")))
		return
	}
	f.NoAck, f.Reject, f.Requeue = mode == "ack_requeue_false", strings.HasPrefix(mode, "reject"), strings.HasSuffix(mode, "true")
	encoding := body["encoding"]
	if encoding != "auto" && encoding != "base64" {
		a.bad(r.w, "Unsupported encoding. Please use auto or base64.")
		return
	}
	if f.Count, ok = a.integer(r, body["count"]); !ok {
		return
	}
	truncate := -1
	if v, given := body["truncate"]; given {
		if truncate, ok = a.integer(r, v); !ok {
			return
		}
	}
	messages, err := a.Broker.Get(r.user, f)
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Code == 404:
		a.fail(r.w, http.StatusNotFound, "not_found", "queue_not_found")
		return
	case errors.As(err, &refusal) && refusal.Code == 403:
		a.fail(r.w, http.StatusUnauthorized, "not_authorised", "ACCESS_REFUSED - "+refusal.Text)
		return
	case errors.As(err, &refusal):
		a.bad(r.w, fmt.Sprintf("%d %s", refusal.Code, refusal.Text))
		return
	case err != nil:
		a.refuse(r.w, err)
		return
	}
	views := make([]messageView, len(messages))
	for i := range messages {
		views[i] = viewMessage(&messages[i], truncate, encoding == "auto")
	}
	a.answer(r, views)
}

func viewMessage(m *Message, truncate int, auto bool) messageView {
	v := messageView{Bytes: len(m.Body), Redelivered: m.Redelivered, Exchange: m.Exchange, Key: m.Key, Left: m.Left, Properties: []struct{}{}}
	if !m.Properties.empty() { // none are an empty list, as in RabbitMQ
		m.Properties.Headers = jsonHeaders(m.Properties.Headers)
		v.Properties = m.Properties
	}
	body := m.Body
	if truncate >= 0 && truncate < len(body) {
		body = body[:truncate]
	}
	if auto && utf8.Valid(body) {
		v.Payload, v.Encoding = string(body), "string"
	} else {
		v.Payload, v.Encoding = base64.StdEncoding.EncodeToString(body), "base64"
	}
	return v
}

func (p *Properties) empty() bool {
	for _, text := range p.texts() {
		if *text != nil {
			return false
		}
	}
	return p.Headers == nil && p.DeliveryMode == nil && p.Priority == nil && p.Timestamp == nil
}

// jsonHeaders is jsonTable for headers that may be missing.
func jsonHeaders(headers map[string]any) map[string]any {
	if headers == nil {
		return nil
	}
	return jsonTable(headers)
}
