// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/l7"
	"imbang/internal/testenv"
)

var update = flag.Bool("update", false, "write what is rendered as the expected text")

var read26 = sync.OnceValues(func() (Version, error) {
	text, err := os.ReadFile("testdata/haproxy-2.6.txt")
	if err != nil {
		return Version{}, err
	}
	return ParseVersion(string(text))
})

// of26 is HAProxy of Debian 12.
func of26(t testing.TB) Version {
	t.Helper()
	v, err := read26()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func options(t testing.TB) Options {
	return Options{Version: of26(t), Directory: "/run/imbang-proxy", Socket: "/run/imbang-proxy/runtime.sock", Chroot: "/run/imbang-proxy/empty"}
}

// program is the path of haproxy, or the test is skipped.
func program(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("needs haproxy: install the package haproxy")
	}
	return path
}

func TestRendering(t *testing.T) {
	for name, c := range cases("/etc/imbang/tls") {
		t.Run(name, func(t *testing.T) {
			r, err := Render(c, caseStates, options(t))
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for _, f := range r.Files {
				text.WriteString("==== " + f.Name + "\n" + f.Text)
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), text.String()); d != "" {
				t.Errorf("expected (-), rendered (+):\n%s", d)
			}
		})
	}
}

// Every configuration that is rendered here is one for HAProxy, without a warning.
func TestRenderedPassesHAProxy(t *testing.T) {
	haproxy := program(t)
	for name, c := range cases(certificates(t)) {
		t.Run(name, func(t *testing.T) {
			warnings, err := Check(t.Context(), haproxy, c, caseStates, options(t))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%v\n%s", err, strings.Join(warnings, "\n"))
			}
		})
	}
}

// Many values go over several lines, since a line of HAProxy's has 64 words at most.
func TestManyValues(t *testing.T) {
	c := cases("")["plain"]
	for range 200 {
		c.Listeners[0].Routes[0].Match.Hosts = append(c.Listeners[0].Routes[0].Match.Hosts, "x.example", "*.y.example")
	}
	if warnings, err := Check(t.Context(), program(t), c, nil, options(t)); err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
}

// Rendering takes time by the number of servers, not by its square: it is done anew for each verdict.
func TestManyServers(t *testing.T) {
	c := cases("")["plain"]
	c.Backends[0].Cookie, c.Backends[0].Servers = &l7.Cookie{Name: "SRV"}, nil
	for i := range 5000 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
		c.Backends[0].Servers = append(c.Backends[0].Servers, l7.Server{Name: at.String(), Address: at, Weight: 1})
	}
	var err error
	took := testenv.ThreadTime(t, func() { _, err = Render(c, nil, options(t)) })
	if err != nil {
		t.Fatal(err)
	}
	if took > time.Second { // 60 ms without the race detector
		t.Errorf("5000 servers of a backend are rendered in %v", took)
	}
}

// A route has its conditions twice, for paths as they are and for decoded ones.
func TestManyConditions(t *testing.T) {
	for _, add := range []string{"", "/x"} { // by its condition, or by its number
		c := cases("")["plain"]
		c.Listeners[0].Routes[0].AddPrefix = add
		for i := range 40 {
			c.Listeners[0].Routes[0].Match.Headers = append(c.Listeners[0].Routes[0].Match.Headers, l7.HeaderMatch{Name: fmt.Sprintf("X-%d", i)})
		}
		if warnings, err := Check(t.Context(), program(t), c, nil, options(t)); err != nil || len(warnings) > 0 {
			t.Errorf("with add_prefix %q: %v, %q", add, err, warnings)
		}
	}
}

func TestFallbackHasChecksOn(t *testing.T) {
	o := options(t)
	o.Fallback = true
	r, err := Render(cases("")["limits"], nil, o)
	if err != nil {
		t.Fatal(err)
	}
	if text := r.Files[1].Text; strings.Contains(text, " web ") {
		t.Errorf("the servers' states turn checks off:\n%s", text)
	}
}

func TestQUICIsRenderedWhereItIs(t *testing.T) {
	c := cases("/tls")["tls"]
	c.Listeners[0].HTTP3 = true
	o := options(t)
	o.Version = Version{Major: 3, Minor: 0, Text: "3.0.11", Features: map[string]bool{"OPENSSL": true, "QUIC": true, "QUIC_OPENSSL_COMPAT": true}}
	r, err := Render(c, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"    limited-quic\n", "    bind quic4@127.0.0.1:8443 ssl crt-list", "    bind quic6@[2001:db8::1]:8443", " alpn h3\n", "set-header Alt-Svc"} {
		if !strings.Contains(r.Files[0].Text, want) {
			t.Errorf("no %q in:\n%s", want, r.Files[0].Text)
		}
	}
}

// listener is a configuration with one, changed.
func with(change func(l *l7.Listener, b *l7.Backend)) *l7.Config {
	c := &l7.Config{
		Listeners: []l7.Listener{{Name: "web", Bind: addresses("127.0.0.1:8080"), Default: l7.Target{Backend: "web"}}},
		Backends:  []l7.Backend{{Name: "web", Servers: servers(1)}},
	}
	change(&c.Listeners[0], &c.Backends[0])
	return c
}
