package quorum

import (
	"errors"
	"os"
	"path/filepath"
)

// trimLog gives back disk that the files of a Raft log have taken in advance. The log is not in use.
//
// The log store begins a file with each start, takes 64 MiB for it, and leaves to each file what it has taken until the log is
// cut behind it. A shard in which little happens is cut seldom or never: each start would cost it 64 MiB for good.
func trimLog(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "tandb", "node-*", "*.log"))
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err == nil {
			err = os.Truncate(file, info.Size()) // the end stays, and what was taken behind it goes
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
