// SPDX-License-Identifier: Apache-2.0

package director

import (
	"strings"
	"testing"

	"imbang/internal/host"
)

// The mode that is chosen, and why: by drivers and what the kernel says of them.
func TestChoose(t *testing.T) {
	const able = host.XDPBasic | host.XDPRedirect
	good := nature{name: "eth0", driver: "ice", features: able}
	other := nature{name: "eth1", driver: "newnic", features: able | host.XDPTransmit}
	veth := nature{name: "ext0", driver: "veth", features: able | host.XDPTransmit}
	idle := nature{name: "ext0", driver: "veth", features: able}
	trunk := nature{name: "eth0", driver: "ice", features: able, Tags: Tags{VLAN: "eth0.10", Hidden: true}}
	tagged := nature{name: "eth0", driver: "ice", features: able, Tags: Tags{VLAN: "eth0.10"}}
	pair := nature{name: "ext0", driver: "veth", features: able | host.XDPTransmit, Tags: Tags{VLAN: "ext0.10", Hidden: true}}
	stripping := nature{name: "eth0", driver: "ice", features: able, Tags: Tags{Hidden: true}}
	for _, c := range []struct {
		name    string
		asked   Mode
		devices []nature
		want    Mode
		says    string // of the reason, or of the refusal if want is ""
	}{
		{"tc", ModeTC, []nature{good}, ModeTC, "as asked"},
		{"generic, on anything", ModeXDPGeneric, []nature{{name: "br0", driver: "bridge"}}, ModeXDPGeneric, "as asked"},
		{"xdp", ModeXDP, []nature{good, other}, ModeXDP, "as asked"},
		{"xdp, veth", ModeXDP, []nature{veth, veth}, ModeXDP, "as asked"},
		{"xdp, peer does not poll", ModeXDP, []nature{veth, idle}, "", "ext0: what is sent by it from XDP would vanish, as its peer does not poll (at the other end: ethtool -K PEER gro on)"},
		{"xdp, too few queues", ModeXDP, []nature{{name: "ext0", driver: "veth"}}, "", "its peer sends by more queues than it has"},
		{"xdp, no driver", ModeXDP, []nature{{name: "br0", driver: "bridge"}}, "", "br0: its driver bridge has no native XDP that redirects"},
		{"xdp, nameless driver", ModeXDP, []nature{{name: "x0"}}, "", "x0: its driver (unnamed) has no"},
		{"xdp, kernel does not tell, known driver", ModeXDP, []nature{{name: "eth0", driver: "ice", unknown: true}}, ModeXDP, "as asked"},
		{"xdp, kernel does not tell, other driver", ModeXDP, []nature{{name: "eth1", driver: "newnic", unknown: true}}, "", "this kernel does not say"},
		{"tc, VLANs", ModeTC, []nature{trunk}, ModeTC, "as asked"},
		{"xdp, VLANs", ModeXDP, []nature{trunk}, "", "eth0: XDP could not tell its frames from those of its VLAN device eth0.10, as it takes the tags off (ethtool -K eth0 rxvlan off)"},
		{"xdp, VLANs whose tags stay", ModeXDP, []nature{tagged}, ModeXDP, "as asked"},
		{"generic, VLANs whose tags stay", ModeXDPGeneric, []nature{tagged}, ModeXDPGeneric, "as asked"},
		{"xdp, VLANs of a veth", ModeXDP, []nature{veth, pair}, "", "those of its VLAN device ext0.10"},
		{"xdp, no VLANs", ModeXDP, []nature{stripping}, ModeXDP, "as asked"},
		{"generic, VLANs", ModeXDPGeneric, []nature{trunk}, "", "VLAN device eth0.10"},
		{"auto, VLANs", ModeAuto, []nature{trunk}, ModeTC, "VLAN device eth0.10"},
		{"auto, tried", ModeAuto, []nature{good, good}, ModeXDP, "XDP was tried on hardware with both drivers"},
		{"auto, one other", ModeAuto, []nature{good, other}, ModeTC, "eth1: XDP was not tried on hardware with its driver newnic (--mode xdp tries it)"},
		{"auto, veth", ModeAuto, []nature{veth}, ModeTC, "ext0 is a veth"},
		{"auto, unable", ModeAuto, []nature{{name: "br0", driver: "bridge"}}, ModeTC, "no native XDP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := choose(c.asked, c.devices, []string{"ice"})
			if c.want == "" {
				if err == nil || !strings.Contains(err.Error(), "XDP is not possible: ") || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, %v; want a refusal that says %q", got, err, c.says)
				}
				return
			}
			if err != nil || got.Mode != c.want || !strings.Contains(got.Why, c.says) {
				t.Errorf("%v, %v; want mode %s as %q", got, err, c.want, c.says)
			}
		})
	}
	// Once it has a program a driver says whether it sends others' packets.
	if why := good.unableNative(true); !strings.Contains(why, "does not send what XDP redirects to it") {
		t.Errorf("%q", why)
	}
	if why := other.unableNative(true); why != "" {
		t.Errorf("%q", why)
	}
}

// No driver was tried on hardware yet: auto is tc, whatever the drivers offer.
func TestAutoIsTC(t *testing.T) {
	for _, driver := range append([]string{"newnic", "veth"}, nativeDrivers...) {
		n := nature{name: "eth0", driver: driver, features: host.XDPBasic | host.XDPRedirect | host.XDPTransmit}
		got, err := choose(ModeAuto, []nature{n, n}, triedDrivers)
		if err != nil || got.Mode != ModeTC {
			t.Errorf("%s: %v, %v; want mode tc", driver, got, err)
		}
	}
}
