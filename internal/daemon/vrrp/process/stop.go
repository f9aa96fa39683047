// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"imbang/internal/daemon/vrrp"
)

// stopPatience is how long notify commands have at the end, and the kernel. Tests change it.
var stopPatience = 10 * time.Second

// settle waits until the worker has done what the loop has asked for so far.
func (l *loop) settle(patience time.Duration) bool {
	for deadline := now() + patience; ; {
		for _, f := range l.poll.take() {
			f()
		}
		l.flush(now())
		l.sendResignations(now())
		if l.settled() && !l.anyJoining() {
			return true
		}
		left := deadline - now()
		if left <= 0 {
			return false
		}
		if l.clean && !l.busy {
			left = min(left, max(l.cleanAfter-now(), 0))
		}
		for _, g := range l.groups {
			if g.resignAt != 0 {
				left = min(left, max(g.resignAt-now(), 0))
			}
		}
		l.poll.waitPosted(left)
	}
}

func (l *loop) anyJoining() bool {
	for _, s := range l.sockets {
		if s.joining {
			return true
		}
	}
	return false
}

// stop leaves all groups, and waits for notify commands. The leases of all groups end first,
// as the other director may be master of the next one at once, and addresses go last.
func (l *loop) stop() {
	l.stopping = true
	for _, g := range l.groups {
		g.out.Reset()
		if g.machine.State() == vrrp.Master {
			g.giveWay()
		}
		g.machine.Shutdown(now(), &g.out)
		g.next = 0
	}
	step := func(wanted func(vrrp.ActionKind) bool) {
		for _, g := range l.groups {
			for i := range g.out.Actions {
				if a := &g.out.Actions[i]; wanted(a.Kind) {
					g.do(a)
				}
			}
		}
	}
	step(func(k vrrp.ActionKind) bool { return k == vrrp.ActionLease })
	step(func(k vrrp.ActionKind) bool { return k == vrrp.ActionAdvertise })
	step(func(k vrrp.ActionKind) bool { return k != vrrp.ActionLease && k != vrrp.ActionAdvertise })
	if l.settle(stopPatience) || l.settled() {
		l.unguard()
	} else { // the director goes on to keep the kernel from answering for them
		l.Log.Error("addresses are left: the kernel has not removed them (imbang vrrp clean does)", "after", stopPatience, "error", l.cleanError)
	}
	if !l.hooks.Wait(stopPatience) {
		l.Log.Warn("notify commands are killed: they have not ended", "after", stopPatience)
	}
}
