// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/sync/running"
)

// processRoles are the roles of connection synchronization that processes of their own
// perform; those of a daemon are in its status.
func processRoles() (all []running.Role, err error) {
	dir, err := place.Dir()
	if err != nil {
		return nil, err
	}
	roles, err := running.List(dir)
	for _, r := range roles {
		if r.By != running.ByDaemon {
			all = append(all, r)
		}
	}
	return all, err
}

// printProcessRoles is a line for each of them.
func printProcessRoles(w io.Writer, roles []running.Role) {
	for _, r := range roles {
		if to := r.Replicates; to != nil {
			c := replicate.Config{Listen: to.Listen, To: to.To, Group: to.Group}
			fmt.Fprintf(w, "replication %s\tprocess %d since %s\t%s\n", to.As, r.PID, clock(r.Since.Local()), c.String())
			continue
		}
		fmt.Fprintf(w, "synchronization %s\tprocess %d since %s\t%s, sync ID %d\n", r.Role, r.PID, clock(r.Since.Local()),
			syncPlace(r.Interface, r.Group.String(), r.Port), r.SyncID)
	}
}

// printSync is a line for a daemon's role of synchronization, and one for each service or
// server that it lacks.
func printSync(w io.Writer, s api.Synchronization, now time.Time) {
	state := s.State
	if s.State == "failed" {
		state = "FAILED"
	}
	fmt.Fprintf(w, "synchronization %s\t%s for %s\t%s, sync ID %d\t%s\n", s.Role, state, ago(now, s.Since), syncPlace(s.Interface, s.Group, s.Port), s.SyncID, syncCounts(s, now))
	if s.Error != "" {
		fmt.Fprintf(w, "  %s; it is started again in %s\n", strings.ReplaceAll(s.Error, "\n", "; "), ago(s.Retry, now))
	}
	printMissing(w, s.Missing)
}

// printMissing is a line for each of some services and servers that a table lacks.
func printMissing(w io.Writer, missing []api.SyncMissing) {
	const shown = 10
	for _, m := range missing[:min(len(missing), shown)] {
		what := m.Service
		if m.Server != "" {
			what = m.Server + " of " + m.Service
		}
		fmt.Fprintf(w, "  missing\t%s\t%d connections wait for it\n", what, m.Entries)
	}
	if more := len(missing) - shown; more > 0 {
		fmt.Fprintf(w, "  missing\t%d more\n", more)
	}
}

// syncPlace says by where messages go.
func syncPlace(device, group string, port uint16) string {
	at := fmt.Sprintf("%s:%d", group, port)
	if a, err := netip.ParseAddr(group); err == nil {
		at = netip.AddrPortFrom(a, port).String()
	}
	return device + ", " + at
}

// syncCounts are a role's counters that are not 0, and the age of the last message.
func syncCounts(s api.Synchronization, now time.Time) string {
	words := []string{fmt.Sprintf("%d messages, %d connections", s.Messages, s.Entries)}
	if !s.Last.IsZero() {
		words[0] += ", the last " + ago(now, s.Last) + " ago"
	}
	if s.Unbound > 0 {
		words = append(words, fmt.Sprintf("%d wait for their server", s.Unbound))
	}
	if s.Lost > 0 {
		words = append(words, fmt.Sprintf("%d lost", s.Lost))
	}
	for _, d := range s.Dropped {
		if d.Count > 0 {
			words = append(words, fmt.Sprintf("%d %s dropped (%s)", d.Count, d.Of, d.Reason))
		}
	}
	return strings.Join(words, "; ")
}

