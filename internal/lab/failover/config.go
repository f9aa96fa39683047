// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"
	"net/netip"
	"strings"

	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// echoPort is where servers send back what they receive.
const echoPort = 7

// sidePort is where those of a side of a partition do.
func sidePort(side int) int { return echoPort + 1 + side }

// group is the name of the addresses that move together.
const group = "web"

// routerID is the virtual router's.
const routerID = 51

// priority of a director: the first one preempts.
func priority(director int) int { return 150 - 50*director }

// configuration is what a director's files are made of.
type configuration struct {
	variant  Variant
	setting  Setting
	director int
	servers  []string // addresses
	sides    bool     // services whose servers are on one side of a partition
	keyFile  string
}

// imbang is imbang.yaml.
func (c configuration) imbang() string {
	v, director := c.variant, c.director
	var b strings.Builder
	fmt.Fprintf(&b, "director: {client_device: %s, server_device: %s}\n", topology.ClientDevice, topology.ServerDevice)
	if !v.NoSync {
		fmt.Fprintf(&b, "synchronization:\n  replication: {role: pair, listen: %s, to: [%s], key_file: %s}\n",
			topology.SyncAddress(director), topology.SyncAddress(1-director), c.keyFile)
	}
	if v.Process == imbangProcess {
		fmt.Fprintf(&b, `vrrp:
  groups:
    - name: %s
      priority: %d
      interval: %s
      routers:
        - {device: %s, id: %d, addresses: ["%s"]}
`, group, priority(director), v.Interval, topology.ClientDevice, routerID, c.virtual())
		if !c.setting.replyDirectly() {
			fmt.Fprintf(&b, "      addresses:\n        - {address: \"%s\", device: %s}\n", c.gateway(), topology.ServerDevice)
		}
	}
	b.WriteString("services:\n")
	for _, s := range c.services() {
		var list []string
		for _, a := range s.servers {
			list = append(list, fmt.Sprintf("{address: %q}", a))
		}
		fmt.Fprintf(&b, "  - {name: %s, virtual: \"%s\", scheduler: rr, forward: %s, servers: [%s]}\n",
			s.name, netip.AddrPortFrom(c.virtual().Addr(), s.port), forward[c.setting.Method], strings.Join(list, ", "))
	}
	return b.String()
}

// service is a virtual service, whose servers have its port.
type service struct {
	name    string
	port    uint16
	servers []string
}

func (c configuration) services() []service {
	list := []service{{"http", server.Port, c.servers}, {"echo", echoPort, c.servers}}
	for side := range 2 {
		if c.sides {
			list = append(list, service{fmt.Sprintf("side%d", side+1), uint16(sidePort(side)), ofSide(c.servers, side)})
		}
	}
	return list
}

// ofSide are every second of a list: those on a side of a partition.
func ofSide[T any](list []T, side int) (part []T) {
	for i, one := range list {
		if i%2 == side {
			part = append(part, one)
		}
	}
	return part
}

// virtual is the virtual address, gateway the servers' default gateway.
func (c configuration) virtual() netip.Prefix { return topology.PairVirtual(c.setting.Family) }
func (c configuration) gateway() netip.Prefix { return topology.PairGateway(c.setting.Family) }

// keepalived is keepalived.conf: the same group, with keepalived's own way to be as fast,
// and what it sends after a transition otherwise.
func (c configuration) keepalived() string {
	excluded := ""
	if !c.setting.replyDirectly() {
		excluded = fmt.Sprintf("  virtual_ipaddress_excluded {\n    %s dev %s\n  }\n", c.gateway(), topology.ServerDevice)
	}
	// The kernel's synchronization of connections: the master sends, the backup receives.
	sync := ""
	if c.variant.machines() && !c.variant.NoSync {
		sync = fmt.Sprintf("  lvs_sync_daemon %s %s id %d\n", topology.SyncDevice, group, routerID)
	}
	return fmt.Sprintf(`global_defs {
  vrrp_version 3
  vrrp_rt_priority 10
  vrrp_rlimit_rttime 2000000
  vrrp_no_swap
%s}
vrrp_instance %s {
  state BACKUP
  interface %s
  virtual_router_id %d
  priority %d
  advert_int %g
  virtual_ipaddress {
    %s dev %s
  }
%s  track_interface {
    %s
  }
}
`, sync, group, topology.ClientDevice, routerID, priority(c.director), c.variant.Interval.Seconds(),
		c.virtual(), topology.ClientDevice, excluded, topology.ServerDevice)
}

// text is all that a director is given, for people.
func (c configuration) text() string {
	conf := "\n# keepalived.conf\n" + c.keepalived()
	switch c.variant.Process {
	case linuxProcess:
		var b strings.Builder
		b.WriteString("# ipvsadm -R\n" + c.ipvs() + "\n# sysctl\n")
		for _, s := range ipvsSettings {
			fmt.Fprintf(&b, "%s = %s\n", s.Key, s.Value)
		}
		return b.String() + conf
	case keepalivedProcess:
		return c.imbang() + conf
	}
	return c.imbang()
}
