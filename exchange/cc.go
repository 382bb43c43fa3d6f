package exchange

import "github.com/warrenmq/warren/amqp"

// The headers with further routing keys (RabbitMQ docs: sender-selected). The second is taken away before the message is
// stored.
const (
	CC  = "CC"
	BCC = "BCC"
)

// AppendKeys appends the routing keys in the header CC or BCC of a message, views into the table. A header that is no
// array is an error; elements that are no long strings are passed over.
func AppendKeys(dst [][]byte, headers amqp.Table, header string) ([][]byte, *amqp.Error) {
	v, ok := headers.Get(header)
	if !ok {
		return dst, nil
	}
	list, ok := v.Array()
	if !ok {
		return dst, amqp.Errorf(amqp.PreconditionFailed, "invalid message: {unacceptable_type_in_header,\"%s\",%s}", header, v.TypeName())
	}
	for e := range list.All() {
		if key, ok := e.Str(); ok {
			dst = append(dst, key)
		}
	}
	return dst, nil
}
