// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"testing"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/operator"
)

// What becomes of a request is said as HAProxy has it, with what routes do not show.
func TestWhyOfURL(t *testing.T) {
	d := newDaemon(t, `
listeners:
  - name: shop
    bind: ["127.0.0.1:443"]
    tls: {certificates: [/etc/imbang/shop.pem], client_ca: /etc/imbang/ca.pem, strict_sni: true}
    trusted_proxies: [10.0.0.1]
    limits: {requests: 10}
    raw: ["http-request deny if { path /x }"]
    routes:
      - {name: inside, match: {sources: [10.0.0.0/8]}, reply: {status: 201}}
      - {name: admin, match: {hosts: [admin.example], path_prefixes: [/admin]}, reply: {status: 202}}
      - {name: secure, match: {headers: [{name: X-Forwarded-Proto, value: https}]}, reply: {status: 203}}
    reply: {status: 404}
`)
	for _, m := range []struct {
		url, client string
		headers     []string
		status      int
		note        string
	}{
		{"https://shop.example/", "10.0.0.2", nil, 201, "raw lines"},
		{"https://shop.example/", "10.0.0.1", []string{"X-Forwarded-For: 10.0.0.9, 192.0.2.1"}, 203, "client_ca"},
		{"https://shop.example//%61dmin", "192.0.2.1", []string{"host: admin.example."}, 202, "strict_sni"},
		{"https://shop.example/x/%2e%2e/admin", "192.0.2.1", nil, 400, ". or .. as a segment"},
		{"https://shop.example/", "", nil, 203, "was not given"},
		{"https://shop.example/", "192.0.2.1", nil, 203, "limits"},
	} {
		reply, err := d.why(api.WhyRequest{URL: m.url, Client: m.client, Headers: m.headers})
		if err != nil || reply.Status != m.status || !strings.Contains(reply.Note, m.note) {
			t.Errorf("%s of %s with %q: %+v, %v, expected %d", m.url, m.client, m.headers, reply, err, m.status)
		}
	}
}

// Where a redirect leads is what HAProxy sends as Location, for the host that the request has.
func TestWhyOfRedirect(t *testing.T) {
	d := newDaemon(t, `
listeners:
  - name: web
    bind: ["127.0.0.1:8080"]
    routes:
      - {match: {path_prefixes: [/other]}, redirect: {host: "o.example:81"}}
      - {match: {path_prefixes: [/same]}, redirect: {scheme: http, prefix: /p}}
      - {match: {path_prefixes: [/below]}, redirect: {prefix: /p}}
    redirect: {scheme: https}
`)
	for _, m := range []struct{ path, host, to string }{
		{"/other", "", "http://o.example:81/other"}, {"/same?a=b", "", "http://127.0.0.1:8080/p/same?a=b"}, {"/same", "Shop.example:81", "http://Shop.example:81/p/same"},
		{"/below", "shop.example:81", "http://shop.example:81/p/below"}, {"/a%2fb//c", "", "https://127.0.0.1/a%2fb//c"}, {"", "Shop.example:81", "https://shop.example/"},
	} {
		q := api.WhyRequest{URL: "http://127.0.0.1:8080" + m.path}
		if m.host != "" {
			q.Headers = []string{"Host: " + m.host}
		}
		if reply, err := d.why(q); err != nil || reply.Redirect != m.to {
			t.Errorf("%s of host %q: %+v, %v, expected %s", m.path, m.host, reply, err, m.to)
		}
	}
}

// A monitor replies by what is usable now, and by the drain of the node.
func TestWhyOfMonitor(t *testing.T) {
	d := newDaemon(t, `
listeners:
  - name: web
    bind: ["127.0.0.1:8080"]
    monitor: {path: /health, backends: 2}
    routes: [{match: {path_prefixes: [/api]}, backend: api}]
    backend: web
backends:
  - {name: web, servers: [{name: w1, address: "127.0.1.1:80"}]}
  - {name: api, servers: [{name: a1, address: "127.0.1.1:81"}, {name: a2, address: "127.0.1.2:81"}]}
`)
	state := func(backend, server string, s l7.State) {
		d.layer7.wanted.States[l7.ServerID{Backend: backend, Server: server}] = s
	}
	d.layer7.wanted = &carry.Wanted{States: l7.States{}}
	up := l7.State{Health: l7.Up, Weight: 1}
	state("web", "w1", up)
	state("api", "a1", l7.State{Health: l7.Down, Weight: 1})
	state("api", "a2", up)
	expect := func(status int, note string) {
		t.Helper()
		reply, err := d.why(api.WhyRequest{URL: "http://127.0.0.1:8080/health"})
		if err != nil || reply.Status != status || !strings.Contains(reply.Note, note) {
			t.Errorf("%+v, %v, expected %d, %s", reply, err, status, note)
		}
	}
	expect(200, "2 of 2 backends have a server that gets requests, and 2 are required")
	state("api", "a2", l7.State{Health: l7.Up})
	expect(503, "1 of 2 backends")
	state("api", "a1", up)
	d.layer7.order.Drain = &operator.Drain{}
	expect(503, "the node is drained")
	d.core.Config.Layer7.Listeners[0].Raw = []string{"monitor fail if TRUE"}
	expect(503, "which may do otherwise")
	for _, query := range []string{"?x", "?"} {
		if reply, err := d.why(api.WhyRequest{URL: "http://127.0.0.1:8080/health" + query}); err != nil || reply.Backend == "" {
			t.Errorf("with a query: %+v, %v", reply, err)
		}
	}
}
