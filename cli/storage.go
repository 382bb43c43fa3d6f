package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/storage"
)

func (p *program) storageCommand() *cobra.Command {
	return group("storage", "Look into the data directory of a stopped node",
		"  warren storage inspect /var/lib/warren\n  warren storage verify /var/lib/warren",
		p.inspectCommand(), p.verifyCommand())
}

func (p *program) inspectCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Show what is in the data directory of a stopped node",
		Long: `Show what a node would find in its data directory: metadata, queues with the messages that are alive, the journal, and the runs with the
part of each that is alive. Nothing is changed. The node must not be running.`,
		Example: "  warren storage inspect /var/lib/warren\n  warren storage inspect /var/lib/warren --format json",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := tableOrJSON(format); err != nil {
				return err
			}
			s, err := openStopped(args[0])
			if err != nil {
				return err
			}
			defer s.close()
			if s.broken != nil {
				return &failure{code: exitData, text: s.broken.Error(), err: s.broken, remedy: "'warren storage verify' tells what else is damaged."}
			}
			v := s.inspect()
			if format == "json" {
				return printJSON(p.out, v)
			}
			return v.print(p)
		},
	}
	c.Flags().StringVar(&format, "format", "", "table or json")
	return c
}

func (p *program) verifyCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "verify DIR",
		Short: "Read and check everything in the data directory of a stopped node",
		Long: `Read everything in the data directory of a stopped node, check all checksums, and tell of each damage with file and offset. Nothing is
changed. The exit code is 0 if all is well and 1 if something is damaged.`,
		Example: "  warren storage verify /var/lib/warren\n  warren storage verify /var/lib/warren --format json",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := tableOrJSON(format); err != nil {
				return err
			}
			s, err := openStopped(args[0])
			if err != nil {
				return err
			}
			defer s.close()
			v, err := s.verify()
			if err != nil {
				return err
			}
			if format == "json" {
				err = printJSON(p.out, v)
			} else {
				v.print(p)
			}
			if err == nil && len(v.Damages) > 0 {
				return &failure{code: 1, text: fmt.Sprintf("%s is damaged: %s", args[0], count(len(v.Damages), "fault")),
					remedy: "The node starts without what is damaged, unless its metadata cannot be read. Keep a copy of the directory first."}
			}
			return err
		},
	}
	c.Flags().StringVar(&format, "format", "", "table or json")
	return c
}

func tableOrJSON(format string) error {
	if format != "" && format != "table" && format != "json" {
		return usage("there is no format %q here; formats are table and json", format)
	}
	return nil
}

// inspection is what is in a data directory.
type inspection struct {
	Directory string `json:"directory"`
	// Clean says that the node was stopped in good order.
	Clean    bool             `json:"clean"`
	Metadata map[string]int   `json:"metadata"`
	Queues   []inspectedQueue `json:"queues"`
	Journal  inspectedJournal `json:"journal"`
	Runs     []inspectedRun   `json:"runs"`
	Ballast  int64            `json:"ballast_octets"`
	// Findings are what the next start would log that should not be.
	Findings []string `json:"findings"`
}

type inspectedQueue struct {
	ID       uint64 `json:"id"`
	VHost    string `json:"vhost"`
	Name     string `json:"name"`
	Type     string `json:"type"`
	Messages uint64 `json:"messages"`
	Octets   uint64 `json:"octets"`
}

type inspectedJournal struct {
	First   uint64          `json:"first_epoch"`
	Last    uint64          `json:"last_epoch"`
	Records int             `json:"records"`
	Octets  int64           `json:"octets"`
	Torn    int64           `json:"torn_octets"`
	Lost    uint64          `json:"lost_octets"`
	Unknown int             `json:"records_of_unknown_queues"`
	Spares  int             `json:"spare_files"`
	Files   []inspectedFile `json:"files"`
}

type inspectedFile struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"`
	Frames  int    `json:"frames"`
	Old     int    `json:"released_frames"`
	Records int    `json:"records"`
	Octets  int64  `json:"octets"`
}

type inspectedRun struct {
	ID      uint64 `json:"id"`
	File    string `json:"file"`
	State   string `json:"state"` // alive, dead, transient, unregistered or damaged
	Size    int64  `json:"size"`
	Live    uint64 `json:"live_octets"`
	Queues  int    `json:"queues"`
	Records uint64 `json:"records"`
}

