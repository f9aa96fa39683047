// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

func (r *rig) failover() (f *Failover) {
	r.Helper()
	r.must(r.ns.Do(func() (err error) {
		f, err = OpenFailover()
		return err
	}))
	r.Cleanup(func() { r.must(f.Close()) })
	return f
}

// in is the time by CLOCK_BOOTTIME after a while.
func in(after time.Duration) time.Duration {
	now, err := BootTime()
	if err != nil {
		panic(err)
	}
	return now + after
}

// In a grace period what may be of a connection of the former master is dropped, and reaches no
// stack that would reset it. All else goes on.
func TestGrace(t *testing.T) {
	t.Parallel()
	for _, oneDevice := range []bool{false, true} {
		r := newRig(t, small)
		if oneDevice {
			r.onOneDevice()
		}
		tcp := tcpService(vip, "rr")
		r.serve(tcp, model.Server{Addr: netip.MustParseAddrPort(server0).Addr(), Port: 8080, Weight: 1})
		udp := service(model.UDP, vip, "rr")
		r.serve(udp, model.Server{Addr: netip.MustParseAddrPort(server0).Addr(), Port: 53, Weight: 1})
		r.serve(persistent(tcpService("10.20.0.3:80", "rr")), model.Server{Addr: netip.MustParseAddrPort(server0).Addr(), Port: 81, Weight: 1})
		// Servers whose replies the port does not tell.
		r.serve(persistent(tcpService("10.20.0.4:0", "rr")), model.Server{Addr: serverAddr(1), Weight: 1})
		r.serve(ipv4.marked(markMasq), ipv4.real(2, 8080))
		r.serve(persistent(tcpService("10.20.0.5:21", "rr")), model.Server{Addr: serverAddr(3), Port: 21, Weight: 1})
		r.serve(tcpService("10.20.0.6:80", "rr"), model.Server{Addr: serverAddr(0), Port: 8080, Weight: 1})
		r.establish(client1, vip)
		r.must(r.Mark(MarkRule{netip.MustParsePrefix("10.20.0.7/32"), markMasq}))
		f := r.failover()
		client, server := r.fromClient, r.fromServer
		packets := []struct {
			name    string
			send    func() result
			forward bool // without a grace period
			in      verdict
		}{
			{"a client's of a connection", func() result { return client(testenv.TCP(client1, vip, "A")) }, true, redirect},
			{"a server's of a connection", func() result { return server(testenv.TCP(server0, client1, "A")) }, true, redirect},
			{"a client's of none", func() result { return client(testenv.TCP("10.10.0.9:9", vip, "PA")) }, false, drop},
			{"a reset", func() result { return client(testenv.TCP("10.10.0.9:9", vip, "R")) }, false, drop},
			{"a server's of none", func() result { return server(testenv.TCP(server0, "10.10.0.9:9", "A")) }, false, drop},
			{"a server's answer to a SYN", func() result { return server(testenv.TCP(server0, "10.10.0.9:9", "SA")) }, false, drop},
			{"to no service", func() result { return client(testenv.TCP("10.10.0.9:9", "10.20.0.1:99", "A")) }, false, pass},
			{"from no server", func() result { return server(testenv.TCP("172.16.0.10:99", "10.10.0.9:9", "A")) }, false, pass},
			{"a client's of a persistent service", func() result { return client(testenv.TCP("10.10.0.9:9", "10.20.0.3:80", "A")) }, false, drop},
			{"a SYN", func() result { return client(testenv.TCP("10.10.0.10:9", vip, "S")) }, true, redirect},
			{"a SYN to a persistent service", func() result { return client(testenv.TCP("10.10.0.10:10", "10.20.0.3:80", "S")) }, true, redirect},
			{"a server's of every port", func() result { return server(testenv.TCP(at(serverAddr(1).String(), 99), "10.10.0.9:9", "A")) }, false, drop},
			{"a server's of a mark", func() result { return server(testenv.TCP(at(serverAddr(2).String(), 8080), "10.10.0.9:9", "A")) }, false, drop},
			{"a server's of FTP data", func() result { return server(testenv.TCP(at(serverAddr(3).String(), 20), "10.10.0.9:9", "A")) }, false, drop},
			{"a client's of a mark", func() result { return client(testenv.TCP("10.10.0.9:9", "10.20.0.7:80", "A")) }, false, drop},
			{"a server's own SYN", func() result { return server(testenv.TCP(at(serverAddr(1).String(), 99), "10.10.0.9:9", "S")) }, false, pass},
			{"a server's own SYN from a service's port", func() result { return server(testenv.TCP(server0, "10.10.0.9:9", "S")) }, false, pass},
			{"a server's own datagram from a service's port", func() result { return server(testenv.UDP("172.16.0.10:53", "10.10.0.9:9", "x")) }, false, pass},
			{"UDP", func() result { return client(testenv.UDP("10.10.0.10:9", vip, "x")) }, true, redirect},
		}
		check := func(when string, grace bool) {
			for _, p := range packets {
				want := p.in
				if !grace && !p.forward {
					want = pass
				}
				if got := p.send(); got.verdict != want {
					t.Errorf("one device: %v: %s: %s: %v, want %v", oneDevice, when, p.name, got.verdict, want)
				}
			}
		}
		check("before", false)
		r.must(f.Grace(in(time.Hour)))
		reasons := r.reasonsOf(func() { check("in it", true) })
		if reasons["drop takeover"] != 9 {
			t.Errorf("reasons %v", reasons)
		}
		r.must(f.Grace(0))
		check("ended", false)
		r.must(f.Grace(in(3 * time.Second)))
		check("in a short one", true)
		time.Sleep(3050 * time.Millisecond)
		check("over", false)
		// A packet that would be scheduled with sloppy_tcp may be of the former master's
		// connection just as well. It is scheduled once the grace period is over.
		sloppy := testenv.TCP("10.10.0.11:9", vip, "A")
		r.must(r.Set(Setting{Name: "sloppy_tcp", Value: 1}), f.Grace(in(time.Hour)))
		if got := client(sloppy); got.verdict != drop {
			t.Errorf("one device: %v: sloppy_tcp in a grace period: %v", oneDevice, got.verdict)
		}
		r.must(f.Grace(0))
		if got := client(sloppy); got.verdict != redirect {
			t.Errorf("one device: %v: sloppy_tcp: %v", oneDevice, got.verdict)
		}
	}
}

