// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/model"
)

func indexed(i int) string { return fmt.Sprintf("[%d]", i) }

// services enters the services of one file.
func (c *checker) services(docs []serviceDoc) {
	for i := range docs {
		at := "services" + indexed(i)
		s := c.service(at, &docs[i])
		if first, twice := c.names[s.Name]; twice && s.Name != "" {
			c.refuse(at+".name", "%q is the name of another service (%s): rename one", s.Name, first)
		}
		c.names[s.Name] = c.place(at)
		if s.Key != (model.ServiceKey{}) {
			if first, twice := c.keys[s.Key]; twice {
				c.refuse(at, "%s is another service already (%s): remove one", s.Key, first)
			}
			c.keys[s.Key] = c.place(at)
		}
		c.config.Services = append(c.config.Services, s)
	}
}

func (c *checker) service(at string, d *serviceDoc) Service {
	s := Service{Name: d.Name}
	if !nameForm().MatchString(d.Name) {
		c.refuse(at+".name", "%q: %s", d.Name, wantName)
	}
	s.Key = c.key(at, d)
	c.scheduling(at, d, &s)
	s.OnFailure = OnFailure(c.oneOf(at+".on_failure", d.OnFailure, string(Quiesce), string(Remove)))
	s.AllDown = AllDown(c.oneOf(at+".all_down", d.AllDown, string(Refuse), string(KeepLast), string(UseAll)))
	s.Quorum = 1
	if c.tree.Has(at + ".quorum") {
		s.Quorum = c.between(at+".quorum", d.Quorum, 1, 1<<31-1)
	}
	s.Hysteresis = c.between(at+".hysteresis", d.Hysteresis, 0, max(s.Quorum-1, 0))
	s.QuorumUp, s.QuorumDown = c.command(at+".quorum_up", d.QuorumUp), c.command(at+".quorum_down", d.QuorumDown)
	s.DrainDeadline = c.duration(at+".drain_deadline", d.DrainDeadline, 0, 0)
	shared := serverDefaults{
		service: &s, at: at, forward: d.Forward, tunnel: d.Tunnel,
		checks:    c.checksNamed(at+".checks", d.Checks),
		slowStart: c.duration(at+".slow_start", d.SlowStart, time.Second, 0),
		up:        c.command(at+".notify_up", d.NotifyUp), down: c.command(at+".notify_down", d.NotifyDown),
	}
	for i := range d.Servers {
		s.Servers = append(s.Servers, c.server(at+".servers"+indexed(i), &d.Servers[i], shared))
	}
	c.distinct(at, s.Servers)
	if d.Sorry != nil {
		c.sorry(at, d, &s, shared)
	}
	return s
}

// sorry enters the sorry server.
func (c *checker) sorry(at string, d *serviceDoc, s *Service, shared serverDefaults) {
	shared.checks, shared.slowStart, shared.up, shared.down = nil, 0, nil, nil
	sorry := c.server(at+".sorry", &serverDoc{EndpointDoc: *d.Sorry}, shared)
	if s.AllDown != Refuse {
		c.refuse(at+".all_down", "%s has no effect beside a sorry server: remove one of the two", s.AllDown)
	}
	s.Sorry = &sorry
}

// distinct refuses two servers of the same name or address.
func (c *checker) distinct(at string, servers []Server) {
	names, addresses := map[string]int{}, map[netip.AddrPort]int{}
	for i, s := range servers {
		path := at + ".servers" + indexed(i)
		if _, twice := addresses[s.AddrPort()]; twice && s.Addr.IsValid() {
			c.refuse(path+".address", "%s is given twice: remove one", s.AddrPort())
		} else if _, twice := names[s.Name]; twice && s.Name != "" {
			c.refuse(path+".name", "%q is the name of another server of the service: rename one", s.Name)
		}
		names[s.Name], addresses[s.AddrPort()] = i, i
	}
}

