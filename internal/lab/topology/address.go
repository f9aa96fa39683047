// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"encoding/binary"
	"net/netip"
)

// Family is an address family, by the name that studies use.
type Family string

// The families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// Families lists them.
var Families = []Family{IPv4, IPv6}

// addressPlan is the lab's use of one family. Every address stays inside the
// lab's namespaces.
type addressPlan struct {
	clientGateway, serverGateway netip.Prefix
	virtual                      netip.Prefix // its addresses begin with 1
}

var plans = map[Family]addressPlan{
	IPv4: {
		clientGateway: netip.MustParsePrefix("10.10.0.1/16"),
		serverGateway: netip.MustParsePrefix("172.16.0.1/24"),
		virtual:       netip.MustParsePrefix("10.20.0.0/16"),
	},
	IPv6: {
		clientGateway: netip.MustParsePrefix("fd00:10::1/64"),
		serverGateway: netip.MustParsePrefix("fd00:16::1/64"),
		virtual:       netip.MustParsePrefix("fd00:20::/64"),
	},
}

// client is the address of client namespace i on the clients' network.
func (p addressPlan) client(i int) netip.Addr { return plus(p.clientGateway.Addr(), i+1) }

// server is the address of real server i.
func (p addressPlan) server(i int) netip.Addr { return plus(p.serverGateway.Addr(), i+1) }

// pool is what client namespace i owns besides: 10.10.16(i+1).0/20 or
// fd00:10:0:(i+1)::/64.
func (p addressPlan) pool(i int) netip.Prefix {
	if p.virtual.Addr().Is4() {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 10, byte(16 * (i + 1)), 0}), 20)
	}
	a := p.clientGateway.Masked().Addr().As16()
	binary.BigEndian.PutUint16(a[6:], uint16(i+1))
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

// plus is the n-th address after a. Only the last four bytes count.
func plus(a netip.Addr, n int) netip.Addr {
	b := a.AsSlice()
	last := b[len(b)-4:]
	binary.BigEndian.PutUint32(last, binary.BigEndian.Uint32(last)+uint32(n))
	sum, _ := netip.AddrFromSlice(b) // of a right length
	return sum
}

// hosts are the first n addresses of a pool that nobody takes for a network
// or broadcast address.
func hosts(pool netip.Prefix, n int) []netip.Addr {
	var list []netip.Addr
	for a := pool.Addr(); len(list) < n && pool.Contains(a); a = a.Next() {
		b := a.AsSlice()
		if last := b[len(b)-1]; last != 0 && last != 255 {
			list = append(list, a)
		}
	}
	return list
}
