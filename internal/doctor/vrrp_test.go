// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/process"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/doctor/ruleset"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// moving are facts of a pair of directors with nothing to say against.
func moving() *VRRP {
	p := netip.MustParsePrefix
	return &VRRP{
		File: "imbang.yaml",
		Setup: &setup.Setup{Groups: []setup.Group{{
			Name: "web", Routers: []setup.Router{{Device: "ext0", ID: 51, Addresses: []netip.Prefix{p("10.20.0.1/24"), p("10.20.0.2/32")}}},
			Addresses: []vrrp.Address{{Device: "int0", Prefix: p("172.16.0.1/32")}},
		}}},
		Status:  &process.Status{Config: "imbang.yaml", Groups: []process.Group{{Name: "web", State: "backup", Routers: []process.Router{{Source: "10.20.0.11", Master: "10.20.0.12"}}}}},
		Devices: []VRRPDevice{{Name: "ext0", Promote: true, ReversePath: 1}, {Name: "int0", Promote: true}},
		Routes:  map[netip.Addr]string{netip.MustParseAddr("10.20.0.12"): "ext0"},
		Rules:   parsed(`{"nftables": []}`),
	}
}

func parsed(text string) *ruleset.Rules {
	r, err := ruleset.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return r
}

// dropped are rules with a chain that drops everything.
func dropped(family, hook string) *ruleset.Rules {
	return parsed(`{"nftables": [{"chain": {"family": "` + family + `", "table": "t", "name": "c", "type": "filter", "hook": "` + hook + `", "prio": 0, "policy": "drop"}}]}`)
}

func TestVRRPHealthy(t *testing.T) {
	f := healthy()
	f.VRRP = moving()
	all := Examine(f)
	if !Fine(all) || !strings.Contains(lines(all), "vrrp: imbang vrrp runs: web backup") {
		t.Errorf("%s", lines(all))
	}
}

