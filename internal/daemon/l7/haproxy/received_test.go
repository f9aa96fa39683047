// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// What is chosen for a request, for `imbang why`, is what HAProxy does with it.
func TestChosenAsReceived(t *testing.T) {
	p := newPlace(t)
	header := func(name, value string) l7.Match {
		return l7.Match{Headers: []l7.HeaderMatch{{Name: name, Value: value}}}
	}
	matches := []l7.Match{
		{Sources: prefixesOf("192.0.2.0/24")}, {Sources: prefixesOf("0.0.0.0/32", "2001:db8::/32")}, header("X-List", `b`), header("X-List", `"c,d"`), header("X-Real-IP", "1"),
		header("X-Forwarded-Host", "claimed"), header("X-Forwarded-For", "127.6.0.1"), {Hosts: []string{"other.example"}}, {PathPrefixes: []string{"/p"}, PathRegex: "/r/(?:a|b)*"},
		header("X-Forwarded-Proto", "https"), header("X-Forwarded-Proto", "http"),
	}
	all := servers(1)
	p.servers(t, all)
	c := web(all, func(l *l7.Listener, _ *l7.Backend) {
		l.TrustedProxies, l.ForwardedFor = prefixesOf("127.5.0.0/16"), true
		for i, m := range matches {
			l.Routes = append(l.Routes, l7.Route{Name: fmt.Sprint(i), Match: m, Target: l7.Target{Reply: &l7.Reply{Status: 200, Body: fmt.Sprint(i)}}})
		}
		l.Default = l7.Target{Reply: &l7.Reply{Status: 404, Body: "default"}}
	})
	p.start(t, c, nil, nil)
	l := &c.Listeners[0]
	taken := map[string]bool{}
	for _, from := range []string{"127.5.0.1", "127.6.0.1", "127.7.0.1"} {
		client := p.client(from, at)
		for _, m := range []struct{ path, name, value string }{
			{"/", "X", "y"}, {"/", "X-Forwarded-For", "192.0.2.1"}, {"/", "X-Forwarded-For", "192.0.2.1, 198.51.100.1"}, {"/", "X-Forwarded-For", "192.0.2.1:99"},
			{"/", "X-Forwarded-For", "unknown"}, {"/", "X-Forwarded-For", "2001:db8::1"}, {"/", "X-Forwarded-For", "[2001:db8::1]:99"}, {"/", "X-Forwarded-For", "[2001:db8::1]"},
			{"/", "X-List", `a, "c,d" , b`}, {"/", "X-List", `a, "c,d"`}, {"/", "X-List", `"c,b"`}, {"/", "X-List", `"a\",b,"`}, {"/", "X-Real-IP", "1"}, {"/", "X-Forwarded-Host", "claimed"}, {"/", "X-Forwarded-Proto", "https"}, {"/", "Host", "other.example"}, {"/%70/x", "X", "y"}, {"/..", "X", "y"},
			{"/r/" + strings.Repeat("a", 508), "X", "y"}, {"/r/" + strings.Repeat("a", 510), "X", "y"}, {"/" + strings.Repeat("a", 3000), "X", "y"},
		} {
			resp, body := get(t, client, base+m.path, func(r *http.Request) {
				r.Host = "web.example"
				if m.name == "Host" {
					r.Host = m.value
				} else {
					r.Header.Set(m.name, m.value)
				}
			})
			q := &l7.Request{Method: "GET", Host: "web.example", Path: m.path, Header: http.Header{"User-Agent": {"Go-http-client/1.1"}, "Accept-Encoding": {"gzip"}}, Client: netip.MustParseAddr(from)}
			if m.name == "Host" {
				q.Host = m.value
			} else {
				q.Header.Set(m.name, m.value)
			}
			q = l.Received(q)
			if status, _ := l.Refuses(q); status != 0 {
				if status != resp.StatusCode {
					t.Errorf("from %s, %.60s, %s: %s: HAProxy replies %d, chosen is the status %d", from, m.path, m.name, m.value, resp.StatusCode, status)
				}
				taken[fmt.Sprint(status)] = true
				continue
			}
			target, _, _ := l.Choose(q)
			if target.Reply.Body != body {
				t.Errorf("from %s, %.60s, %s: %s: HAProxy takes route %q, chosen is %s", from, m.path, m.name, m.value, body, target.Reply.Body)
			}
			taken[body] = true
		}
	}
	if len(taken) != len(matches)+2 { // all routes, and the statuses 400 and 414
		t.Errorf("requests have taken %v alone", taken)
	}
}
