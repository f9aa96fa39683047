// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"net/netip"
	"strings"
)

// value is the first word behind a keyword that has to have one.
func (k *keepalived) value(s *statement) (string, bool) {
	if len(s.words) < 2 {
		k.lose(s.place, s.text(), "has no value, and keepalived ends there: left out")
		return "", false
	}
	return s.words[1], true
}

// maxDeviceName is the longest name of a network device.
const maxDeviceName = 15

// device is a name of a network device.
func (k *keepalived) device(s *statement) (string, bool) {
	name, ok := k.value(s)
	if ok && len(name) > maxDeviceName {
		k.lose(s.place, s.text(), "longer than a name of a network device: left out, as keepalived does")
		return "", false
	}
	return name, ok
}

// plainAddress reads an address as inet_stosockaddr() of keepalived's lib/utils.c, without what
// follows a / or -.
func plainAddress(word string) (netip.Addr, bool) {
	if i := strings.IndexAny(word, "-/"); i >= 0 {
		word = word[:i]
	}
	a, err := netip.ParseAddr(word)
	return a, err == nil && a.Zone() == ""
}

// familyOf is 4 or 6.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}
