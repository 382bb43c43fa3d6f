package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is the version of Warren that this is, or becomes.
const release = "0.1.0"

// behavesAs is the version of RabbitMQ whose behaviour, API and formats this is.
const behavesAs = "4.3.6"

// build is what a binary knows of its making.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	return b
}

func (b build) String() string {
	commit := ""
	if b.Commit != "" {
		commit = ", commit " + b.Commit[:min(len(b.Commit), 12)]
		if b.Modified {
			commit += " with changes"
		}
	}
	return fmt.Sprintf("warren %s (%s %s%s)", b.Version, b.Go, b.Platform, commit)
}

func (p *program) versionCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary",
		Long:    "Print the version of this binary. No node is asked; 'warren status' shows the version of a running one.",
		Example: "  warren version\n  warren version --format json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch format {
			case "", "table", "pretty_table":
				fmt.Fprintln(p.out, thisBuild())
				return nil
			case "json":
				return printJSON(p.out, thisBuild())
			}
			return usage("there is no format %q for a version; formats are table and json", format)
		},
	}
	c.Flags().StringVar(&format, "format", "", "table or json")
	return c
}
