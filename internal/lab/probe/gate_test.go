// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

// A closed gate lets nothing pass in either direction, and the carrier stays.
func TestGate(t *testing.T) {
	testenv.Root(t)
	a, b := testenv.Namespace(t, "a"), testenv.Namespace(t, "b")
	if err := host.Connect(host.End{NS: a, Name: "eth0"}, host.End{NS: b, Name: "eth0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	own, other := netip.MustParsePrefix("10.0.0.1/24"), netip.MustParsePrefix("10.0.0.2/24")
	for ns, address := range map[*host.Namespace]netip.Prefix{a: own, b: other} {
		if err := ns.AddAddresses("eth0", address); err != nil {
			t.Fatal(err)
		}
	}
	g, err := NewGate()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.Attach(a, "eth0"); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []*host.Namespace{a, b} {
		(&rig{t, ns}).awaitUp("eth0")
	}
	for _, closed := range []bool{false, true, false} {
		if err := g.Set(closed); err != nil {
			t.Fatal(err)
		}
		for ns, to := range map[*host.Namespace]netip.Addr{a: other.Addr(), b: own.Addr()} {
			if err := ns.Do(func() error {
				answers, err := host.Answered("eth0", []netip.Addr{to}, 100*time.Millisecond)
				if closed && errors.Is(err, unix.ENOBUFS) {
					err = nil // a sender behind the gate is told
				}
				if got := len(answers) == 1; err == nil && got == closed {
					t.Errorf("closed %t: %s answers: %t", closed, to, got)
				}
				devices, err2 := host.Devices()
				if err2 == nil && !devices["eth0"].Up {
					t.Errorf("closed %t: no carrier", closed)
				}
				if err == nil {
					err = err2
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
