// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/topology"
)

// echoes lets a real server send back what comes, by TCP and by UDP.
func echoes(t *testing.T, ns *host.Namespace, at string) {
	t.Helper()
	var l net.Listener
	var p net.PacketConn
	if err := ns.Do(func() (err error) {
		if l, err = net.Listen("tcp", at); err != nil {
			return err
		}
		p, err = net.ListenPacket("udp", at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); p.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed: the test is over
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // the client sees what is missing
			}()
		}
	}()
	go func() {
		datagram := make([]byte, 1<<16)
		for {
			n, from, err := p.ReadFrom(datagram)
			if err != nil {
				return
			}
			_, _ = p.WriteTo(datagram[:n], from)
		}
	}()
}

// sayTo sends something to a service and wants it back. An answer that does
// not come is os.ErrDeadlineExceeded.
func sayTo(ns *host.Namespace, network, service string, n int, limit time.Duration) error {
	var c net.Conn
	d := net.Dialer{Timeout: limit}
	err := ns.Do(func() (err error) {
		c, err = d.DialContext(context.Background(), network, service)
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	said, heard := make([]byte, n), make([]byte, n)
	for i := range said {
		said[i] = byte(rand.Uint32())
	}
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(said)
		sent <- err
	}()
	if network == "udp" {
		_, err = c.Read(heard)
	} else {
		_, err = io.ReadFull(c, heard)
	}
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if !bytes.Equal(said, heard) {
		return fmt.Errorf("%d bytes came back changed", n)
	}
	return nil
}

// Clients in the servers' own network, and a server that is its own client,
// reach a masqueraded service with the setting hairpin, and not without.
func TestHairpin(t *testing.T) {
	f := newFarm(t, 2)
	server, neighbour := f.Servers[0].Namespace, f.Servers[1].Namespace
	gateway, virtual := netip.MustParseAddr("fd00:16::1"), netip.MustParseAddr("fd00:20::1")
	const off = "net.ipv6.conf.all.disable_ipv6"
	if err := errors.Join(
		f.Director.Sysctl(off, "0"), server.Sysctl(off, "0"), neighbour.Sysctl(off, "0"),
		f.Director.Sysctl("net.ipv6.conf.all.forwarding", "1"),
		f.Director.AddAddresses(topology.ServerDevice, netip.PrefixFrom(gateway, 64)),
		f.Director.AddAddresses("lo", netip.PrefixFrom(virtual, 128)),
		server.AddAddresses("eth0", netip.MustParsePrefix("fd00:16::2/64")),
		neighbour.AddAddresses("eth0", netip.MustParsePrefix("fd00:16::3/64")),
		server.AddRoutes(host.Route{Dst: netip.MustParsePrefix("::/0"), Via: gateway}),
		neighbour.AddRoutes(host.Route{Dst: netip.MustParsePrefix("::/0"), Via: gateway}),
	); err != nil {
		t.Fatal(err)
	}
	services := map[string]string{ // by family
		"IPv4": fmt.Sprintf("%s:7", f.Virtual(topology.IPv4)), "IPv6": fmt.Sprintf("[%s]:7", virtual),
	}
	table := ""
	for family, at := range map[string]string{"IPv4": fmt.Sprintf("%s:700", f.Servers[0].Addr[topology.IPv4]), "IPv6": "[fd00:16::2]:700"} {
		echoes(t, server, at)
		for _, kind := range []string{"t", "u"} {
			table += fmt.Sprintf("-A -%s %s -s rr\n-a -%s %s -r %s -m\n", kind, services[family], kind, services[family], at)
		}
	}
	must(t, f.Director, table, "ipvsadm", "-R")

	clients := map[string]*host.Namespace{"a neighbour of the server": neighbour, "the server itself": server}
	for name, ns := range clients {
		for _, family := range []string{"IPv4", "IPv6"} {
			for _, network := range []string{"tcp", "udp"} {
				err := sayTo(ns, network, services[family], 10, soon)
				var timeout net.Error
				if !errors.Is(err, os.ErrDeadlineExceeded) && !(errors.As(err, &timeout) && timeout.Timeout()) {
					t.Errorf("%s, %s by %s, without the setting: %v, want nothing to come back", name, network, family, err)
				}
			}
		}
	}
	must(t, f.Director, "", "settings", "hairpin=1")
	for name, ns := range clients {
		for _, c := range []struct {
			network string
			bytes   int
		}{
			{"tcp", 10}, {"tcp", 1 << 20}, // super-packets
			{"udp", 10}, {"udp", 5000}, // fragments
		} {
			for _, family := range []string{"IPv4", "IPv6"} {
				t.Run(fmt.Sprintf("%s %s %d %s", name, c.network, c.bytes, family), func(t *testing.T) {
					// Ports of connections that failed above are still known.
					await(t, "an answer", func() error { return sayTo(ns, c.network, services[family], c.bytes, patience/4) })
				})
			}
		}
	}
	// Others are served as ever.
	if err := sayTo(f.Clients[0].Namespace, "tcp", services["IPv4"], 1<<20, patience); err != nil {
		t.Errorf("a client from elsewhere: %v", err)
	}
}
