package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// deed is a command that changes something on a node. It has two faces: a verb of Warren's tree, and the command of RabbitMQ's tools that
// does the same, with that tool's arguments and banner.
type deed struct {
	use, short, long, example string
	args                      cobra.PositionalArgs
	hosted                    bool // takes --vhost
	// question is asked on a terminal before anything happens; nil: never.
	question func(d *deed, args []string) string
	// flags adds more flags.
	flags func(d *deed, c *cobra.Command)
	do    func(d *deed, args []string) error

	// What do works with.
	*program
	cmd    *cobra.Command
	client client
	vhost  string
	yes    bool
	quiet  bool
	silent bool
	rabbit bool // RabbitMQ's face
}

// command makes a command of a deed.
func (p *program) command(d deed) *cobra.Command {
	k := &d
	k.program = p
	c := &cobra.Command{Use: k.use, Short: k.short, Long: k.long, Example: k.example, Args: k.args}
	k.cmd = c
	c.RunE = func(_ *cobra.Command, args []string) error {
		if k.question != nil && p.terminal && !k.yes && !k.rabbit && !p.confirmed(k.question(k, args)) {
			return &failure{code: exitUsage, text: "nothing was changed"}
		}
		return k.do(k, args)
	}
	k.client.flags(p, c)
	if k.hosted {
		c.Flags().StringVarP(&k.vhost, "vhost", "p", "/", "virtual host")
	}
	if k.question != nil && !k.rabbit {
		c.Flags().BoolVarP(&k.yes, "yes", "y", false, "do not ask")
	}
	if k.rabbit {
		c.Hidden = true
		c.Short = "As rabbitmqctl " + strings.Fields(k.use)[0]
		c.Flags().BoolVarP(&k.quiet, "quiet", "q", false, "no banner")
		c.Flags().BoolVarP(&k.silent, "silent", "s", false, "no banner")
	}
	if k.flags != nil {
		k.flags(k, c)
	}
	return c
}

// ctl is a deed under the name and the arguments of RabbitMQ's tool.
func ctl(use string, args cobra.PositionalArgs, hosted bool, do func(d *deed, args []string) error) deed {
	return deed{use: use, args: args, hosted: hosted, rabbit: true, do: do}
}

// banner says what is being done, as RabbitMQ's tools do, which put quotes around texts and leave those inside alone.
func (d *deed) banner(format string, a ...any) {
	if d.rabbit && !d.quiet && !d.silent {
		fmt.Fprintf(d.out, format+" ...\n", a...)
	}
}

// ask sends a request; what names the thing that it is about, for when there is none.
func (d *deed) ask(method string, path []string, body, into any, what string) error {
	err := d.client.send(d.program, d.cmd, method, path, nil, nil, body, into)
	return missing(err, what)
}

// missing makes an answer that there is no such thing say which thing.
func missing(err error, what string) error {
	if f, ok := err.(*failure); ok && f.missing && what != "" {
		f.text = "there is no " + what
		if strings.HasPrefix(what, "user ") {
			f.code = exitNoUser
		}
	}
	return err
}

// inVHost names a thing in the deed's virtual host.
func (d *deed) inVHost(format string, a ...any) string {
	return fmt.Sprintf(format, a...) + fmt.Sprintf(" in virtual host %q, or no such virtual host", d.vhost)
}

// object reads a JSON object from an argument.
func (d *deed) object(text, what string) (map[string]any, error) {
	v, err := value(text)
	object, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, &failure{code: exitData, text: fmt.Sprintf("%s is no JSON object: %s", what, text), remedy: `Write it like '{"max-length":1000}', in single quotes so that the shell leaves it alone.`}
	}
	return object, nil
}

// value reads JSON from an argument.
func value(text string) (v any, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err = decoder.Decode(&v); err == nil && decoder.More() {
		err = fmt.Errorf("more than one value")
	}
	return v, err
}

// pairs reads arguments of the form name=value; a value is JSON, or text if it is none.
func pairs(list []string) (map[string]any, error) {
	out := map[string]any{}
	for _, item := range list {
		name, text, found := strings.Cut(item, "=")
		if !found || name == "" {
			return nil, usage("%q is not of the form NAME=VALUE", item)
		}
		v, err := value(text)
		if err != nil {
			v = text
		}
		out[name] = v
	}
	return out, nil
}
