// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Removed counts the servers that a configuration names, and those of them that another one does
// not: a server that has another name and the same address stays. nil names none.
func Removed(was, next *Config) (named, removed int) {
	if was == nil {
		return 0, 0
	}
	for i := range was.Backends {
		b := &was.Backends[i]
		other := next.servers(b.Name)
		for _, s := range b.Servers {
			named++
			if other[s.Address] == nil {
				removed++
			}
		}
	}
	return named, removed
}

// Differences are the servers that come, change and go from one configuration to another, one
// line each, in this order. nil names none.
func Differences(was, next *Config) []string {
	var added, changed, removed []string
	line := func(b *Backend, s *Server) string {
		return fmt.Sprintf("backend %s: server %s, %s", b.Name, s.Name, s.Address)
	}
	if next != nil {
		for i := range next.Backends {
			b := &next.Backends[i]
			before := was.servers(b.Name)
			for j := range b.Servers {
				s := &b.Servers[j]
				old := before[s.Address]
				if old == nil {
					added = append(added, "add "+line(b, s)+", "+strings.Join(s.words(), ", "))
				} else if from, to := old.words(), s.words(); old.Name != s.Name || !slices.Equal(from, to) {
					if old.Name != s.Name {
						from, to = append(from, "name "+old.Name), append(to, "name "+s.Name)
					}
					changed = append(changed, fmt.Sprintf("change %s from %s to %s", line(b, s), but(from, to), but(to, from)))
				}
			}
		}
	}
	if was != nil {
		for i := range was.Backends {
			b := &was.Backends[i]
			other := next.servers(b.Name)
			for j := range b.Servers {
				if s := &b.Servers[j]; other[s.Address] == nil {
					removed = append(removed, "delete "+line(b, s))
				}
			}
		}
	}
	return slices.Concat(added, changed, removed)
}

// but leaves out what another list has.
func but(list, other []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(list), func(w string) bool { return slices.Contains(other, w) }), ", ")
}

// words describe a server beside its name and address.
func (s *Server) words() []string {
	limit, role := "no limit of connections", "no backup"
	if s.MaxConnections > 0 {
		limit = fmt.Sprintf("%d connections at most", s.MaxConnections)
	}
	if s.Backup {
		role = "backup"
	}
	return []string{fmt.Sprintf("weight %d", s.Weight), limit, role}
}

// servers are those of a backend, by address.
func (c *Config) servers(backend string) map[netip.AddrPort]*Server {
	all := map[netip.AddrPort]*Server{}
	if c == nil {
		return all
	}
	if i := slices.IndexFunc(c.Backends, func(b Backend) bool { return b.Name == backend }); i >= 0 {
		for j := range c.Backends[i].Servers {
			s := &c.Backends[i].Servers[j]
			all[s.Address] = s
		}
	}
	return all
}
