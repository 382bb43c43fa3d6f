package cli

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/quorum"
)

// restoreCommand has a cluster go on that has lost its majority, with what one member has.
func (p *program) restoreCommand(use string, rabbit bool) *cobra.Command {
	var yes bool
	given := map[string]*string{"data-dir": new(string), "config": new(string)}
	c := &cobra.Command{
		Use:   use,
		Short: "Go on with one member of a cluster whose majority is lost for good",
		Long: `Make a stopped member of a cluster the only member of a new one, with all that it has: metadata, quorum queues, streams with their offsets,
and the classic queues that live on it. It is for a cluster that has lost the disks of so many members that no majority will ever be
there again. What may come back should: nothing is lost then.

Lost is what the others had agreed on and this node had not heard of, and the classic queues that lived on them. First it says
what is kept and what is lost, and where the node's logs end: of several nodes that are left restore the one whose logs end last, and
have the others join it with empty directories. Then it asks for the node's name, unless --yes is given. Keep a copy of the directory
if there is room for one.

Afterwards 'warren server' runs the node as before; with --cluster-listen others can join it. The members that were lost are no
members any more: if one comes back with its old directory, the new cluster refuses it. An interrupted restore is run again; until it
has ended, 'warren server' does not start on the directory.`,
		Example: "  warren cluster restore --data-dir /var/lib/warren\n  warren cluster restore --config /etc/warren/warren.conf --yes",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			from := config.Sources{Flags: map[string]string{}, LookupEnv: p.env}
			for name, value := range given {
				if c.Flags().Changed(name) {
					from.Flags[name] = *value
				}
			}
			cfg, _, err := config.Load(from)
			if err != nil {
				return &failure{code: exitConfig, text: "the configuration is wrong:\n  " + strings.ReplaceAll(err.Error(), "\n", "\n  "), err: err,
					remedy: "'warren cluster restore --help' names the flags."}
			}
			return p.restore(cfg, yes)
		},
	}
	if rabbit {
		c.Hidden, c.Short = true, "As rabbitmqctl "+use
	}
	c.Flags().StringVar(given["data-dir"], "data-dir", "", "the stopped node's `DIR`ectory (default ./warren-data)")
	c.Flags().StringVar(given["config"], "config", "", "the node's configuration `FILE`, if it names the directory")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (p *program) restore(cfg config.Config, yes bool) error {
	log := slog.New(slog.NewTextHandler(p.err, &slog.HandlerOptions{Level: slog.LevelError}))
	last, err := lastWill(cfg.DataDir, log)
	if err != nil {
		return err
	}
	last.print(p.out)
	switch {
	case yes:
	case !p.terminal:
		return &failure{code: exitUsage, text: "nothing was changed: this cannot be undone, and must be confirmed", remedy: "Give --yes."}
	case !p.typed(last.node.Name):
		return &failure{code: exitUsage, text: "nothing was changed"}
	}
	cfg.Cluster, cfg.NodeName = config.Cluster{}, last.node.Name
	cfg.DiskBallast = uint64(ballastOf(cfg.DataDir))
	h, err := inherit(cfg, log)
	if err != nil {
		return &failure{code: exitData, text: "the restore did not end: " + err.Error(), err: err,
			remedy: "Run it again when the reason is gone; 'warren server' does not start on " + cfg.DataDir + " before."}
	}
	h.print(p.out, last, cfg.DataDir)
	return nil
}

// typed asks for a text that shows that whoever types it means this node.
func (p *program) typed(want string) bool {
	fmt.Fprintf(p.err, "This cannot be undone. Type %s to go on: ", want)
	var answer string
	_, _ = fmt.Fscanln(p.in, &answer) // no answer is a no
	return answer == want
}

// will is what a restore of a directory would keep and lose, as far as that can be known.
type will struct {
	node    cluster.Identity
	others  []broker.Member
	again   bool // a restore has begun
	queues  int
	streams int
	classic []string // that live on this node, and
	lost    []string // on others
	logs    []quorum.LogEnd
	follows []string // slots in which the node has no vote, with those who have
}

