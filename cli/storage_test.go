package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// treeOf are the contents of a directory.
func treeOf(t *testing.T, dir string) map[string]string {
	tree := map[string]string{}
	for _, name := range filesIn(t, dir) {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		tree[name] = string(content)
	}
	return tree
}

func TestStorageInspect(t *testing.T) {
	dir, messages := smallDir(t)
	before := treeOf(t, dir)
	code, out, err := command(t, "", nil, "storage", "inspect", dir, "--format", "json")
	var v inspection
	if code != 0 || json.Unmarshal([]byte(out), &v) != nil {
		t.Fatalf("%d %s%s", code, out, err)
	}
	if v.Clean || v.Metadata["queues"] != smallQueues || v.Metadata["users"] != 1 || v.Metadata["vhosts"] != 1 || v.Metadata["exchanges"] < 6 || len(v.Findings) > 0 {
		t.Errorf("%+v", v)
	}
	for i, q := range v.Queues {
		if q.ID == 0 || q.Name != queueName(i) || q.VHost != "/" || q.Messages != uint64(messages) {
			t.Errorf("%+v", q)
		}
	}
	if len(v.Queues) != smallQueues || v.Journal.Records != 5*smallQueues || len(v.Journal.Files) == 0 || v.Journal.Last < v.Journal.First {
		t.Errorf("%+v", v.Journal)
	}
	if len(v.Runs) == 0 {
		t.Error("no runs")
	}
	for _, r := range v.Runs {
		if r.State != "alive" || r.Live == 0 || r.Queues != smallQueues || r.Size == 0 {
			t.Errorf("%+v", r)
		}
	}
	code, out, _ = command(t, "", nil, "storage", "inspect", dir)
	for _, want := range []string{"clean stop   no", "1 virtual host", "0000000000000001.run  alive", "queue 2  classic"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d, no %q in\n%s", code, want, out)
		}
	}
	if code, out, err := command(t, "", nil, "storage", "verify", dir); code != 0 || !strings.HasSuffix(out, "no damage\n") {
		t.Errorf("%d %s%s", code, out, err)
	}
	after := treeOf(t, dir)
	for name, content := range after {
		if before[name] != content {
			t.Errorf("%s was changed", name)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d files became %d", len(before), len(after))
	}
}

func TestStorageRefuses(t *testing.T) {
	dir := t.TempDir()
	if code, _, err := command(t, "", nil, "storage", "verify", dir); code != 65 || !strings.Contains(err, "is no data directory") {
		t.Error(code, err)
	}
	s, err := startSmall(t, dir, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"inspect", "verify"} {
		if code, out, err := command(t, "", nil, "storage", verb, dir); code != 69 || out != "" || !strings.Contains(err, "a node is running on "+dir) {
			t.Error(code, out, err)
		}
	}
	if err := s.closeData(); err != nil {
		t.Fatal(err)
	}
	if code, _, err := command(t, "", nil, "storage", "verify", dir); code != 0 {
		t.Error(code, err)
	}
	if code, _, _ := command(t, "", nil, "storage", "verify", dir, "--format", "csv"); code != 64 {
		t.Error(code)
	}
}

// TestStorageVerify damages files where every octet counts: each damage is found, with its file.
func TestStorageVerify(t *testing.T) {
	original, _ := smallDir(t)
	for _, test := range []struct {
		pattern string
		change  func([]byte) []byte
		offset  bool // the place is told
		what    string
	}{
		{"runs/0000000000000001.run", func(b []byte) []byte { return flip(b, 5000) }, true, "1 message of queue 1 ('queue 0' in vhost '/')"},
		{"runs/0000000000000001.run", func(b []byte) []byte { return b[:len(b)/2] }, true, "nothing in this run can be read"},
		{"runs/0000000000000001.run", func([]byte) []byte { return nil }, false, "the file is missing"},
		{"journal/00000003.journal", func(b []byte) []byte { return flip(b, 60_000) }, true, "octets of records lost"},
		{"journal/00000003.journal", func([]byte) []byte { return nil }, false, "the newest files are missing"},
		{"meta/*.sst", func(b []byte) []byte { return flip(b, 100) }, false, "checksum mismatch"},
		{"meta/MANIFEST-*", func([]byte) []byte { return nil }, false, "manifest"},
	} {
		dir := t.TempDir()
		copyDir(t, original, dir)
		names, _ := filepath.Glob(filepath.Join(dir, test.pattern))
		if len(names) == 0 {
			t.Fatalf("no %s", test.pattern)
		}
		path := names[len(names)-1]
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if changed := test.change(content); changed == nil {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, changed, 0o640)
		}
		if err != nil {
			t.Fatal(err)
		}
		code, out, told := command(t, "", nil, "storage", "verify", dir, "--format", "json")
		var v verification
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatalf("%s: %v\n%s%s", test.pattern, err, out, told)
		}
		file := strings.Split(test.pattern, "/")[0]
		found := slices.ContainsFunc(v.Damages, func(d damage) bool {
			return strings.HasPrefix(d.File, file) && strings.Contains(d.What, test.what) && (d.Offset > 0) == test.offset
		})
		if code != 1 || !found {
			t.Errorf("%s: %d, %+v, not %q", test.pattern, code, v.Damages, test.what)
		}
		if code, out, _ := command(t, "", nil, "storage", "verify", dir); code != 1 || !strings.Contains(out, "damage: "+file) {
			t.Errorf("%s: %d %s", test.pattern, code, out)
		}
	}
}
