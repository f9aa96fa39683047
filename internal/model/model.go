// SPDX-License-Identifier: Apache-2.0

// Package model holds the nouns of Linux Virtual Server as plain values:
// virtual services, real servers, their counters and connections.
//
// It is pure: it imports neither BPF nor netlink, and nothing in it talks to
// the kernel. The director turns these values into maps, the ipvsadm
// personality turns command lines into these values.
package model

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Protocol is an IP protocol number as in the IPv4 header (RFC 791, 3.1).
type Protocol uint8

// The transport protocols a virtual service can have. A fwmark service has
// protocol 0: it takes whatever carries the mark.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String is the name ipvsadm prints: TCP, UDP, SCTP, FWM for 0.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	case 0:
		return "FWM"
	}
	return fmt.Sprintf("IP%d", uint8(p))
}

// Word is a protocol's name in messages and JSON: tcp, udp, sctp; empty for 0.
func (p Protocol) Word() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return ""
}

// ProtocolNamed is the protocol of such a name.
func ProtocolNamed(word string) (Protocol, bool) {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		if p.Word() == word {
			return p, true
		}
	}
	return 0, false
}

// Family is an address family.
type Family uint8

// Address families, with Linux's AF_INET and AF_INET6 as values.
const (
	IPv4 Family = 2
	IPv6 Family = 10
)

// SingleHost reports whether a server can have an address (ip_vs_new_dest). A subnet's
// broadcast address is not known to be one here.
func SingleHost(a netip.Addr) bool {
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return a.IsValid() && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast() && !(a.Is6() && a.IsLinkLocalUnicast()) && a != broadcast
}

// Destination reports whether packets for a service can have an address as their
// destination. Linux takes the others for a service also, which is then never used.
func Destination(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast()
}

// FamilyOf returns the family of an address. As to Linux, ::ffff:10.0.0.1 is
// an IPv6 address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// ServiceKey names a virtual service: protocol, address and port, or a
// firewall mark with a family. Exactly one of the two forms is filled.
type ServiceKey struct {
	Protocol Protocol
	Addr     netip.Addr // the virtual address; invalid for a fwmark service
	Port     uint16     // host byte order; 0 is "every port"
	Mark     uint32     // non-zero for a fwmark service
	Family   Family     // of Addr, or of the marked packets
}

// AddrKey is the key of a service by protocol, address and port.
func AddrKey(p Protocol, ap netip.AddrPort) ServiceKey {
	return ServiceKey{Protocol: p, Addr: ap.Addr(), Port: ap.Port(), Family: FamilyOf(ap.Addr())}
}

// MarkKey is the key of a fwmark service.
func MarkKey(mark uint32, f Family) ServiceKey { return ServiceKey{Mark: mark, Family: f} }

// String is how errors name a service: 10.0.0.1:80/tcp, or fwmark 3.
func (k ServiceKey) String() string {
	if k.Mark != 0 {
		if k.Family == IPv6 {
			return fmt.Sprintf("fwmark %d (IPv6)", k.Mark)
		}
		return fmt.Sprintf("fwmark %d", k.Mark)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.Addr, k.Port), k.Protocol.Word())
}

// ParseServiceKey reads what String writes.
func ParseServiceKey(s string) (k ServiceKey, err error) {
	wrong := fmt.Errorf("%q is not a service such as 10.20.0.1:80/tcp, [2001:db8::1]:80/udp, fwmark 3 or fwmark 3 (IPv6)", s)
	if number, is := strings.CutPrefix(s, "fwmark "); is {
		family := IPv4
		if n, six := strings.CutSuffix(number, " (IPv6)"); six {
			number, family = n, IPv6
		}
		mark, err := strconv.ParseUint(number, 10, 32)
		if err != nil || mark == 0 {
			return k, wrong
		}
		return MarkKey(uint32(mark), family), nil
	}
	at := strings.LastIndexByte(s, '/')
	if at < 0 {
		return k, wrong
	}
	protocol, ok := ProtocolNamed(s[at+1:])
	if !ok {
		return k, wrong
	}
	addr, err := netip.ParseAddrPort(s[:at])
	if err != nil {
		return k, wrong
	}
	return AddrKey(protocol, addr), nil
}

