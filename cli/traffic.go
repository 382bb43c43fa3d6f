package cli

import (
	"iter"

	"github.com/warrenmq/warren/management"
)

// connectionName is the name of a connection by its number.
func (r *rooms) connectionName(uint64) string { return "" }

// Totals implements management.Broker.
func (r *rooms) Totals() (t management.Totals) { return t }

// Counts implements management.Broker.
func (r *rooms) Counts(*management.Counts) {}

// Connections implements management.Broker.
func (r *rooms) Connections() iter.Seq[*management.Connection] {
	return func(func(*management.Connection) bool) {}
}

// Connection implements management.Broker.
func (r *rooms) Connection(string, *management.Connection) bool { return false }

// CloseConnection implements management.Broker.
func (r *rooms) CloseConnection(string, string) bool { return false }

// Channels implements management.Broker.
func (r *rooms) Channels() iter.Seq[*management.Channel] {
	return func(func(*management.Channel) bool) {}
}

// Consumers implements management.Broker.
func (r *rooms) Consumers(string) iter.Seq[*management.Consumer] {
	return func(func(*management.Consumer) bool) {}
}
