package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/warrenmq/warren/test/seeds"
)

// kills is how often the drills end a node: WARREN_DRILL_KILLS, or a few times.
func kills(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("WARREN_DRILL_KILLS"))
	if err != nil {
		return 10
	}
	return n
}

// program builds this program, with tags.
func program(t *testing.T, tags string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drill")
	cmd := exec.Command("go", "build", "-o", path, "-tags", tags, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the drill: %v\n%s", err, out)
	}
	return path
}

// TestKills: a node in a process of its own is killed with SIGKILL.
func TestKills(t *testing.T) { kept(t, kills(t)) }

// TestQuorumKills: the same with quorum queues.
func TestQuorumKills(t *testing.T) { kept(t, kills(t), "-type", "quorum") }

// TestStreamKills: the same with streams: nothing that was confirmed is lost, no offset is given twice, no committed offset goes
// back or beyond what was acknowledged.
func TestStreamKills(t *testing.T) { kept(t, kills(t), "-type", "stream") }

// TestPowerCuts: a node loses its disk with all that it had not synced.
func TestPowerCuts(t *testing.T) { kept(t, kills(t), "-power") }

func kept(t *testing.T, kills int, flags ...string) {
	seed := seeds.Of(t)
	out, err := exec.Command(program(t, ""), append(flags, "-kills", strconv.Itoa(kills), "-seed", strconv.FormatUint(seed, 10))...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// TestSabotage: what breaks a promise is found.
func TestSabotage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute; short")
	}
	drill := program(t, "sabotage")
	for _, s := range []struct {
		name  string
		flags []string
	}{
		{"confirm", nil}, {"skip", nil},
		{"confirm", []string{"-type", "quorum"}},
		{"confirm", []string{"-type", "stream"}}, {"commit", []string{"-type", "stream"}},
		{"confirm", []string{"-power"}}, {"skip", []string{"-power"}},
		{"nosync", []string{"-power"}}, {"nosyncdir", []string{"-power"}}, {"dropwrite", []string{"-power"}},
	} {
		t.Run(strings.Join(append([]string{s.name}, s.flags...), ""), func(t *testing.T) {
			kills := "60"
			if len(s.flags) > 1 && s.flags[1] == "stream" { // a life is long there, and each loses something
				kills = "15"
			}
			cmd := exec.Command(drill, append(s.flags, "-kills", kills, "-sabotage", s.name, "-dir", t.TempDir())...)
			cmd.Env = append(os.Environ(), "WARREN_SABOTAGE="+s.name)
			out, err := cmd.CombinedOutput()
			t.Logf("%.3000s", out)
			if err == nil {
				t.Fatal("the drill saw nothing wrong")
			}
			if !strings.Contains(string(out), "promises broken") || strings.Contains(string(out), " 0 promises broken") && !strings.Contains(string(out), "kills: ") {
				t.Fatal("it failed for another reason")
			}
		})
	}
}
