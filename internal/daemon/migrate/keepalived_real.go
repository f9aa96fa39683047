// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// realServer is a real_server while it is read.
type realServer struct {
	*statement
	server
	settings
	serving
	notify   map[string][]string // commands, by keyword
	checkers []checkerAt
}

// checkerAt is a checker with the timeout of the lines above it.
type checkerAt struct {
	*statement
	timeout time.Duration
}

// atLeastOne is the form of retry in a virtual_server and in a real_server.
var atLeastOne = numeral{low: 1, high: math.MaxUint32}

var realServers = blockKind[*realServer]{
	name:   "real_server",
	nested: slices.Collect(maps.Keys(checkerKinds)),
	keys: keys(timings[*realServer](atLeastOne), checkersOf(), map[string]keyword[*realServer]{
		"connect_timeout":    unlessUnset(ofTimeout, connectTimeout[*realServer]()),
		"weight":             weight[*realServer](0),
		"lvs_method":         method[*realServer],
		"uthreshold":         threshold(func(r *realServer) *int64 { return &r.upper }),
		"lthreshold":         threshold(func(r *realServer) *int64 { return &r.lower }),
		"inhibit_on_failure": boolean(func(r *realServer, value bool) { r.serving.inhibit = value }),
		"alpha":              boolean(func(r *realServer, value bool) { r.alpha = value }),
		"virtualhost":        word(func(r *realServer, host string) { r.host = host }),
		"notify_up":          notifier,
		"notify_down":        notifier,
		"smtp_alert":         func(k *keepalived, _ *realServer, s *statement) { k.smtpAlert(s) },
		"snmp_name":          lost[*realServer](noSNMP),
	}),
}

// checkersOf are the checkers as keywords: they are read when all the server's settings are
// known, wherever these are.
func checkersOf() map[string]keyword[*realServer] {
	all := map[string]keyword[*realServer]{}
	for name := range checkerKinds {
		all[name] = func(_ *keepalived, r *realServer, s *statement) {
			r.checkers = append(r.checkers, checkerAt{s, r.timeoutAbove})
		}
	}
	return all
}

func threshold(of func(r *realServer) *int64) keyword[*realServer] {
	const most = 1<<31 - 1
	return func(k *keepalived, r *realServer, s *statement) {
		n, ok := k.numeral(s, 1, numeral{low: 0, high: math.MaxUint32, lenient: true}, fmt.Sprint(*of(r)))
		if !ok {
			return
		}
		if n > most {
			k.lose(s.place, s.text(), "more than the most connections: %d", most)
		}
		*of(r) = min(n, most)
	}
}

func notifier(k *keepalived, r *realServer, s *statement) {
	if r.notify[s.words[0]] != nil {
		k.lose(s.place, s.text(), "the %s before counts: left out, as by keepalived", s.words[0])
		return
	}
	if command := k.command(s); command != nil {
		r.notify[s.words[0]] = command
	}
}

// server reads a server's address and port.
func (k *keepalived) server(s *statement) (server, bool) {
	a, port, ok := k.endpoint(s)
	return server{from: s.place, what: s.text(), addr: a, port: port, weight: -1}, ok
}

// realServerOf keeps a real_server until all of its virtual_server is read, unless it is of
// another address family, by the lines above. If none says the family, the first server does
// that is not a tunnel's.
func realServerOf(k *keepalived, v *virtualServer, s *statement) {
	address, ok := k.server(s)
	if !ok {
		return
	}
	method := v.forward.method
	for _, one := range s.block {
		if one.is("lvs_method") {
			method = cmp.Or(methods[one.word(1)], method)
		}
	}
	family := map[bool]string{false: "inet", true: "inet6"}[address.addr.Is6()]
	if method != "tunnel" {
		if v.family = cmp.Or(v.family, family); v.family != family {
			k.lose(s.place, s.text(), otherFamily)
			return
		}
	}
	v.reals = append(v.reals, &realServer{statement: s, server: address, settings: v.settings})
}

// real takes in a real_server.
func (k *keepalived) real(v *virtualServer, r *realServer) {
	above := r.timeoutAbove
	r.settings, r.serving, r.notify = v.settings, v.serving, map[string][]string{}
	r.timeoutAbove = above
	realServers.read(k, r, r.block)
	out := &r.server
	out.method, out.weight, out.inhibit = r.forward.method, r.serving.weight, r.serving.inhibit
	if r.forward != v.forward {
		out.keys = r.forward.keys()
	}
	for _, name := range []string{"notify_up", "notify_down"} {
		if r.notify[name] != nil {
			out.keys = append(out.keys, name+": "+list(r.notify[name]))
		}
	}
	out.checks = []string{}
	for _, one := range r.checkers {
		in := r.settings
		if one.is("SMTP_CHECK") {
			in.timeout = one.timeout
		}
		for _, name := range k.checker(one.statement, in, checked{v, out}) {
			if !slices.Contains(out.checks, name) {
				out.checks = append(out.checks, name)
			}
		}
	}
	v.notified = v.notified || r.notify["notify_down"] != nil
	v.servers = append(v.servers, *out)
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
		if c.server.port != 0 && (c.server.method == "masquerading" || port == c.server.port) {
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
