// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"fmt"
	"net/netip"

	"imbang/internal/model"
)

// tunnelNames are the encapsulations, by model.TunnelType.
var tunnelNames = []string{model.IPIP: "ipip", model.GUE: "gue", model.GRE: "gre"}

// tunnelFlag is how the two formats write a server's tunnel flags.
type tunnelFlag struct{ info, option string }

var tunnelFlags = map[uint16]tunnelFlag{
	model.TunnelNoCsum:  {"-c", "--tun-nocsum"},
	model.TunnelCsum:    {"+c", "--tun-csum"},
	model.TunnelRemCsum: {"r+c", "--tun-remcsum"},
}

// formatTunnel is the TunnelInfo column.
func formatTunnel(s *model.Server) string {
	if !s.Forward.Encapsulates() {
		return "n/a"
	}
	switch s.TunnelType {
	case model.GUE:
		return fmt.Sprintf("gue:%d:%s", s.TunnelPort, tunnelFlags[s.TunnelFlags].info)
	case model.GRE:
		return "gre:" + tunnelFlags[s.TunnelFlags].info
	}
	return "ipip"
}

// formatCount is a counter in nine columns: rounded down with a suffix from a
// hundred million on, or exact and then as wide as it has to be.
func formatCount(n uint64, exact bool) string {
	const (
		thousand = 1000
		million  = 1000 * thousand
		billion  = 1000 * million
	)
	switch {
	case exact:
		return fmt.Sprintf(" %8d", n)
	case n < 100*million:
		return fmt.Sprintf("%9d", n)
	case n < billion:
		return fmt.Sprintf("%8dK", n/thousand)
	case n < 100*billion:
		return fmt.Sprintf("%8dM", n/million)
	case n < 100*thousand*billion:
		return fmt.Sprintf("%8dG", n/billion)
	}
	return fmt.Sprintf("%8dT", n/(thousand*billion))
}

// formatAddr spells an address as C's inet_ntop does: as Go, but with the
// last four bytes of an IPv4-compatible address as an IPv4 address.
func formatAddr(a netip.Addr) string {
	if !a.Is6() {
		return a.String()
	}
	b := a.As16()
	if [12]byte(b[:12]) == [12]byte{} && (b[12] != 0 || b[13] != 0) {
		return "::" + netip.AddrFrom4([4]byte(b[12:])).String()
	}
	return a.String()
}

// endpointBuffer is how many bytes ipvsadm has for "host:port".
const endpointBuffer = 59

// formatEndpoint writes host:port, with names unless numeric.
func (l *listing) formatEndpoint(a netip.Addr, port uint16, proto model.Protocol) string {
	var host, service string
	if l.numeric {
		host, service = formatAddr(a), fmt.Sprint(port)
	} else {
		host, service = l.names.hostName(a), l.names.portName(port, proto)
	}
	if a.Is6() {
		host = "[" + host + "]"
	}
	return cut(host+":"+service, endpointBuffer)
}

// cut is what is left of a string in a buffer of n bytes.
func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
