// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"imbang/internal/daemon/l7"
)

// routes enters what becomes of the requests of a listener.
func (c *layer7Checker) routes(at string, d *listenerDoc, l *l7.Listener) {
	names := map[string]bool{}
	for i := range d.Routes {
		if c.full() {
			return
		}
		to := at + ".routes" + indexed(i)
		r := c.route(to, &d.Routes[i], l)
		if d.Routes[i].Name == "" {
			r.Name = strconv.Itoa(i)
		} else if !nameForm().MatchString(r.Name) || isDecimal(r.Name) {
			c.refuse(to+".name", "%q: want a name of letters, digits, dots, - and _ that is not a number, such as api", r.Name)
		} else if names[r.Name] {
			c.refuse(to+".name", "%q is the name of another route of the listener: rename one", r.Name)
		}
		names[r.Name] = true
		for j := range l.Routes {
			if l.Routes[j].Match.Covers(r.Match) {
				c.refuse(to, "gets no requests: routes[%d] (%s) gets all that match: write this one above it, or remove it", j, c.place(at+".routes"+indexed(j)))
				break
			}
		}
		l.Routes = append(l.Routes, r)
	}
	if all := slices.IndexFunc(l.Routes, func(r l7.Route) bool { return (l7.Match{}).Covers(r.Match) && r.Match.Covers(l7.Match{}) }); all >= 0 {
		if given := d.given(); len(given) > 0 {
			c.refuse(at+"."+given[0], "gets no requests: routes[%d] (%s) matches every request: remove one of the two", all, c.place(at+".routes"+indexed(all)))
		}
		return
	}
	l.Default = c.target(at, &d.TargetDoc, l)
}

func isDecimal(text string) bool {
	_, err := strconv.ParseUint(text, 10, 64)
	return err == nil
}

func (c *layer7Checker) route(at string, d *routeDoc, l *l7.Listener) l7.Route {
	r := l7.Route{Name: d.Name, Match: c.match(at+".match", &d.Match), Target: c.target(at, &d.TargetDoc, l), StripPrefix: d.StripPrefix}
	r.AddPrefix = c.prefix(at+".add_prefix", d.AddPrefix, "/v2")
	if r.AddPrefix == "/" {
		c.refuse(at+".add_prefix", "/ changes nothing: want a path such as /v2, or remove it")
	}
	if d.StripPrefix && (len(d.Match.PathPrefixes) == 0 || len(d.Match.Paths) > 0 || d.Match.PathRegexp != "") {
		c.refuse(at+".strip_prefix", "requires match.path_prefixes, without paths and path_regexp: it removes the one that was matched")
	}
	r.Headers = c.headerChanges(at+".headers", d.Headers)
	if d.Backend != "" {
		return r
	}
	for key, given := range map[string]bool{"strip_prefix": d.StripPrefix, "add_prefix": d.AddPrefix != ""} {
		if given {
			c.refuse(at+"."+key, "is for requests that go to a backend: remove it")
		}
	}
	for i, h := range r.Headers {
		if !h.Reply {
			c.refuse(at+".headers"+indexed(i), "changes a request that no server gets: write of: reply, or remove it")
		}
	}
	return r
}

// given are the keys of what is given of a target.
func (d *TargetDoc) given() (keys []string) {
	if d.Backend != "" {
		keys = append(keys, "backend")
	}
	if d.Redirect != nil {
		keys = append(keys, "redirect")
	}
	if d.Reply != nil {
		keys = append(keys, "reply")
	}
	return keys
}

func (c *layer7Checker) target(at string, d *TargetDoc, l *l7.Listener) (t l7.Target) {
	switch keys := d.given(); {
	case len(keys) > 1:
		c.refuse(at+"."+keys[1], "%s is given, too: remove one of the two", keys[0])
	case len(keys) == 0 && strings.Contains(at, ".routes["):
		c.refuse(at, "leads nowhere: want one of backend, redirect and reply, such as backend: web")
	case len(keys) == 0:
		c.refuse(at, "requests that no route matches lead nowhere: want one of backend, redirect and reply, such as backend: web")
	case d.Backend != "":
		if _, known := c.backends[d.Backend]; !known {
			c.refuse(at+".backend", "there is no backend %q: %s", d.Backend, c.knownBackends())
		}
		t.Backend = d.Backend
	case d.Redirect != nil:
		t.Redirect = c.redirect(at+".redirect", d.Redirect, l)
	default:
		t.Reply = c.reply(at+".reply", d.Reply, 200)
	}
	return t
}

// statuses of redirects.
var redirects = []string{"301", "302", "303", "307", "308"}

