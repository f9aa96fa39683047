// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"imbang/internal/daemon/l7"
)

const base = "http://" + at

// Requests take the first route that they match, whatever the routes do.
func TestRoutes(t *testing.T) {
	p := newPlace(t)
	all := servers(1, 1, 1)
	last := p.servers(t, all)
	hostile := `a"b 'c' # %[src] $HOME \x41 100%`
	routes := []l7.Route{
		{Match: l7.Match{Paths: []string{"/exact"}}, Target: l7.Target{Backend: "b1"}},
		{Match: l7.Match{PathPrefixes: []string{"/api"}, Hosts: []string{"*.example.org"}}, Target: l7.Target{Backend: "b1"}},
		{Match: l7.Match{PathPrefixes: []string{"/api", "/exact"}}, Target: l7.Target{Backend: "b2"}},
		{Match: l7.Match{PathRegex: `/img/[0-9]+\.png`}, Target: l7.Target{Backend: "b1"}},
		{Match: l7.Match{Hosts: []string{"Shop.Example"}}, Target: l7.Target{Backend: "b1"}},
		{Match: l7.Match{Methods: []string{"PUT", "PURGE"}}, Target: l7.Target{Backend: "b1"}},
		{Match: l7.Match{Headers: []l7.HeaderMatch{{Name: "X-Beta", Value: "yes"}, {Name: "X-Any"}}}, Target: l7.Target{Backend: "b1"}},
		{Match: l7.Match{Headers: []l7.HeaderMatch{{Name: "User-Agent", Regex: `curl/[0-9.]+ \(a, b\)`}}}, Target: l7.Target{Backend: "b1"}},
		{Match: l7.Match{Sources: prefixesOf("127.9.0.0/16")}, Target: l7.Target{Backend: "b1"}},
	}
	more := []l7.Route{
		{Match: l7.Match{Paths: []string{"/moved"}}, Target: l7.Target{Redirect: &l7.Redirect{Status: 301, Location: "/new?a=100%25"}}},
		{Match: l7.Match{Paths: []string{"/secure"}}, Target: l7.Target{Redirect: &l7.Redirect{Status: 308, Scheme: "https"}}},
		{Match: l7.Match{Paths: []string{"/other"}}, Target: l7.Target{Redirect: &l7.Redirect{Status: 302, Host: "b.example:8080", Prefix: "/p/"}}},
		{Match: l7.Match{Paths: []string{"/gone"}}, Target: l7.Target{Reply: &l7.Reply{Status: 410, ContentType: "text/x", Body: hostile + "\r\n'\n"}}},
		{Match: l7.Match{Paths: []string{"/headers"}}, Target: l7.Target{Backend: "b3"}, Headers: []l7.HeaderChange{
			{Name: "X-Set", Value: hostile}, {Name: "X-Add", Value: "two", Add: true}, {Name: "X-Gone"},
			{Reply: true, Name: "Server"}, {Reply: true, Name: "X-Reply", Value: hostile}}},
		{Match: l7.Match{PathPrefixes: []string{"/strip", "/strip2", "/a.b/"}}, StripPrefix: true, Target: l7.Target{Backend: "b3"}},
		{Match: l7.Match{PathPrefixes: []string{"/put"}}, StripPrefix: true, AddPrefix: "/100%25/", Target: l7.Target{Backend: "b3"}},
	}
	type request struct {
		method, path, host, from string
		headers                  map[string]string
	}
	ask := func(t *testing.T, q request) (*http.Response, string) {
		c := p.client(q.from, at)
		defer c.CloseIdleConnections()
		return get(t, c, base+q.path, func(r *http.Request) {
			if q.method != "" {
				r.Method = q.method
			}
			if q.host != "" {
				r.Host = q.host
			}
			for k, v := range q.headers {
				r.Header.Set(k, v)
			}
		})
	}
	start := func(t *testing.T, routes []l7.Route, d l7.Target) {
		c := web(all[2:], func(l *l7.Listener, _ *l7.Backend) { l.Routes, l.Default = routes, d })
		c.Backends = append(c.Backends, l7.Backend{Name: "b1", Servers: all[:1]}, l7.Backend{Name: "b2", Servers: all[1:2]}, l7.Backend{Name: "b3", Servers: all[2:]})
		p.start(t, c, nil, nil)
	}
	matching := []struct {
		request
		server string
	}{
		{request{path: "/exact"}, "s1"}, {request{path: "/exact?q=1"}, "s1"}, {request{path: "/exact/"}, "s2"}, {request{path: "/exactly"}, "s3"},
		{request{path: "/api"}, "s2"}, {request{path: "/api/x"}, "s2"}, {request{path: "/apis"}, "s3"}, {request{path: "/API"}, "s3"}, {request{path: "/x/api"}, "s3"},
		{request{path: "/api", host: "www.Example.org"}, "s1"}, {request{path: "/api", host: "a.b.example.org:8080"}, "s1"},
		{request{path: "/api", host: "example.org"}, "s2"}, {request{path: "/api", host: "xexample.org"}, "s2"},
		{request{path: "/img/12.png"}, "s1"}, {request{path: "/img/12xpng"}, "s3"}, {request{path: "/img/12.png/x"}, "s3"}, {request{path: "/x/img/1.png"}, "s3"},
		{request{path: "/", host: "shop.example"}, "s1"}, {request{path: "/", host: "SHOP.example:80"}, "s1"}, {request{path: "/", host: "a.shop.example"}, "s3"},
		{request{path: "/", method: "PUT"}, "s1"}, {request{path: "/", method: "PURGE"}, "s1"}, {request{path: "/", method: "POST"}, "s3"},
		{request{path: "/", headers: map[string]string{"X-Beta": "no, yes", "X-Any": "1"}}, "s1"}, {request{path: "/", headers: map[string]string{"X-Beta": "yes"}}, "s3"},
		{request{path: "/", headers: map[string]string{"X-Beta": "yess", "X-Any": "1"}}, "s3"},
		{request{path: "/", headers: map[string]string{"User-Agent": "curl/7.1 (a, b)"}}, "s1"}, {request{path: "/", headers: map[string]string{"User-Agent": "curl/7.1 (a, b) x"}}, "s3"},
		{request{path: "/", from: "127.9.1.1"}, "s1"}, {request{path: "/", from: "127.8.1.1"}, "s3"},
	}
	// The two ways of rendering (use_backend alone, and by number) decide the same.
	for name, after := range map[string][]l7.Route{"backends alone": nil, "by number": more} {
		t.Run(name, func(t *testing.T) {
			start(t, append(append([]l7.Route{}, routes...), after...), l7.Target{Backend: "b3"})
			for _, m := range matching {
				if _, server := ask(t, m.request); server != m.server {
					t.Errorf("%+v is sent to %s, expected %s", m.request, server, m.server)
				}
			}
		})
	}
	t.Run("targets", func(t *testing.T) {
		start(t, append(append([]l7.Route{}, routes...), more...), l7.Target{Reply: &l7.Reply{Status: 404, Body: "nothing"}})
		for _, m := range []struct {
			request
			status   int
			location string
		}{
			{request{path: "/moved?x"}, 301, "/new?a=100%25"},
			{request{path: "/secure?x=1", host: "a.example:8080"}, 308, "https://a.example/secure?x=1"},
			{request{path: "/other?x"}, 302, "http://b.example:8080/p/other?x"},
			{request{path: "/none"}, 404, ""},
			// An earlier route has the request.
			{request{path: "/moved", method: "PUT"}, 200, ""},
		} {
			if resp, _ := ask(t, m.request); resp.StatusCode != m.status || resp.Header.Get("Location") != m.location {
				t.Errorf("%+v: %d to %q, expected %d to %q", m.request, resp.StatusCode, resp.Header.Get("Location"), m.status, m.location)
			}
		}
		if resp, body := ask(t, request{path: "/gone"}); resp.StatusCode != 410 || body != hostile+"\r\n'\n" || resp.Header.Get("Content-Type") != "text/x" {
			t.Errorf("the fixed reply is %d %q", resp.StatusCode, body)
		}
		resp, _ := ask(t, request{path: "/headers", headers: map[string]string{"X-Set": "client", "X-Add": "one", "X-Gone": "client"}})
		got := last()
		if v := got.Header.Values("X-Set"); len(v) != 1 || v[0] != hostile {
			t.Errorf("X-Set is %q", v)
		}
		if v := got.Header.Values("X-Add"); fmt.Sprint(v) != "[one two]" {
			t.Errorf("X-Add is %q", v)
		}
		if v := got.Header.Values("X-Gone"); v != nil {
			t.Errorf("X-Gone is %q", v)
		}
		if v := resp.Header.Values("X-Reply"); len(v) != 1 || v[0] != hostile || resp.Header.Get("Server") != "" {
			t.Errorf("the reply has %v", resp.Header)
		}
		for path, want := range map[string]string{
			"/strip": "/", "/strip/": "/", "/strip/x?q=1": "/x?q=1", "/strip//x": "/x", "/a.b/c": "/c", "/strip/strip": "/strip", "/strip2/x": "/x",
			"/put/x?q": "/100%25/x?q", "/put": "/100%25/",
		} {
			ask(t, request{path: path})
			if got := last(); got.RequestURI != want {
				t.Errorf("%s arrives as %s, expected %s", path, got.RequestURI, want)
			}
		}
		if resp, _ := ask(t, request{path: "/axb/c"}); resp.StatusCode != 404 {
			t.Errorf("/axb/c is taken for /a.b/c")
		}
	})
}

