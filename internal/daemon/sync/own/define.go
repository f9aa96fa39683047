// SPDX-License-Identifier: Apache-2.0

package own

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"imbang/internal/model"
)

// Service is a virtual service with its servers, as configured.
type Service struct {
	model.Service
	Servers []model.Server
}

// pair names a server of a service. The zero server stands for the service itself.
type pair struct {
	service model.ServiceKey
	server  netip.AddrPort
}

// definition is a pair with what it is compared by.
type definition struct {
	pair
	configured bool   // the sender's configuration has it; else only a connection does
	sum        uint64 // of what has to be the same in both directors
}

// Bits of a definition's second byte.
const (
	defConfigured = 1 << 0
	defMark       = 1 << 1 // the service is of a firewall mark
	defIPv6       = 1 << 2 // its family
	defServer     = 1 << 3 // it has a server
	defServerIPv6 = 1 << 4
	defFlags      = 1<<5 - 1
)

const longestDefinition = 2 + 4 + 8 + 1 + 2 + 16 + 2 + 16

func (d *definition) append(b []byte, index uint32) []byte {
	flags := uint8(0)
	if d.configured {
		flags |= defConfigured
	}
	if d.service.Mark != 0 {
		flags |= defMark
	}
	if d.service.Family == model.IPv6 {
		flags |= defIPv6
	}
	if d.server.IsValid() {
		flags |= defServer
		if !d.server.Addr().Is4() {
			flags |= defServerIPv6
		}
	}
	b = append(b, opDefine, flags)
	b = binary.BigEndian.AppendUint32(b, index)
	b = binary.BigEndian.AppendUint64(b, d.sum)
	if d.service.Mark != 0 {
		b = binary.BigEndian.AppendUint32(b, d.service.Mark)
	} else {
		b = append(b, uint8(d.service.Protocol))
		b = binary.BigEndian.AppendUint16(b, d.service.Port)
		b = appendAddr(b, d.service.Addr)
	}
	if d.server.IsValid() {
		b = binary.BigEndian.AppendUint16(b, d.server.Port())
		b = appendAddr(b, d.server.Addr())
	}
	return b
}

// readDefinition reads a record of opDefine, from its first byte on.
func readDefinition(r *reader) (index uint32, d definition, err error) {
	r.byte()
	flags := r.byte()
	index, d.sum = r.word(), r.long()
	d.configured = flags&defConfigured != 0
	family := model.IPv4
	if flags&defIPv6 != 0 {
		family = model.IPv6
	}
	if flags&defMark != 0 {
		d.service = model.MarkKey(r.word(), family)
		if d.service.Mark == 0 {
			return index, d, ErrRecord
		}
	} else {
		d.service = model.ServiceKey{Protocol: model.Protocol(r.byte()), Family: family, Port: r.half()}
		d.service.Addr = r.addr(family == model.IPv6)
	}
	if flags&defServer != 0 {
		port := r.half()
		d.server = netip.AddrPortFrom(r.addr(flags&defServerIPv6 != 0), port)
	}
	if r.fail || flags&^defFlags != 0 || flags&defServerIPv6 != 0 && flags&defServer == 0 {
		return index, d, ErrRecord
	}
	return index, d, nil
}

// sendable reports whether a pair fits a definition.
func (p pair) sendable() bool {
	if p.service.Family != model.IPv4 && p.service.Family != model.IPv6 || p.server.Addr().Zone() != "" {
		return false
	}
	if p.service.Mark != 0 {
		return true
	}
	a := p.service.Addr
	return a.IsValid() && a.Zone() == "" && a.Is4() == (p.service.Family == model.IPv4)
}

// serviceSum is a sum of what a service's connections depend on.
func serviceSum(s *model.Service) uint64 {
	h := mixer(1)
	h = h.text(s.Scheduler).text(s.Engine)
	return uint64(h.add(uint64(s.Flags)).add(uint64(s.Timeout)).add(uint64(s.Netmask)))
}

// serverSum is likewise of a server. Weights are left out: they follow health and load of
// each director's own checks. Thresholds are configured.
func serverSum(s *model.Server) uint64 {
	h := mixer(2)
	return uint64(h.add(uint64(s.Forward)).add(uint64(s.Upper)<<32 | uint64(s.Lower)).
		add(uint64(s.TunnelType)<<32 | uint64(s.TunnelPort)<<16 | uint64(s.TunnelFlags)))
}

// mixer is a hash that does not resist attacks.
type mixer uint64

func (h mixer) add(v uint64) mixer {
	hi, lo := bits.Mul64(uint64(h)^v^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return mixer(hi ^ lo ^ bits.RotateLeft64(v, 23))
}

func (h mixer) text(s string) mixer {
	h = h.add(uint64(len(s)))
	for len(s) >= 8 {
		h = h.add(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
		s = s[8:]
	}
	v := uint64(0)
	for i := range len(s) {
		v |= uint64(s[i]) << (8 * i)
	}
	return h.add(v)
}

// flowHash is a hash of what identifies an entry in the connection table: its flow; of a
// template also the data of its engine; of an invalid one its server, as several can be
// of one flow.
func flowHash(seed uint64, c *model.Connection) uint64 {
	h := mixer(seed)
	for _, end := range [2]netip.AddrPort{c.Client, c.Virtual} {
		a := end.Addr().As16()
		h = h.add(binary.BigEndian.Uint64(a[:])).add(binary.BigEndian.Uint64(a[8:])).add(uint64(end.Port()))
	}
	kind := uint64(c.Protocol)
	if c.Template {
		kind |= 1 << 8
	}
	if c.Client.Addr().Is4() {
		kind |= 1 << 9
	}
	if c.Flags&model.ConnInvalid != 0 {
		kind |= 1 << 10
		a := c.RealServer.Addr().As16()
		h = h.add(binary.BigEndian.Uint64(a[:])).add(binary.BigEndian.Uint64(a[8:])).add(uint64(c.RealServer.Port()))
		h = h.add(uint64(c.Service.Mark)<<16 | uint64(c.Service.Port))
	}
	h = h.add(kind)
	if c.EngineData != "" {
		h = h.text(c.EngineData)
	}
	return uint64(h.add(seed))
}
