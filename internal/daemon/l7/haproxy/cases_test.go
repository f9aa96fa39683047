// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"net/netip"
	"path/filepath"
	"time"

	"imbang/internal/daemon/l7"
)

// prefixesOf parses networks.
func prefixesOf(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func addresses(all ...string) (a []netip.AddrPort) {
	for _, s := range all {
		a = append(a, netip.MustParseAddrPort(s))
	}
	return a
}

func servers(weights ...int) (all []l7.Server) {
	for i, w := range weights {
		all = append(all, l7.Server{
			Name: "s" + string(rune('1'+i)), Weight: w,
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)}), 8080),
		})
	}
	return all
}

// cases are configurations that all have to pass HAProxy's check; tls is a directory with
// server.pem, other.pem and ca.pem.
func cases(tls string) map[string]*l7.Config {
	file := func(name string) string { return filepath.Join(tls, name) }
	return map[string]*l7.Config{
		"plain": {
			Engine: l7.Engine{User: "haproxy", Group: "haproxy"},
			Listeners: []l7.Listener{{
				Name: "web", Bind: addresses("127.0.0.1:8080", "[::1]:8080"), Default: l7.Target{Backend: "web"},
				Routes: []l7.Route{
					{Match: l7.Match{Hosts: []string{"Shop.Example", "*.shop.example"}, PathPrefixes: []string{"/api/"}}, Target: l7.Target{Backend: "api"}},
					{Name: "writes", Match: l7.Match{Methods: []string{"POST", "PUT"}, Sources: prefixesOf("10.0.0.0/8", "2001:db8::/32")}, Target: l7.Target{Backend: "api"}},
				},
			}},
			Backends: []l7.Backend{
				{Name: "web", Servers: servers(1, 1)},
				{Name: "api", Method: l7.LeastConn, Retries: 3, Redispatch: true, RetryOn: []string{"conn-failure", "empty-response", "503"}, Servers: servers(2, 1)},
			},
		},
		"tls": {
			Engine: l7.Engine{Threads: 2, MaxConnections: 2000, Streams: 50, Raw: []string{"tune.ssl.cachesize 30000"}},
			Listeners: []l7.Listener{{
				Name: "shop", Bind: addresses("127.0.0.1:8443", "[2001:db8::1]:8443"), HTTP2: true,
				TLS: &l7.TLS{
					Certificates: []string{file("server.pem"), file("other.pem")}, StrictSNI: true, MinVersion: "1.3",
					Ciphers: "ECDHE+AESGCM:!aNULL", ClientCA: file("ca.pem"), HSTS: 180 * 24 * time.Hour,
				},
				ForwardedFor: true, TrustedProxies: prefixesOf("10.0.0.0/8"), AcceptProxy: prefixesOf("10.1.0.0/16", "fd00::/8"),
				Limits: l7.Limits{Connections: 1000, ClientConnections: 50}, Default: l7.Target{Backend: "grpc"},
				Raw: []string{"http-request set-header X-Raw '# is not a comment' # is one"},
			}},
			Backends: []l7.Backend{
				{Name: "grpc", Protocol: l7.HTTP2, Servers: servers(1)},
				{Name: "secure", Method: l7.Header, Header: "X-User", Protocol: l7.HTTP2, SendProxy: 2,
					TLS: &l7.ServerTLS{CA: file("ca.pem"), Name: "inside.example", Client: file("server.pem")}, Servers: servers(1)},
				{Name: "unverified", TLS: &l7.ServerTLS{}, SendProxy: 1, Servers: servers(1), Raw: []string{"http-reuse always"}},
			},
		},
		"routes": {
			Listeners: []l7.Listener{{
				Name: "web", Bind: addresses("127.0.0.1:8080"), Default: l7.Target{Reply: &l7.Reply{Status: 404, Body: "no such\n'page' # $HOME %[src]\n"}},
				Headers: []l7.HeaderChange{{Name: "X-Node", Value: `a"b 'c' # %[src] $HOME \x41`}, {Name: "Server", Reply: true}, {Name: "X-Reply", Value: "100%", Reply: true, Add: true}},
				Routes: []l7.Route{
					{Match: l7.Match{Paths: []string{"/old"}}, Target: l7.Target{Redirect: &l7.Redirect{Status: 301, Location: "/new?a=100%25"}}},
					{Match: l7.Match{PathRegex: `/img/[0-9]{1,3}\.(png|jpg)`}, Target: l7.Target{Redirect: &l7.Redirect{Status: 308, Scheme: "https"}}},
					{Match: l7.Match{Hosts: []string{"a.example"}}, Target: l7.Target{Redirect: &l7.Redirect{Status: 302, Scheme: "http", Host: "b.example:8080", Prefix: "/p/"}}},
					{Match: l7.Match{PathPrefixes: []string{"/api", "/v1"}}, StripPrefix: true, AddPrefix: "/100%25", Target: l7.Target{Backend: "web"},
						Headers: []l7.HeaderChange{{Name: "X-Api", Value: "1"}, {Name: "X-Served", Value: "api", Reply: true}}},
					{Match: l7.Match{Headers: []l7.HeaderMatch{{Name: "X-Beta", Value: "yes, 'all'"}, {Name: "X'Any"}, {Name: "User-Agent", Regex: "curl/.*"}}}, Target: l7.Target{Reply: &l7.Reply{Status: 204}}},
				},
			}},
			Backends: []l7.Backend{{Name: "web", Servers: servers(1)}},
		},
		"limits": {
			Listeners: []l7.Listener{{
				Name: "web", Bind: addresses("127.0.0.1:8080"), Monitor: "/monitor", MonitorBackends: 2, TrustedProxies: prefixesOf("10.0.0.0/8"),
				Limits:   l7.Limits{ClientConnections: 20, RequestsPerIP: 100, RateWindow: 10 * time.Second, Body: 1 << 20, Headers: 30000},
				Timeouts: l7.Timeouts{Request: 5 * time.Second, Body: 20 * time.Second, KeepAlive: 1500 * time.Millisecond},
				Log:      &l7.Log{Format: "json"}, Default: l7.Target{Backend: "web"},
				Routes: []l7.Route{{Match: l7.Match{Hosts: []string{"b.example"}}, Target: l7.Target{Backend: "other"}}},
			}, {
				Name: "small", Bind: addresses("127.0.0.1:8081"), Limits: l7.Limits{Body: 1000}, Log: &l7.Log{Format: "combined"},
				Default: l7.Target{Redirect: &l7.Redirect{Status: 301, Scheme: "https"}}, ForwardedFor: true,
			}},
			Backends: []l7.Backend{
				{Name: "web", Method: l7.URI, Timeouts: l7.ServerTimeouts{Server: 90 * time.Second, Tunnel: 2 * time.Hour}, Maintenance: &l7.Reply{Status: 503, ContentType: "text/html", Body: "<p>back soon"},
					Cookie:  &l7.Cookie{Name: "SRV", Secure: true, HTTPOnly: true, SameSite: "lax", MaxIdle: time.Hour, MaxLife: 24 * time.Hour},
					Check:   &l7.EngineCheck{Path: "/health", Host: "web.example", Statuses: []string{"200-299", "401"}, Interval: 5 * time.Second, Rise: 1, Fall: 2, Timeout: time.Second},
					Servers: append(servers(10, 20, 30, 40), l7.Server{Name: "spare", Address: netip.MustParseAddrPort("[::1]:9"), Weight: 1, MaxConnections: 10, Backup: true})},
				{Name: "other", Method: l7.Source, Servers: servers(1), Timeouts: l7.ServerTimeouts{Connect: time.Second, Queue: 3 * time.Second}},
				{Name: "first", Method: l7.First, Servers: servers(1)},
				{Name: "random", Method: l7.Random, Servers: servers(1)},
			},
		},
	}
}

// caseStates are of all cases: what is not there of a case does not matter.
var caseStates = l7.States{
	{Backend: "web", Server: "s2"}: {Health: l7.Drain, Weight: 20},
	{Backend: "web", Server: "s3"}: {Health: l7.Down, Weight: 30},
	{Backend: "web", Server: "s4"}: {Health: l7.Up, Weight: 7},
}
