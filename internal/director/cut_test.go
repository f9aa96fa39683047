// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// street is a client, an attached director and a server, each in a namespace
// of its own, on links that need not be of one MTU.
type street struct {
	*rig
	clients, servers *host.Namespace
}

const (
	streetClient, streetServer = "10.9.0.2", "172.16.0.10"
	streetVIP                  = "10.20.0.1"
)

func newStreet(t *testing.T, clientMTU, serverMTU int) street {
	s := street{
		rig:     &rig{TB: t, ns: testenv.Namespace(t, "dir")},
		clients: testenv.Namespace(t, "cli"), servers: testenv.Namespace(t, "srv"),
	}
	// The reasons are counted: no device announces itself by IPv6.
	for _, ns := range []*host.Namespace{s.ns, s.clients, s.servers} {
		s.must(ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"))
	}
	s.must(
		host.Connect(host.End{NS: s.ns, Name: clientDev}, host.End{NS: s.clients, Name: "eth0"}, host.LinkOptions{MTU: clientMTU}),
		host.Connect(host.End{NS: s.ns, Name: serverDev}, host.End{NS: s.servers, Name: "eth0"}, host.LinkOptions{MTU: serverMTU}),
		s.ns.Sysctl("net.ipv4.ip_forward", "1"),
		s.ns.AddAddresses(clientDev, netip.MustParsePrefix("10.9.0.1/30")),
		s.clients.AddAddresses("eth0", netip.MustParsePrefix(streetClient+"/30")),
		s.clients.AddRoutes(host.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.9.0.1")}),
		s.ns.AddAddresses(serverDev, netip.MustParsePrefix("172.16.0.1/24")),
		s.servers.AddAddresses("eth0", netip.MustParsePrefix(streetServer+"/24")),
		s.servers.AddRoutes(host.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("172.16.0.1")}),
	)
	s.openSmall(false)
	t.Cleanup(s.remove)
	s.must(s.attach(clientDev, serverDev, HookAuto))
	return s
}

// listen opens a datagram socket that does not set "don't fragment".
func (s street) listen(ns *host.Namespace, network, at string) net.PacketConn {
	s.Helper()
	var c net.PacketConn
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
		}), err)
	}}
	s.must(ns.Do(func() (err error) { c, err = config.ListenPacket(s.Context(), network, at); return err }))
	s.Cleanup(func() { c.Close() })
	return c
}

// received waits for a datagram.
func (s street) received(c net.PacketConn, limit time.Duration) ([]byte, error) {
	b := make([]byte, 1<<16)
	s.must(c.SetReadDeadline(time.Now().Add(limit)))
	n, _, err := c.ReadFrom(b)
	return b[:n], err
}

// noise is so many bytes that are no others' in any place.
func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// Datagrams that the other link has no room for arrive whole, with and without
// a checksum left to the hardware, in one piece or in several, either way.
func TestCutDatagrams(t *testing.T) {
	for _, mtu := range [][2]int{{1500, 1200}, {1200, 1500}, {1500, 600}, {9000, 1500}} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			s := newStreet(t, mtu[0], mtu[1])
			s.serve(service(model.UDP, streetVIP+":9", "rr"), model.Server{Addr: netip.MustParseAddr(streetServer), Port: 10, Weight: 1})
			server, client := s.listen(s.servers, "udp4", streetServer+":10"), s.listen(s.clients, "udp4", streetClient+":4000")
			go echo(server)
			service := &net.UDPAddr{IP: net.ParseIP(streetVIP), Port: 9}
			say := func(n int) error {
				said := noise(n)
				if _, err := client.WriteTo(said, service); err != nil {
					return err
				}
				heard, err := s.received(client, 30*time.Second)
				if err == nil && !bytes.Equal(said, heard) {
					err = errors.New("it came back changed")
				}
				return err
			}
			s.must(say(1)) // the neighbours are known then
			reasons := s.reasonsOf(func() {
				for _, n := range []int{572, 573, 1172, 1173, 1179, 1180, 1400, 1472, 1473, 2000, 3000, 4000, 8972, 15972} {
					if err := say(n); err != nil {
						t.Errorf("%d bytes: %v", n, err)
					}
				}
			})
			delete(reasons, "pass not ip") // hosts confirm their neighbours after 5 s
			if diff := cmp.Diff(map[string]uint64{}, reasons); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func echo(c net.PacketConn) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return // closed: the test is over
		}
		_, _ = c.WriteTo(b[:n], from) // the client sees what is missing
	}
}

// A packet that fits until it has an outer header: the server puts the outer
// packet together, and finds the inner one with its checksum filled in.
func TestCutTunnel(t *testing.T) {
	for name, c := range map[string]struct {
		server          model.Server
		network, listen string
		shim            int
	}{
		"ipip":     {model.Server{}, "ip4:4", streetServer, 0},
		"gre":      {model.Server{TunnelType: model.GRE}, "ip4:47", streetServer, 4},
		"gre csum": {model.Server{TunnelType: model.GRE, TunnelFlags: model.TunnelCsum}, "ip4:47", streetServer, 8},
		"gue":      {model.Server{TunnelType: model.GUE, TunnelPort: 6080}, "udp4", streetServer + ":6080", 4},
		"gue csum": {model.Server{TunnelType: model.GUE, TunnelPort: 6080, TunnelFlags: model.TunnelCsum}, "udp4", streetServer + ":6080", 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStreet(t, 1500, 1500)
			server := c.server
			server.Addr, server.Port, server.Weight, server.Forward = netip.MustParseAddr(streetServer), 9, 1, model.Tunnel
			s.serve(service(model.UDP, streetVIP+":9", "rr"), server)
			end, client := s.listen(s.servers, c.network, c.listen), s.listen(s.clients, "udp4", streetClient+":4000")
			for _, n := range []int{1, 1400, 1453, 1472} {
				said := noise(n)
				_, err := client.WriteTo(said, &net.UDPAddr{IP: net.ParseIP(streetVIP), Port: 9})
				s.must(err)
				got, err := s.received(end, 30*time.Second)
				s.must(err)
				if len(got) != c.shim+28+n || !bytes.Equal(got[c.shim+28:], said) {
					t.Fatalf("%d bytes: %d arrive, % x...", n, len(got), got[:min(len(got), 60)])
				}
				frame := append(testenv.UDP(client1, vip, "").Frame()[:14], got[c.shim:]...)
				// One that was not cut is left for the device to finish.
				if err := testenv.CheckSums(frame); err != nil && n > 1400 {
					t.Errorf("%d bytes: %v", n, err)
				}
			}
		})
	}
}