// ServiceFlags are the IP_VS_SVC_F_* bits of Linux (uapi/linux/ip_vs.h).
type ServiceFlags uint32

// Service flags, with Linux's values.
const (
	Persistent ServiceFlags = 0x01
	OnePacket  ServiceFlags = 0x04
	SchedFlag1 ServiceFlags = 0x08 // schedulers have names for them
	SchedFlag2 ServiceFlags = 0x10
	SchedFlag3 ServiceFlags = 0x20
)

// Netmask groups the clients of a persistent service, as Linux has it: for IPv4
// the bits of the address that count, holes and all, in host byte order; for
// IPv6 the length of a prefix.
type Netmask uint32

// FullMask is the netmask by which each address stands alone.
func FullMask(f Family) Netmask {
	if f == IPv6 {
		return 128
	}
	return ^Netmask(0)
}

// Service is a virtual service.
type Service struct {
	Key       ServiceKey
	Scheduler string // by Linux's name: rr, wrr, lc, ...
	Flags     ServiceFlags
	Timeout   time.Duration // of persistence; whole seconds
	Netmask   Netmask
	Engine    string // persistence engine, usually empty
}

// TunnelType is the encapsulation of a Tunnel server, with Linux's
// IP_VS_CONN_F_TUNNEL_TYPE_* values.
type TunnelType uint8

// Tunnel encapsulations.
const (
	IPIP TunnelType = 0
	GUE  TunnelType = 1
	GRE  TunnelType = 2
)

// Tunnel flags, with Linux's IP_VS_TUNNEL_ENCAP_FLAG_* values.
const (
	TunnelNoCsum  uint16 = 0
	TunnelCsum    uint16 = 1
	TunnelRemCsum uint16 = 2
)

// Server is a real server of one service.
type Server struct {
	Addr    netip.Addr
	Port    uint16 // host byte order; 0 keeps the client's destination port
	Forward Forward
	Weight  int32 // administrative; 0 quiesces: no new connections
	// Upper and Lower are connection thresholds: at Upper the server takes
	// no new connections until it has fewer than Lower (or, with Lower 0,
	// than three quarters of Upper). 0 means none.
	Upper, Lower uint32

	TunnelType  TunnelType
	TunnelPort  uint16
	TunnelFlags uint16
}

// AddrPort is the server's address and port.
func (s Server) AddrPort() netip.AddrPort { return netip.AddrPortFrom(s.Addr, s.Port) }

// Stats are totals: as Stats of a status since creation or the last zeroing, as
// Total since creation, which no zeroing changes and which never decrease. "In" is
// towards the real server, "Out" towards the client; bytes are IP bytes.
type Stats struct {
	Conns, InPkts, OutPkts, InBytes, OutBytes uint64
}

// Sub is the growth of s since base.
func (s Stats) Sub(base Stats) Stats {
	return Stats{s.Conns - base.Conns, s.InPkts - base.InPkts, s.OutPkts - base.OutPkts,
		s.InBytes - base.InBytes, s.OutBytes - base.OutBytes}
}

// Rates are smoothed per-second values as Linux's estimator computes them
// (net/netfilter/ipvs/ip_vs_est.c): every 2 s, rate += (sample - rate) / 4.
type Rates struct {
	CPS, InPPS, OutPPS, InBPS, OutBPS uint64
}

// ServerStatus is a real server with what the director knows about it.
type ServerStatus struct {
	Server
	Health                       Health
	Draining                     bool          // it gets no new connections
	DrainLeft                    time.Duration // until its connections are reset, if Deadline
	Deadline                     bool
	SlowStart                    time.Duration
	Ramp                         float64 // while it returns: its part of the fair share; else 0
	Active, Inactive, Persistent uint32  // connections, by Linux's accounting
	Stats                        Stats
	Total                        Stats
	Rates                        Rates
}

// EffectiveWeight is the weight that the kernel schedules by.
func (s *ServerStatus) EffectiveWeight() int32 { return Effective(s.Weight, s.Health, s.Draining) }

