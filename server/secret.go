package server

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
)

// updateSecret answers connection.update-secret. Passwords are not looked at again, what the user may do is: if it may no
// longer be here the connection ends, and consumers of queues that it may no longer read are cancelled.
func (c *conn) updateSecret() {
	u := c.server.broker.User(c.user.Name)
	if u == nil || !c.vhost.Admits(u) {
		c.fail(amqp.Errorf(amqp.NotAllowed, "access to vhost '%s' refused for user '%s'", c.vhost.Name, c.user.Name).In(amqp.ConnectionUpdateSecretID))
		return
	}
	c.mu.Lock()
	c.user = u
	c.mu.Unlock()
	for _, ch := range c.channels {
		for _, k := range ch.unreadable(u) {
			k.of.Detach(k.id, queue.Cancel, &c.wake, func() {
				c.post(func() { k.Cancelled(&c.wake) })
			})
		}
	}
	c.send(&amqp.ConnectionUpdateSecretOk{})
}

// unreadable are the consumers of queues that u may not read.
func (ch *channel) unreadable(u *broker.User) (list []*consumer) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, k := range ch.consumers {
		if k.of != nil && !k.of.VHost.MayRead(u, k.of.Name) {
			list = append(list, k)
		}
	}
	return list
}
