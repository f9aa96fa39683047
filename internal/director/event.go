// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Event is what there is to tell of a packet that opened a connection, changed
// one's state, or was not forwarded.
type Event struct {
	Time     time.Time `json:"time"`
	Device   string    `json:"device,omitempty"` // where it came in
	Protocol string    `json:"protocol,omitempty"`
	// As in the packet; without ports if it has none, not valid if it is not IP.
	Source      netip.AddrPort `json:"source,omitzero"`
	Destination netip.AddrPort `json:"destination,omitzero"`
	Flags       string         `json:"tcp_flags,omitempty"`
	Length      uint32         `json:"length,omitempty"`
	Mark        uint32         `json:"mark,omitempty"`
	// The two ends as the client has them; the packet may be an answer.
	Client  netip.AddrPort `json:"client,omitzero"`
	Virtual netip.AddrPort `json:"virtual,omitzero"`

	Service   string  `json:"service,omitempty"`
	FoundBy   FoundBy `json:"found_by,omitempty"`
	Scheduler string  `json:"scheduler,omitempty"`
	Servers   uint32  `json:"servers,omitempty"` // of the service

	New      bool       `json:"new,omitempty"`      // a connection
	Outdated bool       `json:"outdated,omitempty"` // so was an earlier one of the same ports
	By       DecidedBy  `json:"decided_by,omitempty"`
	Template string     `json:"template,omitempty"` // the network of clients
	Server   *Contender `json:"server,omitempty"`
	RunnerUp *Contender `json:"runner_up,omitempty"`

	Verdict string `json:"verdict"`          // forwarded, pass, refused or drop
	Reason  string `json:"reason,omitempty"` // not forwarded, or not told the server
	Was     string `json:"was,omitempty"`    // the connection's state,
	State   string `json:"state,omitempty"`  // if the packet changed it
}

// FoundBy is how a service was found for a packet.
type FoundBy string

// In the order in which services are looked for.
const (
	ByMark     FoundBy = "mark"
	ByAddress  FoundBy = "address and port"
	ByFTP      FoundBy = "ftp"
	ByAnyPorts FoundBy = "every port"
)

// DecidedBy is what chose the server of a new connection.
type DecidedBy string

// What chooses servers.
const (
	ByScheduler DecidedBy = "scheduler"
	ByTemplate  DecidedBy = "template"
)

// Contender is a server as it was when it was chosen, or was not.
type Contender struct {
	Addr       netip.AddrPort `json:"server"`
	Forward    string         `json:"forward"`
	Weight     int32          `json:"weight"`
	Active     uint32         `json:"active"`
	Inactive   uint32         `json:"inactive"`
	Overloaded bool           `json:"overloaded,omitempty"`
}

func fromContender(c bpfobj.LbContender) *Contender {
	if c.Id == noServer {
		return nil
	}
	return &Contender{
		Addr:    netip.AddrPortFrom(fromAddress(c.Addr), swapPort(c.Port)),
		Forward: model.Forward(c.Forward).String(),
		Weight:  c.Weight, Active: c.Active, Inactive: c.Inactive, Overloaded: c.Overloaded != 0,
	}
}

// noServer is NO_SERVER of bpf/types.h.
const noServer = ^uint32(0)

// fromEvent reads an event; sinceBoot is the wall clock less CLOCK_MONOTONIC.
func fromEvent(e bpfobj.LbTraceEvent, sinceBoot time.Duration) Event {
	news := func(n bpfobj.LbNews) bool { return e.News&uint8(n) != 0 }
	out := Event{
		Time:     time.Unix(0, int64(e.Time)+int64(sinceBoot)),
		Length:   e.Length,
		Mark:     e.Mark,
		New:      news(bpfobj.LbNewsNEWS_OPENED),
		Outdated: news(bpfobj.LbNewsNEWS_OUTDATED),
		Server:   fromContender(e.Server),
		Verdict:  "forwarded",
	}
	if e.Flow.Family != 0 {
		out.ends(e)
	}
	if e.Service.Family != 0 {
		out.service(e)
	}
	switch {
	case news(bpfobj.LbNewsNEWS_TEMPLATE):
		out.By, out.Template = ByTemplate, templateNetwork(e)
	case news(bpfobj.LbNewsNEWS_CHOSEN):
		out.By, out.RunnerUp = ByScheduler, fromContender(e.RunnerUp)
	}
	if news(bpfobj.LbNewsNEWS_ASIDE) {
		out.Verdict, out.Reason = reasonWords(bpfobj.LbReason(e.Reason))
	}
	if news(bpfobj.LbNewsNEWS_STATE) {
		out.Was, out.State = tcpStateName(e.Was), tcpStateName(e.State)
	}
	return out
}