// key is the service's key; the zero value if it is wrong.
func (c *checker) key(at string, d *serviceDoc) (k model.ServiceKey) {
	switch {
	case (d.Virtual == "") == !c.tree.Has(at+".mark"):
		c.refuse(at, "want one of virtual and mark: virtual: 10.20.0.1:80, or mark: 3")
		return k
	case d.Virtual == "":
		mark := c.between(at+".mark", int(d.Mark), 1, 1<<32-1)
		if d.Protocol != "" {
			c.refuse(at+".protocol", "remove it: a mark's packets may be of any protocol")
		}
		family := model.IPv4
		if c.oneOf(at+".family", d.Family, "ipv4", "ipv6") == "ipv6" {
			family = model.IPv6
		}
		return model.MarkKey(uint32(mark), family)
	}
	if d.Family != "" {
		c.refuse(at+".family", "remove it: the virtual address says it")
	}
	protocol, _ := model.ProtocolNamed(c.oneOf(at+".protocol", d.Protocol, "tcp", "udp", "sctp"))
	ap, err := endpoint(d.Virtual)
	if err != nil || !model.Destination(ap.Addr()) {
		c.refuse(at+".virtual", "%q: want an address and a port, such as 10.20.0.1:80 or [2001:db8::1]:80; without port, every port", d.Virtual)
		return k
	}
	return model.AddrKey(protocol, ap)
}

// endpoint reads an address with or without port.
func endpoint(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.AddrPortFrom(a, 0), nil
	}
	ap, err := netip.ParseAddrPort(text)
	if err == nil && (ap.Addr().Zone() != "" || ap.Port() == 0) {
		err = fmt.Errorf("%q is no address and port", text)
	}
	return ap, err
}

// scheduling is what AddService needs beside the key.
func (c *checker) scheduling(at string, d *serviceDoc, s *Service) {
	s.Scheduler = cmp.Or(d.Scheduler, "wlc")
	scheduler, ok := model.SchedulerNamed(s.Scheduler)
	if !ok {
		c.refuse(at+".scheduler", "%q is unknown: want one of %s", d.Scheduler, strings.Join(model.SchedulerNames(), ", "))
	}
	for i, name := range d.Flags {
		j := slices.IndexFunc(scheduler.Flags, func(f model.SchedulerFlag) bool { return f.Name == name })
		if j < 0 {
			c.refuse(at+".flags"+indexed(i), "%q is no flag of %s%s", name, s.Scheduler, flagsOf(scheduler))
			continue
		}
		s.Flags |= scheduler.Flags[j].Bit
	}
	if d.OnePacket {
		if s.Key.Protocol != model.UDP && s.Key.Mark == 0 {
			c.refuse(at+".one_packet", "requires protocol: udp")
		}
		s.Flags |= model.OnePacket
	}
	c.persistence(at, d, s)
}

func flagsOf(s model.Scheduler) string {
	if len(s.Flags) == 0 {
		return ", which has none: remove it"
	}
	var names []string
	for _, f := range s.Flags {
		names = append(names, f.Name)
	}
	return ": want " + alternatives(names)
}

func (c *checker) persistence(at string, d *serviceDoc, s *Service) {
	s.Netmask = model.FullMask(max(s.Key.Family, model.IPv4))
	s.Timeout = c.duration(at+".persistence", d.Persistence, time.Second, 0).Truncate(time.Second)
	if s.Timeout > 0 {
		s.Flags |= model.Persistent
	}
	if c.tree.Has(at + ".netmask") {
		bits := 32
		if s.Key.Family == model.IPv6 {
			bits = 128
		}
		n := c.between(at+".netmask", d.Netmask, 1, bits)
		if s.Timeout == 0 {
			c.refuse(at+".netmask", "is used only with persistence: write persistence: 5 min, or remove it")
		}
		if s.Key.Family == model.IPv6 {
			s.Netmask = model.Netmask(n)
		} else {
			s.Netmask = ^model.Netmask(0) << (32 - n)
		}
	}
	if d.Engine == "" {
		return
	}
	s.Engine = c.oneOf(at+".engine", d.Engine, "sip")
	if s.Timeout == 0 {
		c.refuse(at+".engine", "is used only with persistence: write persistence: 5 min, or remove it")
	}
	if s.Key.Protocol != model.UDP && s.Key.Mark == 0 {
		c.refuse(at+".engine", "sip is for protocol: udp")
	}
}
