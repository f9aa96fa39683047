// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// Tunnel is the header that a packet is behind.
type Tunnel struct {
	Src, Dst     netip.Addr
	TOS, TTL     uint8
	DontFragment bool // of IPv4
	Kind         string
	Port         uint16 // of GUE
	Checked      bool   // a checksum covers the packet
}

const (
	protoIPv4 = 4
	protoIPv6 = 41
	protoGRE  = 47
	// GUEPort is where GUE is expected.
	GUEPort = 6080
)

// Unwrap takes the header of a tunnel off a frame, which is then the inner
// packet's: IP in IP (RFC 2003, RFC 2473), GRE (RFC 2784) or GUE
// (draft-ietf-intarea-gue, 3). All its lengths and checksums are compared.
func Unwrap(frame []byte) (Tunnel, []byte, error) {
	v, err := dissect(frame)
	if err != nil {
		return Tunnel{}, nil, err
	}
	for _, c := range v.own("outer ") {
		if c.off != 0 {
			return Tunnel{}, nil, fmt.Errorf("wrong checksum: %s, by %#x", c.name, c.off)
		}
	}
	if err := v.lengths(); err != nil {
		return Tunnel{}, nil, err
	}
	t := v.tunnel()
	inner, protocol, err := v.unwrap(&t)
	if err != nil {
		return t, nil, err
	}
	ether := slices.Clone(frame[:etherHeader])
	kind, ok := map[uint8]uint16{protoIPv4: etherIPv4, protoIPv6: etherIPv6}[protocol]
	if !ok {
		return t, nil, fmt.Errorf("a tunnel of protocol %d", protocol)
	}
	binary.BigEndian.PutUint16(ether[12:], kind)
	return t, slices.Concat(ether, inner), nil
}

// tunnel reads the outer IP header.
func (v *view) tunnel() (t Tunnel) {
	src, dst := v.ends()
	t.Src, t.Dst = src.Addr(), dst.Addr()
	ip := v.frame[v.ip:]
	if v.six {
		t.TOS, t.TTL = ip[0]<<4|ip[1]>>4, ip[7]
		return t
	}
	t.TOS, t.TTL, t.DontFragment = ip[1], ip[8], ip[6]&0x40 != 0
	return t
}

// unwrap reads what is between the IP headers, and finds the inner packet.
func (v *view) unwrap(t *Tunnel) (inner []byte, protocol uint8, err error) {
	body := v.segment()
	switch v.protocol {
	case protoIPv4, protoIPv6:
		t.Kind = "ipip"
		return body, v.protocol, nil
	case protoGRE:
		t.Kind = "gre"
		return ungre(t, body)
	case protoUDP:
		t.Kind, t.Port, t.Checked = "gue", binary.BigEndian.Uint16(body[2:]), body[6] != 0 || body[7] != 0
		if len(body) < 12 || body[8] != 0 || body[10] != 0 || body[11] != 0 {
			return nil, 0, fmt.Errorf("no GUE header: %x", body)
		}
		return body[12:], body[9], nil
	}
	return nil, 0, fmt.Errorf("protocol %d is no tunnel", v.protocol)
}

func ungre(t *Tunnel, body []byte) (inner []byte, protocol uint8, err error) {
	if len(body) < 4 {
		return nil, 0, fmt.Errorf("no GRE header: %x", body)
	}
	protocol = map[uint16]uint8{etherIPv4: protoIPv4, etherIPv6: protoIPv6}[binary.BigEndian.Uint16(body[2:])]
	switch flags := binary.BigEndian.Uint16(body); {
	case flags == 0:
		return body[4:], protocol, nil
	case flags == 0x8000 && len(body) >= 8 && Sum(body) == 0 && body[6] == 0 && body[7] == 0:
		t.Checked = true
		return body[8:], protocol, nil
	}
	return nil, 0, fmt.Errorf("a wrong GRE header or checksum: %x", body[:4])
}
