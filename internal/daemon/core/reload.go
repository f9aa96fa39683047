// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
)

// Reload is a core for another configuration, which knows what this one knows, and what
// followed from the change: servers and quorums that came or went by it.
func (c *Core) Reload(next *config.Config, now time.Time) (n *Core, out Outcome) {
	memory := c.Memory()
	c.keepDown(next, memory, now)
	n = New(next, c.Book, memory, now)
	for _, s := range n.services {
		for _, one := range s.servers {
			old := c.servers[one.id]
			switch {
			case old == nil:
			case old.up == one.up:
				one.since = old.since
			default:
				one.since = now
				out.add(n.serverChanged(one, "by its checks of the new configuration", now))
			}
		}
		if i := slices.IndexFunc(c.services, func(o *service) bool { return o.ID() == s.ID() }); i >= 0 && s.up == c.services[i].up {
			s.since = c.services[i].since
		}
	}
	out.add(n.Begun)
	return n, out
}

// keepDown has a server that is down stay so until a check says otherwise, where the
// checks that failed have another name now or were replaced: the new ones begin as down.
func (c *Core) keepDown(next *config.Config, memory Memory, now time.Time) {
	for s := range next.Pools() {
		for j := range s.Servers {
			one := newServer(&service{Service: s}, &s.Servers[j], memory, now)
			old := c.servers[one.id]
			if old == nil || old.up || !one.up {
				continue
			}
			for _, w := range one.checks {
				id := CheckID{one.id, w.Name}
				if _, known := memory.Checks[id]; !known {
					memory.Checks[id] = check.State{Verdict: check.Down, Since: old.since}
				}
			}
		}
	}
}
