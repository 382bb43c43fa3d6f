package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/warrenmq/warren/config"
)

// stopTime bounds an orderly stop: clients are told, what they are owed is written, and what takes longer is cut.
const stopTime = 10 * time.Second

// startTime is for how long a node that is told to stop while it starts goes on with that, to stop in order then.
const startTime = 2 * time.Second

func (p *program) serverCommand() *cobra.Command {
	given := map[string]*optionValue{}
	var settings []string
	c := &cobra.Command{
		Use:   "server",
		Short: "Run a node",
		Long: `Run a node in the foreground until it is told to stop with SIGTERM or SIGINT; a second signal ends it at once.

Every flag has an environment variable: WARREN_ and its name in capitals, such as WARREN_DATA_DIR. A configuration file has rabbitmq.conf's
format and keys. What is said in several places counts in this order: flag, --set, environment, file, default.`,
		Example: `  warren server
  warren server --data-dir /var/lib/warren --listen 0.0.0.0:5672
  warren server --config /etc/warren/warren.conf
  warren server --set heartbeat=30 --set loopback_users.guest=false
  warren server --listen 127.0.0.1:0 --http 127.0.0.1:0 --metrics none --ports-file ports.json
  warren server --tls-listen :5671 --tls-cert server.pem --tls-key server.key`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			from := config.Sources{Flags: map[string]string{}, Settings: settings, LookupEnv: p.env}
			for name, value := range given {
				if c.Flags().Changed(name) {
					from.Flags[name] = value.text
				}
			}
			cfg, warnings, err := config.Load(from)
			if err != nil {
				return &failure{code: exitConfig, text: "the configuration is wrong:\n  " + strings.ReplaceAll(err.Error(), "\n", "\n  "), err: err,
					remedy: "docs/configuration.md lists the keys; 'warren server --help' the flags."}
			}
			return p.serve(cfg, warnings)
		},
	}
	for _, o := range config.Options() {
		value := &optionValue{kind: o.Value}
		given[o.Name] = value
		c.Flags().Var(value, o.Name, o.Doc)
	}
	c.Flags().StringArrayVar(&settings, "set", nil, "a setting as it would stand in the file, as `KEY=VALUE`; repeatable")
	c.Flags().SortFlags = false
	return c
}

// optionValue is a flag's text; config judges it. A help text shows kind in its place.
type optionValue struct{ text, kind string }

func (v *optionValue) String() string        { return v.text }
func (v *optionValue) Set(text string) error { v.text = text; return nil }
func (v *optionValue) Type() string          { return v.kind }

// serve runs a node from start to stop.
func (p *program) serve(cfg config.Config, warnings []string) error {
	log, closeLog, err := openLog(cfg.Log, p.err)
	if err != nil {
		return &failure{code: exitConfig, text: "cannot write the log: " + err.Error(), err: err, remedy: "Choose another file with log.file and log.dir."}
	}
	defer closeLog()
	for _, w := range warnings {
		log.Warn(w)
	}
	total := memoryTotal(cfg)
	limitMemory(cfg, total, p.env)

	signals := p.signals
	if signals == nil {
		c := make(chan os.Signal, 2)
		signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
		defer signal.Stop(c)
		signals = c
	}
	var node *node
	started := make(chan error, 1)
	go func() {
		n, err := start(cfg, total, p.open, log)
		node = n
		started <- err
	}()
	var early os.Signal // came while it was starting
	var late <-chan time.Time
	for starting := true; starting; {
		select {
		case err := <-started:
			if err != nil {
				return ofDisk(err)
			}
			starting = false
		case early = <-signals:
			if late != nil {
				return nil
			}
			late = time.After(startTime)
		case <-late: // it waits for the rest of its cluster, perhaps
			log.Info("stopped while it was starting", "signal", early.String())
			return nil
		}
	}
	again := make(chan os.Signal, 1)
	if early != nil {
		again <- early
	}
	p.announce(cfg, node)
	select {
	case s := <-again:
		log.Info("stopping", "signal", s.String())
	case s := <-signals:
		log.Info("stopping", "signal", s.String())
	case err := <-node.failed:
		log.Error("a listener failed", "error", err)
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		_ = node.stop(ctx) // the listener's error is the one to tell
		return &failure{code: exitSoftware, text: err.Error(), err: err}
	case err := <-node.engine.Failed():
		var why *failure
		if errors.As(err, &why) { // it is not the disk
			log.Error("the node ends", "why", why.text)
			ctx, cancel := context.WithTimeout(context.Background(), stopTime)
			defer cancel()
			_ = node.stop(ctx) // that it was told to end is what counts
			return why
		}
		return diskFailed(node, err, log)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- node.stop(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			log.Warn("stopped, but not in good order", "error", err)
			return nil
		}
		log.Info("stopped")
		return nil
	case s := <-signals:
		code := 1
		if number, ok := s.(syscall.Signal); ok {
			code = 128 + int(number)
		}
		return &failure{code: code, text: "stopped at once by a second signal"}
	}
}

// diskFailed ends a node whose metadata cannot be written any more. Clients are told, and the journal gets what it can still
// take. Where the disk holds even that up, the process ends all the same: what was confirmed is safe.
func diskFailed(n *node, err error, log *slog.Logger) error {
	log.Error("the disk failed: metadata cannot be written any more; the node stops, and starts again when the disk is well", "error", err.Error())
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop(ctx) }()
	select {
	case <-stopped: // not in good order; that is no news
	case <-time.After(stopTime + stopTime/2):
		log.Warn("the disk does not answer: the node ends without it")
	}
	return &failure{code: exitDisk, text: "the node stopped because the disk failed: " + err.Error(), err: err,
		remedy: "Nothing that was confirmed is lost. Repair the disk and start the node again."}
}

// announce tells a person at a terminal what runs where.
func (p *program) announce(cfg config.Config, n *node) {
	fmt.Fprintln(p.out, thisBuild())
	line := func(name, value string) { fmt.Fprintf(p.out, "  %-10s %s\n", name, value) }
	for _, l := range n.listeners {
		switch l.protocol {
		case "amqp":
			line("AMQP", "amqp://"+l.shown())
		case "amqp/ssl":
			line("AMQP, TLS", "amqps://"+l.shown())
		case "http":
			line("HTTP API", "http://"+l.shown()+"/api/")
		case "http/prometheus":
			line("metrics", "http://"+l.shown()+"/metrics")
		case "clustering":
			line("cluster", l.shown())
		}
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		dir = cfg.DataDir
	}
	line("data", dir)
	if cfg.File != "" {
		line("settings", cfg.File)
	}
}

// refusedListener explains why an address cannot be listened on.
func refusedListener(what, address, flag string, err error) *failure {
	f := &failure{code: exitUnavailable, err: err, text: fmt.Sprintf("cannot listen for %s on %s: %v", what, address, err)}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		f.text = fmt.Sprintf("cannot listen for %s on %s: something else does", what, address)
		f.remedy = fmt.Sprintf("Stop that, or choose another address with --%s.", flag)
	case errors.Is(err, syscall.EACCES):
		f.remedy = fmt.Sprintf("Ports below 1024 need a privilege; choose another address with --%s.", flag)
	default:
		f.remedy = fmt.Sprintf("Choose another address with --%s.", flag)
	}
	return f
}
