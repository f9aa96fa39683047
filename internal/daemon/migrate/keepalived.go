// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Keepalived reads a keepalived.conf: its virtual servers and their checkers, with
// keepalived's defaults (keepalived.conf(5), version 2.2).
func Keepalived(ctx context.Context, name string, text []byte, from Source) (*Result, error) {
	r := newResult(name)
	top, err := confRead(ctx, r, name, text, from)
	if err != nil {
		return nil, err
	}
	k := &keepalived{Result: r, serverGroups: map[string]*statement{}}
	k.file = vrrpFile{routers: map[string]bool{}, moving: map[string]bool{}}
	for _, s := range top { // a group may come after what names it
		if s.is("virtual_server_group") {
			k.serverGroups[s.word(1)] = s
		}
	}
	for _, s := range top {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		switch {
		case s.is("virtual_server_group"):
		case s.is("virtual_server"):
			k.virtual(s)
		case s.is("global_defs"):
			k.global(s)
		case s.is(vrrpBlocks...): // all global_defs come first
		case elsewhere[s.words[0]] != "":
			r.lose(s.place, s.text(), "%s", elsewhere[s.words[0]])
		default:
			r.lose(s.place, s.text(), "not carried over")
		}
	}
	k.vrrp(top)
	k.wholeFile()
	return r, nil
}

type keepalived struct {
	*Result
	serverGroups map[string]*statement
	file         vrrpFile
	mailed       place // of notification_email
	alerts       bool  // smtp_alert is in the file
}

// wholeFile lists, once, where the daemon differs without a setting of the file.
func (k *keepalived) wholeFile() {
	if k.mailed != (place{}) && !k.alerts {
		k.lose(k.mailed, "notification_email", "mail is sent of servers, services and alarms; keepalived sends it of services only with smtp_alert")
	}
	if k.first != (place{}) && k.scriptUser == "" {
		k.lose(k.first, "MISC_CHECK", "scripts run as nobody; keepalived runs them as keepalived_script if there is such a user, or else as root: write daemon.script_user")
	}
	if k.firstNotify != (place{}) {
		k.lose(k.firstNotify, "notify scripts", "run as the daemon's user; keepalived runs them as script_user, or else as keepalived_script if there is such a user: use a command such as setpriv")
	}
}

// leaves are the statements of a block without those that have one of their own and should
// not: a value with braces does, if it is not in double quotes.
func (k *keepalived) leaves(block []*statement, but ...string) (rest []*statement) {
	for _, s := range block {
		if s.open && !s.is(but...) {
			k.lose(s.place, s.text(), "has a { } block: left out with it; a value with braces must be in double quotes")
			continue
		}
		rest = append(rest, s)
	}
	return rest
}

// inherited is what servers and checkers have from what they are in.
type inherited struct {
	delay, retryDelay, timeout, warmup time.Duration
	retry                              int
	retrySet, retryDelaySet, warmupSet bool
	alpha                              bool
	host                               string
	forward                            forwarding
	inhibit                            bool
	weight                             int64
}

// shortest is the shortest interval that a check may have.
const shortest = 10 * time.Millisecond

func (k *keepalived) inherit(in *inherited, s *statement) bool {
	seconds := func(to *time.Duration) {
		t, err := strconv.ParseFloat(s.word(1), 64)
		if err != nil || !(t >= 0 && t <= 1e6) { // NaN is neither
			k.lose(s.place, s.text(), "not a time in seconds: left out")
			return
		}
		*to = time.Duration(t*1e6) * time.Microsecond
	}
	switch s.words[0] {
	case "delay_loop":
		seconds(&in.delay)
		if in.delay < shortest {
			k.lose(s.place, s.text(), "checks are made every %s at most", span(shortest))
			in.delay = shortest
		}
	case "connect_timeout":
		seconds(&in.timeout)
	case "delay_before_retry":
		seconds(&in.retryDelay)
		in.retryDelaySet = true
	case "warmup":
		seconds(&in.warmup)
		in.warmupSet = true
	case "retry", "nb_get_retry":
		n, err := strconv.Atoi(s.word(1))
		if err != nil || n < 0 || n > 999 {
			k.lose(s.place, s.text(), "not a number of 0 to 999")
			break
		}
		in.retry, in.retrySet = n, true
	case "alpha":
		in.alpha = truth(s)
	case "virtualhost":
		in.host = s.word(1)
	case "inhibit_on_failure":
		in.inhibit = truth(s)
	case "lvs_method", "lb_kind":
		k.forwarding(&in.forward, s)
	case "weight":
		if n, ok := k.number(s, 0, 1<<31-1); ok {
			in.weight = n
		}
	default:
		return false
	}
	return true
}

// inheritAll takes what is inherited from a block, and returns the rest of it.
func (k *keepalived) inheritAll(in *inherited, block []*statement) (rest []*statement) {
	for _, one := range block {
		if !k.inherit(in, one) {
			rest = append(rest, one)
		}
	}
	return rest
}

// truth is a boolean that is true if nothing else is said.
func truth(s *statement) bool {
	return !slices.Contains([]string{"false", "off", "no"}, strings.ToLower(s.word(1)))
}

// forwarding is a method as configurations have it.
type forwarding struct{ method, tunnel string }

func (f forwarding) keys() []string {
	keys := []string{"forward: " + f.method}
	if f.tunnel != "" {
		keys = append(keys, "tunnel: {"+f.tunnel+"}")
	}
	return keys
}