// Once nothing is left to do, packets of unknown connections look at one word, which is 0.
func TestFailoverAtRest(t *testing.T) {
	t.Parallel()
	r, f := newHanding(t)
	works := func(when string, want bool) {
		t.Helper()
		r.fromClient(testenv.TCP("10.10.0.9:9", vip, "A"))
		var until uint64
		if r.must(f.words.Lookup(uint32(bpfobj.LbFailoverWordFAILOVER_WORKS), &until)); until != 0 != want {
			t.Errorf("%s: the word is %d", when, until)
		}
	}
	device := linkAddress(r.client, peerMAC)
	works("before", false)
	r.must(f.Grace(in(-time.Second)))
	works("a grace period that is over", false)
	r.must(f.Grace(in(time.Hour)), f.Grace(in(-time.Second)))
	works("a shorter one in place of a longer", false)
	r.must(f.Hand(device, in(time.Hour)), f.Grace(in(-time.Second)))
	works("handing over", true)
	r.must(f.Hand(device, 0))
	works("ended", false)
	r.must(f.Peers(device), f.Hand(device, in(-time.Second)))
	works("a peer", true)
	r.must(f.Peers())
	works("none", false)
}

// arpRequest asks for the hardware address of an address of IPv4.
func arpRequest(target string) []byte {
	frame := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 6},
		[]byte{0, 1, 8, 0, 6, 4, 0, 1}, []byte{2, 0, 0, 0, 0, 9}, []byte{10, 10, 0, 9}, make([]byte, 6), netip.MustParseAddr(target).AsSlice())
	return append(frame, make([]byte, 60-len(frame))...)
}

// solicitation is the same of IPv6, to all nodes that may have it or to one.
func solicitation(target string, unicast bool) []byte {
	to := netip.MustParseAddr(target).As16()
	mac, dst := []byte{0x33, 0x33, 0xff, to[13], to[14], to[15]}, []byte{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, to[13], to[14], to[15]}
	if unicast {
		mac, dst = []byte{2, 0, 0, 0, 0, 1}, to[:]
	}
	message := slices.Concat([]byte{135, 0, 0, 0, 0, 0, 0, 0}, to[:], []byte{1, 1, 2, 0, 0, 0, 0, 9})
	src := netip.MustParseAddr("fe80::9").As16()
	ip := make([]byte, 8)
	ip[0], ip[6], ip[7] = 0x60, 58, 255
	binary.BigEndian.PutUint16(ip[4:], uint16(len(message)))
	return slices.Concat(mac, []byte{2, 0, 0, 0, 0, 9, 0x86, 0xdd}, ip, src[:], dst, message)
}

// extended is a frame of IPv6 with a hop-by-hop header of padding (RFC 8200, 4.3).
func extended(frame []byte) []byte {
	out := slices.Concat(frame[:54], []byte{frame[20], 0, 1, 4, 0, 0, 0, 0}, frame[54:])
	out[20] = 0
	binary.BigEndian.PutUint16(out[18:], binary.BigEndian.Uint16(out[18:])+8)
	return out
}

