// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net"
	"net/netip"
	"testing"
)

func TestBeside(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	device := func(index int, mac net.HardwareAddr, all ...string) *Device {
		d := &Device{Index: index, MAC: mac}
		for _, p := range all {
			d.Addresses = append(d.Addresses, DeviceAddress{Prefix: netip.MustParsePrefix(p)})
		}
		return d
	}
	devices := map[string]*Device{
		"lo": device(1, nil, "127.0.0.1/8", "10.20.0.1/32"), "eth1": device(3, mac, "172.16.0.2/24", "172.16.0.1/24"),
		"eth0": device(2, mac, "10.10.0.2/24", "fd00::2/64"), "eth2": device(4, mac, "172.16.0.9/16"), "tun0": device(5, nil, "10.9.0.2/24"),
	}
	for a, want := range map[string]struct {
		on  []int
		own bool
	}{
		"10.10.0.3": {[]int{2}, false}, "fd00::3": {[]int{2}, false}, "172.16.0.3": {[]int{3, 4}, false}, "172.16.0.1": {[]int{3, 4}, true},
		"10.20.0.1": {nil, true}, "10.9.0.3": {nil, false}, "192.0.2.1": {nil, false},
	} {
		on, own := Beside(devices, netip.MustParseAddr(a))
		same := len(on) == len(want.on)
		for i := range on {
			same = same && on[i].Index == want.on[i]
		}
		if !same || own != want.own {
			t.Errorf("%s: %v, own %v", a, on, own)
		}
	}
}
