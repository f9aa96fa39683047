// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"imbang/internal/director"
	"imbang/internal/host"
)

// The names of the cluster's namespaces begin with this.
const prefix = "imbang-conform"

// Side is one of the two networks at the director.
type Side struct {
	Role string // of the namespace that stands for every host of the network
	Dev  string // the director's device
	Net4 netip.Prefix
	Net6 netip.Prefix
}

// The networks of the recordings.
var (
	ClientSide = Side{"cli", "ext0", netip.MustParsePrefix("10.10.0.0/16"), netip.MustParsePrefix("fd00:10::/64")}
	ServerSide = Side{"srv", "int0", netip.MustParsePrefix("172.16.0.0/24"), netip.MustParsePrefix("fd00:16::/64")}
)

// Hardware addresses of a link: the director's end and the hosts' end.
const (
	DirectorMAC = "02:00:00:00:00:01"
	HostsMAC    = "02:00:00:00:00:02"
)

// cluster is the textbook LVS-NAT cluster of the recordings: clients, a
// director with the virtual addresses, and servers whose way back leads
// through it.
type cluster struct {
	director, clients, servers *host.Namespace
	plane                      *director.DataPlane // nil: no director is loaded
}

// planes are the data planes of clusters that were removed, for the next ones.
var planes director.Reuse

// build makes a cluster; on failure nothing is left of it.
func build() (*cluster, error) {
	run, err := host.NewRun(prefix)
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	for role, ns := range map[string]**host.Namespace{"dir": &c.director, "cli": &c.clients, "srv": &c.servers} {
		if *ns, err = host.NewNamespace(run.Name(role)); err != nil {
			c.close()
			return nil, err
		}
	}
	if err := c.connect(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cluster) connect() error {
	for _, link := range []struct {
		Side
		hosts *host.Namespace
	}{{ClientSide, c.clients}, {ServerSide, c.servers}} {
		if err := c.addSide(link.Side, link.hosts); err != nil {
			return err
		}
	}
	if err := c.director.AddAddresses("lo", VirtualAddresses()...); err != nil {
		return err
	}
	return sysctls(c.director, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0")
}

// VirtualAddresses are those of the director.
func VirtualAddresses() (vips []netip.Prefix) {
	vip4, vip6 := netip.MustParseAddr("10.20.0.1"), netip.MustParseAddr("fd00:20::1")
	for range 63 {
		vips = append(vips, netip.PrefixFrom(vip4, 32), netip.PrefixFrom(vip6, 128))
		vip4, vip6 = vip4.Next(), vip6.Next()
	}
	return vips
}

// addSide links the namespace of all hosts of a network to the director.
func (c *cluster) addSide(s Side, hosts *host.Namespace) error {
	err := host.Connect(host.End{NS: c.director, Name: s.Dev, MAC: DirectorMAC},
		host.End{NS: hosts, Name: "eth0", MAC: HostsMAC}, host.LinkOptions{})
	if err != nil {
		return err
	}
	if err := c.director.AddAddresses(s.Dev, s.Gateways()...); err != nil {
		return err
	}
	if err := s.Equip(hosts); err != nil {
		return err
	}
	return c.director.AddNeighbours(s.Dev, HostsMAC, s.Own()...)
}

// Gateways are the director's addresses in the network.
func (s Side) Gateways() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(s.Net4.Addr().Next(), s.Net4.Bits()), netip.PrefixFrom(s.Net6.Addr().Next(), 64)}
}

// Own are the addresses of the namespace of all hosts that are not local to it by a route.
func (s Side) Own() (addrs []netip.Addr) {
	for _, gw := range s.Gateways() {
		addrs = append(addrs, nth(gw.Addr(), 253))
	}
	return addrs
}

// Equip makes a namespace, whose device eth0 leads to the director, every host of the
// network.
func (s Side) Equip(hosts *host.Namespace) error {
	gw4, gw6 := s.Gateways()[0].Addr(), s.Gateways()[1].Addr()
	own := s.Own()
	if err := hosts.AddAddresses("eth0", netip.PrefixFrom(own[0], s.Net4.Bits()), netip.PrefixFrom(own[1], 64)); err != nil {
		return err
	}
	// The gateway first: once the whole network is local, so is its address.
	err := hosts.AddRoutes(
		host.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: gw4},
		host.Route{Dst: netip.MustParsePrefix("::/0"), Via: gw6},
		host.Route{Dst: s.Net4, Dev: "lo", Local: true},
		host.Route{Dst: s.Net6, Dev: "lo", Local: true},
		// But the gateway sends, too: tunnels begin there.
		host.Route{Dst: netip.PrefixFrom(gw4, 32), Dev: "eth0", NotLocal: true},
		host.Route{Dst: netip.PrefixFrom(gw6, 128), Dev: "eth0", NotLocal: true})
	if err != nil {
		return err
	}
	if err := hosts.AddNeighbours("eth0", DirectorMAC, gw4, gw6); err != nil {
		return err
	}
	return sysctls(hosts, "net.ipv4.ip_nonlocal_bind=1", "net.ipv6.ip_nonlocal_bind=1", "net.ipv4.conf.all.rp_filter=0")
}

// of are those of the hosts that are in the network. They cannot answer ARP: to a
// namespace that owns the whole network, the director's question comes from an address of
// its own.
func (s Side) of(hosts []netip.Addr) (here []netip.Addr) {
	for _, h := range hosts {
		if s.Net4.Contains(h) || s.Net6.Contains(h) {
			here = append(here, h)
		}
	}
	return here
}

func nth(a netip.Addr, n int) netip.Addr {
	for range n {
		a = a.Next()
	}
	return a
}

func sysctls(ns *host.Namespace, settings ...string) error {
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		if err := ns.Sysctl(key, value); err != nil {
			return err
		}
	}
	return nil
}

// attach loads a director of its own into the cluster.
func (c *cluster) attach(mode director.Mode) error {
	// What XDP sends comes in at a peer that polls, and what it takes has a
	// finished checksum.
	if mode != director.ModeTC {
		for _, hosts := range []*host.Namespace{c.clients, c.servers} {
			if err := errors.Join(hosts.SetOffload("eth0", host.GRO, true), hosts.SetOffload("eth0", host.TxChecksum, false)); err != nil {
				return err
			}
		}
	}
	return c.director.Do(func() error {
		d, plane, err := planes.Open(director.Sizes{Connections: 1 << 16, Services: 256, Servers: 4096}, mode != director.ModeTC)
		if err != nil {
			return err
		}
		defer d.Close()
		c.plane = plane
		_, err = d.AttachMode(ClientSide.Dev, ServerSide.Dev, director.HookAuto, mode)
		return err
	})
}

// close removes the cluster, the director first: its pins would keep it.
func (c *cluster) close() error {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	if c.director != nil {
		err := c.director.Do(func() error {
			if c.plane == nil { // what a load that failed left
				return director.Detach(true)
			}
			return planes.Remove(c.plane)
		})
		if err != nil && !isNotLoaded(err) {
			keep(fmt.Errorf("remove the director: %w", err))
		}
	}
	for _, ns := range []*host.Namespace{c.clients, c.servers, c.director} {
		if ns != nil {
			keep(ns.Close())
		}
	}
	return first
}
