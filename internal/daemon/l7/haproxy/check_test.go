// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
)

// What HAProxy says of a configuration is said of the object that the user knows.
func TestMessagesName(t *testing.T) {
	haproxy := program(t)
	dir := certificates(t)
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]struct {
		change func(l *l7.Listener, b *l7.Backend)
		want   string
	}{
		"raw of a listener": {
			func(l *l7.Listener, _ *l7.Backend) { l.Raw = []string{"option httplog", "foo bar"} },
			`listener web, raw line 2: HAProxy: unknown keyword 'foo' in 'frontend' section`,
		},
		"raw of a backend": {
			func(_ *l7.Listener, b *l7.Backend) { b.Raw = []string{"balance nothing"} },
			`backend web, raw line 1: HAProxy: balance only supports 'roundrobin',`,
		},
		"quotes of raw": {
			func(_ *l7.Listener, b *l7.Backend) { b.Raw = []string{"# fine", "http-request set-header a 'b"} },
			`backend web, raw line 2: HAProxy: unmatched quote at position 31: http-request set-header a 'b ^`,
		},
		"certificate that is not there": {
			func(l *l7.Listener, _ *l7.Backend) {
				l.TLS = &l7.TLS{Certificates: []string{filepath.Join(dir, "server.pem"), "/nonexistent.pem"}}
			},
			`listener web: HAProxy: 'bind 127.0.0.1:8080' in section 'frontend' : 'crt-list' : unable to stat SSL certificate from file '/nonexistent.pem' : No such file or directory`,
		},
		"empty certificate": {
			func(l *l7.Listener, _ *l7.Backend) { l.TLS = &l7.TLS{Certificates: []string{empty}} },
			`listener web: HAProxy: 'bind 127.0.0.1:8080' in section 'frontend' : 'crt-list' : unable to load certificate from file '`,
		},
		"regular expression that PCRE does not have": {
			func(l *l7.Listener, _ *l7.Backend) {
				l.Routes = []l7.Route{{Name: "img", Match: l7.Match{PathRegex: `/\pQ`}, Target: l.Default}}
			},
			"",
		},
		"file of a reply": {
			func(_ *l7.Listener, b *l7.Backend) { b.Maintenance = &l7.Reply{Status: 503, File: "/nonexistent.html"} },
			`backend web: HAProxy: error detected in backend 'web' while parsing 'http-request return' rule : error opening file '/nonexistent.html'`,
		},
		"CA of a backend": {
			func(_ *l7.Listener, b *l7.Backend) { b.TLS = &l7.ServerTLS{CA: "/nonexistent.pem"} },
			`backend web, server s1: HAProxy: 'server web/s1' : Couldn't open the ca-file '/nonexistent.pem' (No such file or directory)` + "\n" + `backend web, server s1: HAProxy: 'ca-file' : unable to load /nonexistent.pem`,
		},
		"ciphers": {
			func(l *l7.Listener, _ *l7.Backend) {
				l.TLS = &l7.TLS{Certificates: []string{filepath.Join(dir, "server.pem")}, Ciphers: "nothing"}
			},
			`listener web: HAProxy: `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			warnings, err := Check(t.Context(), haproxy, with(m.change), nil, options(t))
			if m.want == "" {
				if err != nil && !strings.HasPrefix(err.Error(), "listener web, route img: ") {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), m.want) {
				t.Errorf("the error is\n%v\n(%q)\nexpected\n%s", err, warnings, m.want)
			}
		})
	}
}

// Warnings are told, and are no error.
func TestWarnings(t *testing.T) {
	warnings, err := Check(t.Context(), program(t), with(func(l *l7.Listener, _ *l7.Backend) {
		l.Raw = []string{"use_backend web if { path /x }"}
		l.Headers = []l7.HeaderChange{{Name: "X-A", Value: "1"}}
	}), nil, options(t))
	if err != nil || len(warnings) != 1 || warnings[0] != `listener web: HAProxy: a 'http-request' rule placed after a 'use_backend' rule will still be processed before` {
		t.Errorf("%q, %v", warnings, err)
	}
}

