// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Table is what a director lists of its connections and servers.
type Table struct {
	Taken time.Time
	// Connections are lines of `ipvsadm -Lcn` without the time to expiry, which is the value:
	// protocol, state, client, virtual and server; of a SIP template also its Call-ID.
	Connections map[string]time.Duration
	// Servers are lines of `ipvsadm -Ln`: service, server, active and inactive connections.
	Servers []string
}

// ParseTable reads the outputs of `ipvsadm -Lcn` and `ipvsadm -Ln`.
func ParseTable(connections, services string) (Table, error) {
	t := Table{Connections: map[string]time.Duration{}}
	all := map[string][]time.Duration{}
	for i, line := range strings.Split(strings.TrimSpace(connections), "\n") {
		if i < 2 { // headings
			continue
		}
		f := strings.Fields(line)
		if len(f) < 6 {
			return Table{}, fmt.Errorf("ipvsadm -Lcn: line %q", line)
		}
		left, err := parseExpiry(f[1])
		if err != nil {
			return Table{}, fmt.Errorf("ipvsadm -Lcn: line %q: %w", line, err)
		}
		key := strings.Join(append(f[:1:1], f[2:]...), " ")
		all[key] = append(all[key], left)
	}
	for key, left := range all {
		slices.Sort(left) // calls of one client, of which the listing does not show the Call-ID
		for i, one := range left {
			name := key
			if i > 0 {
				name = fmt.Sprintf("%s (%d)", key, i+1)
			}
			t.Connections[name] = one
		}
	}
	service := ""
	for i, line := range strings.Split(strings.TrimSpace(services), "\n") {
		f := strings.Fields(line)
		switch {
		case i < 3: // headings
		case len(f) >= 6 && f[0] == "->":
			t.Servers = append(t.Servers, fmt.Sprintf("%s %s active %s inactive %s", service, f[1], f[4], f[5]))
		case len(f) >= 2:
			service = f[0] + " " + f[1]
		}
	}
	slices.Sort(t.Servers)
	return t, nil
}

// parseExpiry reads minutes and seconds.
func parseExpiry(text string) (time.Duration, error) {
	minutes, seconds, ok := strings.Cut(text, ":")
	m, err := strconv.Atoi(minutes)
	s, err2 := strconv.Atoi(seconds)
	if !ok || err != nil || err2 != nil {
		return 0, fmt.Errorf("expiry %q", text)
	}
	return time.Duration(m)*time.Minute + time.Duration(s)*time.Second, nil
}

// Diff says how another table differs, a line for each difference: + is only in the other
// one. Times to expiry may differ by the tolerance, so a connection that has no more than
// that left may be gone from one table. It also is not counted for its server there. How much
// later one table was taken is allowed for.
func (t Table) Diff(other Table, tolerance time.Duration) (lines []string) {
	expiring, later := false, other.Taken.Sub(t.Taken)
	missing := func(sign string, in, from map[string]time.Duration) {
		for _, key := range slices.Sorted(maps.Keys(in)) {
			if _, ok := from[key]; ok {
				continue
			}
			if in[key] <= tolerance+later.Abs() {
				expiring = true
				continue
			}
			lines = append(lines, fmt.Sprintf("%s %s, %s left", sign, key, in[key]))
		}
	}
	missing("-", t.Connections, other.Connections)
	missing("+", other.Connections, t.Connections)
	for _, key := range slices.Sorted(maps.Keys(t.Connections)) {
		a := t.Connections[key]
		if b, ok := other.Connections[key]; ok && (a-b-later).Abs() > tolerance {
			lines = append(lines, fmt.Sprintf("! %s: %s left, the other %s", key, a, b+later.Round(time.Second)))
		}
	}
	if expiring {
		return lines
	}
	for _, s := range t.Servers {
		if !slices.Contains(other.Servers, s) {
			lines = append(lines, "- "+s)
		}
	}
	for _, s := range other.Servers {
		if !slices.Contains(t.Servers, s) {
			lines = append(lines, "+ "+s)
		}
	}
	return lines
}
