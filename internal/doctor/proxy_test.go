// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/daemon/l7/supervise"
)

// proxied are facts of layer 7 with nothing to say against.
func proxied() *Proxy {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	return &Proxy{
		File:   "imbang.yaml",
		Config: &l7.Config{Listeners: []l7.Listener{{Name: "shop", Bind: []netip.AddrPort{netip.MustParseAddrPort("10.20.0.1:443")}}}},
		Alone:  true, Version: "2.6.12", Files: 1 << 20, Now: now,
		Status:       &supervise.Status{Phase: supervise.Running, HAProxy: 5, Version: "2.6.12"},
		Certificates: []carry.Pair{{Path: "/tls/shop.pem", Of: "listener shop", Name: "shop.example", Ends: now.Add(60 * 24 * time.Hour)}},
	}
}

// A host with layer 7 alone has no use for a director, and no line about forwarding.
func TestProxyHealthy(t *testing.T) {
	all := Examine(Facts{Proxy: proxied()})
	want := "ok       director: none is loaded, and imbang.yaml has listeners alone, which require none\nok       proxy: HAProxy 2.6.12 runs for 1 listeners\n"
	if got := lines(all); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// A director that is wanted is missed.
	p := proxied()
	p.Alone = false
	if got := lines(Examine(Facts{Proxy: p})); !strings.Contains(got, "warning  director: none is loaded") {
		t.Errorf("%s", got)
	}
	if got := lines(Examine(healthy())); strings.Contains(got, "proxy") {
		t.Errorf("without layer 7:\n%s", got)
	}
}

