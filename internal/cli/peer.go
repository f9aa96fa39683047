// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/api"
)

func newPeerCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "peer",
		Short: "Compare and align the two directors of a pair",
		Long: `The daemons (imbang run) of two directors that stand in for each other are linked by
the section pair of their configurations. Over the link they compare configurations,
share operators' orders (imbang drain, maintenance, weight --set, enable), and compare
which servers they see up.

Two directors of a pair have the same configuration but for what belongs to one of
them: addresses and devices of its own, its priority, its part in synchronization. A
difference that lasts is the alarm pair-configuration.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newPeerStatusCommand(), newPeerDiffCommand(), newPeerPushCommand())
	return c
}

func newPeerStatusCommand() *cobra.Command {
	var out command.OutputFlag
	c := &cobra.Command{
		Use:   "status",
		Short: "Show how the link to the other director is doing",
		Long: `Shows whether the other director of the pair is reached, whether the two have the
same configuration and orders, how many servers of each service each of them sees up,
and whether one leaves the addresses to the other for that reason.

Any user may use it. The exit status is 0, 1 if the peer is not reached or its
configuration differs, 2 for a wrong command line, or 3 if it failed: no daemon runs,
or no pair is configured.`,
		Example: `  imbang peer status`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			d, err := api.NewClient()
			if err != nil {
				return err
			}
			s, err := d.Status(c.Context())
			if err != nil {
				return err
			}
			if s.Pair == nil {
				return errors.New("no pair is configured: write the section pair into the configuration of imbang run")
			}
			err = out.Print(c.OutOrStdout(), s.Pair, func(w io.Writer) error {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				printPair(t, s.Pair, time.Now())
				printViews(t, s.Pair)
				return t.Flush()
			})
			if err == nil && (!s.Pair.Reached || s.Pair.Same == nil || !*s.Pair.Same) {
				return command.ErrNotAsExpected
			}
			return err
		},
	}
	out.Register(c, command.One[api.Pair](""))
	return c
}

func newPeerDiffCommand() *cobra.Command {
	var out command.OutputFlag
	c := &cobra.Command{
		Use:   "diff",
		Short: "Show how the configurations of the two directors differ",
		Long: `Lists the keys of the applied configurations that differ between this director and
its peer, with both values. Keys that belong to one director are not compared;
docs/how-to/pair.md lists them. Entries of lists are matched by address or name, and
a different order of servers is a difference, since schedulers go by it. Files with
certificates are compared by their fingerprints. Values that
may have passwords, and commands, are not shown.

Requires root or membership of group imbang. The exit status is 0 if nothing differs,
1 if something does, 2 for a wrong command line, or 3 if it failed: no daemon runs, no
pair is configured, or the peer was not reached yet.`,
		Example: `  imbang peer diff || imbang peer push`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			d, err := api.NewClient()
			if err != nil {
				return err
			}
			diff, err := d.Differences(c.Context())
			if err != nil {
				return err
			}
			err = out.Print(c.OutOrStdout(), diff, func(w io.Writer) error {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				for _, one := range diff.Differences {
					fmt.Fprintf(t, "%s\t%s here\t%s there\n", one.Path, one.Ours, one.Theirs)
				}
				if len(diff.Differences) == 0 {
					fmt.Fprintf(t, "%s has the same configuration\n", diff.Peer)
				}
				return t.Flush()
			})
			if !diff.Reached {
				fmt.Fprintf(c.ErrOrStderr(), "imbang: warning: %s is not reached now: this is what it had before\n", diff.Peer)
			}
			if err == nil && len(diff.Differences) > 0 {
				return command.ErrNotAsExpected
			}
			return err
		},
	}
	out.Register(c, command.One[api.Differences](""))
	return c
}

func newPeerPushCommand() *cobra.Command {
	var out command.OutputFlag
	var q api.PeerRequest
	var yes, dry bool
	c := &cobra.Command{
		Use:   "push",
		Short: "Give this director's configuration to the other one",
		Long: `Sends the applied configuration to the peer, which replaces by its own values what
belongs to one director, and plans the result as imbang plan does. The plan is shown;
after a confirmation, or with --yes, the peer writes the result into its file, keeps
the former one as FILE.before, and reloads. Files with certificates and keys that its
listeners and backends name are sent, if the peer has others: a new one with a key has
mode 0600 and belongs to root, one that is replaced keeps owner and mode.

Nothing is changed if the file is not valid there, if devices that it names are
missing, if it deletes more servers than daemon.max_removed allows (--force), if
either file has changed since it was applied, or if the peer's has changed since the
plan. A group of vrrp with peers that the other director does not have yet is
written there by hand first.