// inspect gathers what was found.
func (s *stopped) inspect() *inspection {
	r, j := s.rooms, &s.report.Journal
	v := &inspection{Directory: s.dir, Clean: j.Clean, Metadata: map[string]int{}, Queues: []inspectedQueue{}, Runs: []inspectedRun{}, Findings: s.log.all()}
	v.Metadata["users"] = len(r.broker.Users())
	for _, h := range r.broker.VHosts() {
		v.Metadata["vhosts"]++
		v.Metadata["bindings"] += countBindings(h)
		for _, x := range h.Exchanges() {
			if x.Name != "" {
				v.Metadata["exchanges"]++
			}
		}
		for _, q := range h.Queues() {
			v.Metadata["queues"]++
			st := q.Stats()
			v.Queues = append(v.Queues, inspectedQueue{uint64(q.ID), h.Name, q.Name, q.Type, st.Ready, st.ReadyBytes})
		}
	}
	v.Journal = inspectedJournal{First: uint64(j.First), Last: uint64(j.Last), Records: j.Records, Octets: j.Octets, Torn: j.Torn, Lost: j.Lost,
		Unknown: s.report.Unknown, Spares: j.Spares, Files: []inspectedFile{}}
	for _, f := range j.Files {
		v.Journal.Files = append(v.Journal.Files, inspectedFile{f.Name, f.Size, f.Frames, f.Old, f.Records, f.Octets})
	}
	for _, f := range j.Faults {
		v.Findings = append(v.Findings, "journal: "+f.String())
	}
	v.Runs = s.inspectRuns()
	if info, err := os.Stat(filepath.Join(s.dir, "ballast")); err == nil {
		v.Ballast = info.Size()
	}
	return v
}

// countBindings are those that somebody made.
func countBindings(v *broker.VHost) (n int) {
	for _, b := range v.Bindings() {
		if b.Source != "" {
			n++
		}
	}
	return n
}

// inspectRuns are the run files on the disk, and what is alive in them.
func (s *stopped) inspectRuns() []inspectedRun {
	live := map[storage.RunID]storage.RunInfo{}
	for _, r := range s.rooms.store.Runs() {
		live[r.ID] = r
	}
	dir := filepath.Join(s.dir, "runs")
	runs, lost, err := storage.InspectRuns(storage.OS{}, dir)
	if err != nil {
		return nil
	}
	list := []inspectedRun{}
	for _, r := range runs {
		one := inspectedRun{ID: uint64(r.ID()), File: storage.RunFile(r.ID()), State: "alive", Size: r.Size(), Records: r.Records()}
		now, ok := live[r.ID()]
		switch {
		case r.Transient():
			one.State = "transient"
		case !slices.Contains(s.registered, r.ID()):
			one.State = "unregistered"
		case !ok:
			one.State = "dead"
		default:
			one.Live, one.Queues = now.Live, now.Logs
		}
		list = append(list, one)
	}
	for _, l := range lost {
		state := "damaged"
		if !slices.Contains(s.registered, l.Run) {
			state = "unregistered"
		}
		list = append(list, inspectedRun{ID: uint64(l.Run), File: storage.RunFile(l.Run), State: state})
	}
	for _, id := range s.registered {
		if !slices.ContainsFunc(list, func(r inspectedRun) bool { return r.ID == uint64(id) }) {
			list = append(list, inspectedRun{ID: uint64(id), File: storage.RunFile(id), State: "missing"})
		}
	}
	return list
}

