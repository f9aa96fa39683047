// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"imbang/internal/model"
)

// target is what clients address: an address and port, or a firewall mark.
type target struct {
	at     netip.AddrPort
	mark   uint64
	family string
}

// portForm is the form of a port, and markForm that of a firewall mark.
var (
	portForm = numeral{low: 1, high: 65535, lenient: true}
	markForm = numeral{low: 0, high: math.MaxUint32, lenient: true}
)

// targets are those of a virtual server's words.
func (k *keepalived) targets(s *statement) []target {
	switch s.word(1) {
	case "group":
		group := k.serverGroups[s.word(2)]
		if group == nil {
			k.lose(s.place, s.text(), "there is no such virtual_server_group")
			return nil
		}
		var all []target
		for _, one := range group.block {
			members := k.destinations(one, k.members(one))
			k.size += len(members) * leastWritten
			if k.full() != nil {
				return nil
			}
			all = append(all, members...)
		}
		return all
	case "fwmark":
		return k.marked(s, 2)
	}
	a, port, ok := k.endpoint(s)
	if !ok {
		return nil
	}
	return k.destinations(s, []target{{at: netip.AddrPortFrom(a, port)}})
}

// destinations leaves out the targets of a line that no service can have. The line is listed once.
func (k *keepalived) destinations(s *statement, all []target) []target {
	listed := false
	return slices.DeleteFunc(all, func(t target) bool {
		if t.mark != 0 || model.Destination(t.at.Addr()) {
			return false
		}
		listed = listed || !k.reachable(s.place, s.text(), t.at.Addr())
		return true
	})
}

// marked is the firewall mark that the i-th word is.
func (k *keepalived) marked(s *statement, i int) []target {
	mark, ok := k.numeral(s, i, markForm, "left out")
	switch {
	case !ok:
		return nil
	case mark == 0:
		k.lose(s.place, s.text(), "not a firewall mark: packets without one have 0: left out")
		return nil
	}
	return []target{{mark: uint64(mark)}}
}

// endpoint is the address and port behind the first word of a statement. As with keepalived,
// a prefix length or range behind the address is cut off, and port 0 is none.
func (k *keepalived) endpoint(s *statement) (a netip.Addr, port uint16, ok bool) {
	if len(s.words) < 2 {
		k.lose(s.place, s.text(), "has no address, and keepalived ends there: left out")
		return a, 0, false
	}
	text, rest := s.words[1], ""
	if i := strings.IndexAny(text, "-/"); i >= 0 {
		text, rest = text[:i], text[i:]
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		k.lose(s.place, s.text(), "%s is not an address: left out with its block, as by keepalived", text)
		return a, 0, false
	}
	if rest != "" {
		k.lose(s.place, s.text(), "%s is left out, as by keepalived: ranges and prefixes are for virtual_server_group", rest)
	}
	if len(s.words) > 3 {
		k.lose(s.place, s.text(), "%s: behind the port: left out, as by keepalived", strings.Join(s.words[3:], " "))
	}
	port, ok = k.port(s, 2)
	return a, port, ok
}

// port is the port that the i-th word is, or 0 if there is none.
func (k *keepalived) port(s *statement, i int) (port uint16, ok bool) {
	if strings.Trim(s.word(i), "0") == "" {
		return 0, true
	}
	n, ok := k.numeral(s, i, portForm, "left out")
	return uint16(n), ok
}

// mostMembers is the number of addresses of a range that are written out.
const mostMembers = 1024

// members are the targets of a line of a virtual_server_group.
func (k *keepalived) members(s *statement) []target {
	if s.is("fwmark") {
		if !slices.Contains([]string{"", "inet", "inet6"}, s.word(2)) {
			k.lose(s.place, s.text(), "want inet or inet6: left out, as by keepalived")
			return nil
		}
		t := k.marked(s, 1)
		for i := range t {
			t[i].family = s.word(2)
		}
		return t
	}
	port, ok := k.port(s, 1)
	if !ok {
		return nil
	}
	first, last, ok := addressRange(s.words[0])
	if !ok {
		k.lose(s.place, s.text(), "%s is not an address, an ascending range, or a prefix without bits behind it: left out", s.words[0])
		return nil
	}
	var all []target
	for a := first; ; a = a.Next() {
		if len(all) == mostMembers {
			k.lose(s.place, s.text(), "more than %d addresses: use a firewall mark", mostMembers)
			return nil
		}
		all = append(all, target{at: netip.AddrPortFrom(a, port)})
		if a == last {
			return all
		}
	}
}

// addressRange reads 10.0.0.1, 10.0.0.1-9, 10.0.0.250-10.0.1.10 and 10.0.0.8/29.
func addressRange(s string) (first, last netip.Addr, ok bool) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil || p.Bits() == 0 || p.Masked() != p {
			return first, last, false
		}
		b := p.Addr().AsSlice()
		for i := p.Bits(); i < len(b)*8; i++ {
			b[i/8] |= 0x80 >> (i % 8)
		}
		last, _ = netip.AddrFromSlice(b)
		return p.Addr(), last, true
	}
	from, to, ranged := strings.Cut(s, "-")
	first, err := netip.ParseAddr(from)
	if err != nil || first.Zone() != "" {
		return first, last, false
	}
	if !ranged {
		return first, first, true
	}
	if strings.ContainsAny(to, ".:") {
		last, err = netip.ParseAddr(to)
		return first, last, err == nil && last.BitLen() == first.BitLen() && !last.Less(first)
	}
	base, size := 10, 8
	if first.Is6() {
		base, size = 16, 16
	}
	v, err := strconv.ParseUint(to, base, size)
	if err != nil {
		return first, last, false
	}
	b := first.AsSlice()
	b[len(b)-1] = byte(v)
	if first.Is6() {
		b[len(b)-2] = byte(v >> 8)
	}
	last, _ = netip.AddrFromSlice(b)
	return first, last, first.Less(last)
}

// maskLength is the prefix length of 255.255.255.0 or 24.
func maskLength(s string) (int, bool) {
	if n, err := strconv.Atoi(s); err == nil {
		return n, n >= 1 && n <= 128
	}
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return 0, false
	}
	b := a.As4()
	m := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n := bits.LeadingZeros32(^m)
	return n, n > 0 && m == ^uint32(0)<<(32-n)
}
