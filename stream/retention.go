package stream

// Limits are what retention keeps. Each limit is off when it is 0. (An x-max-length-bytes of 0 keeps the newest segment, as 1
// does.)
type Limits struct {
	Bytes int64 // octets of segments (x-max-length-bytes, max-length-bytes)
	Age   int64 // milliseconds (x-max-age, max-age)
}

// Retain decides which segment is the first to stay, and returns its first offset, for Log.Cut. segs are a log's segments; now
// is in milliseconds since 1970. First the sizes count: the newest stays, and those before it as long as all that stay are
// within Bytes together. Then, from the old end, those go whose last chunk is older than Age. The newest always stays, whole
// segments go or stay, so that more may stay than the limits say (RabbitMQ docs: streams, retention). An empty log is 0.
func Retain(segs []SegmentInfo, l Limits, now int64) (first uint64) {
	if len(segs) == 0 {
		return 0
	}
	newest := len(segs) - 1
	keep := 0
	if l.Bytes > 0 {
		total := segs[newest].Size
		for keep = newest; keep > 0 && total+segs[keep-1].Size <= l.Bytes; keep-- {
			total += segs[keep-1].Size
		}
	}
	if l.Age > 0 {
		for keep < newest && segs[keep].LastTime < now-l.Age {
			keep++
		}
	}
	return segs[keep].First
}