// ServiceStatus is a virtual service with its servers, head of the list (the
// latest added) first, as Linux keeps them.
type ServiceStatus struct {
	Service
	Stats   Stats
	Total   Stats
	Rates   Rates
	Servers []ServerStatus
}

// Connection is one entry of the connection table: a connection, or a persistence
// template.
type Connection struct {
	Protocol Protocol
	State    string         // ESTABLISHED, SYN_RECV, ..., UDP; of a template ASSURED or NONE
	Expires  time.Duration  // until it is dropped if no packet comes
	Client   netip.AddrPort // of a template: its network's address, port 0
	Virtual  netip.AddrPort // where the client sends to; of a mark's template the mark as an address
	Server   netip.AddrPort // where its packets go: the port may differ from the server's own
	// Of the template of a persistence engine: its name, and the data by
	// which it identifies templates (the Call-ID of SIP). Empty for all others.
	Engine, EngineData string

	Service    ServiceKey     // whose server it has
	RealServer netip.AddrPort // that server, as the service lists it
	Forward    Forward        // the method of a connection, which may differ from its server's
	Flags      ConnFlags
	InPackets  uint16   // from the client, counted up to a few, and on while backups are told
	Control    *Control // the template that controls a connection; nil: none

	Template    bool          // the entry is a template
	Timeout     time.Duration // of a template: its service's persistence when it was made
	Connections uint32        // likewise: that it controls

	// Idle is, of what another director told, the time since the entry's last packet there.
	Idle time.Duration

	// Hairpin is, for a client on its server's link, whom the server takes for the
	// client: an address and port of the director.
	Hairpin netip.AddrPort
}

// Control is what is known in a connection of its template.
type Control struct {
	Kind    TemplateKind
	Netmask Netmask
	CallID  string // of TemplateCall
}

// TemplateKind is what a persistence template stands for, beside the clients.
type TemplateKind uint8

// Kinds of templates, with the values of enum template_kind in bpf/types.h.
const (
	TemplatePort    TemplateKind = 1 // protocol, virtual address and port
	TemplateAddress TemplateKind = 2 // protocol and virtual address
	TemplateMark    TemplateKind = 3 // a firewall mark
	TemplateCall    TemplateKind = 4 // a SIP call
)

var templateKinds = map[TemplateKind]string{
	TemplatePort: "port", TemplateAddress: "address", TemplateMark: "mark", TemplateCall: "call",
}

func (k TemplateKind) String() string {
	if name := templateKinds[k]; name != "" {
		return name
	}
	return fmt.Sprintf("TemplateKind(%d)", uint8(k))
}

// TemplateKindNamed is the kind of a name.
func TemplateKindNamed(name string) (TemplateKind, bool) {
	for k, n := range templateKinds {
		if n == name {
			return k, true
		}
	}
	return 0, false
}

// ConnFlags are what is special about an entry of the connection table.
type ConnFlags uint16

// Flags of connections and templates.
const (
	ConnInactive ConnFlags = 1 << iota // it counts as inactive at its server
	ConnHairpin                        // the server takes the director for its client
	ConnReplied                        // a reply was seen, though the method needs none to return
	ConnListed                         // it has an entry by which its replies are found
	ConnAdopted                        // an upgrade entered it
	ConnInvalid                        // a template that leads no new connection to its server any more
	// ConnReplica: it is as another director told, and no packet came for it here since; or it is a
	// template that lives on only because connections are controlled by it.
	ConnReplica
)

// connFlagNames are the flags' names, by bit.
var connFlagNames = []string{"inactive", "hairpin", "replied", "listed", "adopted", "invalid", "replica"}

// Names are the names of the flags that are set.
func (f ConnFlags) Names() (names []string) {
	for i, name := range connFlagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// ConnFlagNamed is the flag of a name.
func ConnFlagNamed(name string) (ConnFlags, bool) {
	for i, n := range connFlagNames {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// Timeouts are the three values of ipvsadm --set. A zero value means "leave
// as it is" when setting.
type Timeouts struct {
	TCP, TCPFin, UDP time.Duration
}
