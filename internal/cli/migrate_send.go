// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/director"
	"imbang/internal/model"
)

// sentReport is what imbang migrate send prints with --output json.
type sentReport struct {
	Entries  uint64       `json:"entries"`  // of the last round
	Rounds   int          `json:"rounds"`   // that were begun
	Complete bool         `json:"complete"` // so was the last one
	Messages uint64       `json:"messages"` // of all rounds
	Bytes    uint64       `json:"bytes"`
	Seconds  float64      `json:"seconds"`
	Refused  uint64       `json:"refused"` // of the last round
	Reasons  []sentReason `json:"reasons"`
}

type sentReason struct {
	Why     string `json:"why"`
	Entries uint64 `json:"entries"`
}

// Bounds of --repeat.
const (
	sendRounds     = 2
	mostSendRounds = 100
)

// sendFlags are the flags of imbang migrate send.
type sendFlags struct {
	out          command.OutputFlag
	sync         syncFlags
	rate, rounds int
}

func newMigrateSendCommand() *cobra.Command {
	var f sendFlags
	c := &cobra.Command{
		Use:   "send --interface DEVICE",
		Short: "Send all connections to a director with ip_vs",
		Long: `Sends the whole connection table, connections and persistence templates, once to
directors that run ipvsadm --start-daemon backup: the kernel accepts connections only
in the messages of connection synchronisation (version 1). The other director needs
the same services and servers first.

Nobody acknowledges the messages. So that none is lost they are sent at a bounded rate,
--rate, for which a backup with the default size of socket buffers has room, and
the table is read and sent a second time (--repeat). Compare the number of entries with
that of the other director, which has one line more:

  wc -l </proc/net/ip_vs_conn

An entry of the other director with the same server gets the state sent and a whole
timeout; one with another server is replaced, unless the connection is over.
Connections are sent with the whole timeout of their state, not with what they have
left. These are not sent, and are counted with the reason: connections of a client
beside its server (hairpin), which ip_vs does not have; of a tunnel to a server of the
other address family, which the protocol cannot express; templates that are not used for
new connections any more.

Where --interface, --group, --port and --sync-id of the role master differ from those
here, the other director has to accept both: a backup with --syncid 0 accepts all.

The role master (imbang ipvsadm --start-daemon master) may run meanwhile: it tells of
connections that change after they were sent. At a terminal a bar shows the progress.

Exit status: 0 everything was sent; 1 entries cannot be sent; 2 wrong command line; 3 the
director cannot be read, or a message cannot be sent.`,
		Example: `  imbang migrate send --interface eth2 --sync-id 7
  imbang migrate send --interface eth2 --rate 10000 --repeat 3 --output json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.sync.registerLinux(c)
	c.Flags().IntVar(&f.rate, "rate", synchronize.DefaultRate, "`ENTRIES` per second at most")
	c.Flags().IntVar(&f.rounds, "repeat", sendRounds, "`TIMES` that the table is sent, 1 to 100")
	_ = c.RegisterFlagCompletionFunc("rate", cobra.NoFileCompletions)
	_ = c.RegisterFlagCompletionFunc("repeat", cobra.NoFileCompletions)
	f.out.Register(c, command.One[sentReport](""))
	return c
}

func (f *sendFlags) run(c *cobra.Command) error {
	if err := f.out.Check(); err != nil {
		return err
	}
	if f.sync.device == "" {
		return command.Usage(errors.New("migrate send requires --interface, such as --interface eth2"))
	}
	config, err := f.sync.migration(synchronize.RoleMaster)
	switch {
	case err != nil:
		return command.Usage(err)
	case f.rate < 1 || f.rate > synchronize.MaxRate:
		return command.Usage(fmt.Errorf("--rate %d: want 1 to %d", f.rate, synchronize.MaxRate))
	case f.rounds < 1 || f.rounds > mostSendRounds:
		return command.Usage(fmt.Errorf("--repeat %d: want 1 to %d", f.rounds, mostSendRounds))
	}
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	report := sentReport{Reasons: []sentReason{}}
	began := time.Now()
	for round := 0; round < f.rounds && err == nil; round++ {
		err = f.send(c, d, config, round, &report)
	}
	report.Seconds = time.Since(began).Seconds()
	if errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	if report.Messages > 0 || err == nil {
		err = errors.Join(err, f.out.Print(c.OutOrStdout(), report, report.print))
	}
	if err == nil && report.Refused > 0 {
		return command.ErrNotAsExpected
	}
	return err
}

// send sends the table once.
func (f *sendFlags) send(c *cobra.Command, d *director.Director, config synchronize.Config, round int, report *sentReport) error {
	timeouts, err := d.Timeouts()
	if err != nil {
		return err
	}
	total, err := d.CountConnections(director.ConnectionFilter{})
	if err != nil {
		return err
	}
	shown := newBar(c.ErrOrStderr(), fmt.Sprintf("round %d/%d", round+1, f.rounds), int(total))
	t := synchronize.Transfer{Rate: f.rate, Timeouts: timeouts, Sent: func(n uint64) { shown.set(int(n)) }}
	err = t.Send(c.Context(), config, templatesFirst(d))
	shown.end()
	report.add(&t, err == nil)
	return err
}

// templatesFirst yields the table, templates first: they are what new connections need.
func templatesFirst(d *director.Director) iter.Seq2[model.Connection, error] {
	return func(yield func(model.Connection, error) bool) {
		for _, kind := range []director.EntryKind{director.OnlyTemplates, director.OnlyConnections} {
			for c, err := range d.Connections(director.ConnectionFilter{Kind: kind}) {
				if !yield(c, err) {
					return
				}
			}
		}
	}
}

// add counts a round.
func (r *sentReport) add(t *synchronize.Transfer, complete bool) {
	r.Entries, r.Messages, r.Bytes = t.Entries, r.Messages+t.Messages, r.Bytes+t.Bytes
	r.Rounds, r.Complete = r.Rounds+1, complete
	r.Refused, r.Reasons = 0, []sentReason{}
	for why, n := range t.Refused {
		r.Refused += n
		r.Reasons = append(r.Reasons, sentReason{why, n})
	}
	slices.SortFunc(r.Reasons, func(a, b sentReason) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), strings.Compare(a.Why, b.Why))
	})
}

func (r sentReport) print(w io.Writer) error {
	what := "sent " + plural(r.Rounds, "time", "times")
	if !r.Complete {
		what = fmt.Sprintf("sent in round %d, which is not complete", r.Rounds)
	}
	fmt.Fprintf(w, "%d entries %s: %d messages, %d bytes in %.1f s\n", r.Entries, what, r.Messages, r.Bytes, r.Seconds)
	for _, one := range r.Reasons {
		fmt.Fprintf(w, "%d not sent: %s\n", one.Entries, one.Why)
	}
	return nil
}