// forwarding reads a method, in capitals as keepalived knows them; another one changes
// nothing.
func (k *keepalived) forwarding(f *forwarding, s *statement) {
	method := map[string]string{"NAT": "masquerading", "DR": "direct-routing", "TUN": "tunnel"}[s.word(1)]
	switch {
	case method == "":
		k.lose(s.place, s.text(), "keepalived knows NAT, DR and TUN, in capitals, and leaves this out: %s", f.method)
		return
	case method != "tunnel" && len(s.words) > 2:
		k.lose(s.place, s.text(), "options are for TUN only: left out")
	}
	*f = forwarding{method: method}
	if method == "tunnel" {
		f.tunnel = k.tunnel(s)
	}
}

// tunnel is the options of TUN, or "" if keepalived takes none of them.
func (k *keepalived) tunnel(s *statement) string {
	kind, port, checksum := "ipip", uint64(0), ""
	for i := 2; i < len(s.words); i++ {
		var err error
		switch w := s.words[i]; w {
		case "type":
			i++
			kind = s.word(i)
		case "port":
			i++
			port, err = strconv.ParseUint(s.word(i), 10, 16)
		case "nocsum":
			checksum = "none"
		case "csum", "remcsum":
			checksum = w
		default:
			err = strconv.ErrSyntax
		}
		if err != nil {
			k.lose(s.place, s.text(), "%s is not an option of a tunnel: a tunnel of type ipip", s.word(i))
			return ""
		}
	}
	keys := []string{"type: " + kind}
	if port != 0 {
		keys = append(keys, fmt.Sprintf("port: %d", port))
	}
	if checksum != "" && kind != "ipip" {
		keys = append(keys, "checksum: "+checksum)
	}
	if !slices.Contains([]string{"ipip", "gue", "gre"}, kind) || (kind == "gue") != (port != 0) ||
		kind == "ipip" && (checksum == "csum" || checksum == "remcsum") || kind == "gre" && checksum == "remcsum" {
		k.lose(s.place, s.text(), "keepalived takes types ipip, gue with a port, and gre, and checksums of the last two: a tunnel of type ipip")
		return ""
	}
	if len(keys) == 1 && kind == "ipip" {
		return ""
	}
	return strings.Join(keys, ", ")
}

// target is what clients address: an address and port, or a firewall mark.
type target struct {
	at     netip.AddrPort
	mark   uint64
	family string
}

// targets are those of a virtual server's words.
func (k *keepalived) targets(s *statement) []target {
	if s.word(1) != "group" {
		return k.members(&statement{place: s.place, words: s.words[1:]})
	}
	group := k.serverGroups[s.word(2)]
	if group == nil {
		k.lose(s.place, s.text(), "there is no such virtual_server_group")
		return nil
	}
	var all []target
	for _, one := range group.block {
		all = append(all, k.members(one)...)
	}
	return all
}

// mostMembers is the number of addresses of a range that are written out.
const mostMembers = 1024

func (k *keepalived) members(s *statement) []target {
	if len(s.words) == 0 {
		k.lose(s.place, "virtual_server", "has no address")
		return nil
	}
	if s.is("fwmark") {
		mark, err := strconv.ParseUint(s.word(1), 0, 32)
		if err != nil || mark == 0 {
			k.lose(s.place, s.text(), "not a firewall mark")
			return nil
		}
		return []target{{mark: mark, family: s.word(2)}}
	}
	port := uint64(0)
	if len(s.words) > 1 {
		var err error
		if port, err = strconv.ParseUint(s.word(1), 10, 16); err != nil {
			k.lose(s.place, s.text(), "%s is not a port", s.word(1))
			return nil
		}
	}
	first, last, ok := addressRange(s.words[0])
	if !ok {
		k.lose(s.place, s.text(), "%s is not an address or range", s.words[0])
		return nil
	}
	var all []target
	for a := first; ; a = a.Next() {
		if len(all) == mostMembers {
			k.lose(s.place, s.text(), "more than %d addresses: use a firewall mark", mostMembers)
			return nil
		}
		all = append(all, target{at: netip.AddrPortFrom(a, uint16(port))})
		if a == last {
			return all
		}
	}
}

// addressRange reads 10.0.0.1, 10.0.0.1-9, 10.0.0.250-10.0.1.10 and 10.0.0.8/29.
func addressRange(s string) (first, last netip.Addr, ok bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		first = p.Masked().Addr()
		last = first
		b := last.AsSlice()
		for i := p.Bits(); i < len(b)*8; i++ {
			b[i/8] |= 0x80 >> (i % 8)
		}
		last, _ = netip.AddrFromSlice(b)
		return first, last, true
	}
	from, to, ranged := strings.Cut(s, "-")
	first, err := netip.ParseAddr(from)
	if err != nil || first.Zone() != "" {
		return first, last, false
	}
	if !ranged {
		return first, first, true
	}
	if last, err = netip.ParseAddr(to); err != nil {
		b := first.AsSlice()
		n := len(b) - 1
		if first.Is4() {
			v, err := strconv.ParseUint(to, 10, 8)
			if err != nil {
				return first, last, false
			}
			b[n] = byte(v)
		} else {
			v, err := strconv.ParseUint(to, 16, 16)
			if err != nil {
				return first, last, false
			}
			b[n-1], b[n] = byte(v>>8), byte(v)
		}
		last, _ = netip.AddrFromSlice(b)
	}
	return first, last, last.BitLen() == first.BitLen() && !last.Less(first)
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