func TestCookieAndStates(t *testing.T) {
	p := newPlace(t)
	all := servers(1, 1, 1)
	p.servers(t, all)
	c := web(all, func(_ *l7.Listener, b *l7.Backend) {
		b.Cookie = &l7.Cookie{Name: "SRV", HTTPOnly: true, SameSite: "strict"}
		b.Redispatch, b.Retries = true, 3
	})
	client := p.client("", at)
	with := func(cookie string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "SRV", Value: cookie}) }
	}
	r, stop := p.start(t, c, nil, nil)
	resp, first := get(t, client, base, nil)
	set := resp.Header.Get("Set-Cookie")
	if want := "SRV=" + first + "; path=/; HttpOnly; SameSite=Strict"; set != want {
		t.Errorf("the cookie is %q, expected %q", set, want)
	}
	for range 10 {
		if resp, s := get(t, client, base, with("s2")); s != "s2" || resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("a client of s2 is sent to %s", s)
		}
	}
	// At run time: maint takes clients with a cookie and a kept connection as well.
	r.command(t, "set server web/s2 state maint")
	for range 10 {
		if _, s := get(t, client, base, with("s2")); s == "s2" {
			t.Error("a server in maintenance gets requests")
		}
	}
	stop()
	client.CloseIdleConnections()
	// The same in the rendered file.
	for _, h := range []l7.Health{l7.Drain, l7.Down} {
		_, stop = p.start(t, c, l7.States{{Backend: "web", Server: "s2"}: {Health: h, Weight: 1}, {Backend: "web", Server: "s3"}: {Weight: 0}}, nil)
		for range 10 {
			if _, s := get(t, client, base, with("s2")); s != "s1" {
				t.Errorf("state %d of s2, weight 0 of s3: a request is sent to %s", h, s)
			}
		}
		if _, s := get(t, client, base, with("s3")); s != "s3" {
			t.Errorf("weight 0 keeps clients with a cookie, but one is sent to %s", s)
		}
		stop()
		client.CloseIdleConnections()
	}
}

