package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// newPassword is where a password that is to be set comes from. It is asked for on a terminal, and otherwise read from the input, so that
// no command line shows it.
type newPassword struct {
	file   string
	hashed bool
	none   bool
}

func (n *newPassword) flags(c *cobra.Command) {
	c.Flags().StringVar(&n.file, "new-password-file", "", "file whose first line is the new password; without it, it is asked for, or read from the input")
	c.Flags().BoolVar(&n.hashed, "hashed", false, "the text is no password but the hash of one, as definitions show it")
	c.Flags().BoolVar(&n.none, "no-password", false, "the user has no password and cannot log in with one")
}

// into puts the password into the body of a request.
func (n *newPassword) into(p *program, body map[string]any) error {
	if n.none {
		return nil // neither password nor hash: no password
	}
	text, err := n.read(p)
	switch {
	case err != nil:
		return err
	case text == "":
		return &failure{code: exitUsage, text: "the new password is empty", remedy: "Write it to the input or to a file (--new-password-file), or say --no-password."}
	case n.hashed:
		body["password_hash"] = text
	default:
		body["password"] = text
	}
	return nil
}

func (n *newPassword) read(p *program) (string, error) {
	if n.file != "" {
		text, err := os.ReadFile(n.file)
		if err != nil {
			return "", &failure{code: exitUsage, text: "cannot read the new password: " + err.Error(), err: err}
		}
		line, _, _ := strings.Cut(string(text), "\n")
		return strings.TrimSuffix(line, "\r"), nil
	}
	if in, ok := p.in.(*os.File); ok && isTerminal(in) {
		fmt.Fprint(p.err, "New password: ")
		defer fmt.Fprintln(p.err)
		defer silence(in)()
	}
	line, err := bufio.NewReader(p.in).ReadString('\n')
	if line == "" && err != nil {
		return "", nil // nothing there
	}
	return strings.TrimRight(line, "\r\n"), nil
}
