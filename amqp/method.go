package amqp

import (
	"encoding/binary"
	"errors"
	"strconv"
	"unicode/utf8"
)

// A MethodID is a class id and, in the lower half, a method id.
type MethodID uint32

// Class is the class id.
func (id MethodID) Class() uint16 { return uint16(id >> 16) }

// Method is the method id within its class.
func (id MethodID) Method() uint16 { return uint16(id) }

func (id MethodID) numbers() string {
	return strconv.Itoa(int(id.Class())) + "." + strconv.Itoa(int(id.Method()))
}

// The class ids.
const (
	ClassConnection = 10
	ClassChannel    = 20
	ClassAccess     = 30
	ClassExchange   = 40
	ClassQueue      = 50
	ClassBasic      = 60
	ClassConfirm    = 85
	ClassTx         = 90
)

// A Method is a pointer to one of the method structs.
//
// Decode reads the arguments, what follows the two ids in a method frame, and
// leaves nothing of them. Its error is [ErrArguments], [ErrUTF8] or [ErrTable],
// and the struct's contents are undefined then. Tables, and the []byte fields
// of basic.publish, basic.return, basic.deliver and basic.get-ok, are views
// into args. Tables are valid.
//
// Append appends the class id, the method id and the arguments. It panics when
// a short string is longer than [MaxShortstr].
type Method interface {
	ID() MethodID
	Decode(args []byte) error
	Append(dst []byte) []byte
}

// The ways in which a method can be malformed. [DecodeError] tells what
// RabbitMQ replies to each.
var (
	// ErrArguments means that arguments are missing or left over.
	ErrArguments = errors.New("amqp: method arguments do not fit the method")
	// ErrUTF8 means that a short string is not UTF-8.
	ErrUTF8 = errors.New("amqp: malformed UTF-8 in shortstr")
	// ErrTable means that a field table is malformed.
	ErrTable = errors.New("amqp: malformed field table")
	// ErrUnknownMethod means that no method has this id.
	ErrUnknownMethod = errors.New("amqp: unknown method")
)

// ErrTooLong means that a short string would be longer than [MaxShortstr].
var ErrTooLong = errors.New("amqp: short string longer than 255 bytes")

// MaxShortstr is the greatest length of a short string in bytes.
const MaxShortstr = 255

// SplitMethod splits the payload of a method frame into the method's id and its
// arguments, a view into payload. [ParseFrame] has seen to it that payload has
// four bytes; a shorter one gives [ErrArguments].
func SplitMethod(payload []byte) (id MethodID, args []byte, err error) {
	if len(payload) < 4 {
		return 0, nil, ErrArguments
	}
	return MethodID(binary.BigEndian.Uint32(payload)), payload[4:], nil
}

// DecodeMethod decodes the payload of a method frame into a new struct. It
// gives [ErrUnknownMethod] for an id that [NewMethod] has no struct for.
func DecodeMethod(payload []byte) (Method, error) {
	id, args, err := SplitMethod(payload)
	if err != nil {
		return nil, err
	}
	m := NewMethod(id)
	if m == nil {
		return nil, ErrUnknownMethod
	}
	if err := m.Decode(args); err != nil {
		return nil, err
	}
	return m, nil
}

// DecodeError is the hard error with which a server answers a method that did
// not decode, err being what Decode returned for args. RabbitMQ drops the
// connection without an answer after [ErrUnknownMethod], and after [ErrTable]
// in a method of a channel; a caller that wants the same compares err itself.
func DecodeError(id MethodID, args []byte, err error) *Error {
	switch err {
	case ErrUTF8:
		return Errorf(FrameError, "Malformed UTF-8 in shortstr")
	case ErrArguments:
		return Errorf(FrameError, "cannot decode %s", ErlangBinary(args[:min(len(args), MaxShortstr)])).In(id)
	case ErrUnknownMethod:
		return Errorf(CommandInvalid, "unimplemented method").In(id)
	}
	return Errorf(InternalError, "")
}

// noArguments is Decode of methods without arguments.
func noArguments(args []byte) error {
	if len(args) != 0 {
		return ErrArguments
	}
	return nil
}

// A reader takes fields off the front of src and remembers what went wrong. Of
// several faults, missing bytes count before malformed UTF-8, and that before a
// malformed table.
type reader struct {
	src                    []byte
	cut, badUTF8, badTable bool
}

func (r *reader) end() error {
	switch {
	case r.cut || len(r.src) != 0:
		return ErrArguments
	case r.badUTF8:
		return ErrUTF8
	case r.badTable:
		return ErrTable
	}
	return nil
}

// missing notes that src ended within a field.
func (r *reader) missing() {
	r.cut = true
	r.src = nil
}

func (r *reader) octet() byte {
	if len(r.src) < 1 {
		r.missing()
		return 0
	}
	v := r.src[0]
	r.src = r.src[1:]
	return v
}

func (r *reader) short() uint16 {
	if len(r.src) < 2 {
		r.missing()
		return 0
	}
	v := binary.BigEndian.Uint16(r.src)
	r.src = r.src[2:]
	return v
}

func (r *reader) long() uint32 {
	if len(r.src) < 4 {
		r.missing()
		return 0
	}
	v := binary.BigEndian.Uint32(r.src)
	r.src = r.src[4:]
	return v
}

func (r *reader) longlong() uint64 {
	if len(r.src) < 8 {
		r.missing()
		return 0
	}
	v := binary.BigEndian.Uint64(r.src)
	r.src = r.src[8:]
	return v
}

func (r *reader) shortView() []byte {
	src := r.src
	if len(src) < 1 || len(src) <= int(src[0]) {
		r.missing()
		return nil
	}
	n := 1 + int(src[0])
	r.src = src[n:]
	return src[1:n:n]
}

func (r *reader) shortstr() string {
	v := r.shortView()
	r.checkUTF8(v)
	return string(v)
}

func (r *reader) skipShortstr() { r.checkUTF8(r.shortView()) }

func (r *reader) checkUTF8(v []byte) {
	if !utf8.Valid(v) {
		r.badUTF8 = true
	}
}

func (r *reader) longView() []byte {
	n := uint64(r.long())
	if uint64(len(r.src)) < n {
		r.missing()
		return nil
	}
	v := r.src[:n:n]
	r.src = r.src[n:]
	return v
}

func (r *reader) longstr() string { return string(r.longView()) }

func (r *reader) table() Table {
	t := Table(r.longView())
	if t.Validate() != nil {
		r.badTable = true
	}
	return t
}

func appendShortstr[T string | []byte](dst []byte, s T) []byte {
	if len(s) > MaxShortstr {
		panic(ErrTooLong)
	}
	dst = append(dst, byte(len(s)))
	return append(dst, s...)
}

func appendLongstr[T string | []byte](dst []byte, s T) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

func appendTable(dst []byte, t Table) []byte { return appendLongstr(dst, []byte(t)) }
