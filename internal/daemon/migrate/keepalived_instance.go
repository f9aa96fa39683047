// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"net/netip"
	"slices"
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
	strict       bool       // strict_mode, or vrrp_strict
	garp         garp
	others       []movingAddress // not advertised
	peers        map[string]*statement
	moving       []string // keys of its addresses in vrrpFile.moving
	watched
	group *syncGroup
}

// instances are the keywords of init_vrrp_keywords() in vrrp/vrrp_parser.c of keepalived.
var instances = blockKind[*vrrpInstance]{name: "vrrp_instance", nested: slices.Concat(watchedBlocks, []string{
	"virtual_ipaddress", "virtual_ipaddress_excluded", "unicast_peer", "virtual_routes", "virtual_rules", "authentication", "auth_hmac",
}), keys: map[string]keyword[*vrrpInstance]{
	"interface":   nothing[*vrrpInstance], // it is read before the others
	"native_ipv6": (*keepalived).nativeIPv6,
	"accept":      nothing[*vrrpInstance],
	"preempt":     func(_ *keepalived, i *vrrpInstance, _ *statement) { i.noPreempt = nil },
	"nopreempt":   func(_ *keepalived, i *vrrpInstance, s *statement) { i.noPreempt = s },
	"preempt_delay": func(k *keepalived, i *vrrpInstance, s *statement) {
		n, _ := k.numeral(s, 1, timer(0, 1000*time.Second), "none")
		i.preemptDelay, i.delayed = time.Duration(n)*time.Microsecond, s
	},
	"strict_mode": func(k *keepalived, i *vrrpInstance, s *statement) {
		boolean(func(i *vrrpInstance, value bool) { i.strict = value })(k, i, s)
		given(lost[*vrrpInstance](accepts))(k, i, s)
	},
	"state": (*keepalived).initialState,
	"virtual_router_id": func(k *keepalived, i *vrrpInstance, s *statement) {
		if n, ok := k.numeral(s, 1, numeral{low: 1, high: 255}, "left out"); ok {
			i.router.id = n
		}
	},
	"priority": func(k *keepalived, i *vrrpInstance, s *statement) {
		n, ok := k.numeral(s, 1, numeral{low: 1, high: 255}, "100")
		if i.priority = n; !ok {
			i.priority = 100
		}
	},
	"version": (*keepalived).instanceVersion,
	"advert_int": func(k *keepalived, i *vrrpInstance, s *statement) {
		if n, ok := k.numeral(s, 1, timer(shortestInterval, 255*time.Second), "left out, so that "+span(i.interval)+" stays"); ok {
			i.interval, i.advertised = time.Duration(n)*time.Microsecond, s
		}
	},
	"mcast_src_ip":               (*keepalived).source,
	"unicast_src_ip":             (*keepalived).source,
	"unicast_peer":               (*keepalived).peers,
	"mcast_dst_ip":               (*keepalived).multicastOf,
	"virtual_ipaddress":          (*keepalived).virtualAddresses,
	"virtual_ipaddress_excluded": (*keepalived).virtualAddresses,
	"garp_master_delay":          on(ofInstance, (*keepalived).garpDelay),
	"garp_master_repeat":         on(ofInstance, (*keepalived).garpRepeat),
	"garp_master_refresh":        on(ofInstance, (*keepalived).garpRefresh),
	"garp_master_refresh_repeat": on(ofInstance, (*keepalived).garpRefreshRepeat),
	"lvs_sync_daemon_interface": func(k *keepalived, i *vrrpInstance, s *statement) {
		if k.syncDaemon(&k.file, s); k.file.synchronizing == s {
			k.file.of = i
		}
	},
	"track_interface": on(byInstance, (*keepalived).trackInterfaces),
	"track_script":    on(byInstance, (*keepalived).trackScripts),
	"track_file":      on(byInstance, (*keepalived).notTracked),
	"track_process":   on(byInstance, (*keepalived).notTracked),
	"track_bfd":       on(byInstance, (*keepalived).notTracked),
	"notify":          on(byInstance, (*keepalived).notifyCommand),
	"notify_master":   on(byInstance, (*keepalived).notifyCommand),
	"notify_backup":   on(byInstance, (*keepalived).notifyCommand),
	"notify_fault":    on(byInstance, (*keepalived).notifyCommand),
	"notify_stop":     on(byInstance, (*keepalived).notifyCommand),

	"authentication":             lost[*vrrpInstance]("VRRP version 3 has none (RFC 9568): remove it from both directors"),
	"use_vmac":                   lost[*vrrpInstance]("not supported: addresses are on the device itself, with its hardware address, which announcements tell to other hosts"),
	"use_vmac_addr":              lost[*vrrpInstance](noVMAC),
	"vmac_xmit_base":             lost[*vrrpInstance]("not needed: advertisements are sent by the device itself"),
	"use_ipvlan":                 lost[*vrrpInstance](noVMAC),
	"vrf":                        lost[*vrrpInstance]("not supported: name the device as interface"),
	"dont_track_primary":         lost[*vrrpInstance]("not supported: a group is in fault while one of its devices is down"),
	"track_src_ip":               lost[*vrrpInstance]("not needed: a group is in fault while the address that it sends from is missing"),
	"check_unicast_src":          lost[*vrrpInstance]("not needed: by unicast, advertisements of peers alone are accepted"),
	"unicast_fault_no_peer":      lost[*vrrpInstance]("not needed"),
	"unicast_ttl":                lost[*vrrpInstance]("not supported: advertisements have a TTL of 255"),
	"old_unicast_checksum":       lost[*vrrpInstance](noChecksum),
	"down_timer_adverts":         lost[*vrrpInstance](threeMissed),
	"lower_prio_no_advert":       given(lost[*vrrpInstance](answersLower)),
	"higher_prio_send_advert":    given(lost[*vrrpInstance](yieldsHigher)),
	"skip_check_adv_addr":        lost[*vrrpInstance]("not needed: addresses in advertisements are not compared"),
	"no_accept":                  lost[*vrrpInstance](accepts),
	"promote_secondaries":        lost[*vrrpInstance]("write sysctl -w net.ipv4.conf.DEVICE.promote_secondaries=1; without it addresses are added again"),
	"garp_lower_prio_delay":      lost[*vrrpInstance](twoMasters),
	"garp_lower_prio_repeat":     lost[*vrrpInstance](twoMasters),
	"garp_extra_if":              lost[*vrrpInstance]("not needed: addresses on all devices are announced again, every announce_every"),
	"vmac_garp_intvl":            lost[*vrrpInstance]("not needed: addresses on all devices are announced again, every announce_every"),
	"notify_master_rx_lower_pri": lost[*vrrpInstance]("not supported: imbang vrrp status counts other masters"),
	"notify_deleted":             lost[*vrrpInstance]("not supported: notify_stop runs when the process ends"),
	"notify_priority_changes":    given(lost[*vrrpInstance]("not supported")),
	"kernel_rx_buf_size":         lost[*vrrpInstance](noBuffers),
	"debug":                      lost[*vrrpInstance]("not needed"),
	"linkbeat_use_polling":       lost[*vrrpInstance]("not needed: the kernel's notices of the carrier are used"),
	"virtual_routes":             lost[*vrrpInstance]("routes do not move: add them by notify_master, and remove them by notify_backup and notify_fault"),
	"virtual_rules":              lost[*vrrpInstance]("rules do not move: add them by notify_master, and remove them by notify_backup and notify_fault"),
	"smtp_alert":                 given(lost[*vrrpInstance]("no mail is sent of transitions: use notify")),

	"no_virtual_ipaddress": lost[*vrrpInstance]("not supported: a router has at least one address"),
	"v3_checksum_as_v2":    lost[*vrrpInstance](noChecksum),
	"timer_expired_backup": lost[*vrrpInstance]("not needed"),
	"thread_timer_expired": lost[*vrrpInstance]("not needed"),
	"owner_ignore_adverts": lost[*vrrpInstance]("not supported: of two directors of priority 255, the one with the lower address yields"),
	"auth_hmac":            lost[*vrrpInstance]("VRRP version 3 has none (RFC 9568): remove it from both directors"),
}}

