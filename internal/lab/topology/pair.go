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
// hosts find it, and the servers their gateway, by ARP or neighbour discovery: that is what
// a takeover changes. Servers for direct routing and tunnels come after the others, each
// with a second device in the clients' network.
type Pair struct {
	Directors [2]*host.Namespace // nil: of machines (machine.go)
	// Clients are one, or one on each side of a partition.
	Clients []*host.Namespace
	Servers []Server // behind the directors: the gateway's address is a director's
	Direct  []Server // that reply without the directors

	fabric   *host.Namespace
	families []Family
	plugs    []pairPlug
	apart    bool
}

// PairSpec says how large a pair is.
type PairSpec struct {
	Families []Family // IPv4 if empty
	Servers  int      // behind the directors
	Direct   int      // that reply without the directors
	// Sides has the networks fall apart into two halves, with a director, a client and
	// every second server each (Partition).
	Sides bool
	// Machines: the directors are machines, not namespaces (machine.go).
	Machines bool
}

// pairPlug is a port of a bridge.
type pairPlug struct {
	port, bridge string
	side         int // of a partition
}

// The device of the directors' own network.
const SyncDevice = "sync0"

// pairNetworks are the bridges, with the directors' devices on them.
var pairNetworks = []struct{ bridge, device string }{{clientSide, ClientDevice}, {serverSide, ServerDevice}, {"sync", SyncDevice}}

// Source is the n-th further address of a client; they begin again after some 4000.
func (p *Pair) Source(f Family, client, n int) netip.Addr {
	const usable = 1<<12 - 2
	return plus(plans[f].pool(client).Addr(), 1+n%usable)
}

// PairVirtual is the virtual address of a family.
func PairVirtual(f Family) netip.Prefix {
	a := plus(plans[f].virtual.Addr(), 1)
	return netip.PrefixFrom(a, a.BitLen())
}

// PairGateway is the gateway of the servers behind the directors.
func PairGateway(f Family) netip.Prefix { return plans[f].serverGateway }

// The first director's number in the networks of clients and servers; the second has the
// next. Servers that reply directly begin at directNumber in the clients'.
const (
	directorNumber = 0xf9
	directNumber   = 100
)

// pairSync is the first director's address on the directors' own network.
var pairSync = netip.MustParsePrefix("192.168.78.1/24")

// SyncAddress is the address of a director, 0 or 1, on the directors' own network.
func SyncAddress(director int) netip.Addr { return plus(pairSync.Addr(), director) }

// Own is the address of a director, 0 or 1, on the clients' network.
func (p *Pair) Own(f Family, director int) netip.Addr {
	return numbered(plans[f].clientGateway, directorNumber+director).Addr()
}

// ClientAddress is the address that a client, 0 or 1, sends from.
func (p *Pair) ClientAddress(f Family, client int) netip.Addr {
	return numbered(plans[f].clientGateway, client+1).Addr()
}

// own are the addresses of a director on a network.
func (p *Pair) own(director int, bridge string) (all []netip.Prefix) {
	if bridge == "sync" {
		return []netip.Prefix{netip.PrefixFrom(SyncAddress(director), pairSync.Bits())}
	}
	for _, f := range p.families {
		all = append(all, numbered(sideOf(f, bridge), directorNumber+director))
	}
	return all
}

// sideOf is a network with its first address.
func sideOf(f Family, bridge string) netip.Prefix {
	if bridge == clientSide {
		return plans[f].clientGateway
	}
	return plans[f].serverGateway
}

// numbered is the n-th address after the first one of a network.
func numbered(network netip.Prefix, n int) netip.Prefix {
	return netip.PrefixFrom(plus(network.Addr(), n), network.Bits())
}

var pairDirectorSettings = slices.Concat(directorSettings, []setting{
	// The stack is asked for addresses of one device by another only in error.
	{"net.ipv4.conf.all.arp_ignore", "1", false},
	{"net.ipv4.conf.all.promote_secondaries", "1", false},
})

// BuildPair makes a pair whose namespaces carry the run's name. On an error nothing is left.
func BuildPair(run host.Run, spec PairSpec) (*Pair, error) {
	p := &Pair{families: spec.Families}
	if len(p.families) == 0 {
		p.families = []Family{IPv4}
	}
	if err := p.build(run, spec); err != nil {
		return nil, errors.Join(fmt.Errorf("build two directors: %w", err), p.Close())
	}
	return p, nil
}

