// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/director"
)

func newUpgradeCommand() *cobra.Command {
	var out command.OutputFlag
	var dry bool
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace the loaded data plane by this program's, without losing a connection",
		Long: `Replaces the BPF programs of the director in this network namespace by those
of this imbang. Services, servers, counters and connections stay; tables whose
layout changed are converted. Every packet is handled by one build or the
other: all devices change over at the same moment.

If the loaded build has its connections in other maps (ABI 1 or 2), they are
copied after that moment. Until they are copied, packets that may belong to one are dropped (the
senders repeat them); new connections are opened meanwhile. imbang status shows
them as "drop upgrade".

If imbang vrrp runs, the other directors are told to wait for up to 3 s for it
meanwhile: to check the programs may keep a CPU busy for longer than its interval.

A change that cannot be made under traffic is rejected, and nothing is changed;
--dry-run reports it beforehand. An upgrade that was interrupted, even by
SIGKILL, loses no connection: run it again to finish it. Until then other
commands fail.

A director loaded by a build without an ABI number cannot be upgraded: remove it
with imbang detach, which ends its connections.`,
		Example: `  imbang upgrade --dry-run
  imbang upgrade
  imbang upgrade --output json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			o := director.UpgradeOptions{DryRun: dry}
			if out.Format == "text" {
				o.Progress = func(step string) { fmt.Fprintf(c.ErrOrStderr(), "imbang: %s\n", step) }
			}
			if !dry {
				defer announceBusy(c.Context())()
			}
			r, err := director.Upgrade(o)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), r, func(w io.Writer) error { return printUpgrade(w, r, dry) })
		},
	}
	out.Register(c, command.One[director.UpgradeResult](""))
	c.Flags().BoolVar(&dry, "dry-run", false, "print what would be done, and change nothing")
	return c
}

// busyPatience is how long imbang vrrp may take to have other directors wait for it.
const busyPatience = 3 * time.Second

// announceBusy has imbang vrrp, if it runs, tell other directors to wait longer for it until the
// function that it returns is called: while the kernel checks programs, nothing else may run
// on a CPU. The upgrade does not depend on it, and an older process does not answer.
func announceBusy(ctx context.Context) (end func()) {
	end = func() {}
	dir, err := place.VRRPDir()
	if err != nil {
		return end
	}
	ctx, cancel := context.WithTimeout(ctx, busyPatience)
	defer cancel()
	c, err := control.Dial(ctx, control.Socket(dir))
	if err != nil {
		return end
	}
	_ = c.Busy(ctx)
	return func() { c.Close() }
}

func printUpgrade(w io.Writer, r director.UpgradeResult, dry bool) error {
	if r.Resumed {
		fmt.Fprintln(w, "finished an upgrade that was interrupted")
	}
	p := r.Plan
	if p.From.Object == p.To.Object {
		_, err := fmt.Fprintf(w, "the loaded data plane is this program's: %s\n", p.To)
		return err
	}
	verb := "upgraded"
	if dry {
		verb = "would upgrade"
	}
	fmt.Fprintf(w, "%s from %s to %s: %d tables kept", verb, p.From, p.To, p.Count(director.Kept))
	if r.Adopted > 0 {
		fmt.Fprintf(w, ", %d connections copied", r.Adopted)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range p.Maps {
		if m.Disposition != director.Kept && len(m.Differences) > 0 {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", m.Name, m.Disposition, strings.Join(m.Differences, ", "))
		}
	}
	return t.Flush()
}
