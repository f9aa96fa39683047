// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/model"
	"imbang/internal/strictyaml"
)

// layer7Checker also has what listeners and backends before have.
type layer7Checker struct {
	*checker
	out                 *Layer7
	listeners, backends map[string]string // by name, to their places
	cookies             map[string]string // likewise, of backends
	logs                map[string]logFile
	listenersAt         []located // in the order of out.Listeners
	backendsAt          []located
}

type logFile struct{ format, place string }

// located is a place of one of the files.
type located struct {
	tree *strictyaml.Tree
	path string
}

// at makes a place the one at hand.
func (c *checker) at(l located) string {
	c.tree = l.tree
	return l.path
}

const (
	maxName         = 64 // of listeners, backends and servers [characters]: they are in cookies and in commands to HAProxy
	defaultFallback = 30 * time.Second
	// The daemon says every second that it is there, and the supervisor looks as often.
	minFallback = 5 * time.Second
)

// layer7 enters listeners and backends of all files. Checks and services are known then.
func (c *checker) layer7(sections []section, d *proxyDoc) {
	v := layer7Checker{
		checker: c, out: &Layer7{Checks: map[l7.ServerID][]*Check{}},
		listeners: map[string]string{}, backends: map[string]string{}, cookies: map[string]string{}, logs: map[string]logFile{},
	}
	c.tree = sections[0].tree
	v.engine("proxy", d)
	for _, s := range sections { // listeners may name backends of any file
		c.tree = s.tree
		for i := range s.Backends {
			at := "backends" + indexed(i)
			v.out.Backends = append(v.out.Backends, v.backend(at, &s.Backends[i]))
			v.backendsAt = append(v.backendsAt, located{s.tree, at})
		}
	}
	var docs []*listenerDoc
	for _, s := range sections {
		c.tree = s.tree
		for i := range s.Listeners {
			at := "listeners" + indexed(i)
			v.out.Listeners = append(v.out.Listeners, v.listener(at, &s.Listeners[i]))
			v.listenersAt = append(v.listenersAt, located{s.tree, at})
			docs = append(docs, &s.Listeners[i])
		}
	}
	if len(v.out.Listeners) == 0 && d != nil {
		c.tree = sections[0].tree
		c.refuse("proxy", "there are no listeners: write what is accepted under listeners, or remove the section")
	}
	if len(v.out.Listeners)+len(v.out.Backends) == 0 {
		return
	}
	v.binds()
	v.virtualServices()
	v.leads(docs)
	v.out.Pools = v.pools()
	c.config.Layer7 = v.out
}

// name refuses a name that is wrong, or another one's of its kind.
func (c *layer7Checker) name(at, name, kind string, known map[string]string) {
	if !nameForm().MatchString(name) || len(name) > maxName {
		c.refuse(at+".name", "%q: %s, of %d characters at most", name, wantName, maxName)
		return
	}
	if strings.HasPrefix(name, "imbang-") {
		c.refuse(at+".name", "%q: names that begin with imbang- are imbang's own: want another one", name)
	}
	if first, twice := known[name]; twice {
		c.refuse(at+".name", "%q is the name of another %s (%s): rename one", name, kind, first)
	}
	known[name] = c.place(at)
}

func (c *layer7Checker) knownBackends() string {
	if len(c.backends) == 0 {
		return "write it under backends"
	}
	return "want one of " + strings.Join(slices.Sorted(maps.Keys(c.backends)), ", ")
}

func (c *layer7Checker) engine(at string, d *proxyDoc) {
	if d == nil {
		d = &proxyDoc{}
	}
	c.out.Engine = l7.Engine{
		User: c.account(at+".user", d.User, "haproxy"), Group: c.account(at+".group", d.Group, "haproxy"),
		Threads:        c.numberOr(at+".threads", d.Threads, 1, 64, 0),
		MaxConnections: c.numberOr(at+".max_connections", d.MaxConnections, 1, maxConnections, 0),
		Streams:        c.numberOr(at+".streams", d.Streams, 1, 1000, 0),
		Fallback:       c.timer(at+".fallback", d.Fallback, 0, defaultFallback),
		Raw:            c.raw(at+".raw", d.Raw, ownOfGlobal),
	}
	if f := c.out.Engine.Fallback; f > 0 && f < minFallback {
		c.refuse(at+".fallback", "%s is shorter than a restart of imbang run takes: want 5 s or more, or 0 s for never", d.Fallback)
	}
}

// bound is an address that something accepts TCP connections at.
type bound struct {
	netip.AddrPort
	what string
}

func (b bound) overlaps(a netip.AddrPort) bool {
	return a.Port() == b.Port() && a.Addr().Is4() == b.Addr().Is4() &&
		(a.Addr() == b.Addr() || a.Addr().IsUnspecified() || b.Addr().IsUnspecified())
}

