package cli

import (
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/management"
)

// queueWait is how long a request of the management API waits for a queue, which may live elsewhere: as long as RabbitMQ lets a
// command to a quorum queue take.
const queueWait = 30 * time.Second

// await takes a queue's answer, unless it does not come in time.
func await[T any](answer <-chan T, wait time.Duration) (v T, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case v = <-answer:
		return v, nil
	case <-timer.C:
		return v, &management.Refusal{Code: amqp.InternalError, Text: "the queue does not answer; a majority of its nodes may be away"}
	}
}
