// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"imbang/internal/command"
	"imbang/internal/daemon/api"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/daemon/vrrp/process"
)

// failoverFlags are those of the verb.
type failoverFlags struct {
	timeout         time.Duration
	force, giveBack bool
}

func newFailoverCommand() *cobra.Command {
	var out command.OutputFlag
	var f failoverFlags
	c := &cobra.Command{
		Use:   "failover [GROUP...]",
		Short: "Move addresses to the other director, as planned",
		Long: `Moves groups of addresses (imbang vrrp) from this director, which is their master, to
another one; without GROUP, all of which this director is master, as before maintenance.

It waits until the other director has all connections (as imbang sync barrier), then the
master resigns, and the other director takes over: at once if it is the only other one
(one unicast peer, or replication role pair), otherwise after less than an interval. This
director continues to forward packets that still reach it, and the new master hands it
packets of connections that it does not know, for the time vrrp.grace of its file.

Groups that were given up are not taken back while the other director is master, whatever
the priorities are, until imbang failover --return here or imbang failover there. If the
other director fails, this one takes over. Reloads and upgrades (SIGUSR2) of imbang vrrp
keep that; a start of the process ends it.

Without a daemon or replication, or while the other director is behind, nothing is moved:
connections that it does not have would be reset. Nor is anything moved if there is a link
of the pair (section pair of the file) and the other director is not reached by it, or is
not backup for each group: nobody would take over. --force moves nevertheless.

Requires root. The exit status is 0, 1 if a group has not moved, or not yet, as no director
has taken over within --timeout or this one is in fault, or if it is not known whether it has
moved, with the state of each, 2 for a wrong command line, or 3 if it failed or was refused;
then nothing has moved.`,
		Example: `  imbang failover
  imbang failover web --timeout 30s
  imbang failover && sleep 3 && systemctl reboot
  imbang failover --return`,
		ValidArgsFunction: completeGroups,
		RunE: func(c *cobra.Command, names []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if f.timeout <= 0 || f.timeout > longestBarrier {
				return command.Usage(fmt.Errorf("--timeout %v: want more than 0 and at most %v", f.timeout, longestBarrier))
			}
			m, err := runFailover(c.Context(), names, &f)
			if err != nil {
				return err
			}
			if err := out.Print(c.OutOrStdout(), m, func(w io.Writer) error { return printMoves(w, m) }); err != nil {
				return err
			}
			if slices.ContainsFunc(m.Groups, func(g control.Move) bool { return g.Error != "" }) {
				return command.ErrNotAsExpected
			}
			return nil
		},
	}
	c.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait at most, up to 10m: for the connections, and again for the new master")
	c.Flags().BoolVar(&f.force, "force", false, "move even if the other director does not have all connections")
	c.Flags().BoolVar(&f.giveBack, "return", false, "on the director that gave groups up: let them preempt again, as their priorities say")
	_ = c.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions)
	c.MarkFlagsMutuallyExclusive("force", "return")
	out.Register(c, command.One[control.Moves](""))
	return c
}

