package management

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// maxTags is how many tags a user can have, as in RabbitMQ.
const maxTags = 32

type accountView struct {
	Name      string           `json:"name"`
	Hash      string           `json:"password_hash"`
	Algorithm string           `json:"hashing_algorithm"`
	Tags      []string         `json:"tags"`
	Limits    map[string]int64 `json:"limits"`
}

func viewAccount(u *Account) accountView {
	v := accountView{u.Name, base64.StdEncoding.EncodeToString(u.Hash), u.Algorithm, list(u.Tags), u.Limits}
	if v.Limits == nil {
		v.Limits = map[string]int64{}
	}
	return v
}

// account finds the user in the path, or answers that there is none.
func (a *API) account(r *request) (u Account, ok bool) {
	for _, u := range a.Broker.Users() {
		if u.Name == r.vars["user"] {
			return u, true
		}
	}
	a.missing(r.w)
	return u, false
}

func (a *API) listUsers(r *request) { a.users(r, func(*Account) bool { return true }) }

func (a *API) listUsersWithoutPermissions(r *request) {
	permitted := map[string]bool{}
	for _, p := range a.Broker.Permissions() {
		permitted[p.User] = true
	}
	a.users(r, func(u *Account) bool { return !permitted[u.Name] })
}

func (a *API) users(r *request, want func(*Account) bool) {
	var views []accountView
	for _, u := range a.Broker.Users() {
		if want(&u) {
			views = append(views, viewAccount(&u))
		}
	}
	sendAll(a, r, true, views, func(v accountView) (vhost, name string) { return "", v.Name })
}

func (a *API) oneUser(r *request) {
	if u, ok := a.account(r); ok {
		a.answer(r, viewAccount(&u))
	}
}

// protected says whether a user may not be changed over HTTP.
func (a *API) protected(name string) bool {
	for _, u := range a.Broker.Users() {
		if u.Name == name {
			return slices.Contains(u.Tags, "protected")
		}
	}
	return false
}

const protectedText = "Protected users cannot be modified via the HTTP API"

func (a *API) putUser(r *request) {
	body, ok := a.body(r)
	if !ok {
		return
	}
	name := r.vars["user"]
	if a.protected(name) {
		a.bad(r.w, protectedText)
		return
	}
	u, ok := a.readAccount(r, name, body)
	if !ok {
		return
	}
	grants, ok := a.readGrants(r, name, body["permissions"])
	if !ok {
		return
	}
	if u.Limits, ok = a.readLimits(r, body["limits"]); !ok {
		return
	}
	created, err := a.Broker.PutUser(u)
	if err != nil {
		a.refuse(r.w, err)
		return
	}
	if created {
		for _, p := range grants {
			if _, err := a.Broker.SetPermissions(p); err != nil {
				a.refuse(r.w, err)
				return
			}
		}
	}
	a.put(r, created, nil)
}

// readAccount reads what a body says of a user: its password, as text or hashed, and its tags.
func (a *API) readAccount(r *request, name string, body map[string]any) (u Account, ok bool) {
	u = Account{Name: name, Algorithm: defaultAlgorithm}
	tags, given := body["tags"]
	if !given {
		if v, ok := body["administrator"]; ok { // RabbitMQ's own clients of long ago
			tags, given = "", true
			if v == true || v == "true" {
				tags = "administrator"
			}
		}
	}
	if !given {
		a.bad(r.w, "tags_not_present")
		return u, false
	}
	if u.Tags, ok = readTags(tags); !ok {
		a.bad(r.w, []any{"not_tags", tags})
		return u, false
	}
	if len(u.Tags) > maxTags {
		a.bad(r.w, fmt.Sprintf("A user can have at most %d tags (received %d)", maxTags, len(u.Tags)))
		return u, false
	}
	password, hasPassword := body["password"]
	hash, hasHash := body["password_hash"]
	switch {
	case hasPassword && hasHash:
		a.bad(r.w, "both_password_and_password_hash_are_provided")
		return u, false
	case hasPassword:
		text, ok := password.(string)
		if !ok {
			a.bad(r.w, []any{"not_string", "password"})
			return u, false
		}
		if text != "" {
			u.Hash = a.Broker.HashPassword(text)
		}
	case hasHash:
		text, isText := hash.(string)
		decoded, err := base64.StdEncoding.DecodeString(text)
		if !isText || err != nil {
			a.bad(r.w, []any{"not_base64", hash})
			return u, false
		}
		u.Hash = decoded
		if algorithm, ok := body["hashing_algorithm"]; ok {
			if u.Algorithm, ok = algorithm.(string); !ok || !slices.Contains(algorithms, u.Algorithm) {
				a.bad(r.w, []any{"unknown_hashing_algorithm", algorithm})
				return u, false
			}
		}
	}
	return u, true
}

