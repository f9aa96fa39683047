// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net"
	"net/netip"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// tunnelSource is the address that the kernel would send from to a server
// behind a tunnel: the tunnel's own end. Without a route there is none yet,
// and the data plane drops what it would send; any later change of the server
// looks again.
func tunnelSource(s model.Server) bpfobj.LbAddress {
	if s.Forward != model.Tunnel {
		return bpfobj.LbAddress{}
	}
	// Connecting a datagram socket looks up the route and sends nothing.
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.Addr, 9)))
	if err != nil {
		return bpfobj.LbAddress{}
	}
	defer c.Close()
	local, _ := netip.AddrFromSlice(c.LocalAddr().(*net.UDPAddr).IP)
	return toAddress(local)
}
