// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// vrrpInstance is a vrrp_instance while it is read.
type vrrpInstance struct {
	*statement
	name         string
	router       vrrpRouter
	family       int   // 4 or 6, of the first address of any kind; 0: not known yet
	version      int64 // 0: the global one
	priority     int64 // 0: not set
	interval     time.Duration
	advertised   *statement // advert_int
	state        *statement
	master       bool // the initial state
	noPreempt    *statement
	preemptDelay time.Duration
	delayed      *statement // preempt_delay
	garp         garp
	others       []movingAddress // not advertised
	watched
	group *syncGroup
}

// instanceKeywords are those of vrrp_instance: init_vrrp_keywords() of vrrp/vrrp_parser.c in
// keepalived.
var instanceKeywords = map[string]keyword[*vrrpInstance]{
	"interface":   {}, // it is read before the others
	"native_ipv6": {take: (*keepalived).nativeIPv6},
	"accept":      {},
	"preempt":     {take: func(_ *keepalived, i *vrrpInstance, _ *statement) { i.noPreempt = nil }},
	"nopreempt":   {take: func(_ *keepalived, i *vrrpInstance, s *statement) { i.noPreempt = s }},
	"preempt_delay": {take: func(k *keepalived, i *vrrpInstance, s *statement) {
		n, _ := k.numeral(s, 1, timer(0, 1000*time.Second), "none")
		i.preemptDelay, i.delayed = time.Duration(n)*time.Microsecond, s
	}},
	"state": {take: (*keepalived).initialState},
	"virtual_router_id": {take: func(k *keepalived, i *vrrpInstance, s *statement) {
		if n, ok := k.numeral(s, 1, numeral{low: 1, high: 255}, "left out"); ok {
			i.router.id = n
		}
	}},
	"priority": {take: func(k *keepalived, i *vrrpInstance, s *statement) {
		n, ok := k.numeral(s, 1, numeral{low: 1, high: 255}, "100")
		if i.priority = n; !ok {
			i.priority = 100
		}
	}},
	"version": {take: (*keepalived).instanceVersion},
	"advert_int": {take: func(k *keepalived, i *vrrpInstance, s *statement) {
		if n, ok := k.numeral(s, 1, timer(shortestInterval, 255*time.Second), "left out, so that "+span(i.interval)+" stays"); ok {
			i.interval, i.advertised = time.Duration(n)*time.Microsecond, s
		}
	}},
	"mcast_src_ip":               {take: (*keepalived).source},
	"unicast_src_ip":             {take: (*keepalived).source},
	"unicast_peer":               {block: true, take: (*keepalived).peers},
	"mcast_dst_ip":               {take: (*keepalived).multicastOf},
	"virtual_ipaddress":          {block: true, take: (*keepalived).virtualAddresses},
	"virtual_ipaddress_excluded": {block: true, take: (*keepalived).virtualAddresses},
	"garp_master_delay":          instanceGarp("garp_master_delay"),
	"garp_master_repeat":         instanceGarp("garp_master_repeat"),
	"garp_master_refresh":        instanceGarp("garp_master_refresh"),
	"garp_master_refresh_repeat": instanceGarp("garp_master_refresh_repeat"),
	"lvs_sync_daemon_interface": {take: func(k *keepalived, i *vrrpInstance, s *statement) {
		if k.syncDaemon(&k.file, s); k.file.synchronizing == s {
			k.file.of = i
		}
	}},
	"track_interface": instanceWatch((*keepalived).trackInterfaces),
	"track_script":    instanceWatch((*keepalived).trackScripts),
	"track_file":      instanceWatch((*keepalived).notTracked),
	"track_process":   instanceWatch((*keepalived).notTracked),
	"track_bfd":       instanceWatch((*keepalived).notTracked),
	"notify":          instanceWatch((*keepalived).notifyCommand),
	"notify_master":   instanceWatch((*keepalived).notifyCommand),
	"notify_backup":   instanceWatch((*keepalived).notifyCommand),
	"notify_fault":    instanceWatch((*keepalived).notifyCommand),
	"notify_stop":     instanceWatch((*keepalived).notifyCommand),

	"authentication":             {block: true, why: "VRRP version 3 has none (RFC 9568): remove it from both directors"},
	"use_vmac":                   {why: "not supported: addresses are on the device itself, with its hardware address, which announcements tell to other hosts"},
	"use_vmac_addr":              {why: noVMAC},
	"vmac_xmit_base":             {why: "not needed: advertisements are sent by the device itself"},
	"use_ipvlan":                 {why: noVMAC},
	"vrf":                        {why: "not supported: name the device as interface"},
	"dont_track_primary":         {why: "not supported: a group is in fault while one of its devices is down"},
	"track_src_ip":               {why: "not needed: a group is in fault while the address that it sends from is missing"},
	"check_unicast_src":          {why: "not needed: by unicast, advertisements of peers alone are accepted"},
	"unicast_fault_no_peer":      {why: "not needed"},
	"unicast_ttl":                {why: "not supported: advertisements have a TTL of 255"},
	"old_unicast_checksum":       {why: noChecksum},
	"down_timer_adverts":         {why: threeMissed},
	"lower_prio_no_advert":       {flag: true, why: answersLower},
	"higher_prio_send_advert":    {flag: true, why: yieldsHigher},
	"skip_check_adv_addr":        {why: "not needed: addresses in advertisements are not compared"},
	"no_accept":                  {why: accepts},
	"strict_mode":                {flag: true, why: accepts},
	"promote_secondaries":        {why: "write sysctl -w net.ipv4.conf.DEVICE.promote_secondaries=1; without it addresses are added again"},
	"garp_lower_prio_delay":      {why: twoMasters},
	"garp_lower_prio_repeat":     {why: twoMasters},
	"garp_extra_if":              {why: "not needed: addresses on all devices are announced again, every announce_every"},
	"vmac_garp_intvl":            {why: "not needed: addresses on all devices are announced again, every announce_every"},
	"notify_master_rx_lower_pri": {why: "not supported: imbang vrrp status counts other masters"},
	"notify_deleted":             {why: "not supported: notify_stop runs when the process ends"},
	"notify_priority_changes":    {flag: true, why: "not supported"},
	"kernel_rx_buf_size":         {why: noBuffers},
	"debug":                      {why: "not needed"},
	"linkbeat_use_polling":       {why: "not needed: the kernel's notices of the carrier are used"},
	"virtual_routes":             {block: true, why: "routes do not move: add them by notify_master, and remove them by notify_backup and notify_fault"},
	"virtual_rules":              {block: true, why: "rules do not move: add them by notify_master, and remove them by notify_backup and notify_fault"},
	"smtp_alert":                 {flag: true, why: "no mail is sent of transitions: use notify"},

	"no_virtual_ipaddress": {newer: true, why: "not supported: a router has at least one address"},
	"v3_checksum_as_v2":    {newer: true, why: noChecksum},
	"timer_expired_backup": {newer: true, why: "not needed"},
	"thread_timer_expired": {newer: true, why: "not needed"},
	"owner_ignore_adverts": {newer: true, why: "not supported: of two directors of priority 255, the one with the lower address yields"},
	"auth_hmac":            {newer: true, block: true, why: "VRRP version 3 has none (RFC 9568): remove it from both directors"},
}

