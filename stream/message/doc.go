// Package message is what the entries of a stream are: AMQP 1.0 messages, whoever published them. It writes an AMQP 0-9-1
// message as one when it is published, and makes an AMQP 0-9-1 message of any when it is delivered, by RabbitMQ's rules, so
// that clients of all protocols read what the others wrote.
//
//	entry    section | section | …      those that have nothing in them are left out
//	  header                 durable, priority, ttl, first-acquirer, delivery-count
//	  message-annotations    headers whose keys begin with "x-"; x-exchange, x-routing-key, x-cc, x-basic-type, x-opt-deaths
//	  properties             message-id, user-id, reply-to, correlation-id, content-type and -encoding, timestamp, app-id
//	  application-properties all other headers, but for tables, arrays and decimals
//	  data                   the body
//
// It keeps no state and does no I/O. No bytes make it panic.
package message
