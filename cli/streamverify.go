package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream"
)

// verifyStreams reads all segments of streams, over an overlay: what a start would cut off stays.
func (s *stopped) verifyStreams(v *verification) error {
	dirs, err := filepath.Glob(filepath.Join(s.dir, "streams", "slot-*", "*"))
	if err != nil {
		return err
	}
	over := storage.NewOverlay(storage.OS{})
	for _, dir := range dirs {
		name, err := filepath.Rel(s.dir, dir)
		if err != nil {
			return err
		}
		s.verifyStream(v, over, dir, name)
	}
	return nil
}

func (s *stopped) verifyStream(v *verification, fs storage.FS, dir, name string) {
	log, report, err := stream.Open(fs, dir, stream.Options{})
	if err != nil {
		v.found(name, -1, 0, "%v", err)
		return
	}
	defer log.Close()
	v.Checked.Streams++
	if report.Torn > 0 {
		v.note("%s ends in %d octets that were not written to their end; the Raft log has what they were to be", name, report.Torn)
	}
	if report.Lost {
		v.found(name, -1, 0, "messages from offset %d on are missing, which were there", log.Next())
	}
	r := log.Read(log.First(), stream.Filter{})
	defer r.Release()
	for {
		var rec stream.Record
		err := r.Next(&rec)
		var damage *stream.DamageError
		switch {
		case err == nil:
			v.Checked.StreamMessages++
		case errors.As(err, &damage):
			file, err := filepath.Rel(s.dir, damage.File)
			if err != nil {
				file = damage.File
			}
			v.found(file, -1, 0, "%s", fmt.Sprintf("%s: messages of offsets %d up to, without, %d", damage.Reason, damage.From, damage.To))
			r.Skip()
		case errors.Is(err, stream.ErrEnd):
			return
		default:
			v.found(name, -1, 0, "%v", err)
			return
		}
	}
}
