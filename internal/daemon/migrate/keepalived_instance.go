// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// vrrpInstance is a vrrp_instance while it is read.
type vrrpInstance struct {
	*statement
	name         string
	router       vrrpRouter
	version      int64 // 0: the global one
	priority     int64
	interval     time.Duration
	master       *statement // state MASTER
	noPreempt    *statement
	preemptDelay time.Duration
	delayed      *statement // preempt_delay
	garp         garp
	others       []movingAddress // not advertised
	watched
	group *syncGroup
}

// The limits of intervals of advertisements (RFC 9568, 5.2.7: 12 bits of centiseconds).
const (
	shortestInterval = 10 * time.Millisecond
	longestInterval  = 4095 * shortestInterval
)

// vrrpInstance takes in an instance.
func (k *keepalived) vrrpInstance(s *statement) {
	f := &k.file
	i := &vrrpInstance{statement: s, name: s.word(1), priority: 100, interval: time.Second, garp: f.garp}
	i.router = vrrpRouter{from: s.place}
	for _, g := range f.groups {
		if g.has(i.name) {
			i.group = g
			break
		}
	}
	blocks := []string{"virtual_ipaddress", "virtual_ipaddress_excluded", "unicast_peer", "authentication", "virtual_routes", "virtual_rules",
		"track_interface", "track_script", "track_file", "track_process", "track_bfd"}
	rest := k.leaves(s.block, blocks...)
	for _, one := range rest { // addresses without a device are on that of the instance
		if one.is("interface") {
			i.router.device = one.word(1)
		}
	}
	if i.router.device == "" {
		i.router.device = f.device
	}
	for _, one := range rest {
		k.instanceKey(i, one)
	}
	k.preemption(i)
	if k.usable(i) {
		f.instances = append(f.instances, i)
	}
}

func (k *keepalived) instanceKey(i *vrrpInstance, s *statement) {
	switch name := s.words[0]; name {
	case "interface", "native_ipv6", "accept", "preempt":
	case "state":
		if s.word(1) == "MASTER" {
			i.master = s
		}
	case "virtual_router_id":
		if n, ok := k.number(s, 1, 255); ok {
			i.router.id = n
		}
	case "priority":
		if n, ok := k.number(s, 1, 255); ok {
			i.priority = n
		}
	case "version":
		i.version = k.version(s)
	case "advert_int":
		k.advertInterval(i, s)
	case "nopreempt":
		i.noPreempt = s
	case "preempt_delay":
		if t, ok := k.time(s); ok {
			i.preemptDelay, i.delayed = t, s
		}
	case "mcast_src_ip", "unicast_src_ip":
		i.router.source = s.word(1)
	case "unicast_peer":
		k.peers(i, s)
	case "virtual_ipaddress", "virtual_ipaddress_excluded":
		for _, one := range s.block {
			k.moving(i, one, name == "virtual_ipaddress")
		}
	case "garp_master_delay", "garp_master_repeat", "garp_master_refresh", "garp_master_refresh_repeat":
		k.garp(&i.garp, name, s)
	case "lvs_sync_daemon_interface":
		if k.file.synchronizing == nil {
			k.file.synchronizing, k.file.of = s, i
		}
	case "mcast_dst_ip":
		k.multicastGroup(s)
	default:
		if !k.watch(&i.watched, s) {
			k.instanceLoss(s)
		}
	}
}

// instanceLosses are keywords of instances for which there is nothing here, with why.
var instanceLosses = map[string]string{
	"authentication":             "VRRP version 3 has none (RFC 9568): remove it from both directors",
	"use_vmac":                   "not supported: addresses are on the device itself, with its hardware address, which announcements tell to other hosts",
	"use_vmac_addr":              "not supported: addresses are on the device itself",
	"vmac_xmit_base":             "not needed: advertisements are sent by the device itself",
	"use_ipvlan":                 "not supported: addresses are on the device itself",
	"vrf":                        "not supported: name the device as interface",
	"dont_track_primary":         "not supported: a group is in fault while one of its devices is down",
	"track_src_ip":               "not needed: a group is in fault while the address that it sends from is missing",
	"check_unicast_src":          "not needed: by unicast, advertisements of peers alone are accepted",
	"unicast_fault_no_peer":      "not needed",
	"unicast_ttl":                "not supported: advertisements have a TTL of 255",
	"old_unicast_checksum":       "not supported: see the key checksum",
	"down_timer_adverts":         "not supported: a master is dead after three intervals and a skew (RFC 9568)",
	"lower_prio_no_advert":       "not needed: this director answers a lower priority with advertisements",
	"higher_prio_send_advert":    "not needed: the other director announces its addresses when it sees this one's advertisements",
	"skip_check_adv_addr":        "not needed: addresses in advertisements are not compared",
	"no_accept":                  "not supported: virtual addresses are accepted as destinations",
	"strict_mode":                "not supported: virtual addresses are accepted as destinations",
	"promote_secondaries":        "write sysctl -w net.ipv4.conf.DEVICE.promote_secondaries=1; without it addresses are added again",
	"garp_lower_prio_delay":      "not needed: when another master is seen, addresses are announced as at a takeover",
	"garp_lower_prio_repeat":     "not needed: when another master is seen, addresses are announced as at a takeover",
	"garp_extra_if":              "not needed: addresses on all devices are announced again, every announce_every",
	"notify_master_rx_lower_pri": "not supported: imbang vrrp status counts other masters",
	"notify_deleted":             "not supported: notify_stop runs when the process ends",
	"notify_priority_changes":    "not supported",
	"kernel_rx_buf_size":         "not needed",
	"debug":                      "not needed",
	"linkbeat_use_polling":       "not needed: the kernel's notices of the carrier are used",
	"virtual_routes":             "routes do not move: add them by notify_master, and remove them by notify_backup and notify_fault",
	"virtual_rules":              "rules do not move: add them by notify_master, and remove them by notify_backup and notify_fault",
	"smtp_alert":                 "no mail is sent of transitions: use notify",
}

