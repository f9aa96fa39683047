// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"net/netip"
	"strings"

	"imbang/internal/model"
)

// endpoint is "host[:port]" understood.
type endpoint struct {
	addr    netip.Addr
	port    uint16
	hasPort bool
}

// parseEndpoint reads host[:port] or [IPv6]:port as ipvsadm does, including
// that a lone number is no address, that brackets want a port, and that an
// IPv4 address in brackets loses it.
func (n *names) parseEndpoint(s string, proto model.Protocol) (at endpoint, ok bool) {
	if strings.Trim(s, "0123456789") == "" {
		return at, false
	}
	host, port := s, ""
	if inner, bracketed := strings.CutPrefix(s, "["); bracketed {
		if host, port, at.hasPort = strings.Cut(inner, "]"); !at.hasPort {
			return at, false
		}
		if port, ok = strings.CutPrefix(port, ":"); !ok {
			return at, false
		}
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() && a.Zone() == "" {
		at.addr = a
	} else {
		at.hasPort = false
		if i := strings.LastIndexByte(host, ':'); i >= 0 {
			host, port, at.hasPort = host[:i], host[i+1:], true
		}
		if at.addr, ok = n.ipv4(host); !ok {
			return at, false
		}
	}
	if at.hasPort {
		at.port, ok = n.port(port, proto)
		return at, ok
	}
	return at, true
}

// ipv4 reads an IPv4 address in any form C's inet_aton takes, or a host name.
func (n *names) ipv4(s string) (netip.Addr, bool) {
	if a, ok := inetAton(s); ok {
		return a, true
	}
	return n.host(s)
}

// inetAton reads up to four numbers between dots, decimal, octal (0...) or
// hexadecimal (0x...), of which the last fills the bytes that are left; what
// follows white space is ignored.
func inetAton(s string) (netip.Addr, bool) {
	if i := strings.IndexAny(s, cSpace); i >= 0 {
		s = s[:i]
	}
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var sum uint32
	for i, part := range parts {
		limit := uint64(0xff)
		if i == len(parts)-1 {
			limit = 1<<(8*(4-i)) - 1
		}
		v, ok := cUnsigned(part)
		if !ok || v > limit {
			return netip.Addr{}, false
		}
		if i == len(parts)-1 {
			sum |= uint32(v)
		} else {
			sum |= uint32(v) << (24 - 8*i)
		}
	}
	return ipv4(sum), true
}

// cUnsigned reads a whole number as C writes them.
func cUnsigned(s string) (n uint64, ok bool) {
	base := uint64(10)
	switch {
	case len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X"):
		base, s = 16, s[2:]
	case len(s) > 1 && s[0] == '0':
		base, s = 8, s[1:]
	}
	for _, c := range []byte(s) {
		digit := uint64(strings.IndexByte("0123456789abcdef", c|0x20))
		if c <= '9' {
			digit = uint64(c - '0')
		}
		if digit >= base || n > 1<<40 {
			return 0, false
		}
		n = n*base + digit
	}
	return n, s != ""
}

// number is the inverse of ipv4, for IPv4 addresses.
func number(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
