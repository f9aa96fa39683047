// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/control"
)

// busy is what a client said of the host: on a kernel without preemption nothing else runs on
// a CPU while BPF programs are checked, for some 10 ms.
type busy struct {
	until   time.Duration // 0: it said nothing
	replied bool
}

// announceBusy has masters announce a longer interval while a client says that the host is
// busy, and their own afterwards.
func (l *loop) announceBusy(t time.Duration) {
	if l.replacing != nil && l.replacing.announcing {
		return // for its own reason
	}
	is := false
	for c := range l.clients {
		is = is || t < c.busy.until
	}
	if !is {
		if l.busyHost {
			l.bridged(0)
			l.busyHost = false
		}
		return
	}
	l.busyHost = true
	if !l.bridged(bridge) {
		return
	}
	masters := []string{}
	for _, g := range l.groups {
		if g.machine.State() == vrrp.Master {
			masters = append(masters, g.setup.Name)
		}
	}
	for c := range l.clients {
		if t < c.busy.until && !c.busy.replied {
			c.busy.replied = true
			c.send(control.Event{Reply: &control.Reply{Groups: masters}})
		}
	}
}

// busyNext is when announceBusy is due; 0: it is not.
func (l *loop) busyNext(t time.Duration) (next time.Duration) {
	for c := range l.clients {
		at := c.busy.until
		if !c.busy.replied {
			at = min(at, t+replacementStep)
		}
		if c.busy.until > t && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}
