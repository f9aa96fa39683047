// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// server reads a server's address and port.
func (k *keepalived) server(s *statement) (server, bool) {
	a, err := netip.ParseAddr(s.word(1))
	port := uint64(0)
	if err == nil && len(s.words) > 2 {
		port, err = strconv.ParseUint(s.word(2), 10, 16)
	}
	if err != nil {
		k.lose(s.place, s.text(), "not an address and port: left out")
		return server{}, false
	}
	return server{from: s.place, what: s.text(), addr: a, port: uint16(port), weight: -1}, true
}

func (k *keepalived) sorry(s *statement, of, f forwarding) *server {
	out, ok := k.server(s)
	if !ok {
		return nil
	}
	out.method = of.method
	if f.method != "" {
		out.method = f.method
		out.keys = append(out.keys, f.keys()...)
	}
	return &out
}

// real takes in a real_server.
func (k *keepalived) real(v *virtualServer, s *statement) {
	out, ok := k.server(s)
	if !ok {
		return
	}
	in := v.inherited
	var checkers []*statement
	for _, one := range k.inheritAll(&in, s.block) { // before its checkers, whatever the order
		if strings.HasSuffix(one.words[0], "_CHECK") || strings.HasSuffix(one.words[0], "_GET") {
			checkers = append(checkers, one)
			continue
		}
		for _, leaf := range k.leaves([]*statement{one}) {
			k.realKey(&out, leaf)
		}
	}
	out.method, out.weight = in.forward.method, in.weight
	if in.forward != v.forward {
		out.keys = append(in.forward.keys(), out.keys...)
	}
	out.checks = []string{}
	for _, one := range checkers {
		for _, name := range k.checker(one, in, checked{v, &out}) {
			if !slices.Contains(out.checks, name) {
				out.checks = append(out.checks, name)
			}
		}
	}
	if in.inhibit {
		v.inhibiting++
	}
	v.servers = append(v.servers, out)
}

func (k *keepalived) realKey(out *server, s *statement) {
	switch s.words[0] {
	case "uthreshold":
		out.upper, _ = k.number(s, 0, 1<<31-1)
	case "lthreshold":
		out.lower, _ = k.number(s, 0, 1<<31-1)
	case "notify_up", "notify_down":
		if command := k.command(s); command != nil {
			out.keys = append(out.keys, s.words[0]+": "+list(command))
		}
	case "smtp_alert":
		k.smtpAlert(s)
	case "snmp_name":
		k.lose(s.place, s.text(), "not supported")
	default:
		k.lose(s.place, s.text(), "not carried over")
	}
}

// checked is a server that a checker is for.
type checked struct {
	of     *virtualServer
	server *server
}

// ports are those that the server's checks could go to without one of their own: the
// server's, or those of the services.
func (c checked) ports() (ports []uint16) {
	for _, t := range c.of.targets {
		port := t.at.Port()
		if c.server.port != 0 && (c.server.method == "masquerading" || t.mark == 0 && port == c.server.port) {
			port = c.server.port
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// port is the port that keepalived checks, 0 if there is none, and whether the check must
// say so.
func (c checked) port(own uint16) (port uint16, said bool) {
	usual := c.ports()
	port = own
	if port == 0 {
		port = c.server.port
	}
	if port == 0 && len(usual) == 1 {
		port = usual[0]
	}
	return port, len(usual) != 1 || usual[0] != port
}