// Each fault is found, at its level, with its remedy.
func TestExamineVRRP(t *testing.T) {
	unicast := func(v *VRRP) {
		v.Setup.Groups[0].Routers[0].Peers = []netip.Addr{netip.MustParseAddr("10.20.0.12")}
	}
	web := func(v *VRRP) *process.Group { return &v.Status.Groups[0] }
	for _, c := range []struct {
		name  string
		fault func(v *VRRP)
		want  string
	}{
		{"no process", func(v *VRRP) { v.Status = nil }, "problem vrrp: imbang.yaml has the section vrrp, and imbang vrrp does not run in this network namespace: systemctl enable --now imbang-vrrp"},
		{"guards that were left", func(v *VRRP) {
			v.Status, v.Setup, v.Silent = nil, nil, []netip.Addr{netip.MustParseAddr("10.20.0.1"), netip.MustParseAddr("10.20.0.2")}
		}, "problem vrrp: the data plane guards 10.20.0.1 and 1 more without a lease, and imbang vrrp does not run: this host does not answer ARP requests and neighbour solicitations for what it guards: imbang vrrp clean"},
		{"guards that were left, and a section", func(v *VRRP) { v.Status, v.Silent = nil, []netip.Addr{netip.MustParseAddr("10.20.0.1")} },
			"for what it guards: systemctl start imbang-vrrp, or imbang vrrp clean"},
		{"no answer", func(v *VRRP) { v.Status, v.StatusError = nil, "no answer" }, "problem vrrp: no answer: systemctl status imbang-vrrp"},
		{"no section", func(v *VRRP) { v.Setup = nil }, "warning vrrp: imbang vrrp runs, and imbang.yaml has no section vrrp: systemctl stop imbang-vrrp"},
		{"file", func(v *VRRP) { v.Setup, v.FileError = nil, "imbang.yaml:3: wrong" }, "problem vrrp: imbang.yaml:3: wrong: imbang check imbang.yaml"},
		{"reload refused", func(v *VRRP) { v.Status.ReloadError = "wrong\nmore" }, "problem vrrp: the last reload was refused: wrong: imbang check imbang.yaml && systemctl reload imbang-vrrp"},
		{"not real-time", func(v *VRRP) { v.Status.NotRealTime = "SCHED_RR: operation not permitted\nmlockall" }, "warning vrrp: the process is not real-time, and other processes can delay its advertisements (SCHED_RR: operation not permitted)"},
		{"fault", func(v *VRRP) { web(v).Faults = []string{"ext0 is down"} }, "problem vrrp: group web is in fault: ext0 is down"},
		{"cannot send", func(v *VRRP) { web(v).SendError = "operation not permitted" }, "problem vrrp: group web cannot send advertisements: operation not permitted"},
		{"two masters", func(v *VRRP) { web(v).Counts.OtherMasters, web(v).Counts.Became = 3, 2 }, "warning vrrp: group web: another master was seen 3 times"},
		{"stalls", func(v *VRRP) { web(v).Counts.Stalls = 2 }, "warning vrrp: group web: the process or the host stood still 2 times"},
		{"strangers", func(v *VRRP) { web(v).Counts.Strangers = 2 }, "warning vrrp: group web: 2 advertisements came from directors that are not peers"},
		{"version 2", func(v *VRRP) { web(v).Refused = []process.Refused{{Reason: "version", Count: 9}} }, "warning vrrp: group web: 9 advertisements were refused: another version of VRRP: keepalived needs vrrp_version 3"},
		{"other reasons", func(v *VRRP) { web(v).Refused = []process.Refused{{Reason: "truncated", Count: 9}} }, "9 advertisements were refused: truncated"},
		{"missing device", func(v *VRRP) { v.Devices[1].Missing = true }, "problem vrrp: there is no device int0"},
		{"promote_secondaries", func(v *VRRP) { v.Devices[0].Promote = false }, "warning vrrp: promote_secondaries is off on ext0: Linux removes the other addresses of a network with its first one, such as 10.20.0.1/24, and they are missing until they are added again: sysctl -w net.ipv4.conf.ext0.promote_secondaries=1"},
		{"arp_ignore 8", func(v *VRRP) { v.Devices[0].ARPIgnore = 8 }, "problem vrrp: arp_ignore is 8 on ext0: no request for an address that moves is answered: sysctl -w net.ipv4.conf.ext0.arp_ignore=1"},
		{"arp_ignore 2", func(v *VRRP) { v.Devices[1].ARPIgnore = 2 }, "problem vrrp: arp_ignore is 2 on int0: requests for 172.16.0.1, which has no network, are not answered"},
		{"rp_filter of a backup", func(v *VRRP) { v.Routes[netip.MustParseAddr("10.20.0.12")] = "int0" }, "problem vrrp: rp_filter is strict on ext0, and the route to the other director, 10.20.0.12, is by int0: its advertisements are dropped: sysctl -w net.ipv4.conf.ext0.rp_filter=2"},
		{"rp_filter of peers", func(v *VRRP) {
			unicast(v)
			web(v).Routers[0].Master = ""
			v.Routes[netip.MustParseAddr("10.20.0.12")] = "int0"
		}, "problem vrrp: rp_filter is strict on ext0"},
		{"filtered", func(v *VRRP) { v.Rules = dropped("inet", "input") }, "problem vrrp: the firewall drops advertisements (protocol 112) that come in by ext0 (table inet t, chain c, policy drop): nft insert rule inet t c meta l4proto 112 accept"},
		{"filtered on the way out", func(v *VRRP) { unicast(v); v.Rules = dropped("ip", "output") }, "problem vrrp: the firewall drops advertisements (protocol 112) that go out by ext0 (table ip t, chain c, policy drop)"},
		{"perhaps filtered", func(v *VRRP) {
			v.Rules = parsed(`{"nftables": [{"chain": {"family": "ip", "table": "t", "name": "c", "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
				{"rule": {"family": "ip", "table": "t", "chain": "c", "handle": 2, "expr": [{"limit": {}}, {"accept": null}]}}]}`)
		}, "warning vrrp: the firewall may drop advertisements (protocol 112) that come in by ext0"},
		{"rules of iptables-legacy", func(v *VRRP) { v.LegacyRules = true }, "warning vrrp: iptables-legacy has rules, which are not examined: they have to accept protocol 112: iptables-legacy -S"},
		{"rules not known", func(v *VRRP) { v.Rules, v.RulesError = nil, "no nft" }, "warning vrrp: whether the firewall drops advertisements is not known: no nft"},
		{"networks by another device", func(v *VRRP) {
			web(v).Routers[0].Master = ""
			v.Devices[0].Astray = []Astray{{To: netip.MustParsePrefix("10.20.0.0/24"), By: "ext1"}}
		}, "problem vrrp: rp_filter is strict on ext0, and the route to its network 10.20.0.0/24 is by ext1: advertisements from there are dropped: sysctl -w net.ipv4.conf.ext0.rp_filter=2"},
		{"the other director by another device", func(v *VRRP) {
			web(v).Routers[0].Master = ""
			v.Devices[0].Astray = []Astray{{To: netip.MustParsePrefix("10.20.0.12/32"), By: "int0"}}
		}, "problem vrrp: rp_filter is strict on ext0, and the route to the other director, 10.20.0.12, is by int0"},
		{"keepalived", func(v *VRRP) { v.Keepalived = 7 }, "warning vrrp: keepalived runs too (process 7): with the same addresses or router identifiers both configure and announce them, and neither hears the other one: systemctl disable --now keepalived"},
		{"clock", func(v *VRRP) { v.ClockFree = true }, "warning vrrp: the clock is not synchronised: times in the logs of the directors cannot be compared: timedatectl set-ntp true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			f.VRRP = moving()
			c.fault(f.VRRP)
			all := Examine(f)
			found := slices.ContainsFunc(all, func(one Finding) bool {
				return one.Level != OK && strings.Contains(strings.Join(strings.Fields(one.String()), " "), c.want)
			})
			if !found || Fine(all) {
				t.Errorf("want %q among\n%s", c.want, lines(all))
			}
		})
	}
}

