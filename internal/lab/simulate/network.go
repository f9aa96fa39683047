// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"

	"imbang/internal/host"
)

// prefix begins the names of the namespaces made here.
const prefix = "imbang-sim"

// The addresses of a simulation. Nobody has them: routes lead to neighbours
// that are not there, and a packet goes no further than the program.
const (
	clientDev, serverDev = "clients0", "servers0"
	clientLink           = "10.0.0.1/30"
	clientRouter         = "10.0.0.2"
	serverLink           = "172.16.0.1/30"
	serverRouter         = "172.16.0.2"
	virtualNet           = "198.18.0.0/15" // RFC 2544: benchmarks'
)

var (
	directorMAC = net.HardwareAddr{2, 0, 0, 0, 1, 1}
	peerMAC     = net.HardwareAddr{2, 0, 0, 0, 1, 2}
	clientNet   = netip.MustParsePrefix("10.64.0.0/10")
	serverNet   = netip.MustParsePrefix("172.20.0.0/14")
)

// Limits that the addresses set.
const (
	MaxServers      = 1 << 16
	MaxClients      = 1 << 22
	MaxDestinations = 1 << 17
)

const (
	servicePort = 80
	serverPort  = 8080
)

func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func fromNumber(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// network is the namespace whose routes the packets take.
type network struct {
	ns             *host.Namespace
	client, server int // indexes of devices
}

// newNetwork makes it, and removes what simulations left that were killed.
func newNetwork() (*network, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("not permitted: a simulation loads BPF programs and makes a network namespace; run it as root, with sudo")
	}
	if _, err := host.Sweep(prefix); err != nil {
		return nil, err
	}
	run, err := host.NewRun(prefix)
	if err != nil {
		return nil, err
	}
	ns, err := host.NewNamespace(run.Name("director"))
	if err != nil {
		return nil, err
	}
	n := &network{ns: ns}
	if err := n.build(); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return n, nil
}

func (n *network) build() (err error) {
	if err := n.ns.Sysctl("net.ipv4.ip_forward", "1"); err != nil {
		return err
	}
	for _, side := range []struct {
		dev, link, router string
		net               netip.Prefix
		index             *int
	}{
		{clientDev, clientLink, clientRouter, clientNet, &n.client},
		{serverDev, serverLink, serverRouter, serverNet, &n.server},
	} {
		router := netip.MustParseAddr(side.router)
		err := host.Connect(host.End{NS: n.ns, Name: side.dev, MAC: directorMAC.String()},
			host.End{NS: n.ns, Name: side.dev + "p", MAC: peerMAC.String()}, host.LinkOptions{})
		if err != nil {
			return err
		}
		if err := errors.Join(
			n.ns.AddAddresses(side.dev, netip.MustParsePrefix(side.link)),
			n.ns.AddRoutes(host.Route{Dst: side.net, Via: router}),
			n.ns.AddNeighbours(side.dev, peerMAC.String(), router),
		); err != nil {
			return err
		}
		if *side.index, err = n.ns.LinkIndex(side.dev); err != nil {
			return err
		}
	}
	return nil
}

// Close removes the namespace.
func (n *network) Close() error { return n.ns.Close() }
