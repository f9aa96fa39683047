// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"net/netip"

	"imbang/internal/host"
	"imbang/internal/lab/probe"
	"imbang/internal/lab/topology"
)

// replyDirectly prepares the servers for direct routing or tunnels.
func replyDirectly(t *topology.Cluster, spec Spec) error {
	fabric, port := t.Uplink()
	for i, s := range t.Servers {
		var virtual []netip.Addr
		var own []netip.Prefix
		for _, f := range spec.Families {
			virtual, own = append(virtual, t.Virtual(f)), append(own, t.ClientNetworkAddress(f, 100+i))
		}
		join := func(device string) error {
			return fabric.Share(port, host.End{NS: s.Namespace, Name: device, MAC: fmt.Sprintf("02:00:00:0a:02:%02x", i+1)})
		}
		if err := topology.ReplyDirectly(s.Namespace, join, virtual, own); err != nil {
			return err
		}
		if spec.Forwarding == TUN {
			if err := probe.Decapsulate(s.Namespace, "eth0"); err != nil {
				return fmt.Errorf("prepare %s for tunnels: %w", s.Name, err)
			}
		}
	}
	return nil
}