func (c *layer7Checker) redirect(at string, d *redirectDoc, l *l7.Listener) *l7.Redirect {
	r := &l7.Redirect{Status: 302, Host: d.Host, Location: d.Location}
	if c.tree.Has(at + ".status") {
		r.Status = d.Status
		if !slices.Contains(redirects, strconv.Itoa(d.Status)) {
			c.refuse(at+".status", "%d is no status of a redirect: want %s", d.Status, alternatives(redirects))
		}
	}
	if d.Scheme != "" {
		r.Scheme = c.oneOf(at+".scheme", d.Scheme, "http", "https")
	}
	if r.Prefix = c.prefix(at+".prefix", d.Prefix, "/shop"); r.Prefix == "/" {
		c.refuse(at+".prefix", "/ changes nothing: want a path such as /shop, or remove it")
	}
	if d.Host != "" && !isHostPort(strings.ToLower(d.Host)) {
		c.refuse(at+".host", "%q: want a host with or without port, such as shop.example or shop.example:8443", d.Host)
	}
	scheme := "http"
	if l.TLS != nil {
		scheme = "https"
	}
	switch parts := d.Scheme + d.Host + d.Prefix; {
	case d.Location != "" && parts != "":
		c.refuse(at+".location", "is a whole one: remove scheme, host and prefix, or this")
	case d.Location != "":
		c.location(at+".location", d.Location)
	case parts == "":
		c.refuse(at, "leads nowhere: want location, or one or more of scheme, host and prefix, such as scheme: https")
	case parts == scheme:
		c.refuse(at+".scheme", "the listener's requests are %s already: clients would be redirected without end", scheme)
	}
	return r
}

func isHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, "1"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if a, no := netip.ParseAddr(strings.Trim(host, "[]")); no == nil && a.Is6() {
		return err == nil && n > 0 && strings.HasPrefix(text, "[") && a.Zone() == ""
	}
	return err == nil && n > 0 && isHost(host)
}

// location is a path with or without query, or a URL.
func (c *checker) location(at, text string) {
	u, err := url.Parse(text)
	path := err == nil && u.Scheme == "" && u.Host == "" && strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//")
	whole := err == nil && (u.Scheme == "http" || u.Scheme == "https") && isHostPort(strings.ToLower(u.Host)) && u.User == nil
	if !path && !whole || !isLine(text) || strings.ContainsAny(text, " \"<>\\^`{|}") || len(text) > maxText {
		c.refuse(at, "%q: want a path or a URL, such as /new or https://shop.example/new", text)
	}
}

// maxBody bounds the text of a reply [bytes]: HAProxy has it in a buffer of 16 KiB, with the
// headers.
const maxBody = 8 << 10

// reply is a fixed reply; status if it does not say.
func (c *checker) reply(at string, d *replyDoc, status int) *l7.Reply {
	r := &l7.Reply{Status: status, ContentType: d.ContentType, Body: d.Body, File: d.File}
	if c.tree.Has(at + ".status") {
		r.Status = c.between(at+".status", d.Status, 200, 599)
	}
	switch {
	case d.File != "" && d.Body != "":
		c.refuse(at+".file", "is the body, which is given, too: remove one of the two")
	case d.File != "":
		c.file(at+".file", d.File, "a file with the body")
	case len(d.Body) > maxBody:
		c.refuse(at+".body", "has %d bytes: want 8192 at most", len(d.Body))
	case strings.ContainsFunc(d.Body, func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\r\n", r) || r == 0x7f }):
		c.refuse(at+".body", "has a control character: want text with line breaks at most")
	case d.Body != "" && (r.Status == 204 || r.Status == 304):
		c.refuse(at+".body", "a reply of status %d has none: remove it", r.Status)
	}
	switch {
	case d.ContentType != "":
		c.line(at+".content_type", d.ContentType)
	case strings.HasSuffix(d.File, ".html"):
		r.ContentType = "text/html; charset=utf-8"
	default:
		r.ContentType = "text/plain; charset=utf-8"
	}
	return r
}

func (c *layer7Checker) match(at string, d *matchDoc) l7.Match {
	m := l7.Match{
		Hosts: each(c.checker, at+".hosts", d.Hosts, c.host),
		Paths: each(c.checker, at+".paths", d.Paths, func(at, text string) string { return c.urlPath(at, text, "/old") }),
		PathPrefixes: each(c.checker, at+".path_prefixes", d.PathPrefixes, func(at, text string) string {
			if text == "" {
				return c.urlPath(at, text, "/api")
			}
			return c.prefix(at, text, "/api")
		}),
		PathRegex: c.expression(at+".path_regexp", d.PathRegexp),
		Sources:   each(c.checker, at+".sources", d.Sources, c.network),
	}
	m.Methods = each(c.checker, at+".methods", d.Methods, func(at, text string) string {
		if !methodForm().MatchString(text) {
			c.refuse(at, "%q: want a method in capital letters, such as GET", text)
		}
		return text
	})
	for i := range d.Headers {
		if c.full() {
			break
		}
		h, to := &d.Headers[i], at+".headers"+indexed(i)
		out := l7.HeaderMatch{Name: c.headerName(to+".name", h.Name), Value: c.line(to+".value", h.Value), Regex: c.expression(to+".regexp", h.Regexp)}
		if h.Value != "" && h.Regexp != "" {
			c.refuse(to+".regexp", "value is given, too: remove one of the two")
		}
		m.Headers = append(m.Headers, out)
	}
	for key, list := range map[string]int{"hosts": len(d.Hosts), "paths": len(d.Paths), "path_prefixes": len(d.PathPrefixes), "methods": len(d.Methods), "headers": len(d.Headers), "sources": len(d.Sources)} {
		if list == 0 && c.tree.Has(at+"."+key) {
			c.refuse(at+"."+key, "is empty, which is no condition: remove it")
		}
	}
	return m
}
