// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/l7"
	"imbang/internal/model"
)

// Defaults of backends.
const (
	defaultRetries        = 3
	defaultConnectTimeout = 5 * time.Second
	defaultServerTimeout  = time.Minute
	defaultQueueTimeout   = 10 * time.Second
	defaultTunnelTimeout  = time.Hour
	maxServerWeight       = 256 // HAProxy's
	hashWeight            = 100
)

// retryCauses are those that HAProxy knows; "none" is retries: 0.
var retryCauses = []string{"conn-failure", "empty-response", "junk-response", "response-timeout", "0rtt-rejected",
	"401", "403", "404", "408", "425", "429", "500", "501", "502", "503", "504"}

func (c *layer7Checker) backend(at string, d *backendDoc) l7.Backend {
	c.name(at, d.Name, "backend", c.backends)
	b := l7.Backend{
		Name:          d.Name,
		Method:        l7.Method(c.oneOf(at+".balance", d.Balance, "roundrobin", "leastconn", "source", "uri", "header", "random", "first")),
		Protocol:      l7.Protocol(c.oneOf(at+".protocol", d.Protocol, string(l7.HTTP1), string(l7.HTTP2))),
		Retries:       c.numberOr(at+".retries", value(d.Retries), 0, 100, defaultRetries),
		Redispatch:    d.Redispatch == nil || *d.Redispatch,
		SlowStart:     c.timer(at+".slow_start", d.SlowStart, time.Second, 0),
		DrainDeadline: c.duration(at+".drain_deadline", d.DrainDeadline, 0, 0),
		Raw:           c.raw(at+".raw", d.Raw, ownOfBackend),
	}
	if b.Method == l7.Header {
		b.Header = c.headerName(at+".header", d.Header)
	} else if d.Header != "" {
		c.refuse(at+".header", "is used only with balance: header: remove it")
	}
	if d.TLS != nil {
		b.TLS = c.serverTLS(at+".tls", d.TLS)
	}
	if d.SendProxy != "" {
		b.SendProxy = 1 + slices.Index([]string{"v1", "v2"}, c.oneOf(at+".send_proxy", d.SendProxy, "v1", "v2"))
	}
	if d.Cookie != nil {
		b.Cookie = c.cookie(at+".cookie", d.Cookie)
	}
	b.RetryOn = each(c.checker, at+".retry_on", d.RetryOn, func(at, text string) string { return c.oneOf(at, text, retryCauses...) })
	switch {
	case !c.tree.Has(at + ".retry_on"):
		b.RetryOn = []string{"conn-failure"}
	case len(d.RetryOn) == 0:
		c.refuse(at+".retry_on", "is empty: write retries: 0, or remove it")
	case b.Retries == 0:
		c.refuse(at+".retry_on", "has no effect beside retries: 0: remove one of the two")
	}
	to := at + ".timeouts"
	b.Timeouts = l7.ServerTimeouts{
		Connect: c.timer(to+".connect", d.Timeouts.Connect, time.Millisecond, defaultConnectTimeout),
		Server:  c.timer(to+".server", d.Timeouts.Server, time.Millisecond, defaultServerTimeout),
		Queue:   c.timer(to+".queue", d.Timeouts.Queue, time.Millisecond, defaultQueueTimeout),
		Tunnel:  c.timer(to+".tunnel", d.Timeouts.Tunnel, time.Millisecond, defaultTunnelTimeout),
	}
	if d.Maintenance != nil {
		b.Maintenance = c.reply(at+".maintenance", d.Maintenance, 503)
	}
	checks := c.checksNamed(at+".checks", d.Checks)
	b.Check = c.engineCheck(at+".checks", checks)
	if len(d.Servers) == 0 {
		c.refuse(at+".servers", "missing: want at least one, such as {address: 172.16.0.2:8080}")
	}
	for i := range d.Servers {
		if c.full() {
			break
		}
		b.Servers = append(b.Servers, c.backendServer(at+".servers"+indexed(i), &d.Servers[i], &b, checks))
	}
	c.distinctServers(at, b.Servers)
	evenWeights(&b, d.Servers)
	return b
}

