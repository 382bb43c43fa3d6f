package management

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// fail answers with an error in RabbitMQ's form. reason is a string, or a slice for what was a tuple.
func (a *API) fail(w http.ResponseWriter, status int, kind string, reason any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(encode(struct {
		Error  string `json:"error"`
		Reason any    `json:"reason"`
	}{kind, reason}))
}

// missing answers for what does not exist.
func (a *API) missing(w http.ResponseWriter) {
	a.fail(w, http.StatusNotFound, "Object Not Found", "Not Found")
}

// bad answers for what cannot be done as it was asked for.
func (a *API) bad(w http.ResponseWriter, reason any) {
	a.fail(w, http.StatusBadRequest, "bad_request", reason)
}

// refuse answers with what the broker said, as RabbitMQ translates AMQP's codes.
func (a *API) refuse(w http.ResponseWriter, err error) {
	var refusal *Refusal
	var pattern *InvalidPattern
	if errors.As(err, &pattern) { // RabbitMQ's texts are lists of characters here
		a.bad(w, []any{"invalid_regexp", []rune(pattern.Pattern), []any{[]rune(pattern.Text), pattern.At}})
		return
	}
	if !errors.As(err, &refusal) {
		a.Log.Error("a request to the management API failed", "error", err)
		a.fail(w, http.StatusInternalServerError, "internal_server_error", err.Error())
		return
	}
	switch refusal.Code {
	case 403, 530:
		a.fail(w, http.StatusUnauthorized, "not_authorised", "Access refused.")
	case 404:
		a.missing(w)
	case 540:
		a.fail(w, http.StatusNotImplemented, "not_implemented", refusal.Text)
	default:
		a.bad(w, refusal.Text)
	}
}

// answer sends one object, with the columns asked for.
func (a *API) answer(r *request, v any) {
	r.w.Header().Set("Content-Type", "application/json")
	columns := columnsOf(r.URL.Query().Get("columns"))
	r.w.Write(columns.encode(nil, v))
}

// encode writes JSON without the escapes that only HTML needs: connection names contain ->.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // a float that JSON does not have, from a client's own properties
		return []byte("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// body reads a JSON object, or answers that there is none. Nothing at all counts as {}.
func (a *API) body(r *request) (object map[string]any, ok bool) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		a.bad(r.w, "Exceeded HTTP request body size limit")
		return nil, false
	}
	switch strings.TrimSpace(string(text)) {
	case "", "null", "undefined":
		return map[string]any{}, true
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var v any
	if err = decoder.Decode(&v); err == nil && decoder.More() {
		err = errors.New("more than one value")
	}
	switch v := v.(type) {
	case map[string]any:
		if err == nil {
			return v, true
		}
	case string:
		a.bad(r.w, "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?")
		return nil, false
	}
	a.bad(r.w, "not_json")
	return nil, false
}

// present says whether a body has the keys, or answers which it has not.
func (a *API) present(r *request, body map[string]any, names ...string) bool {
	var missing []string
	length := 1
	for _, name := range names {
		if _, ok := body[name]; !ok {
			missing = append(missing, "{key_missing,"+name+"}")
			length += len(missing[len(missing)-1]) + 1
		}
	}
	if missing == nil {
		return true
	}
	separator := ","
	if length > 80 { // RabbitMQ prints in lines of that length
		separator = ",\n "
	}
	a.bad(r.w, "["+strings.Join(missing, separator)+"]")
	return false
}

// boolean reads a truth value, which may be text, or answers that it is none.
func (a *API) boolean(r *request, object map[string]any, name string) (value, ok bool) {
	switch v := object[name].(type) {
	case nil:
		return false, true
	case bool:
		return v, true
	case string:
		if v == "true" || v == "false" {
			return v == "true", true
		}
	}
	a.bad(r.w, []any{"not_boolean", object[name]})
	return false, false
}

// amqpValue turns a value out of JSON into one that a field table can hold: integers are int64, other numbers float64.
func amqpValue(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = amqpValue(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = amqpValue(v[name])
		}
	}
	return v
}

// jsonValue turns a value out of a field table into one that JSON can hold: bytes are text, times are seconds.
func jsonValue(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case interface{ Unix() int64 }:
		return v.Unix()
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = jsonValue(v[i])
		}
		return out
	case map[string]any:
		return jsonTable(v)
	}
	return v
}

// jsonTable is jsonValue for a whole table. Nil becomes the empty object.
func jsonTable(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for name, v := range m {
		out[name] = jsonValue(v)
	}
	return out
}
