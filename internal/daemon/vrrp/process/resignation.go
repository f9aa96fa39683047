// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"imbang/internal/daemon/vrrp"
)

// resignation waits until the host does not have the addresses any more. Without a data plane
// the kernel answers for them until then, and would undo what the successor announces.
type resignation struct {
	waiting  []vrrp.Advertisement // by router; an ID of 0: none
	resignAt time.Duration        // when it is sent in any case; 0: none waits
}

// guarded reports whether the kernel is silent without a lease.
func (g *group) guarded() bool {
	_, has := g.slots[g.setup.Name]
	return g.plane != nil && has && g.errs[planeError{use: useAddresses}] == ""
}

// resign sends a resignation, or keeps it for at most half an interval. It comes before the
// addresses are released.
func (g *group) resign(router int, a *vrrp.Advertisement) {
	if g.resignAt == 0 {
		if len(g.holds) == 0 || g.guarded() {
			g.advertise(router, a)
			return
		}
		g.waiting, g.resignAt = make([]vrrp.Advertisement, len(g.setup.Routers)), now()+g.setup.Interval/2
	}
	g.waiting[router] = *a
}

// resigned sends what waits. A group that is master again has nothing to resign.
func (g *group) resigned() {
	waiting := g.waiting
	g.waiting, g.resignAt = nil, 0
	if g.machine.State() == vrrp.Master || len(waiting) > len(g.setup.Routers) {
		return
	}
	for router := range waiting {
		if a := &waiting[router]; a.ID != 0 {
			g.advertise(router, a)
		}
	}
}

// sendResignations sends those whose time has come.
func (l *loop) sendResignations(t time.Duration) {
	for _, g := range l.groups {
		if g.resignAt != 0 && t >= g.resignAt {
			g.resigned()
		}
	}
}

// confirmResignations sends those whose addresses are gone.
func (l *loop) confirmResignations() {
	for _, g := range l.groups {
		if g.resignAt != 0 && len(g.holds) == 0 {
			g.resigned()
		}
	}
}
