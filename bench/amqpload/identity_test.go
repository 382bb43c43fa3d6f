package main

import "testing"

func TestIdentityOfABroker(t *testing.T) {
	var e encoder
	e.octet(0).octet(9).table(table{
		"capabilities": table{"basic.nack": true, "product": "no"}, "product": "Hare", "limit": 7, "version": "1.2",
	}).longstr("PLAIN").longstr("en_US")
	if got := identityOf(e.buf); got != "Hare 1.2" {
		t.Errorf("identity %q", got)
	}
	for n := range e.buf {
		identityOf(e.buf[:n]) // must not panic
	}
	if got := identityOf([]byte{0, 9, 0xFF, 0xFF, 0xFF, 0xFF, 3, 'a'}); got != "" {
		t.Errorf("identity %q of a broken table", got)
	}
}