// What is refused is refused before HAProxy is asked, in one line that names the object.
func TestRefusals(t *testing.T) {
	for want, change := range map[string]func(c *l7.Config, l *l7.Listener, b *l7.Backend){
		`listener a b: name "a b": HAProxy allows letters, digits and -_.: in names`: func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) { l.Name = "a b" },
		`backend imbang-node: the name is imbang's own: choose another`: func(_ *l7.Config, l *l7.Listener, b *l7.Backend) {
			b.Name, l.Default.Backend = NodeBackend, NodeBackend
		},
		`listener web: backend "none" does not exist: add it to backends`: func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) { l.Default.Backend = "none" },
		`listener web: has no default: set backend, redirect or reply`:    func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) { l.Default = l7.Target{} },
		`listener web: HAProxy 2.6.12-1+deb12u4 cannot serve HTTP/3 (it is built without QUIC): remove http3, or install a package with QUIC`: func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) {
			l.TLS, l.HTTP3 = &l7.TLS{Certificates: []string{"/a.pem"}}, true
		},
		`listener web: tls.min_version "1.1": use 1.2 or 1.3`: func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) {
			l.TLS = &l7.TLS{Certificates: []string{"/a.pem"}, MinVersion: "1.1"}
		},
		`listener web, raw line 1: begins a section: only lines within the section are allowed`: func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) {
			l.Raw = []string{"backend evil"}
		},
		`backend web, raw line 1: begins a section: only lines within the section are allowed`: func(_ *l7.Config, _ *l7.Listener, b *l7.Backend) {
			b.Raw = []string{`"frontend" evil`}
		},
		`backend web, raw line 1: has a line break or NUL: write one line for each`: func(_ *l7.Config, _ *l7.Listener, b *l7.Backend) {
			b.Raw = []string{"a\nglobal"}
		},
		`backend web, raw line 1: is a condition of HAProxy's preprocessor: write the lines without it`: func(_ *l7.Config, _ *l7.Listener, b *l7.Backend) {
			b.Raw = []string{".if 0"}
		},
		`proxy, raw line 1: belongs to imbang: use proxy.user`: func(c *l7.Config, _ *l7.Listener, _ *l7.Backend) {
			c.Engine.Raw = []string{"  user root"}
		},
		`proxy, raw line 1: limits variables, which imbang's rules depend on: remove it`: func(c *l7.Config, _ *l7.Listener, _ *l7.Backend) {
			c.Engine.Raw = []string{"tune.vars.global-max-size 1"}
		},
		`proxy, raw line 1: belongs to imbang: remove it`: func(c *l7.Config, _ *l7.Listener, _ *l7.Backend) {
			c.Engine.Raw = []string{"chroot /"}
		},
		`backend web: HAProxy 2.6.12-1+deb12u4 cannot retry on 429: remove it from retry_on`:               func(_ *l7.Config, _ *l7.Listener, b *l7.Backend) { b.RetryOn = []string{"429"} },
		`listener web: monitor requires 2 usable backends, but the listener has 1: lower monitor_backends`: func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) { l.Monitor, l.MonitorBackends = "/m", 2 },
		`listener web, route 1: path "x": begin it with /`: func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) {
			l.Routes = []l7.Route{{Match: l7.Match{Paths: []string{"x"}}, Target: l.Default}}
		},
		`listener web, route img: regular expression "(": error parsing regexp: missing closing ): ` + "`(`": func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) {
			l.Routes = []l7.Route{{Name: "img", Match: l7.Match{PathRegex: "("}, Target: l.Default}}
		},
		`listener web: header's value "a\r\nEvil: 1": control characters are not allowed`: func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) {
			l.Headers = []l7.HeaderChange{{Name: "X-A", Value: "a\r\nEvil: 1"}}
		},
		`listener web: redirect: status 300: use 301, 302, 303, 307 or 308`: func(_ *l7.Config, l *l7.Listener, _ *l7.Backend) {
			l.Default = l7.Target{Redirect: &l7.Redirect{Status: 300, Location: "/"}}
		},
		`backend web, server s1: weight 257: use 0 to 256`: func(_ *l7.Config, _ *l7.Listener, b *l7.Backend) { b.Servers[0].Weight = 257 },
		`backend web: 600h0m1s: HAProxy's longest time is 24 days`: func(_ *l7.Config, _ *l7.Listener, b *l7.Backend) {
			b.Timeouts.Server = 600*time.Hour + time.Second
		},
	} {
		c := with(func(*l7.Listener, *l7.Backend) {})
		change(c, &c.Listeners[0], &c.Backends[0])
		if _, err := Render(c, nil, options(t)); err == nil || err.Error() != want {
			t.Errorf("the error is\n%v\nexpected\n%s", err, want)
		}
	}
}
