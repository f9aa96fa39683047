// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp"
)

// In a flood the kernel drops what does not come from a peer, or not directly from the link.
func TestStrict(t *testing.T) {
	a, b := pair(t)
	for _, six := range []bool{false, true} {
		source, destination, group, level, key := a4, b4, vrrp.Group4, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL
		if six {
			source, destination, group, level, key = a6, b6, vrrp.Group6, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS
		}
		sender, receiver := open(t, a, six, true, 51), open(t, b, six, true)
		other := netip.MustParseAddr("192.0.2.77")
		if six {
			other = netip.MustParseAddr("fe80::77")
		}
		if err := receiver.Accept([]Rule{{ID: 1}, {ID: 2, Peers: []netip.Addr{other, source}}, {ID: 3, Peers: []netip.Addr{other}}}); err != nil {
			t.Fatal(err)
		}
		// count sends one of each, and waits for so many, and a moment for more.
		count := func(want int) (ids string) {
			t.Helper()
			far := func(hops int) {
				if err := unix.SetsockoptInt(sender.fd, level, key, hops); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range []struct {
				id   byte
				to   netip.Addr
				hops int
			}{{1, group, 255}, {1, group, 254}, {1, destination, 255}, {2, destination, 255}, {3, destination, 255}, {4, group, 255}} {
				far(m.hops)
				if err := sender.Send([]byte{0x31, m.id, 100}, source, m.to); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range received(t, receiver, want) {
				ids += m[len(m)-4 : len(m)-2] // hexadecimal
			}
			return ids
		}
		count(5) // resolves neighbours
		if got := count(5); got != "0101010203" {
			t.Errorf("IPv6 %t: %s", six, got)
		}
		if err := receiver.Strict(); err != nil {
			t.Fatal(err)
		}
		if got := count(2); got != "0102" {
			t.Errorf("IPv6 %t, strict: %s", six, got)
		}
		// More peers than a jump of 8 bits reaches, and more than a program has room for.
		many := func(n int) error {
			return receiver.Accept([]Rule{{ID: 4, Peers: slices.Repeat([]netip.Addr{other}, n)}, {ID: 1}})
		}
		if err := many(3000); err == nil {
			t.Errorf("IPv6 %t: a filter of more than 4096 instructions", six)
		}
		if err := many(100); err != nil {
			t.Errorf("IPv6 %t: %v", six, err)
		}
		if got := count(1); got != "01" {
			t.Errorf("IPv6 %t, many: %s", six, got)
		}
	}
}

// A socket has room for the programs of as many virtual routers as there can be on a device, the
// former one and its successor, with the least net.core.optmem_max of Linux's versions.
func TestManyRouters(t *testing.T) {
	a, b := pair(t)
	_ = b.Sysctl("net.core.optmem_max", "20480") // of the namespace since Linux 6.8
	for _, six := range []bool{false, true} {
		source, group := a4, vrrp.Group4
		if six {
			source, group = a6, vrrp.Group6
		}
		sender, receiver := open(t, a, six, true, 51), open(t, b, six, true)
		for _, strict := range []bool{false, true} {
			if strict {
				if err := receiver.Strict(); err != nil {
					t.Errorf("IPv6 %t, strict: %v", six, err)
				}
			}
			var ids []uint8
			for id := 1; id < 256; id++ {
				if id == 200 {
					continue
				}
				if ids = append(ids, uint8(id)); id < 253 {
					continue
				}
				if err := receiver.Accept(rules(ids...)); err != nil {
					t.Errorf("IPv6 %t, strict %t, %d routers: %v", six, strict, len(ids), err)
				}
			}
			for _, id := range []byte{1, 200, 255} {
				if err := sender.Send([]byte{0x31, id, 100}, source, group); err != nil {
					t.Fatal(err)
				}
			}
			if got := received(t, receiver, 2); len(got) != 2 {
				t.Errorf("IPv6 %t, strict %t: %q", six, strict, got)
			}
		}
	}
}

// The next program goes on with a socket, and with no other descriptor.
func TestAdopt(t *testing.T) {
	a, b := pair(t)
	sender, receiver := open(t, a, false, true, 51), open(t, b, false, true, 51)
	k, err := receiver.Keep()
	if err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(k.FD), unix.F_GETFD, 0); err != nil || flags != 0 {
		t.Errorf("it is closed at an execution: %d, %v", flags, err)
	}
	if err := sender.Send([]byte{0x31, 51, 100}, a4, vrrp.Group4); err != nil {
		t.Fatal(err)
	}
	adopted, err := Adopt(k)
	if err != nil || !adopted.Joined() {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(k.FD), unix.F_GETFD, 0); err != nil || flags != unix.FD_CLOEXEC {
		t.Errorf("flags %d, %v", flags, err)
	}
	if err := adopted.Accept(rules(51)); err != nil {
		t.Fatal(err)
	}
	if got := received(t, adopted, 1); len(got) != 1 {
		t.Errorf("%q", got)
	}
	k.Cookie++
	if _, err := Adopt(k); err == nil {
		t.Error("another socket was adopted")
	}
	if _, err := Adopt(Kept{FD: 99999}); err == nil {
		t.Error("no socket was adopted")
	}
}