func instanceGarp(name string) keyword[*vrrpInstance] {
	return keyword[*vrrpInstance]{take: func(k *keepalived, i *vrrpInstance, s *statement) { garpKeys[name](k, &i.garp, s) }}
}

func instanceWatch(take func(k *keepalived, w *watched, s *statement)) keyword[*vrrpInstance] {
	return keyword[*vrrpInstance]{block: true, take: func(k *keepalived, i *vrrpInstance, s *statement) { take(k, &i.watched, s) }}
}

// The limits of intervals of advertisements (RFC 9568, 5.2.7: 12 bits of centiseconds).
const (
	shortestInterval = 10 * time.Millisecond
	longestInterval  = 4095 * shortestInterval
)

// vrrpInstance takes in an instance, which is the n-th statement of the file.
func (k *keepalived) vrrpInstance(s *statement, n int) {
	f := &k.file
	i := &vrrpInstance{statement: s, name: s.word(1), interval: time.Second, garp: f.garp, watched: watched{order: n}}
	i.router = vrrpRouter{from: s.place}
	for _, g := range f.groups {
		if g.has(i.name) {
			i.group = g
			break
		}
	}
	for _, one := range s.block { // addresses without a device are on that of the instance
		if one.is("interface") && !one.open {
			if name, ok := k.device(one); ok {
				i.router.device = name
			}
		}
	}
	if i.router.device == "" && f.device != "" {
		i.router.device = f.device
		k.lose(s.place, s.text(), "has no interface: that of default_interface; keepalived takes this for static addresses alone, and ends")
	}
	i.own = i.router.device
	readBlock(k, "vrrp_instance", instanceKeywords, i, s.block)
	k.finish(i)
	if k.usable(i) {
		f.instances = append(f.instances, i)
	}
}

