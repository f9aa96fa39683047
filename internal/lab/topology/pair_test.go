// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"imbang/internal/host"
)

// The directors see each other until they are kept apart, and clients see both all the time;
// a director whose port is down has no carrier.
func TestPair(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	run, err := host.NewRun(Prefix)
	if err != nil {
		t.Fatal(err)
	}
	p, err := BuildPair(run, PairSpec{Families: Families, Servers: 2, Direct: 2, Sides: true})
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
	// The kernel sends nothing by a new device until a worker of its own has noticed the carrier.
	meet := func(from *host.Namespace, device string, address netip.Addr, want bool) bool {
		t.Helper()
		var answers map[netip.Addr]net.HardwareAddr
		for deadline := time.Now().Add(time.Minute); ; {
			if err := from.Do(func() (err error) {
				answers, err = host.Answered(device, []netip.Addr{address}, 80*time.Millisecond)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if len(answers) == 1 || !want || time.Now().After(deadline) {
				return len(answers) == 1
			}
		}
	}
	second := map[string]netip.Addr{
		ClientDevice: netip.MustParseAddr("10.10.0.251"), ServerDevice: netip.MustParseAddr("172.16.0.251"), SyncDevice: SyncAddress(1),
	}
	for _, apart := range []bool{false, true, false} {
		if err := p.Split(apart); err != nil {
			t.Fatal(err)
		}
		for device, address := range second {
			if got := meet(p.Directors[0], device, address, !apart); got == apart {
				t.Errorf("apart %t: the first director reaches the second by %s: %t", apart, device, got)
			}
		}
		if !meet(p.Clients[0], "eth0", second[ClientDevice], true) || !meet(p.Servers[0].Namespace, "eth0", second[ServerDevice], true) {
			t.Errorf("apart %t: a client or server does not reach the second director", apart)
		}
	}
	// In a partition everything reaches its own half alone, by both families.
	firstDirector := []netip.Addr{netip.MustParseAddr("10.10.0.250"), netip.MustParseAddr("fd00:10::fa")}
	direct := netip.MustParseAddr("10.10.0.104")
	for _, apart := range []bool{true, false} {
		if err := p.Partition(apart); err != nil {
			t.Fatal(err)
		}
		for _, a := range firstDirector {
			if !meet(p.Clients[0], "eth0", a, true) || meet(p.Clients[1], "eth0", a, !apart) == apart || meet(p.Direct[1].Namespace, DirectDevice, a, !apart) == apart {
				t.Errorf("apart %t: who reaches %s is wrong", apart, a)
			}
		}
		if !meet(p.Servers[1].Namespace, "eth0", second[ServerDevice], true) || meet(p.Servers[0].Namespace, "eth0", second[ServerDevice], !apart) == apart {
			t.Errorf("apart %t: the servers that reach the second director are wrong", apart)
		}
		if !meet(p.Clients[1], "eth0", direct, true) {
			t.Errorf("apart %t: the second client does not reach %s", apart, direct)
		}
	}
	// Servers that reply directly have the virtual addresses, and do not answer for them.
	for _, f := range Families {
		if meet(p.Clients[0], "eth0", PairVirtual(f).Addr(), false) {
			t.Errorf("a server answers for %s", PairVirtual(f))
		}
	}
	for _, down := range []bool{true, false} {
		if err := p.Cut(0, down); err != nil {
			t.Fatal(err)
		}
		// The kernel tells of a carrier by a worker of its own.
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			var up bool
			if err := p.Directors[0].Do(func() error {
				devices, err := host.Devices()
				up = err == nil && devices[ClientDevice].Up
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if up != down {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the port is down: %t, the director's device is up: %t", down, up)
			}
		}
	}
}
