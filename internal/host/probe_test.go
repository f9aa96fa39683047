// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Of addresses of both families those are found that another machine has.
func TestAnswered(t *testing.T) {
	run := needNamespaces(t)
	here, there := newNamespace(t, run.Name("here")), newNamespace(t, run.Name("there"))
	for _, ns := range []*Namespace{here, there} {
		if err := ns.Sysctl("net.ipv6.conf.default.accept_dad", "0"); err != nil {
			t.Fatal(err)
		}
	}
	const mac = "02:00:00:00:00:99"
	if err := Connect(End{NS: here, Name: "eth0"}, End{NS: there, Name: "eth0", MAC: mac}, LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := here.AddAddresses("eth0", netip.MustParsePrefix("10.20.0.9/24"), netip.MustParsePrefix("fd00:20::9/64")); err != nil {
		t.Fatal(err)
	}
	if err := there.AddAddresses("eth0", netip.MustParsePrefix("10.20.0.1/24"), netip.MustParsePrefix("fd00:20::1/64")); err != nil {
		t.Fatal(err)
	}
	var ask []netip.Addr
	for _, a := range []string{"10.20.0.1", "10.20.0.2", "fd00:20::1", "fd00:20::2"} {
		ask = append(ask, netip.MustParseAddr(a))
	}
	their, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr]net.HardwareAddr{ask[0]: their, ask[2]: their}
	var got map[netip.Addr]net.HardwareAddr
	// The link becomes ready for IPv6 after a moment.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		err = here.Do(func() (err error) {
			got, err = Answered("eth0", ask, 100*time.Millisecond)
			return err
		})
		if err == nil && len(got) == len(want) {
			break
		}
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, dev := range []string{"lo", "eth9"} {
		if err := here.Do(func() error { _, err := Answered(dev, ask, 0); return err }); err == nil {
			t.Errorf("%s: no error", dev)
		}
	}
}