func TestMaintenanceAndMonitor(t *testing.T) {
	p := newPlace(t)
	all := servers(1, 1)
	p.servers(t, all)
	c := web(all[:1], func(l *l7.Listener, b *l7.Backend) {
		l.Monitor, l.MonitorBackends = "/monitor", 2
		l.Routes = []l7.Route{{Match: l7.Match{Paths: []string{"/b2"}}, Target: l7.Target{Backend: "b2"}}, {Match: l7.Match{Paths: []string{"/b3"}}, Target: l7.Target{Backend: "b3"}}}
		b.Maintenance = &l7.Reply{Status: 503, ContentType: "text/html", Body: "<p>back soon"}
	})
	c.Backends = append(c.Backends, l7.Backend{Name: "b2", Servers: all[1:]}, l7.Backend{Name: "b3", Servers: all[1:]})
	client := p.client("", at)
	r, stop := p.start(t, c, nil, nil)
	monitor := func(want int) {
		t.Helper()
		if resp, _ := get(t, client, base+"/monitor", nil); resp.StatusCode != want {
			t.Errorf("the monitor replies %d, expected %d", resp.StatusCode, want)
		}
	}
	monitor(200)
	r.command(t, "set server web/s1 state maint")
	monitor(200)
	if resp, body := get(t, client, base, nil); resp.StatusCode != 503 || body != "<p>back soon" || resp.Header.Get("Content-Type") != "text/html" {
		t.Errorf("without a server: %d %q", resp.StatusCode, body)
	}
	if resp, _ := get(t, client, base+"/b2", nil); resp.StatusCode != 200 || resp.Close {
		t.Errorf("the other backend replies %d; close: %v", resp.StatusCode, resp.Close)
	}
	r.command(t, "set server b2/s2 state maint")
	monitor(503)
	r.command(t, "set server web/s1 state ready")
	monitor(200)
	// The node drains, by command and as rendered.
	r.command(t, "set server "+NodeBackend+"/"+NodeServer+" state maint")
	monitor(503)
	if resp, _ := get(t, client, base, nil); resp.StatusCode != 200 || !resp.Close {
		t.Errorf("a draining node replies %d; close: %v", resp.StatusCode, resp.Close)
	}
	r.command(t, "set server "+NodeBackend+"/"+NodeServer+" state ready")
	monitor(200)
	stop()
	client.CloseIdleConnections()
	p.start(t, c, nil, func(o *Options) { o.Draining = true })
	monitor(503)
}

// The process from before a reload answers requests that are under way as the new one would: its
// backends have servers.
func TestStoppingHasServers(t *testing.T) {
	for required := range 3 {
		p := newPlace(t)
		all := servers(1, 1)
		p.servers(t, all)
		c := web(all[:1], func(l *l7.Listener, b *l7.Backend) {
			l.Monitor, l.MonitorBackends, l.Timeouts.Request = "/monitor", required, time.Minute
			l.Routes = []l7.Route{{Match: l7.Match{Paths: []string{"/b2"}}, Target: l7.Target{Backend: "b2"}}}
			b.Maintenance = &l7.Reply{Status: 503, Body: "back soon"}
		})
		c.Backends = append(c.Backends, l7.Backend{Name: "b2", Servers: all[1:]})
		for _, draining := range []bool{false, true} {
			r, stop := p.start(t, c, nil, func(o *Options) { o.Draining = draining })
			monitor := 200
			if draining {
				monitor = 503
			}
			want := map[string]int{"/": 200, "/monitor": monitor}
			open := map[string]net.Conn{}
			for path := range want {
				conn, err := p.dial("", at)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(30 * time.Second))
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a.example\r\n", path)
				open[path] = conn
			}
			get(t, p.client("", at), base, nil) // the process has accepted the others
			r.signal(t, unix.SIGUSR1, func() bool {
				_, err := p.dial("", at)
				return err != nil
			})
			for path, conn := range open {
				io.WriteString(conn, "\r\n")
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != want[path] {
					t.Errorf("%d backends required, draining: %v: %s of a process that stops: %v, %v; expected status %d", required, draining, path, resp, err, want[path])
				}
			}
			stop()
		}
	}
}