func (k *keepalived) nativeIPv6(i *vrrpInstance, s *statement) {
	if i.family == 4 {
		k.lose(s.place, s.text(), "the addresses above are of IPv4: left out, as keepalived does")
		return
	}
	i.family, i.version = 6, 3
}

func (k *keepalived) initialState(i *vrrpInstance, s *statement) {
	state, ok := k.value(s)
	switch {
	case !ok:
	case state == "BACKUP" && i.master:
		k.lose(s.place, s.text(), "MASTER is above: left out, as keepalived does")
	case state == "MASTER" || state == "BACKUP":
		i.state, i.master = s, state == "MASTER"
	default:
		k.lose(s.place, s.text(), "not MASTER or BACKUP: BACKUP, as keepalived")
		i.state, i.master = s, false
	}
}

func (k *keepalived) instanceVersion(i *vrrpInstance, s *statement) {
	n, ok := k.numeral(s, 1, versions, "left out")
	switch {
	case !ok:
	case i.version != 0 && i.version != n || n == 2 && i.family == 6:
		k.lose(s.place, s.text(), "not the version that the lines above require: left out, as keepalived does")
	default:
		if i.version = n; n == 2 {
			k.lose(s.place, s.text(), "imbang has version 3 only")
		}
	}
}

// ofFamily reports whether an address is of the family of the instance, which the first one
// decides.
func (i *vrrpInstance) ofFamily(family int) bool {
	if i.family == 0 {
		i.family = family
	}
	return i.family == family
}

func (k *keepalived) source(i *vrrpInstance, s *statement) {
	text, ok := k.value(s)
	if !ok {
		return
	}
	a, ok := plainAddress(text)
	switch {
	case !ok:
		k.lose(s.place, s.text(), "not an address: left out, as keepalived does")
	case !i.ofFamily(familyOf(a)):
		k.lose(s.place, s.text(), "of another family than the addresses above: left out, as keepalived does")
		i.router.source = ""
	default:
		i.router.source = a.String()
	}
}

func (k *keepalived) multicastOf(i *vrrpInstance, s *statement) {
	if a, ok := plainAddress(s.word(1)); ok && !i.ofFamily(familyOf(a)) {
		k.lose(s.place, s.text(), "of another family than the addresses above: left out, as keepalived does")
		return
	}
	k.multicastGroup(s, 0)
}

func (k *keepalived) peers(i *vrrpInstance, s *statement) {
	for _, one := range s.block {
		a, ok := plainAddress(one.words[0])
		switch {
		case !ok:
			k.lose(one.place, one.text(), "not an address: left out, as keepalived does")
			continue
		case !i.ofFamily(familyOf(a)):
			k.lose(one.place, one.text(), "of another family than the addresses above: left out, as keepalived does")
			continue
		case len(one.words) > 1:
			k.lose(one.place, one.text(), "the TTL of advertisements by unicast is not checked, but their source is")
		}
		i.router.peers = append(i.router.peers, a.String())
	}
}