// evenWeights is the default of weights where HAProxy places servers on a ring, at 16 points for
// each unit of weight: with 1 for each of three servers, one had 41 % of the requests and another
// 25 %. With hashWeight, shares are within a few percent.
func evenWeights(b *l7.Backend, docs []backendServerDoc) {
	switch b.Method {
	case l7.Source, l7.URI, l7.Header, l7.Random:
	default:
		return
	}
	if slices.ContainsFunc(docs, func(d backendServerDoc) bool { return d.Weight != nil }) {
		return
	}
	for i := range b.Servers {
		b.Servers[i].Weight = hashWeight
	}
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func (c *layer7Checker) serverTLS(at string, d *serverTLSDoc) *l7.ServerTLS {
	out := &l7.ServerTLS{Name: strings.ToLower(d.ServerName)}
	verify := d.Verify == nil || *d.Verify
	switch {
	case verify && d.CA == "":
		c.refuse(at+".ca", "missing: want the absolute path of certificate authorities to verify servers with, or verify: false")
	case !verify && d.CA != "":
		c.refuse(at+".ca", "is used only to verify: remove it, or verify: false")
	case d.CA != "":
		if d.ServerName == "" {
			c.warn(at+".ca", "servers are verified by the name that the client asks for (Host), so clients choose it: write server_name, the name in the servers' certificates")
		}
		out.CA = c.file(at+".ca", d.CA, "certificate authorities")
	}
	if d.ServerName != "" && !isHost(out.Name) {
		c.refuse(at+".server_name", "%q: want a name without port, such as shop.example", d.ServerName)
	}
	if c.tree.Has(at + ".client_cert") {
		out.Client = c.file(at+".client_cert", d.ClientCert, "a certificate and its key")
	}
	return out
}

// cookie enters all but Secure's default, for which the listeners are needed.
func (c *layer7Checker) cookie(at string, d *cookieDoc) *l7.Cookie {
	out := &l7.Cookie{
		Name: d.Name, Secure: d.Secure != nil && *d.Secure, HTTPOnly: d.HTTPOnly == nil || *d.HTTPOnly,
		MaxIdle: c.duration(at+".max_idle", d.MaxIdle, time.Second, 0).Truncate(time.Second),
		MaxLife: c.duration(at+".max_life", d.MaxLife, time.Second, 0).Truncate(time.Second),
	}
	if !cookieForm().MatchString(d.Name) {
		c.refuse(at+".name", "%q: want a name of letters, digits, dots, - and _ that begins with a letter, such as SRV", d.Name)
	} else if first, twice := c.cookies[d.Name]; twice {
		c.refuse(at+".name", "%q is the cookie of another backend (%s), whose clients would lose their server: rename one", d.Name, first)
	}
	c.cookies[d.Name] = c.place(at)
	if d.SameSite != "" {
		out.SameSite = map[string]string{"strict": "Strict", "lax": "Lax", "none": "None"}[c.oneOf(at+".same_site", d.SameSite, "strict", "lax", "none")]
	}
	if out.MaxIdle > 0 && out.MaxLife > 0 && out.MaxIdle > out.MaxLife {
		c.refuse(at+".max_idle", "%s is longer than max_life of %s: want a shorter time", d.MaxIdle, d.MaxLife)
	}
	return out
}

func (c *layer7Checker) backendServer(at string, d *backendServerDoc, b *l7.Backend, checks []*Check) l7.Server {
	s := l7.Server{Name: d.Name, Address: c.serverEndpoint(at+".address", d.Address), Weight: 1, Backup: d.Backup}
	if d.Weight != nil {
		s.Weight = c.between(at+".weight", *d.Weight, 0, maxServerWeight)
	}
	s.MaxConnections = c.numberOr(at+".max_connections", d.MaxConnections, 1, maxConnections, 0)
	if b.Method == l7.First && s.MaxConnections == 0 && !c.tree.Has(at+".max_connections") {
		c.refuse(at+".max_connections", "missing: balance: first fills each server up to it, so without it the first server gets all requests")
	}
	switch {
	case d.Name == "" && s.Address.IsValid():
		s.Name = s.Address.Addr().String() + ":" + strconv.Itoa(int(s.Address.Port()))
	case d.Name != "" && (!nameForm().MatchString(d.Name) || len(d.Name) > maxName):
		c.refuse(at+".name", "%q: %s, of %d characters at most", d.Name, wantName, maxName)
	}
	if d.Checks != nil {
		checks = c.checksNamed(at+".checks", *d.Checks)
	}
	if len(checks) > 0 {
		c.out.Checks[l7.ServerID{Backend: b.Name, Server: s.Name}] = checks
	}
	return s
}

func (c *layer7Checker) serverEndpoint(at, text string) netip.AddrPort {
	ap, err := netip.ParseAddrPort(text)
	a := ap.Addr()
	switch {
	case text == "":
		c.refuse(at, "missing: want the server's address and port, such as 172.16.0.2:8080")
	case err != nil || ap.Port() == 0 || a.Zone() != "":
		c.refuse(at, "%q: want an address and a port, such as 172.16.0.2:8080 or [2001:db8::2]:8080", text)
	case !model.SingleHost(a):
		c.refuse(at, "%s is not the address of a single host", a)
	default:
		return ap
	}
	return netip.AddrPort{}
}

// distinctServers refuses two servers of the same name or address.
func (c *layer7Checker) distinctServers(at string, servers []l7.Server) {
	names, addresses := map[string]bool{}, map[netip.AddrPort]bool{}
	usual := false
	for i, s := range servers {
		to := at + ".servers" + indexed(i)
		if addresses[s.Address] && s.Address.IsValid() {
			c.refuse(to+".address", "%s is given twice: remove one", s.Address)
		} else if names[s.Name] && s.Name != "" {
			c.refuse(to+".name", "%q is the name of another server of the backend: rename one", s.Name)
		}
		names[s.Name], addresses[s.Address] = true, true
		usual = usual || !s.Backup
	}
	if len(servers) > 0 && !usual {
		c.refuse(at+".servers", "all are backup servers: want at least one that is not")
	}
}

// engineCheck is the first check that HAProxy can make, as far as it can; nil: there is none.
func (c *layer7Checker) engineCheck(at string, checks []*Check) *l7.EngineCheck {
	i := slices.IndexFunc(checks, func(ch *Check) bool { return slices.Contains(connecting, ch.Kind) })
	if i < 0 {
		return nil
	}
	ch := checks[i]
	out := &l7.EngineCheck{Port: ch.Port, Interval: ch.Interval, Rise: ch.Rise, Fall: ch.Fall, Timeout: ch.Timeout}
	switch spec := ch.Spec.(type) {
	case *check.TLS:
		out.TLS = true
	case *check.HTTP:
		out.TLS = spec.TLS != nil
		first := check.Request{}
		if len(spec.Requests) > 0 {
			first = spec.Requests[0]
		}
		if first.Body != "" {
			break // HAProxy connects alone: a request without its body is another one
		}
		out.Method, out.Path, out.Host = cmp.Or(first.Method, "GET"), cmp.Or(first.Path, "/"), spec.Host
		for part := range strings.SplitSeq(cmp.Or(first.Status, "200-399"), ",") {
			out.Statuses = append(out.Statuses, strings.TrimSpace(part))
		}
		if !isLine(out.Path) || strings.Contains(out.Path, " ") || !isLine(out.Host) || strings.Contains(out.Host, " ") {
			c.refuse(at+indexed(i), "path or host of the check %s has characters that HAProxy cannot send if proxy.fallback applies: want printable ASCII characters", ch.Name)
		}
	}
	return out
}
