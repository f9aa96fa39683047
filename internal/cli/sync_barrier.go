// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/api"
)

func newBarrierCommand() *cobra.Command {
	var out command.OutputFlag
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "barrier",
		Short: "Wait until all backups have applied everything",
		Long: `Asks the daemon of this network namespace (imbang run), which is the master of
imbang's own protocol, or a director of a pair, and waits until each backup that is
registered, or the other director, has applied everything that happened to the connection
table here up to now, and has the whole table. Use it in front of a planned move of
addresses. It lists the directors with the number of datagrams that each is behind, or,
as INCOMPLETE, with the number of entries that it could not enter: a service or server is
missing there, or its table is full. If these entries do not become fewer for 2.5 s, it
does not wait for the timeout. Of the other director of a pair it names what is missing.

Requires root or membership of group imbang. The exit status is 0 if all backups have
applied and entered everything, 1 if some have not within the timeout or lack entries, 2 for a wrong
command line, or 3 if it failed: no daemon runs, it is a backup, or no other
director is registered.`,
		Example: `  imbang sync barrier --timeout 30s && systemctl stop keepalived`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if timeout <= 0 || timeout > longestBarrier {
				return command.Usage(fmt.Errorf("--timeout %v: want more than 0 and at most %v", timeout, longestBarrier))
			}
			d, err := api.NewClient()
			if err != nil {
				return err
			}
			b, err := d.Barrier(c.Context(), api.BarrierRequest{Timeout: timeout.Seconds()})
			if err != nil {
				return err
			}
			if err := out.Print(c.OutOrStdout(), b, func(w io.Writer) error { return printBarrier(w, b, timeout) }); err != nil {
				return err
			}
			if !b.Reached {
				return command.ErrNotAsExpected
			}
			return nil
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait at most, up to 10m")
	_ = c.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions)
	out.Register(c, command.One[api.BarrierReply](""))
	return c
}

// longestBarrier is the daemon's limit.
const longestBarrier = 10 * time.Minute

// printBarrier lists the backups, those that are behind first.
func printBarrier(w io.Writer, b *api.BarrierReply, timeout time.Duration) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	behind, incomplete := 0, 0
	for _, r := range b.Receivers {
		switch {
		case r.Behind == 0:
			continue
		case !r.Synced:
			fmt.Fprintf(t, "%s\tBEHIND\tby %d datagrams, does not have the whole table\n", r.Address, r.Behind)
		default:
			fmt.Fprintf(t, "%s\tBEHIND\tby %d datagrams\n", r.Address, r.Behind)
		}
		behind++
	}
	for _, r := range b.Receivers {
		if r.Behind == 0 && r.Lacking > 0 {
			fmt.Fprintf(t, "%s\tINCOMPLETE\thas applied everything, but could not enter %d entries%s\n", r.Address, r.Lacking, missingThere(r.Missing))
			incomplete++
		}
	}
	for _, r := range b.Receivers {
		if r.Behind == 0 && r.Lacking == 0 {
			fmt.Fprintf(t, "%s\thas applied everything\n", r.Address)
		}
	}
	if behind > 0 {
		fmt.Fprintf(t, "%d of %d backups have not applied everything within %v\n", behind, len(b.Receivers), timeout)
	}
	if incomplete > 0 {
		fmt.Fprintf(t, "%d of %d backups have not entered everything: their status has what is missing\n", incomplete, len(b.Receivers))
	}
	return t.Flush()
}
