package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/warrenmq/warren/config"
)

// openLog makes the log that a configuration asks for. The function ends it: what is said afterwards may not be in its file.
func openLog(l config.Log, console io.Writer) (*slog.Logger, func(), error) {
	b := new(logbook)
	var handlers []slog.Handler
	add := func(w io.Writer, name string, json bool) {
		level, ok := logLevels[name]
		if !ok {
			return // none
		}
		o := &slog.HandlerOptions{Level: level}
		p := &page{w: w}
		b.pages = append(b.pages, p)
		if json {
			handlers = append(handlers, slog.NewJSONHandler(p, o))
		} else {
			handlers = append(handlers, slog.NewTextHandler(p, o))
		}
	}
	if l.Console {
		add(console, l.ConsoleLevel, l.ConsoleJSON)
	}
	done := b.close
	if l.File != "" {
		path := l.File
		if l.Dir != "" && !filepath.IsAbs(path) {
			path = filepath.Join(l.Dir, path)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, nil, err
		}
		add(f, l.FileLevel, l.FileJSON)
		done = func() {
			b.close()
			_ = f.Close() // nothing is written any more that could be lost
		}
	}
	switch len(handlers) {
	case 0:
		return slog.New(slog.DiscardHandler), done, nil
	case 1:
		return slog.New(lateLog{handlers[0], b}), done, nil
	}
	return slog.New(lateLog{slog.NewMultiHandler(handlers...), b}), done, nil
}

// logLevels are RabbitMQ's; those that slog does not name lie between or above its own.
var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "notice": slog.LevelInfo + 2, "warning": slog.LevelWarn,
	"error": slog.LevelError, "critical": slog.LevelError + 4, "alert": slog.LevelError + 8, "emergency": slog.LevelError + 12}

const (
	// logDelay is how long a line may wait for others. A process that is killed loses those that wait.
	logDelay = 20 * time.Millisecond
	// logLines is how many may wait.
	logLines = 128
	// keepPage is what a page keeps for what is written next, in octets.
	keepPage = 64 << 10
)

// logbook writes what is said in the order in which it was said. A line about what goes well, as each connection has one,
// waits a moment for others: many are formatted one after the other and written at once, off the goroutine that said them.
// From warnings on a line, and with it all that came before, is written when it is said.
type logbook struct {
	pages []*page

	writing sync.Mutex // held while lines are formatted and written; locked before mu

	mu      sync.Mutex // guards what follows; a leaf
	waiting []logLine
	spare   []logLine
	timer   *time.Timer
	closed  bool // nothing waits any more
}

type logLine struct {
	to     slog.Handler
	record slog.Record
}

// say takes a line in. now: it does not wait.
func (b *logbook) say(l logLine, now bool) {
	b.mu.Lock()
	b.waiting = append(b.waiting, l)
	now = now || b.closed || len(b.waiting) >= logLines
	switch {
	case now || len(b.waiting) > 1: // another has set the timer
	case b.timer == nil:
		b.timer = time.AfterFunc(logDelay, b.flush)
	default:
		b.timer.Reset(logDelay)
	}
	b.mu.Unlock()
	if now {
		b.flush()
	}
}

// flush writes what waits.
func (b *logbook) flush() {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	lines := b.waiting
	b.waiting, b.spare = b.spare[:0], nil
	b.mu.Unlock()
	for i := range lines {
		_ = lines[i].to.Handle(context.Background(), lines[i].record) // a page takes everything
	}
	for _, p := range b.pages {
		p.write()
	}
	clear(lines)
	b.mu.Lock()
	b.spare = lines
	b.mu.Unlock()
}

// close writes what waits; what is said from now on is written when it is said.
func (b *logbook) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.flush()
}

// page gathers the octets of lines for one write. logbook.writing guards it.
type page struct {
	w   io.Writer
	buf []byte
}

func (p *page) Write(line []byte) (int, error) {
	p.buf = append(p.buf, line...)
	return len(line), nil
}

func (p *page) write() {
	if len(p.buf) == 0 {
		return
	}
	_, _ = p.w.Write(p.buf) // there is nobody to tell
	if p.buf = p.buf[:0]; cap(p.buf) > keepPage {
		p.buf = nil
	}
}

// lateLog is a slog.Handler that leaves records to a logbook.
type lateLog struct {
	slog.Handler
	book *logbook
}

func (l lateLog) Handle(_ context.Context, r slog.Record) error {
	now := r.Level >= slog.LevelWarn
	r.Attrs(func(a slog.Attr) bool {
		switch a.Value.Kind() {
		case slog.KindAny, slog.KindGroup, slog.KindLogValuer:
			now = true // it may be something else in a moment
		}
		return !now
	})
	l.book.say(logLine{l.Handler, r}, now)
	return nil
}

func (l lateLog) WithAttrs(as []slog.Attr) slog.Handler {
	return lateLog{l.Handler.WithAttrs(as), l.book}
}
func (l lateLog) WithGroup(name string) slog.Handler {
	return lateLog{l.Handler.WithGroup(name), l.book}
}
