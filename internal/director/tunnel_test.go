// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// outer is what a tunnel puts before a packet, taken apart again.
type outer struct {
	src, dst netip.Addr
	tos, ttl uint8
	df       bool
	protocol uint8
	shim     []byte // between the IP headers
	inner    []byte
}

// takeOuter checks the outer header's lengths and checksum.
func takeOuter(t *testing.T, frame []byte, shim int) outer {
	t.Helper()
	ip := frame[14:]
	if binary.BigEndian.Uint16(frame[12:]) == 0x0800 {
		if ip[0] != 0x45 || testenv.Sum(ip[:20]) != 0 || int(binary.BigEndian.Uint16(ip[2:])) != len(ip) {
			t.Fatalf("outer IPv4 header % x of a packet of %d bytes", ip[:20], len(ip))
		}
		return outer{
			src: netip.AddrFrom4([4]byte(ip[12:16])), dst: netip.AddrFrom4([4]byte(ip[16:20])),
			tos: ip[1], ttl: ip[8], df: ip[6]&0x40 != 0, protocol: ip[9], shim: ip[20 : 20+shim], inner: ip[20+shim:],
		}
	}
	if ip[0]>>4 != 6 || int(binary.BigEndian.Uint16(ip[4:])) != len(ip)-40 {
		t.Fatalf("outer IPv6 header % x of a packet of %d bytes", ip[:40], len(ip))
	}
	return outer{
		src: netip.AddrFrom16([16]byte(ip[8:24])), dst: netip.AddrFrom16([16]byte(ip[24:40])),
		tos: ip[0]<<4 | ip[1]>>4, ttl: ip[7], protocol: ip[6], shim: ip[40 : 40+shim], inner: ip[40+shim:],
	}
}

// newTunnelRig has addresses and servers of both families.
func newTunnelRig(t *testing.T) *rig {
	r := newRig(t, small)
	r.must(r.ns.Sysctl("net.ipv6.conf.all.forwarding", "1"),
		r.ns.AddAddresses(serverDev, netip.MustParsePrefix("fd00:16::1/64")),
		r.ns.AddNeighbours(serverDev, serverMAC, netip.MustParseAddr("fd00:16::10")))
	return r
}

// addTunnel adds a service with one server where the director's routes are.
func (r *rig) addTunnel(s model.Service, server model.Server) {
	r.Helper()
	r.must(r.AddService(s), r.ns.Do(func() error { return r.AddServer(s.Key, server) }))
}