// The kernel gets requests for a guarded address only while the lease of its group is fresh,
// and those for others at any time.
func TestGuardedAddresses(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	f := r.failover()
	asks := map[string]func() result{}
	for _, addr := range []string{"10.20.0.1", "10.20.0.2"} {
		asks[addr] = func() result { return r.send(r.progs.LbClient, skBuff{}, arpRequest(addr)) }
	}
	for _, addr := range []string{"fd00:20::1", "fd00:20::2"} {
		asks[addr] = func() result { return r.send(r.progs.LbClient, skBuff{}, solicitation(addr, false)) }
		asks[addr+" unicast"] = func() result { return r.send(r.progs.LbServer, skBuff{}, solicitation(addr, true)) }
	}
	want := func(when string, silent ...string) {
		t.Helper()
		for addr, ask := range asks {
			want := pass
			if slices.Contains(silent, addr) {
				want = drop
			}
			if got := ask(); got.verdict != want {
				t.Errorf("%s: %s: %v, want %v", when, addr, got.verdict, want)
			}
		}
	}
	want("nothing is guarded")
	four, six := netip.MustParseAddr("10.20.0.1"), netip.MustParseAddr("fd00:20::1")
	all := []string{"10.20.0.1", "fd00:20::1", "fd00:20::1 unicast"}
	r.must(f.Guard(map[netip.Addr]uint32{four: 3, six: 3}))
	want("no lease", all...)
	r.must(f.Renew(3, in(time.Hour)))
	want("a lease")
	r.must(f.Renew(4, in(time.Hour)), f.Renew(3, 0))
	want("another group's lease", all...)
	r.must(f.Renew(3, in(3*time.Second)))
	want("a short lease")
	time.Sleep(3050 * time.Millisecond)
	reasons := r.reasonsOf(func() { want("it is over", all...) })
	if reasons["drop guarded"] != 3 {
		t.Errorf("reasons %v", reasons)
	}
	r.must(f.Guard(map[netip.Addr]uint32{four: 4}))
	want("another group, whose number was renewed before it had addresses", "10.20.0.1")
	r.must(f.Renew(4, in(time.Hour)))
	want("another group")
	r.must(f.Renew(4, 0))
	want("one of the two", "10.20.0.1")
	r.must(f.Guard(nil))
	want("none any more")
	if err := f.Guard(map[netip.Addr]uint32{four: AddressGroups}); err == nil {
		t.Error("a group that there is no lease for")
	}
	// An address that its new host announces, in frames with a further tag and behind extension
	// headers.
	gratuitous := arpRequest("10.20.0.1")
	copy(gratuitous[28:32], gratuitous[38:42])
	tagged := slices.Concat(gratuitous[:12], []byte{0x81, 0, 0, 7}, arpRequest("10.20.0.1")[12:])
	r.must(f.Guard(map[netip.Addr]uint32{four: 3, six: 3}))
	for name, c := range map[string]struct {
		frame []byte
		want  verdict
	}{
		"gratuitous": {gratuitous, pass}, "tagged": {tagged, drop},
		"extension header":  {extended(solicitation("fd00:20::1", false)), drop},
		"another's, behind": {extended(solicitation("fd00:20::2", false)), pass},
	} {
		if got := r.send(r.progs.LbClient, skBuff{}, c.frame); got.verdict != c.want {
			t.Errorf("%s: %v, want %v", name, got.verdict, c.want)
		}
	}
	// What this host's kernel would tell others.
	own := arpRequest("10.10.0.9")
	copy(own[28:32], four.AsSlice())
	asking := solicitation("fd00:20::9", false)
	source := six.As16()
	copy(asking[22:38], source[:])
	telling := solicitation("fd00:20::1", false)
	telling[54] = 136
	for name, frame := range map[string][]byte{"request": own, "solicitation": asking, "advertisement": telling} {
		for _, leased := range []bool{false, true} {
			until, want := time.Duration(0), drop
			if leased {
				until, want = in(time.Hour), pass
			}
			r.must(f.Renew(3, until))
			if got := r.send(r.progs.LbLocal, skBuff{}, frame); got.verdict != want {
				t.Errorf("own %s, leased: %t: %v, want %v", name, leased, got.verdict, want)
			}
		}
	}
	for _, frame := range [][]byte{arpRequest("10.20.0.1"), solicitation("fd00:20::1", false)} {
		r.must(f.Renew(3, 0))
		if got := r.send(r.progs.LbLocal, skBuff{}, frame); got.verdict != pass {
			t.Errorf("a question of this host's own: %v", got.verdict)
		}
	}
	// Answers, and packets that are cut off, are the kernel's.
	r.must(f.Guard(map[netip.Addr]uint32{four: 3, six: 3}))
	answer := arpRequest("10.20.0.1")
	answer[21] = 2
	for name, frame := range map[string][]byte{"an answer": answer, "cut": arpRequest("10.20.0.1")[:30], "cut6": solicitation("fd00:20::1", false)[:70]} {
		if got := r.send(r.progs.LbClient, skBuff{}, frame); got.verdict != pass {
			t.Errorf("%s: %v", name, got.verdict)
		}
	}
	if f.Stale() {
		t.Error("stale")
	}
	// More than there is room for: nothing is changed.
	many, addr := map[netip.Addr]uint32{}, netip.MustParseAddr("10.0.0.0")
	for len(many) <= int(f.guarded.MaxEntries()) {
		many[addr] = 0
		addr = addr.Next()
	}
	if err := f.Guard(many); err == nil {
		t.Error("too many addresses")
	}
	want("too many", all...)
	r.must(f.Release())
	want("released")
	for word := range f.words.MaxEntries() {
		var v uint64
		if r.must(f.words.Lookup(word, &v)); v != 0 {
			t.Errorf("released: word %d is %d", word, v)
		}
	}
}
