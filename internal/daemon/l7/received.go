// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"net/netip"
	"slices"
	"strings"
)

// Received is a request as the listener's routes see it: with the client that a trusted proxy names,
// and the headers that are set before routes are tried.
func (l *Listener) Received(r *Request) *Request {
	out := *r
	out.Header = r.Header.Clone()
	trusted := r.Client.IsValid() && slices.ContainsFunc(l.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(r.Client) })
	if named := r.Header.Values("X-Forwarded-For"); trusted && len(named) > 0 {
		items := listItems(named[len(named)-1])
		out.Client = clientNamed(items[len(items)-1])
	}
	if !l.ForwardedFor {
		return &out
	}
	if !trusted {
		for name := range out.Header {
			if IsClaim(name) {
				delete(out.Header, name)
			}
		}
	}
	if out.Header.Get("X-Forwarded-Proto") == "" {
		proto := "http"
		if l.TLS != nil {
			proto = "https"
		}
		out.Header.Set("X-Forwarded-Proto", proto)
	}
	if r.Client.IsValid() {
		out.Header.Add("X-Forwarded-For", r.Client.String())
	}
	return &out
}

// clientNamed is the address that a proxy names; one in a form that HAProxy does not know is 0.0.0.0.
func clientNamed(text string) netip.Addr {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return a
	}
	if ap, err := netip.ParseAddrPort(text); err == nil && ap.Addr().Is4() {
		return ap.Addr()
	}
	return netip.IPv4Unspecified()
}

// IsClaim reports whether a header is one in which proxies say who the client is and what it asked
// for. Servers by CGI and its likes take _ for -.
func IsClaim(header string) bool {
	name := strings.ReplaceAll(strings.ToLower(header), "_", "-")
	return name == "forwarded" || name == "x-real-ip" || strings.HasPrefix(name, "x-forwarded")
}

// listItems are those of a header's list, whose quoted texts may have commas.
func listItems(line string) (items []string) {
	quoted, escaped, begin := false, false, 0
	for i, c := range []byte(line) {
		switch {
		case escaped:
			escaped = false
		case c == '\\' && quoted:
			escaped = true
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			items = append(items, strings.TrimSpace(line[begin:i]))
			begin = i + 1
		}
	}
	return append(items, strings.TrimSpace(line[begin:]))
}
