// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"imbang/internal/daemon/vrrp/setup"
)

// globalWords are what numbers of global_defs are tried with: each needs a run of keepalived.
var globalWords = []string{"-1", "0", "1", "2", "3", "4", "101", "4294", "4295", "4294967296", "0.0004", "0.5", "7x", "x"}

// globalNumbers are the numbers of global_defs that instances have.
var globalNumbers = map[string]string{
	"vrrp_garp_master_delay": "garp_master_delay", "vrrp_garp_master_repeat": "garp_master_repeat", "vrrp_garp_master_refresh": "garp_master_refresh",
	"vrrp_garp_master_refresh_repeat": "garp_master_refresh_repeat", "vrrp_version": "version",
}

// Instances have the numbers of global_defs as keepalived has them.
func TestKeepalivedGlobalNumbers(t *testing.T) {
	ns := judgeNamespace(t)
	for _, word := range globalWords {
		j := &conf{}
		var all []triedWord
		j.add("global_defs {\nscript_user root")
		for keyword, own := range globalNumbers {
			for _, number := range judgedNumbers["VRRP Instance"] {
				if number.keyword == own {
					all = append(all, triedWord{number, "VRRP Instance", "a", word, j.add("%s %s", keyword, word)})
				}
			}
		}
		j.add("vrrp_startup_delay %s", word)
		j.add("}\nvrrp_instance a {\nstate BACKUP\ninterface eth0\nvirtual_router_id 5\nvirtual_ipaddress {\n10.0.0.1\n}\n}")
		v, in := j.ask(t, ns), j.imports(t)
		for i := range all {
			all[i].check(t, in, v)
		}
		in.lists(t, v)
	}
}

// What is above vrrp_min_garp stays, and what is below it counts.
func TestKeepalivedMinGarp(t *testing.T) {
	ns := judgeNamespace(t)
	for _, lines := range []string{
		"vrrp_min_garp", "vrrp_min_garp no", "vrrp_min_garp maybe", "vrrp_garp_master_repeat 3\nvrrp_min_garp", "vrrp_garp_master_repeat 5\nvrrp_min_garp", "vrrp_min_garp\nvrrp_garp_master_repeat 3",
	} {
		j := &conf{}
		j.add("global_defs {\nvrrp_version 3\nscript_user root\nvrrp_startup_delay 60\n%s\n}", lines)
		j.add("vrrp_instance a {\ninterface eth0\nvirtual_router_id 5\nvirtual_ipaddress {\n10.0.0.1\n}\n}")
		v, in := j.ask(t, ns), j.imports(t)
		for _, number := range judgedNumbers["VRRP Instance"] {
			if number.keyword == "garp_master_repeat" {
				(&triedWord{number, "VRRP Instance", "a", lines, 0}).equal(t, in, v)
			}
		}
		in.lists(t, v)
	}
}

// lvs_sync_daemon is read as keepalived does: options of both forms, their bounds, and the
// identifier of the instance that it names.
func TestKeepalivedSyncDaemon(t *testing.T) {
	ns := judgeNamespace(t)
	for words, named := range map[string]string{ // with an instance, keepalived needs ip_vs for its dump: what it says is compared
		"eth1": "", "eth1 maxlen 1400 port 70000": "", "eth1 maxlen 0 port 9000": "", "eth1 maxlen 65508 port": "", "eth1 id 4": "", "eth1 id 256": "", "eth1 id 7x": "",
		"eth1 group 10.0.0.1": "", "eth1 group 224.0.0.99 ttl 3": "", "eth1 ttl 0 ttl 256": "", "averyveryverylongname": "", "": "",
		"eth1 inst a": "eth1 5 0 0 0", "eth1 inst a id 0": "eth1 0 0 0 0", "eth1 inst a id 256": "eth1 5 0 0 0", "eth1 inst a id 7x": "eth1 5 0 0 0",
		"eth1 inst a inst b id 9": "eth1 9 0 0 0", "eth1 a 9": "eth1 9 0 0 0", "eth1 a 300": "eth1 5 0 0 0", "eth1 id 3 inst a": "eth1 3 0 0 0",
		"eth1 a 9 x y": "eth1 9 0 0 0", "eth1 inst none id 4": "0 0 0 0 0",
	} {
		j := &conf{}
		j.add("global_defs {\nvrrp_version 3\nscript_user root\nvrrp_startup_delay 60")
		line := j.add("lvs_sync_daemon %s", words)
		j.add("lvs_sync_daemon eth2\n}\nvrrp_instance a {\ninterface eth0\nvirtual_router_id 5\nvirtual_ipaddress {\n10.0.0.1\n}\n}")
		var options []string
		if named != "" {
			options = []string{"--config-test"}
		}
		v, in := j.ask(t, ns, options...), j.imports(t)
		got := "0 0 0 0 0"
		if len(in.Roles) > 0 {
			r := &in.Roles[0]
			got = fmt.Sprintf("%s %d %d %d %d", r.Interface, r.SyncID, r.MaxLen, r.Port, r.TTL)
		}
		want := strings.Join([]string{
			v.global("LVS syncd interface"), v.global("LVS syncd syncid"), v.global("LVS syncd maxlen"), v.global("LVS syncd mcast port"), v.global("LVS syncd mcast ttl"),
		}, " ")
		if named != "" {
			want = named
		} else if want == "0 0 0 0 0" {
			t.Fatalf("keepalived has nothing:\n%s", v.output)
		}
		if got != want {
			t.Errorf("lvs_sync_daemon %s: %q, want %q", words, got, want)
		}
		if len(v.messages[line]) > 0 && len(in.losses[line]) == 0 {
			t.Errorf("lvs_sync_daemon %s: it is not listed, and keepalived says %q", words, v.messages[line])
		}
	}
}