Requires root. The exit status is 0, 1 if the plan was not confirmed, 2 for a wrong
command line, or 3 if it failed; then the peer's file is as it was.`,
		Example: `  imbang peer push --dry-run
  imbang peer push --yes`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			in, is := c.InOrStdin().(*os.File)
			if !yes && !dry && (!is || !isatty.IsTerminal(in.Fd())) {
				return command.Usage(errors.New("standard input is no terminal to confirm at: add --yes, or --dry-run to see the plan"))
			}
			d, err := api.NewClient()
			if err != nil {
				return err
			}
			p, err := d.PeerPlan(c.Context(), q)
			if err != nil {
				return err
			}
			if dry || !yes {
				if err := out.Print(c.OutOrStdout(), p, func(w io.Writer) error { return printPeerPlan(w, p, "would change") }); err != nil || dry {
					return err
				}
				if !confirmed(c.Context(), in, c.ErrOrStderr(), fmt.Sprintf("Apply this on %s? [y/N] ", p.Peer)) {
					fmt.Fprintln(c.ErrOrStderr(), "nothing is changed")
					return command.ErrNotAsExpected
				}
			}
			q.Base = p.Base
			if p, err = d.PeerPush(c.Context(), q); err != nil {
				return err
			}
			if !yes {
				_, err = fmt.Fprintf(c.OutOrStdout(), "%s has applied %s\n", p.Peer, p.File)
				return err
			}
			return out.Print(c.OutOrStdout(), p, func(w io.Writer) error { return printPeerPlan(w, p, "changed") })
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for a confirmation")
	c.Flags().BoolVar(&dry, "dry-run", false, "show the plan and change nothing")
	c.Flags().BoolVar(&q.Force, "force", false, "even if more servers are deleted than daemon.max_removed allows, or devices are missing")
	out.Register(c, command.One[api.PeerPlan](""))
	return c
}

// confirmed asks. The end of the context (Ctrl-C) is a no: the read of the terminal goes on, and
// ends with the process.
func confirmed(ctx context.Context, in io.Reader, w io.Writer, question string) bool {
	fmt.Fprint(w, question)
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		return answer == "y" || answer == "yes"
	case <-ctx.Done():
		fmt.Fprintln(w)
		return false
	}
}

func printPeerPlan(w io.Writer, p *api.PeerPlan, verb string) error {
	fmt.Fprintf(w, "%s, file %s, %s:\n", p.Peer, p.File, verb)
	for _, line := range p.Changes {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w, p.Summary)
	for _, line := range p.Notes {
		if _, err := fmt.Fprintln(w, "note: "+line); err != nil {
			return err
		}
	}
	return nil
}

// printPair is a line for the link of a pair.
func printPair(w io.Writer, p *api.Pair, now time.Time) {
	state := "NOT REACHED"
	switch {
	case p.Reached:
		state = "reached"
	case !p.Heard.IsZero():
		state += " for " + ago(now, p.Heard)
	}
	var words []string
	switch {
	case p.Same == nil:
		words = append(words, "its configuration is not known yet")
	case *p.Same:
		words = append(words, "same configuration")
	default:
		words = append(words, fmt.Sprintf("CONFIGURATION DIFFERS in %d keys (imbang peer diff)", p.Different))
	}
	if p.Reached && !p.Orders {
		words = append(words, "orders are not taken over yet")
	}
	switch p.Peers {
	case "more", "fewer", "as many":
		words = append(words, fmt.Sprintf("it sees %s servers up%s", p.Peers, map[bool]string{true: " as this director"}[p.Peers == "as many"]))
	}
	if p.Yields {
		words = append(words, "THIS DIRECTOR YIELDS to it")
	}
	if c := p.Clock; c != nil && c.Apart() {
		words = append(words, fmt.Sprintf("ITS CLOCK IS %+.1f s from this one's", c.AheadMS/1000))
	}
	if p.PeerYield && p.Reached {
		words = append(words, "it yields to this director")
	}
	fmt.Fprintf(w, "pair\t%s to %s\t%s\t%s\n", p.Listen, p.Peer, state, strings.Join(words, "; "))
	if p.Error != "" {
		fmt.Fprintf(w, "  %s\n", p.Error)
	}
}

// printViews is a line for each service whose servers are checked.
func printViews(w io.Writer, p *api.Pair) {
	theirs := map[string]api.Up{}
	for _, one := range p.PeerUp {
		theirs[one.Service] = one
	}
	for _, one := range p.OwnUp {
		there := "not known there"
		if other, known := theirs[one.Service]; known {
			there = fmt.Sprintf("%d of %d there", other.Up, other.Total)
		}
		fmt.Fprintf(w, "  %s\t%d of %d servers up here\t%s\n", one.Service, one.Up, one.Total, there)
	}
}
