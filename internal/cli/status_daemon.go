// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/daemon/vrrp/process"
	"imbang/internal/director"
)

// statusOf is what imbang status prints: of the director, and of the daemon if one
// runs.
type statusOf struct {
	director.Status
	Daemon *api.Status `json:"daemon,omitempty"`
	// Left is what a daemon of this director left that does not run any more.
	Left *api.Left `json:"no_daemon,omitempty"`
	// Processes are those of imbang sync.
	Processes []running.Role `json:"synchronization_processes,omitempty"`
	// VRRP is what imbang vrrp says, if it runs and the user is root; imbang vrrp status
	// prints it as JSON.
	VRRP *process.Status `json:"-"`
	// VRRPError is why it does not answer.
	VRRPError string `json:"-"`
	// vrrpMissing: it does not run, and the daemon's configuration is also for it.
	vrrpMissing bool
}

// askDaemon is the status of the daemon; nil if there is none.
func askDaemon(ctx context.Context) (*api.Status, error) {
	d, err := api.NewClient()
	if err != nil {
		return nil, err
	}
	s, err := d.Status(ctx)
	if errors.Is(err, api.ErrNoDaemon) {
		return nil, nil
	}
	return s, err
}

// printDaemon is one screen: what is wrong first, then services and servers.
func printDaemon(w io.Writer, s *api.Status, now time.Time) error {
	fmt.Fprintf(w, "daemon %d since %s, %s, applied %s\n", s.PID, clock(s.Since.Local()), s.Config, clock(s.Reloaded.Local()))
	if s.ReloadError != "" {
		fmt.Fprintf(w, "RELOAD REFUSED  %s\n", strings.ReplaceAll(s.ReloadError, "\n", "\n                "))
	}
	for _, a := range s.Alarms {
		fmt.Fprintf(w, "ALARM  since %s: %s: %s\n", clock(a.Since.Local()), a.Name, a.Text)
	}
	for _, line := range s.Drift {
		fmt.Fprintf(w, "DRIFT  %s\n", line)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, one := range s.Synchronization {
		printSync(t, one, now)
	}
	if s.Replication != nil {
		printReplication(t, s.Replication, now)
	}
	if s.Pair != nil {
		printPair(t, s.Pair, now)
	}
	if s.Proxy != nil {
		printLayer7(t, s.Proxy, now)
	}
	for _, one := range s.All() {
		state := "up"
		switch {
		case one.Missing:
			state = "MISSING in the table"
		case one.Sorry:
			state = "DOWN, clients get the sorry server"
		case !one.Up:
			state = "DOWN"
		}
		key := one.Key
		if key == one.Name { // of a backend
			key = ""
		}
		fmt.Fprintf(t, "\n%s\t%s\t%s\t%s for %s\n", one.Name, key, one.Scheduler, state, ago(now, one.Since))
		for _, server := range one.Servers {
			printDaemonServer(t, server, now)
		}
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// printLeft says that the daemon of this director does not run, and what was ordered.
func printLeft(w io.Writer, l *api.Left) {
	if l == nil {
		return
	}
	fmt.Fprintf(w, "NO DAEMON  servers are not checked, and those that imbang run found down stay down: systemctl start imbang (or imbang run -c %s)\n", cmp.Or(l.Config, config.DefaultFile))
	for _, o := range l.Orders {
		fmt.Fprintf(w, "  %s server %s  %s\n", o.Service, o.Server, strings.Join(orderWords(o.Drain, o.Maintenance, o.Weight), "; "))
	}
}

func printDaemonServer(w io.Writer, s api.Server, now time.Time) {
	var words []string
	for _, c := range s.Checks {
		switch {
		case c.At.IsZero():
			words = append(words, c.Name+": no result yet")
		default:
			words = append(words, c.Name+": "+c.Detail)
		}
	}
	words = append(words, orderWords(s.Drain, s.Maintenance, s.WeightOrder)...)
	if s.Ramp > 0 && s.Ramp < 1 {
		words = append(words, fmt.Sprintf("slow start at %.0f %%", 100*s.Ramp))
	}
	if s.Agent != "" {
		words = append(words, "agent asks for "+s.Agent)
	}
	weight := fmt.Sprintf("weight %d", s.Effective)
	if s.Effective != s.Weight {
		weight += fmt.Sprintf(" of %d", s.Weight)
	}
	name := s.Name
	if name != s.Address {
		name += " " + s.Address
	}
	fmt.Fprintf(w, "  %s\t%s for %s\t%s\t%d active, %d inactive\t%s\n", name, s.State, ago(now, s.Since), weight, s.Active, s.Inactive, strings.Join(words, "; "))
}

func orderWords(drain, maintenance, weight *api.Order) (words []string) {
	for _, o := range []struct {
		word  string
		order *api.Order
	}{{"drain", drain}, {"maintenance", maintenance}, {"weight", weight}} {
		if o.order != nil {
			words = append(words, orderText(o.word, o.order))
		}
	}
	return words
}

func orderText(word string, o *api.Order) string {
	text := fmt.Sprintf("%s by %s at %s", word, o.By, clock(o.At.Local()))
	if !o.Deadline.IsZero() {
		text += ", deadline " + clock(o.Deadline.Local())
	}
	if o.Reason != "" {
		text += " (" + o.Reason + ")"
	}
	return text
}

// ago is the time since something, in its two greatest units.
func ago(now, since time.Time) string {
	d := now.Sub(since)
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
