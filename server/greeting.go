package server

import (
	"crypto/tls"
	"slices"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// greeting is what every connection of a kind is greeted with. It is made once.
type greeting struct {
	mechanisms []string // those offered
	start      []byte   // the frame of connection.start
}

// known are the mechanisms that newSASL has.
var known = []string{"PLAIN", "AMQPLAIN", "ANONYMOUS", "EXTERNAL", "RABBIT-CR-DEMO"}

func (o *Options) greeting(encrypted bool) (g greeting) {
	for _, m := range o.Mechanisms {
		if m == "EXTERNAL" && !encrypted || !slices.Contains(known, m) {
			continue
		}
		g.mechanisms = append(g.mechanisms, m)
	}
	g.start = amqp.AppendMethodFrame(nil, 0, &amqp.ConnectionStart{
		VersionMajor: 0, VersionMinor: 9,
		ServerProperties: o.properties(),
		Mechanisms:       strings.Join(g.mechanisms, " "),
		Locales:          "en_US",
	})
	return g
}

// properties are announced to clients.
func (o *Options) properties() amqp.Table {
	var can amqp.Table
	for _, name := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
		"consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
	} {
		can = can.AppendBool(name, true)
	}
	return amqp.Table(nil).
		AppendTable("capabilities", can).
		AppendString("cluster_name", o.ClusterName).
		AppendString("copyright", "The Warren authors").
		AppendString("information", "An AMQP 0-9-1 broker. See the documentation that came with it.").
		AppendString("platform", "Go").
		AppendString("product", o.Product).
		AppendString("version", o.Version)
}

func (c *conn) greeting() *greeting {
	if _, encrypted := c.socket.(*tls.Conn); encrypted {
		return &c.server.encrypted
	}
	return &c.server.plain
}
