// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// A header for which there is a rule is found wherever it stands: as the first one, as the last one, behind 90
// others, and, those of HTTP/2, in HTTP/2.
func TestUnusual(t *testing.T) {
	p := newPlace(t)
	all := servers(1)
	last := p.servers(t, all)
	usual := [][2]string{{"Upgrade-Insecure-Requests", "1"}, {"Cookie", strings.Repeat("x-forwarded-for: upgrade: ", 300)}, {"X-Realm", "1"}}
	many := usual
	for i := range 90 {
		many = append(many, [2]string{fmt.Sprintf("X-Header-%d", i), strings.Repeat("a: b", 10)})
	}
	for name, change := range map[string]func(*l7.Listener){
		"no log": func(*l7.Listener) {}, "combined": func(l *l7.Listener) { l.Log = &l7.Log{Format: "combined"} }, "json": func(l *l7.Listener) { l.Log = &l7.Log{Format: "json"} },
		"raw lines": func(l *l7.Listener) { l.Raw = []string{"http-request set-header X-Real-IP raw"} },
	} {
		t.Run(name, func(t *testing.T) {
			_, stop := p.start(t, web(all, func(l *l7.Listener, _ *l7.Backend) {
				l.ForwardedFor, l.HTTP2 = true, true
				change(l)
			}), nil, nil)
			defer stop()
			ask := func(first string, fields [][2]string) (status int) {
				t.Helper()
				text := first + "\r\n"
				for _, h := range fields {
					text += h[0] + ": " + h[1] + "\r\n"
				}
				status, _ = p.exchange(t, text+"\r\n")
				return status
			}
			host := [2]string{"Host", "web.example"}
			for _, others := range [][][2]string{{host}, append([][2]string{host}, usual...), append([][2]string{host}, many...)} {
				for _, position := range []int{0, len(others) / 2, len(others)} {
					with := func(h [2]string) [][2]string {
						return append(append(append([][2]string{}, others[:position]...), h), others[position:]...)
					}
					where := fmt.Sprintf("at %d of %d", position, len(others))
					for _, m := range []struct {
						first string
						field [2]string
					}{
						{"POST / HTTP/1.0", [2]string{"Transfer-encoding", "chunked"}},
						{"POST / HTTP/1.1", [2]string{"content-Length", "18446744073709551616"}},
						{"POST / HTTP/1.1", [2]string{"CONTENT-LENGTH", "0000000000000000001"}},
						{"GET / HTTP/1.1", [2]string{"X", "a\x00b"}},
					} {
						if status := ask(m.first, with(m.field)); status != 400 {
							t.Errorf("%s, %s, %s: %d", m.first, where, m.field[0], status)
						}
					}
					for _, n := range []string{"Forwarded", "X-Forwarded", "X-Forwarded-Host", "x_FORWARDED_for", "X-forwarded_Proto", "X-Real-IP", "X-Real_IP", "X_Real-ip", "X_real"} {
						gone := func(what string, h http.Header) {
							t.Helper()
							for name, values := range h {
								if strings.EqualFold(name, n) && !strings.EqualFold(name, "X-Forwarded-For") && !strings.EqualFold(name, "X-Forwarded-Proto") || strings.Contains(strings.Join(values, ""), "claimed") {
									t.Errorf("%s, %s: %s arrives: %q", what, where, n, values)
								}
							}
							if h.Get("X-Realm") == "" && len(others) > 1 || h.Get("X-Real-IP") != "" {
								t.Errorf("%s, %s, %s: the server gets %q", what, where, n, h)
							}
						}
						if status := ask("GET / HTTP/1.1", append(with([2]string{n, "claimed"}), [2]string{"Connection", "close"})); status != 200 {
							t.Errorf("%s, %s: %d", n, where, status)
						}
						gone("HTTP/1.1", last().Header)
						fields := [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "web.example"}}
						for _, h := range with([2]string{n, "claimed"}) {
							if h != host {
								fields = append(fields, [2]string{strings.ToLower(h[0]), h[1]})
							}
						}
						if status := p.http2(t, fields); status != "200" {
							t.Errorf("HTTP/2, %s, %s: %q", n, where, status)
						}
						gone("HTTP/2", last().Header)
					}
					status := ask("GET / HTTP/1.1", append(with([2]string{"CONNECTION", "x-realm, close"}), [2]string{"X-Last", where}))
					if h := last().Header; status != 200 || h.Get("Connection") != "" || h.Get("X-Last") != where {
						t.Errorf("%s: Connection arrives: %d, %q", where, status, h)
					}
					status = ask("GET / HTTP/1.1", append(with([2]string{"UPGRADE", "h2c"}), [2]string{"Connection", "Upgrade"}, [2]string{"X-Last", where}))
					if h := last().Header; status != 200 || h.Get("Upgrade") != "" || h.Get("X-Last") != where {
						t.Errorf("%s: Upgrade arrives: %d, %q", where, status, h)
					}
				}
			}
		})
	}
}