const defaultAlgorithm = "rabbit_password_hashing_sha256"

var algorithms = []string{defaultAlgorithm, "rabbit_password_hashing_sha512", "rabbit_password_hashing_md5"}

// readTags reads tags, which are a list or a text with commas.
func readTags(v any) (tags []string, ok bool) {
	switch v := v.(type) {
	case nil:
		return nil, true
	case string:
		for tag := range strings.SplitSeq(v, ",") {
			if tag = strings.TrimSpace(tag); tag != "" {
				tags = append(tags, tag)
			}
		}
		return tags, true
	case []any:
		for _, item := range v {
			tag, ok := item.(string)
			if !ok {
				return nil, false
			}
			tags = append(tags, strings.TrimSpace(tag))
		}
		return tags, true
	}
	return nil, false
}

// readGrants reads the permissions that a new user gets.
func (a *API) readGrants(r *request, user string, v any) (grants []Permission, ok bool) {
	if v == nil {
		return nil, true
	}
	object, ok := v.(map[string]any)
	if !ok {
		a.bad(r.w, []any{"not_object", "permissions"})
		return nil, false
	}
	for vhost, v := range object {
		patterns, ok := v.(map[string]any)
		if !ok {
			a.bad(r.w, []any{"not_object", vhost})
			return nil, false
		}
		p := Permission{User: user, VHost: vhost}
		if !a.texts(r, patterns, wanted{"configure", &p.Configure}, wanted{"write", &p.Write}, wanted{"read", &p.Read}) {
			return nil, false
		}
		if !a.Broker.HasVHost(vhost) {
			a.bad(r.w, []any{"no_such_vhost", vhost})
			return nil, false
		}
		grants = append(grants, p)
	}
	return grants, true
}

// readLimits reads a user's limits; nil means that nothing is said of them.
func (a *API) readLimits(r *request, v any) (limits map[string]int64, ok bool) {
	if v == nil {
		return nil, true
	}
	object, ok := v.(map[string]any)
	if !ok {
		a.bad(r.w, []any{"not_object", "limits"})
		return nil, false
	}
	limits = map[string]int64{}
	for name, v := range object {
		n, ok := a.readLimit(r, userLimits, "user-limits", name, v)
		if !ok {
			return nil, false
		}
		limits[name] = n
	}
	return limits, true
}

func (a *API) deleteUser(r *request) {
	name := r.vars["user"]
	if a.protected(name) {
		a.bad(r.w, protectedText)
		return
	}
	existed, err := a.Broker.DeleteUser(name)
	a.removed(r, existed, err)
}

// deleteUsers removes the users that a body lists, as far as there are such, and leaves those that are protected.
func (a *API) deleteUsers(r *request) {
	body, ok := a.body(r)
	if !ok || !a.present(r, body, "users") {
		return
	}
	names, ok := body["users"].([]any)
	if !ok {
		a.bad(r.w, []any{"not_list", "users"})
		return
	}
	for _, v := range names {
		name, ok := v.(string)
		if !ok {
			a.bad(r.w, []any{"not_string", v})
			return
		}
		if a.protected(name) {
			continue
		}
		if _, err := a.Broker.DeleteUser(name); err != nil {
			a.refuse(r.w, err)
			return
		}
	}
	r.w.WriteHeader(http.StatusNoContent)
}

// hashPassword shows a password as a definition holds it.
func (a *API) hashPassword(r *request) {
	a.answer(r, map[string]string{"ok": base64.StdEncoding.EncodeToString(a.Broker.HashPassword(r.vars["password"]))})
}

// term makes a JSON value readable in a message, in the notation of RabbitMQ's.
func term(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "<<" + string(encode(v)) + ">>"
	case json.Number:
		return v.String()
	case []any:
		items := make([]string, len(v))
		for i := range v {
			items[i] = term(v[i])
		}
		return "[" + strings.Join(items, ",") + "]"
	case map[string]any:
		var items []string
		for name, value := range v {
			items = append(items, term(name)+" => "+term(value))
		}
		slices.Sort(items)
		return "#{" + strings.Join(items, ",") + "}"
	}
	return fmt.Sprint(v)
}
