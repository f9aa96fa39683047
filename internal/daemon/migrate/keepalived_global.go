// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"math"
	"slices"
	"time"
)

// global reads global_defs.
func (k *keepalived) global(s *statement) {
	globalDefs.read(k, &k.file, s.block)
}

const (
	ownMail      = "mail is sent by the command daemon.mail, which has its own settings for this"
	realTime     = "not needed: imbang vrrp is real-time if that is allowed"
	noFirewall   = "not needed: imbang vrrp has no rules of a firewall"
	noBuffers    = "not needed"
	twoMasters   = "not needed: when another master is seen, addresses are announced as at a takeover"
	answersLower = "not needed: this director answers a lower priority with advertisements"
	yieldsHigher = "not needed: the other director announces its addresses when it sees this one's advertisements"
	noPauses     = "announcements are sent without pauses"
	noFIFO       = "not supported: use notify of each group, or imbang vrrp status"
	noTransition = "no mail is sent of transitions: use notify of each group"
	accepts      = "not supported: virtual addresses are accepted as destinations"
	noVMAC       = "not supported: addresses are on the device itself"
	threeMissed  = "not supported: a master is dead after three intervals and a skew (RFC 9568)"
	noSNMP       = "there is no SNMP: use imbang's metrics"
	noDBus       = "there is no D-Bus: use imbang vrrp status"
	noReload     = "not needed: imbang check reads a configuration, and a reload refuses a wrong one"
	noFlush      = "not supported: services stay in the data plane when imbang run ends"
	noChecksum   = "not supported: see the key checksum"
)

