// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestAnnouncements(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	for _, c := range []struct {
		name, want string
		got        []byte
	}{
		{"ARP", "00010800060400010200000000070a1400010000000000000a140001", arpPacket(netip.MustParseAddr("10.20.0.1"), netip.MustParseAddr("10.20.0.1"), mac)},
		{"ARP probe", "0001080006040001020000000007000000000000000000000a140001", arpPacket(netip.IPv4Unspecified(), netip.MustParseAddr("10.20.0.1"), mac)},
		{"advertisement", "8800000020000000fd0000200000000000000000000000010201020000000007", advertisement(netip.MustParseAddr("fd00:20::1"), mac, false)},
		{"router's advertisement", "88000000a0000000fd0000200000000000000000000000010201020000000007", advertisement(netip.MustParseAddr("fd00:20::1"), mac, true)},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// A neighbour that has another host's hardware address for an address has the new owner's
// after an announcement.
func TestNeighboursFollowAnnouncements(t *testing.T) {
	run := needNamespaces(t)
	host, neighbour := newNamespace(t, run.Name("host")), newNamespace(t, run.Name("nb"))
	for _, ns := range []*Namespace{host, neighbour} {
		if err := ns.Sysctl("net.ipv6.conf.default.accept_dad", "0"); err != nil {
			t.Fatal(err)
		}
	}
	const mac, earlier = "02:00:00:00:00:07", "02:00:00:00:00:99"
	if err := Connect(End{NS: host, Name: "eth0", MAC: mac}, End{NS: neighbour, Name: "eth0"}, LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	addresses := []netip.Prefix{netip.MustParsePrefix("10.20.0.1/24"), netip.MustParsePrefix("fd00:20::1/64")}
	if err := neighbour.AddAddresses("eth0", netip.MustParsePrefix("10.20.0.9/24"), netip.MustParsePrefix("fd00:20::9/64")); err != nil {
		t.Fatal(err)
	}
	entries := func() string {
		out, err := exec.Command("ip", "-n", neighbour.Name(), "neigh", "show", "dev", "eth0").CombinedOutput()
		if err != nil {
			t.Fatal(err, string(out))
		}
		return string(out)
	}
	for _, p := range addresses {
		has := func(mac string) bool { return strings.Contains(entries(), fmt.Sprintf("%s lladdr %s", p.Addr(), mac)) }
		if out, err := exec.Command("ip", "-n", neighbour.Name(), "neigh", "replace", p.Addr().String(), "lladdr", earlier, "dev", "eth0", "nud", "reachable").CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		if !has(earlier) {
			t.Fatalf("before: %s", entries())
		}
		if err := host.Do(func() error {
			if err := AddAddress("eth0", p); err != nil {
				return err
			}
			return Announce("eth0", p.Addr())
		}); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); !has(mac); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after the announcement of %s: %s", p, entries())
			}
		}
	}
	err := host.Do(func() error { return Announce("lo", netip.MustParseAddr("127.0.0.1")) })
	if err == nil || !strings.Contains(err.Error(), "no Ethernet address") {
		t.Error(err)
	}
	if err := host.Down("eth0"); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"10.20.0.1", "fd00:20::1"} {
		err := host.Do(func() error { return Announce("eth0", netip.MustParseAddr(a)) })
		if err == nil || !strings.Contains(err.Error(), "announce "+a+": the device is down") {
			t.Errorf("%s on a device that is down: %v", a, err)
		}
	}
}