// In a sync group, weights of members and of the group are what keepalived makes of them.
func TestKeepalivedSyncGroups(t *testing.T) {
	ns := judgeNamespace(t)
	const tracked = "track_interface {\neth2 weight 7\n}\ntrack_script {\nplain\nheavy\n}\n"
	j := &conf{}
	j.add("global_defs {\nvrrp_version 3\nscript_user root\nvrrp_startup_delay 60\n}")
	j.add("vrrp_script plain {\nscript /bin/true\n}\nvrrp_script heavy {\nscript /bin/true\nweight 9\n}")
	groups := map[string]string{ // lines of the group, and of its first member
		"none": "", "members": "", "owner": tracked, "weights": "sync_group_tracking_weight\n", "single": "", "unknown": "notify_deleted\nuser root\n",
	}
	names := []string{"none", "members", "owner", "weights", "single", "unknown"}
	for _, name := range names {
		second := name + "b\n"
		if name == "single" {
			second = ""
		}
		j.add("vrrp_sync_group %s {\ngroup {\n%sa\n%s}\n%s}", name, name, second, groups[name])
	}
	for n, name := range names {
		lines := ""
		if slices.Contains([]string{"members", "weights", "single"}, name) {
			lines = tracked
		}
		priority := 100
		if name == "owner" {
			priority = 255
		}
		j.add("vrrp_instance %sa {\nstate BACKUP\ninterface eth0\nvirtual_router_id %d\npriority %d\nvirtual_ipaddress {\n10.0.4.%d\n}\n%s}", name, n+1, priority, n+1, lines)
		if name != "single" {
			j.add("vrrp_instance %sb {\nstate BACKUP\ninterface eth1\nvirtual_router_id %d\nvirtual_ipaddress {\n10.0.5.%d\n}\n}", name, n+1, n+1)
		}
	}
	v, in := j.ask(t, ns), j.imports(t)
	for _, name := range names {
		at := name
		if name == "single" {
			at = "singlea" // the group of one instance has its name
		}
		g := in.group(t, at)
		dump, member := v.dump["VRRP Sync Group = "+name], v.dump["VRRP Instance = "+name+"a"]
		if dump == nil || member == nil {
			t.Fatalf("keepalived has no %s:\n%s", name, v.output)
		}
		for what, lists := range map[string][2][]string{
			"Tracked interfaces": {slices.Concat(dump["Tracked interfaces"], member["Tracked interfaces"]), devicesOf(g)},
			"Tracked scripts":    {slices.Concat(dump["Tracked scripts"], member["Tracked scripts"]), scriptsOf(in, g)},
		} {
			if kept, got := strings.Join(lists[0], ", "), strings.Join(lists[1], ", "); kept != got {
				t.Errorf("%s: %s: %q, want %q", name, what, got, kept)
			}
		}
	}
	in.lists(t, v)
}

func devicesOf(g *setup.Group) (all []string) {
	for _, d := range g.Devices {
		all = append(all, fmt.Sprintf("%s weight %d", d.Name, d.Weight))
	}
	return all
}

func scriptsOf(in *imported, g *setup.Group) (all []string) {
	for _, name := range g.Scripts {
		for _, s := range in.VRRP.Scripts {
			if s.Name == name {
				plain, _, _ := strings.Cut(name, "-weight")
				all = append(all, fmt.Sprintf("%s weight %d", plain, s.Weight))
			}
		}
	}
	return all
}
