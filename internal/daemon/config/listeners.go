// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"

	"imbang/internal/daemon/l7"
)

// Defaults of listeners.
const (
	defaultRequestTimeout   = 10 * time.Second
	defaultKeepAliveTimeout = time.Minute
	defaultClientTimeout    = time.Minute
	defaultWindow           = 10 * time.Second
)

// listener enters a listener. All backends are known then.
func (c *layer7Checker) listener(at string, d *listenerDoc) l7.Listener {
	c.name(at, d.Name, "listener", c.listeners)
	l := l7.Listener{
		Name: d.Name, HTTP3: d.HTTP3, ForwardedFor: d.ForwardedFor == nil || *d.ForwardedFor,
		AcceptProxy:    each(c.checker, at+".accept_proxy", d.AcceptProxy, c.network),
		TrustedProxies: each(c.checker, at+".trusted_proxies", d.TrustedProxies, c.network),
		Headers:        c.headerChanges(at+".headers", d.Headers),
		Raw:            c.raw(at+".raw", d.Raw, ownOfFrontend),
	}
	if len(d.Bind) == 0 {
		c.refuse(at+".bind", "missing: want addresses and ports of this host, such as [10.20.0.1:443]")
	}
	for i, text := range d.Bind {
		if c.full() {
			break
		}
		l.Bind = append(l.Bind, c.bind(at+".bind"+indexed(i), text))
	}
	if d.TLS != nil {
		l.TLS = c.listenerTLS(at+".tls", d.TLS)
	}
	l.HTTP2 = l.TLS != nil
	if d.HTTP2 != nil {
		l.HTTP2 = *d.HTTP2
	}
	if d.HTTP3 && d.TLS == nil {
		c.refuse(at+".http3", "requires tls, with certificates")
	}
	if len(l.TrustedProxies) > 0 && !l.ForwardedFor {
		c.refuse(at+".trusted_proxies", "has no effect beside forwarded_for: false: remove one of the two")
	}
	l.Limits = c.limits(at+".limits", &d.Limits)
	to := at + ".timeouts"
	l.Timeouts = l7.Timeouts{
		Request:   c.timer(to+".request", d.Timeouts.Request, time.Millisecond, defaultRequestTimeout),
		Body:      c.timer(to+".body", d.Timeouts.Body, time.Millisecond, 0),
		KeepAlive: c.timer(to+".keep_alive", d.Timeouts.KeepAlive, time.Millisecond, defaultKeepAliveTimeout),
		Client:    c.timer(to+".client", d.Timeouts.Client, time.Millisecond, defaultClientTimeout),
	}
	l.Log = c.accessLog(at+".log", d.Log)
	c.routes(at, d, &l)
	c.monitor(at, d.Monitor, &l)
	return l
}

func (c *layer7Checker) bind(at, text string) netip.AddrPort {
	ap, err := netip.ParseAddrPort(text)
	a := ap.Addr()
	switch {
	case err != nil || ap.Port() == 0 || a.Zone() != "" || a.Is4In6():
		c.refuse(at, "%q: want an address and a port, such as 10.20.0.1:443, [2001:db8::1]:443 or 0.0.0.0:443", text)
	case a.IsMulticast() || a.IsLinkLocalUnicast() && a.Is6() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		c.refuse(at, "%s is not an address that HAProxy can accept connections at: want one of this host", a)
	default:
		return ap
	}
	return netip.AddrPort{}
}

var ciphersForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9+!@=_.:-]+$`) })

func (c *layer7Checker) listenerTLS(at string, d *listenerTLSDoc) *l7.TLS {
	out := &l7.TLS{StrictSNI: d.StrictSNI, MinVersion: c.oneOf(at+".min_version", d.MinVersion, "1.2", "1.3"), Ciphers: d.Ciphers}
	if len(d.Certificates) == 0 {
		c.refuse(at+".certificates", "missing: want files with certificate, chain and key, such as [/etc/imbang/tls/shop.pem]")
	}
	out.Certificates = each(c.checker, at+".certificates", d.Certificates, func(at, text string) string {
		return c.file(at, text, "a file with certificate, chain and key")
	})
	if c.tree.Has(at + ".ciphers") {
		if !ciphersForm().MatchString(d.Ciphers) || len(d.Ciphers) > maxText {
			c.refuse(at+".ciphers", "%q: want cipher suites as openssl ciphers has them, such as ECDHE+AESGCM:!aNULL", d.Ciphers)
		}
		if out.MinVersion == "1.3" {
			c.refuse(at+".ciphers", "is for TLS 1.2, which min_version excludes: remove one of the two")
		}
	}
	if c.tree.Has(at + ".client_ca") {
		out.ClientCA = c.file(at+".client_ca", d.ClientCA, "certificate authorities")
	}
	out.HSTS = c.duration(at+".hsts", d.HSTS, time.Second, 0).Truncate(time.Second)
	return out
}

func (c *layer7Checker) limits(at string, d *limitsDoc) l7.Limits {
	out := l7.Limits{
		Connections:       c.numberOr(at+".connections", d.Connections, 1, maxConnections, 0),
		ClientConnections: c.numberOr(at+".client_connections", d.ClientConnections, 1, maxConnections, 0),
		RequestsPerIP:     c.numberOr(at+".requests", d.Requests, 1, 1e9, 0),
		Body:              c.size(at+".body", d.Body, 1, 1<<40), Headers: int(c.size(at+".headers", d.Headers, 1<<10, 64<<10)),
	}
	window := c.duration(at+".window", d.Window, 0, defaultWindow)
	if window < time.Second || window > time.Hour {
		c.refuse(at+".window", "%s is out of range: want 1 s to 1 h", d.Window)
	}
	if c.tree.Has(at + ".requests") {
		out.RateWindow = window
	} else if d.Window != "" {
		c.refuse(at+".window", "is used only with requests: write requests: 100, or remove it")
	}
	return out
}

// maxConnections bounds numbers of connections: more do not fit the memory of any machine.
const maxConnections = 100_000_000

// numberOr is a number within a range, or otherwise if it is not given.
func (c *checker) numberOr(at string, n, low, high, otherwise int) int {
	if !c.tree.Has(at) {
		return otherwise
	}
	return c.between(at, n, low, high)
}

func (c *layer7Checker) accessLog(at string, d *logDoc) *l7.Log {
	if d == nil {
		return nil
	}
	out := &l7.Log{Format: c.oneOf(at+".format", d.Format, "combined", "json"), File: c.file(at+".file", d.File, "a file for the access log")}
	if first, twice := c.logs[out.File]; twice && first.format != out.Format {
		c.refuse(at+".format", "%s is written to the same file as %s by another listener (%s): want another file", out.Format, first.format, first.place)
	} else if !twice {
		c.logs[out.File] = logFile{out.Format, c.place(at)}
	}
	return out
}

// monitor enters the path by which a director checks this host.
func (c *layer7Checker) monitor(listener string, d *monitorDoc, l *l7.Listener) {
	if d == nil {
		return
	}
	at := listener + ".monitor"
	l.Monitor = c.urlPath(at+".path", d.Path, "/imbang-health")
	l.MonitorBackends = c.numberOr(at+".backends", d.Backends, 1, 1000, 1)
	own := l7.Match{Paths: []string{l.Monitor}}
	for i := range l.Routes {
		if own.Covers(l.Routes[i].Match) {
			c.refuse(listener+".routes"+indexed(i), "gets no requests: %s is the monitor's path (%s): want another one", l.Monitor, c.place(at+".path"))
		}
	}
	switch n := len(leadsTo(l)); {
	case n == 0:
		c.refuse(at, "the listener leads to no backend: remove it")
	case l.MonitorBackends > n:
		c.refuse(at+".backends", "%d is more than the backends of the listener, of which there are %d: the path would always reply 503", l.MonitorBackends, n)
	}
}

// leadsTo are the backends of a listener, each once, in the order of routes.
func leadsTo(l *l7.Listener) (names []string) {
	known := map[string]bool{"": true}
	add := func(t l7.Target) {
		if !known[t.Backend] {
			known[t.Backend] = true
			names = append(names, t.Backend)
		}
	}
	for i := range l.Routes {
		add(l.Routes[i].Target)
	}
	add(l.Default)
	return names
}

// hopHeaders are about a connection or the end of a message; to change them is what request
// smuggling is made of.
var hopHeaders = words("connection content-length expect keep-alive proxy-connection te trailer transfer-encoding upgrade http2-settings")

func (c *layer7Checker) headerChanges(at string, docs []headerChangeDoc) (list []l7.HeaderChange) {
	for i := range docs {
		if c.full() {
			break
		}
		d, to := &docs[i], at+indexed(i)
		out := l7.HeaderChange{Name: c.headerName(to+".name", d.Name), Reply: c.oneOf(to+".of", d.Of, "request", "reply") == "reply", Add: d.Add}
		if hopHeaders[strings.ToLower(d.Name)] {
			c.refuse(to+".name", "is a header of the connection or of the message's length, which HAProxy sets: remove this change")
		}
		switch {
		case d.Remove == (d.Value != ""):
			c.refuse(to, "want one of value and remove: value: DENY, or remove: true")
		case d.Remove && d.Add:
			c.refuse(to+".add", "has no effect beside remove: remove one of the two")
		default:
			out.Value = c.line(to+".value", d.Value)
		}
		list = append(list, out)
	}
	return list
}
