// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"imbang/internal/host"
	"imbang/internal/testenv"

	"imbang/internal/daemon/vrrp"
)

// keepalived accepts the file of testdata, whose translation is compared as a whole.
func TestKeepalivedAcceptsTestdata(t *testing.T) {
	if _, err := exec.LookPath("keepalived"); err != nil {
		t.Skip("keepalived is not installed")
	}
	ns := testenv.Namespace(t, "conf")
	text, err := os.ReadFile(filepath.Join("testdata", "keepalived.vrrp.conf"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keepalived.conf")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ends := range [][2]string{{"eth0", "eth1"}, {"eth2", "eth3"}} {
		if err := host.Connect(host.End{NS: ns, Name: ends[0]}, host.End{NS: ns, Name: ends[1]}, host.LinkOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var out []byte
	err = ns.Do(func() (err error) {
		out, err = exec.Command("keepalived", "--vrrp", "--config-test", "--use-file", file, "--log-console", "--dont-fork").CombinedOutput()
		return err
	})
	if err != nil {
		t.Errorf("keepalived refuses it: %v\n%s", err, out)
	}
}

// Values of VRRP, with keepalived's defaults (keepalived.conf(5), version 2.2).
func TestKeepalivedVRRP(t *testing.T) {
	const addresses = "virtual_ipaddress {\n10.0.0.1\n}\n"
	many := func(n int) string {
		return repeated(n, func(i int) string { return fmt.Sprintf("10.1.%d.%d\n", i/200, i%200+1) })
	}
	of := func(lines string) string {
		return "global_defs {\nvrrp_version 3\n}\nvrrp_instance a_1 {\ninterface eth0\nvirtual_router_id 5\n" + lines + "}\n"
	}
	for _, one := range []translation{
		{"defaults", of(addresses), []string{`- name: "a_1" # x:4`, "priority: 100", "interval: 1 s", `device: "eth0"`, "id: 5", `- "10.0.0.1" # x:8`}, []string{"Not carried", "preempt", "announce", "hold"}},
		{"version 2 by default", "vrrp_instance a {\ninterface eth0\nvirtual_router_id 5\n" + addresses + "}\n", []string{"x:1: VRRP version 2: keepalived's default, and the version of 1 instance here; imbang has version 3 only"}, nil},
		{"version 2 of one", of("version 2\n" + addresses), []string{"x:4: VRRP version 2"}, nil},
		{"version 3 of one", "vrrp_instance a {\nversion 3\ninterface eth0\nvirtual_router_id 5\n" + addresses + "}\n", nil, []string{"VRRP version 2"}},
		{"IPv6 is of version 3", "vrrp_instance a {\ninterface eth0\nvirtual_router_id 5\nvirtual_ipaddress {\nfe80::1\n}\n}\n", []string{`- "fe80::1"`}, []string{"VRRP version 2"}},
		{"addresses that fit in a message", of("virtual_ipaddress {\n" + many(vrrp.MaxAddresses4) + "}\n"), nil, []string{"Not carried"}},
		{"an address more", of("virtual_ipaddress {\n" + many(vrrp.MaxAddresses4+1) + "}\n"), []string{fmt.Sprintf("more than %d addresses do not fit", vrrp.MaxAddresses4)}, nil},
		{"script with a longer timeout", "vrrp_script s {\nscript /bin/true\ninterval 5\ntimeout 6\n}\n" + of("track_script {\ns\n}\n"+addresses), []string{
			"interval: 6 s", "x:4: timeout 6: longer than the interval of 5 s"}, []string{"timeout: "}},
		{"script with a timeout of its interval", "vrrp_script s {\nscript /bin/true\ninterval 5\ntimeout 5\n}\n" + of("track_script {\ns\n}\n"+addresses), []string{"interval: 5 s"}, []string{"timeout: ", "longer"}},
		{"link-local address of two devices", of("virtual_ipaddress {\nfe80::1\nfe80::1 dev eth1\nfe80::1 dev eth1\n}\n"), []string{
			`- "fe80::1"`, `- {address: "fe80::1", device: "eth1"}`, "x:10: fe80::1 dev eth1: x:9 has the address already"}, []string{"x:9: "}},
		{"interval", of("advert_int 0.05\n" + addresses), []string{"interval: 50 ms"}, []string{"Not carried"}},
		{"interval that no message can have", of("advert_int 0.005\n" + addresses), []string{"interval: 1 s", "x:7: advert_int 0.005: keepalived accepts only 0.01 to 255: left out"}, nil},
		{"interval of version 2", of("advert_int 60\n" + addresses), []string{"interval: 40950 ms", "x:7: advert_int 60: want"}, nil},
		{"nopreempt", of("state BACKUP\nnopreempt\npreempt_delay 5\n" + addresses), []string{"preempt: false", "x:9: preempt_delay 5: has no effect beside nopreempt"}, []string{"preempt_delay: 5 s"}},
		{"nopreempt with MASTER", of("state MASTER\nnopreempt\n" + addresses), []string{"x:8: nopreempt: keepalived ignores it with state MASTER"}, []string{"preempt: false"}},
		{"preempt_delay with MASTER", of("state MASTER\npreempt_delay 4\n" + addresses), []string{"x:8: preempt_delay 4: keepalived ignores it with state MASTER"}, []string{"preempt_delay: "}},
		{"preempt_delay", of("preempt_delay 4.5\n" + addresses), []string{"preempt_delay: 4500 ms"}, []string{"Not carried"}},
		{"preempt_delay in strict mode", "global_defs {\nvrrp_strict\n}\n" + of("preempt_delay 4\n"+addresses), []string{"x:10: preempt_delay 4: keepalived ignores it in strict mode: left out"}, []string{"preempt_delay: "}},
		{"preempt_delay without the strict mode of others", "global_defs {\nvrrp_strict\n}\n" + of("preempt_delay 4\nstrict_mode off\n"+addresses), []string{"preempt_delay: 4 s"}, []string{"preempt_delay 4"}},
		{"priority", of("priority 256\n" + addresses), []string{"priority: 100", "x:7: priority 256: keepalived accepts only 1 to 255"}, nil},
		{"authentication", of("authentication {\nauth_type PASS\nauth_pass 1\n}\n" + addresses), []string{"x:7: authentication: VRRP version 3 has none"}, nil},
		{"unicast", of("unicast_src_ip 10.9.0.1\nunicast_peer {\n10.9.0.2 min_ttl 255\n10.9.0.3\n}\n" + addresses), []string{`source: "10.9.0.1"`, `peers: ["10.9.0.2", "10.9.0.3"]`, "x:9: 10.9.0.2 min_ttl 255: the TTL"}, nil},
		{"mcast_src_ip", of("mcast_src_ip 10.9.0.1\n" + addresses), []string{`source: "10.9.0.1"`}, []string{"Not carried"}},
		{"another group", of("mcast_dst_ip 224.0.0.55\n" + addresses), []string{"x:7: mcast_dst_ip 224.0.0.55: not supported"}, nil},
		{"address of another device", of("virtual_ipaddress {\n10.0.0.1\n172.16.0.1/24 dev eth1\n}\n"), []string{"elsewhere:", `- {address: "172.16.0.1/24", device: "eth1"}`}, []string{"Not carried"}},
		{"addresses that are not advertised", of(addresses + "virtual_ipaddress_excluded {\n10.0.0.2\n2001:db8::1/64\n172.16.0.1 dev eth1\n}\n"), []string{
			`{address: "10.0.0.2", device: "eth0"}`, `{address: "2001:db8::1/64", device: "eth0"}`, `{address: "172.16.0.1", device: "eth1"}`}, []string{"Not carried"}},
		{"families", of("virtual_ipaddress {\n10.0.0.1\n2001:db8::1\n}\n"), []string{"x:9: 2001:db8::1: of another family"}, []string{`"2001:db8::1"`}},
		{"no address", of("") + of(addresses), []string{"x:4: vrrp_instance a_1: has no virtual_ipaddress"}, nil},
		{"no interface", "vrrp_instance b {\nvirtual_router_id 9\n" + addresses + "}\n", []string{"vrrp_instance b: has no interface", "services: []"}, []string{"vrrp:"}},
		{"default_interface", "global_defs {\ndefault_interface eth7\n}\nvrrp_instance b {\nvirtual_router_id 9\n" + addresses + "}\n", []string{`device: "eth7"`}, nil},
		{"router twice", of(addresses) + "vrrp_instance b {\ninterface eth0\nvirtual_router_id 5\nvirtual_ipaddress {\n10.0.0.9\n}\n}\n", []string{"vrrp_instance b: another instance has virtual_router_id 5 on eth0"}, nil},
		{"announcements", of("garp_master_delay 7\ngarp_master_repeat 1\ngarp_master_refresh 90\ngarp_lower_prio_repeat 2\n" + addresses), []string{"announcements: 1", "announce_again: 7 s", "announce_every: 90 s", "x:10: garp_lower_prio_repeat 2: not needed"}, nil},
		{"announcements not repeated", of("garp_master_delay 0\n" + addresses), []string{"x:7: garp_master_delay 0: announcements are always repeated"}, []string{"announce_again"}},
		{"script with a weight of each", "vrrp_script s {\nscript \"kill -0 1\"\nuser root\nweight 5\n}\n" + of("track_script {\ns weight -3\n}\n"+addresses) +
			"vrrp_instance b {\nversion 3\ninterface eth0\nvirtual_router_id 6\ntrack_script {\ns\n}\nvirtual_ipaddress {\n10.0.0.9\n}\n}\n", []string{
			`"s-weight-3": # x:1`, "weight: -3", `"s": # x:1`, "weight: 5", `command: ["/usr/bin/env", "kill", "-0", "1"]`, `track_scripts: ["s-weight-3"]`, `track_scripts: ["s"]`, "x:2: script kill -0 1: kill is not in "}, nil},
		{"reverse", of("track_interface {\neth1 weight 5 reverse\neth2\n}\n" + addresses), []string{`- {device: "eth2"}`, "x:8: eth1 weight 5 reverse: reverse is not supported"}, []string{`"eth1"`}},
		{"no such script", of("track_script {\nnone\n}\n" + addresses), []string{"x:8: track_script none: there is no such script"}, []string{"track_scripts"}},
		{"script for a shell", "vrrp_script s {\nscript \"</dev/tcp/127.0.0.1/80\"\n}\n" + of("track_script {\ns\n}\n"+addresses), []string{"x:2: script </dev/tcp/127.0.0.1/80: want the path of a program", "track_script s: the script is left out: so is this"}, []string{"scripts:"}},
		{"files and processes", "vrrp_track_file f {\nfile /x\n}\n" + of("track_file {\nf\n}\ntrack_process {\np\n}\n"+addresses), []string{"x:1: vrrp_track_file f: files are not tracked", "track_file f: not tracked", "track_process p: not tracked"}, nil},
		{"synchronization with no instance", "global_defs {\nvrrp_version 3\nlvs_sync_daemon eth1 port 9000 ttl 3 group 224.0.0.99\n}\n", []string{
			`master: {interface: "eth1", port: 9000, ttl: 3, group: "224.0.0.99"}`}, []string{"Not carried"}},
		{"synchronization as once", of("lvs_sync_daemon_interface eth1\n" + addresses), []string{`backup: {interface: "eth1", sync_id: 5}`, "both roles run all the time"}, nil},
		{"sync group of one", "vrrp_sync_group g {\ngroup {\na_1\n}\nnotify /bin/told\n}\n" + of(addresses), []string{`- name: "a_1"`, `notify: ["/bin/told"]`, "x:1: vrrp_sync_group g: has one instance",
			"x:5: notify /bin/told: its first arguments are INSTANCE a_1; keepalived's are GROUP g: change what the program looks for"}, nil},
		{"command of the instance in a sync group of one", "vrrp_sync_group g {\ngroup {\na_1\n}\nnotify_master /bin/master\n}\n" + of("notify /bin/told\n"+addresses), []string{`notify: ["/bin/told"]`}, []string{"first arguments"}},
		{"command of an instance in a sync group", "vrrp_sync_group g {\ngroup {\na_1\nb\n}\n}\n" + of("notify /bin/told\n"+addresses) +
			"vrrp_instance b {\nversion 3\ninterface eth1\nvirtual_router_id 6\nvirtual_ipaddress {\n10.0.0.9\n}\n}\n", []string{
			`notify: ["/bin/told"]`, "x:13: notify /bin/told: its first arguments are GROUP g; keepalived's are INSTANCE a_1"}, nil},
		{"command of a sync group", "vrrp_sync_group g {\ngroup {\na_1\nb\n}\nnotify /bin/told\n}\n" + of(addresses) +
			"vrrp_instance b {\nversion 3\ninterface eth1\nvirtual_router_id 6\nvirtual_ipaddress {\n10.0.0.9\n}\n}\n", []string{`notify: ["/bin/told"]`}, []string{"first arguments"}},
		{"sync group without an instance", "vrrp_sync_group g {\ngroup {\na_1\nb\n}\n}\n" + of(addresses), []string{"x:1: vrrp_sync_group g: there is no instance b"}, nil},
		{"weights in a sync group", "vrrp_sync_group g {\ngroup {\na_1\nb\n}\n}\n" + of("track_interface {\neth3 weight 4\n}\n"+addresses) +
			"vrrp_instance b {\nversion 3\ninterface eth1\nvirtual_router_id 6\nvirtual_ipaddress {\n10.0.0.9\n}\n}\n", []string{
			`- name: "g"`, `- {device: "eth3"} #`, "track_interface eth3: keepalived ignores weights"}, nil},
		{"user of a command", of("notify_stop \"/bin/stop a\" nobody nogroup\nnotify_fault /bin/fault\n" + addresses), []string{
			`notify_stop: ["/bin/stop", "a"]`, "x:7: notify_stop /bin/stop a nobody nogroup: runs as root", "x:8: notify scripts of VRRP: run as root"}, nil},
		{"names", "vrrp_instance \"a b\" {\nversion 3\ninterface eth0\nvirtual_router_id 5\n" + addresses + "}\nvrrp_instance a-b {\nversion 3\ninterface eth0\nvirtual_router_id 6\nvirtual_ipaddress {\n10.0.0.2\n}\n}\n", []string{
			`- name: "a-b"`, `- name: "a-b-2"`, "x:1: a b: not a name here: a-b"}, nil},
	} {
		one.run(t, one.text)
	}
}