func (p *Pair) build(run host.Run, spec PairSpec) (err error) {
	plain := &Cluster{families: p.families} // for its settings of namespaces
	if p.fabric, err = plain.newNamespace(run, "switch", nil); err != nil {
		return err
	}
	clients := 1
	for _, n := range pairNetworks {
		if err := p.addBridge(n.bridge); err != nil {
			return err
		}
		if spec.Sides {
			clients = 2
			if err := p.addBridge(n.bridge + otherHalf); err != nil {
				return err
			}
		}
	}
	for i := range p.Directors {
		if spec.Machines {
			if err := p.addTaps(i); err != nil {
				return err
			}
			continue
		}
		if p.Directors[i], err = plain.newNamespace(run, fmt.Sprintf("dir%d", i+1), pairDirectorSettings); err != nil {
			return err
		}
		for _, n := range pairNetworks {
			if err := p.plug(p.Directors[i], pairPlug{port(i, n.bridge), n.bridge, i}, n.device, p.own(i, n.bridge)...); err != nil {
				return err
			}
		}
	}
	for i := range clients {
		if err := p.addClient(plain, run, i); err != nil {
			return err
		}
	}
	for i := range spec.Servers + spec.Direct {
		if err := p.addServer(plain, run, i, i >= spec.Servers); err != nil {
			return err
		}
	}
	for _, d := range p.Directors {
		if d == nil {
			continue
		}
		if err := d.AddRoutes(p.clientRoutes()...); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pair) addClient(plain *Cluster, run host.Run, i int) error {
	name := fmt.Sprintf("c%d", i+1)
	ns, err := plain.newNamespace(run, name, clientSettings)
	if err != nil {
		return err
	}
	p.Clients = append(p.Clients, ns)
	var own []netip.Prefix
	for _, f := range p.families {
		own = append(own, numbered(plans[f].clientGateway, i+1))
	}
	if err := p.plug(ns, pairPlug{name, clientSide, i}, "eth0", own...); err != nil {
		return err
	}
	for _, f := range p.families {
		if err := ns.AddRoutes(host.Route{Dst: PairVirtual(f), Dev: "eth0"}, host.Route{Dst: plans[f].pool(i), Dev: "lo", Local: true}); err != nil {
			return err
		}
	}
	return nil
}

// addServer adds server i, counted over both kinds.
func (p *Pair) addServer(plain *Cluster, run host.Run, i int, direct bool) (err error) {
	s := Server{Name: fmt.Sprintf("s%d", i+1), Addr: map[Family]netip.Addr{}}
	var own, outside []netip.Prefix
	var virtual []netip.Addr
	for _, f := range p.families {
		s.Addr[f] = plans[f].server(i)
		own = append(own, numbered(plans[f].serverGateway, i+1))
		outside = append(outside, numbered(plans[f].clientGateway, directNumber+i))
		virtual = append(virtual, PairVirtual(f).Addr())
	}
	if s.Namespace, err = plain.newNamespace(run, s.Name, serverSettings); err != nil {
		return err
	}
	list := &p.Servers
	if direct {
		list = &p.Direct
	}
	side := len(*list) % 2
	*list = append(*list, s)
	if err := p.plug(s.Namespace, pairPlug{s.Name, serverSide, side}, "eth0", own...); err != nil {
		return err
	}
	if direct {
		err := ReplyDirectly(s.Namespace, func(device string) error {
			return p.plug(s.Namespace, pairPlug{s.Name + "x", clientSide, side}, device)
		}, virtual, outside)
		if err != nil {
			return err
		}
		return s.Namespace.AddRoutes(p.clientRoutes()...)
	}
	for _, f := range p.families {
		anywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if f == IPv6 {
			anywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if err := s.Namespace.AddRoutes(host.Route{Dst: anywhere, Via: PairGateway(f).Addr()}); err != nil {
			return err
		}
	}
	return nil
}

// clientRoutes lead to the clients' further addresses. A local route answers ARP requests,
// but no neighbour solicitations: clients' own addresses are the gateways.
func (p *Pair) clientRoutes() (list []host.Route) {
	for i := range p.Clients {
		for _, f := range p.families {
			list = append(list, host.Route{Dst: plans[f].pool(i), Via: plus(plans[f].clientGateway.Addr(), i+1)})
		}
	}
	return list
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

// plug gives a namespace a device on a bridge, with addresses.
func (p *Pair) plug(ns *host.Namespace, at pairPlug, device string, own ...netip.Prefix) error {
	if err := host.Connect(host.End{NS: p.fabric, Name: at.port}, host.End{NS: ns, Name: device}, host.LinkOptions{}); err != nil {
		return err
	}
	p.plugs = append(p.plugs, at)
	if err := p.fabric.Do(func() error { return join(at.port, at.bridge) }); err != nil {
		return err
	}
	return ns.AddAddresses(device, own...)
}

// join has a port be one of a bridge.
func join(port, bridge string) error {
	end, err := netlink.LinkByName(port)
	if err == nil {
		var at netlink.Link
		if at, err = netlink.LinkByName(bridge); err == nil {
			err = netlink.LinkSetMaster(end, at)
		}
	}
	if err != nil {
		return fmt.Errorf("port %s of bridge %s: %w", port, bridge, err)
	}
	return nil
}

// otherHalf ends the names of the bridges of a partition's second side.
const otherHalf = "2"

// Partition has every network fall apart into two halves, or makes them whole again: the
// second director, client and every second server do not reach the first ones. No device
// loses its carrier.
func (p *Pair) Partition(apart bool) error {
	if apart == p.apart {
		return nil
	}
	p.apart = apart
	return p.fabric.Do(func() error {
		for _, one := range p.plugs {
			if one.side == 0 {
				continue
			}
			bridge := one.bridge
			if apart {
				bridge += otherHalf
			}
			if err := join(one.port, bridge); err != nil {
				return err
			}
		}
		return nil
	})
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
	list := slices.Clone(p.Clients)
	for _, s := range slices.Concat(p.Servers, p.Direct) {
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
