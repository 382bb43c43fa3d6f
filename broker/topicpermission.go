package broker

import (
	"maps"
	"slices"
)

// UserTopicPermissions is a user's entry for a topic exchange of a virtual host.
type UserTopicPermissions struct{ VHost, User, Exchange, Write, Read string }

// TopicPermissions lists who has topic permissions in v, by user name and exchange.
func (v *VHost) TopicPermissions() []UserTopicPermissions {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var list []UserTopicPermissions
	for _, user := range slices.Sorted(maps.Keys(v.topics)) {
		of := v.topics[user]
		for _, exchange := range slices.Sorted(maps.Keys(of)) {
			p := of[exchange]
			list = append(list, UserTopicPermissions{v.Name, user, exchange, p.Write, p.Read})
		}
	}
	return list
}

// ClearTopicPermissions takes a user's topic permissions for one exchange of v away, or those for all.
func (v *VHost) ClearTopicPermissions(user, exchange string, all bool, done func(error)) {
	done = v.broker.synced(done)
	v.broker.commit(ClearTopicPermissions{VHost: v.Name, User: user, Exchange: exchange, All: all}, func(r result) { done(orNil(r.refused)) })
}
