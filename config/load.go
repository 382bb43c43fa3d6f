package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFileSize bounds what is read of a configuration file.
const maxFileSize = 4 << 20

// Sources are the places that Load reads. The zero value yields the defaults.
type Sources struct {
	// Flags are options of the command line, by their names in Options.
	Flags map[string]string
	// Settings are key = value pairs of the command line. They outrank the environment and the file, and yield to Flags.
	Settings []string
	// LookupEnv is os.LookupEnv, or nil for an empty environment.
	LookupEnv func(name string) (string, bool)
}

// Load puts a configuration together. Warnings are for the log and name what has no effect; err holds all problems found, one a line, of which
// those in a file are Problems.
func Load(from Sources) (c Config, warnings []string, err error) {
	lookup := from.LookupEnv
	if lookup == nil {
		lookup = func(string) (string, bool) { return "", false }
	}
	d := draft{Config: Default()}
	var problems []error
	apply := func(s Setting, where string) {
		fault, warning := d.apply(s, lookup)
		if fault != nil {
			problems = append(problems, place(where, s.Line, fault.Error()))
		}
		if warning != "" {
			warnings = append(warnings, place(where, s.Line, warning).Error())
		}
	}

	type said struct {
		option Option
		value  string
		where  string
	}
	var env, flags []said
	for _, o := range Options() {
		for _, name := range append([]string{o.Variable()}, o.Aliases...) {
			if value, ok := lookup(name); ok && value != "" {
				env = append(env, said{o, value, name})
				break
			}
		}
		if value, ok := from.Flags[o.Name]; ok {
			flags = append(flags, said{o, value, "--" + o.Name})
		}
	}
	for name := range from.Flags {
		if !slices.ContainsFunc(Options(), func(o Option) bool { return o.Name == name }) {
			problems = append(problems, fmt.Errorf("--%s is no option", name))
		}
	}

	for _, s := range append(slices.Clone(env), flags...) { // the file's name first: the strongest that gives one
		if s.option.Name == "config" {
			d.File = s.value
		}
	}
	if d.File != "" {
		files, err := filesOf(d.File)
		if err != nil {
			problems = append(problems, fmt.Errorf("cannot read the configuration: %w", err))
		}
		for _, file := range files {
			text, err := readFile(file)
			if err != nil {
				problems = append(problems, fmt.Errorf("cannot read the configuration: %w", err))
				continue
			}
			settings, faults := Parse(file, text)
			problems = append(problems, faults...)
			for _, s := range settings {
				apply(s, file)
			}
		}
	}
	d.finish()
	say := func(list []said) {
		for _, s := range list {
			if s.option.Name == "config" {
				continue
			}
			if err := s.option.set(&d, s.value); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", s.where, err))
			}
		}
	}
	say(env)
	for _, text := range from.Settings {
		s, fault := parseLine(text)
		if fault != "" {
			problems = append(problems, fmt.Errorf("--set: %s", fault))
			continue
		}
		apply(s, "--set "+s.Name())
	}
	d.finish()
	say(flags)
	problems = append(problems, d.check()...)
	if d.ClusterName == "" {
		d.ClusterName = d.NodeName
	}
	return d.Config, warnings, errors.Join(problems...)
}

// apply does what one setting says, or says why not.
func (d *draft) apply(s Setting, lookup func(string) (string, bool)) (fault error, warning string) {
	k, name, found := lookUp(s.Key)
	if !found {
		if harmless, ok := refused[s.Name()]; ok {
			if s.Value == harmless {
				return nil, ""
			}
			return fmt.Errorf("%s = %s is not supported in this version, and ignoring it would not be safe; remove it", s.Name(), s.Value), ""
		}
		if isInert(s.Key) {
			return nil, fmt.Sprintf("%s has no effect in Warren", s.Name())
		}
		if near := nearest(s.Key); near != "" {
			return fmt.Errorf("unknown key %s; did you mean %s?", s.Name(), near), ""
		}
		return fmt.Errorf("unknown key %s", s.Name()), ""
	}
	value, err := expand(s.Value, lookup)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name(), err), ""
	}
	if strings.HasPrefix(value, "encrypted:") {
		return fmt.Errorf("%s: encrypted values are not supported in this version; use $(NAME) and an environment variable", s.Name()), ""
	}
	if err := k.set(d, name, value); err != nil {
		return fmt.Errorf("%s: %w", s.Name(), err), ""
	}
	return nil, ""
}

