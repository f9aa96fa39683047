// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// vrrpFile is what a keepalived.conf has of VRRP, while it is read.
type vrrpFile struct {
	version       int64  // vrrp_version
	device        string // default_interface
	garp          garp
	hold          time.Duration // vrrp_startup_delay
	synchronizing *statement    // lvs_sync_daemon, or lvs_sync_daemon_interface of an instance
	of            *vrrpInstance // that has the latter

	scripts   []*vrrpCheck
	instances []*vrrpInstance
	groups    []*syncGroup
	routers   map[string]bool // by device, identifier and family
	moving    map[string]bool // addresses

	old         place // of the first instance of version 2, or of the statement that says so
	oldCount    int
	firstScript place // without a user of its own
	firstNotify place // likewise
}

// script is the script of a name; nil: there is none.
func (f *vrrpFile) script(name string) *vrrpCheck {
	for _, s := range f.scripts {
		if s.word(1) == name {
			return s
		}
	}
	return nil
}

// The names of VRRP's blocks.
var vrrpBlocks = []string{"vrrp_instance", "vrrp_sync_group", "vrrp_script"}

// elsewhere are blocks for which there is nothing here, with what to do.
var elsewhere = map[string]string{
	"static_ipaddress":         "not of failover: configure it with the host's network",
	"static_routes":            "not of failover: configure them with the host's network",
	"static_rules":             "not of failover: configure them with the host's network",
	"track_file":               "files are not tracked: track a script that reads it",
	"vrrp_track_file":          "files are not tracked: track a script that reads it",
	"vrrp_track_process":       "processes are not tracked: track a script such as [/usr/bin/pgrep, -x, NAME]",
	"bfd_instance":             "BFD is not supported: a shorter interval finds a dead director as fast",
	"garp_group":               "announcements are sent without pauses",
	"linkbeat_interfaces":      "not needed: the kernel's notices of the carrier are used",
	"interface_up_down_delays": "not supported: a group is in fault as soon as its device is",
	"track_group":              "for static addresses only",
}

// vrrp makes groups of addresses of instances and sync groups.
func (k *keepalived) vrrp(top []*statement) {
	for _, s := range top {
		switch {
		case s.is("vrrp_script"):
			k.vrrpScript(s)
		case s.is("vrrp_sync_group"):
			k.syncGroup(s)
		}
	}
	for _, s := range top {
		if s.is("vrrp_instance") {
			k.vrrpInstance(s)
		}
	}
	k.vrrpGroups()
	k.synchronize()
	v := &k.file
	if v.oldCount > 0 {
		k.lose(v.old, "VRRP version 2", "keepalived's default, here of %d instances; imbang has version 3 only, which version 2 ignores: while keepalived is the other director, it needs vrrp_version 3 in global_defs", v.oldCount)
	}
	if v.firstScript != (place{}) && k.scriptUser == "" {
		k.lose(v.firstScript, "vrrp_script", "scripts run as nobody; keepalived runs them as keepalived_script if there is such a user, or else as root: write daemon.script_user")
	}
	if v.firstNotify != (place{}) {
		k.lose(v.firstNotify, "notify scripts of VRRP", "run as root; keepalived runs them as script_user, or else as keepalived_script if there is such a user: use a command such as setpriv")
	}
	for _, s := range v.scripts {
		if !s.named {
			k.lose(s.place, s.text(), "not tracked by a group: left out, as it does not run in keepalived either")
		}
	}
}

// notNeeded are global keywords of VRRP that change nothing here, with why.
var notNeeded = map[string]string{
	"vrrp_skip_check_adv_addr":    "not needed: addresses in advertisements are not compared",
	"vrrp_priority":               "not needed: imbang vrrp is real-time if that is allowed",
	"vrrp_rt_priority":            "not needed: imbang vrrp is real-time if that is allowed",
	"vrrp_no_swap":                "not needed: the memory of imbang vrrp is locked if that is allowed",
	"vrrp_rlimit_rttime":          "not needed",
	"vrrp_rlimit_rtime":           "not needed",
	"vrrp_process_name":           "not needed",
	"vrrp_lower_prio_no_advert":   "not needed: this director answers a lower priority with advertisements",
	"dynamic_interfaces":          "not needed: a group waits for its devices",
	"allow_if_changes":            "not needed: a group waits for its devices",
	"vrrp_ipsets":                 "not needed: imbang vrrp has no rules of a firewall",
	"vrrp_iptables":               "not needed: imbang vrrp has no rules of a firewall",
	"nftables":                    "not needed: imbang vrrp has no rules of a firewall",
	"nftables_priority":           "not needed: imbang vrrp has no rules of a firewall",
	"nftables_counters":           "not needed: imbang vrrp has no rules of a firewall",
	"nftables_ifindex":            "not needed: imbang vrrp has no rules of a firewall",
	"vrrp_garp_extra_if":          "not needed: addresses on all devices are announced again, every announce_every",
	"vrrp_garp_lower_prio_delay":  "not needed: when another master is seen, addresses are announced as at a takeover",
	"vrrp_garp_lower_prio_repeat": "not needed: when another master is seen, addresses are announced as at a takeover",
}