// finish is what keepalived does when all is read: vrrp_complete_instance() of its vrrp/vrrp.c.
func (k *keepalived) finish(i *vrrpInstance) {
	if i.version == 0 {
		i.version = cmp.Or(k.file.version, 2)
		if i.family == 6 {
			i.version = 3
		}
	}
	k.derive(i)
	k.preemption(i)
	k.advertInterval(i)
	k.advertise(i)
}

// derive takes the priority from the initial state, or that from the priority.
func (k *keepalived) derive(i *vrrpInstance) {
	switch {
	case i.priority == 0 && i.master:
		i.priority = 255
		k.lose(i.state.place, i.state.text(), "keepalived's priority is 255 with it if none is set: so is this one")
	case i.priority == 0:
		i.priority = 100
	}
	if i.state == nil {
		i.master = i.priority == 255
	}
}

// advertInterval rounds the interval as keepalived does, and to what a message can have.
func (k *keepalived) advertInterval(i *vrrpInstance) {
	if i.advertised == nil {
		return
	}
	t, step := i.interval, shortestInterval
	if i.version == 2 {
		step = time.Second
	}
	i.interval = max((t + step/2).Truncate(step), step)
	if i.interval != t && i.version == 2 {
		k.lose(i.advertised.place, i.advertised.text(), "keepalived has whole seconds in version 2: %s", span(i.interval))
		t = i.interval
	}
	i.interval = min(i.interval, longestInterval)
	if i.interval != t {
		k.lose(i.advertised.place, i.advertised.text(), "want a multiple of 10 ms, 10 ms to 40.95 s, the same on all directors: %s", span(i.interval))
	}
}

// preemption is as keepalived has it: an initial state of MASTER, and priority 255, clear
// nopreempt, and the former also preempt_delay.
func (k *keepalived) preemption(i *vrrpInstance) {
	why := "keepalived ignores it with priority 255"
	if i.master && i.state != nil {
		why = "keepalived ignores it with state MASTER"
	}
	if i.noPreempt != nil && (i.master || i.priority == 255) {
		k.lose(i.noPreempt.place, "nopreempt", "%s: left out", why)
		i.noPreempt = nil
	}
	if i.preemptDelay == 0 {
		return
	}
	switch {
	case i.master:
		k.lose(i.delayed.place, i.delayed.text(), "%s: left out", why)
	case i.noPreempt != nil:
		k.lose(i.delayed.place, i.delayed.text(), "has no effect beside nopreempt: left out")
	default:
		return
	}
	i.preemptDelay = 0
}

// usable reports whether an instance can be a virtual router.
func (k *keepalived) usable(i *vrrpInstance) bool {
	r := &i.router
	leave := func(format string, args ...any) bool {
		k.lose(i.place, i.text(), format+": left out", args...)
		return false
	}
	switch {
	case len(i.words) != 2:
		return leave("has no name, or more than one word as its name")
	case r.device == "":
		return leave("has no interface")
	case r.id == 0:
		return leave("has no virtual_router_id")
	case len(r.addresses)+len(r.elsewhere) == 0:
		return leave("has no virtual_ipaddress")
	}
	key := strings.Join([]string{r.device, strconv.FormatInt(r.id, 10), strconv.Itoa(i.family)}, " ")
	if k.file.routers[key] {
		return leave("another instance has virtual_router_id %d on %s", r.id, r.device)
	}
	k.file.routers[key] = true
	for n, other := range k.file.instances {
		if other.name == i.name {
			return leave("the name is that of instance %d before", n+1)
		}
	}
	if i.version == 2 {
		if k.file.oldCount++; k.file.old == (place{}) {
			k.file.old = i.place
		}
	}
	if i.state != nil && i.master {
		k.lose(i.state.place, i.state.text(), "not needed: a start listens first, and the priority decides")
	}
	return true
}
