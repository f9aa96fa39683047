// SPDX-License-Identifier: Apache-2.0

package process

import (
	"imbang/internal/daemon/vrrp"
	"imbang/internal/host"
)

// announceAtOnce is how many announcements leave in a round: some milliseconds' worth. A group can
// have thousands of addresses, each announced several times, and machines must not wait for that.
const announceAtOnce = 200

// announcing is a packet that announces an address.
type announcing struct {
	address vrrp.Address
	packet  host.Announcement
}

// announcement is what is left of a group's.
type announcement struct {
	group   *group
	packets []announcing
	repeat  int // of all packets
	next    int // of the packets
	failed  error
}

// sendAnnouncements sends what fits into a round. An address that was released since, or that the
// host lost, is not announced any more: another director may have it.
func (l *loop) sendAnnouncements() {
	for left := announceAtOnce; len(l.outbox) > 0 && left > 0; left-- {
		a := &l.outbox[0]
		if one := &a.packets[a.next]; l.known[one.address] {
			if err := l.announcer.Send(&one.packet); err != nil {
				a.failed = err
			} else {
				a.group.announced++
			}
		}
		if a.next++; a.next < len(a.packets) {
			continue
		}
		a.next = 0
		if a.repeat--; a.repeat > 0 {
			continue
		}
		if a.failed != nil && len(a.group.faults) == 0 {
			l.Log.Warn("the addresses cannot all be announced", "group", a.group.setup.Name, "error", a.failed)
		}
		l.outbox[0] = announcement{}
		if l.outbox = l.outbox[1:]; len(l.outbox) == 0 {
			l.outbox = nil
		}
	}
}