// The monitor with each number of backends that it requires, and of those that are usable.
func TestMonitorBackends(t *testing.T) {
	p := newPlace(t)
	all := servers(1, 1, 1)
	p.servers(t, all)
	for required := range len(all) + 1 {
		c := web(all[:1], func(l *l7.Listener, _ *l7.Backend) {
			l.Monitor, l.MonitorBackends, l.HTTP2 = "/monitor", required, true
			for _, b := range []string{"b2", "b3"} {
				l.Routes = append(l.Routes, l7.Route{Match: l7.Match{Paths: []string{"/" + b}}, Target: l7.Target{Backend: b}})
			}
		})
		c.Backends = append(c.Backends, l7.Backend{Name: "b2", Servers: all[1:2]}, l7.Backend{Name: "b3", Servers: all[2:]})
		r, stop := p.start(t, c, nil, nil)
		client := p.client("", at)
		for down, b := range []string{"", "web/s1", "b3/s3", "b2/s2"} {
			if b != "" {
				r.command(t, "set server "+b+" state maint")
			}
			want := 200
			if len(all)-down < required {
				want = 503
			}
			if resp, _ := get(t, client, base+"/monitor", nil); resp.StatusCode != want {
				t.Errorf("%d backends are required, %d usable: the monitor replies %d, expected %d", required, len(all)-down, resp.StatusCode, want)
			}
			if resp, _ := get(t, &http.Client{Transport: p.prior()}, base+"/monitor", nil); resp.StatusCode != want {
				t.Errorf("%d backends are required, %d usable: the monitor replies %d by HTTP/2, expected %d", required, len(all)-down, resp.StatusCode, want)
			}
			q := p.requests(t, "", at)
			io.WriteString(q, "GET /moni")
			time.Sleep(20 * time.Millisecond)
			io.WriteString(q, "tor HTTP/1.1\r\nHost: a\r\n\r\n")
			if resp, err := http.ReadResponse(q.r, nil); err != nil || resp.StatusCode != want {
				t.Errorf("%d backends are required, %d usable: the monitor replies %v, %v to a request in two parts, expected %d", required, len(all)-down, resp, err, want)
			}
			q.Close()
			if _, body := get(t, client, base+"/monitor?x", nil); down == 0 && body != "s1" {
				t.Errorf("a request with a query is the monitor's: %q", body)
			}
		}
		stop()
		client.CloseIdleConnections()
	}
}

func TestForwardedFor(t *testing.T) {
	p := newPlace(t)
	all := servers(1)
	last := p.servers(t, all)
	p.start(t, web(all, func(l *l7.Listener, _ *l7.Backend) {
		l.ForwardedFor, l.TrustedProxies = true, prefixesOf("127.5.0.0/16")
	}), nil, nil)
	// Others that servers take for those of proxies; some take _ for -.
	others := []string{"X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Real-Ip", "X_forwarded_for", "X-Forwarded_proto", "X_real_ip"}
	claim := func(r *http.Request) {
		r.Header.Set("X-Realm", "of no proxy")
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("Forwarded", "for=192.0.2.1")
		for _, name := range others {
			r.Header[name] = []string{"192.0.2.1"}
		}
	}
	for _, m := range []struct {
		from, addresses, proto, forwarded string
		change                            func(*http.Request)
	}{
		{"127.6.0.1", "127.6.0.1", "http", "", claim},
		{"127.6.0.1", "127.6.0.1", "http", "", nil},
		{"127.5.0.1", "192.0.2.1,127.5.0.1", "https", "for=192.0.2.1", claim},
		{"127.5.0.1", "127.5.0.1", "http", "", nil},
	} {
		get(t, p.client(m.from, at), base, m.change)
		h := last().Header
		if a := strings.Join(h.Values("X-Forwarded-For"), ","); a != m.addresses || strings.Join(h.Values("X-Forwarded-Proto"), ",") != m.proto || h.Get("Forwarded") != m.forwarded {
			t.Errorf("from %s: %q, %q, %q", m.from, a, h.Values("X-Forwarded-Proto"), h.Get("Forwarded"))
		}
		for _, name := range others {
			if got := h.Get(name); got != m.forwarded[min(4, len(m.forwarded)):] {
				t.Errorf("from %s: %s is %q", m.from, name, got)
			}
		}
		if m.change != nil && h.Get("X-Realm") == "" {
			t.Errorf("from %s: X-Realm is removed", m.from)
		}
	}
}

// A PROXY protocol header is expected from its networks alone, and sent in either version.
func TestProxyProtocol(t *testing.T) {
	p := newPlace(t)
	heads := make(chan []byte, 10)
	l := p.listen(t, "127.0.1.1:8080")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var head []byte
				for part := make([]byte, 512); !bytes.HasSuffix(head, []byte("\r\n\r\n")); { // a connection that is closed before has no reply
					n, err := c.Read(part)
					if head = append(head, part[:n]...); err != nil {
						break
					}
				}
				heads <- head
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\ns1")
			}()
		}
	}()
	v2 := append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"), 192, 0, 2, 7, 192, 0, 2, 8, 0x30, 0x39, 0, 80)
	for version, want := range map[int]string{0: "GET / HTTP/1.1", 1: "PROXY TCP4 192.0.2.7 192.0.2.8 12345 80\r\n", 2: string(v2)} {
		r, stop := p.start(t, web(servers(1), func(l *l7.Listener, b *l7.Backend) {
			l.AcceptProxy, b.SendProxy, l.ForwardedFor = prefixesOf("127.4.0.0/16"), version, true
		}), nil, nil)
		for _, header := range []string{"PROXY TCP4 192.0.2.7 192.0.2.8 12345 80\r\n", string(v2)} {
			q := r.requests(t, "127.4.0.1", at)
			io.WriteString(q, header)
			if _, err := q.send("/", ""); err != nil {
				t.Fatal(err)
			}
			q.Close()
			head := <-heads
			if !bytes.HasPrefix(head, []byte(want)) {
				t.Errorf("version %d: the server gets %q", version, head)
			}
			if rest := strings.ToLower(string(head)); len(head) > 100 && !strings.Contains(rest, "x-forwarded-for: 192.0.2.7\r\n") {
				t.Errorf("version %d: the client is lost: %q", version, head)
			}
		}
		// From elsewhere it is an invalid request; a header that is missing ends the connection.
		q := r.requests(t, "127.3.0.1", at)
		io.WriteString(q, "PROXY TCP4 192.0.2.7 192.0.2.8 12345 80\r\n")
		if _, err := q.send("/", ""); err == nil || !strings.Contains(err.Error(), "400") {
			t.Errorf("a header from another network: %v", err)
		}
		q.Close()
		q = r.requests(t, "127.4.0.1", at)
		if _, err := q.send("/", ""); err == nil {
			t.Error("a connection without its header is served")
		}
		q.Close()
		stop()
	}
}

