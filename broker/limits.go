package broker

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/warrenmq/warren/amqp"
)

// Limits are limits by name: max-connections and max-queues of a virtual host, max-connections and max-channels of a
// user. One that is missing or negative limits nothing.
type Limits map[string]int64

// The limits that there are.
const (
	maxConnections = "max-connections"
	maxQueues      = "max-queues"
	maxChannels    = "max-channels"
)

var (
	vhostLimits = []string{maxConnections, maxQueues}
	userLimits  = []string{maxConnections, maxChannels}
)

// reached reports whether there can be no more of what a limit counts.
func (l Limits) reached(name string, n int) (limit int64, yes bool) {
	limit, ok := l[name]
	return limit, ok && limit >= 0 && int64(n) >= limit
}

// limitsOf reads limits that were checked.
func limitsOf(m map[string]any) Limits {
	if len(m) == 0 {
		return nil
	}
	l := Limits{}
	for name, v := range m {
		l[name], _ = integerOf(v)
	}
	return l
}

// checkLimits returns what is wrong with limits, as the texts of 4.3 have it, "" if nothing is.
func checkLimits(m map[string]any, names []string, what string) string {
	unknown := map[string]any{}
	for name, v := range m {
		if !slices.Contains(names, name) {
			unknown[name] = v
		}
	}
	for _, name := range names {
		if v, has := m[name]; has {
			if _, ok := integerOf(v); !ok {
				return name + " should be a number, actually was " + term(v)
			}
		}
	}
	if len(unknown) > 0 {
		return "Unrecognised terms " + terms(unknown) + " in " + what
	}
	return ""
}

// queueLimit is the error if there can be no more queues than n. v.mu is held.
func (v *VHost) queueLimit(name string, n int) *amqp.Error {
	if limit, reached := v.limits.reached(maxQueues, n); reached {
		return amqp.Errorf(amqp.PreconditionFailed, "cannot declare queue '%s': queue limit in vhost '%s' (%d) is reached", name, v.Name, limit)
	}
	return nil
}

// Limits are those of the virtual host, nil if none is set.
func (v *VHost) Limits() Limits {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.Clone(v.limits)
}

// SetLimit sets one limit of the virtual host. It counts for what comes: what there is stays. Errors: Invalid.
func (v *VHost) SetLimit(name string, value any, done func(error)) {
	m := v.limitMap()
	m[name] = value
	v.SetParameter(limitsComponent, limitsName, m, func(_ bool, err error) { done(err) })
}

// ClearLimit removes one limit of the virtual host.
func (v *VHost) ClearLimit(name string, done func(error)) {
	m := v.limitMap()
	delete(m, name)
	if len(m) == 0 {
		v.ClearParameter(limitsComponent, limitsName, func(_ bool, err error) { done(err) })
		return
	}
	v.SetParameter(limitsComponent, limitsName, m, func(_ bool, err error) { done(err) })
}

func (v *VHost) limitMap() map[string]any {
	m := map[string]any{}
	for name, n := range v.Limits() {
		m[name] = n
	}
	return m
}

// ErrNoUser refuses permissions and limits of a user that does not exist.
var ErrNoUser = errors.New("no such user")

// UserLimits are those of a user, nil if none is set.
func (b *Broker) UserLimits(user string) Limits {
	b.accounts.mu.Lock()
	defer b.accounts.mu.Unlock()
	if a := b.accounts.users[user]; a != nil {
		return maps.Clone(a.limits)
	}
	return nil
}

// SetUserLimit sets one limit of a user. It counts for what comes: what is open stays open. Errors: Invalid, ErrNoUser.
func (b *Broker) SetUserLimit(user, name string, value any, done func(error)) {
	m := map[string]any{}
	for name, n := range b.UserLimits(user) {
		m[name] = n
	}
	m[name] = value
	b.SetUserLimits(user, m, done)
}

// ClearUserLimit removes one limit of a user.
func (b *Broker) ClearUserLimit(user, name string, done func(error)) {
	m := map[string]any{}
	for other, n := range b.UserLimits(user) {
		if other != name {
			m[other] = n
		}
	}
	b.SetUserLimits(user, m, done)
}