// Each fault is one line with its remedy, and nothing else is found.
func TestExamineProxy(t *testing.T) {
	certificate := func(change func(c *carry.Pair)) func(*Proxy) { return func(p *Proxy) { change(&p.Certificates[0]) } }
	ends := func(in time.Duration) func(*Proxy) {
		return func(p *Proxy) { p.Certificates[0].Ends = p.Now.Add(in) }
	}
	const files = ": systemctl edit imbang-proxy (LimitNOFILE=1048576), systemctl restart imbang-proxy"
	for name, c := range map[string]struct {
		fault func(*Proxy)
		want  string
	}{
		"not installed": {func(p *Proxy) { p.NotInstalled, p.Alarm = true, "HAProxy: not found: install the package haproxy" },
			"problem  proxy: imbang.yaml has listeners, which require HAProxy 2.6 or later: HAProxy is not installed: apt-get install haproxy"},
		"cannot be used": {func(p *Proxy) { p.Unsuitable, p.Program = "exit status 127", "/usr/sbin/haproxy" },
			"problem  proxy: imbang.yaml has listeners, and HAProxy cannot be used: exit status 127: /usr/sbin/haproxy -vv"},
		"an alarm": {func(p *Proxy) { p.Alarm = "HAProxy has not followed\nyet" }, "problem  proxy: imbang run has the alarm proxy: HAProxy has not followed; yet: imbang status"},
		"refused at the start": {func(p *Proxy) {
			p.Status.Refused, p.Status.Reason, p.Status.Phase, p.Status.HAProxy, p.Status.LastEnd = "7", "cannot bind\n", supervise.Waiting, 0, "exit status 1"
		},
			"problem  proxy: HAProxy does not run (waiting): exit status 1: journalctl -u imbang-proxy\n" +
				"problem  proxy: HAProxy has not accepted the last configuration: cannot bind: imbang check imbang.yaml && imbang reload"},
		"what its version lacks": {func(p *Proxy) {
			p.Mistakes = []string{"listener shop: http3: HAProxy 2.6.12 is built without QUIC"}
		},
			"problem  proxy: listener shop: http3: HAProxy 2.6.12 is built without QUIC: imbang check imbang.yaml"},
		"no process":          {func(p *Proxy) { p.Status = nil }, "problem  proxy: imbang.yaml has listeners, and imbang proxy does not run in this network namespace: systemctl enable --now imbang-proxy"},
		"does not answer":     {func(p *Proxy) { p.Status, p.StatusError = nil, "imbang proxy: status: EOF" }, "problem  proxy: imbang proxy: status: EOF: systemctl status imbang-proxy"},
		"without listeners":   {func(p *Proxy) { p.Config = nil }, "warning  proxy: imbang proxy runs, and imbang.yaml has no listeners (imbang doctor -c names another file): systemctl disable --now imbang-proxy"},
		"without a file":      {func(p *Proxy) { p.Config, p.Unread = nil, true }, "warning  proxy: imbang proxy runs, and imbang.yaml, from which its listeners would be known, cannot be read: imbang doctor -c FILE"},
		"does not start":      {func(p *Proxy) { p.Status.Phase, p.Status.LastEnd = supervise.Waiting, "exit status 1\nport in use" }, "problem  proxy: HAProxy does not run (waiting): exit status 1; port in use: journalctl -u imbang-proxy"},
		"refused":             {func(p *Proxy) { p.Status.Refused, p.Status.Reason = "7", "cannot bind\n" }, "problem  proxy: HAProxy goes on with an earlier configuration, as it has not accepted the last one: cannot bind: imbang check imbang.yaml && imbang reload"},
		"lease lost":          {func(p *Proxy) { p.Fallback, p.NoDaemon = true, true }, "problem  proxy: the lease of imbang run was lost: HAProxy checks the servers itself, with the weights and orders of before: systemctl start imbang"},
		"no daemon":           {func(p *Proxy) { p.NoDaemon = true }, "warning  proxy: imbang run does not run: the servers of backends are not checked: systemctl start imbang"},
		"expired":             {ends(-time.Hour), "problem  proxy: listener shop: the certificate /tls/shop.pem for shop.example expired on 2026-05-01: renew it; the daemon then reads the new file: openssl x509 -noout -dates -in /tls/shop.pem"},
		"expires":             {ends(29*24*time.Hour + time.Hour), "warning  proxy: listener shop: the certificate /tls/shop.pem for shop.example expires on 2026-05-30, in 29 days: renew it; the daemon then reads the new file: openssl x509 -noout -dates -in /tls/shop.pem"},
		"not yet valid":       {certificate(func(c *carry.Pair) { c.Begins = c.Ends.Add(-time.Hour) }), "problem  proxy: listener shop: the certificate /tls/shop.pem for shop.example is not valid before 2026-06-30 11:00:00 UTC: set the clock, or use another certificate until then: openssl x509 -noout -dates -in /tls/shop.pem"},
		"no such certificate": {certificate(func(c *carry.Pair) { c.Error = "no such file or directory" }), "problem  proxy: listener shop: the certificate /tls/shop.pem cannot be used (no such file or directory): want certificate, chain and key in PEM: openssl x509 -noout -subject -in /tls/shop.pem"},
		"key of another":      {certificate(func(c *carry.Pair) { c.Error = "private key does not match public key" }), "problem  proxy: listener shop: the key in /tls/shop.pem is not that of its first certificate: put certificate, chain and key of one another into it: openssl pkey -pubout -in /tls/shop.pem"},
		"a key for all":       {certificate(func(c *carry.Pair) { c.Open = true }), "warning  proxy: listener shop: every user can read the key in /tls/shop.pem: chmod 600 /tls/shop.pem"},
		"authorities": {func(p *Proxy) {
			p.Unusable = map[string]string{"/tls/ca.pem": "/tls/ca.pem: has no certificate: want certificates in PEM"}
		}, "problem  proxy: a file that imbang.yaml names cannot be used: /tls/ca.pem: has no certificate: want certificates in PEM: ls -lL /tls/ca.pem"},
		"no directory of logs": {func(p *Proxy) { p.NoLogDirectories = []string{"/srv/log"} }, "problem  proxy: the directory /srv/log of access logs does not exist: their lines are lost: mkdir -p /srv/log"},
		"Debian's haproxy":     {func(p *Proxy) { p.Taken = []Taken{{"shop", p.Config.Listeners[0].Bind[0], 7, "haproxy", "haproxy"}} }, "problem  proxy: haproxy (process 7, unit haproxy) accepts connections at 10.20.0.1:443 of the listener shop: that is not imbang's HAProxy, and takes a share of the listener's connections, or keeps it from starting: systemctl disable --now haproxy"},
		"another program":      {func(p *Proxy) { p.Taken = []Taken{{"shop", p.Config.Listeners[0].Bind[0], 7, "socat", ""}} }, "problem  proxy: socat (process 7) accepts connections at 10.20.0.1:443 of the listener shop: the listener cannot be started beside it: ps -fp 7"},
		"an absent address":    {func(p *Proxy) { p.Absent = []netip.Addr{netip.MustParseAddr("10.20.0.1")} }, "warning  proxy: listeners bind 10.20.0.1, which this host does not have, and which imbang neither adds nor moves here: no connection arrives at it: ip address add 10.20.0.1/32 dev DEV, or a group of the section vrrp"},
		"few files":            {func(p *Proxy) { p.Files = 1024 }, "warning  proxy: HAProxy may have 1024 files open, for about 512 clients at the same time" + files},
		"files for the limits": {func(p *Proxy) { p.Files, p.Config.Engine.MaxConnections = 65536, 50000 }, "problem  proxy: HAProxy may have 65536 files open, and proxy.max_connections of 50000 requires 100256" + files},
	} {
		p := proxied()
		c.fault(p)
		var all []Finding
		examineProxy(report{"proxy", &all}, p)
		if got := strings.TrimSpace(lines(all)); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// What is found of files, processes and addresses of a namespace.
func TestGatherProxy(t *testing.T) {
	h := haproxytest.New(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path(name)
	}
	first, second := haproxytest.Certificate(t, "first.example"), haproxytest.Certificate(t, "second.example")
	key := func(text string) int { return strings.Index(text, "-----BEGIN EC") }
	write("good.pem", first, 0o600)
	write("mixed.pem", first[:key(first)]+second[key(second):], 0o600)
	write("open.pem", second, 0o644)
	write("ca.pem", "", 0o600)
	file := write("imbang.yaml", strings.ReplaceAll(`
listeners:
  - name: shop
    bind: ["127.0.0.1:8443", "10.99.0.1:8443", "10.66.0.1:8443"]
    tls: {certificates: [DIR/good.pem, DIR/mixed.pem, DIR/open.pem, DIR/none.pem], client_ca: DIR/ca.pem}
    backend: web
  - {name: plain, bind: ["0.0.0.0:8080"], redirect: {scheme: https}}
backends:
  - {name: web, servers: [{name: s1, address: "127.0.1.1:8000"}]}
`, "DIR", dir), 0o600)
	if err := h.Do(func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 66, 0, 0), Mask: net.CIDRMask(16, 32)}, Type: unix.RTN_BLACKHOLE})
	}); err != nil {
		t.Fatal(err)
	}
	// Another HAProxy, as Debian's.
	other := exec.Command("haproxy", "-db", "-f", write("other.cfg", `defaults
  mode http
  timeout connect 1s
  timeout client 1s
  timeout server 1s
listen other
  bind 127.0.0.1:8080
`, 0o600))
	h.Start(other)
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	var p *Proxy
	ask := func() (err error) {
		if p, err = askProxy(); err == nil {
			p = gatherProxy(p, file, daemon{}, nil)
		}
		return err
	}
	for began := time.Now(); (p == nil || len(p.Taken) == 0) && time.Since(began) < 20*time.Second; time.Sleep(50 * time.Millisecond) {
		if err := h.Do(ask); err != nil || p == nil {
			t.Fatal(p, err)
		}
	}
	if len(p.Taken) != 1 || p.Taken[0].Process != other.Process.Pid || p.Taken[0].Program != "haproxy" || p.Taken[0].Listener != "plain" {
		t.Errorf("%+v, want process %d", p.Taken, other.Process.Pid)
	}
	if !slices.Equal(p.Absent, []netip.Addr{netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("10.66.0.1")}) {
		t.Errorf("absent: %v", p.Absent)
	}
	var got []string
	for _, c := range p.Certificates {
		text := filepath.Base(c.Path) + " " + c.Name + " " + c.Error
		if c.Open {
			text += "open"
		}
		got = append(got, text)
	}
	if want := []string{"good.pem first.example ", "mixed.pem  private key does not match public key", "open.pem second.example open", "none.pem  no such file or directory"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if ca := path("ca.pem"); len(p.Unusable) != 1 || p.Unusable[ca] != ca+": has no certificate: want certificates in PEM" {
		t.Errorf("%v", p.Unusable)
	}
	if !p.Alone || p.Status != nil || p.Version == "" || len(p.Mistakes) > 0 || !p.NoDaemon {
		t.Errorf("%+v", p)
	}
	// What this HAProxy cannot do.
	write("imbang.yaml", strings.ReplaceAll(`
listeners:
  - {name: shop, bind: ["127.0.0.1:8443"], tls: {certificates: [DIR/good.pem]}, http3: true, reply: {}}
`, "DIR", dir), 0o600)
	if err := h.Do(ask); err != nil || len(p.Mistakes) != 1 || !strings.HasPrefix(p.Mistakes[0], "listener shop") || !strings.Contains(p.Mistakes[0], "QUIC") {
		t.Errorf("%+v, %v", p, err)
	}
}
