// SPDX-License-Identifier: Apache-2.0

package topology

import "slices"

// setting is a sysctl of one namespace. An optional one is skipped on kernels
// that do not have it.
type setting struct {
	key, value string
	optional   bool
}

// withoutIPv6 holds for every namespace of a cluster of IPv4 alone: no packets
// but those of the experiment. Neighbour and router discovery would otherwise
// run on every link.
var withoutIPv6 = []setting{
	{"net.ipv6.conf.all.disable_ipv6", "1", true},
	{"net.ipv6.conf.default.disable_ipv6", "1", true},
}

// quietIPv6 has the same purpose where IPv6 is measured: addresses are good at
// once, and nobody asks for routers.
var quietIPv6 = []setting{
	{"net.ipv6.conf.default.accept_dad", "0", false},
	{"net.ipv6.conf.default.accept_ra", "0", false},
	{"net.ipv6.conf.default.router_solicitations", "0", false},
}

// silence is what keeps a cluster of families quiet.
func silence(families []Family) []setting {
	if slices.Contains(families, IPv6) {
		return quietIPv6
	}
	return withoutIPv6
}

// A local route makes addresses the host's own for IPv4; for IPv6, sockets may
// bind to them only with this.
var localRoutes = setting{"net.ipv6.ip_nonlocal_bind", "1", true}

var directorSettings = []setting{
	{"net.ipv4.ip_forward", "1", false},
	{"net.ipv4.conf.all.rp_filter", "0", false},
	{"net.ipv4.conf.default.rp_filter", "0", false},
	{"net.ipv4.conf.all.send_redirects", "0", false},
	{"net.ipv6.conf.all.forwarding", "1", true},
	localRoutes,
}

var clientSettings = []setting{
	// All of the ports: a source address is then good for 64000
	// connections at a time.
	{"net.ipv4.ip_local_port_range", "1024 65535", false},
	localRoutes,
}

// A burst of connections must wait in a queue, not be turned away: the queues
// would otherwise be what is measured.
var serverSettings = []setting{
	{"net.core.somaxconn", "65535", false},
	{"net.ipv4.tcp_max_syn_backlog", "65535", false},
}
