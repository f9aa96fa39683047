// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"net/netip"

	"imbang/internal/host"
	"imbang/internal/lab/probe"
	"imbang/internal/lab/topology"
)

// replyDirectly prepares the servers for direct routing or tunnels: each has the
// virtual addresses and a second device, eth1, in the clients' network, by which
// its replies reach the clients without the director.
func replyDirectly(t *topology.Cluster, spec Spec) error {
	fabric, port := t.Uplink()
	for i, s := range t.Servers {
		mac := fmt.Sprintf("02:00:00:0a:02:%02x", i+1)
		errs := []error{
			// A virtual address is the director's: servers do not answer ARP
			// requests for it, nor use it as the sender of their own.
			s.Namespace.Sysctl("net.ipv4.conf.all.arp_ignore", "1"),
			s.Namespace.Sysctl("net.ipv4.conf.all.arp_announce", "2"),
			// Clients' packets arrive at eth0, and the route to clients is by eth1.
			s.Namespace.Sysctl("net.ipv4.conf.all.rp_filter", "0"),
			s.Namespace.Sysctl("net.ipv4.conf.default.rp_filter", "0"),
			s.Namespace.Sysctl("net.ipv4.conf.eth0.rp_filter", "0"),
			fabric.Share(port, host.End{NS: s.Namespace, Name: "eth1", MAC: mac}),
		}
		for _, f := range spec.Families {
			virtual := t.Virtual(f)
			errs = append(errs,
				s.Namespace.AddAddresses("lo", netip.PrefixFrom(virtual, virtual.BitLen())),
				s.Namespace.AddAddresses("eth1", t.ClientNetworkAddress(f, 100+i)))
		}
		if spec.Forwarding == TUN {
			errs = append(errs, probe.Decapsulate(s.Namespace, "eth0"))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("prepare %s for replies without the director: %w", s.Name, err)
		}
	}
	return nil
}