// What does not matter is not found: a strict rp_filter where the route is the same, rules of
// another family, promote_secondaries for addresses without a network.
func TestVRRPHarmless(t *testing.T) {
	for name, change := range map[string]func(v *VRRP){
		"rules of IPv6":        func(v *VRRP) { v.Rules = dropped("ip6", "input") },
		"single addresses":     func(v *VRRP) { v.Devices[1].Promote = false },
		"preempted a master":   func(v *VRRP) { v.Status.Groups[0].Counts = process.Counts{Became: 2, OtherMasters: 2} },
		"arp_ignore 1":         func(v *VRRP) { v.Devices[0].ARPIgnore = 1 },
		"master not known yet": func(v *VRRP) { v.Status.Groups[0].Routers[0].Master = "" },
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			f.VRRP = moving()
			change(f.VRRP)
			if all := Examine(f); !Fine(all) {
				t.Errorf("%s", lines(all))
			}
		})
	}
}

// The facts of a namespace whose state is known, with a file and without a process.
func TestGatherVRRP(t *testing.T) {
	ns := testenv.Namespace(t, "docv")
	file := filepath.Join(t.TempDir(), "imbang.yaml")
	text := `services: []
vrrp:
  groups:
    - name: web
      routers:
        - {device: ext0, id: 51, source: 10.20.0.11, peers: [10.20.0.12], addresses: [10.20.0.1/24]}
        - {device: none0, id: 51, addresses: ["fe80::1/64"]}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		host.Connect(host.End{NS: ns, Name: "ext0"}, host.End{NS: ns, Name: "int0"}, host.LinkOptions{}),
		ns.AddAddresses("ext0", netip.MustParsePrefix("10.20.0.11/32")), ns.AddAddresses("int0", netip.MustParsePrefix("10.20.0.13/24")),
		ns.Sysctl("net.ipv4.conf.all.rp_filter", "1"), ns.Sysctl("net.ipv4.conf.ext0.rp_filter", "1"),
		ns.Sysctl("net.ipv4.conf.all.promote_secondaries", "0"), ns.Sysctl("net.ipv4.conf.ext0.promote_secondaries", "0"),
		ns.Sysctl("net.ipv4.conf.ext0.arp_ignore", "8"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var all []Finding
	err := ns.Do(func() error {
		c := exec.Command("nft", "-f", "-")
		c.Stdin = strings.NewReader("table inet filter { chain in { type filter hook input priority 0; policy drop; tcp dport 22 accept; }\n}\n")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("nft: %s", out)
			return err
		}
		f, err := Gather("", "", file)
		f.VRRP.ClockFree = false // as it may be on this machine
		examineVRRP(report{"vrrp", &all}, f.VRRP)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := lines(all)
	for _, want := range []string{
		"has the section vrrp, and imbang vrrp does not run", "there is no device none0", "promote_secondaries is off on ext0", "arp_ignore is 8 on ext0",
		"rp_filter is strict on ext0, and the route to the other director, 10.20.0.12, is by int0", "that come in by ext0 (table inet filter, chain in, policy drop)",
		"that come in by none0, of IPv6, (table inet filter",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if len(all) != 7 {
		t.Errorf("%d findings:\n%s", len(all), got)
	}
}

// A backup has no address that moves, and is not told to add it: then two hosts would have it.
func TestMovingAddressesOfABackup(t *testing.T) {
	f := healthy()
	f.Services[0].Route, f.VRRP = host.NoRoute, moving()
	f.VRRP.Setup.Groups[0].Addresses = append(f.VRRP.Setup.Groups[0].Addresses, vrrp.Address{Device: "ext0", Prefix: netip.PrefixFrom(f.Services[0].Key.Addr, 32)})
	if all := Examine(f); !Fine(all) {
		t.Errorf("%s", lines(all))
	}
}

// Nothing is advised about a device that is not there, but that it is missing.
func TestMissingDeviceAlone(t *testing.T) {
	v := moving()
	v.Devices[0] = VRRPDevice{Name: "ext0", Missing: true}
	var all []Finding
	examineVRRP(report{"vrrp", &all}, v)
	if len(all) != 1 || !strings.Contains(lines(all), "there is no device ext0") {
		t.Errorf("%s", lines(all))
	}
}

// Both directors are master: the link of the pair tells it, also where nothing is heard by VRRP.
func TestExamineMasters(t *testing.T) {
	for name, c := range map[string]struct {
		there, here string
		merging     bool
		want        bool
	}{
		"two masters":    {"master", "master", false, true},
		"one yields":     {"master", "master", true, false},
		"a backup":       {"master", "backup", false, false},
		"one is backup":  {"backup", "master", false, false},
		"of other group": {"", "master", false, false},
	} {
		v, p := moving(), &Pair{Pair: api.Pair{Peer: "10.0.0.2:8791", Reached: true}}
		v.Status.Groups[0].State, v.Status.Groups[0].Merging = c.here, c.merging
		if c.there != "" {
			p.PeerGroups = []api.PeerGroup{{Group: "web", State: c.there}}
		}
		var all []Finding
		examineMasters(report{"pair", &all}, p, v)
		if found := strings.Contains(lines(all), "problem  pair: both directors are master of group web: advertisements (protocol 112) do not pass"); found != c.want {
			t.Errorf("%s: %q", name, lines(all))
		}
		p.Reached = false
		if all = nil; c.want {
			if examineMasters(report{"pair", &all}, p, v); len(all) > 0 {
				t.Errorf("%s, not reached: %q", name, lines(all))
			}
		}
	}
}

// The process of this test is found by its name, and only in its network namespace.
func TestProcessHere(t *testing.T) {
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if got := processHere(strings.TrimSpace(string(comm))); got == 0 {
		t.Errorf("%s was not found", comm)
	}
	if got := processHere("no such name"); got != 0 {
		t.Errorf("found %d", got)
	}
}
