// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// The maps hold addresses and ports in network order, in integers of the
// host's order: these functions are the only ones that know.

func toAddress(a netip.Addr) bpfobj.LbAddress {
	b := a.As16()
	var out bpfobj.LbAddress
	for i := range out.Word {
		out.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return out
}

func fromAddress(a bpfobj.LbAddress) netip.Addr {
	if a.Word[0] == 0 && a.Word[1] == 0 && a.Word[2] == mappedWord {
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], a.Word[3])
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	for i, w := range a.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	return netip.AddrFrom16(b)
}

// mappedWord is the third word of a mapped IPv4 address: ::ffff:0:0/96.
var mappedWord = binary.NativeEndian.Uint32([]byte{0, 0, 0xff, 0xff})

// fromAddressOf is fromAddress where the family is known: the network of an
// IPv6 template may look like a mapped IPv4 address.
func fromAddressOf(a bpfobj.LbAddress, family uint8) netip.Addr {
	addr := fromAddress(a)
	if model.Family(family) == model.IPv6 {
		return netip.AddrFrom16(addr.As16())
	}
	return addr
}

// fromFlow4 is flow_from4 of bpf/flow.h.
func fromFlow4(k bpfobj.LbFlow4) bpfobj.LbFlow {
	mapped := func(w uint32) bpfobj.LbAddress {
		a := toAddress(netip.IPv4Unspecified())
		a.Word[3] = w
		return a
	}
	return bpfobj.LbFlow{
		Src: mapped(k.Src), Dst: mapped(k.Dst), Sport: k.Sport, Dport: k.Dport,
		Protocol: k.Protocol, Template: k.Template, Family: uint8(model.IPv4), Pad: k.Pad[0],
	}
}

// toNetmask is a netmask as struct service has it: IPv4's in network order,
// IPv6's prefix length as it is.
func toNetmask(m model.Netmask, f model.Family) uint32 {
	if f == model.IPv6 {
		return uint32(m)
	}
	return ntohl(uint32(m))
}

// fromNetmask takes it back.
func fromNetmask(m uint32, f model.Family) model.Netmask {
	if f == model.IPv6 {
		return model.Netmask(m)
	}
	return model.Netmask(ntohl(m))
}

// ntohl turns a word of an address from network into host order, and back.
func ntohl(w uint32) uint32 {
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, w))
}

// swapPort turns a port from host to network order, and back.
func swapPort(p uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], p)
	return binary.NativeEndian.Uint16(b[:])
}

func toKey(k model.ServiceKey) bpfobj.LbServiceKey {
	out := bpfobj.LbServiceKey{Fwmark: k.Mark, Family: uint8(k.Family)}
	if k.Mark == 0 {
		out.Addr = toAddress(k.Addr)
		out.Port = swapPort(k.Port)
		out.Protocol = uint8(k.Protocol)
	}
	return out
}

func fromKey(k bpfobj.LbServiceKey) model.ServiceKey {
	family := model.Family(k.Family)
	if k.Fwmark != 0 {
		return model.MarkKey(k.Fwmark, family)
	}
	addr := fromAddress(k.Addr)
	if family == model.IPv6 { // even of a service at ::ffff:a.b.c.d
		addr = netip.AddrFrom16(addr.As16())
	}
	return model.AddrKey(model.Protocol(k.Protocol), netip.AddrPortFrom(addr, swapPort(k.Port)))
}

// toService fills what the model says; id and the list's place stay.
func toService(s model.Service, into *bpfobj.LbService) error {
	scheduler, ok := model.SchedulerNamed(s.Scheduler)
	if !ok {
		return fmt.Errorf("%w: %s", model.ErrNoScheduler, s.Scheduler)
	}
	engine, ok := engines[s.Engine]
	if !ok {
		return fmt.Errorf("%w: %s", model.ErrNoScheduler, s.Engine)
	}
	into.Scheduler = bpfobj.LbScheduler(scheduler.Number)
	into.Engine = engine
	into.Flags = uint32(s.Flags)
	into.Timeout = uint32(s.Timeout / time.Second)
	into.Netmask = toNetmask(s.Netmask, s.Key.Family)
	into.Fwmark = s.Key.Mark
	into.Port = swapPort(s.Key.Port)
	into.Template = templateKind(s)
	return nil
}

// ftpPort is where a control connection is followed by others of any port.
const ftpPort = 21

// templateKind says what the persistence templates of a service stand for
// (ip_vs_sched_persist).
func templateKind(s model.Service) bpfobj.LbTemplateKind {
	switch {
	case s.Flags&model.Persistent == 0:
		return bpfobj.LbTemplateKindTEMPLATE_NONE
	case s.Key.Mark != 0:
		return bpfobj.LbTemplateKindTEMPLATE_MARK
	case s.Key.Port == 0 || s.Key.Port == ftpPort:
		return bpfobj.LbTemplateKindTEMPLATE_ADDRESS
	}
	return bpfobj.LbTemplateKindTEMPLATE_PORT
}

func fromService(k bpfobj.LbServiceKey, s bpfobj.LbService) model.Service {
	return model.Service{
		Key:       fromKey(k),
		Scheduler: schedulerName(s.Scheduler),
		Flags:     model.ServiceFlags(s.Flags),
		Timeout:   time.Duration(s.Timeout) * time.Second,
		Netmask:   fromNetmask(s.Netmask, model.Family(k.Family)),
		Engine:    engineName(s.Engine),
	}
}

// toServer fills what the model says; owner, service, flags and health stay. The
// effective weight is to be made of it (weigh).
func toServer(s model.Server, into *bpfobj.LbServer) {
	into.Addr = toAddress(s.Addr)
	into.Port = swapPort(s.Port)
	into.Administrative = s.Weight
	into.Upper, into.Lower = s.Upper, s.Lower
	into.Forward = bpfobj.LbForward(s.Forward)
	into.TunnelType = uint16(s.TunnelType)
	into.TunnelPort = swapPort(s.TunnelPort)
	into.TunnelFlags = s.TunnelFlags
}

func fromServer(s bpfobj.LbServer) model.Server {
	return model.Server{
		Addr:        fromAddress(s.Addr),
		Port:        swapPort(s.Port),
		Forward:     model.Forward(s.Forward),
		Weight:      s.Administrative,
		Upper:       s.Upper,
		Lower:       s.Lower,
		TunnelType:  model.TunnelType(s.TunnelType),
		TunnelPort:  swapPort(s.TunnelPort),
		TunnelFlags: s.TunnelFlags,
	}
}

func fromCounters(c bpfobj.LbCounters) model.Stats {
	return model.Stats{Conns: c.Conns, InPkts: c.InPackets, OutPkts: c.OutPackets, InBytes: c.InBytes, OutBytes: c.OutBytes}
}

// fromRates unscales Linux's averages, rounding up as ip_vs_read_estimator.
func fromRates(r bpfobj.LbRates) model.Rates {
	count := func(v uint64) uint64 { return (v + 0x1ff) >> 10 }
	bytes := func(v uint64) uint64 { return (v + 0xf) >> 5 }
	return model.Rates{
		CPS: count(r.Average.Conns), InPPS: count(r.Average.InPackets), OutPPS: count(r.Average.OutPackets),
		InBPS: bytes(r.Average.InBytes), OutBPS: bytes(r.Average.OutBytes),
	}
}
