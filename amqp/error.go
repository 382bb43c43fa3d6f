package amqp

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Reply codes (AMQP 0-9-1 §1.1, constants of class "soft-error" and
// "hard-error").
const (
	ReplySuccess       uint16 = 200
	ContentTooLarge    uint16 = 311
	NoRoute            uint16 = 312
	NoConsumers        uint16 = 313
	ConnectionForced   uint16 = 320
	InvalidPath        uint16 = 402
	AccessRefused      uint16 = 403
	NotFound           uint16 = 404
	ResourceLocked     uint16 = 405
	PreconditionFailed uint16 = 406
	FrameError         uint16 = 501
	SyntaxError        uint16 = 502
	CommandInvalid     uint16 = 503
	ChannelError       uint16 = 504
	UnexpectedFrame    uint16 = 505
	ResourceError      uint16 = 506
	NotAllowed         uint16 = 530
	NotImplemented     uint16 = 540
	InternalError      uint16 = 541
)

// CodeName is the name that the reply texts of a code begin with, such as
// "NOT_FOUND", or the number when AMQP does not know the code.
func CodeName(code uint16) string {
	switch code {
	case ReplySuccess:
		return "REPLY_SUCCESS"
	case ContentTooLarge:
		return "CONTENT_TOO_LARGE"
	case NoRoute:
		return "NO_ROUTE"
	case NoConsumers:
		return "NO_CONSUMERS"
	case ConnectionForced:
		return "CONNECTION_FORCED"
	case InvalidPath:
		return "INVALID_PATH"
	case AccessRefused:
		return "ACCESS_REFUSED"
	case NotFound:
		return "NOT_FOUND"
	case ResourceLocked:
		return "RESOURCE_LOCKED"
	case PreconditionFailed:
		return "PRECONDITION_FAILED"
	case FrameError:
		return "FRAME_ERROR"
	case SyntaxError:
		return "SYNTAX_ERROR"
	case CommandInvalid:
		return "COMMAND_INVALID"
	case ChannelError:
		return "CHANNEL_ERROR"
	case UnexpectedFrame:
		return "UNEXPECTED_FRAME"
	case ResourceError:
		return "RESOURCE_ERROR"
	case NotAllowed:
		return "NOT_ALLOWED"
	case NotImplemented:
		return "NOT_IMPLEMENTED"
	case InternalError:
		return "INTERNAL_ERROR"
	}
	return strconv.Itoa(int(code))
}

// An Error is a failure as channel.close and connection.close carry it.
type Error struct {
	Code   uint16
	Text   string // at most 255 bytes of UTF-8
	Class  uint16 // of the failing method, 0 when there is none
	Method uint16
}

// Errorf makes an Error whose text is the name of the code and an explanation,
// "NOT_FOUND - no queue 'a'", or the bare name when the explanation is empty.
// A text of more than 255 bytes is cut and ends in "..."; bytes that are no
// UTF-8 become U+FFFD.
func Errorf(code uint16, format string, args ...any) *Error {
	text := CodeName(code)
	if explanation := fmt.Sprintf(format, args...); explanation != "" {
		text += " - " + explanation
	}
	return &Error{Code: code, Text: ReplyText(text)}
}

// ReplyText makes a reply text fit its short string: at most 255 bytes of
// UTF-8, ending in "..." when it had to be cut.
func ReplyText(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= MaxShortstr {
		return text
	}
	end := MaxShortstr - len("...")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}

// Error is the reply text.
func (e *Error) Error() string { return e.Text }

// Name is the name of the code.
func (e *Error) Name() string { return CodeName(e.Code) }

// Hard reports whether the code closes the connection rather than the channel.
// On channel 0 every error does, and during the handshake so does 403; that is
// for the caller to know.
func (e *Error) Hard() bool {
	switch e.Code {
	case ContentTooLarge, NoRoute, NoConsumers, AccessRefused, NotFound, ResourceLocked, PreconditionFailed:
		return false
	}
	return true
}

// In returns a copy of e that names the method it happened in.
func (e *Error) In(id MethodID) *Error {
	c := *e
	c.Class, c.Method = id.Class(), id.Method()
	return &c
}

// ErlangBinary renders bytes as RabbitMQ's reply texts do: <<"text">> when all
// of them are printable ASCII, <<0,60,0>> otherwise. The rendering is at least
// as long as b; see [Error] for what a text can hold.
func ErlangBinary(b []byte) string {
	if len(b) == 0 {
		return "<<>>"
	}
	out := append(make([]byte, 0, 4*len(b)+4), "<<"...)
	if quoted, ok := appendErlangString(out, b); ok {
		return string(append(quoted, ">>"...))
	}
	for i, c := range b {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendUint(out, uint64(c), 10)
	}
	return string(append(out, ">>"...))
}

// appendErlangString appends b in double quotes, and fails when a byte of it
// has no place there.
func appendErlangString(dst, b []byte) ([]byte, bool) {
	dst = append(dst, '"')
	for _, c := range b {
		if i := strings.IndexByte("\"\\\n\r\t\v\b\f\x1b", c); i >= 0 {
			dst = append(dst, '\\', "\"\\nrtvbfe"[i])
		} else if c >= ' ' && c <= '~' {
			dst = append(dst, c)
		} else {
			return nil, false
		}
	}
	return append(dst, '"'), true
}