func (out *Event) ends(e bpfobj.LbTraceEvent) {
	f := e.Flow
	out.Protocol = protocolName(f.Protocol)
	out.Source = netip.AddrPortFrom(fromAddressOf(f.Src, f.Family), swapPort(f.Sport))
	out.Destination = netip.AddrPortFrom(fromAddressOf(f.Dst, f.Family), swapPort(f.Dport))
	out.Client = out.Source
	out.Virtual = netip.AddrPortFrom(fromAddressOf(e.Virtual, f.Family), swapPort(e.VirtualPort))
	if e.FromServer != 0 {
		out.Client = out.Destination
	}
	if f.Protocol == uint8(model.TCP) {
		out.Flags = tcpFlags(e.TcpBits)
	}
}

func (out *Event) service(e bpfobj.LbTraceEvent) {
	key := fromKey(e.Service)
	out.Service = key.String()
	switch {
	case key.Mark != 0:
		out.FoundBy = ByMark
	case key.Port == 0:
		out.FoundBy = ByAnyPorts
	case key.Port == out.Virtual.Port():
		out.FoundBy = ByAddress
	default:
		out.FoundBy = ByFTP
	}
	if e.Scheduler != 0 {
		out.Scheduler = schedulerName(bpfobj.LbScheduler(e.Scheduler))
	}
	out.Servers = e.Servers
}

// templateNetwork is the network whose clients a template keeps together.
func templateNetwork(e bpfobj.LbTraceEvent) string {
	client := e.Flow.Src
	if e.FromServer != 0 {
		client = e.Flow.Dst
	}
	return clientNetwork(fromAddressOf(client, e.Flow.Family), e.Netmask, e.Flow.Family)
}

// clientNetwork is the network of a client under the netmask of its template.
func clientNetwork(addr netip.Addr, netmask uint32, family uint8) string {
	mask := fromNetmask(netmask, model.Family(family))
	if addr.Is6() {
		return networkName(addr, int(mask))
	}
	// Ones in front and zeros behind, as a rule.
	for bits := range 33 {
		if uint32(mask) == ^uint32(0)<<(32-bits) {
			return networkName(addr, bits)
		}
	}
	return fmt.Sprintf("%s mask %#08x", addr, uint32(mask))
}

func networkName(a netip.Addr, bits int) string {
	if bits == a.BitLen() {
		return a.String()
	}
	return netip.PrefixFrom(a, bits).Masked().String()
}

// protocolNames are protocols by number, as in /etc/protocols.
var protocolNames = map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "ipv6-icmp", 132: "sctp"}

func protocolName(p uint8) string {
	if name, ok := protocolNames[p]; ok {
		return name
	}
	return fmt.Sprintf("protocol %d", p)
}

// tcpFlags are the flags that decide, in the order in which they are said.
func tcpFlags(bits uint8) string {
	var names []string
	for _, f := range []struct {
		bit  uint8
		name string
	}{{0x02, "SYN"}, {0x01, "FIN"}, {0x04, "RST"}, {0x10, "ACK"}} {
		if bits&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, " ")
}

func tcpStateName(state uint8) string {
	return stateName(state, 0)
}

// reasonWords are the verdict and the reason in lower case:
// REASON_DROP_TABLE_FULL is drop, table full.
func reasonWords(r bpfobj.LbReason) (verdict, reason string) {
	verdict, reason, _ = strings.Cut(strings.TrimPrefix(r.String(), "REASON_"), "_")
	return strings.ToLower(verdict), strings.ToLower(strings.ReplaceAll(reason, "_", " "))
}

// deviceNames remembers devices' names by index.
type deviceNames map[uint32]string

func (d deviceNames) of(index uint32) string {
	if index == 0 {
		return ""
	}
	name, known := d[index]
	if !known {
		name = fmt.Sprintf("#%d", index)
		if dev, err := net.InterfaceByIndex(int(index)); err == nil {
			name = dev.Name
		}
		d[index] = name
	}
	return name
}
