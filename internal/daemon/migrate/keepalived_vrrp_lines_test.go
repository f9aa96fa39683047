// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
)

// inInstance is lines of an instance that keepalived and the import read alike, but for differences.
type inInstance struct {
	lines string
	// differs is what imbang has instead of what keepalived has, by what is compared: "addresses",
	// "excluded", "devices", "scripts", "preempt", "source", "peers".
	differs map[string]string
}

const vip = "virtual_ipaddress {\n10.1.0.%d\n}\n"

// instanceAddresses are lines of virtual_ipaddress, behind which there is one of IPv4.
var instanceAddresses = []string{
	"192.0.2.%d", "192.0.2.%d/24", "192.0.2.%d/0", "192.0.2.%d/32", "192.0.2.%d/33", "192.0.2.%d/-1", "192.0.2.%d/x", "192.0.2.%d/24x", "192.0.2.%d/", "192.0.2.%d/255.255.255.0",
	"192.0.2", "192.0.2.256", "192.0.02.%d", "a.example", "2001:db8::%d/64", "2001:db8::%d/129", "fe80::%d%%eth0", "192.0.2.%d/24 dev eth1", "192.0.2.%d/24 dev eth1 dev eth0",
	"192.0.2.%d dev", "192.0.2.%d/24 brd 192.0.2.255", "192.0.2.%d/24 brd +", "192.0.2.%d/24 brd x", "192.0.2.%d/24 brd",
	"2001:db8::%d brd +", "192.0.2.%d/24 label eth0:a", "192.0.2.%d/24 label averyveryverylongname", "192.0.2.%d/24 label", "192.0.2.%d scope link", "192.0.2.%d scope x", "192.0.2.%d scope",
	"192.0.2.%d preferred_lft forever", "192.0.2.%d preferred_lft 5", "192.0.2.%d preferred_lft x", "192.0.2.%d home -nodad no_track", "192.0.2.%d nodad", "192.0.2.%d metric 5",
	"192.0.2.%d mngtmpaddr", "192.0.2.%d noprefixroute", "192.0.2.%d autojoin",
}

