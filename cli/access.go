package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp/syntax"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/management"
)

// What management sees and changes of users, permissions, limits and virtual hosts.

// finished waits for a change whose callback hears an error.
func finished(change func(done func(error))) error {
	failed := make(chan error, 1)
	change(func(err error) { failed <- err })
	return told(<-failed)
}

// answered waits for a change whose callback hears whether something was there.
func answered(change func(done func(existed bool, err error))) (existed bool, err error) {
	failed := make(chan error, 1)
	change(func(was bool, err error) {
		existed = was
		failed <- err
	})
	err = told(<-failed)
	return existed, err
}

// told is an error of the broker in management's terms.
func told(err error) error {
	var refused *amqp.Error
	var invalid *broker.Invalid
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refusal(refused)
	case errors.As(err, &invalid):
		return &management.Refusal{Code: amqp.PreconditionFailed, Text: invalid.Text}
	}
	return err
}

// noVHost is the error of a change in a virtual host that is not there, or not any more.
func noVHost(name string) error {
	return &management.Refusal{Code: amqp.NotFound, Text: "no vhost '" + name + "'"}
}

// Users implements management.Broker.
func (r *rooms) Users() []management.Account {
	var list []management.Account
	for _, u := range r.broker.Users() {
		list = append(list, management.Account{Name: u.Name, Hash: u.Hash, Algorithm: u.Algorithm.String(), Tags: u.Tags, Limits: r.broker.UserLimits(u.Name)})
	}
	return list
}

// PutUser implements management.Broker.
func (r *rooms) PutUser(u management.Account) (created bool, err error) {
	to := broker.User{Name: u.Name, Hash: u.Hash, Tags: u.Tags}
	for _, a := range []broker.Algorithm{broker.SHA256, broker.SHA512, broker.MD5} {
		if a.String() == u.Algorithm {
			to.Algorithm = a
		}
	}
	created = r.broker.User(u.Name) == nil
	if err := finished(func(done func(error)) { r.broker.PutUser(to, done) }); err != nil {
		return false, err
	}
	if u.Limits == nil {
		return created, nil
	}
	limits := make(map[string]any, len(u.Limits))
	for name, n := range u.Limits {
		limits[name] = json.Number(fmt.Sprint(n))
	}
	return created, finished(func(done func(error)) { r.broker.SetUserLimits(u.Name, limits, done) })
}

// DeleteUser implements management.Broker.
func (r *rooms) DeleteUser(name string) (existed bool, err error) {
	return answered(func(done func(bool, error)) { r.broker.DeleteUser(name, done) })
}

// HashPassword implements management.Broker.
func (r *rooms) HashPassword(password string) []byte { return broker.HashPassword(password) }

// Permissions implements management.Broker.
func (r *rooms) Permissions() []management.Permission {
	var list []management.Permission
	for _, v := range r.broker.VHosts() {
		for _, p := range v.Permissions() {
			list = append(list, management.Permission{User: p.User, VHost: p.VHost, Configure: p.Configure, Write: p.Write, Read: p.Read})
		}
	}
	return list
}

// SetPermissions implements management.Broker.
func (r *rooms) SetPermissions(p management.Permission) (created bool, err error) {
	v := r.broker.VHost(p.VHost)
	if v == nil {
		return false, noVHost(p.VHost)
	}
	u := r.broker.User(p.User)
	created = u != nil && !v.Admits(u)
	err = finished(func(done func(error)) { v.SetPermissions(p.User, p.Configure, p.Write, p.Read, done) })
	return created, patternError(err, p.Configure, p.Write, p.Read)
}

// ClearPermissions implements management.Broker.
func (r *rooms) ClearPermissions(vhost, user string) (existed bool, err error) {
	v, u := r.broker.VHost(vhost), r.broker.User(user)
	if v == nil || u == nil || !v.Admits(u) {
		return false, nil
	}
	return answered(func(done func(bool, error)) { v.ClearPermissions(user, done) })
}

// TopicPermissions implements management.Broker.
func (r *rooms) TopicPermissions() []management.TopicPermission {
	var list []management.TopicPermission
	for _, v := range r.broker.VHosts() {
		for _, p := range v.TopicPermissions() {
			list = append(list, management.TopicPermission{User: p.User, VHost: p.VHost, Exchange: p.Exchange, Write: p.Write, Read: p.Read})
		}
	}
	return list
}

