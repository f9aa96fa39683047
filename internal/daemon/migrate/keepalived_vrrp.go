// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"time"
)

// vrrpFile is what a keepalived.conf has of VRRP, while it is read.
type vrrpFile struct {
	version       int64  // vrrp_version
	device        string // default_interface
	strict        bool   // vrrp_strict
	garp          garp
	hold          time.Duration // vrrp_startup_delay
	synchronizing *statement    // lvs_sync_daemon, or lvs_sync_daemon_interface of an instance
	of            *vrrpInstance // that has the latter

	scripts   []*vrrpCheck
	instances []*vrrpInstance
	groups    []*syncGroup
	named     map[string]*vrrpCheck // scripts
	memberOf  map[string]*syncGroup // by instance
	routers   map[string]bool       // by device, identifier and family
	moving    map[string]place      // addresses, to the first line that has each

	old         place // of the first instance of version 2, or of the statement that says so
	oldCount    int
	firstScript place // without a user of its own
	firstNotify place // likewise
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
	"net_namespace":            "run imbang there: NetworkNamespacePath= of its systemd units",
	"net_namespace_ipvs":       "not supported: the data plane is in the network namespace of imbang run",
	"namespace_with_ipsets":    "not needed",
	"linkbeat_use_polling":     "not needed: the kernel's notices of the carrier are used",
	"instance":                 "not needed",
	"use_pid_dir":              "not needed",
	"child_wait_time":          "not needed",
}

// vrrp makes groups of addresses of instances and sync groups.
func (k *keepalived) vrrp(top []*statement) {
	for _, one := range []struct {
		name string
		take func(s *statement, n int)
	}{{"vrrp_script", k.vrrpScript}, {"vrrp_sync_group", k.syncGroup}, {"vrrp_instance", k.vrrpInstance}} {
		for n, s := range top {
			if s.is(one.name) {
				one.take(s, n)
			}
		}
	}
	k.vrrpGroups()
	k.synchronize(top)
	v := &k.file
	if v.oldCount > 0 {
		k.lose(v.old, "VRRP version 2", "keepalived's default, and the version of %s here; imbang has version 3 only, which version 2 ignores: while keepalived is the other director, it needs vrrp_version 3 in global_defs", counted(v.oldCount, "instance"))
	}
	if v.firstScript != (place{}) && k.scriptUser == "" {
		k.lose(v.firstScript, "vrrp_script", "scripts run as nobody; keepalived runs them as keepalived_script if there is such a user, or else as root: write daemon.script_user")
	}
	if v.firstNotify != (place{}) {
		k.lose(v.firstNotify, "notify scripts of VRRP", "run as root; keepalived runs them as script_user, or else as keepalived_script if there is such a user: use a command such as setpriv")
	}
	for _, s := range v.scripts {
		if !s.named && s.body != nil {
			k.lose(s.place, s.text(), "not tracked by a group: left out, as it does not run in keepalived either")
		}
	}
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
