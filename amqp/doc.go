// Package amqp is the wire format of AMQP 0-9-1 as RabbitMQ speaks it: frames,
// methods, content headers, field tables and the errors that close a channel
// or a connection.
//
//	frame    type:u8 channel:u16 size:u32 payload[size] end:u8=0xCE
//	  method   class:u16 method:u16 arguments
//	  header   class:u16 weight:u16 body-size:u64 property-flags:u16 properties
//	  body     bytes
//	table    (key:shortstr tag:u8 value)*        after its u32 length
//	array    (tag:u8 value)*                     after its u32 length
//
// Everything is big endian. There are no reader or writer objects: decoding
// fills a struct that the caller reuses, or gives a view into the bytes it was
// given, and encoding appends to a slice. Whatever is a view says so, and lives
// as long as its source is left unchanged.
//
// The package owns the bytes and nothing else. It never does I/O, keeps no
// state between calls and decides nothing about a connection: what a malformed
// frame leads to is its caller's business, though the errors carry the reply
// that RabbitMQ would send. Its functions may be called concurrently as long as
// nobody changes the slices and structs given to them.
//
// No input makes a decoding function panic. Encoding has one precondition: a
// short string holds at most [MaxShortstr] bytes. Where its length may depend
// on a user, check it first; Append of a method and the builders of [Table]
// panic on a longer one, because a shortened name would be another name.
// Functions that build from foreign data ([TableOf], [AppendHeader],
// [Header.AppendChanged]) return [ErrTooLong] instead.
package amqp

//go:generate go run ./internal/gen
