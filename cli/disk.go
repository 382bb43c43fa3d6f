package cli

import (
	"errors"
	"strings"
	"syscall"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/storage"
)

// diskTrouble is what is wrong with a disk.
type diskTrouble int

const (
	diskWell diskTrouble = iota
	diskFaulty
	diskFull
)

// troubleOf is what an error tells of the disk.
func troubleOf(err error) diskTrouble {
	if err == nil {
		return diskWell
	}
	says := func(fault syscall.Errno) bool { return strings.Contains(err.Error(), fault.Error()) }
	switch {
	case storage.IsNoSpace(err), says(syscall.ENOSPC), says(syscall.EDQUOT):
		return diskFull
	case storage.IsDiskFault(err), says(syscall.EIO):
		return diskFaulty
	}
	return diskWell
}

// fullBelow is how little room makes a disk full when an error does not say why it came: as much as metadata wants to have left.
const fullBelow = 32 << 20

// trouble is what the disk says itself.
func (r *rooms) trouble() diskTrouble {
	if r.db == nil { // nothing was written
		return diskWell
	}
	free, unknown := r.db.Free()
	switch why := r.db.Err(); {
	case unknown == nil && free < fullBelow:
		return diskFull
	case unknown != nil, r.alarms.Own()&broker.StorageAlarm != 0:
		return diskFaulty
	case why != nil && why != storage.ErrClosed:
		return max(diskFaulty, troubleOf(why))
	}
	return diskWell
}

// ofDisk is a failure to start for which a full disk, or a bad one, is to blame, whatever could not be written.
func ofDisk(err error) error {
	var f *failure
	if !errors.As(err, &f) || f.code != exitConfig && f.code != exitSoftware {
		return err
	}
	changed := *f
	switch troubleOf(f.err) {
	case diskFull:
		changed.code, changed.remedy = exitTemporary, "Make room on the disk and start again."
	case diskFaulty:
		changed.code, changed.remedy = exitDisk, "Repair the disk and start again."
	}
	return &changed
}
