// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/process"
)

func newVRRPStatusCommand() *cobra.Command {
	var out command.OutputFlag
	c := &cobra.Command{
		Use:   "status",
		Short: "Show which addresses this director has, and why",
		Long: `Prints the groups of the process imbang vrrp of this network namespace: their state,
since when and for what cause, the priority with what is tracked, the director that is
followed, faults, and what differs from normal operation.

Requires root. The exit status is 0, 2 for a wrong command line, or 3 if it failed: the
process does not run.`,
		Example: `  imbang vrrp status
  imbang vrrp status --output json | jq -r '.groups[] | select(.state == "master") | .name'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			dir, err := place.VRRPDir()
			if err != nil {
				return err
			}
			s, err := process.Ask(dir)
			if err != nil {
				return err
			}
			return out.Print(c.OutOrStdout(), s, func(w io.Writer) error { return printVRRP(w, s, time.Now()) })
		},
	}
	out.Register(c, command.One[process.Status](""))
	return c
}

// printVRRP is one screen: what is wrong first, then groups with their routers.
func printVRRP(w io.Writer, s *process.Status, now time.Time) error {
	fmt.Fprintf(w, "process %d since %s, %s, applied %s\n", s.PID, clock(s.Since.Local()), s.Config, clock(s.Reloaded.Local()))
	if s.ReloadError != "" {
		fmt.Fprintf(w, "RELOAD REFUSED  %s\n", strings.ReplaceAll(s.ReloadError, "\n", "\n                "))
	}
	if s.NotRealTime != "" {
		fmt.Fprintf(w, "not real-time: %s\n", s.NotRealTime)
	}
	if s.DirectorError != "" {
		fmt.Fprintf(w, "director: %s\n", s.DirectorError)
	} else if !s.Director {
		fmt.Fprintln(w, "no director is loaded")
	}
	if s.Yields != "" {
		fmt.Fprintf(w, "YIELDS  %s\n", s.Yields)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, g := range s.Groups {
		printVRRPGroup(t, &g, now)
	}
	for i, one := range s.Scripts {
		if i == 0 {
			fmt.Fprintln(t)
		}
		fmt.Fprintf(t, "script %s\t%s for %s\t%s\n", one.Name, one.Verdict, ago(now, one.Since), one.Detail)
	}
	return t.Flush()
}

func printVRRPGroup(w io.Writer, g *process.Group, now time.Time) {
	state := g.State
	if state == vrrp.Fault.String() {
		state = "FAULT"
	}
	priority := fmt.Sprintf("priority %d", g.Priority)
	if g.Priority != g.BasePriority {
		priority += fmt.Sprintf(" of %d", g.BasePriority)
	}
	fmt.Fprintf(w, "\n%s\t%s for %s (%s)\t%s\tinterval %g ms\n", g.Name, state, ago(now, g.Since), g.Cause, priority, g.IntervalMS)
	switch {
	case g.Merging:
		fmt.Fprintf(w, "  yields\tto a better master, when that has the connections\n")
	case g.State == vrrp.Backup.String() && g.AwaitsSync && !g.Synchronized:
		fmt.Fprintf(w, "  waits\tfor the master's connections (imbang run) before it preempts\n")
	}
	if g.GaveUp {
		fmt.Fprintf(w, "  gave up\tdoes not preempt (imbang failover --return ends that)\n")
	}
	for _, f := range g.Faults {
		fmt.Fprintf(w, "  FAULT\t%s\n", f)
	}
	for _, r := range g.Routers {
		by := "multicast"
		if len(r.Peers) > 0 {
			by = "unicast to " + strings.Join(r.Peers, ", ")
		}
		if r.Source != "" {
			by = r.Source + " by " + by
		}
		if r.Master != "" {
			by += ", follows " + r.Master
		}
		fmt.Fprintf(w, "  router %d on %s\t%s\t%s\n", r.ID, r.Device, strings.Join(r.Addresses, " "), by)
		for _, a := range r.Elsewhere {
			fmt.Fprintf(w, "  router %d, on %s\t%s\n", r.ID, a.Device, a.Address)
		}
	}
	for _, a := range g.Addresses {
		fmt.Fprintf(w, "  address on %s\t%s\n", a.Device, a.Address)
	}
	for _, a := range g.Foreign {
		fmt.Fprintf(w, "  FOREIGN\taddress %s was added by another program and stays when the group leaves (ip address delete %s)\n", a, a)
	}
	if g.Refrains {
		fmt.Fprintf(w, "  refrains\tit does not preempt after a failure, until a reload (systemctl reload imbang-vrrp)\n")
	}
	var unusual []string
	note := func(n uint64, what string) {
		if n > 0 {
			unusual = append(unusual, fmt.Sprintf("%d %s", n, what))
		}
	}
	note(g.Counts.Unsent, "advertisements could not be sent")
	note(g.Counts.Strangers, "advertisements of directors that are not peers")
	note(g.Counts.OtherMasters, "times another master")
	note(g.Counts.Stalls, "stalls")
	for _, r := range g.Refused {
		note(r.Count, "refused: "+r.Reason)
	}
	if len(unusual) > 0 {
		fmt.Fprintf(w, "  seen\t%s\n", strings.Join(unusual, ", "))
	}
	if g.SendError != "" {
		fmt.Fprintf(w, "  cannot send\t%s\n", g.SendError)
	}
}
