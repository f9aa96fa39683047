// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/l7"
	"imbang/internal/testenv"
)

// loadLayer7 is Load without what this version refuses.
func loadLayer7(path string) (*Config, error) {
	seen := &Seen{patterns: []string{path}, files: map[string]stamp{}}
	text, err := readFile(path, seen)
	if err != nil {
		return nil, err
	}
	return parse(path, text, seen)
}

// A configuration with every key of layer 7 is what it says.
func TestWholeLayer7(t *testing.T) {
	c, err := loadLayer7("testdata/layer7/whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	port, prefix := netip.MustParseAddrPort, netip.MustParsePrefix
	timeouts := l7.Timeouts{Request: 10 * time.Second, KeepAlive: time.Minute, Client: time.Minute}
	servers := l7.ServerTimeouts{Connect: 5 * time.Second, Server: time.Minute, Queue: 10 * time.Second, Tunnel: time.Hour}
	want := l7.Config{
		Engine: l7.Engine{
			Threads: 2, MaxConnections: 50000, User: "web", Group: "www-data", Streams: 200, Fallback: time.Minute,
			Raw: []string{"tune.ssl.cachesize 100000", "ssl-default-bind-options no-tls-tickets"},
		},
		Listeners: []l7.Listener{
			{
				Name: "shop", Bind: []netip.AddrPort{port("10.20.0.1:443"), port("[2001:db8::1]:443")},
				TLS: &l7.TLS{
					Certificates: []string{"/etc/imbang/tls/shop.pem", "/etc/imbang/tls/api.pem"}, StrictSNI: true, MinVersion: "1.2",
					Ciphers: "ECDHE+AESGCM:!aNULL", ClientCA: "/etc/imbang/tls/clients.pem", HSTS: 180 * 24 * time.Hour,
				},
				HTTP2: true, HTTP3: true, ForwardedFor: true,
				AcceptProxy:    []netip.Prefix{prefix("10.0.0.0/8")},
				TrustedProxies: []netip.Prefix{prefix("192.0.2.1/32"), prefix("2001:db8:1::/64")},
				Monitor:        "/imbang-health", MonitorBackends: 2,
				Limits:   l7.Limits{Connections: 10000, ClientConnections: 100, RequestsPerIP: 100, RateWindow: 30 * time.Second, Body: 3 << 19, Headers: 16 << 10},
				Timeouts: l7.Timeouts{Request: 5 * time.Second, Body: 20 * time.Second, KeepAlive: 500 * time.Millisecond, Client: 2 * time.Minute},
				Headers:  []l7.HeaderChange{{Name: "X-Frame-Options", Reply: true, Value: "DENY"}, {Name: "Server", Reply: true}},
				Routes: []l7.Route{
					{
						Name: "api", Target: l7.Target{Backend: "api"}, StripPrefix: true, AddPrefix: "/internal",
						Match: l7.Match{
							Hosts: []string{"api.shop.example", "*.api.example"}, PathPrefixes: []string{"/api", "/v2"}, Methods: []string{"GET", "POST"},
							Headers: []l7.HeaderMatch{{Name: "X-Version", Value: "2"}, {Name: "X-User", Regex: "^[a-z]+$"}, {Name: "X-Other"}},
							Sources: []netip.Prefix{prefix("10.0.0.0/8")},
						},
						Headers: []l7.HeaderChange{{Name: "X-Via", Value: "100 %", Add: true}},
					},
					{Name: "1", Match: l7.Match{Paths: []string{"/old"}, PathRegex: ".*[.]php"}, Target: l7.Target{Redirect: &l7.Redirect{Status: 301, Location: "https://shop.example/new?a=b#c"}}},
					{Name: "2", Match: l7.Match{Paths: []string{"/robots.txt"}}, Target: l7.Target{Reply: &l7.Reply{Status: 404, ContentType: "text/html", Body: "none\n"}}},
					{Name: "3", Match: l7.Match{Paths: []string{"/logo.html"}}, Target: l7.Target{Reply: &l7.Reply{Status: 200, ContentType: "text/html; charset=utf-8", File: "/srv/logo.html"}}},
				},
				Default: l7.Target{Backend: "web"},
				Log:     &l7.Log{Format: "json", File: "/var/log/imbang/shop.log"},
				Raw:     []string{"tcp-request inspect-delay 5s", "no option http-ignore-probes"},
			},
			{
				Name: "plain", Bind: []netip.AddrPort{port("10.20.0.1:80")}, ForwardedFor: true, Timeouts: timeouts,
				Default: l7.Target{Redirect: &l7.Redirect{Status: 302, Scheme: "https", Host: "shop.example:443", Prefix: "/shop"}},
			},
			{Name: "internal", Bind: []netip.AddrPort{port("0.0.0.0:8080")}, ForwardedFor: true, Timeouts: timeouts, Default: l7.Target{Backend: "api"}},
		},
		Backends: []l7.Backend{
			{
				Name: "web", Method: l7.Header, Header: "X-User", Protocol: l7.HTTP1, SendProxy: 2,
				Cookie:  &l7.Cookie{Name: "SRV", Secure: true, SameSite: "None", MaxIdle: 30 * time.Minute, MaxLife: 8 * time.Hour},
				Retries: 2, RetryOn: []string{"conn-failure", "empty-response", "503"},
				Timeouts:  l7.ServerTimeouts{Connect: time.Second, Server: 30 * time.Second, Queue: 3 * time.Second, Tunnel: 2 * time.Hour},
				SlowStart: 30 * time.Second, DrainDeadline: 10 * time.Minute,
				Maintenance: &l7.Reply{Status: 503, ContentType: "text/plain", Body: "back at six"},
				Servers: []l7.Server{
					{Name: "a", Address: port("172.16.0.2:8080"), Weight: 2, MaxConnections: 100},
					{Name: "2001:db8::2:8080", Address: port("[2001:db8::2]:8080"), Backup: true},
					{Name: "172.16.0.4:8080", Address: port("172.16.0.4:8080"), Weight: 1},
				},
				Check: &l7.EngineCheck{
					Method: "HEAD", Path: "/health", Host: "shop.example", Statuses: []string{"200-299", "304"}, Port: 8443, TLS: true,
					Interval: 2 * time.Second, Rise: 3, Fall: 4, Timeout: 2 * time.Second,
				},
				Raw: []string{"option http-server-close"},
			},
			{
				Name: "api", Method: l7.LeastConn, Protocol: l7.HTTP2, Retries: 3, Redispatch: true, RetryOn: []string{"conn-failure"}, Timeouts: servers,
				TLS:     &l7.ServerTLS{CA: "/etc/imbang/tls/ca.pem", Name: "api.internal", Client: "/etc/imbang/tls/proxy.pem"},
				Servers: []l7.Server{{Name: "172.16.0.8:8443", Address: port("172.16.0.8:8443"), Weight: 1}},
				Check:   &l7.EngineCheck{Interval: 5 * time.Second, Rise: 2, Fall: 3, Timeout: 3 * time.Second},
			},
			{
				Name: "unused", Method: l7.RoundRobin, Protocol: l7.HTTP1, Retries: 3, Redispatch: true, RetryOn: []string{"conn-failure"}, Timeouts: servers,
				TLS:     &l7.ServerTLS{},
				Servers: []l7.Server{{Name: "172.16.0.9:8443", Address: port("172.16.0.9:8443"), Weight: 1}},
			},
		},
	}
	if diff := cmp.Diff(want, c.Layer7.Config, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	checks := map[l7.ServerID]string{}
	for id, list := range c.Layer7.Checks {
		for _, ch := range list {
			checks[id] += ch.Name
		}
	}
	if want := map[l7.ServerID]string{{Backend: "web", Server: "a"}: "web", {Backend: "web", Server: "2001:db8::2:8080"}: "connect", {Backend: "api", Server: "172.16.0.8:8443"}: "connect"}; !reflect.DeepEqual(checks, want) {
		t.Errorf("%v", checks)
	}
	if want := []string{"testdata/layer7/more/backends.yaml:14:9: backends[1]: no listener leads to unused: name it in one, or remove it"}; !reflect.DeepEqual(c.Warnings, want) {
		t.Errorf("%q", c.Warnings)
	}
}

// Names are those of all files, and mistakes stand in their own.
func TestLayer7OfIncludes(t *testing.T) {
	dir := t.TempDir()
	main, more := filepath.Join(dir, "imbang.yaml"), filepath.Join(dir, "more.yaml")
	for path, text := range map[string]string{
		main: "include: [more.yaml]\nlisteners: [{name: a, bind: [\"10.0.0.1:80\"], backend: b}]\n",
		more: "listeners: [{name: a, bind: [\"0.0.0.0:80\"], backend: b}]\nbackends: [{name: b, servers: [{address: \"10.0.0.1:80\"}]}]\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.Join([]string{
		more + `:1:20: listeners[0].name: "a" is the name of another listener (` + main + `:2): rename one`,
		more + `:1:30: listeners[0].bind[0]: 0.0.0.0:80 overlaps with 10.0.0.1:80 of the listener a (` + main + `:2): want another address or port, or remove one`,
		more + `:2:42: backends[0].servers[0].address: 10.0.0.1:80 is the listener a, which leads here: requests would go round without end`,
	}, "\n")
	if _, err := loadLayer7(main); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// A listener may have the address of a service whose packets keep it, and all addresses.
func TestBindsOfServices(t *testing.T) {
	const text = `
services:
  - {name: routed, virtual: "10.0.0.1:80", forward: direct-routing, servers: [{address: 10.0.0.8}]}
  - {name: mixed, virtual: "10.0.0.2:80", servers: [{address: 10.0.0.8}, {address: 10.0.0.9, forward: tunnel}]}
  - {name: sorry, virtual: "10.0.0.3:80", servers: [{address: 10.0.0.8}], sorry: {address: 10.0.0.9, forward: direct-routing}}
  - {name: datagrams, virtual: "10.0.0.4:80", protocol: udp, servers: [{address: 10.0.0.8}]}
  - {name: other, virtual: "10.0.0.5:81", servers: [{address: 10.0.0.8}]}
  - {name: masq, virtual: "10.0.0.6:443", servers: [{address: 10.0.0.8}]}
listeners:
  - {name: a, bind: ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80", "10.0.0.5:80", "0.0.0.0:443", "[::]:80", "[::]:443"], reply: {}}
`
	if c, err := readText(text); err != nil || len(c.Layer7.Listeners[0].Bind) != 8 || c.Layer7.Listeners[0].Default.Reply.Status != 200 {
		t.Error(err)
	}
}

// Backends that raw lines name are in use.
func TestUnusedBackends(t *testing.T) {
	const text = `
listeners: [{name: a, bind: ["10.0.0.1:80"], reply: {}, raw: ["use_backend b if { src 10.0.0.0/8 }"]}]
backends:
  - {name: b, servers: [{address: "10.0.0.8:80"}]}
  - {name: c, servers: [{address: "10.0.0.8:80"}]}
`
	c, err := readText(text)
	if err != nil || len(c.Warnings) != 1 || c.Warnings[0] != "x.yaml:5:5: backends[1]: no listener leads to c: name it in one, or remove it" {
		t.Errorf("%v, %v", c, err)
	}
	if c, err = readText("services: []\n"); err != nil || c.Layer7 != nil || c.Warnings != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

// Without server_name, clients choose the name by which servers are verified.
func TestVerifiedByHost(t *testing.T) {
	const text = "listeners: [{name: a, bind: [\"10.0.0.1:80\"], backend: b}]\nbackends: [{name: b, tls: {ca: /etc/ca.pem%s}, servers: [{address: \"10.0.0.8:443\"}]}]\n"
	for more, want := range map[string]int{"": 1, ", server_name: b.example": 0} {
		c, err := readText(fmt.Sprintf(text, more))
		if err != nil || len(c.Warnings) != want || want > 0 && !strings.Contains(c.Warnings[0], "x.yaml:2:32: backends[0].tls.ca: servers are verified by the name that the client asks for") {
			t.Errorf("%q: %v, %+v", more, err, c)
		}
	}
}

// What HAProxy checks itself is the first of the checks that it can make.
func TestEngineChecks(t *testing.T) {
	warnings := []string{"x.yaml:3:30: backends[0].checks: HAProxy can make none of these, so without imbang run the servers of b stay as they are: add one of kind tcp, tls or http, or write proxy.fallback: 0 s"}
	for text, want := range map[string]*l7.EngineCheck{
		"script: {command: [/bin/true]}": nil,
		"tls: {}":                        {TLS: true},
		"http: {}":                       {Method: "GET", Path: "/", Statuses: []string{"200-399"}},
		"http: {requests: [{path: /a, method: POST, body: x}]}": {},
	} {
		c, err := readText("checks: {a: {icmp: {}}, b: {" + text + "}}\nlisteners: [{name: a, bind: [\"10.0.0.1:80\"], backend: b}]\n" +
			"backends: [{name: b, checks: [a, b], servers: [{address: \"10.0.0.8:80\"}]}]\n")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if want != nil {
			want.Interval, want.Timeout, want.Rise, want.Fall = defaultInterval, defaultTimeout, defaultRise, defaultFall
		}
		if (want == nil) != reflect.DeepEqual(c.Warnings, warnings) {
			t.Errorf("%s: %q", text, c.Warnings)
		}
		if diff := cmp.Diff(want, c.Layer7.Backends[0].Check); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// Quotes are closed by HAProxy's rules.
func TestClosed(t *testing.T) {
	for text, want := range map[string]bool{
		`a "b c" 'd'`: true, `a "b`: false, `a 'b`: false, `a "b\"`: false, `a 'b\'`: true, `a \`: false, `a \\`: true, `a "it's"`: true, `a # it's`: true, `a "# b`: false, `a \"`: true,
	} {
		if closed(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}

func TestHostPorts(t *testing.T) {
	for text, want := range map[string]bool{
		"a.example": true, "a.example:80": true, "10.0.0.1:80": true, "[2001:db8::1]": true, "[2001:db8::1]:443": true, "2001:db8::1": false,
		"a.example:": false, "a.example:0": false, "a:b:c": false, "": false, ":80": false, "-a": false, "[fe80::1%eth0]": false, "a..b": false,
	} {
		if isHostPort(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}

func TestDays(t *testing.T) {
	for text, want := range map[string]time.Duration{"180 d": 4320 * time.Hour, "0.5d": 12 * time.Hour, "1h30min": 90 * time.Minute, "-1 d": -24 * time.Hour} {
		if d, err := parseDuration(text); err != nil || d != want {
			t.Errorf("%s: %s, %v", text, d, err)
		}
	}
	for _, text := range []string{"d", "1e300d", "NaNd", "1dd", "9999999999 d"} {
		if d, err := parseDuration(text); err == nil && d <= maxTime {
			t.Errorf("%s: %s", text, d)
		}
	}
}

// Layer 7 of all files is a part of the document of a pair, and reads as it was written.
func TestDocumentOfLayer7(t *testing.T) {
	const path = "testdata/layer7/whole.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "pair: {listen: 192.0.2.1, peer: 192.0.2.2, key_file: /k}\n"...)
	c, err := parse(path, text, &Seen{files: map[string]stamp{}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := DecodeDocument(c.Document)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := Render(d)
	if err != nil {
		t.Fatal(err)
	}
	again, err := readText(string(rendered))
	if err != nil || !reflect.DeepEqual(again.Layer7, c.Layer7) {
		t.Errorf("%v in\n%s", err, rendered)
	}
}

// Many servers and routes take no longer than as many servers of services.
func TestManyBackends(t *testing.T) {
	b := &strings.Builder{}
	b.WriteString("checks: {web: {tcp: {}}}\nlisteners:\n  - name: a\n    bind: [\"10.0.0.1:80\"]\n    reply: {status: 404}\n    routes:\n")
	for i := range 1000 {
		fmt.Fprintf(b, "      - {match: {hosts: [\"h%d.example\"], path_prefixes: [/a]}, backend: b%d}\n", i, i%100)
	}
	b.WriteString("backends:\n")
	for i := range 100 {
		fmt.Fprintf(b, "  - name: b%d\n    checks: [web]\n    servers:\n", i)
		for j := range 100 {
			fmt.Fprintf(b, "      - {name: web-%d, address: \"172.16.%d.%d:80\", weight: 100}\n", j, i, j+1)
		}
	}
	var c *Config
	var err error
	took := testenv.ThreadTime(t, func() { c, err = readText(b.String()) })
	t.Logf("%d bytes in %s", b.Len(), took)
	if err != nil || len(c.Layer7.Listeners[0].Routes) != 1000 || len(c.Layer7.Checks) != 10_000 {
		t.Fatal(err)
	}
	if took > 20*time.Second {
		t.Error(took)
	}
}

// Hashes and random need large weights for even shares.
func TestDefaultWeights(t *testing.T) {
	for _, m := range []struct {
		balance, first string
		want           [2]int
	}{
		{"roundrobin", "", [2]int{1, 1}}, {"leastconn", "", [2]int{1, 1}},
		{"source", "", [2]int{100, 100}}, {"uri", "", [2]int{100, 100}}, {"random", "", [2]int{100, 100}},
		{"uri", ", weight: 2", [2]int{2, 1}}, {"roundrobin", ", weight: 2", [2]int{2, 1}},
	} {
		file := filepath.Join(t.TempDir(), "x.yaml")
		text := "listeners:\n  - {name: a, bind: [\"127.0.0.1:80\"], backend: web}\nbackends:\n  - name: web\n    balance: " + m.balance +
			"\n    servers: [{address: \"127.0.1.1:80\"" + m.first + "}, {address: \"127.0.1.2:80\"}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := loadLayer7(file)
		if err != nil {
			t.Fatal(err)
		}
		s := c.Layer7.Backends[0].Servers
		if got := [2]int{s[0].Weight, s[1].Weight}; got != m.want {
			t.Errorf("%s%s: weights %v, expected %v", m.balance, m.first, got, m.want)
		}
	}
}
