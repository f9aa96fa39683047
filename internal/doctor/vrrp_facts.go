// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/netip"
	"slices"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/process"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/doctor/ruleset"
)

// VRRP is what there is of addresses that move between directors.
type VRRP struct {
	File        string
	FileError   string          // why it cannot be used
	Setup       *setup.Setup    // nil: the file has no section vrrp
	Status      *process.Status // nil: there is no process
	StatusError string          // why a process does not answer
	Devices     []VRRPDevice    // of its groups, by name
	Routes      map[netip.Addr]string
	Rules       *ruleset.Rules // of nftables; nil: not known
	RulesError  string
	LegacyRules bool // iptables-legacy has rules, which nft does not list
	Keepalived  int  // its process in this network namespace; 0: none
	ClockFree   bool // nothing keeps the clock at the right time
	// Silent are the addresses that the data plane guards, and that have no fresh lease, if there is
	// no process: the kernel does not answer for them.
	Silent []netip.Addr
}

// VRRPDevice is one that addresses move to, or that advertisements use.
type VRRPDevice struct {
	Name        string
	Missing     bool
	Addresses   []netip.Addr   // of the host, in order
	Promote     bool           // promote_secondaries in effect
	ReversePath int            // rp_filter in effect
	networks    []netip.Prefix // of IPv4, with the host's address
	// Astray are networks of the device, and the other director of a pair if it is in one of them,
	// that the host has a route to by another device.
	Astray    []Astray
	ARPIgnore int // arp_ignore in effect
}

// Astray is a destination whose route is not by the device that has its network.
type Astray struct {
	To netip.Prefix // of one address: the other director
	By string       // device
}

// device is that of a name.
func (v *VRRP) device(name string) *VRRPDevice {
	for i := range v.Devices {
		if v.Devices[i].Name == name {
			return &v.Devices[i]
		}
	}
	return &VRRPDevice{Name: name, Missing: true}
}

// moves reports whether an address is one of those that move between directors.
func (v *VRRP) moves(a netip.Addr) bool {
	if v == nil || v.Setup == nil {
		return false
	}
	return slices.ContainsFunc(v.Setup.Groups, func(g setup.Group) bool {
		return slices.ContainsFunc(g.AllAddresses(), func(m vrrp.Address) bool { return m.Prefix.Addr() == a })
	})
}

// group is what the process says of a group; nil: nothing.
func (v *VRRP) group(name string) *process.Group {
	if v.Status == nil {
		return nil
	}
	for i := range v.Status.Groups {
		if v.Status.Groups[i].Name == name {
			return &v.Status.Groups[i]
		}
	}
	return nil
}