// lastWill looks at the directory of a stopped member.
func lastWill(dir string, log *slog.Logger) (w *will, err error) {
	s, err := openStopped(dir)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if s.broken != nil {
		return nil, &failure{code: exitData, text: s.broken.Error(), err: s.broken, remedy: "'warren storage verify " + dir + "' tells what is damaged."}
	}
	w = new(will)
	if w.node, err = cluster.Read(s.rooms.db); err != nil {
		return nil, err
	}
	if w.again, err = cluster.Leaving(s.rooms.db); err != nil {
		return nil, err
	}
	if w.node.Number == 0 {
		return nil, &failure{code: exitData, text: "the node of " + dir + " is no member of a cluster: there is nothing to restore", remedy: "'warren server' runs it."}
	}
	w.logs, err = quorum.LogEnds(filepath.Join(dir, "raft"), s.rooms.db, w.node.Number, s.rooms.broker, log, (&rooms{log: log}).raftFailed)
	if err != nil {
		return nil, unopened("the Raft log in "+filepath.Join(dir, "raft"), dir, err)
	}
	for _, m := range s.rooms.broker.Members() {
		if m.Number != w.node.Number {
			w.others = append(w.others, m)
		}
	}
	if len(w.others) == 0 && !w.again {
		return nil, &failure{code: exitData, text: w.node.Name + " is the only member of its cluster: there is nothing to restore", remedy: "'warren server' runs it."}
	}
	if err := w.judge(s.rooms.broker.Members(), s.rooms.broker.Replicas()); err != nil {
		return nil, err
	}
	for _, v := range s.rooms.broker.VHosts() {
		for _, q := range v.Queues() {
			switch name := fmt.Sprintf("queue '%s' in vhost '%s'", q.Name, v.Name); {
			case q.Type == broker.Quorum:
				w.queues++
			case q.Type == broker.Stream:
				w.streams++
			case max(q.Home, 1) == w.node.Number:
				w.classic = append(w.classic, name)
			default:
				w.lost = append(w.lost, name)
			}
		}
	}
	return w, nil
}

// judge finds the slots in which the node has no vote, and refuses one that has nothing of a slot, or was not a member yet.
func (w *will) judge(members []broker.Member, replicas []broker.Replica) error {
	names := map[uint64]string{}
	for _, m := range members {
		if names[m.Number] = m.Name; m.Number == w.node.Number && m.Start == 0 {
			return &failure{code: exitData, text: w.node.Name + " was only about to become a member of its cluster, and has no vote: it cannot be restored",
				remedy: "Restore another member."}
		}
	}
	votes, follows := map[uint64][]string{}, []uint64{}
	for _, r := range replicas {
		switch {
		case r.Vote == broker.Votes && names[r.Member] != "":
			votes[r.Shard] = append(votes[r.Shard], names[r.Member])
		case r.Vote == broker.Follows && r.Member == w.node.Number:
			follows = append(follows, r.Shard)
		}
	}
	var lacks, have []string
	for _, shard := range follows {
		told := fmt.Sprintf("%s (%s)", quorum.ShardName(shard), strings.Join(votes[shard], ", "))
		w.follows = append(w.follows, told)
		if i := slices.IndexFunc(w.logs, func(l quorum.LogEnd) bool { return l.Shard == shard }); i >= 0 && w.logs[i].Last > 0 {
			continue
		}
		if lacks == nil {
			have = slices.Clone(votes[shard])
		}
		lacks = append(lacks, told)
		have = slices.DeleteFunc(have, func(name string) bool { return !slices.Contains(votes[shard], name) })
	}
	if lacks == nil {
		return nil
	}
	f := &failure{code: exitData, text: fmt.Sprintf("%s has nothing of %s: it was only about to get it from those who have a vote there", w.node.Name, strings.Join(lacks, ", ")),
		remedy: "Restore another member."}
	if len(have) > 0 {
		f.remedy = "Restore one of those that have all of it: " + strings.Join(have, ", ") + "."
	}
	return f
}

