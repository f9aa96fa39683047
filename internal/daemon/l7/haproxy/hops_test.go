// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
)

// echoes replies to each request with the bytes of its head, and ends the connection. It takes no stand on what they mean.
func (p *place) echoes(t testing.TB, address string) {
	t.Helper()
	l := p.listen(t, address)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(30 * time.Second))
				head, r := "", bufio.NewReader(c)
				for !strings.HasSuffix(head, "\r\n\r\n") {
					line, err := r.ReadString('\n')
					if head += line; err != nil {
						return
					}
				}
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(head), head)
			}()
		}
	}()
}

// proxies is a server that is a proxy itself (net/http/httputil), with an application that replies as echoes does, as
// far as net/http keeps it, and agrees to upgrades.
func (p *place) proxies(t testing.TB, address string) {
	t.Helper()
	const application = "127.0.2.1:8080"
	app := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nX-For: %s\r\n\r\n", r.Header.Get("Upgrade"), r.Header.Get("X-Forwarded-For"))
			return
		}
		fmt.Fprintf(w, "%s %s %s\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Proto, r.Host)
		_ = r.Header.Write(w)
		_, _ = io.WriteString(w, "\r\n")
	})}
	go app.Serve(p.listen(t, application))
	front := &http.Server{Handler: &httputil.ReverseProxy{
		//lint:ignore SA1019 servers still use it, and Rewrite removes the headers that are looked for here
		Director: func(r *http.Request) { r.URL.Scheme, r.URL.Host = "http", application },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
			return p.dial("", application)
		}},
	}}
	go front.Serve(p.listen(t, address))
	t.Cleanup(func() { front.Close(); app.Close() })
}

// fields are the lines of a head, by their names in lower case.
func fields(head string) map[string][]string {
	all := map[string][]string{}
	for line := range strings.SplitSeq(head, "\r\n") {
		if name, value, found := strings.Cut(line, ":"); found {
			all[strings.ToLower(name)] = append(all[strings.ToLower(name)], strings.TrimSpace(value))
		}
	}
	return all
}

