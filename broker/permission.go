package broker

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// Verb is what a permission allows.
type Verb uint8

const (
	Configure Verb = iota
	Write
	Read
)

func (v Verb) String() string { return [...]string{"configure", "write", "read"}[v] }

// pattern is a regular expression on names, not anchored; the empty one matches the empty name only, and one that does
// not compile nothing.
type pattern struct {
	source string
	all    bool
	re     expression
}

func compile(source string) pattern {
	p := pattern{source: source, all: source == ".*"}
	p.re, _ = compileExpression(cmp.Or(source, "^$"))
	return p
}

func (p *pattern) matches(name []byte) bool { return p.all || p.re.match(name) }

// Permissions are those of a user in a virtual host.
type Permissions struct{ patterns [3]pattern }

// Pattern is the regular expression for a verb.
func (p *Permissions) Pattern(v Verb) string { return p.patterns[v].source }

// TopicPermissions limit the routing keys of a user at one topic exchange. The patterns are those for this user, with
// {username} and {vhost} filled in.
type TopicPermissions struct {
	Write, Read string // as given
	write, read pattern
}

func (v *VHost) setPermissions(c SetPermissions) (r result) {
	_, r.existed = v.permissions[c.User]
	v.permissions[c.User] = &Permissions{[3]pattern{compile(c.Configure), compile(c.Write), compile(c.Read)}}
	return r
}

func (v *VHost) setTopicPermissions(c SetTopicPermissions) (r result) {
	if v.topics[c.User] == nil {
		v.topics[c.User] = make(map[string]*TopicPermissions)
	}
	_, r.existed = v.topics[c.User][c.Exchange]
	fill := strings.NewReplacer("{username}", regexp.QuoteMeta(c.User), "{vhost}", regexp.QuoteMeta(c.VHost))
	v.topics[c.User][c.Exchange] = &TopicPermissions{
		Write: c.Write, Read: c.Read,
		write: compile(fill.Replace(c.Write)), read: compile(fill.Replace(c.Read)),
	}
	return r
}

// allows reports whether u has a permission on a name. v.mu is held.
func (v *VHost) allows(u *User, verb Verb, name []byte) bool {
	if u == nil {
		return true
	}
	p := v.permissions[u.Name]
	return p != nil && p.patterns[verb].matches(name)
}

// MayRead reports whether u may read a queue.
func (v *VHost) MayRead(u *User, queue string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.allows(u, Read, []byte(queue))
}

var defaultExchange = []byte("amq.default")

// exchangeName is the name under which permissions know an exchange.
func exchangeName(name []byte) []byte {
	if len(name) == 0 {
		return defaultExchange
	}
	return name
}

func refused(u *User, verb Verb, resource string) *amqp.Error {
	return amqp.Errorf(amqp.AccessRefused, "%s access to %s refused for user '%s'", verb, resource, u.Name)
}

func (v *VHost) refusedExchange(u *User, verb Verb, name string) *amqp.Error {
	return refused(u, verb, v.exchangeResource(string(exchangeName([]byte(name)))))
}

// checkExchange returns the error if u lacks a permission on an exchange. v.mu is held.
func (v *VHost) checkExchange(u *User, verb Verb, name string) *amqp.Error {
	if v.allows(u, verb, exchangeName([]byte(name))) {
		return nil
	}
	return v.refusedExchange(u, verb, name)
}

// checkQueue returns the error if u lacks a permission on a queue. v.mu is held.
func (v *VHost) checkQueue(u *User, verb Verb, name string) *amqp.Error {
	if v.allows(u, verb, []byte(name)) {
		return nil
	}
	return refused(u, verb, v.queueResource(name))
}

// allowsAny reports whether u has any permission on a name. v.mu is held.
func (v *VHost) allowsAny(u *User, name string) bool {
	n := []byte(name)
	return v.allows(u, Read, n) || v.allows(u, Write, n) || v.allows(u, Configure, n)
}

// checkTopic returns the error if u may not use a routing key at a topic exchange. v.mu is held.
func (v *VHost) checkTopic(u *User, verb Verb, x *exchange.Exchange, key []byte) *amqp.Error {
	if u == nil || x.Type != exchange.Topic || len(v.topics) == 0 {
		return nil
	}
	p := v.topics[u.Name][x.Name]
	if p == nil || verb == Write && p.write.matches(key) || verb == Read && p.read.matches(key) {
		return nil
	}
	return amqp.Errorf(amqp.AccessRefused, "%s access to topic '%s' in %s refused for user '%s'", verb, key, v.exchangeResource(x.Name), u.Name)
}

// Admits reports whether u has any permission entry in v, without which it may not connect.
func (v *VHost) Admits(u *User) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return !v.deleted && v.permissions[u.Name] != nil
}

// UserPermissions is a user's entry in a virtual host.
type UserPermissions struct{ VHost, User, Configure, Write, Read string }

// Permissions lists who has permissions in v, by user name.
func (v *VHost) Permissions() []UserPermissions {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var list []UserPermissions
	for _, u := range slices.Sorted(maps.Keys(v.permissions)) {
		p := v.permissions[u]
		list = append(list, UserPermissions{v.Name, u, p.Pattern(Configure), p.Pattern(Write), p.Pattern(Read)})
	}
	return list
}

// SetPermissions gives a user permissions in v. Errors: ErrNoUser, and, for a pattern that is no regular expression, one of
// regexp/syntax; nothing is changed then.
func (v *VHost) SetPermissions(user, configure, write, read string, done func(error)) {
	if v.broker.User(user) == nil {
		done(ErrNoUser)
		return
	}
	for _, p := range []string{configure, write, read} {
		if _, err := compileExpression(p); err != nil {
			done(err)
			return
		}
	}
	done = v.broker.synced(done)
	v.broker.commit(SetPermissions{v.Name, user, configure, write, read}, func(r result) { done(orNil(r.refused)) })
}

// ClearPermissions takes a user's permissions in v away.
func (v *VHost) ClearPermissions(user string, done func(existed bool, err error)) {
	v.broker.commit(ClearPermissions{v.Name, user}, v.broker.removed(done))
}

// SetTopicPermissions limits a user's routing keys at an exchange; see SetPermissions for the errors.
func (v *VHost) SetTopicPermissions(user, exchange, write, read string, done func(error)) {
	if v.broker.User(user) == nil {
		done(ErrNoUser)
		return
	}
	for _, p := range []string{write, read} {
		if _, err := compileExpression(p); err != nil {
			done(err)
			return
		}
	}
	done = v.broker.synced(done)
	v.broker.commit(SetTopicPermissions{v.Name, user, exchange, write, read}, func(r result) { done(orNil(r.refused)) })
}

// ClearTopicPermissions takes a user's topic permissions at an exchange away, or, with all set, those at all exchanges.
func (v *VHost) ClearTopicPermissions(user, exchange string, all bool, done func(existed bool, err error)) {
	v.broker.commit(ClearTopicPermissions{v.Name, user, exchange, all}, v.broker.removed(done))
}

// UserTopicPermissions is a user's entry for a topic exchange.
type UserTopicPermissions struct{ User, VHost, Exchange, Write, Read string }

// TopicPermissions lists who has topic permissions in v, by user name and exchange.
func (v *VHost) TopicPermissions() []UserTopicPermissions {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var list []UserTopicPermissions
	for _, u := range slices.Sorted(maps.Keys(v.topics)) {
		for _, x := range slices.Sorted(maps.Keys(v.topics[u])) {
			p := v.topics[u][x]
			list = append(list, UserTopicPermissions{u, v.Name, x, p.Write, p.Read})
		}
	}
	return list
}
