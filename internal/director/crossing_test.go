// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

// crossing is a client, an attached director, a router and a server behind that, in
// both families. The director also forwards what is for the server itself: the same
// packets, judged by the kernel.
type crossing struct {
	*rig
	client, router, server *host.Namespace
}

// shore has a crossing's addresses in one family.
type shore struct {
	family
	client, dirClient, dirServer, routerDir, routerServer, server, vip string
	link                                                               int // prefix length
}

var shores = []shore{
	{ipv4, "10.9.0.2", "10.9.0.1", "172.16.0.1", "172.16.0.2", "192.0.2.1", "192.0.2.10", "10.20.0.1", 24},
	{ipv6, "fd00:9::2", "fd00:9::1", "fd00:16::1", "fd00:16::2", "fd00:17::1", "fd00:17::10", "fd00:20::1", 64},
}

const routerDev, farDev = "near0", "far0"

// newCrossing makes one; the link behind the router has an MTU of its own if it is not 0.
func newCrossing(t *testing.T, farMTU int) crossing {
	c := crossing{rig: &rig{TB: t, ns: testenv.Namespace(t, "dir")},
		client: testenv.Namespace(t, "cli"), router: testenv.Namespace(t, "rtr"), server: testenv.Namespace(t, "srv")}
	for _, ns := range []*host.Namespace{c.ns, c.client, c.router, c.server} {
		// Addresses of the link are usable at once: neighbours are asked from them.
		c.must(ns.Sysctl("net.ipv6.conf.default.accept_dad", "0"), ns.Sysctl("net.ipv6.conf.all.accept_dad", "0"))
	}
	c.must(
		host.Connect(host.End{NS: c.ns, Name: clientDev}, host.End{NS: c.client, Name: "eth0"}, host.LinkOptions{}),
		host.Connect(host.End{NS: c.ns, Name: serverDev}, host.End{NS: c.router, Name: routerDev}, host.LinkOptions{}),
		host.Connect(host.End{NS: c.router, Name: farDev}, host.End{NS: c.server, Name: "eth0"}, host.LinkOptions{MTU: farMTU}),
	)
	for _, p := range shores {
		on := func(addr string) netip.Prefix { return netip.PrefixFrom(netip.MustParseAddr(addr), p.link) }
		everywhere := map[bool]netip.Prefix{true: netip.MustParsePrefix("0.0.0.0/0"), false: netip.MustParsePrefix("::/0")}[p.link == 24]
		c.must(
			c.ns.AddAddresses(clientDev, on(p.dirClient)), c.ns.AddAddresses(serverDev, on(p.dirServer)),
			c.client.AddAddresses("eth0", on(p.client)), c.server.AddAddresses("eth0", on(p.server)),
			c.router.AddAddresses(routerDev, on(p.routerDir)), c.router.AddAddresses(farDev, on(p.routerServer)),
			c.client.AddRoutes(host.Route{Dst: everywhere, Via: netip.MustParseAddr(p.dirClient)}),
			c.server.AddRoutes(host.Route{Dst: everywhere, Via: netip.MustParseAddr(p.routerServer)}),
			c.router.AddRoutes(host.Route{Dst: everywhere, Via: netip.MustParseAddr(p.dirServer)}),
			c.ns.AddRoutes(host.Route{Dst: on(p.server).Masked(), Via: netip.MustParseAddr(p.routerDir)}),
		)
	}
	for _, ns := range []*host.Namespace{c.ns, c.router} {
		c.must(ns.Sysctl("net.ipv4.ip_forward", "1"), ns.Sysctl("net.ipv6.conf.all.forwarding", "1"),
			// Errors are judged one by one: none is left out.
			ns.Sysctl("net.ipv4.icmp_ratelimit", "0"), ns.Sysctl("net.ipv6.icmp.ratelimit", "0"))
	}
	c.openSmall(false)
	t.Cleanup(c.remove)
	c.must(c.attach(clientDev, serverDev, HookAuto))
	return c
}

// socket opens a datagram socket that sets "don't fragment", whatever MTU its host has
// heard of, and receives ICMP errors.
func (c crossing) socket(ns *host.Namespace, at string) *net.UDPConn {
	c.Helper()
	var conn net.PacketConn
	config := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			if network == "udp6" {
				err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE),
					unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1))
				return
			}
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1))
		}), err)
	}}
	c.must(ns.Do(func() (err error) { conn, err = config.ListenPacket(c.Context(), "udp", at); return err }))
	c.Cleanup(func() { conn.Close() })
	return conn.(*net.UDPConn)
}

// told is an ICMP error that a socket received.
type told struct {
	kind, code uint8
	mtu        uint32
	by         netip.Addr
}

// send sends so many bytes of IP packet to an address, with a TTL.
func (c crossing) send(conn *net.UDPConn, to string, size, ttl int) {
	c.Helper()
	dst := netip.MustParseAddrPort(to)
	raw, err := conn.SyscallConn()
	c.must(err)
	headers := 28
	if dst.Addr().Is6() {
		headers = 48
	}
	c.must(raw.Control(func(fd uintptr) {
		if dst.Addr().Is6() {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, ttl)
			return
		}
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, ttl)
	}), err)
	// What an earlier error left is returned once, in place of sending.
	for range 3 {
		if _, err = conn.WriteToUDPAddrPort(make([]byte, size-headers), dst); err == nil {
			return
		}
	}
	c.must(err)
}

// hear waits for an ICMP error; the zero value if none comes.
func (c crossing) hear(conn *net.UDPConn, limit time.Duration) (t told) {
	c.Helper()
	raw, err := conn.SyscallConn()
	c.must(err)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		control := make([]byte, 512)
		var n int
		c.must(raw.Control(func(fd uintptr) {
			_, n, _, _, err = unix.Recvmsg(int(fd), nil, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		}))
		if err != nil {
			continue
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		c.must(err)
		for _, m := range messages {
			// struct sock_extended_err, and the address of who sent it.
			if e := m.Data; (m.Header.Type == unix.IP_RECVERR || m.Header.Type == unix.IPV6_RECVERR) && e[4] != unix.SO_EE_ORIGIN_LOCAL {
				t = told{kind: e[5], code: e[6], mtu: binary.NativeEndian.Uint32(e[8:])}
				from := e[16+4 : 16+8]
				if m.Header.Level == unix.IPPROTO_IPV6 {
					from = e[16+8 : 16+24]
				}
				t.by, _ = netip.AddrFromSlice(from)
				return t
			}
		}
	}
	return t
}

// ask sends a datagram until there is an error about it: neighbours may have to be asked
// for first.
func (c crossing) ask(conn *net.UDPConn, to string, size, ttl int) (t told) {
	c.Helper()
	for c.hear(conn, 10*time.Millisecond) != (told{}) { // errors about earlier datagrams that were sent twice
	}
	for range 10 {
		c.send(conn, to, size, ttl)
		if t = c.hear(conn, 5*time.Second); t != (told{}) {
			break
		}
	}
	return t
}

func (t told) String() string {
	return fmt.Sprintf("type %d, code %d, MTU %d, from %s", t.kind, t.code, t.mtu, t.by)
}

// opens sends until the server receives: neighbours may have to be asked for first.
func (c crossing) opens(client *net.UDPConn, to string, server *net.UDPConn) {
	c.Helper()
	for range 60 {
		c.send(client, to, 100, 64)
		c.must(server.SetReadDeadline(time.Now().Add(500 * time.Millisecond)))
		if _, _, err := server.ReadFromUDPAddrPort(make([]byte, 1500)); err == nil {
			return
		}
	}
	c.Fatalf("the server receives nothing that is sent to %s", to)
}
