// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"imbang/internal/daemon/vrrp"
)

// A backup that takes over from a master that works must be able to add the addresses. While the
// worker waits for the kernel it is not, and the machine does not preempt. An idle worker says
// nothing about the kernel's lock, so it reads the devices, which takes the lock, when the
// machine is about to preempt: some intervals before.

const (
	// readyLeast is how long a call of the kernel can take, of a worker that does not wait: an
	// attempt to preempt takes three intervals, of at least 10 ms.
	readyLeast = 20 * time.Millisecond
	// readyFor is how long an answer of the kernel counts.
	readyFor = time.Second
)

// checkReady tells the machines whether the worker waits for the kernel. It is called before
// they tick.
func (l *loop) checkReady(t time.Duration) {
	if l.worker == nil {
		return
	}
	since, answered := l.worker.times()
	for _, g := range l.groups {
		ready := since == 0 || t-since < max(readyLeast, g.setup.Interval)
		if ready != g.machine.Ready() {
			g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.SetReady(t, ready, out) })
		}
		if g.machine.Preempting() && t-answered > readyFor && !l.looking {
			l.look()
		}
	}
}
