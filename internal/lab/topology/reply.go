// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"net/netip"

	"imbang/internal/host"
)

// DirectDevice is the device of a server by which its replies reach clients without the
// director.
const DirectDevice = "eth1"

// ReplyDirectly prepares a server for direct routing or tunnels: it has the virtual
// addresses and a second device in the clients' network, which join makes, with addresses
// of its own there.
func ReplyDirectly(server *host.Namespace, join func(device string) error, virtual []netip.Addr, own []netip.Prefix) error {
	errs := []error{
		// A virtual address is the director's: servers do not answer ARP
		// requests for it, nor use it as the sender of their own.
		server.Sysctl("net.ipv4.conf.all.arp_ignore", "1"),
		server.Sysctl("net.ipv4.conf.all.arp_announce", "2"),
		// Clients' packets arrive at eth0, and the route to clients is by eth1.
		server.Sysctl("net.ipv4.conf.all.rp_filter", "0"),
		server.Sysctl("net.ipv4.conf.default.rp_filter", "0"),
		server.Sysctl("net.ipv4.conf.eth0.rp_filter", "0"),
		join(DirectDevice),
		server.AddAddresses(DirectDevice, own...),
	}
	for _, a := range virtual {
		errs = append(errs, server.AddAddresses("lo", netip.PrefixFrom(a, a.BitLen())))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("prepare %s for replies without the director: %w", server.Name(), err)
	}
	return nil
}
