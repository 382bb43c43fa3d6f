// Package stream is streams: sequences of messages that any number of readers read from any place. It builds chunks and takes
// them apart, keeps them in segments with an index of offsets and times, finds where a reader starts, reads with memory that
// all readers share, decides what retention removes, and counts how far consumers have come.
//
// It knows neither Raft nor brokers: what is appended, and when it must be synced, is said by others, and everything that
// replicas must agree on follows from the bytes appended and the commands given. It starts no goroutines.
//
//	chunk      header 48 | entries | bloom filter | checksum u32
//	  header   0x50 | type u8 | entries u16 | records u32 | time i64 ms | epoch u64 | first offset u64 |
//	           CRC-32 of the entries u32 | their length u32 | trailer length u32 = 0 | filter's length u8 | 0 u24
//	  checksum CRC-32C of header and filter
//	entry      length u31 | body                                                     one record
//	           1, compression u3, 0 u4 | records u16 | length when expanded u32 | length u32 | body   a sub-batch
//
// All numbers are big endian. Header and entries are what the stream protocol's Deliver carries. The files are drawn in
// segment.go and index.go; docs/design/streams.md tells why.
package stream
