package cli

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/config"
)

// writes is where a log's writes can be counted. It refuses the next ones if told to.
type writes struct {
	mu     sync.Mutex // guards what follows
	each   []string
	refuse int
}

func (w *writes) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse > 0 {
		w.refuse--
		return 0, errors.New("no space left on device")
	}
	w.each = append(w.each, string(b))
	return len(b), nil
}

// said are the messages of each write so far.
func (w *writes) said() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.each {
		var words []string
		for line := range strings.Lines(one) {
			_, rest, _ := strings.Cut(line, "msg=")
			words = append(words, strings.Fields(rest)[0])
		}
		list = append(list, strings.Join(words, " "))
	}
	return list
}

func consoleLog(t *testing.T) (*slog.Logger, func(), *writes) {
	w := new(writes)
	log, done, err := openLog(config.Log{Console: true, ConsoleLevel: "info"}, w)
	if err != nil {
		t.Fatal(err)
	}
	return log, done, w
}

func expectSaid(t *testing.T, w *writes, want ...string) {
	t.Helper()
	if got := w.said(); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("written: %q, want %q", got, want)
	}
}

func TestLogLinesWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, done, w := consoleLog(t)
		log.Debug("hidden")
		log.Info("a", "n", 1)
		time.Sleep(logDelay / 2)
		log.Info("b", "n", 2)
		expectSaid(t, w)
		time.Sleep(logDelay)
		synctest.Wait()
		expectSaid(t, w, "a b")
		log.Info("c")
		time.Sleep(logDelay + 1)
		synctest.Wait()
		expectSaid(t, w, "a b", "c")
		done()
	})
}

func TestLogLinesThatDoNotWait(t *testing.T) {
	for name, say := range map[string]func(*slog.Logger){
		"warning":         func(l *slog.Logger) { l.Warn("x") },
		"error":           func(l *slog.Logger) { l.Error("x") },
		"what may change": func(l *slog.Logger) { l.Info("x", "error", errors.New("y")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, done, w := consoleLog(t)
				log.Info("before")
				say(log)
				expectSaid(t, w, "before x")
				done()
			})
		})
	}
}

func TestLogEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, done, w := consoleLog(t)
		log.Info("a")
		done()
		expectSaid(t, w, "a")
		log.Info("b")
		expectSaid(t, w, "a", "b")
	})
}

func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, done, w := consoleLog(t)
		for range 2*logLines + 1 {
			log.Info("x")
		}
		all := strings.TrimSpace(strings.Repeat("x ", logLines))
		expectSaid(t, w, all, all)
		done()
		expectSaid(t, w, all, all, "x")
	})
}

// A log that could not be written once is written again when it can.
func TestLogSurvivesAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, done, w := consoleLog(t)
		w.refuse = 1
		log.Warn("lost")
		log.Warn("kept")
		expectSaid(t, w, "kept")
		done()
	})
}

func TestLogOfTwoPlaces(t *testing.T) {
	dir := t.TempDir()
	var console bytes.Buffer
	log, done, err := openLog(config.Log{Console: true, ConsoleLevel: "warning", ConsoleJSON: true, File: "log", Dir: dir, FileLevel: "info"}, &console)
	if err != nil {
		t.Fatal(err)
	}
	log.With("node", "n1").Info("a", "k", "v")
	log.WithGroup("g").Warn("b", "k", "v")
	done()
	file, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(file), "msg=a node=n1 k=v\n") || !strings.Contains(string(file), "msg=b g.k=v\n") {
		t.Errorf("the file has\n%s", file)
	}
	if got := console.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"msg":"b","g":{"k":"v"}`) {
		t.Errorf("the console has\n%s", got)
	}
}

// Many say something at once: each one's lines stay in order, and none is lost.
func TestLogOfMany(t *testing.T) {
	log, done, w := consoleLog(t)
	const each = 500
	var all sync.WaitGroup
	for who := range 4 {
		all.Go(func() {
			for i := range each {
				if log.Info(fmt.Sprintf("%d-%d", who, i)); i%100 == who {
					log.Warn("hurry")
				}
			}
		})
	}
	all.Wait()
	done()
	var next [4]int
	for _, word := range strings.Fields(strings.Join(w.said(), " ")) {
		var who, i int
		if n, _ := fmt.Sscanf(word, "%d-%d", &who, &i); n == 2 {
			if i != next[who] {
				t.Fatalf("%s comes where %d-%d should", word, who, next[who])
			}
			next[who]++
		}
	}
	for who, n := range next {
		if n != each {
			t.Errorf("%d lines of %d, want %d", n, who, each)
		}
	}
}
