package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// publishedKeys returns the routing keys of the next n batches.
func publishedKeys(t *testing.T, b *publishBatch, n int) (keys []string) {
	for range n {
		scanner := newFrameScanner(bytes.NewReader(b.fill(b.capacity, stamp{})), 1<<10)
		for range b.capacity * 3 {
			f, err := scanner.next()
			if err != nil {
				t.Fatal(err)
			}
			if f.method() == basicPublish {
				args := f.arguments()[2:]
				key := args[1+int(args[0]):]
				keys = append(keys, string(key[1:1+int(key[0])]))
			}
		}
	}
	return keys
}

func freshTopic(bindings int) *workload {
	w := presets()["topic"].workload
	w.Name, w.FreshKeys, w.Bindings, w.Producers = "topic", true, bindings, 3
	return &w
}

func TestFreshKeysNeverRepeat(t *testing.T) {
	seen := map[string]bool{}
	from := uint64(time.Now().UnixNano())
	for run := range 3 {
		w := freshTopic(10_000)
		w.freshFrom = from
		sent := 0
		for producer := range w.Producers {
			for _, key := range publishedKeys(t, newPublishBatch(w, 128<<10, 1<<20, uint64(producer)), 100) {
				if seen[key] {
					t.Fatalf("run %d, producer %d: %s has been sent before", run, producer, key)
				}
				seen[key] = true
				sent++
			}
		}
		from += uint64(sent) // the earliest clock that a next run could read
	}
	if len(seen) < 100_000 {
		t.Fatalf("only %d keys", len(seen))
	}
}

// TestRepeatedKeysAreFew shows that the test above tells the two apart.
func TestRepeatedKeysAreFew(t *testing.T) {
	w := freshTopic(100)
	w.FreshKeys = false
	seen := map[string]bool{}
	for _, key := range publishedKeys(t, newPublishBatch(w, 128<<10, 1<<20, 0), 20) {
		seen[key] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d keys, want one per binding", len(seen))
	}
}

func TestFreshKeysMatchOneBindingEach(t *testing.T) {
	w := freshTopic(200)
	w.freshFrom = uint64(time.Now().UnixNano())
	hit := map[int]bool{}
	for _, key := range publishedKeys(t, newPublishBatch(w, 128<<10, 1<<20, 0), 10) {
		var matched []int
		for i := range w.Bindings {
			if topicMatches(strings.Split(w.bindingPattern(i), "."), strings.Split(key, ".")) {
				matched = append(matched, i)
			}
		}
		if len(matched) != 1 {
			t.Fatalf("%s matches the bindings %v", key, matched)
		}
		hit[matched[0]] = true
	}
	if len(hit) != w.Bindings {
		t.Errorf("%d of %d bindings are used", len(hit), w.Bindings)
	}
}

// topicMatches is AMQP 0-9-1 §3.1.3.3 word by word.
func topicMatches(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return topicMatches(pattern[1:], key) || len(key) > 0 && topicMatches(pattern, key[1:])
	case len(key) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == key[0]) && topicMatches(pattern[1:], key[1:])
}
