// Drill kills a node under load, again and again, and proves from the history of all that clients saw that it kept its
// promises. docs/reliability.md says which.
//
//	go run ./test/drill [-kills 1000] [-seed N] [-dir DIR] [-power] [-type quorum|stream]
//
// It builds Warren, runs it on ports chosen at run time in a directory of its own, and prints the seed. When a promise was
// broken it says which message broke which, and keeps the data directory, the node's log and the history.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	warren "github.com/warrenmq/warren/test/node"
)

func main() {
	kills := flag.Int("kills", 100, "how often the node is killed")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "what is random follows from it, but for what the machine does")
	dir := flag.String("dir", "", "work in this directory and keep it")
	power := flag.Bool("power", false, "cut the power of a node on a simulated disk instead of killing a process")
	sabotage := flag.String("sabotage", "", "what is broken on purpose: confirm or skip, with streams confirm or commit (built with -tags sabotage); with -power also nosync, nosyncdir or dropwrite")
	typ := flag.String("type", "classic", "of the queues: classic, quorum or stream (the last two not with -power: the Raft log is on the real disk)")
	flag.Parse()
	if err := run(*kills, *seed, *dir, *power, *sabotage, *typ); err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
}

func run(kills int, seed uint64, dir string, power bool, sabotage, typ string) error {
	if typ != "classic" && typ != "quorum" && typ != "stream" || typ != "classic" && power {
		return fmt.Errorf("-type %s is not possible", typ)
	}
	own := dir == ""
	if own {
		var err error
		if dir, err = os.MkdirTemp("", "warren-drill-"); err != nil {
			return err
		}
	}
	fmt.Printf("seed %d, in %s\n", seed, dir)
	h := &history{quorum: typ == "quorum"}
	o := options{seed: seed, kills: kills, least: 100 * time.Millisecond, most: 500 * time.Millisecond,
		say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	var tags []string
	if sabotage != "" {
		tags = []string{"sabotage"}
		o.early = 5
	}
	if typ == "stream" {
		o.least, o.most = 600*time.Millisecond, 1200*time.Millisecond // the Raft shards elect themselves first
		told, err := runStreams(dir, o, tags, sabotage)
		fmt.Println(told)
		if err == nil && own {
			return os.RemoveAll(dir)
		}
		if err != nil {
			err = fmt.Errorf("%w\nthe data directory and the node's log are in %s", err, dir)
		}
		return err
	}
	var n node
	if power {
		m, err := newMachine(seed, sabotage)
		if err != nil {
			return err
		}
		n = m
	} else {
		binary := filepath.Join(dir, "warren")
		if err := warren.Build(binary, tags...); err != nil {
			return err
		}
		n = newProcess(binary, dir, typ, "WARREN_SABOTAGE="+sabotage)
	}
	r, err := drill(n, h, o)
	if err == nil {
		err = r.err()
	}
	fmt.Println(r.String())
	if err != nil {
		return keep(h, dir, err)
	}
	if own {
		return os.RemoveAll(dir)
	}
	return nil
}

// keep writes the history beside what the node has left.
func keep(h *history, dir string, cause error) error {
	f, err := os.Create(filepath.Join(dir, "history"))
	if err != nil {
		return fmt.Errorf("%w\n(and the history could not be kept: %v)", cause, err)
	}
	defer f.Close()
	if err := h.write(f); err != nil {
		return fmt.Errorf("%w\n(and the history could not be kept: %v)", cause, err)
	}
	return fmt.Errorf("%w\nthe data directory, the node's log and the history are in %s", cause, dir)
}
