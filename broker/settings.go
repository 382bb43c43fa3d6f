package broker

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// Settings are what counts for a queue in the end.
type Settings struct {
	Config      queue.Config
	MaxPriority int   // 0: no priorities
	Expires     int64 // milliseconds unused until the queue is deleted, -1: never

	DeadLetter         bool // whether there is a dead-letter exchange
	DeadLetterExchange string
	RouteDeadLetters   bool // whether dead letters get a routing key of their own
	DeadLetterKey      string
}

// effective works out the settings of a queue from its arguments. (Policies will join them here.)
func effective(args amqp.Table) *Settings {
	s := &Settings{
		Config: queue.Config{
			TTL:           integer(args, "x-message-ttl", -1),
			MaxLength:     integer(args, "x-max-length", -1),
			MaxBytes:      integer(args, "x-max-length-bytes", -1),
			DeliveryLimit: integer(args, "x-delivery-limit", 20),
		},
		Expires: integer(args, "x-expires", -1),
	}
	switch str, _ := text(args, "x-overflow"); str {
	case "reject-publish":
		s.Config.Overflow = queue.RejectPublish
	case "reject-publish-dlx":
		s.Config.Overflow = queue.RejectPublishDLX
	}
	if v, ok := args.Get("x-single-active-consumer"); ok {
		s.Config.SingleActive, _ = v.Bool()
	}
	if n := integer(args, "x-max-priority", -1); n >= 0 {
		s.MaxPriority = int(max(n, 1))
	}
	s.DeadLetterExchange, s.DeadLetter = text(args, "x-dead-letter-exchange")
	s.DeadLetterKey, s.RouteDeadLetters = text(args, "x-dead-letter-routing-key")
	return s
}

func integer(t amqp.Table, name string, otherwise int64) int64 {
	v, _ := t.Get(name)
	if n, ok := v.Int(); ok {
		return n
	}
	return otherwise
}

func text(t amqp.Table, name string) (string, bool) {
	v, _ := t.Get(name)
	s, ok := v.Str()
	return string(s), ok
}