// A client cannot have a server that is a proxy remove what imbang sets: of the options that Connection names, servers
// get that of an upgrade alone.
func TestHops(t *testing.T) {
	p := newPlace(t)
	all := servers(1, 1)
	p.echoes(t, all[0].Address.String())
	p.proxies(t, all[1].Address.String())
	const client = "127.5.0.9"
	set := map[string]string{
		"X-Forwarded-For": client, "X-Forwarded-Proto": "http", "X-Tenant": "of the listener", "X-Route": "of the route",
		"X-Raw": "of a raw line", "Authorization": "Basic of the listener",
	}
	c := web(all[:1], func(l *l7.Listener, _ *l7.Backend) {
		l.HTTP2, l.ForwardedFor = true, true
		l.Headers = []l7.HeaderChange{{Name: "X-Tenant", Value: set["X-Tenant"]}, {Name: "Authorization", Value: set["Authorization"]}}
		l.Raw = []string{"http-request set-header X-Raw 'of a raw line'"}
		route := []l7.HeaderChange{{Name: "X-Route", Value: set["X-Route"]}}
		l.Routes = []l7.Route{
			{Match: l7.Match{PathPrefixes: []string{"/echo"}}, Target: l7.Target{Backend: "web"}, Headers: route},
			{Match: l7.Match{PathPrefixes: []string{"/proxy"}}, Target: l7.Target{Backend: "proxy"}, Headers: route},
		}
	})
	c.Backends = append(c.Backends, l7.Backend{Name: "proxy", Servers: all[1:]})
	p.start(t, c, nil, nil)
	names := func(of string) string {
		var all []string
		for name := range set {
			all = append(all, name)
		}
		slices.Sort(all)
		return fmt.Sprintf(of, strings.Join(all, ", "))
	}
	one := func(of string) (lines string) {
		for name := range set {
			lines += fmt.Sprintf(of, name)
		}
		return lines
	}
	for _, m := range []struct {
		lines string
		// What the echo gets as Connection, TE and Upgrade; HAProxy adds keep-alive to requests of HTTP/1.0.
		connection, te, upgrade string
		status                  int // 0: 200
	}{
		{lines: "Connection: close, X-Forwarded-For, X-Forwarded-Proto\r\n"},
		{lines: names("Connection: %s\r\n")}, {lines: names("connection:close,%s\r\n")}, {lines: names("CONNECTION: Keep-Alive ,\t%s,\r\n")},
		{lines: one("Connection: %s\r\n")}, {lines: "Connection: keep-alive\r\n" + one("Connection: %s\r\n")}, {lines: one("Connection: \"%s\"\r\n")},
		{lines: one("Connection: close,, , %s ;q=1\r\n")}, {lines: one("Connection: \"a, %s\r\n")}, {lines: one("Connection: a\", %s\r\n")},
		{lines: one("Connection: close,\r\n %s\r\n")}, {lines: strings.ToLower(one("Connection: %s\r\n"))}, {lines: strings.ToUpper(one("Connection: %s\r\n"))},
		{lines: one("Connection : %s\r\n"), status: 400}, {lines: one("Connection\t: %s\r\n"), status: 400},
		{lines: one("TE: %s\r\n") + one("Connection: TE, %s\r\n")}, {lines: "TE: trailers, deflate\r\nConnection: te, close\r\n"}, {lines: "TE: trailers\r\n", te: "trailers"},
		{lines: names("Keep-Alive: %s\r\n")}, {lines: names("Proxy-Connection: %s\r\n")}, {lines: names("Trailer: %s\r\n")}, {lines: names("Connection: Keep-Alive, Trailer\r\nKeep-Alive: %s\r\n")},
		{lines: "Connection: Host, Content-Length, Cookie, Transfer-Encoding\r\n"},
		{lines: "Connection: close\r\n"}, {lines: "Connection: Keep-Alive\r\n"}, {lines: "Connection:\r\n"}, {lines: "Connection:\r\n" + names("Connection: %s\r\n")}, {lines: ""},
		// An upgrade that is none.
		{lines: "Connection: Upgrade\r\n"}, {lines: "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"}, {lines: "Upgrade: other\r\n", upgrade: "other"},
		{lines: names("Connection: upgrade, %s\r\n") + "Upgrade: other\r\n", connection: "upgrade", upgrade: "other"},
		{lines: names("Connection: %s\r\n") + "Connection: keep-alive, UPGRADE\r\nUpgrade: other\r\n", connection: "upgrade", upgrade: "other"},
	} {
		for _, version := range []string{"1.0", "1.1"} {
			for _, path := range []string{"/echo", "/proxy"} {
				if path == "/proxy" && m.upgrade != "" {
					continue // below
				}
				what := fmt.Sprintf("HTTP/%s, %s, %q", version, path, m.lines)
				status, head := p.exchangeFrom(t, client, "GET "+path+" HTTP/"+version+"\r\nHost: web.example\r\n"+m.lines+"\r\n")
				if want := cmp.Or(m.status, 200); status != want {
					t.Errorf("%s: status %d, expected %d", what, status, want)
				}
				if status != 200 {
					continue
				}
				got := fields(head)
				for name, value := range set {
					if values := got[strings.ToLower(name)]; len(values) != 1 || !strings.HasPrefix(values[0], value) {
						t.Errorf("%s: the server gets %s: %q, expected %q", what, name, values, value)
					}
				}
				if path == "/proxy" {
					continue // which has Connection and TE of its own
				}
				connection := m.connection
				if version == "1.0" && connection == "" {
					connection = "keep-alive"
				}
				for name, want := range map[string]string{"connection": connection, "te": m.te, "upgrade": m.upgrade} {
					if values := strings.Join(got[name], "|"); values != want {
						t.Errorf("%s: the server gets %s: %q, expected %q", what, name, values, want)
					}
				}
			}
		}
	}
	// Trailers are passed on, announced or not: net/http keeps them apart from headers.
	for _, announced := range []string{"", names("Trailer: %s\r\n"), names("Connection: trailer\r\nTrailer: %s\r\n")} {
		_, head := p.exchangeFrom(t, client, "POST /proxy HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n"+announced+"\r\n1\r\nx\r\n0\r\n"+one("%s: claimed\r\n")+"\r\n")
		for name, value := range set {
			if values := fields(head)[strings.ToLower(name)]; len(values) != 1 || !strings.HasPrefix(values[0], value) {
				t.Errorf("trailers, %q: the server gets %s: %q, expected %q", announced, name, values, value)
			}
		}
	}
	// WebSockets pass both, whatever else Connection names.
	for _, connection := range []string{"Upgrade", "keep-alive, Upgrade", names("close, %s, upgrade")} {
		conn, err := p.dial(client, at)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprintf(conn, "GET /proxy HTTP/1.1\r\nHost: web.example\r\nConnection: %s\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", connection)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		conn.Close()
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || !strings.HasPrefix(resp.Header.Get("X-For"), client+",") {
			t.Errorf("a WebSocket with Connection: %s: %+v, %v", connection, resp, err)
		}
	}
	// HTTP/2 has no such options. A client ends its own stream by sending one.
	if status := p.http2(t, [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/echo"}, {":authority", "web.example"}, {"connection", "x-forwarded-for"}}); status == "200" {
		t.Errorf("HTTP/2 with Connection: %s", status)
	}
	if status := p.http2(t, [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/echo"}, {":authority", "web.example"}, {"te", "trailers"}}); status != "200" {
		t.Errorf("HTTP/2 with TE: %s", status)
	}
}

// What Connection says of the connection itself keeps its effect beside other options.
func TestHopsOfConnections(t *testing.T) {
	p := newPlace(t)
	all := servers(1)
	p.counters(t, all, 0)
	p.start(t, web(all, func(l *l7.Listener, _ *l7.Backend) { l.ForwardedFor = true }), nil, nil)
	for _, m := range []struct {
		version, connection string
		stays               bool
	}{
		{"1.0", "keep-alive, X-Forwarded-For", true}, {"1.0", "X-Forwarded-For", false}, {"1.1", "X-Forwarded-For", true}, {"1.1", "X-Forwarded-For, close", false},
	} {
		c, err := p.dial("", at)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprintf(c, "GET / HTTP/%s\r\nHost: web.example\r\nConnection: %s\r\n\r\n", m.version, m.connection)
		r := bufio.NewReader(c)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: web.example\r\n\r\n")
		_, err = http.ReadResponse(r, nil)
		if stays := err == nil; stays != m.stays {
			t.Errorf("HTTP/%s, Connection: %s: the connection stays: %v (%v)", m.version, m.connection, stays, err)
		}
		c.Close()
	}
}