// Each encapsulation, over each family: the packet arrives as it was, one hop
// older, behind headers whose every field is known.
func TestTunnels(t *testing.T) {
	r := newTunnelRig(t)
	p := testenv.TCP(client1, vip, "S").DontFragment()
	inner := p.TTL(63).Frame()[14:]
	udp := func(csum bool) func(t *testing.T, o outer) {
		return func(t *testing.T, o outer) {
			src, dst := binary.BigEndian.Uint16(o.shim), binary.BigEndian.Uint16(o.shim[2:])
			length := binary.BigEndian.Uint16(o.shim[4:])
			if src < 49152 || dst != 6080 || int(length) != 12+len(inner) {
				t.Errorf("UDP from port %d to %d, length %d", src, dst, length)
			}
			if !bytes.Equal(o.shim[8:], []byte{0, 4, 0, 0}) {
				t.Errorf("GUE header % x", o.shim[8:])
			}
			whole := append(bytes.Clone(o.shim), o.inner...)
			pseudo := append(o.src.AsSlice(), o.dst.AsSlice()...)
			sum := testenv.Sum(pseudo, []byte{0, 17, byte(length >> 8), byte(length)}, whole)
			if check := binary.BigEndian.Uint16(o.shim[6:]); csum != (check != 0) || csum && sum != 0 {
				t.Errorf("UDP checksum %#x, sums up to %#x; wanted: %t", check, sum, csum)
			}
		}
	}
	gre := func(want ...byte) func(t *testing.T, o outer) {
		return func(t *testing.T, o outer) {
			if !bytes.Equal(o.shim[:4], want) {
				t.Errorf("GRE header % x, want % x", o.shim, want)
			}
			if len(o.shim) == 8 && testenv.Sum(o.shim, o.inner) != 0 {
				t.Errorf("GRE header % x: the checksum is wrong", o.shim)
			}
		}
	}
	none := func(*testing.T, outer) {}
	for _, c := range []struct {
		name     string
		server   model.Server
		shim     int
		protocol uint8
		check    func(*testing.T, outer)
	}{
		{"ipip", model.Server{}, 0, 4, none},
		{"gue", model.Server{TunnelType: model.GUE, TunnelPort: 6080}, 12, 17, udp(false)},
		{"gue csum", model.Server{TunnelType: model.GUE, TunnelPort: 6080, TunnelFlags: model.TunnelCsum}, 12, 17, udp(true)},
		{"gue remcsum", model.Server{TunnelType: model.GUE, TunnelPort: 6080, TunnelFlags: model.TunnelRemCsum}, 12, 17, udp(true)},
		{"gre", model.Server{TunnelType: model.GRE}, 4, 47, gre(0, 0, 8, 0)},
		{"gre csum", model.Server{TunnelType: model.GRE, TunnelFlags: model.TunnelCsum}, 8, 47, gre(0x80, 0, 8, 0)},
	} {
		for family, to := range map[string]struct{ server, source string }{
			"4": {"172.16.0.10", "172.16.0.1"}, "6": {"fd00:16::10", "fd00:16::1"},
		} {
			t.Run(c.name+" over IPv"+family, func(t *testing.T) {
				r := r.in(t)
				server := c.server
				server.Addr, server.Port, server.Weight, server.Forward = netip.MustParseAddr(to.server), 80, 1, model.Tunnel
				s := tcpService(vip, "rr")
				r.addTunnel(s, server)
				defer func() { r.must(r.DeleteService(s.Key)) }()
				got := r.fromClient(p)
				if got.verdict != redirect {
					t.Fatalf("%s, want redirect", got.verdict)
				}
				o := takeOuter(t, got.frame, c.shim)
				if diff := cmp.Diff(inner, o.inner); diff != "" {
					t.Errorf("the inner packet (-want +got):\n%s", diff)
				}
				want := outer{src: netip.MustParseAddr(to.source), dst: server.Addr, ttl: 63, df: family == "4", protocol: c.protocol, shim: o.shim, inner: o.inner}
				if diff := cmp.Diff(want, o, cmp.AllowUnexported(outer{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
					t.Errorf("the outer header (-want +got):\n%s", diff)
				}
				c.check(t, o)
				r.removeConns()
			})
		}
	}
}

// A packet that fits without the tunnel but not with it: its sender is told
// how much less there is room for.
func TestTunnelMTU(t *testing.T) {
	r := newTunnelRig(t)
	s := tcpService(vip, "rr")
	server := realServer(0, 1)
	server.Port, server.Forward = 80, model.Tunnel
	r.addTunnel(s, server)
	r.fromClient(testenv.TCP(client1, vip, "S"))
	fits := testenv.TCP(client1, vip, "A").DontFragment().Payload(strings.Repeat("x", 1440))
	if got := r.fromClient(fits); got.verdict != redirect || len(got.frame) != 14+1500 {
		t.Errorf("a packet of 1480 bytes: %s, %d bytes", got.verdict, len(got.frame))
	}
	tooLong := fits.Payload(strings.Repeat("x", 1441))
	reasons := r.reasonsOf(func() {
		got := r.fromClient(tooLong)
		if mtu := binary.BigEndian.Uint16(got.frame[14+20+6:]); got.verdict != redirect || got.frame[14+20] != 3 || got.frame[14+21] != 4 || mtu != 1480 {
			t.Errorf("a packet of 1481 bytes: %s, % x", got.verdict, got.frame[14+20:14+28])
		}
	})
	if diff := cmp.Diff(map[string]uint64{"refused too big": 1}, reasons); diff != "" {
		t.Error(diff)
	}
}