// binds refuses addresses that two listeners, or a listener and the daemon, would accept at.
func (c *layer7Checker) binds() {
	var all []bound
	if m := c.config.Daemon.Metrics.Listen; m.IsValid() {
		all = append(all, bound{m, "daemon.metrics.listen"})
	}
	if p := c.config.Pair; p != nil {
		all = append(all, bound{p.Listen, "pair.listen"})
	}
	for i := range c.out.Listeners {
		l, at := &c.out.Listeners[i], c.at(c.listenersAt[i])
		for j, ap := range l.Bind {
			to := at + ".bind" + indexed(j)
			if !ap.IsValid() || c.full() {
				continue
			}
			if k := slices.IndexFunc(all, func(b bound) bool { return b.overlaps(ap) }); k >= 0 {
				c.refuse(to, "%s overlaps with %s of %s: want another address or port, or remove one", ap, all[k].AddrPort, all[k].what)
			}
			all = append(all, bound{ap, fmt.Sprintf("the listener %s (%s)", l.Name, c.place(to))})
		}
	}
}

// virtualServices refuses addresses at which no connection arrives, as the director takes them
// for a service that masquerades all: its servers get them at their own addresses. By direct
// routing and tunnels, a server that is this host gets them at the virtual one.
func (c *layer7Checker) virtualServices() {
	taken := map[netip.AddrPort]*Service{}
	for i := range c.config.Services {
		s := &c.config.Services[i]
		key := netip.AddrPortFrom(s.Key.Addr, s.Key.Port)
		arrives := func(o Server) bool { return o.Forward != model.Masquerade || o.AddrPort() == key }
		if s.Key.Protocol != model.TCP || s.Key.Mark != 0 || slices.ContainsFunc(s.Servers, arrives) || s.Sorry != nil && arrives(*s.Sorry) {
			continue
		}
		taken[key] = s
	}
	for i := range c.out.Listeners {
		at := c.at(c.listenersAt[i])
		for j, ap := range c.out.Listeners[i].Bind {
			s := taken[ap]
			if s == nil {
				s = taken[netip.AddrPortFrom(ap.Addr(), 0)]
			}
			if s != nil && ap.IsValid() {
				c.refuse(at+".bind"+indexed(j), "%s is the virtual service %s (%s), whose servers get its connections by masquerading, so none arrives here: bind the address of a server, or write forward: direct-routing there",
					ap, s.Name, c.names[s.Name])
			}
		}
	}
}

// leads checks what follows from which listeners lead to a backend.
func (c *layer7Checker) leads(docs []*listenerDoc) {
	from := map[string][]int{}
	for i := range c.out.Listeners {
		for _, name := range leadsTo(&c.out.Listeners[i]) {
			from[name] = append(from[name], i)
		}
	}
	for i := range c.out.Backends {
		b, at := &c.out.Backends[i], c.at(c.backendsAt[i])
		if len(from[b.Name]) == 0 && b.Name != "" && !rawNames(docs, b.Name) {
			c.warn(at, "no listener leads to %s: name it in one, or remove it", b.Name)
		}
		if c.out.Engine.Fallback > 0 && b.Check == nil && c.checked(b) {
			c.warn(at+".checks", "HAProxy can make none of these, so without imbang run the servers of %s stay as they are: add one of kind %s, or write proxy.fallback: 0 s", b.Name, alternatives(connecting))
		}
		c.ownServers(at, b, from[b.Name])
		if b.Cookie != nil {
			c.secureCookie(at+".cookie", b.Cookie, from[b.Name])
		}
	}
}

// checked reports whether a server of a backend has checks.
func (c *layer7Checker) checked(b *l7.Backend) bool {
	return slices.ContainsFunc(b.Servers, func(s l7.Server) bool { return c.out.Checks[l7.ServerID{Backend: b.Name, Server: s.Name}] != nil })
}

// rawNames reports whether a raw line of a listener may lead to a backend.
func rawNames(docs []*listenerDoc, backend string) bool {
	return slices.ContainsFunc(docs, func(d *listenerDoc) bool {
		return slices.ContainsFunc(d.Raw, func(line string) bool { return slices.Contains(strings.Fields(line), backend) })
	})
}

// ownServers refuses servers that are a listener which leads to them.
func (c *layer7Checker) ownServers(at string, b *l7.Backend, from []int) {
	for j, s := range b.Servers {
		for _, i := range from {
			l := &c.out.Listeners[i]
			if s.Address.IsValid() && slices.Contains(l.Bind, s.Address) {
				c.refuse(at+".servers"+indexed(j)+".address", "%s is the listener %s, which leads here: requests would go round without end", s.Address, l.Name)
			}
		}
	}
}

// secureCookie completes and checks what browsers do with the cookie.
func (c *layer7Checker) secureCookie(at string, k *l7.Cookie, from []int) {
	plain := slices.IndexFunc(from, func(i int) bool { return c.out.Listeners[i].TLS == nil })
	if !c.tree.Has(at + ".secure") {
		k.Secure = plain < 0 && len(from) > 0
	}
	switch {
	case k.Secure && plain >= 0:
		c.refuse(at+".secure", "browsers do not send it to the listener %s, which has no tls: remove it, or lead there from listeners with tls alone", c.out.Listeners[from[plain]].Name)
	case k.SameSite == "None" && !k.Secure:
		c.refuse(at+".same_site", "browsers ignore none without secure: want lax, or listeners with tls")
	}
}