func TestLimits(t *testing.T) {
	p := newPlace(t)
	all := servers(1)
	last := p.servers(t, all)
	post := func(t *testing.T, from string, n int, declared bool, header int) int {
		c := p.client(from, at)
		defer c.CloseIdleConnections()
		var body io.Reader = bytes.NewReader(bytes.Repeat([]byte("x"), n))
		if !declared {
			body = io.MultiReader(body)
		}
		req, _ := http.NewRequest("POST", base, body)
		if header > 0 {
			req.Header.Set("X-Long", strings.Repeat("a", header))
		}
		resp, err := c.Do(req)
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			return 413 // the reply was there before the whole body was sent
		}
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode == 200 && len(last().Body) != n {
			t.Errorf("%d bytes arrive as %d", n, len(last().Body))
		}
		return resp.StatusCode
	}
	for _, limit := range []int{1000, 20000} {
		t.Run(fmt.Sprintf("body %d", limit), func(t *testing.T) {
			p.start(t, web(all, func(l *l7.Listener, _ *l7.Backend) { l.Limits.Body = int64(limit); l.HTTP2 = true }), nil, nil)
			unknown := min(limit, peek-1)
			// Which one depends on how much of the body has arrived.
			same := func(got, want int) bool { return got == want || got == 413 && want == 411 || got == 411 && want == 413 }
			for _, m := range []struct {
				n        int
				declared bool
				header   int
				want     int
			}{
				{0, true, 0, 200}, {limit, true, 0, 200}, {limit + 1, true, 0, 413},
				{1, false, 0, 200}, {unknown, false, 0, 200}, {unknown + 1, false, 0, 411}, {100_000, false, 0, 411},
				{limit, true, 10000, 200}, {1, false, 10000, 411}, {100_000, false, 10000, 411}, {100_000, false, 14500, 411},
			} {
				if got := post(t, "", m.n, m.declared, m.header); !same(got, m.want) {
					t.Errorf("%d bytes, declared: %v, header of %d bytes: %d, expected %d", m.n, m.declared, m.header, got, m.want)
				}
			}
			// Headers that leave no room for a body in HAProxy's buffer, up to those that it refuses.
			for n := 15100; n < 15140; n += 3 {
				if got := post(t, "", 100_000, false, n); !same(got, 411) && got != 400 {
					t.Errorf("100000 bytes, header of %d bytes: %d", n, got)
				}
			}
			// HTTP/2 has lengths of its own.
			h2 := &http.Client{Transport: p.prior()}
			for _, m := range []struct {
				body io.Reader
				want int
			}{{nil, 200}, {io.MultiReader(strings.NewReader("x")), 200}, {io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000))), 411}, {strings.NewReader(strings.Repeat("x", limit+1)), 413}} {
				req, _ := http.NewRequest("POST", base, m.body)
				if m.body == nil {
					req.Method = "GET"
				}
				resp, err := h2.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if !same(resp.StatusCode, m.want) || resp.ProtoMajor != 2 {
					t.Errorf("HTTP/%d: %d, expected %d", resp.ProtoMajor, resp.StatusCode, m.want)
				}
			}
		})
	}
	t.Run("headers", func(t *testing.T) {
		p.start(t, web(all, func(l *l7.Listener, _ *l7.Backend) { l.Limits.Headers = 20000 }), nil, nil)
		if got := post(t, "", 1, true, 19000); got != 200 {
			t.Errorf("19000 bytes: %d", got)
		}
		if got := post(t, "", 1, true, 20000); got != 431 {
			t.Errorf("20000 bytes: %d", got)
		}
	})
	t.Run("body's time", func(t *testing.T) {
		p.start(t, web(all, func(l *l7.Listener, _ *l7.Backend) { l.Timeouts.Body = 200 * time.Millisecond }), nil, nil)
		for _, header := range []string{"", "Upgrade: x\r\n", "Upgrade: websocket\r\nConnection: Upgrade\r\n"} {
			for _, body := range []string{"Content-Length: 10\r\n", "Transfer-Encoding: chunked\r\n"} {
				c, err := p.dial("", at)
				if err != nil {
					t.Fatal(err)
				}
				c.SetDeadline(time.Now().Add(8 * time.Second)) // less than the timeouts by default
				io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+header+body+"\r\n")
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil || resp.StatusCode != 408 {
					t.Errorf("%q without its body: %v, %v", header+body, resp, err)
				}
				c.Close()
			}
		}
	})
	t.Run("rate", func(t *testing.T) {
		c := web(all, func(l *l7.Listener, _ *l7.Backend) {
			l.Limits.RequestsPerIP, l.Limits.RateWindow, l.Monitor = 20, time.Minute, "/monitor"
			l.TrustedProxies = prefixesOf("127.5.0.0/16")
			l.Bind = append(l.Bind, netip.MustParseAddrPort("[::1]:80"))
		})
		p.start(t, c, nil, nil)
		rate := func(from string, change func(*http.Request)) (passed int) {
			client := p.client(from, at)
			if from == "::1" {
				client = p.client("", "[::1]:80")
			}
			defer client.CloseIdleConnections()
			for range 30 {
				resp, _ := get(t, client, base, change)
				switch resp.StatusCode {
				case 200:
					passed++
				case 429:
				default:
					t.Fatalf("the reply is %d", resp.StatusCode)
				}
			}
			if resp, _ := get(t, client, base+"/monitor", nil); resp.StatusCode != 200 {
				t.Errorf("the monitor is limited: %d", resp.StatusCode)
			}
			return passed
		}
		for _, from := range []string{"127.6.0.1", "127.6.0.2", "::1"} {
			if n := rate(from, nil); n != 20 {
				t.Errorf("%s: %d requests pass", from, n)
			}
		}
		if n := rate("127.6.0.1", func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.9") }); n != 0 {
			t.Errorf("a client that claims another address passes %d times", n)
		}
		for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
			if n := rate("127.5.0.1", func(r *http.Request) { r.Header.Set("X-Forwarded-For", client) }); n != 20 {
				t.Errorf("%s behind a trusted proxy: %d requests pass", client, n)
			}
		}
	})
}

