package broker

import (
	"cmp"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash"
	"slices"
)

// User is an internal user. It is not changed after it was made: a change makes another.
type User struct {
	Name string
	// Hash is 4 octets of salt followed by the hash of salt and password; empty: the user has no password and cannot
	// log in with one.
	Hash      []byte
	Algorithm Algorithm
	Tags      []string
}

// Algorithm is the hash function of a password.
type Algorithm uint8

const (
	SHA256 Algorithm = iota
	SHA512
	MD5
)

// String is RabbitMQ's name of the algorithm.
func (a Algorithm) String() string {
	return [...]string{"rabbit_password_hashing_sha256", "rabbit_password_hashing_sha512", "rabbit_password_hashing_md5"}[a]
}

func (a Algorithm) new() hash.Hash {
	switch a {
	case SHA512:
		return sha512.New()
	case MD5:
		return md5.New()
	}
	return sha256.New()
}

const saltSize = 4

// HashPassword returns the salted SHA-256 of a password as RabbitMQ stores it.
func HashPassword(password string) []byte {
	salt := make([]byte, saltSize)
	rand.Read(salt)
	return saltedHash(SHA256, salt, password)
}

func saltedHash(a Algorithm, salt []byte, password string) []byte {
	h := a.new()
	h.Write(salt)
	h.Write([]byte(password))
	return h.Sum(slices.Clone(salt))
}

// Is reports whether the user has the tag.
func (u *User) Is(tag string) bool { return slices.Contains(u.Tags, tag) }

func (u *User) checkPassword(password string) bool {
	if len(u.Hash) < saltSize {
		return false
	}
	return subtle.ConstantTimeCompare(saltedHash(u.Algorithm, u.Hash[:saltSize], password), u.Hash) == 1
}

// ErrCredentials refuses a login with an unknown user or a wrong or empty password.
var ErrCredentials = errors.New("invalid credentials")

// Authenticate returns the user that logs in with a password. loopback tells whether it does so from this machine. The
// error is for the log; a client learns nothing of it.
func (b *Broker) Authenticate(name, password string, loopback bool) (*User, error) {
	b.Counters.AuthAttempts.Add(1)
	u, err := b.authenticate(name, password)
	if err == nil {
		err = b.CheckLoopback(u, loopback)
	}
	if err != nil {
		b.Counters.AuthFailed.Add(1)
		return nil, err
	}
	b.Counters.AuthSucceeded.Add(1)
	return u, nil
}

func (b *Broker) authenticate(name, password string) (*User, error) {
	u := b.User(name)
	known := u != nil
	if !known { // takes as long as for a known user
		u = &User{Hash: make([]byte, saltSize+sha256.Size)}
	}
	if !u.checkPassword(password) || !known || password == "" {
		return nil, fmt.Errorf("user '%s': %w", name, ErrCredentials)
	}
	return u, nil
}

// CheckLoopback returns an error if the user may log in from this machine only and does not.
func (b *Broker) CheckLoopback(u *User, loopback bool) error {
	if !loopback && b.loopback[u.Name] {
		return fmt.Errorf("user '%s' can only connect via localhost", u.Name)
	}
	return nil
}

// User finds a user, nil if there is none.
func (b *Broker) User(name string) *User {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.users[name]
}

// Users lists the users by name.
func (b *Broker) Users() []*User {
	b.mu.RLock()
	defer b.mu.RUnlock()
	list := make([]*User, 0, len(b.users))
	for _, u := range b.users {
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b *User) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// PutUser makes or replaces a user.
func (b *Broker) PutUser(u User, done func(error)) {
	done = b.synced(done)
	b.commit(PutUser{u}, func(r result) { done(orNil(r.refused)) })
}

// DeleteUser removes a user. done hears whether it existed. For its connections see Options.UserDeleted.
func (b *Broker) DeleteUser(name string, done func(existed bool, err error)) {
	b.commit(DeleteUser{name}, func(r result) {
		b.removed(func(existed bool, err error) {
			if existed && !r.carried && err == nil && b.UserDeleted != nil {
				b.UserDeleted(name)
			}
			done(existed, err)
		})(r)
	})
}

// removed is the end of a command that removed something, when that is durable.
func (b *Broker) removed(done func(existed bool, err error)) func(result) {
	return func(r result) { b.synced(func(err error) { done(r.existed, err) })(orNil(r.refused)) }
}
