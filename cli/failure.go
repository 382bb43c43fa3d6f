package cli

import "fmt"

// The codes to exit with are those of sysexits.h, as in RabbitMQ's tools.
const (
	exitUsage       = 64 // the command line is wrong
	exitData        = 65 // an argument names something wrong or missing
	exitNoUser      = 67 // there is no such user
	exitUnavailable = 69 // no node answers, or a check failed
	exitSoftware    = 70 // the node failed
	exitDisk        = 74 // the disk failed, and the node stopped
	exitTemporary   = 75 // it took too long
	exitPermission  = 77 // wrong credentials, or not allowed
	exitConfig      = 78 // the configuration is wrong
)

// failure is an error with the code to exit with. text says what happened to what, remedy what to do about it.
type failure struct {
	code         int
	text, remedy string
	err          error
	missing      bool   // what was asked for does not exist
	body         []byte // of the answer that refused
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

func usage(format string, a ...any) *failure {
	return &failure{code: exitUsage, text: fmt.Sprintf(format, a...)}
}