// prior speaks HTTP/2 without TLS.
func (p *place) prior() *http.Transport {
	tr := p.client("", at).Transport.(*http.Transport)
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetUnencryptedHTTP2(true)
	return tr
}

// HTTP/2 on both sides, with TLS: names choose certificates.
func TestTLS(t *testing.T) {
	p := newPlace(t)
	dir := certificates(t)
	all := servers(1)
	last := p.servers(t, all)
	p.start(t, web(all, func(l *l7.Listener, b *l7.Backend) {
		l.TLS = &l7.TLS{Certificates: []string{filepath.Join(dir, "server.pem"), filepath.Join(dir, "other.pem")}, HSTS: time.Hour}
		l.HTTP2, l.ForwardedFor, b.Protocol = true, true, l7.HTTP2
	}), nil, nil)
	for host, name := range map[string]string{"shop.example": "shop.example", "other.example": "other.example", "unknown.example": "shop.example"} {
		resp, _ := get(t, p.client("", at), "https://"+host+"/", nil)
		if resp.ProtoMajor != 2 || last().ProtoMajor != 2 {
			t.Errorf("HTTP/%d from the client, HTTP/%d to the server", resp.ProtoMajor, last().ProtoMajor)
		}
		if got := resp.TLS.PeerCertificates[0].Subject.CommonName; got != name {
			t.Errorf("%s gets the certificate of %s", host, got)
		}
		if got := resp.Trailer.Get("Grpc-Status"); got != "0" {
			t.Errorf("the trailer is %q", got)
		}
		if resp.Header.Get("Strict-Transport-Security") != "max-age=3600" || last().Header.Get("X-Forwarded-Proto") != "https" {
			t.Errorf("HSTS %q, X-Forwarded-Proto %q", resp.Header.Get("Strict-Transport-Security"), last().Header.Get("X-Forwarded-Proto"))
		}
	}
}

// Certificates of clients and of servers are required and verified.
func TestCertificates(t *testing.T) {
	p := newPlace(t)
	dir := certificates(t)
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.pem"))
	if err != nil {
		t.Fatal(err)
	}
	names := make(chan string, 100)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			names <- r.TLS.ServerName + " " + r.TLS.PeerCertificates[0].Subject.CommonName
		}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	go server.ServeTLS(p.listen(t, "127.0.1.1:8080"), "", "")
	t.Cleanup(func() { server.Close() })
	for _, m := range []struct {
		ca, name string
		want     int
	}{{"server.pem", "shop.example", 200}, {"server.pem", "wrong.example", 503}, {"ca.pem", "shop.example", 503}} {
		_, stop := p.start(t, web(servers(1), func(l *l7.Listener, b *l7.Backend) {
			l.TLS = &l7.TLS{Certificates: []string{filepath.Join(dir, "server.pem")}, ClientCA: filepath.Join(dir, "other.pem"), StrictSNI: true, MinVersion: "1.3"}
			b.TLS = &l7.ServerTLS{CA: filepath.Join(dir, m.ca), Name: m.name, Client: filepath.Join(dir, "ca.pem")}
		}), nil, nil)
		client := p.client("", at)
		settings := client.Transport.(*http.Transport).TLSClientConfig
		if _, err := client.Get("https://shop.example/"); err == nil {
			t.Error("a client without a certificate is served")
		}
		mine, err := tls.LoadX509KeyPair(filepath.Join(dir, "other.pem"), filepath.Join(dir, "other.pem"))
		if err != nil {
			t.Fatal(err)
		}
		settings.Certificates = []tls.Certificate{mine}
		if _, err := client.Get("https://unknown.example/"); err == nil {
			t.Error("an unknown name is served")
		}
		resp, _ := get(t, client, "https://shop.example/", nil)
		if resp.StatusCode != m.want || resp.TLS.Version != tls.VersionTLS13 || resp.ProtoMajor != 1 {
			t.Errorf("CA %s, name %s: %d by %s and %s", m.ca, m.name, resp.StatusCode, tls.VersionName(resp.TLS.Version), resp.Proto)
		}
		if m.want == 200 {
			if got := <-names; got != m.name+" ca.example" {
				t.Errorf("the server sees the name and the client %s", got)
			}
		}
		settings.MaxVersion = tls.VersionTLS12
		client.CloseIdleConnections()
		if _, err := client.Get("https://shop.example/"); err == nil {
			t.Error("TLS 1.2 is served")
		}
		stop()
	}
}

