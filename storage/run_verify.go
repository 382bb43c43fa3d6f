package storage

import "slices"

// RunCheck is what VerifyRun found in a run's file.
type RunCheck struct {
	Run       RunID
	Transient bool
	Size      int64 // octets of the file
	Logs      int
	Extents   int
	Pages     int
	Records   uint64 // those that are sound
	Octets    uint64 // sum of their Size
	Damages   []RunDamage
	// More is how many damages there are beyond those that Damages has room for.
	More int
}

// maxDamages bounds RunCheck.Damages.
const maxDamages = 1000

// VerifyRun reads a run's file from end to end and checks every octet. The error is one of opening the file, fs.ErrNotExist
// if there is none, or of reading its footer; what else is wrong, records that cannot be read included, is in the result.
// The file is not changed.
func VerifyRun(fsys FS, dir string, id RunID) (RunCheck, error) {
	check := RunCheck{Run: id}
	f, err := fsys.Open(runName(dir, id))
	if err != nil {
		return check, err
	}
	defer f.Close()
	if check.Size, err = f.Size(); err != nil {
		return check, err
	}
	run, err := readRun(f, id)
	if damage, ok := err.(*RunDamage); ok {
		check.Damages = append(check.Damages, *damage)
		return check, nil
	} else if err != nil {
		return check, err
	}
	check.Transient, check.Extents, check.Pages = run.transient, len(run.extents), len(run.pages)-1
	v := runVerifier{check: &check, run: run, file: f}
	for i := range run.extents {
		if i == 0 || run.extents[i-1].log != run.extents[i].log {
			check.Logs++
		}
		for p := int(run.extents[i].page); p < run.endPage(i); p++ {
			v.page(i, p)
		}
	}
	return check, nil
}

type runVerifier struct {
	check *RunCheck
	run   *Run
	file  File
	buf   []byte
	data  []byte
}

// page checks a page's entries, then the bytes of its records, a piece at a time.
func (v *runVerifier) page(extent, page int) {
	r := v.run
	p, end := r.pages[page], r.pages[page+1].offset()
	n := p.metaLen()
	v.buf = slices.Grow(v.buf[:0], n)[:n]
	err := readFull(v.file, v.buf, end-int64(n))
	if err == nil {
		err = r.checkRunPage(extent, page, v.buf)
	}
	if err != nil {
		v.damage(RunDamage{Run: r.id, Offset: end - int64(n), Len: int64(n), What: err.Error(), Log: r.extents[extent].log,
			First: p.first, Last: r.lastOf(extent, page), Records: p.records()})
		return
	}
	entries := runEntries(v.buf[:n-runPageSum])
	offset := p.offset()
	for i := 0; i < entries.len(); {
		length, to := 0, i
		for to < entries.len() && (to == i || length+entries.length(to) <= compactChunk) {
			length += entries.length(to)
			to++
		}
		v.data = slices.Grow(v.data[:0], length)[:length]
		failed := readFull(v.file, v.data, offset)
		for data := v.data; i < to; i++ {
			n := entries.length(i)
			what := "record does not match its checksum"
			switch {
			case failed != nil:
				what = failed.Error()
			case runChecksum(data[:n]) == entries.sum(i):
				v.check.Records++
				v.check.Octets += uint64(entries.size(i))
				what = ""
			}
			if what != "" {
				seq := entries.meta(i, p.first).Seq
				v.damage(RunDamage{Run: r.id, Offset: offset, Len: int64(n), What: what, Log: r.extents[extent].log, First: seq, Last: seq, Records: 1})
			}
			data = data[n:]
			offset += int64(n)
		}
	}
}

func (v *runVerifier) damage(d RunDamage) {
	if len(v.check.Damages) < maxDamages {
		v.check.Damages = append(v.check.Damages, d)
	} else {
		v.check.More++
	}
}

// InspectRuns reads what the runs in a directory say of themselves, registered or not: for each its Run, or what is wrong
// with it.
func InspectRuns(fsys FS, dir string) ([]*Run, []LostRun, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, nil, err
	}
	var runs []*Run
	var lost []LostRun
	for _, name := range names {
		id, ok := parseRunName(name)
		if !ok {
			continue
		}
		run, err := OpenRun(fsys, dir, id)
		if err != nil {
			lost = append(lost, LostRun{id, err})
			continue
		}
		runs = append(runs, run)
	}
	return runs, lost, nil
}
