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

	"imbang/internal/model"
)

// Keepalived reads a keepalived.conf: its virtual servers and their checkers, with
// keepalived's defaults (keepalived.conf(5), version 2.2).
func Keepalived(ctx context.Context, name string, text []byte, from Source) (*Result, error) {
	r := newResult(name)
	top, err := confRead(ctx, r, name, text, from)
	if err != nil {
		return nil, err
	}
	k := &keepalived{Result: r, groups: map[string]*statement{}}
	for _, s := range top { // a group may come after what names it
		if s.is("virtual_server_group") {
			k.groups[s.word(1)] = s
		}
	}
	for _, s := range top {
		switch {
		case s.is("virtual_server_group"):
		case s.is("virtual_server"):
			k.virtual(s)
		case s.is("global_defs"):
			k.global(s)
		case s.is("vrrp_instance", "vrrp_sync_group", "vrrp_script", "vrrp_track_process", "static_ipaddress", "static_routes", "static_rules", "track_file", "vrrp_track_file", "bfd_instance", "garp_group", "linkbeat_interfaces", "track_group"):
			r.lose(s.place, s.text(), "failover is not the daemon's: let keepalived do it as before, without its virtual_server blocks")
		default:
			r.lose(s.place, s.text(), "not carried over")
		}
	}
	return r, nil
}

type keepalived struct {
	*Result
	groups map[string]*statement
}

func (k *keepalived) global(s *statement) {
	for _, one := range s.block {
		switch {
		case one.is("notification_email"):
			for _, to := range one.block {
				k.mail(to.place, to.words)
			}
		case one.is("lvs_timeouts"):
			for i := 1; i+1 < len(one.words); i += 2 {
				key := map[string]string{"tcp": "tcp", "tcpfin": "tcp_fin", "udp": "udp"}[one.words[i]]
				if n, err := strconv.Atoi(one.words[i+1]); err == nil && key != "" && n > 0 {
					k.timeouts = append(k.timeouts, key+": "+span(time.Duration(n)*time.Second))
					continue
				}
				k.lose(one.place, one.text(), "not a timeout")
			}
		case one.is("notification_email_from", "smtp_server", "smtp_connect_timeout", "smtp_helo_name"):
			k.lose(one.place, one.text(), "mail is sent by the command daemon.mail, which has its own settings for this")
		case one.is("script_user"):
			k.lose(one.place, one.text(), "script checks run as nobody: write daemon.script_user")
		case one.is("router_id", "enable_script_security", "process_names", "use_pid_dir"):
			k.lose(one.place, one.text(), "not needed")
		default:
			k.lose(one.place, one.text(), "not carried over")
		}
	}
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
}

