// SPDX-License-Identifier: Apache-2.0

package own

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// dictionary gives indexes to services with their servers, so that a record names both in
// four bytes. An index is not used for another pair in the same session.
type dictionary struct {
	indexes map[pair]uint32
	all     []*definition // by index; nil: not in use any more
}

func newDictionary() dictionary { return dictionary{indexes: map[pair]uint32{}} }

func (d *dictionary) index(p pair) (uint32, bool) {
	i, ok := d.indexes[p]
	return i, ok
}

func (d *dictionary) add(x definition) uint32 {
	i := uint32(len(d.all))
	d.all, d.indexes[x.pair] = append(d.all, &x), i
	return i
}

// eachPair calls for each service and each server of a configuration.
func eachPair(services []Service, call func(definition)) {
	for i := range services {
		s := &services[i]
		call(definition{pair{service: s.Key}, true, serviceSum(&s.Service)})
		for j := range s.Servers {
			call(definition{pair{s.Key, s.Servers[j].AddrPort()}, true, serverSum(&s.Servers[j])})
		}
	}
}

// SetServices gives the configuration, at first and when it changes. Receivers compare it
// with their own.
func (s *Sender) SetServices(now time.Duration, services []Service, out *Output) {
	s.announced = true
	kept := map[pair]bool{}
	eachPair(services, func(d definition) {
		if !d.sendable() {
			s.counts.Refused[ReasonUnsendable]++
			return
		}
		kept[d.pair] = true
		index, known := s.dict.index(d.pair)
		if known && *s.dict.all[index] == d {
			return
		}
		if known {
			*s.dict.all[index] = d
		} else {
			index = s.dict.add(d)
		}
		s.define(now, index, out)
	})
	for i, d := range s.dict.all {
		if d == nil || kept[d.pair] {
			continue
		}
		// Connections of a deleted server define it again.
		delete(s.dict.indexes, d.pair)
		s.dict.all[i] = nil
		s.room(now, 5, false, out)
		s.open = binary.BigEndian.AppendUint32(append(s.open, opForget), uint32(i))
	}
	s.configEnd(now, out)
	s.due(now, out)
}

func (s *Sender) configEnd(now time.Duration, out *Output) {
	count := uint32(0)
	for _, d := range s.dict.all {
		if d != nil && d.configured {
			count++
		}
	}
	s.room(now, 5, false, out)
	s.open = binary.BigEndian.AppendUint32(append(s.open, opConfigEnd), count)
}

// announce sends all definitions, for receivers that join.
func (s *Sender) announce(now time.Duration, out *Output) {
	for i, d := range s.dict.all {
		if d != nil {
			s.define(now, uint32(i), out)
		}
	}
	if s.announced {
		s.configEnd(now, out)
	}
}

// String names a pair in reports: 10.0.0.1:80/tcp, or that and the server.
func (p pair) String() string {
	if p.server == (netip.AddrPort{}) {
		return "service " + p.service.String()
	}
	return "service " + p.service.String() + " server " + p.server.String()
}
