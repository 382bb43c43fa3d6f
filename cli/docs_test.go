package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain makes the test's binary a `warren` for the shell: the examples of the documentation call one.
func TestMain(m *testing.M) {
	if os.Getenv("WARREN_TEST_COMMAND") != "" {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// example is a block of commands in a page, and the block of output that follows it.
type example struct {
	line      int
	run, want string
}

// examples are the fenced blocks marked sh, each with the one marked text that comes next to it.
func examples(page string) (list []example) {
	var kind string
	var body []string
	for i, line := range strings.Split(page, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && kind == "":
			kind, body = fence, nil
			if fence == "" {
				kind = "none"
			}
		case isFence:
			text := strings.Join(body, "\n") + "\n"
			if kind == "sh" {
				list = append(list, example{line: i + 1 - len(body), run: text})
			} else if kind == "text" && len(list) > 0 {
				list[len(list)-1].want = text
			}
			kind = ""
		case kind != "":
			body = append(body, line)
		}
	}
	return list
}

// The examples of the pages for users are run as they stand, each page on a node of its own, and print what the pages say.
func TestExamplesOfThePages(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell to run the examples with: ", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"access-control.md", "policies.md", "definitions.md", "http-api.md", "quorum-queues.md", "streams.md", "cluster.md"} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "docs", page))
			if err != nil {
				t.Fatal(err)
			}
			found := examples(string(text))
			if len(found) == 0 {
				t.Fatal("no examples")
			}
			node := runNode(t)
			dir := t.TempDir()
			warren := fmt.Sprintf("#!%s\nWARREN_TEST_COMMAND=1 exec '%s' \"$@\"\n", shell, self)
			if err := os.WriteFile(filepath.Join(dir, "warren"), []byte(warren), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, e := range found {
				script := strings.ReplaceAll(e.run, "http://127.0.0.1:15672", node.url)
				if strings.Contains(script, "curl ") {
					if _, err := exec.LookPath("curl"); err != nil {
						t.Skip("there is no curl to run the examples with: ", err)
					}
				}
				c := exec.Command(shell, "-eu", "-c", script)
				c.Dir = dir
				c.Env = append(os.Environ(), "WARREN_URL="+node.url, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
				var complaints strings.Builder
				c.Stderr = &complaints
				out, err := c.Output()
				if err != nil || string(out) != e.want {
					t.Errorf("line %d: %v %s\n%s\ngot\n%s\nwant\n%s", e.line, err, complaints.String(), e.run, out, e.want)
				}
			}
		})
	}
}