// completeGroups offers the groups of the process.
func completeGroups(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	if dir, err := place.VRRPDir(); err == nil {
		if s, err := process.Ask(dir); err == nil {
			for _, g := range s.Groups {
				names = append(names, g.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func runFailover(ctx context.Context, names []string, f *failoverFlags) (*control.Moves, error) {
	dir, err := place.VRRPDir()
	if err != nil {
		return nil, err
	}
	s, err := process.Ask(dir)
	if err != nil {
		return nil, err
	}
	m := &control.Moves{Groups: []control.Move{}}
	if f.giveBack {
		return m, returnGroups(ctx, dir, names, f, m)
	}
	groups, err := mastered(s, names)
	if err != nil {
		return nil, err
	}
	if !f.force {
		if err := askSuccessor(ctx, groups); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := awaitPeer(ctx, f.timeout); err != nil {
			return nil, err
		}
		m.BarrierMS = float64(time.Since(began).Microseconds()) / 1000
	}
	c, err := control.Dial(ctx, control.Socket(dir))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := c.GiveUp(ctx, groups, func(one control.Move) { m.Groups = append(m.Groups, one) }); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(m.Groups, func(g control.Move) bool { return g.Error != "" }) {
		s, err := process.Ask(dir)
		sayStates(m, s, err)
	}
	return m, nil
}

// sayStates adds what this director is now to groups that have not moved, as far as is known.
func sayStates(m *control.Moves, s *process.Status, err error) {
	for i := range m.Groups {
		one := &m.Groups[i]
		if one.Error == "" {
			continue
		}
		if err != nil {
			one.Error += "; its state is not known: " + err.Error()
			continue
		}
		at := slices.IndexFunc(s.Groups, func(g process.Group) bool { return g.Name == one.Group })
		if at < 0 {
			one.Error += "; there is no such group any more"
			continue
		}
		g := &s.Groups[at]
		one.Error += "; now this director is " + g.State
		if to := strings.TrimPrefix(followed(g), ", "); to != "" {
			one.Error += " and follows " + to
		}
		if len(g.Faults) > 0 {
			one.Error += ": " + strings.Join(g.Faults, ", ")
		}
	}
}

func returnGroups(ctx context.Context, dir string, names []string, f *failoverFlags, m *control.Moves) error {
	c, err := control.Dial(ctx, control.Socket(dir))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	groups, err := c.Reclaim(ctx, names)
	m.Returned = true
	for _, name := range groups {
		m.Groups = append(m.Groups, control.Move{Group: name})
	}
	return err
}

// mastered are the named groups, or all, of which this director is master. A name of another
// group is an error: nothing is moved then.
func mastered(s *process.Status, names []string) (groups []string, err error) {
	for _, name := range names {
		at := slices.IndexFunc(s.Groups, func(g process.Group) bool { return g.Name == name })
		switch {
		case at < 0:
			return nil, fmt.Errorf("there is no group %q (imbang vrrp status lists them)", name)
		case s.Groups[at].State != vrrp.Master.String():
			return nil, fmt.Errorf("group %s: this director is %s, not master: run the command on the master%s", name, s.Groups[at].State, followed(&s.Groups[at]))
		}
		groups = append(groups, name)
	}
	if len(names) > 0 {
		return groups, nil
	}
	for _, g := range s.Groups {
		if g.State == vrrp.Master.String() {
			groups = append(groups, g.Name)
		}
	}
	if len(groups) == 0 {
		return nil, errors.New("this director is master of no group: run the command on the one that is (imbang vrrp status)")
	}
	return groups, nil
}

// followed says which director is master, as far as it is known.
func followed(g *process.Group) string {
	for _, r := range g.Routers {
		if r.Master != "" {
			return ", " + r.Master
		}
	}
	return ""
}

// askSuccessor refuses a move that the other director cannot take over, as far as the link of
// a pair says.
func askSuccessor(ctx context.Context, groups []string) error {
	d, err := api.NewClient()
	if err != nil {
		return err
	}
	s, err := d.Status(ctx)
	if err != nil {
		return fmt.Errorf("nothing has moved: it is not known whether the other director can take over: %w%s", err, forceRemedy)
	}
	if err := canTakeOver(s.Pair, groups); err != nil {
		return fmt.Errorf("nothing has moved: %w; imbang failover --force moves nevertheless, and nobody has the addresses until a director takes over", err)
	}
	return nil
}

// canTakeOver checks that groups are backup on the other director. Without a link nothing is
// known of it.
func canTakeOver(p *api.Pair, groups []string) error {
	switch {
	case p == nil:
		return nil
	case !p.Reached:
		return fmt.Errorf("the director %s is not reached by the link of the pair (imbang peer status)", p.Peer)
	case len(p.PeerGroups) == 0:
		return fmt.Errorf("imbang vrrp does not run on the director %s, or imbang there is too old to report it (systemctl status imbang-vrrp, imbang version)", p.Peer)
	}
	var why []string
	for _, name := range groups {
		at := slices.IndexFunc(p.PeerGroups, func(g api.PeerGroup) bool { return g.Group == name })
		switch {
		case at < 0:
			why = append(why, fmt.Sprintf("the director %s has no group %s (imbang peer diff)", p.Peer, name))
		case p.PeerGroups[at].State != vrrp.Backup.String():
			why = append(why, fmt.Sprintf("group %s is %s, not backup, on the director %s (imbang vrrp status there)", name, p.PeerGroups[at].State, p.Peer))
		}
	}
	if len(why) > 0 {
		return errors.New(strings.Join(why, ", "))
	}
	return nil
}

const forceRemedy = "; imbang failover --force moves nevertheless, and connections that the other director does not have are reset"

// awaitPeer waits until the other director has all connections.
func awaitPeer(ctx context.Context, timeout time.Duration) error {
	d, err := api.NewClient()
	if err != nil {
		return err
	}
	b, err := d.Barrier(ctx, api.BarrierRequest{Timeout: timeout.Seconds()})
	if err != nil {
		return fmt.Errorf("nothing has moved: it is not known whether the other director has the connections: %w%s", err, forceRemedy)
	}
	if b.Reached {
		return nil
	}
	return notAll(b, timeout)
}

// notAll says what of the connections the other director does not have.
func notAll(b *api.BarrierReply, timeout time.Duration) error {
	var why []string
	for _, r := range b.Receivers {
		switch {
		case r.Behind > 0:
			why = append(why, fmt.Sprintf("%s is behind by %d datagrams after %v", r.Address, r.Behind, timeout))
		case r.Lacking > 0:
			missing := missingThere(r.Missing)
			if missing == "" {
				missing = ": a service or server is missing there, or its table is full (imbang status there)"
			}
			why = append(why, fmt.Sprintf("%s could not enter %d connections%s", r.Address, r.Lacking, missing))
		}
	}
	if len(why) == 0 {
		why = append(why, fmt.Sprintf("it has not confirmed them within %v (--timeout)", timeout))
	}
	return fmt.Errorf("nothing has moved: the other director does not have all connections: %s%s", strings.Join(why, ", "), forceRemedy)
}

func printMoves(w io.Writer, m *control.Moves) error {
	if m.BarrierMS > 0 {
		fmt.Fprintf(w, "the other director has all connections, after %.0f ms\n", m.BarrierMS)
	}
	if m.Returned && len(m.Groups) == 0 {
		fmt.Fprintln(w, "no group was given up")
	}
	for _, g := range m.Groups {
		switch {
		case m.Returned:
			fmt.Fprintf(w, "%s: may preempt again, as its priority says\n", g.Group)
		case g.Error != "":
			fmt.Fprintf(w, "%s: NOT MOVED: %s\n", g.Group, g.Error)
		default:
			fmt.Fprintf(w, "%s: %s is master, after %.1f ms\n", g.Group, g.To, g.MS)
		}
	}
	return nil
}
