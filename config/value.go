package config

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// units are RabbitMQ's suffixes of amounts of bytes; without one the number counts bytes. Source: RabbitMQ docs, memory.
var units = []struct {
	suffix string
	factor uint64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40}, {"pib", 1 << 50},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12}, {"pb", 1e15},
	{"ki", 1 << 10}, {"mi", 1 << 20}, {"gi", 1 << 30}, {"ti", 1 << 40}, {"pi", 1 << 50},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"t", 1 << 40}, {"p", 1 << 50},
}

// parseBytes reads an amount of bytes such as 2GB, 512MiB or 50000000. RabbitMQ takes K, M and G for powers of 1024.
func parseBytes(value string) (uint64, error) {
	number, factor := strings.ToLower(value), uint64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n > math.MaxUint64/factor {
		return 0, fmt.Errorf("%q is no amount of bytes; write for example 50000000, 50MB or 48MiB", value)
	}
	return n * factor, nil
}

// parseCount reads an integer within [low, high].
func parseCount(value string, low, high uint64) (uint64, error) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%q is no integer from %d to %d", value, low, high)
	}
	return n, nil
}

// parseBound reads a count for which infinity is a value; 0 is returned for it. A bound of 0 in the file is refused, because 0 means none here.
func parseBound(value string) (int, error) {
	if value == "infinity" {
		return 0, nil
	}
	n, err := parseCount(value, 1, math.MaxInt32)
	if err != nil {
		return 0, fmt.Errorf("%w or infinity", err)
	}
	return int(n), nil
}

// parseMillis reads a duration written as milliseconds.
func parseMillis(value string) (time.Duration, error) {
	n, err := parseCount(value, 1, 1<<40)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of milliseconds", value)
	}
	return time.Duration(n) * time.Millisecond, nil
}

func parseBool(value string) (bool, error) {
	switch value {
	case "true", "on":
		return true, nil
	case "false", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", value)
}

// parseChoice returns value if it is one of the choices.
func parseChoice(value string, choices ...string) (string, error) {
	if slices.Contains(choices, value) {
		return value, nil
	}
	return "", fmt.Errorf("%q is none of: %s", value, strings.Join(choices, ", "))
}

// parseAddress reads a port, host:port or [v6]:port and returns it in the form that net.Listen takes.
func parseAddress(value string) (string, error) {
	if port, err := strconv.ParseUint(value, 10, 16); err == nil {
		return ":" + strconv.FormatUint(port, 10), nil
	}
	host, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("%q is no address; write a port, host:port or [v6]:port", value)
	}
	return net.JoinHostPort(host, port), nil
}

// levels are the names of RabbitMQ's log levels, from the most talkative on.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency", "none"}

func parseLevel(value string) (string, error) { return parseChoice(value, levels...) }