func (k *keepalived) inherit(in *inherited, s *statement) bool {
	seconds := func(to *time.Duration) {
		t, err := strconv.ParseFloat(s.word(1), 64)
		if err != nil || t < 0 || t > 1e6 {
			k.lose(s.place, s.text(), "not a time in seconds")
			return
		}
		*to = time.Duration(t*1e6) * time.Microsecond
	}
	switch s.words[0] {
	case "delay_loop":
		seconds(&in.delay)
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

func (k *keepalived) forwarding(f *forwarding, s *statement) {
	switch strings.ToUpper(s.word(1)) {
	case "NAT":
		*f = forwarding{method: "masquerading"}
	case "DR":
		*f = forwarding{method: "direct-routing"}
	case "TUN":
		*f = forwarding{method: "tunnel"}
		var keys []string
		for i := 2; i < len(s.words); i++ {
			switch w := strings.ToLower(s.words[i]); w {
			case "type":
			case "ipip", "gue", "gre":
				keys = append(keys, "type: "+w)
			case "port":
				i++
				if n, err := strconv.ParseUint(s.word(i), 10, 16); err == nil {
					keys = append(keys, fmt.Sprintf("port: %d", n))
				} else {
					k.lose(s.place, s.text(), "not a port")
				}
			case "nocsum":
				keys = append(keys, "checksum: none")
			case "csum", "remcsum":
				keys = append(keys, "checksum: "+w)
			default:
				k.lose(s.place, s.text(), "not an option of a tunnel: %s", w)
			}
		}
		f.tunnel = strings.Join(keys, ", ")
	default:
		k.lose(s.place, s.text(), "not a forwarding method: masquerading")
	}
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
	group := k.groups[s.word(2)]
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

func (k *keepalived) virtual(s *statement) {
	in := inherited{delay: time.Minute, timeout: 5 * time.Second, forward: forwarding{method: "masquerading"}}
	v := service{from: s.place}
	protocol, sorryForward := "tcp", forwarding{}
	var family string
	var sorry *statement
	var flags, commands []string
	rest := k.inheritAll(&in, s.block)
	for _, one := range rest {
		switch one.words[0] {
		case "real_server":
		case "lvs_sched", "lb_algo":
			if _, known := model.SchedulerNamed(one.word(1)); !known {
				k.lose(one.place, one.text(), "there is no such scheduler: wlc")
				break
			}
			v.keys = append(v.keys, "scheduler: "+one.word(1))
		case "flag-1", "flag-2", "flag-3", "sh-port", "sh-fallback", "mh-port", "mh-fallback":
			flags = append(flags, one.words[0])
		case "ops":
			v.keys = append(v.keys, "one_packet: true")
		case "persistence_engine":
			v.keys = append(v.keys, "engine: "+quoted(one.word(1)))
		case "persistence_timeout":
			k.persistence(&v, one)
		case "persistence_granularity":
			if n, ok := maskLength(one.word(1)); ok {
				v.keys = append(v.keys, fmt.Sprintf("netmask: %d", n))
				break
			}
			k.lose(one.place, one.text(), "not a netmask that is a prefix")
		case "protocol":
			protocol = strings.ToLower(one.word(1))
		case "ip_family":
			family = one.word(1)
		case "quorum", "hysteresis":
			v.keys = k.number(v.keys, one, one.words[0])
		case "quorum_up", "quorum_down":
			if command := k.command(one); command != nil {
				commands = append(commands, one.words[0]+": "+list(command))
			}
		case "sorry_server":
			sorry = one
		case "sorry_server_lvs_method":
			k.forwarding(&sorryForward, one)
		case "sorry_server_inhibit", "omega", "ha_suspend", "smtp_alert", "snmp_name":
			k.lose(one.place, one.text(), "there is nothing like it")
		default:
			k.lose(one.place, one.text(), "not carried over")
		}
	}
	if len(flags) > 0 {
		v.keys = append(v.keys, "flags: "+list(flags))
	}
	v.keys = append(v.keys, in.forward.keys()...)
	v.keys = append(v.keys, commands...)
	if sorry != nil {
		v.sorry = k.sorry(sorry, sorryForward)
	}
	inhibited := 0
	for _, one := range rest {
		if !one.is("real_server") {
			continue
		}
		if real, inhibits, ok := k.real(one, in); ok {
			v.servers = append(v.servers, real)
			inhibited += map[bool]int{true: 1}[inhibits]
		}
	}
	switch {
	case inhibited == 0:
		v.keys = append(v.keys, "on_failure: remove")
	case inhibited < len(v.servers):
		k.lose(s.place, s.text(), "inhibit_on_failure of some servers only: here of all")
	}
	for _, t := range k.targets(s) {
		k.addService(k.of(v, t, protocol, family))
	}
}

// of is a virtual server of one target.
func (k *keepalived) of(v service, t target, protocol, family string) service {
	if t.mark != 0 {
		if t.family != "" {
			family = t.family
		}
		six := len(v.servers) > 0 && !slices.ContainsFunc(v.servers, func(s server) bool { return s.addr.Is4() })
		v.ofMark(t.mark, family == "inet6" || family == "" && six)
		return v
	}
	v.servers = slices.Clone(v.servers) // another target may have another port
	for i := range v.servers {
		s := &v.servers[i]
		k.samePort(s, t.at.Port(), fmt.Sprintf("real_server %s %d", s.addr, s.port))
	}
	v.ofAddress(t.at.Addr(), t.at.Port(), quoted(protocol))
	return v
}

func (k *keepalived) persistence(v *service, s *statement) {
	n := 360
	if len(s.words) > 1 {
		var err error
		if n, err = strconv.Atoi(s.word(1)); err != nil || n < 0 {
			k.lose(s.place, s.text(), "not a time in seconds")
			return
		}
	}
	if n > 0 {
		v.keys = append(v.keys, "persistence: "+span(time.Duration(n)*time.Second))
	}
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

// command is the command of a notify script.
func (k *keepalived) command(s *statement) []string {
	words := strings.Fields(s.word(1))
	if len(s.words) > 2 {
		k.lose(s.place, s.text(), "runs as the daemon's user: use a command such as setpriv for another")
	}
	if len(words) == 0 || !strings.HasPrefix(words[0], "/") {
		k.lose(s.place, s.text(), "want an absolute path: left out")
		return nil
	}
	return words
}

// server reads a server's address and port.
func (k *keepalived) server(s *statement) (server, bool) {
	a, err := netip.ParseAddr(s.word(1))
	port := uint64(0)
	if err == nil && len(s.words) > 2 {
		port, err = strconv.ParseUint(s.word(2), 10, 16)
	}
	if err != nil {
		k.lose(s.place, s.text(), "not an address and port: left out")
		return server{}, false
	}
	return server{from: s.place, addr: a, port: uint16(port)}, true
}

func (k *keepalived) sorry(s *statement, f forwarding) *server {
	out, ok := k.server(s)
	if !ok {
		return nil
	}
	if f.method != "" {
		out.keys = append(out.keys, f.keys()...)
	}
	return &out
}

func (k *keepalived) real(s *statement, in inherited) (out server, inhibits, ok bool) {
	if out, ok = k.server(s); !ok {
		return out, false, false
	}
	of := in.forward
	names := []string{}
	for _, one := range k.inheritAll(&in, s.block) { // before its checkers, whatever the order
		switch one.words[0] {
		case "weight":
			out.keys = k.number(out.keys, one, "weight")
		case "uthreshold":
			out.keys = k.number(out.keys, one, "upper")
		case "lthreshold":
			out.keys = k.number(out.keys, one, "lower")
		case "notify_up", "notify_down":
			if command := k.command(one); command != nil {
				out.keys = append(out.keys, one.words[0]+": "+list(command))
			}
		case "smtp_alert", "snmp_name":
			k.lose(one.place, one.text(), "there is nothing like it")
		default:
			if strings.HasSuffix(one.words[0], "_CHECK") || strings.HasSuffix(one.words[0], "_GET") {
				names = append(names, k.checker(one, in)...)
				break
			}
			k.lose(one.place, one.text(), "not carried over")
		}
	}
	out.masqueraded = in.forward.method == "masquerading"
	if in.forward != of {
		out.keys = append(out.keys, in.forward.keys()...)
	}
	out.keys = append(out.keys, "checks: ["+strings.Join(names, ", ")+"]")
	return out, in.inhibit, true
}

func (k *keepalived) number(keys []string, s *statement, key string) []string {
	n, err := strconv.ParseInt(s.word(1), 10, 32)
	if err != nil || n < 0 {
		k.lose(s.place, s.text(), "not a number of 0 to 2147483647")
		return keys
	}
	return append(keys, fmt.Sprintf("%s: %d", key, n))
}
