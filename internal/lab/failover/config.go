// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"
	"strings"

	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// echoPort is where servers send back what they receive.
const echoPort = 7

// group is the name of the addresses that move together.
const group = "web"

// routerID is the virtual router's.
const routerID = 51

// priority of a director: the first one preempts.
func priority(director int) int { return 150 - 50*director }

// imbangConfig is imbang.yaml of a director.
func imbangConfig(v Variant, director int, servers []string, keyFile string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "director: {client_device: %s, server_device: %s}\n", topology.ClientDevice, topology.ServerDevice)
	if !v.NoSync {
		fmt.Fprintf(&b, "synchronization:\n  replication: {role: pair, listen: %s, to: [%s], key_file: %s}\n",
			topology.SyncAddress(director), topology.SyncAddress(1-director), keyFile)
	}
	if v.Process == imbangProcess {
		fmt.Fprintf(&b, `vrrp:
  groups:
    - name: %s
      priority: %d
      interval: %s
      routers:
        - {device: %s, id: %d, addresses: [%s]}
      addresses:
        - {address: %s, device: %s}
`, group, priority(director), v.Interval, topology.ClientDevice, routerID, topology.PairVirtual, topology.PairGateway, topology.ServerDevice)
	}
	b.WriteString("services:\n")
	for _, service := range []struct {
		name string
		port int
	}{{"http", server.Port}, {"echo", echoPort}} {
		var list []string
		for _, s := range servers {
			list = append(list, fmt.Sprintf("{address: %s}", s))
		}
		fmt.Fprintf(&b, "  - {name: %s, virtual: \"%s:%d\", scheduler: rr, servers: [%s]}\n",
			service.name, topology.PairVirtual.Addr(), service.port, strings.Join(list, ", "))
	}
	return b.String()
}

// keepalivedConfig is keepalived.conf of a director: the same group, with keepalived's own
// way to be as fast, and what it sends after a transition otherwise.
func keepalivedConfig(v Variant, director int) string {
	return fmt.Sprintf(`global_defs {
  vrrp_version 3
  vrrp_rt_priority 10
  vrrp_rlimit_rttime 2000000
}
vrrp_instance %s {
  state BACKUP
  interface %s
  virtual_router_id %d
  priority %d
  advert_int %g
  virtual_ipaddress {
    %s dev %s
  }
  virtual_ipaddress_excluded {
    %s dev %s
  }
  track_interface {
    %s
  }
}
`, group, topology.ClientDevice, routerID, priority(director), v.Interval.Seconds(),
		topology.PairVirtual, topology.ClientDevice, topology.PairGateway, topology.ServerDevice, topology.ServerDevice)
}
