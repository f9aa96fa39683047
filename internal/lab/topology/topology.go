// SPDX-License-Identifier: Apache-2.0

// Package topology builds the three tiers of a cluster out of network
// namespaces: clients, one director, real servers.
//
//	c1  10.10.0.2 --+                                       +-- 172.16.0.2  s1
//	c2  10.10.0.3 --+-- ext -- ext0  DIR  int0 -- int -----+-- 172.16.0.3  s2
//	...                    10.10.0.1   172.16.0.1             ...
//
// The ends of a tier share a network, as they would in a rack: the director
// has one device to each side. Its other end lies in a namespace of its own,
// "switch", and carries a macvlan for each client or server namespace. That
// costs a packet one queue a tier; a bridge costs two, and with it this
// topology carries a quarter fewer connections. Point-to-point links would need
// a device of the director for each end.
//
// With IPv6 the networks are fd00:10::/64 and fd00:16::/64, numbered alike.
//
// The many addresses of a client namespace are one local route and, on the
// director, one route: no address table, and one neighbour entry. Several
// virtual addresses are one local route of the director.
//
// The package owns namespaces, addresses and settings of the cluster. It
// starts no process and imports nothing of the lab.
package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"imbang/internal/host"
)

// Prefix begins the name of every namespace and directory of the lab.
const Prefix = "imbang-lab"

// The director's devices.
const (
	ClientDevice = "ext0"
	ServerDevice = "int0"
)

// Director MAC addresses; those of the other ends follow from their number.
const (
	extMAC = "02:00:00:0a:00:01"
	intMAC = "02:00:00:10:00:01"
)

// Spec says how large a cluster is.
type Spec struct {
	Families         []Family // IPv4 if empty
	ClientNamespaces int
	ClientAddresses  int // over all client namespaces, of each family
	Servers          int
	VirtualAddresses int // of each family; 1 if 0
}

// Cluster is a built one.
type Cluster struct {
	Director *host.Namespace
	Clients  []Client
	Servers  []Server

	fabric   *host.Namespace
	families []Family
	virtuals int
}

// Client is a namespace full of clients.
type Client struct {
	Namespace *host.Namespace
	Own       map[Family]netip.Addr // of eth0
	Addresses map[Family][]netip.Addr
}

// Server is the namespace of one real server.
type Server struct {
	Name      string // s1, s2, ...
	Namespace *host.Namespace
	Addr      map[Family]netip.Addr
}

// Virtuals are the virtual addresses of a family that services listen on; they
// are the director's own, and the clients' default route leads there.
func (c *Cluster) Virtuals(f Family) []netip.Addr { return hosts(plans[f].virtual, max(1, c.virtuals)) }

// Virtual is the first of them.
func (c *Cluster) Virtual(f Family) netip.Addr { return c.Virtuals(f)[0] }

// VirtualNetwork is a network of virtual addresses and nothing else.
func (c *Cluster) VirtualNetwork(f Family) netip.Prefix { return plans[f].virtual }

// Uplink is where the clients' network ends at the director's device: what is
// sent out of it comes in there, with any source address.
func (c *Cluster) Uplink() (*host.Namespace, string) { return c.fabric, clientSide }

// Gateways are the director's addresses on the clients' and the servers' side.
func (c *Cluster) Gateways(f Family) []netip.Addr {
	return []netip.Addr{plans[f].clientGateway.Addr(), plans[f].serverGateway.Addr()}
}

// ClientNetworkAddress is the n-th address after the gateway of the clients'
// network, with its prefix length.
func (c *Cluster) ClientNetworkAddress(f Family, n int) netip.Prefix {
	gateway := plans[f].clientGateway
	return netip.PrefixFrom(plus(gateway.Addr(), n), gateway.Bits())
}

