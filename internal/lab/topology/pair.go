// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"imbang/internal/host"
)

// Pair is two directors between the same networks, which addresses move between:
//
//	c1  10.10.0.2 --+                                          +-- 172.16.0.2  s1
//	               ext -- ext0  DIR1  int0 (sync0) -- int -----+-- 172.16.0.3  s2
//	                \---- ext0  DIR2  int0 (sync0) ---/             ...
//
// Each network is a bridge in the namespace "switch", as in a rack: a port can go down,
// and two ports can be kept from each other, which a shared device cannot do. A third
// network, sync, is the directors' own. The virtual address is on the clients' link, and
// hosts find it, and the servers their gateway, by ARP: that is what a takeover changes.
type Pair struct {
	Directors [2]*host.Namespace
	Client    *host.Namespace
	Servers   []Server

	fabric *host.Namespace
}

// The device of the directors' own network.
const SyncDevice = "sync0"

// pairNetworks are the bridges, with the directors' devices on them.
var pairNetworks = []struct{ bridge, device string }{{clientSide, ClientDevice}, {serverSide, ServerDevice}, {"sync", SyncDevice}}

// pairSources are further addresses of the client, in its network.
var pairSources = netip.MustParsePrefix("10.10.16.0/20")

// Source is the n-th further address of the client; they begin again after some 4000.
func (p *Pair) Source(n int) netip.Addr {
	const usable = 1<<12 - 2
	return plus(pairSources.Addr(), 1+n%usable)
}

// Addresses of a pair that its directors' configurations name.
var (
	PairVirtual = netip.MustParsePrefix("10.20.0.1/32")
	PairGateway = netip.MustParsePrefix("172.16.0.1/24")
)

// pairOwn are the directors' own addresses, by network, of the first; the second has the next.
var pairOwn = map[string]netip.Prefix{
	clientSide: netip.MustParsePrefix("10.10.0.250/16"),
	serverSide: netip.MustParsePrefix("172.16.0.250/24"),
	"sync":     netip.MustParsePrefix("192.168.78.1/24"),
}

// SyncAddress is the address of a director, 0 or 1, on the directors' own network.
func SyncAddress(director int) netip.Addr { return plus(pairOwn["sync"].Addr(), director) }

var pairDirectorSettings = slices.Concat(directorSettings, []setting{
	// The stack is asked for addresses of one device by another only in error.
	{"net.ipv4.conf.all.arp_ignore", "1", false},
	{"net.ipv4.conf.all.promote_secondaries", "1", false},
})

// BuildPair makes a pair with a number of servers, whose namespaces carry the run's name.
// On an error nothing is left.
func BuildPair(run host.Run, servers int) (*Pair, error) {
	p := &Pair{}
	if err := p.build(run, servers); err != nil {
		return nil, errors.Join(fmt.Errorf("build two directors: %w", err), p.Close())
	}
	return p, nil
}

func (p *Pair) build(run host.Run, servers int) (err error) {
	plain := &Cluster{families: []Family{IPv4}} // for its settings of namespaces
	if p.fabric, err = plain.newNamespace(run, "switch", nil); err != nil {
		return err
	}
	for _, n := range pairNetworks {
		if err := p.addBridge(n.bridge); err != nil {
			return err
		}
	}
	if p.Client, err = plain.newNamespace(run, "c1", clientSettings); err != nil {
		return err
	}
	client := netip.MustParsePrefix("10.10.0.2/16")
	if err := p.plug(p.Client, "c1", "eth0", clientSide, client); err != nil {
		return err
	}
	if err := p.Client.AddRoutes(host.Route{Dst: PairVirtual, Dev: "eth0"}, host.Route{Dst: pairSources, Dev: "lo", Local: true}); err != nil {
		return err
	}
	for i := range servers {
		s := Server{Name: fmt.Sprintf("s%d", i+1), Addr: map[Family]netip.Addr{IPv4: plus(PairGateway.Addr(), 1+i)}}
		if s.Namespace, err = plain.newNamespace(run, s.Name, serverSettings); err != nil {
			return err
		}
		p.Servers = append(p.Servers, s)
		anywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if err := errors.Join(
			p.plug(s.Namespace, s.Name, "eth0", serverSide, netip.PrefixFrom(s.Addr[IPv4], PairGateway.Bits())),
			s.Namespace.AddRoutes(host.Route{Dst: anywhere, Via: PairGateway.Addr()}),
		); err != nil {
			return err
		}
	}
	for i := range p.Directors {
		if p.Directors[i], err = plain.newNamespace(run, fmt.Sprintf("dir%d", i+1), pairDirectorSettings); err != nil {
			return err
		}
		for _, n := range pairNetworks {
			own := pairOwn[n.bridge]
			own = netip.PrefixFrom(plus(own.Addr(), i), own.Bits())
			if err := p.plug(p.Directors[i], port(i, n.bridge), n.device, n.bridge, own); err != nil {
				return err
			}
		}
	}
	return nil
}

// port is the name of a director's port of a bridge.
func port(director int, bridge string) string { return fmt.Sprintf("d%d%s", director+1, bridge) }

func (p *Pair) addBridge(name string) error {
	err := p.fabric.Do(func() error {
		snooping := false // advertisements go to every port
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping})
	})
	if err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	return p.fabric.Up(name)
}

// plug gives a namespace a device on a bridge, with an address.
func (p *Pair) plug(ns *host.Namespace, port, device, bridge string, own netip.Prefix) error {
	if err := host.Connect(host.End{NS: p.fabric, Name: port}, host.End{NS: ns, Name: device}, host.LinkOptions{}); err != nil {
		return err
	}
	err := p.fabric.Do(func() error {
		end, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		at, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(end, at)
	})
	if err != nil {
		return fmt.Errorf("port %s of bridge %s: %w", port, bridge, err)
	}
	return ns.AddAddresses(device, own)
}

// Ports are the namespace of the bridges and the names of a director's ports there: the
// clients' first, then the servers', then that of the directors' own network.
func (p *Pair) Ports(director int) (fabric *host.Namespace, names []string) {
	for _, n := range pairNetworks {
		names = append(names, port(director, n.bridge))
	}
	return p.fabric, names
}

// Cut takes a director's port of the clients' network down, or up again: its device loses
// the carrier.
func (p *Pair) Cut(director int, down bool) error {
	name := port(director, clientSide)
	if down {
		return p.fabric.Down(name)
	}
	return p.fabric.Up(name)
}

// Split keeps the directors from each other on all networks, or lets them meet again.
// Clients and servers reach both all the time.
func (p *Pair) Split(apart bool) error {
	return p.fabric.Do(func() error {
		for i := range p.Directors {
			_, ports := p.Ports(i)
			for _, name := range ports {
				link, err := netlink.LinkByName(name)
				if err != nil {
					return fmt.Errorf("port %s: %w", name, err)
				}
				if err := netlink.LinkSetIsolated(link, apart); err != nil {
					return fmt.Errorf("isolate port %s: %w", name, err)
				}
			}
		}
		return nil
	})
}

// Close removes the pair with everything that runs in it. It is idempotent.
func (p *Pair) Close() error {
	list := []*host.Namespace{p.Client}
	for _, s := range p.Servers {
		list = append(list, s.Namespace)
	}
	list = append(list, p.Directors[0], p.Directors[1], p.fabric)
	var errs []error
	for _, ns := range list {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	return errors.Join(errs...)
}
