// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

var (
	a4, b4 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	a6, b6 = netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::2")
)

// pair is two namespaces with a device eth0 each, and their addresses.
func pair(t *testing.T) (a, b *host.Namespace) {
	t.Helper()
	a, b = testenv.Namespace(t, "a"), testenv.Namespace(t, "b")
	for _, ns := range []*host.Namespace{a, b} {
		if err := ns.Sysctl("net.ipv6.conf.default.accept_dad", "0"); err != nil {
			t.Fatal(err)
		}
		if err := ns.Sysctl("net.ipv6.conf.default.addr_gen_mode", "1"); err != nil { // no link-local address of its own
			t.Fatal(err)
		}
	}
	if err := host.Connect(host.End{NS: a, Name: "eth0"}, host.End{NS: b, Name: "eth0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for ns, addresses := range map[*host.Namespace][]netip.Addr{a: {a4, a6}, b: {b4, b6}} {
		for _, address := range addresses {
			bits := 24
			if address.Is6() {
				bits = 64
			}
			if err := ns.AddAddresses("eth0", netip.PrefixFrom(address, bits)); err != nil {
				t.Fatal(err)
			}
			// The kernel delivers nothing to an IPv6 address before it has added its route.
			for own := false; !own; time.Sleep(time.Millisecond) {
				if err := ns.Do(func() (err error) { own, err = host.IsOwn(address); return err }); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return a, b
}

func open(t *testing.T, ns *host.Namespace, six, multicast bool, ids ...uint8) (s *Socket) {
	t.Helper()
	index, err := ns.LinkIndex("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Do(func() (err error) { s, err = Open(Where{Device: "eth0", Index: index, IPv6: six}); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := errors.Join(s.Accept(rules(ids...)), s.Join(multicast)); err != nil {
		t.Fatal(err)
	}
	return s
}

func rules(ids ...uint8) (all []Rule) {
	for _, id := range ids {
		all = append(all, Rule{ID: id})
	}
	return all
}

// received waits for so many messages, and a moment for more.
func received(t *testing.T, s *Socket, want int) (all []string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		enough := len(all) >= want
		if _, err := s.Receive(func(m []byte, p vrrp.Packet) {
			all = append(all, fmt.Sprintf("%v > %v, %d: %x", p.Source, p.Destination, p.HopLimit, m))
		}); err != nil {
			t.Fatal(err)
		}
		if enough || time.Now().After(deadline) {
			return all
		}
		if len(all) >= want {
			time.Sleep(30 * time.Millisecond)
		}
	}
}

// Advertisements arrive by multicast and unicast, of both families, with what their IP
// headers say; and those of other virtual routers do not.
func TestSocket(t *testing.T) {
	a, b := pair(t)
	for _, c := range []struct {
		name             string
		source, to, from netip.Addr
		multicast        bool
	}{
		{"IPv4 multicast", a4, vrrp.Group4, b4, true},
		{"IPv4 unicast", a4, b4, b4, false},
		{"IPv6 multicast", a6, vrrp.Group6, b6, true},
		{"IPv6 unicast", a6, b6, b6, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			six := c.source.Is6()
			sender, receiver := open(t, a, six, c.multicast, 51), open(t, b, six, c.multicast, 7, 51)
			send := func(m ...byte) {
				t.Helper()
				if err := sender.Send(m, c.source, c.to); err != nil {
					t.Fatal(err)
				}
			}
			send(0x31, 51, 100)
			send(0x31, 52, 100) // of no virtual router here
			send(0x31, 7, 99)
			send(0x31) // too short
			line := func(m string) string { return fmt.Sprintf("%v > %v, 255: %s", c.source, c.to, m) }
			if got, want := received(t, receiver, 2), []string{line("313364"), line("310763")}; !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if got := received(t, sender, 0); len(got) > 0 {
				t.Errorf("it received its own: %q", got)
			}
			// Another set of identifiers, without multicast.
			if err := errors.Join(receiver.Accept(rules(52)), receiver.Join(false)); err != nil {
				t.Fatal(err)
			}
			send(0x31, 51, 100)
			send(0x31, 52, 100)
			want := []string{line("313464")}
			if c.multicast {
				want = nil
			}
			if got := received(t, receiver, len(want)); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// A message whose hop limit is not 255 arrives with it, for package vrrp to refuse.
func TestHopLimit(t *testing.T) {
	a, b := pair(t)
	for _, six := range []bool{false, true} {
		sender, receiver := open(t, a, six, true, 51), open(t, b, six, true, 51)
		level, key, source, to := unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, a4, vrrp.Group4
		if six {
			level, key, source, to = unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, a6, vrrp.Group6
		}
		if err := unix.SetsockoptInt(sender.fd, level, key, 254); err != nil {
			t.Fatal(err)
		}
		advertisement := vrrp.Advertisement{ID: 51, Priority: 100, Interval: time.Second, Addresses: []netip.Addr{source}}
		m, err := advertisement.Append(nil, source, to)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.Send(m, source, to); err != nil {
			t.Fatal(err)
		}
		var reasons []vrrp.Reason
		for deadline := time.Now().Add(time.Minute); len(reasons) == 0 && time.Now().Before(deadline); {
			_, _ = receiver.Receive(func(m []byte, p vrrp.Packet) {
				var got vrrp.Advertisement
				reasons = append(reasons, vrrp.Parse(m, p, 51, false, &got))
			})
		}
		if !slices.Equal(reasons, []vrrp.Reason{vrrp.ReasonHopLimit}) {
			t.Errorf("IPv6 %t: %v", six, reasons)
		}
	}
}

// Packets that the kernel drops for lack of room are counted, and a flood does not keep the
// reader.
func TestDropped(t *testing.T) {
	a, b := pair(t)
	sender, receiver := open(t, a, false, true, 51), open(t, b, false, true, 51)
	const sent = 20000
	for range sent {
		_ = sender.Send([]byte{0x31, 51, 100}, a4, vrrp.Group4) // its own queue may be full
	}
	got, calls := 0, 0
	for all := false; !all; calls++ {
		before := got
		var err error
		if all, err = receiver.Receive(func([]byte, vrrp.Packet) { got++ }); err != nil {
			t.Fatal(err)
		}
		if got-before > atOnce {
			t.Fatalf("%d at once", got-before)
		}
	}
	if calls < 2 || got >= sent {
		t.Fatalf("%d of %d packets in %d calls: want some dropped", got, sent, calls)
	}
	// The count comes with a packet that is queued later.
	if err := sender.Send([]byte{0x31, 51, 100}, a4, vrrp.Group4); err != nil {
		t.Fatal(err)
	}
	received(t, receiver, 1)
	if receiver.Dropped() == 0 {
		t.Error("no dropped packets are counted")
	}
}

func TestOpenErrors(t *testing.T) {
	a, _ := pair(t)
	err := a.Do(func() error { _, err := Open(Where{Device: "eth9", Index: 9}); return err })
	if err == nil || !strings.HasPrefix(err.Error(), "VRRP on device eth9: SO_BINDTODEVICE: ") {
		t.Errorf("%v", err)
	}
	s := open(t, a, true, false, 1)
	if err := s.Send([]byte{1}, a4, b4); err == nil {
		t.Error("an IPv4 source by IPv6")
	}
}
