// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"imbang/internal/daemon/vrrp"
)

// virtualAddresses reads virtual_ipaddress and virtual_ipaddress_excluded.
func (k *keepalived) virtualAddresses(i *vrrpInstance, s *statement) {
	for _, one := range s.block {
		a := movingAddress{from: one.place, device: i.router.device}
		if k.address(&a, one) {
			k.moving(i, one, a, s.is("virtual_ipaddress"))
		}
	}
}

// address reads an address with its options: alloc_ipaddress() of vrrp/vrrp_ipaddress.c in
// keepalived. It reports false if keepalived leaves the address out.
func (k *keepalived) address(a *movingAddress, s *statement) bool {
	text, length, hasLength := strings.Cut(s.words[0], "/")
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		k.lose(s.place, s.text(), "not an address: left out, as keepalived does")
		return false
	}
	bits := int64(addr.BitLen())
	if hasLength {
		v, exact, ok := numeral{high: bits, lenient: true}.read(length)
		if ok {
			bits = v
		}
		if !ok || !exact {
			k.lose(s.place, s.text(), "not a prefix length of 0 to %d: %d, as keepalived", addr.BitLen(), bits)
		}
	}
	a.prefix = netip.PrefixFrom(addr, int(bits))
	var unset []string
	named := false // it has a device
	for n := 1; n < len(s.words); n++ {
		word, value := s.words[n], ""
		if slices.Contains(addressValues, word) {
			n++
			value = s.word(n)
		}
		switch problem := addressProblem(addr, word, value, named, n == len(s.words)); {
		case problem != "":
			k.lose(s.place, s.text(), "%s: left out, as keepalived does", problem)
			return false
		case word == "dev":
			named, a.device = true, value
		case slices.Contains(addressUnset, word):
			unset = append(unset, strings.TrimSpace(word+" "+value))
		case !slices.Contains(addressNothing, word):
			k.lose(s.place, s.text(), "%s is not an option of an address: left out, as keepalived does", word)
		}
	}
	if unset != nil {
		k.lose(s.place, s.text(), "%s is not set: the address has a prefix length and a device", strings.Join(unset, ", "))
	}
	return true
}

// addressProblem is why keepalived leaves out an address with an option; "": it does not.
func addressProblem(addr netip.Addr, word, value string, named, ends bool) string {
	switch word {
	case "dev":
		switch {
		case named:
			return "has two devices"
		case !ends && len(value) > maxDeviceName:
			return value + " is not a network device"
		}
	case "brd", "broadcast":
		if brd, err := netip.ParseAddr(value); !ends && (addr.Is6() || value != "-" && value != "+" && (err != nil || !brd.Is4())) {
			return value + " is not a broadcast address that it can have"
		}
	case "label":
		if len(value) > maxDeviceName {
			return fmt.Sprintf("the label is longer than %d characters", maxDeviceName)
		}
	}
	if ends {
		return word + " has no value"
	}
	return ""
}

// Options of an address: those with a value, those that are not set here, and those that
// change nothing, as duplicates are not looked for in any case.
var (
	addressValues  = []string{"dev", "scope", "broadcast", "brd", "label", "peer", "preferred_lft"}
	addressUnset   = []string{"scope", "broadcast", "brd", "label", "peer", "preferred_lft", "use_vmac", "mngtmpaddr", "noprefixroute", "autojoin"}
	addressNothing = []string{"-nodad", "no_track", "home"}
)

// moving takes in an address.
func (k *keepalived) moving(i *vrrpInstance, s *statement, a movingAddress, advertised bool) {
	addr := a.prefix.Addr()
	if advertised && !i.ofFamily(familyOf(addr)) {
		k.lose(s.place, s.text(), "of another family than the addresses above, and keepalived leaves it out, too: write virtual_ipaddress_excluded")
		return
	}
	key := addr.String()
	if addr.IsLinkLocalUnicast() {
		key += "%" + a.device
	}
	if k.file.moving[key] {
		k.lose(s.place, s.text(), "the address is given before: left out")
		return
	}
	k.file.moving[key] = true
	r := &i.router
	switch {
	case !advertised:
		i.others = append(i.others, a)
	case len(r.addresses)+len(r.elsewhere) == mostAddresses(addr):
		k.lose(s.place, s.text(), "more than %d addresses do not fit in an advertisement: it moves, and is not advertised", mostAddresses(addr))
		i.others = append(i.others, a)
	case a.device == r.device:
		r.addresses = append(r.addresses, a)
	default:
		r.elsewhere = append(r.elsewhere, a)
	}
}

// mostAddresses is how many addresses of a family an advertisement has.
func mostAddresses(a netip.Addr) int {
	if a.Is4() {
		return vrrp.MaxAddresses4
	}
	return vrrp.MaxAddresses6
}

// advertise advertises addresses that are excluded if there are no others. Keepalived does
// without in version 2 alone.
func (k *keepalived) advertise(i *vrrpInstance) {
	if len(i.router.addresses)+len(i.router.elsewhere) > 0 || len(i.others) == 0 || i.version != 2 {
		return
	}
	all := i.others
	i.others = nil
	k.lose(i.place, i.text(), "has no virtual_ipaddress: version 3 needs one, so that addresses of virtual_ipaddress_excluded are advertised")
	for _, a := range all {
		switch {
		case !i.ofFamily(familyOf(a.prefix.Addr())):
			i.others = append(i.others, a)
		case a.device == i.router.device:
			i.router.addresses = append(i.router.addresses, a)
		default:
			i.router.elsewhere = append(i.router.elsewhere, a)
		}
	}
}