// instanceLines are other lines of an instance. %d is a number of the instance.
var instanceLines = []inInstance{
	{lines: vip + "virtual_ipaddress_excluded {\n10.2.0.%d/33 dev eth1\n2001:db8:1::%d/64\nx\n}\n"},
	{lines: "virtual_ipaddress {\n10.1.0.%d/24 dev eth1\n}\n"},
	{lines: "use_vmac_addr\nvirtual_ipaddress {\n10.1.0.%d/24 use_vmac\n}\n", differs: map[string]string{"addresses": "10.1.0.%d/24 eth0"}},
	{lines: "virtual_ipaddress {\n2001:db8:2::%d/64\n192.0.3.%d\nfe80::3:%d\n}\n"},
	{lines: "unicast_src_ip 2001:db8:9::1\nvirtual_ipaddress {\n10.1.0.%d\n2001:db8:2::%d/64\n}\n"},
	{lines: "native_ipv6\nvirtual_ipaddress {\n10.1.0.%d\n2001:db8:2::%d/64\n}\n"},
	{lines: vip + "native_ipv6\n"},
	{lines: vip + "mcast_src_ip 10.0.0.9\n"},
	{lines: vip + "mcast_src_ip 10.0.0.9/24\n"},
	{lines: vip + "mcast_src_ip x\n"},
	{lines: vip + "unicast_src_ip 2001:db8::9\n"},
	{lines: vip + "mcast_src_ip 10.0.0.9\nmcast_src_ip 2001:db8::9\n"},
	{lines: vip + "unicast_src_ip 10.0.0.9\nunicast_peer {\n10.0.0.8\n10.0.0.7 min_ttl 300\nx\n2001:db8::9\n10.0.0.6 max_ttl 254\n10.0.0.5 min_ttl\n}\n"},
	{lines: vip + "mcast_dst_ip 224.0.0.55\n"},
	{lines: vip + "mcast_dst_ip ff02::12\n"},
	{lines: vip + "mcast_dst_ip 10.0.0.1\n"},
	{lines: vip + "state BACKUP\nnopreempt\n"},
	{lines: vip + "state BACKUP\nnopreempt\npreempt\n"},
	{lines: vip + "state BACKUP\nnopreempt\npreempt_delay 5\n"},
	{lines: vip + "state MASTER\nnopreempt\npriority 100\n"},
	{lines: vip + "state MASTER\npreempt_delay 5\npriority 100\n"},
	{lines: vip + "state MASTER\n"},
	{lines: vip + "state MASTER\nstate BACKUP\n"},
	{lines: vip + "state MASTER\nstate master\npriority 50\npreempt_delay 3\n"},
	{lines: vip + "preempt_delay 5\nstrict_mode\n"},
	{lines: vip + "strict_mode on\nstate BACKUP\npriority 100\npreempt_delay 5\nstrict_mode no\n"},
	{lines: vip + "strict_mode\nnopreempt\npreempt_delay 5\n"},
	{lines: vip + "state x\n"},
	{lines: vip + "priority 255\npreempt_delay 3\n"},
	{lines: vip + "priority 255\nstate BACKUP\npreempt_delay 3\nnopreempt\n"},
	{lines: vip + "version 2\nversion 3\n"},
	{lines: vip + "version 2\nadvert_int 0.3\n"},
	{lines: vip + "version 2\nadvert_int 1.5\n"},
	{lines: vip + "version 2\nadvert_int 2.4\n"},
	{lines: vip + "track_interface {\neth1\neth1 weight 5\neth2 weight 7\n}\n"},
	{lines: vip + "track_interface {\neth1 weight 254\neth2 weight -254\neth3 weight 255\n}\n"},
	{lines: vip + "track_interface {\neth1 weight x\neth2 weight\neth3 prio 5\n}\n"},
	{lines: vip + "track_interface {\neth1 weight 5x\neth2 weight 1.5 more\neth3 weight -253 noreverse\n}\n"},
	{lines: vip + "track_interface {\neth0\neth1 weight 3 reverse\n}\n", differs: map[string]string{"devices": ""}},
	{lines: vip + "track_interface {\neth1 weight 3\n}\ntrack_interface {\neth1\neth2\n}\n"},
	{lines: vip + "priority 255\ntrack_interface {\neth1 weight 3\neth2\n}\n"},
	{lines: vip + "track_script {\nplain\nplain weight 5\nheavy\n}\n"},
	{lines: vip + "track_interface {\neth1 weight +\neth2 weight -\n}\ntrack_script {\nplain weight +\nheavy weight -\n}\n"},
	{lines: vip + "track_script {\nplain weight 254\nheavy weight -254\n}\n"},
	{lines: vip + "track_script {\nplain weight 255\nheavy weight -300\nnone\n}\n"},
	{lines: vip + "track_script {\nplain weight\nheavy prio 3\n}\n"},
	{lines: vip + "track_script {\nplain weight 5x\nheavy weight x\n}\n"},
	{lines: vip + "track_script {\nturned weight 5 noreverse\nplain weight 5 more\n}\n"},
	{lines: vip + "track_script {\nturned\nplain weight 5 reverse\n}\n", differs: map[string]string{"scripts": ""}},
	{lines: vip + "track_script {\nbelow\nplain\n}\n"},
	{lines: vip + "priority 255\ntrack_script {\nplain weight 5\nheavy\nplain\n}\n"},
	{lines: vip + "unknown 5\nauth_pass 5\nrise 3\nscript x\nlvs_method NAT\ngroup 5\nvrrp_version 3\n"},
	{lines: vip + "smtp_alert maybe\nstrict_mode maybe\nlower_prio_no_advert maybe\nhigher_prio_send_advert maybe\nnotify_priority_changes maybe\n"},
	{lines: vip + "notify /bin/true\nnotify /bin/false\nnotify_master /bin/true\nnotify_master /bin/false\n"},
	{lines: vip + "interface averyveryverylongname\n"},
}

// addressesOf are those of the dump, with their device.
func addressesOf(lines []string) (all []string) {
	for _, l := range lines {
		w := strings.Fields(l)
		all = append(all, w[0]+" "+w[slices.Index(w, "dev")+1])
	}
	slices.Sort(all) // the order in an advertisement does not matter
	return all
}

func movingOf(addresses []vrrp.Address) (all []string) {
	for _, a := range addresses {
		text := a.Prefix.String()
		if a.Prefix.IsSingleIP() {
			text = a.Prefix.Addr().String()
		}
		all = append(all, text+" "+a.Device)
	}
	slices.Sort(all)
	return all
}

