package main

import (
	"encoding/binary"
	"strings"
)

// identify returns the product and version that a broker announces in connection.start.
func identify(e endpoint) (string, error) {
	c, err := dial(e)
	if err != nil {
		return "", err
	}
	return identityOf(c.start), c.shutdown()
}

// identityOf reads connection.start's arguments; what it cannot read is left out.
func identityOf(start []byte) string {
	const version = 2 // octets of the protocol's version, before the server's properties
	if len(start) < version+4 {
		return ""
	}
	properties := start[version+4:]
	properties = properties[:min(uint64(len(properties)), uint64(binary.BigEndian.Uint32(start[version:])))]
	found := map[string]string{}
	for len(properties) > 0 {
		name, rest, ok := cutField(properties)
		if !ok {
			break
		}
		value, after, ok := cutValue(rest)
		if !ok {
			break
		}
		found[name], properties = value, after
	}
	return strings.TrimSpace(found["product"] + " " + found["version"])
}

// cutField returns a field's name and what follows it.
func cutField(b []byte) (name string, rest []byte, ok bool) {
	n := 1 + int(b[0])
	if len(b) < n {
		return "", nil, false
	}
	return string(b[1:n]), b[n:], true
}

// cutValue returns a long string's content, or "" for a value of another type, and what follows it.
func cutValue(b []byte) (value string, rest []byte, ok bool) {
	if len(b) == 0 {
		return "", nil, false
	}
	kind, b := b[0], b[1:]
	size := uint64(0)
	switch kind {
	case 'V':
	case 't', 'b', 'B':
		size = 1
	case 's', 'u':
		size = 2
	case 'I', 'i', 'f':
		size = 4
	case 'l', 'd', 'T':
		size = 8
	case 'D':
		size = 5
	case 'S', 'x', 'F', 'A':
		if len(b) < 4 {
			return "", nil, false
		}
		size, b = uint64(binary.BigEndian.Uint32(b)), b[4:]
	default:
		return "", nil, false
	}
	if uint64(len(b)) < size {
		return "", nil, false
	}
	if kind == 'S' {
		value = string(b[:size])
	}
	return value, b[size:], true
}