// printReplication is a line for a daemon's role of imbang's own protocol, one for each
// backup of a master, and one for each difference between the configurations.
func printReplication(w io.Writer, r *api.Replication, now time.Time) {
	state := r.State
	if r.State == "failed" {
		state = "FAILED"
	}
	synced := ""
	switch {
	case r.Role == "master" || r.State != "running":
	case r.Role == "pair" && r.Master == "":
		synced = "THE OTHER DIRECTOR DOES NOT SEND; "
	case r.Master == "":
		synced = "NO MASTER; "
	case r.Role == "pair" && r.Received.Synced:
		synced = "has the whole table of " + r.Master + "; "
	case r.Role == "pair":
		synced = "does not have the whole table of " + r.Master + " yet; "
	case r.Synced:
		synced = "follows " + r.Master + "; has the whole table; "
	default:
		synced = "follows " + r.Master + "; does not have the whole table yet; "
	}
	to := strings.Join(r.To, ", ")
	fmt.Fprintf(w, "replication %s\t%s for %s\t%s to %s, group %d\t%s%s\n", r.Role, state, ago(now, r.Since), r.Listen, to, r.Group, synced, replicationCounts(r, now))
	if r.Error != "" {
		fmt.Fprintf(w, "  %s; it is started again in %s\n", strings.ReplaceAll(r.Error, "\n", "; "), ago(r.Retry, now))
	}
	for _, one := range r.Receivers {
		table := "has the whole table"
		if !one.Synced {
			table = "does not have the whole table yet"
		}
		if one.Lacking > 0 {
			table += fmt.Sprintf(", LACKS %d entries%s", one.Lacking, missingThere(one.Missing))
		}
		name := "backup"
		if r.Role == "pair" {
			name = "other director"
		}
		fmt.Fprintf(w, "  %s\t%s\t%d datagrams behind, %s\n", name, one.Address, one.Behind, table)
	}
	printMissing(w, r.Missing)
	other := "master"
	if r.Role == "pair" {
		other = "other director"
	}
	const shown = 10
	for _, d := range r.Differences[:min(len(r.Differences), shown)] {
		fmt.Fprintf(w, "  differs from the %s\t%s\n", other, d)
	}
	if more := len(r.Differences) - shown; more > 0 {
		fmt.Fprintf(w, "  differs from the %s\t%d more\n", other, more)
	}
}

// missingShown are named of what is missing at another director.
const missingShown = 3

// missingThere names what another director does not have, if that is known.
func missingThere(list []string) string {
	if len(list) == 0 {
		return ""
	}
	text := ": missing there: " + strings.Join(list[:min(len(list), missingShown)], ", ")
	if more := len(list) - missingShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// replicationCounts are a role's counters that are not 0, and the age of the last entry.
func replicationCounts(r *api.Replication, now time.Time) string {
	words := []string{fmt.Sprintf("%d entries, %d deletions", r.Entries, r.Deletions)}
	if !r.Last.IsZero() {
		words[0] += ", the last " + ago(now, r.Last) + " ago"
	}
	if in := r.Received; in != nil {
		words[0] = "sent " + words[0]
		words = append(words, fmt.Sprintf("received %d entries, %d deletions", in.Entries, in.Deletions))
		if n := in.Kept + in.Replaced; n > 0 {
			words = append(words, fmt.Sprintf("%d with another server there (%d kept, %d replaced)", n, in.Kept, in.Replaced))
		}
	}
	if r.Role == "backup" {
		words = append(words, fmt.Sprintf("%d datagrams behind", r.Behind))
	}
	for _, c := range []struct {
		n    uint64
		text string
	}{
		{r.Bulks, "transfers of the table"}, {r.Refreshes, "refreshed"}, {r.Repeated, "datagrams repeated"}, {r.Swept, "removed that the master does not have"},
		{uint64(r.Waiting), "wait for a service, server or template"}, {r.NotEntered, "not entered"}, {r.Lost, "events lost"},
		{r.Locked, "times the table was locked for too long"},
	} {
		if c.n > 0 {
			words = append(words, fmt.Sprintf("%d %s", c.n, c.text))
		}
	}
	for _, x := range r.Refused {
		if x.Count > 0 {
			words = append(words, fmt.Sprintf("%d refused (%s)", x.Count, x.Reason))
		}
	}
	return strings.Join(words, "; ")
}
