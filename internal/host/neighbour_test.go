// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"
)

// The kernel finds a neighbour's hardware address when it is asked, and has none of an
// address that nobody has.
func TestNeighbour(t *testing.T) {
	ns, other := withDevice(t)
	want, err := other.LinkMAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	index, err := ns.LinkIndex("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"10.20.0.11/24", "2001:db8::11/64"} {
		if err := ns.AddAddresses("eth0", netip.MustParsePrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"10.20.0.12/24", "2001:db8::12/64"} {
		if err := other.AddAddresses("eth0", netip.MustParsePrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	find := func(text string) (mac net.HardwareAddr) {
		if err := ns.Do(func() (err error) { mac, err = NeighbourMAC(index, netip.MustParseAddr(text)); return err }); err != nil {
			t.Fatal(err)
		}
		return mac
	}
	for _, text := range []string{"10.20.0.12", "2001:db8::12"} {
		var got net.HardwareAddr
		for deadline := time.Now().Add(time.Minute); got == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			got = find(text)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for range 3 {
		if got := find("10.20.0.13"); got != nil {
			t.Errorf("%s", got)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