// A process that stops, as the old one does after a reload, ends connections of HTTP/2 by
// GOAWAY with their next reply.
func TestGoAway(t *testing.T) {
	p := newPlace(t)
	all := servers(1)
	p.servers(t, all)
	r, _ := p.start(t, web(all, func(l *l7.Listener, _ *l7.Backend) { l.HTTP2 = true }), nil, nil)
	c, err := p.dial("", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.WriteSettings()
	// GET / of a.example by static indexes, the authority as a literal.
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: []byte("\x82\x86\x84\x41\x09a.example")})
	var ended bool
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("no GOAWAY; reply: %v: %v", ended, err)
		}
		if data, is := frame.(*http2.DataFrame); is && data.StreamEnded() && !ended {
			ended = true
			r.signal(t, unix.SIGUSR1, func() bool {
				_, err := p.dial("", at)
				return err != nil
			})
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, EndHeaders: true, EndStream: true, BlockFragment: []byte("\x82\x86\x84\x41\x09a.example")})
		}
		if _, away := frame.(*http2.GoAwayFrame); away {
			if !ended {
				t.Error("GOAWAY before the reply")
			}
			return
		}
	}
}

// Each way of an upgraded connection is open beyond the timeouts of requests.
func TestWebSocket(t *testing.T) {
	p := newPlace(t)
	l := p.listen(t, "127.0.1.1:8080")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				accept := sha1.Sum([]byte(req.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
				fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
					base64.StdEncoding.EncodeToString(accept[:]))
				io.Copy(c, r)
			}()
		}
	}()
	for _, draining := range []bool{false, true} {
		t.Run(fmt.Sprintf("draining %v", draining), func(t *testing.T) { webSocket(t, p, draining) })
	}
}

func webSocket(t *testing.T, p *place, draining bool) {
	t.Helper()
	_, stop := p.start(t, web(servers(1), func(l *l7.Listener, b *l7.Backend) {
		l.HTTP2 = true
		l.Timeouts = l7.Timeouts{Client: 1500 * time.Millisecond, Body: 30 * time.Second}
		b.Timeouts = l7.ServerTimeouts{Server: 1500 * time.Millisecond, Tunnel: time.Minute}
		l.Limits.Body = 1000
	}), nil, func(o *Options) { o.Draining = draining })
	defer stop()
	c, err := p.dial("", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(c, "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 || !strings.EqualFold(strings.Join(resp.Header["Connection"], ","), "upgrade") {
		t.Fatal(resp, err)
	}
	for _, pause := range []time.Duration{0, 2 * time.Second} {
		time.Sleep(pause)
		sent := bytes.Repeat([]byte("frame"), 1000) // more than a body may have
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(sent, got) {
			t.Fatalf("after %v: %v", pause, err)
		}
	}
	upgradeOf2(t, p)
}

// upgradeOf2 opens a WebSocket in a stream of HTTP/2 (RFC 8441) and sends data both ways.
func upgradeOf2(t *testing.T, p *place) {
	t.Helper()
	c, f := p.open2(t, [][2]string{{":method", "CONNECT"}, {":protocol", "websocket"}, {":scheme", "http"}, {":path", "/chat"}, {":authority", "a.example"}, {"sec-websocket-version", "13"}}, false)
	defer c.Close()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if got := frame.PseudoValue("status"); got != "200" {
				t.Fatalf("the status is %s", got)
			}
			f.WriteData(1, false, []byte("frame"))
		case *http2.DataFrame:
			if string(frame.Data()) != "frame" {
				t.Errorf("the data is %q", frame.Data())
			}
			return
		case *http2.RSTStreamFrame:
			t.Fatal(frame)
		}
	}
}

func TestHTTP2IsOff(t *testing.T) {
	p := newPlace(t)
	all := servers(1)
	p.servers(t, all)
	p.start(t, web(all, nil), nil, nil)
	if resp, err := (&http.Client{Transport: p.prior()}).Get(base); err == nil {
		t.Errorf("HTTP/2 without http2 gets %s", resp.Status)
	}
}

var bytes200 = regexp.MustCompile(`" 200 [0-9]+ "`)