// SetUserLimits replaces the limits of a user. Errors: Invalid, ErrNoUser.
func (b *Broker) SetUserLimits(user string, limits map[string]any, done func(error)) {
	if b.User(user) == nil {
		done(ErrNoUser)
		return
	}
	if limits == nil {
		limits = map[string]any{}
	}
	value, err := encodeJSON(limits)
	if err == nil {
		var m any
		m, err = DecodeJSON(value)
		limits, _ = m.(map[string]any)
	}
	if err != nil {
		done(&Invalid{err.Error()})
		return
	}
	if wrong := checkLimits(limits, userLimits, "user-limits"); wrong != "" {
		done(&Invalid{wrong})
		return
	}
	done = b.synced(done)
	b.commit(SetUserLimits{user, value}, func(r result) { done(orNil(r.refused)) })
}

// accounts count what the limits of connections and channels count.
type accounts struct {
	mu     sync.Mutex // guards what follows; a leaf
	users  map[string]*account
	vhosts map[*VHost]int // connections
}

// account is what a user has open.
type account struct {
	limits                Limits
	connections, channels int
}

func (s *accounts) of(user string) *account {
	a := s.users[user]
	if a == nil {
		if s.users == nil {
			s.users, s.vhosts = make(map[string]*account), make(map[*VHost]int)
		}
		a = new(account)
		s.users[user] = a
	}
	return a
}

// tidy forgets an account that says nothing.
func (s *accounts) tidy(user string) {
	if a := s.users[user]; a != nil && a.connections == 0 && a.limits == nil {
		delete(s.users, user)
	}
}

func (s *accounts) limit(user string, l Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(user).limits = l
	s.tidy(user)
}

// Admission is the place of an open connection among those that limits count. Its methods may be called concurrently.
type Admission struct {
	VHost *VHost

	accounts *accounts
	user     string
	channels int  // guarded by accounts.mu
	ended    bool // the same
}

// Open admits a connection of u to a virtual host, or returns the error that connection.open is answered with.
func (b *Broker) Open(vhost string, u *User) (*Admission, *amqp.Error) {
	v := b.VHost(vhost)
	if v == nil {
		return nil, amqp.Errorf(amqp.NotAllowed, "vhost %s not found", vhost)
	}
	limits, admitted := v.Limits(), v.Admits(u)
	s := &b.accounts
	s.mu.Lock()
	defer s.mu.Unlock()
	account := s.of(u.Name)
	defer s.tidy(u.Name)
	if limit, reached := limits.reached(maxConnections, s.vhosts[v]); reached {
		return nil, amqp.Errorf(amqp.NotAllowed, "access to vhost '%s' refused for user '%s': connection limit (%d) is reached", vhost, u.Name, limit)
	}
	if limit, reached := account.limits.reached(maxConnections, account.connections); reached {
		return nil, amqp.Errorf(amqp.NotAllowed, "connection refused for user '%s': user connection limit (%d) is reached", u.Name, limit)
	}
	if !admitted {
		return nil, amqp.Errorf(amqp.NotAllowed, "access to vhost '%s' refused for user '%s'", vhost, u.Name)
	}
	s.vhosts[v]++
	account.connections++
	return &Admission{VHost: v, accounts: s, user: u.Name}, nil
}

// OpenChannel counts one more channel, or returns the error (530) if the user may have no more.
func (a *Admission) OpenChannel() *amqp.Error {
	s := a.accounts
	s.mu.Lock()
	defer s.mu.Unlock()
	account := s.of(a.user)
	if limit, reached := account.limits.reached(maxChannels, account.channels); reached {
		return amqp.Errorf(amqp.NotAllowed, "number of channels opened for user '%s' has reached the maximum allowed user limit of %d", a.user, limit)
	}
	a.channels++
	account.channels++
	return nil
}

// CloseChannel counts one channel less.
func (a *Admission) CloseChannel() {
	a.accounts.mu.Lock()
	defer a.accounts.mu.Unlock()
	if a.channels > 0 {
		a.channels--
		a.accounts.of(a.user).channels--
	}
}

// End gives the place, and those of channels still open, to others. It may be called again, and on nil.
func (a *Admission) End() {
	if a == nil {
		return
	}
	s := a.accounts
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.ended {
		return
	}
	a.ended = true
	if s.vhosts[a.VHost]--; s.vhosts[a.VHost] == 0 {
		delete(s.vhosts, a.VHost)
	}
	account := s.of(a.user)
	account.connections--
	account.channels -= a.channels
	a.channels = 0
	s.tidy(a.user)
}
