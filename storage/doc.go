// Package storage keeps bytes on a node's disk: the journal, which everything durable enters first, in the order in which
// it happened, synced in groups; runs, sorted files that what is still alive moves to when the journal is cut; and a small
// ordered key-value store for what must change atomically.
//
// It knows logs, sequences and octets, not messages, queues or brokers. All files are reached through FS, so that tests can
// lose what was not synced, tear what was being written, and fail what should succeed.
//
// See docs/design/storage.md for how they play together. The formats are drawn where they are kept.
package storage
