// SPDX-License-Identifier: Apache-2.0

package process

import (
	"maps"
	"net/netip"
)

// An address is guarded for as long as the host may have it, and its removal can take long: the
// kernel may wait for other programs. One that no group has any more keeps the number of its
// lease until then, also that of a group that is gone, whose lease has ended.

// leaving are the addresses that are guarded, and that no group has any more.
func (l *loop) leaving() map[netip.Addr]uint32 {
	left := maps.Clone(l.guarded)
	for _, g := range l.groups {
		for _, a := range g.setup.AllAddresses() {
			delete(left, a.Prefix.Addr())
		}
	}
	return left
}

// keepGuards adds the addresses that the host may still have to those that are to be guarded.
func (l *loop) keepGuards(groups, left map[netip.Addr]uint32) {
	maps.Copy(groups, left)
	l.guarded = groups
	if len(left) > 0 && !l.clean { // which confirms that they are gone
		l.clean, l.cleanAfter = true, 0
	}
}

// endGuards ends the guards of addresses that the host does not have any more.
func (l *loop) endGuards() {
	left := l.leaving()
	if len(left) == 0 {
		return
	}
	for a := range left {
		delete(l.guarded, a)
	}
	l.guard()
}
