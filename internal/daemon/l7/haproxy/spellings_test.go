// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"net/http"
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// A route has the requests for its host and paths in all spellings that a server may understand as
// these, and `imbang why` says the same. What others are sent stays as it is spelled.
func TestSpellings(t *testing.T) {
	p := newPlace(t)
	all := servers(1, 1)
	last := p.servers(t, all)
	const plainHost = "web.example"
	const byHAProxy = "<h1>400 Bad request</h1>" // servers here have another one
	c := web(all[1:], func(l *l7.Listener, _ *l7.Backend) {
		l.HTTP2 = true
		l.Routes = []l7.Route{
			{Match: l7.Match{Hosts: []string{"admin.example", "*.in.example"}}, Target: l7.Target{Backend: "guarded"}},
			{Match: l7.Match{Paths: []string{"/exact", "/a%20b"}, PathPrefixes: []string{"/admin"}, PathRegex: "/r/[a-z]+"}, Target: l7.Target{Backend: "guarded"}},
		}
	})
	c.Backends = append(c.Backends, l7.Backend{Name: "guarded", Servers: all[:1]})
	strip := *c
	strip.Listeners = append([]l7.Listener{}, c.Listeners...)
	strip.Listeners[0].Routes = append(append([]l7.Route{}, c.Listeners[0].Routes...),
		l7.Route{Match: l7.Match{PathPrefixes: []string{"/st.rip/x"}}, Target: l7.Target{Backend: "guarded"}, StripPrefix: true})
	for name, c := range map[string]*l7.Config{"backends alone": c, "by number": &strip} {
		t.Run(name, func(t *testing.T) {
			_, stop := p.start(t, c, nil, nil)
			defer stop()
			for _, m := range []struct {
				host, path string
				status     int
				server     string
			}{
				{"admin.example", "/", 200, "s1"}, {"admin.example.", "/", 200, "s1"}, {"ADMIN.example.:80", "/", 200, "s1"}, {"admin.example:", "/", 200, "s1"},
				{"a.in.example.", "/", 200, "s1"}, {"adminexample", "/", 200, "s2"},
				// Servers read these as admin.example, or as nothing.
				{"x@admin.example", "/", 400, ""}, {"x,admin.example", "/", 400, ""}, {"admin.example:80:80", "/", 400, ""}, {"%61dmin.example", "/", 400, ""}, {"admin.example/", "/", 400, ""},
				{"admin.example?", "/", 400, ""}, {"admin.example#", "/", 400, ""}, {"\xef\xbd\x81dmin.example", "/", 400, ""}, {"admin.example:x", "/", 400, ""},
				{"127.0.0.1:80", "/", 200, "s2"}, {"[2001:db8::1]:80", "/", 200, "s2"}, {"[::ffff:192.0.2.1]", "/", 200, "s2"}, {"a_b-c.example:", "/", 200, "s2"}, {"", "/", 200, "s2"},
				{plainHost, "/admin", 200, "s1"}, {plainHost, "/%61dmin", 200, "s1"}, {plainHost, "//admin", 200, "s1"}, {plainHost, "/admin%2fx", 200, "s1"},
				{plainHost, `/\admin`, 200, "s1"}, {plainHost, "/%2Fadmin/", 200, "s1"}, {plainHost, "/%5cadmin?a=/..", 200, "s1"},
				{plainHost, "/x/../admin", 400, ""}, {plainHost, "/x/%2e%2e/admin", 400, ""}, {plainHost, "/x/..%2fadmin", 400, ""}, {plainHost, `/x\..\admin`, 400, ""},
				{plainHost, "/./admin", 400, ""}, {plainHost, "/admin%00", 400, ""}, {plainHost, "/r/a%0A", 400, ""}, {plainHost, "/r/a%0b", 400, ""}, {plainHost, "/%1fadmin", 400, ""}, {plainHost, "/%61dmin/%zz", 400, ""}, {plainHost, "/admin/..", 400, ""},
				{plainHost, "/x/..;/admin", 400, ""}, {plainHost, "/x/..;a=b/admin", 400, ""}, {plainHost, "/x/%2e%2e%3b/admin", 400, ""}, {plainHost, "/.;/admin", 400, ""}, {plainHost, "/;a=b/admin", 400, ""}, {plainHost, "/x/..;", 400, ""},
				{plainHost, "/exact", 200, "s1"}, {plainHost, "/ex%61ct", 200, "s1"}, {plainHost, "/exact/", 200, "s2"}, {plainHost, "/a%20b", 200, "s1"}, {plainHost, "/%61%20b", 200, "s1"},
				{plainHost, "/r/a%62", 200, "s1"}, {plainHost, "/r/%31", 200, "s2"},
				// Honest requests.
				{plainHost, "/;jsessionid=1", 200, "s2"}, {plainHost, "/x;a=b/c;d?e=/..;/", 200, "s2"}, {plainHost, "/a..;b/x", 200, "s2"}, {plainHost, "/admin;a", 200, "s2"},
				{plainHost, "/items/a%2Fb?x=%2e%2e/../%zz", 200, "s2"}, {plainHost, "/.well-known/x", 200, "s2"}, {plainHost, "/a..b/...", 200, "s2"},
				{plainHost, "/fetch/http://admin/x", 200, "s2"}, {plainHost, "/%25zz+", 200, "s2"}, {plainHost, "/xadmin", 200, "s2"}, {plainHost, "/" + strings.Repeat("%61/", 2500), 200, "s2"},
			} {
				status, server := p.exchange(t, "GET "+m.path+" HTTP/1.1\r\nHost: "+m.host+"\r\nConnection: close\r\n\r\n")
				if status != m.status || status == 200 && server != m.server || status == 400 && !strings.Contains(server, byHAProxy) {
					t.Errorf("http://%s%s: %d by %q, expected %d by %q", m.host, m.path, status, server, m.status, m.server)
				}
				if status == 200 && last().RequestURI != m.path && !strings.Contains(m.path, `\`) {
					t.Errorf("http://%s%s: the server gets %s", m.host, m.path, last().RequestURI)
				}
				path, _, _ := strings.Cut(m.path, "?")
				why := &l7.Request{Method: "GET", Host: m.host, Path: path}
				target, _, _ := c.Listeners[0].Choose(why)
				if status, _ := c.Listeners[0].Refuses(why); (status != 0) != (m.status == 400) || status == 0 && (target.Backend == "guarded") != (m.server == "s1") {
					t.Errorf("http://%s%s: chosen is %+v, refused by %d", m.host, m.path, target, status)
				}
			}
			// The target is a whole URL.
			for text, want := range map[string]string{
				"GET http://admin.example/ HTTP/1.0\r\n\r\n":                                                   "400 ",
				"GET http://admin.example/ HTTP/1.1\r\nConnection: close\r\n\r\n":                              "400 ",
				"GET http://web.example/admin HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":      "200 s1",
				"GET http://web.example/x HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":          "200 s2",
				"GET http://web.example/y/../admin HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n": "400 ",
				"GET /x HTTP/1.0\r\n\r\n": "200 s2",
				"GET */../admin HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":                         "400 ",
				"GET http://admin.example?@web.example/ HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n": "400 ",
				"GET http://x@web.example/ HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":              "400 ",
				"GET /admin#x HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":                           "400 ",
				"GET /x/..#/y HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":                           "400 ",
				"GET admin HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n":                                    "400 ",
				"GET web.example/admin HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":                  "400 ",
				"GET @/admin HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":                            "400 ",
				"GET http://web.example HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":                 "200 s2",
				"OPTIONS * HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n":                              "200 ",
			} {
				status, server := p.exchange(t, text)
				if got := http.StatusText(status); status == 200 && want != "200 "+server || status != 200 && (!strings.HasPrefix(want, "400") || !strings.Contains(server, byHAProxy)) {
					t.Errorf("%q: %s by %s, expected %s", text, got, server, want)
				}
			}
			h2 := &http.Client{Transport: p.prior()}
			for path, want := range map[string]string{"/%61dmin": "s1", "/x": "s2"} {
				if _, server := get(t, h2, base+path, nil); server != want {
					t.Errorf("HTTP/2: %s is sent to %s", path, server)
				}
			}
			for _, m := range []struct{ authority, path, status, server string }{
				{plainHost, "/admin?x", "200", "s1"}, {plainHost, "//admin", "200", "s1"}, {plainHost, "/x//%61dmin", "200", "s2"}, {plainHost, "/x?/../admin", "200", "s2"},
				{"127.0.0.1:8080", "/x", "200", "s2"}, {plainHost + ":80", "/admin", "200", "s1"}, {"admin.example", "/", "200", "s1"}, {"ADMIN.example.:80", "/x", "200", "s1"},
				{plainHost, "/x/../admin", "400", ""}, {plainHost, "/admin/.", "400", ""}, {plainHost, "/x/..%2fadmin", "400", ""}, {plainHost, "/%zz", "400", ""}, {plainHost, "/x/..;/admin", "400", ""}, {plainHost, "/;jsessionid=1", "200", "s2"},
				{"admin.example?@web.example", "/", "400", ""}, {"x@web.example", "/", "400", ""}, {"web.example/..", "/admin", "400", ""}, {"web.example/admin", "/x", "400", ""},
			} {
				status := p.http2(t, [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", m.path}, {":authority", m.authority}})
				if status != m.status || status == "200" && last().Server != m.server {
					t.Errorf("HTTP/2: %s%s: %s by %s, expected %s by %s", m.authority, m.path, status, last().Server, m.status, m.server)
				}
			}
			if name == "by number" {
				for path, want := range map[string]string{
					"/st.rip/x/a": "/a", "/st%2Erip%2Fx/%61": "/%61", "//st.rip//%78/a": "/a", "/st.rip/x": "/", "/st.rip/x/?a//b": "/?a//b", "/st.rip/x?//b": "/?//b", "/st.rip/x/a//b%2F": "/a//b%2F",
					// Browsers take a redirect to //evil.example/y, or to /\evil.example/y, for another host.
					"/st.rip/x//evil.example/y": "/evil.example/y", "/st.rip/x///evil.example": "/evil.example", `/st.rip/x/\evil.example`: "/evil.example", `/st.rip/x\\evil.example`: "/evil.example",
					"/st.rip/x/%2Fevil.example": "/evil.example", "/st.rip/x%2f%5Cevil.example": "/evil.example", "/st.rip/x//": "/",
				} {
					for _, host := range []string{"", "http://a"} {
						if _, _ = p.exchange(t, "GET "+host+path+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); last().RequestURI != host+want {
							t.Errorf("%s%s arrives as %s, expected %s%s", host, path, last().RequestURI, host, want)
						}
					}
				}
			}
		})
	}
}