// check finds what no single setting can get wrong.
func (d *draft) check() (problems []error) {
	if len(d.AMQPS) > 0 && (d.TLS.CertFile == "" || d.TLS.KeyFile == "") {
		problems = append(problems, errors.New("a TLS address needs a certificate and its key: give --tls-cert and --tls-key, or ssl_options.certfile and ssl_options.keyfile"))
	}
	if d.TLS.Verify && d.TLS.CAFile == "" && len(d.AMQPS) > 0 {
		problems = append(problems, errors.New("ssl_options.verify = verify_peer needs ssl_options.cacertfile"))
	}
	if d.TLS.RequireCert && !d.TLS.Verify && len(d.AMQPS) > 0 {
		problems = append(problems, errors.New("ssl_options.fail_if_no_peer_cert = true needs ssl_options.verify = verify_peer"))
	}
	for _, v := range []struct{ name, value string }{
		{"the data directory", d.DataDir}, {"the node's name", d.NodeName}, {"the default user", d.DefaultUser}, {"the default vhost", d.DefaultVHost}} {
		if v.value == "" {
			problems = append(problems, fmt.Errorf("%s is empty", v.name))
		}
	}
	problems = append(problems, d.Cluster.check()...)
	if d.FlushAt != 0 && d.FlushAt < 1<<18 {
		problems = append(problems, fmt.Errorf("warren.flush_at is %d bytes; at least 256KiB is needed", d.FlushAt))
	}
	if d.JournalMax != 0 && d.JournalMax < 1<<20 {
		problems = append(problems, fmt.Errorf("warren.journal_max is %d bytes; at least 1MiB is needed", d.JournalMax))
	}
	if d.MemoryBound < 1<<20 {
		problems = append(problems, fmt.Errorf("warren.memory_bound is %d bytes; at least 1MiB is needed", d.MemoryBound))
	}
	return problems
}

func (c *Cluster) check() (problems []error) {
	if c.Listen == "" {
		if c.Join != "" {
			problems = append(problems, errors.New("--join needs --cluster-listen: the other nodes must reach this one"))
		}
		return problems
	}
	if c.SecretFile == "" {
		problems = append(problems, errors.New("--cluster-listen needs --cluster-secret-file: a file with a secret that all nodes of the cluster share"))
	}
	if t := c.TLS; (t.CertFile == "") != (t.KeyFile == "") || t.CertFile != "" && t.CAFile == "" || t.CertFile == "" && t.CAFile != "" {
		problems = append(problems, errors.New("TLS between nodes needs warren.cluster.ssl_options.certfile, keyfile and cacertfile"))
	}
	return problems
}

// place is where something stands: a line of a file, or a flag.
func place(where string, line int, text string) error {
	return Problem{File: where, Line: line, Text: text}
}

// filesOf are the files that a path stands for: itself, or the *.conf files of a directory in the order of their names.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) { // RabbitMQ lets the suffix be left out
		if info, err := os.Stat(path + ".conf"); err == nil && !info.IsDir() {
			return []string{path + ".conf"}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	return filepath.Glob(filepath.Join(path, "*.conf"))
}

func readFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > maxFileSize {
		return "", fmt.Errorf("%s: larger than %d bytes", path, maxFileSize)
	}
	text, err := os.ReadFile(path)
	return string(text), err
}