// globalDefs are the keywords of init_global_keywords() in core/global_parser.c of keepalived.
var globalDefs = blockKind[*vrrpFile]{name: "global_defs", nested: []string{"notification_email"}, keys: map[string]keyword[*vrrpFile]{
	"notification_email": func(k *keepalived, _ *vrrpFile, s *statement) {
		k.mailed = s.place
		for _, to := range s.block {
			k.mail(to.place, to.words)
		}
	},
	"notification_email_from": lost[*vrrpFile](ownMail),
	"smtp_server":             lost[*vrrpFile](ownMail),
	"smtp_connect_timeout":    lost[*vrrpFile](ownMail),
	"smtp_helo_name":          lost[*vrrpFile](ownMail),
	"smtp_alert":              given((*keepalived).globalAlert),
	"smtp_alert_checker":      given((*keepalived).globalAlert),
	"smtp_alert_vrrp":         given(lost[*vrrpFile](noTransition)),
	"no_email_faults":         lost[*vrrpFile](noTransition),
	"no_checker_emails":       given(lost[*vrrpFile]("mail is sent of servers, services and alarms, if daemon.mail_to has an address")),
	"script_user":             func(k *keepalived, _ *vrrpFile, s *statement) { k.scriptUser = k.user(s) },

	"lvs_timeouts":      (*keepalived).lvsTimeouts,
	"lvs_sync_daemon":   (*keepalived).syncDaemon,
	"lvs_flush":         lost[*vrrpFile]("not supported: services that the file does not name stay: delete them with imbang ipvsadm -D"),
	"lvs_flush_on_stop": lost[*vrrpFile](noFlush),
	"lvs_flush_onstop":  lost[*vrrpFile](noFlush),

	"vrrp_version": func(k *keepalived, v *vrrpFile, s *statement) {
		n, ok := k.numeral(s, 1, versions, "left out")
		if !ok {
			return
		}
		v.version, v.old = n, place{}
		if n == 2 {
			v.old = s.place
		}
	},
	"vrrp_strict": func(k *keepalived, v *vrrpFile, s *statement) {
		v.strict = true
		k.lose(s.place, s.text(), accepts)
	},
	"default_interface": word(func(v *vrrpFile, name string) { v.device = name }),
	"vrrp_startup_delay": func(k *keepalived, v *vrrpFile, s *statement) {
		if n, ok := k.numeral(s, 1, timer(time.Millisecond, math.MaxUint32*time.Microsecond), "left out"); ok {
			v.hold = time.Duration(n) * time.Microsecond
		}
	},
	"vrrp_garp_master_delay":          on(ofFile, (*keepalived).garpDelay),
	"vrrp_garp_master_repeat":         on(ofFile, (*keepalived).garpRepeat),
	"vrrp_garp_master_refresh":        on(ofFile, (*keepalived).garpRefresh),
	"vrrp_garp_master_refresh_repeat": on(ofFile, (*keepalived).garpRefreshRepeat),
	"vrrp_min_garp":                   given(on(ofFile, (*keepalived).minGarp)),
	"vrrp_mcast_group4":               func(k *keepalived, _ *vrrpFile, s *statement) { k.multicastGroup(s, 4) },
	"vrrp_mcast_group6":               func(k *keepalived, _ *vrrpFile, s *statement) { k.multicastGroup(s, 6) },

	"vrrp_garp_interval":                  lost[*vrrpFile](noPauses),
	"vrrp_gna_interval":                   lost[*vrrpFile](noPauses),
	"vrrp_garp_lower_prio_delay":          lost[*vrrpFile](twoMasters),
	"vrrp_garp_lower_prio_repeat":         lost[*vrrpFile](twoMasters),
	"vrrp_garp_extra_if":                  lost[*vrrpFile]("not needed: addresses on all devices are announced again, every announce_every"),
	"vrrp_vmac_garp_intvl":                lost[*vrrpFile]("not needed: addresses on all devices are announced again, every announce_every"),
	"vrrp_lower_prio_no_advert":           given(lost[*vrrpFile](answersLower)),
	"vrrp_higher_prio_send_advert":        given(lost[*vrrpFile](yieldsHigher)),
	"vrrp_down_timer_adverts":             lost[*vrrpFile](threeMissed),
	"vrrp_check_unicast_src":              lost[*vrrpFile]("not needed: by unicast, advertisements of peers alone are accepted"),
	"vrrp_skip_check_adv_addr":            lost[*vrrpFile]("not needed: addresses in advertisements are not compared"),
	"vrrp_priority":                       lost[*vrrpFile](realTime),
	"vrrp_rt_priority":                    lost[*vrrpFile](realTime),
	"vrrp_rlimit_rttime":                  lost[*vrrpFile](realTime),
	"vrrp_rlimit_rtime":                   lost[*vrrpFile](realTime),
	"vrrp_cpu_affinity":                   lost[*vrrpFile]("not needed"),
	"vrrp_no_swap":                        lost[*vrrpFile]("not needed: the memory of imbang vrrp is locked if that is allowed"),
	"vrrp_notify_fifo":                    lost[*vrrpFile](noFIFO),
	"vrrp_notify_fifo_script":             lost[*vrrpFile](noFIFO),
	"notify_fifo":                         lost[*vrrpFile](noFIFO),
	"notify_fifo_script":                  lost[*vrrpFile](noFIFO),
	"lvs_notify_fifo":                     lost[*vrrpFile]("not supported: use notify_up, notify_down, quorum_up and quorum_down"),
	"lvs_notify_fifo_script":              lost[*vrrpFile]("not supported: use notify_up, notify_down, quorum_up and quorum_down"),
	"vrrp_notify_priority_changes":        given(lost[*vrrpFile](noFIFO)),
	"fifo_write_vrrp_states_on_reload":    lost[*vrrpFile](noFIFO),
	"vrrp_netlink_cmd_rcv_bufs":           lost[*vrrpFile](noBuffers),
	"vrrp_netlink_cmd_rcv_bufs_force":     given(lost[*vrrpFile](noBuffers)),
	"vrrp_netlink_monitor_rcv_bufs":       lost[*vrrpFile](noBuffers),
	"vrrp_netlink_monitor_rcv_bufs_force": given(lost[*vrrpFile](noBuffers)),
	"process_monitor_rcv_bufs":            lost[*vrrpFile](noBuffers),
	"process_monitor_rcv_bufs_force":      given(lost[*vrrpFile](noBuffers)),
	"lvs_netlink_cmd_rcv_bufs":            lost[*vrrpFile](noBuffers),
	"lvs_netlink_cmd_rcv_bufs_force":      given(lost[*vrrpFile](noBuffers)),
	"lvs_netlink_monitor_rcv_bufs":        lost[*vrrpFile](noBuffers),
	"lvs_netlink_monitor_rcv_bufs_force":  given(lost[*vrrpFile](noBuffers)),
	"vrrp_rx_bufs_policy":                 lost[*vrrpFile](noBuffers),
	"vrrp_rx_bufs_multiplier":             lost[*vrrpFile](noBuffers),
	"log_unknown_vrids":                   lost[*vrrpFile]("not needed: imbang vrrp status counts strangers"),
	"dynamic_interfaces":                  lost[*vrrpFile]("not needed: a group waits for its devices"),
	"disable_local_igmp":                  lost[*vrrpFile]("not needed"),
	"vmac_prefix":                         lost[*vrrpFile](noVMAC),
	"vmac_addr_prefix":                    lost[*vrrpFile](noVMAC),
	"vrrp_ipsets":                         lost[*vrrpFile](noFirewall),
	"vrrp_iptables":                       lost[*vrrpFile](noFirewall),
	"nftables":                            lost[*vrrpFile](noFirewall),
	"nftables_priority":                   lost[*vrrpFile](noFirewall),
	"nftables_counters":                   lost[*vrrpFile](noFirewall),
	"nftables_ifindex":                    lost[*vrrpFile](noFirewall),
	"nftables_ipvs":                       lost[*vrrpFile]("not needed: imbang's data plane matches without a firewall"),
	"nftables_ipvs_priority":              lost[*vrrpFile]("not needed: imbang's data plane matches without a firewall"),
	"nftables_ipvs_start_fwmark":          lost[*vrrpFile]("not needed: imbang's data plane matches without a firewall"),

	"router_id":                lost[*vrrpFile]("not needed"),
	"enable_script_security":   lost[*vrrpFile]("not needed"),
	"process_names":            lost[*vrrpFile]("not needed"),
	"process_name":             lost[*vrrpFile]("not needed"),
	"vrrp_process_name":        lost[*vrrpFile]("not needed"),
	"checker_process_name":     lost[*vrrpFile]("not needed"),
	"lvs_process_name":         lost[*vrrpFile]("not needed"),
	"bfd_process_name":         lost[*vrrpFile]("not needed"),
	"checker_priority":         lost[*vrrpFile]("not needed"),
	"checker_no_swap":          lost[*vrrpFile]("not needed"),
	"checker_rt_priority":      lost[*vrrpFile]("not needed"),
	"checker_cpu_affinity":     lost[*vrrpFile]("not needed"),
	"checker_rlimit_rttime":    lost[*vrrpFile]("not needed"),
	"checker_rlimit_rtime":     lost[*vrrpFile]("not needed"),
	"bfd_priority":             lost[*vrrpFile]("not needed"),
	"bfd_no_swap":              lost[*vrrpFile]("not needed"),
	"bfd_rt_priority":          lost[*vrrpFile]("not needed"),
	"bfd_cpu_affinity":         lost[*vrrpFile]("not needed"),
	"bfd_rlimit_rttime":        lost[*vrrpFile]("not needed"),
	"bfd_rlimit_rtime":         lost[*vrrpFile]("not needed"),
	"max_auto_priority":        lost[*vrrpFile]("not needed"),
	"min_auto_priority_delay":  lost[*vrrpFile]("not needed"),
	"random_seed":              lost[*vrrpFile]("not needed"),
	"umask":                    lost[*vrrpFile]("not needed"),
	"data_use_instance":        given(lost[*vrrpFile]("not needed")),
	"tmp_config_directory":     lost[*vrrpFile]("not needed"),
	"config_save_dir":          lost[*vrrpFile]("not needed"),
	"include_check":            lost[*vrrpFile]("not needed: a file that cannot be included is listed"),
	"reload_check_config":      lost[*vrrpFile](noReload),
	"reload_time_file":         lost[*vrrpFile](noReload),
	"reload_repeat":            lost[*vrrpFile](noReload),
	"reload_file":              lost[*vrrpFile](noReload),
	"checker_log_all_failures": given(lost[*vrrpFile]("not needed: imbang status has the last result of each check")),
	"rs_init_notifies":         given(lost[*vrrpFile]("not supported: notify_up and notify_down run at changes")),
	"startup_script":           lost[*vrrpFile]("not supported: use ExecStartPre of the systemd unit"),
	"startup_script_timeout":   lost[*vrrpFile]("not supported: use ExecStartPre of the systemd unit"),
	"shutdown_script":          lost[*vrrpFile]("not supported: use ExecStopPost of the systemd unit"),
	"shutdown_script_timeout":  lost[*vrrpFile]("not supported: use ExecStopPost of the systemd unit"),
	"snmp_socket":              lost[*vrrpFile](noSNMP),
	"enable_traps":             lost[*vrrpFile](noSNMP),
	"enable_snmp_vrrp":         lost[*vrrpFile](noSNMP),
	"enable_snmp_keepalived":   lost[*vrrpFile](noSNMP),
	"enable_snmp_rfc":          lost[*vrrpFile](noSNMP),
	"enable_snmp_rfcv2":        lost[*vrrpFile](noSNMP),
	"enable_snmp_rfcv3":        lost[*vrrpFile](noSNMP),
	"enable_snmp_checker":      lost[*vrrpFile](noSNMP),
	"enable_dbus":              lost[*vrrpFile](noDBus),
	"dbus_service_name":        lost[*vrrpFile](noDBus),

	"use_symlink_paths":             lost[*vrrpFile]("not needed"),
	"set_supplementary_groups":      lost[*vrrpFile]("not needed: scripts run with all groups of their user"),
	"v3_checksum_as_v2":             lost[*vrrpFile](noChecksum),
	"snmp_vs_stats_update_interval": lost[*vrrpFile](noSNMP),
	"snmp_rs_stats_update_interval": lost[*vrrpFile](noSNMP),
	"dbus_no_interface_name":        lost[*vrrpFile](noDBus),
	"vrrp_delay_after_boot":         lost[*vrrpFile]("not supported: see the key hold"),
	"vrrp_owner_ignore_adverts":     lost[*vrrpFile]("not supported: of two directors of priority 255, the one with the lower address yields"),
	"json_version":                  lost[*vrrpFile]("not needed"),
	"iproute_usr_dir":               lost[*vrrpFile]("not needed"),
	"iproute_etc_dir":               lost[*vrrpFile]("not needed"),
	"state_dump_file":               lost[*vrrpFile]("not needed"),
	"stats_dump_file":               lost[*vrrpFile]("not needed"),
	"json_dump_file":                lost[*vrrpFile]("not needed"),
}}