func (k *keepalived) instanceLoss(s *statement) {
	why, known := instanceLosses[s.words[0]]
	switch {
	case !known:
		why = "not carried over"
	case s.is("smtp_alert", "no_accept", "strict_mode") && !truth(s):
		return
	}
	k.lose(s.place, s.text(), "%s", why)
}

func (k *keepalived) advertInterval(i *vrrpInstance, s *statement) {
	t, ok := k.time(s)
	if !ok {
		return
	}
	i.interval = min(max(t.Round(shortestInterval), shortestInterval), longestInterval)
	if i.interval != t {
		k.lose(s.place, s.text(), "want a multiple of 10 ms, 10 ms to 40.95 s, the same on all directors: %s", span(i.interval))
	}
}

// preemption is as keepalived has it: an initial state of MASTER, and priority 255, clear
// nopreempt, and the former also preempt_delay.
func (k *keepalived) preemption(i *vrrpInstance) {
	why := "keepalived ignores it with state MASTER"
	if i.priority == 255 {
		why = "keepalived ignores it with priority 255"
	}
	if i.noPreempt != nil && (i.master != nil || i.priority == 255) {
		k.lose(i.noPreempt.place, "nopreempt", "%s: left out", why)
		i.noPreempt = nil
	}
	if i.delayed == nil {
		return
	}
	switch {
	case i.master != nil:
		k.lose(i.delayed.place, i.delayed.text(), "keepalived ignores it with state MASTER: left out")
	case i.noPreempt != nil:
		k.lose(i.delayed.place, i.delayed.text(), "has no effect beside nopreempt: left out")
	default:
		return
	}
	i.preemptDelay = 0
}

func (k *keepalived) peers(i *vrrpInstance, s *statement) {
	for _, one := range s.block {
		if len(one.words) > 1 {
			k.lose(one.place, one.text(), "the TTL of advertisements by unicast is not checked, but their source is")
		}
		i.router.peers = append(i.router.peers, one.words[0])
	}
}

// moving takes in an address.
func (k *keepalived) moving(i *vrrpInstance, s *statement, advertised bool) {
	a := movingAddress{from: s.place, device: i.router.device}
	var err error
	if a.prefix, err = netip.ParsePrefix(s.words[0]); err != nil {
		var one netip.Addr
		if one, err = netip.ParseAddr(s.words[0]); err == nil {
			a.prefix = netip.PrefixFrom(one, one.BitLen())
		}
	}
	if err != nil || a.prefix.Addr().Zone() != "" {
		k.lose(s.place, s.text(), "not an address: left out")
		return
	}
	var unset []string
	for n := 1; n < len(s.words); n++ {
		switch s.words[n] {
		case "dev":
			n++
			a.device = s.word(n)
		case "-nodad", "nodad", "no_track", "home": // duplicates are not looked for in any case
		case "brd", "broadcast", "scope", "label", "peer", "preferred_lft":
			unset = append(unset, s.words[n]+" "+s.word(n+1))
			n++
		default:
			unset = append(unset, s.words[n])
		}
	}
	if unset != nil {
		k.lose(s.place, s.text(), "%s is not set: the address has a prefix length and a device", strings.Join(unset, ", "))
	}
	key := a.prefix.Addr().String()
	if a.prefix.Addr().IsLinkLocalUnicast() {
		key += "%" + a.device
	}
	if k.file.moving[key] {
		k.lose(s.place, s.text(), "the address is given before: left out")
		return
	}
	r := &i.router
	switch {
	case advertised && len(r.addresses) > 0 && r.addresses[0].prefix.Addr().Is6() != a.prefix.Addr().Is6():
		k.lose(s.place, s.text(), "of another family than the address before, and keepalived leaves it out, too: write virtual_ipaddress_excluded")
		return
	case advertised && a.device == r.device:
		r.addresses = append(r.addresses, a)
	case advertised:
		k.lose(s.place, s.text(), "on another device than the instance: it moves, and is not advertised; while keepalived is the other director, write it in virtual_ipaddress_excluded there")
		fallthrough
	default:
		i.others = append(i.others, a)
	}
	k.file.moving[key] = true
}

// usable reports whether an instance can be a virtual router.
func (k *keepalived) usable(i *vrrpInstance) bool {
	r := &i.router
	leave := func(format string, args ...any) bool {
		k.lose(i.place, i.text(), format+": left out", args...)
		return false
	}
	switch {
	case i.name == "":
		return leave("has no name")
	case r.device == "":
		return leave("has no interface")
	case r.id == 0:
		return leave("has no virtual_router_id")
	case len(r.addresses) == 0:
		return leave("has no virtual_ipaddress on its interface")
	}
	six := r.addresses[0].prefix.Addr().Is6()
	key := strings.Join([]string{r.device, strconv.FormatInt(r.id, 10), strconv.FormatBool(six)}, " ")
	if k.file.routers[key] {
		return leave("another instance has virtual_router_id %d on %s", r.id, r.device)
	}
	k.file.routers[key] = true
	for n, other := range k.file.instances {
		if other.name == i.name {
			return leave("the name is that of instance %d before", n+1)
		}
	}
	if !six && cmp.Or(i.version, k.file.version, 2) == 2 {
		if k.file.oldCount++; k.file.old == (place{}) {
			k.file.old = i.place
		}
	}
	if i.master != nil {
		k.lose(i.master.place, i.master.text(), "not needed: a start listens first, and the priority decides")
	}
	return true
}
