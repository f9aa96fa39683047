// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon"
	"imbang/internal/daemon/api"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/director"
)

func newStatusCommand() *cobra.Command {
	var out command.OutputFlag
	c := &cobra.Command{
		Use:   "status",
		Short: "Show servers, their checks and orders, and what the director did not forward",
		Long: `With a daemon (imbang run), first shows its alarms, the drift of the table from the
configuration, and each service and server: its state and since when, its weight,
its connections, the last result of its checks, and what was ordered of it. Users
who are not root see this part alone. If the daemon that kept the director does not run, says so,
and shows the orders with which the next one begins.

With a process imbang vrrp, shows the state of each group of addresses (imbang vrrp status
has the rest, and prints it as JSON).

Then shows the devices that the director is attached to, the run time of its programs
(while kernel.bpf_stats_enabled is 1), the sizes of its tables, and how many
packets it passed to the stack, refused or dropped, by reason. ipvsadm -L shows
services, servers, connections and their counters. A configuration of layer 7 alone needs
no director: then there is no such part.

The exit status is 0, 2 for a wrong command line, or 3 if it failed: no director is
loaded, or it cannot be read. The daemon's part is shown in any case.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			st, loaded, err := askBoth(c.Context())
			if st.Daemon == nil && err != nil {
				return norDaemon(err)
			}
			printed := out.Print(c.OutOrStdout(), st, func(w io.Writer) error {
				if st.Daemon != nil {
					if err := printDaemon(w, st.Daemon, time.Now()); err != nil {
						return err
					}
				}
				printLeft(w, st.Left)
				if err := printVRRPLines(w, &st, time.Now()); err != nil || !loaded {
					return err
				}
				return printStatus(w, st.Status, st.Daemon, st.Processes)
			})
			return errors.Join(printed, err)
		},
	}
	out.Register(c, command.One[statusOf](""))
	return c
}

// norDaemon adds to the error of a director that is not loaded that no daemon runs: of layer 7 alone,
// that is what is missing.
func norDaemon(err error) error {
	if errors.Is(err, director.ErrNotLoaded) {
		return fmt.Errorf("%w, and no daemon runs (start one with: imbang run)", err)
	}
	return err
}

// askBoth is the status of the daemon and of the director, as far as there are both. Users
// who are not root do without the director.
func askBoth(ctx context.Context) (st statusOf, loaded bool, err error) {
	if st.Daemon, err = askDaemon(ctx); err != nil {
		return st, false, err
	}
	if st.Processes, err = processRoles(); err != nil {
		return st, false, err
	}
	if err = st.askVRRP(); err != nil {
		return st, false, err
	}
	d, err := director.Open()
	if err == nil {
		defer d.Close()
		st.Status, err = d.Status()
	}
	if err == nil && st.Daemon == nil {
		st.Left, err = daemon.LeftBehind()
	}
	if err != nil && st.Daemon != nil && (os.Geteuid() != 0 || st.Daemon.NoDirector && errors.Is(err, director.ErrNotLoaded)) {
		return st, false, nil
	}
	return st, err == nil, err
}

// attachAgain says how a director is attached again whose device is gone.
func attachAgain(d *api.Status) string {
	if d == nil {
		return director.AttachAgain
	}
	for _, a := range d.Alarms {
		if a.Name == "device" {
			return a.Text
		}
	}
	return strings.Replace(director.AttachAgain, "--keep-table", "--keep-table --force", 1)
}

func printStatus(w io.Writer, st director.Status, d *api.Status, processes []running.Role) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(st.Attachments) == 0 {
		fmt.Fprintln(t, "not attached to any device")
	}
	for _, a := range st.Attachments {
		fmt.Fprintf(t, "%s device\t%s\t%s\n", a.Role, a.Device, a.Hook)
	}
	for _, side := range st.Gone {
		fmt.Fprintf(t, "%s device\tGONE\t%s\n", side, attachAgain(d))
	}
	fmt.Fprintf(t, "services\t%d of %d\n", st.Services, st.Capacity.Services)
	fmt.Fprintf(t, "room for servers\t%d\n", st.Capacity.Servers)
	fmt.Fprintf(t, "room for connections\t%d\tof IPv4; one of IPv6 takes the room of two; there are %d\n", st.Capacity.Connections, st.Connections)
	printFull(t, st.Full)
	printUnproven(t, st.Unproven)
	printAttack(t, st.Attack)
	if st.Tracers > 0 {
		fmt.Fprintf(t, "tracers\t%d\n", st.Tracers)
	}
	if st.Followers > 0 {
		fmt.Fprintf(t, "followers\t%d\n", st.Followers)
	}
	printProcessRoles(t, processes)
	for _, p := range st.Programs {
		if p.RunCount > 0 {
			fmt.Fprintf(t, "program %s\t%d runs\t%v\n", p.Name, p.RunCount, time.Duration(p.RunTime))
		}
	}
	for _, r := range st.Reasons {
		if r.Packets > 0 {
			fmt.Fprintf(t, "%s\t%s\t%d packets\n", verdictWords[r.Verdict], r.Reason, r.Packets)
		}
	}
	return t.Flush()
}

// printFull says that the table was too small, and what to do.
func printFull(w io.Writer, f director.Full) {
	if f.Last.IsZero() {
		return
	}
	state := "was full"
	if f.Now {
		state = "IS FULL"
	}
	fmt.Fprintf(w, "table %s\t%s ago\tfrom %s to %s, %d packets dropped: save (ipvsadm -Sn), imbang detach, imbang attach --max-connections MORE, restore (ipvsadm -R)\n",
		state, time.Since(f.Last).Round(time.Second), clock(f.Since), clock(f.Last), f.Packets)
}

// printUnproven tells of unproven entries, once some were displaced.
func printUnproven(w io.Writer, u director.Unproven) {
	if u.Displaced == 0 {
		return
	}
	fmt.Fprintf(w, "unproven entries\t%d\t%d were displaced in a full table\n", u.Entries, u.Displaced)
	for _, s := range u.Services {
		fmt.Fprintf(w, "  of %s\t%d\n", s.Service, s.Entries)
	}
}

// printAttack tells of SYN floods.
func printAttack(w io.Writer, a director.Attack) {
	if a.Began.IsZero() && a.Challenged == 0 {
		return
	}
	switch {
	case a.Now && a.Defended:
		fmt.Fprintf(w, "SYN FLOOD\tsince %s\tclients are challenged\n", clock(a.Began))
	case a.Now:
		fmt.Fprintf(w, "SYN FLOOD\tsince %s\tnothing is done: imbang settings syn_defence=auto\n", clock(a.Began))
	case !a.Began.IsZero():
		fmt.Fprintf(w, "SYN floods\t%d\tthe last from %s to %s\n", a.Count, clock(a.Began), clock(a.Ended))
	}
	fmt.Fprintf(w, "half-open connections\tabout %d\ta flood from %d on\n", a.HalfOpen, a.Limit)
	fmt.Fprintf(w, "SYNs challenged\t%d\t%.0f/s, %d answered; %d clients are proven\n", a.Challenged, a.Rate, a.Proofs, a.Proven)
}

// clock is a time of the day, or a date if that was another day.
func clock(t time.Time) string {
	if now := time.Now(); t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		return t.Format(time.DateTime)
	}
	return t.Format(time.TimeOnly)
}

// verdictWords are the verdicts of reasons in whole words.
var verdictWords = map[string]string{"pass": "passed to the stack", "refused": "refused", "drop": "dropped", "handed": "handed over"}