// maxLost is how many queues are named that are lost.
const maxLost = 20

func (w *will) print(out io.Writer) {
	var names []string
	for _, m := range w.others {
		names = append(names, fmt.Sprintf("%s (member %d, %s)", m.Name, m.Number, m.Address))
	}
	fmt.Fprintf(out, "%s is member %d of a cluster", w.node.Name, w.node.Number)
	if len(names) > 0 {
		fmt.Fprintf(out, " with %s", strings.Join(names, ", "))
	}
	fmt.Fprintln(out, ".\nIt is about to become the only member of a new cluster, without them for ever.")
	if w.again {
		fmt.Fprintln(out, "A restore of it has begun before, and goes on.")
	}
	fmt.Fprintf(out, "\nkept: users, policies and all other metadata; %s, %s, and of this node %s\n",
		count(w.queues, "quorum queue"), count(w.streams, "stream"), count(len(w.classic), "classic queue"))
	fmt.Fprintln(out, "lost: what the others had agreed on behind the ends of this node's logs; how much that is cannot be seen here")
	if n := len(w.lost); n > 0 {
		fmt.Fprintf(out, "lost: of the others %s, with the messages:\n", count(n, "classic queue"))
		for _, name := range w.lost[:min(n, maxLost)] {
			fmt.Fprintln(out, "  "+name)
		}
		if n > maxLost {
			fmt.Fprintf(out, "  and %d more\n", n-maxLost)
		}
	}
	if len(w.follows) > 0 {
		fmt.Fprintln(out, "\nIn some slots this node has no vote and follows: what it has there may end earlier than what one of those has who have a vote:")
		for _, told := range w.follows {
			fmt.Fprintln(out, "  "+told)
		}
	}
	lines := [][]string{{"log", "last entry", "of term", "known to be agreed on"}}
	var rows [][]any
	for _, l := range w.logs {
		lines = append(lines, []string{l.Name, fmt.Sprint(l.Last), fmt.Sprint(l.Term), fmt.Sprint(l.Agreed)})
		rows = append(rows, []any{l.Name, l.Last, l.Term, l.Agreed})
	}
	fmt.Fprintln(out)
	_ = printTable(out, lines, rows) // what cannot be written here cannot be told either
	if slices.ContainsFunc(w.logs, func(l quorum.LogEnd) bool { return l.Last > l.Agreed }) {
		fmt.Fprintln(out, "\nEntries behind those that are known to be agreed on are kept too: a client may have been told that they are safe.")
	}
	fmt.Fprintln(out)
}

func (h *heritage) print(out io.Writer, w *will, dir string) {
	fmt.Fprintf(out, "%s is the only member of a new cluster now.\n\n", w.node.Name)
	fmt.Fprintf(out, "kept: %s with %s, %s with %s, %s with %s\n", count(int(h.queues), "quorum queue"), count(int(h.messages), "message"),
		count(int(h.streams), "stream"), count(int(h.records), "message"), count(int(h.classic), "classic queue"), count(int(h.classicMessages), "message"))
	if h.orphans > 0 {
		fmt.Fprintf(out, "deleted: of the others %s\n", count(h.orphans, "classic queue"))
	}
	if h.unknownQueues+h.unknownStreams > 0 { // metadata's log ended before the others
		fmt.Fprintf(out, "deleted: %s and %s of which this node has messages, but no names: its metadata had not heard of them\n",
			count(h.unknownQueues, "quorum queue"), count(h.unknownStreams, "stream"))
	}
	fmt.Fprintf(out, "\n'warren server --data-dir %s' runs it; with --cluster-listen and --cluster-secret-file others can join.\n", dir)
}