func (v *inspection) print(p *program) error {
	line := func(name, format string, a ...any) {
		fmt.Fprintf(p.out, "%-12s "+format+"\n", append([]any{name}, a...)...)
	}
	how := "no: it was killed or lost power; what was delivered and not acknowledged counts as delivered before"
	if v.Clean {
		how = "yes"
	}
	line("directory", "%s", v.Directory)
	line("clean stop", "%s", how)
	m := v.Metadata
	line("metadata", "%s, %s, %s, %s, %s", count(m["vhosts"], "virtual host"), count(m["users"], "user"), count(m["exchanges"], "exchange"),
		count(m["queues"], "queue"), count(m["bindings"], "binding"))
	j := &v.Journal
	line("journal", "epochs %d to %d: %s of %s in %s, %s", j.First, j.Last, count(j.Records, "record"), amount(uint64(j.Octets)), count(len(j.Files), "file"), count(j.Spares, "spare"))
	line("ballast", "%s", amount(uint64(v.Ballast)))
	for _, f := range v.Findings {
		line("finding", "%s", f)
	}
	table := func(columns []string, rows [][]any) error {
		if len(rows) == 0 {
			return nil
		}
		fmt.Fprintln(p.out)
		lines := [][]string{columns}
		for _, row := range rows {
			cells := make([]string, len(row))
			for i, cell := range row {
				cells[i] = fmt.Sprint(cell)
				if _, isText := cell.(string); !isText {
					row[i] = json.Number(cells[i])
				}
			}
			lines = append(lines, cells)
		}
		return printTable(p.out, lines, rows)
	}
	var rows [][]any
	for _, f := range j.Files {
		rows = append(rows, []any{f.Name, f.Size, f.Frames, f.Old, f.Records, f.Octets})
	}
	if err := table([]string{"journal file", "size", "frames", "released", "records", "octets"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, r := range v.Runs {
		share := "-"
		if r.Size > 0 {
			share = fmt.Sprintf("%d %%", r.Live*100/uint64(r.Size))
		}
		rows = append(rows, []any{r.File, r.State, r.Size, share, r.Queues, r.Records})
	}
	if err := table([]string{"run file", "state", "size", "alive", "queues", "records"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, q := range v.Queues {
		rows = append(rows, []any{q.ID, q.VHost, q.Name, q.Type, q.Messages, q.Octets})
	}
	return table([]string{"queue", "vhost", "name", "type", "messages", "octets"}, rows)
}

// verification is what is wrong in a data directory.
type verification struct {
	Directory string `json:"directory"`
	// Checked says how much was read.
	Checked struct {
		MetadataRecords int    `json:"metadata_records"`
		JournalFiles    int    `json:"journal_files"`
		JournalRecords  int    `json:"journal_records"`
		Runs            int    `json:"runs"`
		RunRecords      uint64 `json:"run_records"`
		Streams         int    `json:"streams"`
		StreamMessages  uint64 `json:"stream_messages"`
	} `json:"checked"`
	Damages []damage `json:"damages"`
	// Notes are worth knowing and no damage.
	Notes []string `json:"notes"`
}

// damage is something that is not what was written. Offset is -1 where there is none.
type damage struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Octets int64  `json:"octets"`
	What   string `json:"what"`
}

// verify reads everything.
func (s *stopped) verify() (*verification, error) {
	v := &verification{Directory: s.dir, Damages: []damage{}, Notes: []string{}}
	s.verifyMetadata(v)
	if s.broken == nil {
		s.verifyJournal(v)
	}
	if err := s.verifyRuns(v); err != nil {
		return nil, err
	}
	return v, s.verifyStreams(v)
}

func (v *verification) found(file string, offset, octets int64, format string, a ...any) {
	v.Damages = append(v.Damages, damage{file, offset, octets, fmt.Sprintf(format, a...)})
}

func (v *verification) note(format string, a ...any) {
	v.Notes = append(v.Notes, fmt.Sprintf(format, a...))
}

// verifyMetadata reads the whole of the key-value store, whose blocks have checksums, and looks for queues that are half known.
func (s *stopped) verifyMetadata(v *verification) {
	r := s.rooms
	if s.broken != nil {
		v.found("meta", -1, 0, "%v", s.broken)
	}
	if r.db == nil {
		return
	}
	for _, prefix := range []string{"m/", "q/", "r/", "s/"} {
		err := r.db.Iterate([]byte(prefix), func(_, _ []byte) error {
			v.Checked.MetadataRecords++
			return nil
		})
		if err != nil {
			v.found("meta", -1, 0, "records %s…: %v", prefix, err)
		}
	}
	if s.broken != nil {
		return
	}
	known := map[storage.LogID]bool{}
	for _, h := range r.broker.VHosts() {
		for _, q := range h.Queues() {
			known[storage.LogID(q.ID)] = true
		}
	}
	for _, id := range s.recorded {
		if !known[id] {
			v.note("queue %d has a consumption record and is not declared: it was deleted, the next start forgets it", id)
		}
	}
	for _, text := range s.log.all() {
		if !strings.HasPrefix(text, "a run of messages is lost") { // verifyRuns tells more
			v.found("meta", -1, 0, "%s", text)
		}
	}
}

// verifyJournal tells what the start found in the journal, of which it has read all that counts.
func (s *stopped) verifyJournal(v *verification) {
	j := &s.report.Journal
	v.Checked.JournalFiles, v.Checked.JournalRecords = len(j.Files), j.Records
	for _, f := range j.Faults {
		what := f.What
		if f.Lost > 0 {
			what += fmt.Sprintf(", %d octets of records lost", f.Lost)
		}
		v.found(filepath.Join("journal", f.File), f.Offset, f.Octets, "%s", what)
	}
	if j.Torn > 0 {
		v.note("the journal ends in %d octets whose sync never returned: nothing in them was confirmed", j.Torn)
	}
	if s.report.Unknown > 0 {
		v.note("%s of the journal belong to queues that are not declared: they were deleted", count(s.report.Unknown, "record"))
	}
}

// verifyRuns reads all run files, whether anybody knows them or not.
func (s *stopped) verifyRuns(v *verification) error {
	dir := filepath.Join(s.dir, "runs")
	names, err := storage.OS{}.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &failure{code: exitData, text: "the runs cannot be listed: " + err.Error(), err: err}
	}
	seen := map[storage.RunID]bool{}
	for _, name := range names {
		id, ok := storage.RunOfFile(name)
		if !ok {
			v.note("runs/%s is no run, and is left alone", name)
			continue
		}
		seen[id] = true
		check, err := storage.VerifyRun(storage.OS{}, dir, id)
		v.Checked.Runs++
		v.Checked.RunRecords += check.Records
		file := filepath.Join("runs", name)
		if s.rooms.db != nil && !slices.Contains(s.registered, id) {
			v.note("%s is not registered: a transient run, or one that was not finished or was replaced; the next start deletes it", file)
			continue
		}
		if err != nil {
			v.found(file, -1, 0, "%v", err)
		}
		for i := range check.Damages {
			d := &check.Damages[i]
			v.found(file, d.Offset, d.Len, "%s", s.lostIn(d))
		}
		if check.More > 0 {
			v.found(file, -1, 0, "%d more damages", check.More)
		}
	}
	for _, id := range s.registered {
		if !seen[id] {
			v.found(filepath.Join("runs", storage.RunFile(id)), -1, 0, "the file is missing, and all that was in it")
		}
	}
	return nil
}

// lostIn says what a damage in a run costs.
func (s *stopped) lostIn(d *storage.RunDamage) string {
	if d.Records == 0 {
		return d.What + ": nothing in this run can be read"
	}
	whose := fmt.Sprintf("queue %d", d.Log)
	if s.rooms.broker != nil {
		for _, h := range s.rooms.broker.VHosts() {
			for _, q := range h.Queues() {
				if storage.LogID(q.ID) == d.Log {
					whose += fmt.Sprintf(" ('%s' in vhost '%s')", q.Name, h.Name)
				}
			}
		}
	}
	return fmt.Sprintf("%s: %s of %s, unless gone already", d.What, count(d.Records, "message"), whose)
}

func (v *verification) print(p *program) {
	c := &v.Checked
	fmt.Fprintf(p.out, "%s: read %s of metadata, %s of the journal in %s, %d messages in %s\n", v.Directory, count(c.MetadataRecords, "record"),
		count(c.JournalRecords, "record"), count(c.JournalFiles, "file"), c.RunRecords, count(c.Runs, "run"))
	if c.Streams > 0 {
		fmt.Fprintf(p.out, "read %d messages in %s\n", c.StreamMessages, count(c.Streams, "stream"))
	}
	for _, n := range v.Notes {
		fmt.Fprintf(p.out, "note: %s\n", n)
	}
	for _, d := range v.Damages {
		switch {
		case d.Offset < 0:
			fmt.Fprintf(p.out, "damage: %s: %s\n", d.File, d.What)
		case d.Octets == 0:
			fmt.Fprintf(p.out, "damage: %s at offset %d: %s\n", d.File, d.Offset, d.What)
		default:
			fmt.Fprintf(p.out, "damage: %s at offset %d, %d octets: %s\n", d.File, d.Offset, d.Octets, d.What)
		}
	}
	if len(v.Damages) == 0 {
		fmt.Fprintln(p.out, "no damage")
	}
}

// count is a number of things.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