// versions of VRRP.
var versions = numeral{low: 2, high: 3, lenient: true}

func ofFile(v *vrrpFile) *garp { return &v.garp }

// multicastGroup lists a group of a family that is not the standard's; 0 is any family.
func (k *keepalived) multicastGroup(s *statement, family int) {
	text, ok := k.value(s)
	if !ok {
		return
	}
	a, ok := plainAddress(text)
	switch {
	case !ok || !a.IsMulticast() || family != 0 && familyOf(a) != family:
		k.lose(s.place, s.text(), "not a multicast address of its family: left out, as keepalived does")
	case !slices.Contains([]string{"224.0.0.18", "ff02::12"}, a.String()):
		k.lose(s.place, s.text(), "not supported: advertisements go to 224.0.0.18 and ff02::12, or to peers by unicast")
	}
}

// lvsTimeout is the form of a timeout of IPVS [s]: 0 leaves the kernel's.
var lvsTimeout = numeral{high: 31 * 24 * 3600}

func (k *keepalived) lvsTimeouts(_ *vrrpFile, s *statement) {
	if len(s.words) < 3 {
		k.lose(s.place, s.text(), "want pairs of a name and a number of seconds: left out, as keepalived does")
		return
	}
	for i := 1; i < len(s.words); i++ {
		key := map[string]string{"tcp": "tcp", "tcpfin": "tcp_fin", "udp": "udp"}[s.words[i]]
		switch {
		case key == "":
			k.lose(s.place, s.text(), "%s is not tcp, tcpfin or udp: left out, as keepalived does", s.words[i])
			continue
		case i+1 == len(s.words):
			k.lose(s.place, s.text(), "%s has no number of seconds: want pairs; left out, as keepalived does", s.words[i])
			continue
		}
		i++
		if n, ok := k.numeral(s, i, lvsTimeout, s.words[i-1]+" is left out"); ok && n > 0 {
			k.timeouts = append(k.timeouts, key+": "+span(time.Duration(n)*time.Second))
		}
	}
}

func (k *keepalived) globalAlert(_ *vrrpFile, s *statement) { k.smtpAlert(s) }

func (k *keepalived) smtpAlert(s *statement) {
	k.alerts = true
	k.lose(s.place, s.text(), "mail is sent of all servers and services, if daemon.mail_to has an address")
}

// user is the user of scripts: USER [GROUP].
func (k *keepalived) user(s *statement) string {
	switch {
	case s.word(1) == "":
		k.lose(s.place, s.text(), "has no user: left out")
	case k.hasUser != nil && !k.hasUser(s.word(1)):
		k.lose(s.place, s.text(), "there is no user %s on this machine: create it, or write another; here a script without its user changes no state, and keepalived leaves it out", s.word(1))
	case s.word(2) != "" && s.word(2) != s.word(1):
		k.lose(s.place, s.text(), "scripts run with the groups that %s has, not with group %s alone", s.word(1), s.word(2))
	}
	return s.word(1)
}