// Build makes a cluster whose namespaces carry the run's name. On an error
// nothing is left.
func Build(run host.Run, spec Spec) (*Cluster, error) {
	c := &Cluster{virtuals: spec.VirtualAddresses}
	if err := c.build(run, spec); err != nil {
		return nil, errors.Join(fmt.Errorf("build the cluster: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) build(run host.Run, spec Spec) (err error) {
	if c.families = spec.Families; len(c.families) == 0 {
		c.families = []Family{IPv4}
	}
	if c.fabric, err = c.newNamespace(run, "switch", nil); err != nil {
		return err
	}
	if c.Director, err = c.newNamespace(run, "dir", directorSettings); err != nil {
		return err
	}
	if err := c.joinDirector(); err != nil {
		return err
	}
	for i := range spec.ClientNamespaces {
		share := spec.ClientAddresses / spec.ClientNamespaces
		if i < spec.ClientAddresses%spec.ClientNamespaces {
			share++
		}
		if err := c.addClient(run, i, share); err != nil {
			return err
		}
	}
	for i := range spec.Servers {
		if err := c.addServer(run, i); err != nil {
			return err
		}
	}
	return nil
}

// The switch's devices, one a tier.
const (
	clientSide = "ext"
	serverSide = "int"
)

// joinDirector links the director to both sides of the switch and gives it the
// gateways' addresses and the virtual ones.
func (c *Cluster) joinDirector() error {
	for _, side := range []struct{ dev, port, mac string }{
		{ClientDevice, clientSide, extMAC}, {ServerDevice, serverSide, intMAC},
	} {
		director, port := host.End{NS: c.Director, Name: side.dev, MAC: side.mac}, host.End{NS: c.fabric, Name: side.port}
		if err := host.Connect(director, port, host.LinkOptions{}); err != nil {
			return err
		}
	}
	for _, f := range c.families {
		p := plans[f]
		if err := errors.Join(
			c.Director.AddAddresses(ClientDevice, p.clientGateway),
			c.Director.AddAddresses(ServerDevice, p.serverGateway),
			c.addVirtual(f),
		); err != nil {
			return err
		}
	}
	return nil
}

// addVirtual gives the director the virtual addresses of a family.
func (c *Cluster) addVirtual(f Family) error {
	list := c.Virtuals(f)
	if len(list) == 1 {
		return c.Director.AddAddresses("lo", netip.PrefixFrom(list[0], list[0].BitLen()))
	}
	return c.Director.AddRoutes(host.Route{Dst: c.VirtualNetwork(f), Dev: "lo", Local: true})
}

// addClient adds client namespace i with n addresses of each family, which it
// owns by one local route.
func (c *Cluster) addClient(run host.Run, i, n int) error {
	ns, err := c.newNamespace(run, fmt.Sprintf("c%d", i+1), clientSettings)
	if err != nil {
		return err
	}
	client := Client{ns, map[Family]netip.Addr{}, map[Family][]netip.Addr{}}
	c.Clients = append(c.Clients, client)
	mac := fmt.Sprintf("02:00:00:0a:01:%02x", i+1)
	if err := c.fabric.Share(clientSide, host.End{NS: ns, Name: "eth0", MAC: mac}); err != nil {
		return err
	}
	for _, f := range c.families {
		p := plans[f]
		addr, pool := p.client(i), p.pool(i)
		client.Own[f], client.Addresses[f] = addr, hosts(pool, n)
		if err := errors.Join(
			c.endpoint(ns, netip.PrefixFrom(addr, p.clientGateway.Bits()), p.clientGateway.Addr(), extMAC),
			ns.AddRoutes(host.Route{Dst: pool, Dev: "lo", Local: true}),
			c.Director.AddNeighbours(ClientDevice, mac, addr),
			c.Director.AddRoutes(host.Route{Dst: pool, Via: addr}),
		); err != nil {
			return err
		}
	}
	return nil
}

// addServer adds real server i with the director as its gateway.
func (c *Cluster) addServer(run host.Run, i int) error {
	s := Server{Name: fmt.Sprintf("s%d", i+1), Addr: map[Family]netip.Addr{}}
	var err error
	if s.Namespace, err = c.newNamespace(run, s.Name, serverSettings); err != nil {
		return err
	}
	c.Servers = append(c.Servers, s)
	mac := fmt.Sprintf("02:00:00:10:01:%02x", i+1)
	if err := c.fabric.Share(serverSide, host.End{NS: s.Namespace, Name: "eth0", MAC: mac}); err != nil {
		return err
	}
	for _, f := range c.families {
		p := plans[f]
		s.Addr[f] = p.server(i)
		if err := errors.Join(
			c.endpoint(s.Namespace, netip.PrefixFrom(s.Addr[f], p.serverGateway.Bits()), p.serverGateway.Addr(), intMAC),
			c.Director.AddNeighbours(ServerDevice, mac, s.Addr[f]),
		); err != nil {
			return err
		}
	}
	return nil
}

// endpoint gives eth0 its address, its gateway and the gateway's MAC: no ARP
// or neighbour discovery may fall into a measurement.
func (c *Cluster) endpoint(ns *host.Namespace, addr netip.Prefix, gateway netip.Addr, mac string) error {
	if err := ns.AddAddresses("eth0", addr); err != nil {
		return err
	}
	if err := ns.AddNeighbours("eth0", mac, gateway); err != nil {
		return err
	}
	anywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if gateway.Is6() {
		anywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return ns.AddRoutes(host.Route{Dst: anywhere, Via: gateway})
}

// Close removes the cluster with everything that runs in it. It is idempotent.
func (c *Cluster) Close() error {
	var errs []error
	for _, ns := range c.namespaces() {
		errs = append(errs, ns.Close())
	}
	return errors.Join(errs...)
}

// Release closes the descriptors of a cluster that outlives this process. The
// cluster is not usable afterwards.
func (c *Cluster) Release() {
	for _, ns := range c.namespaces() {
		ns.Release()
	}
}

// namespaces lists what was built, clients first: with the load gone, the rest
// comes down quietly.
func (c *Cluster) namespaces() []*host.Namespace {
	var list []*host.Namespace
	for _, cl := range c.Clients {
		list = append(list, cl.Namespace)
	}
	for _, s := range c.Servers {
		list = append(list, s.Namespace)
	}
	list = append(list, c.Director, c.fabric)
	return slices.DeleteFunc(list, func(n *host.Namespace) bool { return n == nil })
}

func (c *Cluster) newNamespace(run host.Run, role string, settings []setting) (*host.Namespace, error) {
	ns, err := host.NewNamespace(run.Name(role))
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Concat(silence(c.families), settings) {
		err := ns.Sysctl(s.key, s.value)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return nil, errors.Join(err, ns.Close())
		}
	}
	return ns, nil
}
