// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"math"
	"slices"
	"time"
)

// global reads global_defs.
func (k *keepalived) global(s *statement) {
	readBlock(k, "global_defs", globalKeywords, &k.file, s.block)
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

// globalKeywords are those of global_defs: init_global_keywords() of core/global_parser.c in
// keepalived.
var globalKeywords = map[string]keyword[*vrrpFile]{
	"notification_email": {block: true, take: func(k *keepalived, _ *vrrpFile, s *statement) {
		k.mailed = s.place
		for _, to := range s.block {
			k.mail(to.place, to.words)
		}
	}},
	"notification_email_from": {why: ownMail},
	"smtp_server":             {why: ownMail},
	"smtp_connect_timeout":    {why: ownMail},
	"smtp_helo_name":          {why: ownMail},
	"smtp_alert":              {flag: true, take: (*keepalived).globalAlert},
	"smtp_alert_checker":      {flag: true, take: (*keepalived).globalAlert},
	"smtp_alert_vrrp":         {flag: true, why: noTransition},
	"no_email_faults":         {why: noTransition},
	"no_checker_emails":       {flag: true, why: "mail is sent of servers, services and alarms, if daemon.mail_to has an address"},
	"script_user":             {take: func(k *keepalived, _ *vrrpFile, s *statement) { k.scriptUser = k.user(s) }},

	"lvs_timeouts":      {take: (*keepalived).lvsTimeouts},
	"lvs_sync_daemon":   {take: (*keepalived).syncDaemon},
	"lvs_flush":         {why: "not needed: imbang run removes services that the file does not have"},
	"lvs_flush_on_stop": {why: noFlush},
	"lvs_flush_onstop":  {why: noFlush},

	"vrrp_version": {take: func(k *keepalived, v *vrrpFile, s *statement) {
		n, ok := k.numeral(s, 1, versions, "left out")
		if !ok {
			return
		}
		v.version, v.old = n, place{}
		if n == 2 {
			v.old = s.place
		}
	}},
	"default_interface": {take: func(_ *keepalived, v *vrrpFile, s *statement) { v.device = s.word(1) }},
	"vrrp_startup_delay": {take: func(k *keepalived, v *vrrpFile, s *statement) {
		if n, ok := k.numeral(s, 1, timer(time.Millisecond, math.MaxUint32*time.Microsecond), "left out"); ok {
			v.hold = time.Duration(n) * time.Microsecond
		}
	}},
	"vrrp_garp_master_delay":          globalGarp("garp_master_delay"),
	"vrrp_garp_master_repeat":         globalGarp("garp_master_repeat"),
	"vrrp_garp_master_refresh":        globalGarp("garp_master_refresh"),
	"vrrp_garp_master_refresh_repeat": globalGarp("garp_master_refresh_repeat"),
	"vrrp_min_garp":                   {flag: true, take: func(k *keepalived, v *vrrpFile, s *statement) { k.minGarp(&v.garp, s) }},
	"vrrp_mcast_group4":               {take: func(k *keepalived, _ *vrrpFile, s *statement) { k.multicastGroup(s, 4) }},
	"vrrp_mcast_group6":               {take: func(k *keepalived, _ *vrrpFile, s *statement) { k.multicastGroup(s, 6) }},

	"vrrp_strict":                         {why: accepts},
	"vrrp_garp_interval":                  {why: noPauses},
	"vrrp_gna_interval":                   {why: noPauses},
	"vrrp_garp_lower_prio_delay":          {why: twoMasters},
	"vrrp_garp_lower_prio_repeat":         {why: twoMasters},
	"vrrp_garp_extra_if":                  {why: "not needed: addresses on all devices are announced again, every announce_every"},
	"vrrp_vmac_garp_intvl":                {why: "not needed: addresses on all devices are announced again, every announce_every"},
	"vrrp_lower_prio_no_advert":           {flag: true, why: answersLower},
	"vrrp_higher_prio_send_advert":        {flag: true, why: yieldsHigher},
	"vrrp_down_timer_adverts":             {why: threeMissed},
	"vrrp_check_unicast_src":              {why: "not needed: by unicast, advertisements of peers alone are accepted"},
	"vrrp_skip_check_adv_addr":            {why: "not needed: addresses in advertisements are not compared"},
	"vrrp_priority":                       {why: realTime},
	"vrrp_rt_priority":                    {why: realTime},
	"vrrp_rlimit_rttime":                  {why: realTime},
	"vrrp_rlimit_rtime":                   {why: realTime},
	"vrrp_cpu_affinity":                   {why: "not needed"},
	"vrrp_no_swap":                        {why: "not needed: the memory of imbang vrrp is locked if that is allowed"},
	"vrrp_notify_fifo":                    {why: noFIFO},
	"vrrp_notify_fifo_script":             {why: noFIFO},
	"notify_fifo":                         {why: noFIFO},
	"notify_fifo_script":                  {why: noFIFO},
	"lvs_notify_fifo":                     {why: "not supported: use notify_up, notify_down, quorum_up and quorum_down"},
	"lvs_notify_fifo_script":              {why: "not supported: use notify_up, notify_down, quorum_up and quorum_down"},
	"vrrp_notify_priority_changes":        {flag: true, why: noFIFO},
	"fifo_write_vrrp_states_on_reload":    {why: noFIFO},
	"vrrp_netlink_cmd_rcv_bufs":           {why: noBuffers},
	"vrrp_netlink_cmd_rcv_bufs_force":     {flag: true, why: noBuffers},
	"vrrp_netlink_monitor_rcv_bufs":       {why: noBuffers},
	"vrrp_netlink_monitor_rcv_bufs_force": {flag: true, why: noBuffers},
	"process_monitor_rcv_bufs":            {why: noBuffers},
	"process_monitor_rcv_bufs_force":      {flag: true, why: noBuffers},
	"lvs_netlink_cmd_rcv_bufs":            {why: noBuffers},
	"lvs_netlink_cmd_rcv_bufs_force":      {flag: true, why: noBuffers},
	"lvs_netlink_monitor_rcv_bufs":        {why: noBuffers},
	"lvs_netlink_monitor_rcv_bufs_force":  {flag: true, why: noBuffers},
	"vrrp_rx_bufs_policy":                 {why: noBuffers},
	"vrrp_rx_bufs_multiplier":             {why: noBuffers},
	"log_unknown_vrids":                   {why: "not needed: imbang vrrp status counts strangers"},
	"dynamic_interfaces":                  {why: "not needed: a group waits for its devices"},
	"disable_local_igmp":                  {why: "not needed"},
	"vmac_prefix":                         {why: noVMAC},
	"vmac_addr_prefix":                    {why: noVMAC},
	"vrrp_ipsets":                         {why: noFirewall},
	"vrrp_iptables":                       {why: noFirewall},
	"nftables":                            {why: noFirewall},
	"nftables_priority":                   {why: noFirewall},
	"nftables_counters":                   {why: noFirewall},
	"nftables_ifindex":                    {why: noFirewall},
	"nftables_ipvs":                       {why: "not needed: imbang's data plane matches without a firewall"},
	"nftables_ipvs_priority":              {why: "not needed: imbang's data plane matches without a firewall"},
	"nftables_ipvs_start_fwmark":          {why: "not needed: imbang's data plane matches without a firewall"},

	"router_id":                {why: "not needed"},
	"enable_script_security":   {why: "not needed"},
	"process_names":            {why: "not needed"},
	"process_name":             {why: "not needed"},
	"vrrp_process_name":        {why: "not needed"},
	"checker_process_name":     {why: "not needed"},
	"lvs_process_name":         {why: "not needed"},
	"bfd_process_name":         {why: "not needed"},
	"checker_priority":         {why: "not needed"},
	"checker_no_swap":          {why: "not needed"},
	"checker_rt_priority":      {why: "not needed"},
	"checker_cpu_affinity":     {why: "not needed"},
	"checker_rlimit_rttime":    {why: "not needed"},
	"checker_rlimit_rtime":     {why: "not needed"},
	"bfd_priority":             {why: "not needed"},
	"bfd_no_swap":              {why: "not needed"},
	"bfd_rt_priority":          {why: "not needed"},
	"bfd_cpu_affinity":         {why: "not needed"},
	"bfd_rlimit_rttime":        {why: "not needed"},
	"bfd_rlimit_rtime":         {why: "not needed"},
	"max_auto_priority":        {why: "not needed"},
	"min_auto_priority_delay":  {why: "not needed"},
	"random_seed":              {why: "not needed"},
	"umask":                    {why: "not needed"},
	"data_use_instance":        {flag: true, why: "not needed"},
	"tmp_config_directory":     {why: "not needed"},
	"config_save_dir":          {why: "not needed"},
	"include_check":            {why: "not needed: a file that cannot be included is listed"},
	"reload_check_config":      {why: noReload},
	"reload_time_file":         {why: noReload},
	"reload_repeat":            {why: noReload},
	"reload_file":              {why: noReload},
	"checker_log_all_failures": {flag: true, why: "not needed: imbang status has the last result of each check"},
	"rs_init_notifies":         {flag: true, why: "not supported: notify_up and notify_down run at changes"},
	"startup_script":           {why: "not supported: use ExecStartPre of the systemd unit"},
	"startup_script_timeout":   {why: "not supported: use ExecStartPre of the systemd unit"},
	"shutdown_script":          {why: "not supported: use ExecStopPost of the systemd unit"},
	"shutdown_script_timeout":  {why: "not supported: use ExecStopPost of the systemd unit"},
	"snmp_socket":              {why: noSNMP},
	"enable_traps":             {why: noSNMP},
	"enable_snmp_vrrp":         {why: noSNMP},
	"enable_snmp_keepalived":   {why: noSNMP},
	"enable_snmp_rfc":          {why: noSNMP},
	"enable_snmp_rfcv2":        {why: noSNMP},
	"enable_snmp_rfcv3":        {why: noSNMP},
	"enable_snmp_checker":      {why: noSNMP},
	"enable_dbus":              {why: noDBus},
	"dbus_service_name":        {why: noDBus},

	"use_symlink_paths":             {newer: true, why: "not needed"},
	"set_supplementary_groups":      {newer: true, why: "not needed: scripts run with all groups of their user"},
	"v3_checksum_as_v2":             {newer: true, why: noChecksum},
	"snmp_vs_stats_update_interval": {newer: true, why: noSNMP},
	"snmp_rs_stats_update_interval": {newer: true, why: noSNMP},
	"dbus_no_interface_name":        {newer: true, why: noDBus},
	"vrrp_delay_after_boot":         {newer: true, why: "not supported: see the key hold"},
	"vrrp_owner_ignore_adverts":     {newer: true, why: "not supported: of two directors of priority 255, the one with the lower address yields"},
	"json_version":                  {newer: true, why: "not needed"},
	"iproute_usr_dir":               {newer: true, why: "not needed"},
	"iproute_etc_dir":               {newer: true, why: "not needed"},
	"state_dump_file":               {newer: true, why: "not needed"},
	"stats_dump_file":               {newer: true, why: "not needed"},
	"json_dump_file":                {newer: true, why: "not needed"},
}

// versions of VRRP.
var versions = numeral{low: 2, high: 3, lenient: true}

func globalGarp(name string) keyword[*vrrpFile] {
	return keyword[*vrrpFile]{take: func(k *keepalived, v *vrrpFile, s *statement) { garpKeys[name](k, &v.garp, s) }}
}

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
		n, ok := k.numeral(s, i, lvsTimeout, s.words[i-1]+" is left out")
		if ok && n == 0 {
			k.lose(s.place, s.text(), "0 for %s: the default stays, as with keepalived", s.words[i-1])
		} else if ok {
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
	case s.word(2) != "" && s.word(2) != s.word(1):
		k.lose(s.place, s.text(), "scripts run with the groups that %s has, not with group %s alone", s.word(1), s.word(2))
	}
	return s.word(1)
}