// trackedOf is NAME weight N of what is tracked, with the bounds that keepalived has as well.
func trackedOf(lines []string) (all []string) {
	for _, l := range lines {
		all = append(all, strings.Replace(strings.Replace(l, "weight 254", "weight 253", 1), "weight -254", "weight -253", 1))
	}
	return all
}

// compared is what is compared of an instance.
func compared(in *imported, v *verdict, g *setup.Group) map[string][2]string {
	dump := v.dump["VRRP Instance = "+g.Name]
	r := &g.Routers[0]
	out := map[string][2]string{
		"addresses": {strings.Join(addressesOf(dump["Virtual IP"]), ", "), strings.Join(movingOf(r.All()), ", ")},
		"excluded":  {strings.Join(addressesOf(dump["Virtual IP Excluded"]), ", "), strings.Join(movingOf(g.Addresses), ", ")},
		"preempt":   {strings.Join(dump["Preempt"], ""), map[bool]string{false: "enabled", true: "disabled"}[g.NoPreempt]},
	}
	devices, scripts := devicesOf(g), scriptsOf(in, g)
	var peers, kept []string
	out["devices"] = [2]string{strings.Join(trackedOf(dump["Tracked interfaces"]), ", "), strings.Join(devices, ", ")}
	out["scripts"] = [2]string{strings.Join(trackedOf(dump["Tracked scripts"]), ", "), strings.Join(scripts, ", ")}
	for _, p := range r.Peers {
		peers = append(peers, p.String())
	}
	for _, l := range dump["Unicast Peer"] {
		kept = append(kept, strings.Fields(l)[0])
	}
	out["peers"] = [2]string{strings.Join(kept, ", "), strings.Join(peers, ", ")}
	source, ours := "", ""
	if text := strings.Join(dump["Using src_ip"], ""); strings.Contains(text, "from configuration") {
		source = strings.Fields(text)[0]
	}
	if r.Source.IsValid() {
		ours = r.Source.String()
	}
	out["source"] = [2]string{source, ours}
	return out
}

// Lines of instances are read as keepalived does. A line of which keepalived says something, and
// one that makes a difference, is listed.
func TestKeepalivedInstanceLines(t *testing.T) {
	ns := judgeNamespace(t)
	j := &conf{}
	j.add("global_defs {\nvrrp_version 3\nscript_user root\nvrrp_startup_delay 60\n}")
	for _, s := range []string{"plain {\nscript /bin/true", "heavy {\nscript /bin/true\nweight 9", "turned {\nscript /bin/true\nweight 9 reverse"} {
		j.add("vrrp_script %s\n}", s)
	}
	all := slices.Clone(instanceLines)
	for _, a := range instanceAddresses {
		all = append(all, inInstance{lines: "virtual_ipaddress {\n" + a + "\n10.1.0.%d\n}\n"})
	}
	first := make([]int, len(all))
	for n := range all {
		first[n] = j.lines + 1
		lines := strings.ReplaceAll(all[n].lines, "%d", fmt.Sprint(n+1))
		lines = strings.ReplaceAll(lines, "%%", "%")
		j.add("vrrp_instance i%d {\ninterface eth0\nvirtual_router_id %d\n%s}", n, n+1, lines)
	}
	j.add("vrrp_script below {\nscript /bin/true\n}")
	v, in := j.ask(t, ns), j.imports(t)
	for n := range all {
		g := in.group(t, fmt.Sprintf("i%d", n))
		if v.dump["VRRP Instance = "+g.Name] == nil {
			t.Fatalf("keepalived has no %s:\n%s", g.Name, v.output)
		}
		listed := false
		for line := first[n]; line < first[n]+strings.Count(all[n].lines, "\n")+5; line++ {
			listed = listed || len(in.losses[line]) > 0
		}
		for what, values := range compared(in, v, g) {
			want, differs := all[n].differs[what]
			want = strings.ReplaceAll(want, "%d", fmt.Sprint(n+1))
			switch {
			case differs && (values[1] != want || !listed):
				t.Errorf("%s: %s: %q, want %q, and it listed (%t)\n%s", g.Name, what, values[1], want, listed, all[n].lines)
			case !differs && values[0] != values[1]:
				t.Errorf("%s: %s: %q, want %q\n%s", g.Name, what, values[1], values[0], all[n].lines)
			}
		}
		for _, number := range judgedNumbers["VRRP Instance"] {
			(&triedWord{number, "VRRP Instance", g.Name, "", 0}).equal(t, in, v)
		}
	}
	in.lists(t, v)
}
