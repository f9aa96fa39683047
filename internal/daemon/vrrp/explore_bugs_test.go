// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// bugs break one rule each.
func bugs() []bug {
	better := func(n *xnode, from netip.Addr, priority uint8) bool {
		own := n.machine.memory.Priority
		return priority > own || priority == own && from.Compare(n.machine.config.Routers[0].Source) > 0
	}
	return []bug{
		{
			name: "a master does not yield", finds: "two masters for too long",
			drop: func(n *xnode, from netip.Addr, priority uint8) bool {
				return n.machine.State() == Master && better(n, from, priority)
			},
		},
		{
			name: "a backup waits for one interval only", finds: "takes over too soon", plain: true, may: mayLose,
			after: func(n *xnode, now time.Duration) {
				if n.machine.State() == Backup {
					n.machine.memory.Deadline = min(n.machine.memory.Deadline, now+interval)
				}
			},
		},
		{
			name: "a backup ignores advertisements", finds: "flapping",
			drop: func(n *xnode, _ netip.Addr, priority uint8) bool { return n.machine.State() == Backup && priority != 0 },
		},
		{
			name: "a stall is not noticed", finds: "serves after a stall",
			before: func(n *xnode, now time.Duration) { n.machine.memory.Seen = now },
		},
		{
			name: "both win a tie", finds: "two masters for too long",
			from: func(n *xnode, from netip.Addr) netip.Addr {
				if n.machine.State() == Master {
					return netip.AddrFrom4([4]byte{10, 0, 0, 0})
				}
				return from
			},
		},
		{
			name: "both lose a tie", finds: "no master for too long",
			from: func(n *xnode, from netip.Addr) netip.Addr {
				if n.machine.State() == Master {
					return netip.AddrFrom4([4]byte{10, 0, 0, 255})
				}
				return from
			},
		},
		{
			name: "the lease is not renewed", finds: "its lease is fresh: false", plain: true,
			after: func(n *xnode, now time.Duration) {
				if n.machine.State() == Master {
					n.lease = min(n.lease, now+2*quantum)
				}
			},
		},
		{
			name: "the lease is too long, in a tie", finds: "takes over before a lease ends", may: mayKill,
			after: func(n *xnode, now time.Duration) {
				if n.machine.State() == Master && n.lease == now+missed*interval {
					n.lease += 2 * interval
				}
			},
		},
		{
			name: "the lease outlasts the release", finds: "its lease is fresh: true",
			after: func(n *xnode, now time.Duration) {
				if n.machine.State() == Fault {
					n.lease = now + quantum
				}
			},
		},
		{
			name: "preemption does not wait for synchronization", finds: "preempts before it is synchronized",
			before: func(n *xnode, _ time.Duration) {
				if n.machine.State() == Backup {
					n.machine.config.AwaitSync = false
				}
			},
			after: func(n *xnode, _ time.Duration) { n.machine.config.AwaitSync = true },
		},
		{
			name: "a merge has no bound", finds: "two masters for too long",
			after: func(n *xnode, now time.Duration) {
				if n.machine.Merging() {
					n.machine.memory.MergeUntil = now + 10*interval
				}
			},
		},
		{
			name: "a backup never takes over", finds: "no master for too long",
			after: func(n *xnode, now time.Duration) {
				if n.machine.State() == Backup {
					n.machine.memory.Deadline = now + 5*interval
				}
			},
		},
		{
			name: "the heartbeat is missing", finds: "asks for a tick",
			after: func(n *xnode, _ time.Duration) {
				if n.machine.State() == Master {
					n.machine.memory.NextAdvert += 2 * patience * quantum
					n.machine.memory.Cadence = 10 * interval
				}
			},
		},
	}
}

// Each broken rule is found, and the trace shows how.
func TestExplorerFindsBugs(t *testing.T) {
	for _, b := range bugs() {
		t.Run(b.name, func(t *testing.T) {
			s := scenario{
				priorities: []uint8{192, 64}, may: mayLose | mayPause | mayFreeze | mayFail, faults: 1,
				config: Config{AwaitSync: true, Merge: interval}, two: 8, none: silence, becomes: 2,
			}
			if strings.Contains(b.name, "tie") {
				s.priorities, b.plain = []uint8{64, 64}, true
			}
			if b.may != 0 {
				s.may = b.may
			}
			if b.plain {
				s.config = Config{}
			}
			e := newExplorer(t, s)
			states, wrong := e.run(200_000)
			if wrong != "" {
				t.Fatalf("without the bug: %s", wrong)
			}
			e = newExplorer(t, s)
			e.bug = &b
			found, wrong := e.run(200_000)
			if !strings.Contains(wrong, b.finds) || !strings.Contains(wrong, "start node") {
				t.Errorf("found %q, want %q", wrong, b.finds)
			}
			t.Logf("found in %d of %d states:\n%s", found, states, wrong)
		})
	}
}
