// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// RFC 9112, section 3.2: a request of HTTP/1.1 has one Host, wherever it stands. HTTP/1.0 may have none, and HTTP/2 has
// :authority.
func TestHost(t *testing.T) {
	p := newPlace(t)
	all := servers(1)
	p.echoes(t, all[0].Address.String())
	many := strings.Repeat("X-Many: "+strings.Repeat("host: a", 10)+"\r\n", 90)
	for name, change := range map[string]func(*l7.Listener){
		"no route": func(*l7.Listener) {},
		"routes by path": func(l *l7.Listener) {
			l.Routes = []l7.Route{{Match: l7.Match{Paths: []string{"/a"}}, Target: l7.Target{Backend: "web"}}}
		},
		"routes by host": func(l *l7.Listener) {
			l.Routes = []l7.Route{{Match: l7.Match{Hosts: []string{"a.example"}}, Target: l7.Target{Backend: "web"}}}
		},
		"a redirect": func(l *l7.Listener) {
			l.Routes = []l7.Route{{Match: l7.Match{Paths: []string{"/a"}}, Target: l7.Target{Backend: "web"}}}
			l.Default = l7.Target{Redirect: &l7.Redirect{Status: 301, Scheme: "https"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, stop := p.start(t, web(all, func(l *l7.Listener, _ *l7.Backend) {
				l.ForwardedFor, l.HTTP2 = true, true
				change(l)
			}), nil, nil)
			defer stop()
			for _, m := range []struct {
				text   string
				status int
			}{
				{"GET /a HTTP/1.1\r\n", 400}, {"GET /a HTTP/1.1\r\nX: y\r\n", 400}, {"GET /a HTTP/1.1\r\n" + many, 400}, {"GET /a HTTP/1.1\r\nX: \r\n host: a\r\n", 400},
				{"GET http://a.example/a HTTP/1.1\r\n", 400}, {"OPTIONS * HTTP/1.1\r\n", 400}, {"GET /a HTTP/1.1\r\nX-Host: a\r\nXHost: a\r\nHosts: a\r\n", 400},
				{"GET /a HTTP/1.1\r\nHost: a.example\r\n", 200}, {"GET /a HTTP/1.1\r\nhOST:a.example\r\n", 200}, {"GET /a HTTP/1.1\r\nHost:\r\n", 200},
				{"GET /a HTTP/1.1\r\nX: y\r\nHost: a.example\r\n", 200}, {"GET /a HTTP/1.1\r\n" + many + "Host: a.example\r\n", 200}, {"GET /a HTTP/1.1\r\nX: y\r\nHost: a.example\r\n" + many, 200},
				{"GET /a HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n", 400}, {"GET /a HTTP/1.1\r\nHost: a.example\r\nX: y\r\nhost: \r\n", 400}, {"GET /a HTTP/1.1\r\nHost : a.example\r\n", 400},
				// HAProxy passes on one of two equal lines.
				{"GET /a HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n", 200},
				{"GET /a HTTP/1.0\r\n", 200}, {"GET /a HTTP/1.0\r\nX: y\r\n", 200}, {"GET /a HTTP/1.0\r\nHost: a.example\r\n", 200}, {"GET /a HTTP/1.0\r\nHost: a.example\r\nHost: b.example\r\n", 400},
			} {
				status, head := p.exchange(t, m.text+"\r\n")
				if status != m.status {
					t.Errorf("%.80q: status %d, expected %d", m.text, status, m.status)
				}
				if got := fields(head)["host"]; status == 200 && len(got) > 1 {
					t.Errorf("%.80q: the server gets %q", m.text, got)
				}
			}
			for authority, want := range map[string]string{"a.example": "200", "": "400"} {
				fields := [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/a"}, {":authority", authority}, {"x", "y"}}
				if authority == "" {
					fields = append(fields[:3], fields[4])
				}
				if status := p.http2(t, fields); status != want {
					t.Errorf("HTTP/2, authority %q: status %q, expected %s", authority, status, want)
				}
			}
		})
	}
}