// Lines reach the descriptor without syslog, from a worker without root in an empty directory,
// and stay whole whatever clients send.
func TestLog(t *testing.T) {
	p := newPlace(t)
	all := servers(1)
	p.servers(t, all)
	hostile := func(r *http.Request) {
		r.Header.Set("User-Agent", `a"b\c]é{}`)
		r.Header.Set("Referer", `http://x/"},{"status":"`)
		r.Host = "shop.example"
	}
	for _, format := range []string{"combined", "json"} {
		t.Run(format, func(t *testing.T) {
			r, stop := p.start(t, web(all, func(l *l7.Listener, _ *l7.Backend) {
				l.Log, l.Monitor = &l7.Log{Format: format}, "/monitor"
			}), nil, nil)
			defer stop()
			client := p.client("127.6.0.1", at)
			get(t, client, base+"/monitor", nil)
			get(t, client, base+`/a?q="x"`, hostile)
			line, err := r.logs.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			// The master hands the descriptor on when it reloads.
			before := r.pid(t)
			r.signal(t, unix.SIGUSR2, func() bool {
				now, err := r.try("show info")
				return err == nil && pidOf(now) != before
			})
			client.CloseIdleConnections()
			get(t, client, base+"/reloaded", nil)
			again, err := r.logs.ReadString('\n')
			for err == nil && !strings.HasPrefix(again, LogPrefix) {
				again, err = r.logs.ReadString('\n') // that the old process stops
			}
			if err != nil || !strings.Contains(again, "reloaded") {
				t.Errorf("after a reload the line is %q, %v", again, err)
			}
			if format == "combined" {
				if !strings.HasPrefix(line, LogPrefix+"web 127.6.0.1 - - [") || !strings.HasSuffix(bytes200.ReplaceAllString(line, `" 200 N "`), `] "GET /a?q=\"x\" HTTP/1.1" 200 N "http://x/\"},{\"status\":\"" "a\"b\\c\]é{}"`+"\n") {
					t.Errorf("the line is %q", line)
				}
				return
			}
			var got struct {
				Time                                                                 float64
				Status, Bytes                                                        int
				Client, Method, URI, Host, Agent, Referer, Server, Backend, Listener string
			}
			if err := json.Unmarshal([]byte(strings.TrimPrefix(line, LogPrefix+"web ")), &got); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if got.Status != 200 || got.Client != "127.6.0.1" || got.Method != "GET" || got.URI != `/a?q="x"` || got.Host != "shop.example" || got.Agent != `a"b\c]é{}` ||
				got.Referer != `http://x/"},{"status":"` || got.Server != "s1" || got.Backend != "web" || got.Listener != "web" || time.Since(time.UnixMilli(int64(got.Time*1000))).Abs() > time.Minute {
				t.Errorf("the line is %s", line)
			}
		})
	}
}

// HAProxy's own checks are off from the start, and on by a command or an option.
func TestEngineChecks(t *testing.T) {
	p := newPlace(t)
	var checked = make(chan string, 1000)
	l := p.listen(t, "127.0.1.1:8080")
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case checked <- r.URL.Path + " " + r.Host:
		default:
		}
		w.WriteHeader(500)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	c := web(servers(1, 1), func(_ *l7.Listener, b *l7.Backend) {
		b.Check = &l7.EngineCheck{Path: "/health", Host: "web.example", Interval: 50 * time.Millisecond, Rise: 1, Fall: 2, Timeout: 10 * time.Second}
	})
	states := l7.States{{Backend: "web", Server: "s2"}: {Health: l7.Down, Weight: 1}}
	state := func(r *process, server string) string {
		for line := range strings.Lines(r.command(t, "show stat")) {
			if f := strings.Split(line, ","); len(f) > 17 && f[0] == "web" && f[1] == server {
				return f[17]
			}
		}
		return ""
	}
	r, stop := p.start(t, c, states, nil)
	time.Sleep(300 * time.Millisecond)
	if n := len(checked); n > 0 || state(r, "s1") != "no check" || state(r, "s2") != "MAINT" {
		t.Errorf("checks are off, but %d came; the servers are %q and %q", n, state(r, "s1"), state(r, "s2"))
	}
	down := func(r *process) {
		t.Helper()
		if got := <-checked; got != "/health web.example" {
			t.Errorf("the check is %q", got)
		}
		for until := time.Now().Add(time.Minute); state(r, "s1") != "DOWN"; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("checks fail, but the server is %q", state(r, "s1"))
			}
		}
	}
	r.command(t, "enable health web/s1")
	down(r)
	stop()
	states[l7.ServerID{Backend: "web", Server: "s3"}] = l7.State{Health: l7.Drain, Weight: 1}
	c.Backends[0].Servers = servers(1, 1, 1)
	c.Backends[0].Check.Rise = 5
	r, _ = p.start(t, c, states, func(o *Options) { o.Fallback = true })
	if got := state(r, "s2"); !strings.HasPrefix(got, "DOWN") || state(r, "s3") != "MAINT" {
		t.Errorf("at first the dead server is %q and the drained one %q", got, state(r, "s3"))
	}
	p.servers(t, servers(1, 1, 1)[1:])
	down(r)
	for until := time.Now().Add(time.Minute); state(r, "s2") != "UP"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("checks pass, but the server is %q", state(r, "s2"))
		}
	}
	if got := state(r, "s3"); got != "MAINT" {
		t.Errorf("the drained server is %q", got)
	}
}

// The worker has neither root nor a root directory of /.
func TestWorkerIsConfined(t *testing.T) {
	p := newPlace(t)
	p.servers(t, servers(1))
	r, _ := p.start(t, web(servers(1), nil), nil, nil)
	pid := r.pid(t)
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.Readlink("/proc/" + pid + "/root")
	if err != nil || !strings.HasSuffix(root, "/empty") {
		t.Errorf("its root is %q, %v", root, err)
	}
	for _, line := range []string{"CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n"} {
		if !strings.Contains(string(status), line) {
			t.Errorf("no %q in:\n%s", line, status)
		}
	}
	if strings.Contains(string(status), "Uid:\t0") {
		t.Error("it is root")
	}
}
