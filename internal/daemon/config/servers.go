// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"time"

	"imbang/internal/model"
)

// serverDefaults are what the servers of a service have if they do not say.
type serverDefaults struct {
	service   *Service
	at        string // of the service
	forward   string
	tunnel    tunnelDoc
	checks    []*Check
	slowStart time.Duration
	up, down  []string
}

func (c *checker) server(at string, d *serverDoc, shared serverDefaults) Server {
	k := shared.service.Key
	s := Server{Name: d.Name, Checks: shared.checks, NotifyUp: shared.up, NotifyDown: shared.down}
	s.Weight = 1
	if d.Weight != nil {
		s.Weight = int32(c.between(at+".weight", *d.Weight, 0, 1<<31-1))
	}
	c.forwarding(at, d, shared, &s)
	c.serverAddress(at, d, k, &s)
	s.Upper = uint32(c.between(at+".upper", d.Upper, 0, 1<<31-1))
	s.Lower = uint32(c.between(at+".lower", d.Lower, 0, 1<<31-1))
	if s.Lower > s.Upper {
		c.refuse(at+".lower", "%d is above the upper threshold of %d: want a smaller one", s.Lower, s.Upper)
	}
	if d.Checks != nil {
		s.Checks = c.checksNamed(at+".checks", *d.Checks)
	}
	s.SlowStart = c.duration(at+".slow_start", d.SlowStart, time.Second, shared.slowStart)
	if up := c.command(at+".notify_up", d.NotifyUp); up != nil {
		s.NotifyUp = up
	}
	if down := c.command(at+".notify_down", d.NotifyDown); down != nil {
		s.NotifyDown = down
	}
	if s.Name == "" && s.Addr.IsValid() {
		s.Name = s.AddrPort().String()
		if s.Port == 0 {
			s.Name = s.Addr.String()
		}
	} else if d.Name != "" && !nameForm().MatchString(d.Name) {
		c.refuse(at+".name", "%q: %s", d.Name, wantName)
	}
	for i, ch := range s.Checks {
		if ch.Port == 0 && s.Port == 0 && s.Addr.IsValid() && k.Family != 0 && needsPort(ch) {
			c.refuse(shared.at, "check %s (%s) has no port to connect to: the service is of every port, so write port: in the check", s.Checks[i].Name, ch.Kind)
		}
	}
	return s
}

// needsPort reports whether a check connects to a port.
func needsPort(ch *Check) bool { return ch.Kind != "icmp" && ch.Kind != "script" }

func (c *checker) serverAddress(at string, d *serverDoc, k model.ServiceKey, s *Server) {
	ap, err := endpoint(d.Address)
	a := ap.Addr()
	switch {
	case d.Address == "":
		c.refuse(at+".address", "missing: want the server's address, such as 172.16.0.2 or 172.16.0.2:8080")
		return
	case err != nil:
		c.refuse(at+".address", "%q: want an address with or without port, such as 172.16.0.2 or [2001:db8::2]:8080", d.Address)
		return
	case !model.SingleHost(a):
		c.refuse(at+".address", "%s is not the address of a single host", a)
		return
	case k.Family != 0 && model.FamilyOf(a) != k.Family && !s.Forward.Encapsulates():
		c.refuse(at+".address", "%s is of another address family than the service: want forward: tunnel", a)
	}
	s.Addr, s.Port = a, ap.Port()
	if s.Port == 0 {
		s.Port = k.Port
	}
	if !s.Forward.RewritesPort() && s.Port != k.Port && k.Mark == 0 {
		c.refuse(at+".address", "%s: only masquerading changes the port: remove it, the servers get packets to %d", d.Address, k.Port)
	}
}

// forwards are the words for forwarding methods.
var forwards = map[string]model.Forward{"masquerading": model.Masquerade, "direct-routing": model.Route, "tunnel": model.Tunnel}

func (c *checker) forwarding(at string, d *serverDoc, shared serverDefaults, s *Server) {
	word, path := shared.forward, shared.at+".forward"
	if d.Forward != "" {
		word, path = d.Forward, at+".forward"
	}
	s.Forward = forwards[c.oneOf(path, word, "masquerading", "direct-routing", "tunnel")]
	tunnel, place := shared.tunnel, shared.at+".tunnel"
	if d.Tunnel != nil {
		tunnel, place = *d.Tunnel, at+".tunnel"
	}
	if !s.Forward.Encapsulates() {
		if d.Tunnel != nil {
			c.refuse(at+".tunnel", "is used only with forward: tunnel: remove it")
		}
		return
	}
	c.tunnel(place, tunnel, s)
}

func (c *checker) tunnel(at string, d tunnelDoc, s *Server) {
	s.TunnelType = map[string]model.TunnelType{"ipip": model.IPIP, "gue": model.GUE, "gre": model.GRE}[c.oneOf(at+".type", d.Type, "ipip", "gue", "gre")]
	switch {
	case s.TunnelType == model.GUE:
		s.TunnelPort = uint16(c.between(at+".port", d.Port, 1, 65535))
	case d.Port != 0:
		c.refuse(at+".port", "is used only with type: gue: remove it")
	}
	s.TunnelFlags = map[string]uint16{"none": model.TunnelNoCsum, "csum": model.TunnelCsum, "remcsum": model.TunnelRemCsum}[c.oneOf(at+".checksum", d.Checksum, "none", "csum", "remcsum")]
	if d.Checksum != "" && s.TunnelType == model.IPIP || d.Checksum == "remcsum" && s.TunnelType != model.GUE {
		c.refuse(at+".checksum", "%s has no checksum %q: remove it", cmp.Or(d.Type, "ipip"), d.Checksum)
	}
}
