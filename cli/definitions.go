package cli

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"

	"github.com/warrenmq/warren/broker"
)

// importDefinitions imports the files that the configuration names.
func (r *rooms) importDefinitions() error {
	o := r.cfg.Definitions
	if o.Path == "" {
		return nil
	}
	files, err := definitionFiles(o.Path)
	if err != nil {
		return notImported(o.Path, err)
	}
	sum := newHash(o.Hash)
	var all [][]byte
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return notImported(name, err)
		}
		fmt.Fprintf(sum, "%d:", len(data)) // so that what moves from one file to the next counts
		sum.Write(data)
		all = append(all, data)
	}
	digest := o.Hash + ":" + hex.EncodeToString(sum.Sum(nil))
	if last, _ := r.broker.GlobalParameter(broker.ImportedHash); o.SkipIfUnchanged && last == digest {
		r.log.Info("definitions are those imported last, nothing is imported", "path", o.Path)
		return nil
	}
	for i, data := range all {
		warnings, err := r.broker.Import(data)
		for _, w := range warnings {
			r.log.Warn("definitions", "file", files[i], "warning", w)
		}
		if err != nil {
			return notImported(files[i], err)
		}
		r.log.Info("definitions imported", "file", files[i])
	}
	done := make(chan error, 1)
	r.broker.SetGlobalParameter(broker.ImportedHash, digest, func(_ bool, err error) { done <- err })
	return <-done
}

// definitionFiles are the file, or the .json files of the directory, at path.
func definitionFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	files, err := filepath.Glob(filepath.Join(escapeGlob(path), "*.json"))
	if err == nil && len(files) == 0 {
		err = errors.New("no .json file in the directory")
	}
	return files, err
}

// escapeGlob is a path as a pattern that matches itself only.
func escapeGlob(path string) string {
	var b []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}

func newHash(name string) hash.Hash {
	switch name {
	case "sha":
		return sha1.New()
	case "sha224":
		return sha256.New224()
	case "sha384":
		return sha512.New384()
	case "sha512":
		return sha512.New()
	}
	return sha256.New()
}

func notImported(file string, err error) error {
	return &failure{code: exitConfig, text: fmt.Sprintf("cannot import the definitions in %s: %s", file, err), err: err,
		remedy: "Correct the file, or start without load_definitions."}
}
