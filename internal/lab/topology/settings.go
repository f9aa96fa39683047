// SPDX-License-Identifier: Apache-2.0

package topology

// setting is a sysctl of one namespace. An optional one is skipped on kernels
// that do not have it.
type setting struct {
	key, value string
	optional   bool
}

// quiet holds for every namespace: no packets but those of the experiment.
// Neighbour and router discovery would otherwise run on every link.
var quiet = []setting{
	{"net.ipv6.conf.all.disable_ipv6", "1", true},
	{"net.ipv6.conf.default.disable_ipv6", "1", true},
}

var directorSettings = []setting{
	{"net.ipv4.ip_forward", "1", false},
	{"net.ipv4.conf.all.rp_filter", "0", false},
	{"net.ipv4.conf.default.rp_filter", "0", false},
	{"net.ipv4.conf.all.send_redirects", "0", false},
}

var clientSettings = []setting{
	// All of the ports: a source address is then good for 64000
	// connections at a time.
	{"net.ipv4.ip_local_port_range", "1024 65535", false},
}

// A burst of connections must wait in a queue, not be turned away: the queues
// would otherwise be what is measured.
var serverSettings = []setting{
	{"net.core.somaxconn", "65535", false},
	{"net.ipv4.tcp_max_syn_backlog", "65535", false},
}
