// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
)

func testWholeVRRP(t *testing.T, c *Config) {
	t.Helper()
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	want := &setup.Setup{
		Grace: 5 * time.Second, Servers: []netip.Addr{addr("172.16.0.2"), addr("172.16.0.3"), addr("2001:db8::2")},
		Director: &setup.Director{Devices: []string{"eth0", "eth1"}},
		Scripts: []setup.Script{{
			Name: "web", Command: []string{"/usr/local/bin/check-web", "--fast"}, User: "checker",
			Interval: 2 * time.Second, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 3, Weight: -20,
		}},
		Groups: []setup.Group{
			{
				Name: "web", Priority: 150, Interval: 50 * time.Millisecond, PreemptDelay: 5 * time.Second, Hold: 10 * time.Second,
				AwaitSync: true, Merge: 800 * time.Millisecond, PlainChecksum: true, Announcements: 3, AnnounceAgain: 2 * time.Second, AnnounceEvery: 30 * time.Second,
				Routers: []setup.Router{
					{
						Device: "eth0", ID: 51, Source: addr("192.0.2.1"), Peers: []netip.Addr{addr("192.0.2.2"), addr("192.0.2.3")},
						Addresses: []netip.Prefix{prefix("10.30.0.1/24"), prefix("10.30.0.2/32")},
					},
					{Device: "eth0", ID: 51, Addresses: []netip.Prefix{prefix("fe80::1:1/64"), prefix("2001:db8:3::1/64")}},
				},
				Addresses: []vrrp.Address{{Device: "eth1", Prefix: prefix("172.16.0.1/24")}},
				Devices:   []setup.Device{{Name: "eth2", Weight: 10}, {Name: "eth3"}},
				Scripts:   []string{"web"},
				Notify:    []string{"/usr/local/bin/notify", "--vrrp"},
				NotifyStates: map[vrrp.State][]string{
					vrrp.Master: {"/usr/local/bin/master"}, vrrp.Backup: {"/usr/local/bin/backup"},
					vrrp.Fault: {"/usr/local/bin/fault"}, vrrp.Initialize: {"/usr/local/bin/stop"},
				},
			},
			{
				Name: "mail", Priority: 100, Interval: time.Second, NoPreempt: true, Announcements: 5, AnnounceAgain: 5 * time.Second, AnnounceEvery: time.Minute,
				Routers:      []setup.Router{{Device: "eth1", ID: 51, Addresses: []netip.Prefix{prefix("10.30.0.3/24")}, Elsewhere: []vrrp.Address{{Device: "eth0", Prefix: prefix("203.0.113.5/24")}}}},
				NotifyStates: map[vrrp.State][]string{vrrp.Master: nil, vrrp.Backup: nil, vrrp.Fault: nil, vrrp.Initialize: nil},
			},
		},
	}
	if diff := cmp.Diff(want, c.VRRP, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// imbang vrrp knows the servers' addresses, as another director can be one of them.
func TestVRRPServers(t *testing.T) {
	c, err := Parse("x.yaml", []byte(`
vrrp: {track_director: false, groups: [{name: web, routers: [{device: eth0, id: 51, addresses: [10.20.0.1/24]}]}]}
services:
  - {name: web, virtual: "10.20.0.1:80", forward: direct-routing, servers: [{address: 10.20.0.12}, {address: 10.20.0.11}]}
  - {name: mail, virtual: "10.20.0.1:25", forward: direct-routing, servers: [{address: 10.20.0.11}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []netip.Addr{netip.MustParseAddr("10.20.0.11"), netip.MustParseAddr("10.20.0.12")}; !slices.Equal(c.VRRP.Servers, want) {
		t.Errorf("%v, want %v", c.VRRP.Servers, want)
	}
}

// A group of priority 255 preempts whatever preempt says, and imbang check says so.
func TestVRRPOwnerPreempts(t *testing.T) {
	for text, want := range map[string][]string{
		"priority: 255, preempt: false": {"x.yaml:2:63: vrrp.groups[0].preempt: priority 255 preempts all the same (RFC 9568, 6.1): write a priority of 254 or less, or remove preempt: false"},
		"priority: 255":                 nil,
		"priority: 255, preempt: true":  nil,
		"priority: 254, preempt: false": nil,
	} {
		c, err := Parse("x.yaml", []byte("vrrp:\n  groups: [{name: web, interval: 1 s, "+text+", routers: [{device: eth0, id: 1, addresses: [10.20.0.1]}]}]\n"))
		if err != nil || !slices.Equal(c.Warnings, want) {
			t.Errorf("%s: %q, %v", text, c.Warnings, err)
		}
	}
}
