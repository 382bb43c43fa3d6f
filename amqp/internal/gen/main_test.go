package main

import (
	"bytes"
	"os"
	"testing"
)

func TestGeneratedFileIsCurrent(t *testing.T) {
	want, err := generate(table)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../methods_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("methods_gen.go is not what methods.txt gives: run go generate ./amqp")
	}
}

func TestParseFaults(t *testing.T) {
	for _, line := range []string{"10.10 a.b", "x a.b C", "10.10 a.b C field"} {
		if m, err := parse(line); err == nil {
			t.Errorf("%q gave %+v", line, m)
		}
	}
}
