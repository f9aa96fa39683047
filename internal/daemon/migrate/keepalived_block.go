// SPDX-License-Identifier: Apache-2.0

package migrate

import "net/netip"

// keyword is one that a block of keepalived.conf can have: how it is read, and why it is not
// carried over as it is.
type keyword[T any] struct {
	take  func(k *keepalived, to T, s *statement) // nil: nothing is read
	why   string                                  // it is listed with this; "": take lists what changes
	flag  bool                                    // it is a truth value: a false one counts as no statement
	block bool                                    // it has a block
	newer bool                                    // version 2.2 does not have it, a later one does
}

// readBlock reads the statements of a block by its table. A keyword counts only in a block in
// which keepalived has it.
func readBlock[T any](k *keepalived, in string, table map[string]keyword[T], to T, block []*statement) {
	for _, s := range block {
		one, known := table[s.words[0]]
		switch {
		case !known:
			k.lose(s.place, s.text(), "keepalived has no such keyword in %s: left out, as there", in)
		case s.open && !one.block:
			k.leaves([]*statement{s})
		case one.flag && !k.truth(s):
		default:
			if one.why != "" {
				k.lose(s.place, s.text(), "%s", one.why)
			}
			if one.take != nil {
				one.take(k, to, s)
			}
		}
	}
}

// truth is a truth value: check_true_false() of keepalived's lib/parser.c. Without a word it
// is true; another word is ignored, so that the default stays, which is false.
func (k *keepalived) truth(s *statement) bool {
	switch s.word(1) {
	case "", "true", "on", "yes":
		return true
	case "false", "off", "no":
		return false
	}
	k.lose(s.place, s.text(), "neither true nor false: left out, as keepalived does")
	return false
}

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
	for i, c := range word {
		if c == '-' || c == '/' {
			word = word[:i]
			break
		}
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
