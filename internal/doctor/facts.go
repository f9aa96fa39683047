// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/netip"

	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
)

// Facts are what there is to judge.
type Facts struct {
	Release string   // of the kernel
	Missing []string // what the data plane needs and the kernel has not
	JITOff  bool

	Loaded          bool
	Attachments     []director.Attachment
	Gone            []string // sides whose device is gone
	Capacity        uint32   // connections of IPv4; one of IPv6 takes the room of two
	Connections     [2]uint64
	Services        []Service
	ServicesMissing bool   // imbang run has the alarm service-missing
	Daemon          bool   // imbang run runs: it refuses to have its director detached
	Attaches        bool   // and attaches the director by itself
	DeviceAlarm     string // the text of its alarm device
	NoDaemon        string // configuration of services that imbang run does not keep, as it does not run
	Backup          bool   // a backup role of synchronization runs: the addresses may be another director's

	HairpinsTo uint16 // the last port that hairpins may have; 0 without the setting
	FirstPort  uint16 // of those that the kernel gives to sockets of the namespace

	IPv4Forwarding, IPv6Forwarding bool // of the namespace
	Conntrack                      bool // connection tracking is loaded
	CPUs                           int

	Devices []Device
	Sockets []Socket
	VRRP    *VRRP  // nil: addresses do not move by imbang
	Pair    *Pair  // nil: the daemon has no peer, or does not run
	Proxy   *Proxy // nil: there is no layer 7
}

// Device is one that the director is, or is to be, attached to.
type Device struct {
	Name           string
	Client, Server bool // which side; one may be both
	MTU            int
	Down           bool
	Forwarding     [2]bool // IPv4, IPv6
	ReversePath    int     // rp_filter in effect
	Redirects      bool    // send_redirects in effect
	GRO, TSO, LRO  bool
	Queues         host.Queues // 0: the driver does not say
	Steering       bool        // RPS hands packets of the only queue to other CPUs
	NoXDP          string      // why native XDP is not possible; "" if it is
	Tags           director.Tags
	Veth           bool
	OtherMAC       bool // the director's XDP programs expect another hardware address
}

// Service is a virtual service and its servers.
type Service struct {
	model.ServiceStatus
	Route   host.RouteType // to its address
	Servers []Server
}

// Server is one of a service's, and the route to it.
type Server struct {
	model.ServerStatus
	host.Reach
}

// uses reports whether the table has services of a family, or none at all: it
// may get some.
func (f Facts) uses(family model.Family) bool {
	any := false
	for _, s := range f.Services {
		any = true
		if s.Key.Family == family {
			return true
		}
	}
	return !any && family == model.IPv4
}

// layer7Alone reports whether there is no director, and none is wanted.
func (f Facts) layer7Alone() bool {
	return !f.Loaded && len(f.Devices) == 0 && f.Proxy != nil && f.Proxy.Alone
}

// xdp is the mode that is attached, of XDP; "" if none.
func (f Facts) xdp() director.Hook {
	for _, a := range f.Attachments {
		if a.Hook == director.HookXDP || a.Hook == director.HookXDPGeneric {
			return a.Hook
		}
	}
	return ""
}

// addresses are those of the services, each once: the director's own, and the first services of others.
func (f Facts) addresses() (own []netip.Addr, others []Service) {
	seen := map[netip.Addr]bool{}
	for _, s := range f.Services {
		a := s.Key.Addr
		if !a.IsValid() || seen[a] {
			continue
		}
		seen[a] = true
		if s.Route == host.LocalRoute {
			own = append(own, a)
		} else {
			others = append(others, s)
		}
	}
	return own, others
}
