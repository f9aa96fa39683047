// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"
	"os"
	"slices"
	"testing"

	"imbang/internal/host"
)

// A machine's ports are tap devices, which faults treat as those of namespaces, and its
// addresses are those that a namespace would have.
func TestPairOfMachines(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	run, err := host.NewRun(Prefix)
	if err != nil {
		t.Fatal(err)
	}
	p, err := BuildPair(run, PairSpec{Families: Families, Servers: 1, Machines: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if left := named(t, run); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	macs := map[string]bool{}
	for i := range p.Directors {
		m := p.Machine(i)
		fabric, ports := p.Ports(i)
		for n, d := range m.Devices {
			if d.Tap != ports[n] {
				t.Errorf("device %s has port %s, not %s", d.Name, d.Tap, ports[n])
			}
			if _, err := fabric.LinkIndex(d.Tap); err != nil {
				t.Error(err)
			}
			if mac, err := p.DirectorMAC(i, d.Name); err != nil || mac.String() != d.MAC.String() {
				t.Errorf("%s has %s, %v", d.Name, mac, err)
			}
			macs[d.MAC.String()] = true
		}
		want := []netip.Prefix{netip.MustParsePrefix("10.10.0.250/16"), netip.MustParsePrefix("fd00:10::fa/64")}
		if i == 0 && !slices.Equal(m.Devices[0].Addresses, want) {
			t.Errorf("%v, want %v", m.Devices[0].Addresses, want)
		}
		if len(m.Routes) != 2 || !slices.Contains(m.Settings, Setting{"net.ipv4.ip_forward", "1"}) {
			t.Errorf("%+v", m)
		}
	}
	if len(macs) != 6 {
		t.Errorf("%d hardware addresses of 6 devices", len(macs))
	}
	for _, bad := range []bool{true, false} {
		for _, err := range []error{p.Cut(0, bad), p.Split(bad)} {
			if err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := p.DirectorMAC(0, "eth9"); err == nil {
		t.Error("a device that there is not has a hardware address")
	}
}