// SetTopicPermissions implements management.Broker.
func (r *rooms) SetTopicPermissions(p management.TopicPermission) error {
	v := r.broker.VHost(p.VHost)
	if v == nil {
		return noVHost(p.VHost)
	}
	err := finished(func(done func(error)) { v.SetTopicPermissions(p.User, p.Exchange, p.Write, p.Read, done) })
	return patternError(err, p.Write, p.Read)
}

// ClearTopicPermissions implements management.Broker.
func (r *rooms) ClearTopicPermissions(vhost, user, exchange string, all bool) error {
	v := r.broker.VHost(vhost)
	if v == nil {
		return noVHost(vhost)
	}
	_, err := answered(func(done func(bool, error)) { v.ClearTopicPermissions(user, exchange, all, done) })
	return err
}

// pcre are the texts of RabbitMQ's regular expressions for what is wrong with one.
var pcre = map[syntax.ErrorCode]string{
	syntax.ErrMissingBracket:        "missing terminating ] for character class",
	syntax.ErrMissingParen:          "missing closing parenthesis",
	syntax.ErrUnexpectedParen:       "unmatched closing parenthesis",
	syntax.ErrMissingRepeatArgument: "quantifier does not follow a repeatable item",
	syntax.ErrTrailingBackslash:     `\ at end of pattern`,
	syntax.ErrInvalidCharRange:      "range out of order in character class",
	syntax.ErrInvalidRepeatSize:     "number too big in {} quantifier",
}

// patternError says which of the patterns an error of a regular expression is about.
func patternError(err error, patterns ...string) error {
	var wrong *syntax.Error
	if !errors.As(err, &wrong) {
		return err
	}
	e := &management.InvalidPattern{Text: pcre[wrong.Code]}
	if e.Text == "" {
		e.Text = wrong.Code.String()
	}
	for _, p := range patterns {
		if _, err := syntax.Parse(p, syntax.Perl); err != nil {
			e.Pattern = p
			break
		}
	}
	e.At = len(e.Pattern) // where the end is missing, or what cannot be told apart
	for i := range e.Pattern {
		var early *syntax.Error
		if _, err := syntax.Parse(e.Pattern[:i], syntax.Perl); errors.As(err, &early) && early.Code == wrong.Code && wrong.Code != syntax.ErrMissingParen && wrong.Code != syntax.ErrMissingBracket {
			e.At = i // the shortest beginning that is wrong in the same way
			break
		}
	}
	return e
}

// SetUserLimit implements management.Broker.
func (r *rooms) SetUserLimit(user, name string, value any) error {
	return finished(func(done func(error)) { r.broker.SetUserLimit(user, name, value, done) })
}

// ClearUserLimit implements management.Broker.
func (r *rooms) ClearUserLimit(user, name string) error {
	return finished(func(done func(error)) { r.broker.ClearUserLimit(user, name, done) })
}

// SetVHostLimit implements management.Broker.
func (r *rooms) SetVHostLimit(vhost, name string, value any) error {
	v := r.broker.VHost(vhost)
	if v == nil {
		return noVHost(vhost)
	}
	return finished(func(done func(error)) { v.SetLimit(name, value, done) })
}

// ClearVHostLimit implements management.Broker.
func (r *rooms) ClearVHostLimit(vhost, name string) error {
	v := r.broker.VHost(vhost)
	if v == nil {
		return noVHost(vhost)
	}
	return finished(func(done func(error)) { v.ClearLimit(name, done) })
}

// VHostLimits implements management.Broker.
func (r *rooms) VHostLimits(vhost string) map[string]int64 {
	if v := r.broker.VHost(vhost); v != nil {
		return v.Limits()
	}
	return nil
}

// HasVHost implements management.Broker.
func (r *rooms) HasVHost(name string) bool { return r.broker.VHost(name) != nil }

// PutVHost implements management.Broker.
func (r *rooms) PutVHost(as management.User, v management.VHost) (created bool, err error) {
	created = r.broker.VHost(v.Name) == nil
	change := broker.PutVHost{Name: v.Name, Description: v.Description, Tags: v.Tags, DefaultQueueType: v.DefaultQueueType}
	if err := finished(func(done func(error)) { r.broker.PutVHost(change, done) }); err != nil || !created {
		return false, err
	}
	made := r.broker.VHost(v.Name)
	if made == nil || r.broker.User(as.Name) == nil { // gone again
		return true, nil
	}
	return true, finished(func(done func(error)) { made.SetPermissions(as.Name, ".*", ".*", ".*", done) })
}

// DeleteVHost implements management.Broker.
func (r *rooms) DeleteVHost(name string) (existed bool, err error) {
	return answered(func(done func(bool, error)) { r.broker.DeleteVHost(name, done) })
}
