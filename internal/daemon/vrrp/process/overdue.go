// SPDX-License-Identifier: Apache-2.0

package process

import (
	"slices"
	"time"

	"imbang/internal/daemon/vrrp"
)

// A master whose addresses the kernel does not add serves nobody, and keeps other directors from
// it: another program may hold the RTNL lock. So it leaves after a while. The fault lasts for as
// long as the kernel does not answer, and the group does not preempt behind it.

// overdueLeast is the least time that the kernel has to add addresses.
const overdueLeast = time.Second

func (g *group) overdueAfter() time.Duration {
	return max(overdueLeast, missedIntervals*g.setup.Interval)
}

// overdueAt is when a group is in fault whose addresses the host has not confirmed; 0: never.
func (g *group) overdueAt() time.Duration {
	if g.pendingSince == 0 || g.overdue {
		return 0
	}
	return g.pendingSince + g.overdueAfter()
}

// pending reports whether the kernel has still to add addresses of the group.
func (g *group) pending() bool {
	return slices.ContainsFunc(g.holds, func(a vrrp.Address) bool { has, is := g.known[a]; return is && !has })
}

// notePending begins or ends the time that the kernel has.
func (g *group) notePending() {
	switch is := g.pending(); {
	case !is:
		g.pendingSince = 0
	case g.pendingSince == 0:
		g.pendingSince = now()
	}
}

// checkOverdue begins the fault.
func (g *group) checkOverdue(t time.Duration) {
	if at := g.overdueAt(); at == 0 || t < at {
		return
	}
	g.overdue, g.refrains = true, true
	g.failures++
	g.review(t)
	g.machine.Refrain()
}

// endOverdue ends it: the kernel has answered.
func (g *group) endOverdue() {
	if g.overdue {
		g.overdue = false
		g.review(now())
	}
}