// vrrpGlobal takes in a line of global_defs, and reports whether it is of VRRP.
func (k *keepalived) vrrpGlobal(s *statement) bool {
	v := &k.file
	switch name := s.words[0]; name {
	case "vrrp_version":
		v.version = k.version(s)
		if v.version == 2 {
			v.old = s.place
		}
	case "default_interface":
		v.device = s.word(1)
	case "lvs_sync_daemon":
		v.synchronizing = s
	case "vrrp_startup_delay":
		if t, ok := k.time(s); ok {
			v.hold = t
		}
	case "vrrp_garp_master_delay", "vrrp_garp_master_repeat", "vrrp_garp_master_refresh", "vrrp_garp_master_refresh_repeat", "vrrp_min_garp":
		k.garp(&v.garp, strings.TrimPrefix(name, "vrrp_"), s)
	case "vrrp_mcast_group4", "vrrp_mcast_group6":
		k.multicastGroup(s)
	case "vrrp_strict":
		if truth(s) {
			k.lose(s.place, s.text(), "not supported: virtual addresses are accepted as destinations")
		}
	case "vrrp_garp_interval", "vrrp_gna_interval":
		k.lose(s.place, s.text(), "announcements are sent without pauses")
	case "vrrp_notify_fifo", "vrrp_notify_fifo_script", "notify_fifo", "notify_fifo_script", "vrrp_notify_priority_changes":
		k.lose(s.place, s.text(), "not supported: use notify of each group, or imbang vrrp status")
	case "smtp_alert_vrrp", "no_email_faults":
		k.lose(s.place, s.text(), "no mail is sent of transitions: use notify of each group")
	default:
		why, known := notNeeded[name]
		if !known && strings.HasPrefix(name, "vrrp_") {
			why, known = "not supported", true
			if strings.HasPrefix(name, "vrrp_netlink_") || strings.HasPrefix(name, "vrrp_rx_bufs_") || name == "vrrp_cpu_affinity" {
				why = "not needed"
			}
		}
		if known {
			k.lose(s.place, s.text(), "%s", why)
		}
		return known
	}
	return true
}

func (k *keepalived) version(s *statement) int64 {
	n, ok := k.number(s, 2, 3)
	if !ok {
		return 2
	}
	return n
}

func (k *keepalived) multicastGroup(s *statement) {
	if !slices.Contains([]string{"224.0.0.18", "ff02::12"}, strings.ToLower(s.word(1))) {
		k.lose(s.place, s.text(), "not supported: advertisements go to 224.0.0.18 and ff02::12, or to peers by unicast")
	}
}

// time is the time of a statement in seconds.
func (k *keepalived) time(s *statement) (time.Duration, bool) {
	n, err := strconv.ParseFloat(s.word(1), 64)
	if err != nil || !(n >= 0 && n <= 1e6) { // NaN is neither
		k.lose(s.place, s.text(), "not a time in seconds: left out")
		return 0, false
	}
	return seconds(n), true
}

// garp is how addresses are announced. What is not set is keepalived's default.
type garp struct {
	repeat  int64         // 0: not set
	again   time.Duration // 0: not set
	refresh time.Duration // 0: none
}

// garp takes in a keyword without the vrrp_ that global ones have.
func (k *keepalived) garp(g *garp, name string, s *statement) {
	switch name {
	case "garp_master_repeat":
		if n, ok := k.number(s, 1, 100); ok {
			g.repeat = n
		}
	case "garp_master_delay":
		t, ok := k.time(s)
		switch {
		case !ok:
		case t == 0:
			k.lose(s.place, s.text(), "announcements are always repeated once: after 5 s")
		default:
			g.again = t
		}
	case "garp_master_refresh":
		t, ok := k.time(s)
		switch {
		case !ok:
		case t < time.Second:
			k.lose(s.place, s.text(), "addresses are announced again every minute: want 1 s or more for another interval")
		default:
			g.refresh = t
		}
	case "garp_master_refresh_repeat":
		if s.word(1) != "1" {
			k.lose(s.place, s.text(), "one announcement for each address is sent every announce_every")
		}
	case "vrrp_min_garp", "min_garp":
		if truth(s) {
			g.repeat = 1
			k.lose(s.place, s.text(), "one announcement; it is repeated once, after 5 s")
		}
	}
}

func (g garp) keys() (keys []string) {
	if g.repeat != 0 && g.repeat != 5 {
		keys = append(keys, fmt.Sprintf("announcements: %d", g.repeat))
	}
	if g.again != 0 && g.again != 5*time.Second {
		keys = append(keys, "announce_again: "+span(g.again))
	}
	if g.refresh != 0 && g.refresh != time.Minute {
		keys = append(keys, "announce_every: "+span(g.refresh))
	}
	return keys
}

func (g garp) text() string {
	if keys := g.keys(); keys != nil {
		return strings.Join(keys, ", ")
	}
	return "the defaults"
}
