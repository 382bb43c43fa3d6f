package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// house is the source tree that is measured.
type house struct {
	root  string
	build string // build/compare in it: programs, data directories, raw figures
}

// openHouse finds the module that the working directory lies in.
func openHouse() (*house, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil, errors.New("not inside Warren's source tree: no go.mod here or above")
		}
		dir = parent
	}
	h := &house{root: dir, build: filepath.Join(dir, "build", "compare")}
	return h, os.MkdirAll(h.build, 0o755)
}

// compile builds a package of the tree and returns the program's path.
func (h *house) compile(ctx context.Context, pkg, name string) (string, error) {
	program := filepath.Join(h.build, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, pkg)
	cmd.Dir = h.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return program, nil
}

// commit names what is checked out, and says when the tree differs from it.
func (h *house) commit() string {
	git := func(args ...string) string {
		out, _ := exec.Command("git", append([]string{"-C", h.root}, args...)...).Output()
		return strings.TrimSpace(string(out))
	}
	commit := git("rev-parse", "--short", "HEAD")
	if commit == "" {
		return "unknown"
	}
	if git("status", "--porcelain", "--", ".", ":!docs/performance.md") != "" {
		commit += " with changes"
	}
	return commit
}
