// SPDX-License-Identifier: Apache-2.0

package migrate

import "testing"

// Values of VRRP that keepalived changes, ignores or reads otherwise than they look: the import has keepalived's, and says so
// at the line.
func TestKeepalivedVRRPBounds(t *testing.T) {
	const addresses = "virtual_ipaddress {\n10.0.0.1\n}\n"
	of := func(lines string) string {
		return "global_defs {\nvrrp_version 3\n}\nvrrp_instance a_1 {\ninterface eth0\nvirtual_router_id 5\n" + lines + "}\n"
	}
	script := func(lines string) string {
		return "vrrp_script s {\nscript /bin/true\nuser root\n" + lines + "}\n" + of("track_script {\ns\n}\n"+addresses)
	}
	for _, one := range []translation{
		{"preempt_delay above the bound", of("preempt_delay 1001\n" + addresses), []string{"x:7: preempt_delay 1001: "}, []string{"preempt_delay: "}},
		{"advert_int 0", of("advert_int 0\n" + addresses), []string{"interval: 1 s", "x:7: advert_int 0: "}, []string{"10 ms\n"}},
		{"weight above the bound", script("weight 300\n"), []string{"weight: 253", `track_scripts: ["s"]`, "x:4: weight 300: "}, nil},
		{"prefix length above the bound", of("virtual_ipaddress {\n192.0.2.5/33\n2001:db8::1\n}\n"), []string{
			`- "192.0.2.5" #`, "x:8: 192.0.2.5/33: ", "x:9: 2001:db8::1: of another family"}, []string{`- "2001:db8::1"`}},
		{"address on another device alone", of("virtual_ipaddress {\n203.0.113.5/24 dev eth1\n}\n"), []string{
			`id: 5`, `- {address: "203.0.113.5/24", device: "eth1"} # x:8`}, []string{"Not carried"}},
		{"timeout longer than the interval", script("interval 2\ntimeout 10\n"), []string{"interval: 10 s", "x:5: timeout 10: "}, []string{"timeout: 2 s", "shortened"}},
		{"track_script twice", "vrrp_script s {\nscript /bin/true\nuser root\n}\n" + of("track_script {\ns\ns weight 5\n}\n"+addresses), []string{
			`track_scripts: ["s"]`, "x:13: s weight 5: "}, []string{"weight: 5"}},
		{"second group", "vrrp_sync_group g {\ngroup {\na_1\n}\ngroup {\nb\n}\n}\n" + of(addresses), []string{"x:5: group: there is one above: left out"}, nil},
		{"priority of state MASTER", of("state MASTER\n" + addresses), []string{"priority: 255", "x:7: state MASTER: keepalived's priority is 255 with it if none is set"}, nil},
		{"excluded addresses alone", "vrrp_instance a {\ninterface eth0\nvirtual_router_id 5\nvirtual_ipaddress_excluded {\n10.0.0.1\n10.0.1.1 dev eth1\n2001:db8::1\n}\n}\n", []string{
			`- "10.0.0.1" #`, "elsewhere:", `{address: "10.0.1.1", device: "eth1"}`, `{address: "2001:db8::1", device: "eth0"}`, "x:1: vrrp_instance a: has no virtual_ipaddress: version 3 needs one"}, nil},
		{"script below", of("track_script {\ns\n}\n"+addresses) + "vrrp_script s {\nscript /bin/true\nuser root\n}\n", []string{
			"x:8: track_script s: the script is below"}, []string{"track_scripts"}},
		{"vrrp_higher_prio_send_advert", "global_defs {\nvrrp_higher_prio_send_advert\n}\n" + of(addresses), []string{
			"x:2: vrrp_higher_prio_send_advert: not needed: "}, []string{"not supported"}},
	} {
		one.run(t, one.text)
	}
}