func ofInstance(i *vrrpInstance) *garp { return &i.garp }

func byInstance(i *vrrpInstance) *watched { return &i.watched }

// The limits of intervals of advertisements (RFC 9568, 5.2.7: 12 bits of centiseconds).
const (
	shortestInterval = 10 * time.Millisecond
	longestInterval  = 4095 * shortestInterval
)

// vrrpInstance takes in an instance, which is the n-th statement of the file.
func (k *keepalived) vrrpInstance(s *statement, n int) {
	f := &k.file
	i := &vrrpInstance{statement: s, name: s.word(1), interval: time.Second, garp: f.garp, strict: f.strict, peers: map[string]*statement{}, watched: watched{order: n, told: "INSTANCE " + s.word(1)}}
	i.router = vrrpRouter{from: s.place}
	i.group = f.memberOf[i.name]
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
	instances.read(k, i, s.block)
	k.finish(i)
	if k.usable(i) {
		f.instances = append(f.instances, i)
		return
	}
	for _, key := range i.moving { // another instance can have them
		delete(f.moving, key)
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
	case !sendable(a):
		k.lose(s.place, s.text(), notSendable+", so that advertisements come from the device's own")
	default:
		i.router.source = a.String()
	}
}

const notSendable = "not an address that a director can send from: left out"

// sendable reports whether a configuration can have an address as a director's.
func sendable(a netip.Addr) bool { return !a.IsUnspecified() && !a.IsMulticast() && !a.Is4In6() }

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
		case !sendable(a):
			k.lose(one.place, one.text(), notSendable)
			continue
		case i.peers[a.String()] != nil:
			k.lose(one.place, one.text(), "a peer already: left out")
			continue
		case len(one.words) > 1:
			k.lose(one.place, one.text(), "the TTL of advertisements by unicast is not checked, but their source is")
		}
		i.router.peers = append(i.router.peers, a.String())
		i.peers[a.String()] = one
	}
}

// notItself takes the address that an instance sends from out of its peers.
func (k *keepalived) notItself(r *vrrpRouter, peers map[string]*statement) {
	if own := peers[r.source]; own != nil {
		k.lose(own.place, own.text(), "this director's own: left out")
		r.peers = slices.DeleteFunc(r.peers, func(p string) bool { return p == r.source })
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
	k.notItself(&i.router, i.peers)
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
// nopreempt, and the former also preempt_delay, as strict mode does.
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
	case i.strict:
		k.lose(i.delayed.place, i.delayed.text(), "keepalived ignores it in strict mode: left out")
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
