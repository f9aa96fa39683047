// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
)

// hostile has s wherever users write text. Each field is a listener or backend of its own, so
// that a value that is refused in one place is tried in the others.
func hostile(s string) (all []*l7.Config) {
	fields := []func(l *l7.Listener, b *l7.Backend){
		func(l *l7.Listener, _ *l7.Backend) { l.Name = s },
		func(l *l7.Listener, b *l7.Backend) { b.Name = s; l.Default.Backend = s },
		func(_ *l7.Listener, b *l7.Backend) { b.Servers[0].Name = s; b.Cookie = &l7.Cookie{Name: "a"} },
		func(l *l7.Listener, _ *l7.Backend) { l.Headers = []l7.HeaderChange{{Name: s, Value: "x"}} },
		func(l *l7.Listener, _ *l7.Backend) { l.Headers = []l7.HeaderChange{{Name: "X-A", Value: s}} },
		func(l *l7.Listener, _ *l7.Backend) {
			l.Headers = []l7.HeaderChange{{Name: "X-A", Value: s, Reply: true, Add: true}}
		},
		func(l *l7.Listener, _ *l7.Backend) { l.Monitor = "/" + s },
		func(l *l7.Listener, _ *l7.Backend) { l.Log = &l7.Log{Format: s} },
		func(l *l7.Listener, _ *l7.Backend) { l.Routes[0].Name = s },
		func(l *l7.Listener, _ *l7.Backend) { l.Routes[0].Match.Hosts = []string{s, "*." + s} },
		func(l *l7.Listener, _ *l7.Backend) { l.Routes[0].Match.Paths = []string{"/" + s} },
		func(l *l7.Listener, _ *l7.Backend) {
			l.Routes[0].Match.PathPrefixes = []string{"/" + s}
			l.Routes[0].StripPrefix, l.Routes[0].AddPrefix = true, "/"+s
		},
		func(l *l7.Listener, _ *l7.Backend) { l.Routes[0].Match.Methods = []string{s} },
		func(l *l7.Listener, _ *l7.Backend) {
			l.Routes[0].Match.Headers = []l7.HeaderMatch{{Name: s, Value: "x"}, {Name: s}}
		},
		func(l *l7.Listener, _ *l7.Backend) {
			l.Routes[0].Match.Headers = []l7.HeaderMatch{{Name: "X-A", Value: s}}
		},
		func(l *l7.Listener, _ *l7.Backend) {
			l.Default = l7.Target{Redirect: &l7.Redirect{Status: 301, Location: s}}
		},
		func(l *l7.Listener, _ *l7.Backend) {
			l.Default = l7.Target{Redirect: &l7.Redirect{Status: 301, Host: s, Prefix: s}}
		},
		func(l *l7.Listener, _ *l7.Backend) {
			l.Default = l7.Target{Reply: &l7.Reply{Status: 200, ContentType: "a/" + s, Body: s}}
		},
		func(_ *l7.Listener, b *l7.Backend) { b.Maintenance = &l7.Reply{Status: 503, Body: s} },
		func(_ *l7.Listener, b *l7.Backend) { b.Method = l7.Method(s) },
		func(_ *l7.Listener, b *l7.Backend) { b.Method, b.Header = l7.Header, s },
		func(_ *l7.Listener, b *l7.Backend) { b.Cookie = &l7.Cookie{Name: s} },
		func(_ *l7.Listener, b *l7.Backend) { b.Check = &l7.EngineCheck{Path: "/" + s, Host: s} },
		func(_ *l7.Listener, b *l7.Backend) { b.TLS = &l7.ServerTLS{Name: s} },
		func(_ *l7.Listener, b *l7.Backend) { b.RetryOn = []string{s} },
		// Regular expressions are the last one, which may be wrong for PCRE alone.
		func(l *l7.Listener, _ *l7.Backend) { l.Routes[0].Match.PathRegex = s },
	}
	for _, set := range fields {
		c := &l7.Config{
			Listeners: []l7.Listener{{
				Name: "web", Bind: addresses("127.0.0.1:8080"), Default: l7.Target{Backend: "web"},
				Routes: []l7.Route{{Match: l7.Match{Methods: []string{"GET"}}, Target: l7.Target{Backend: "web"}}},
			}},
			Backends: []l7.Backend{{Name: "web", Servers: servers(1)}},
		}
		set(&c.Listeners[0], &c.Backends[0])
		if c.Backends[0].Name != "web" {
			c.Listeners[0].Routes = nil
		}
		all = append(all, c)
	}
	return all
}

// merged are those of the configurations that can be rendered, as one: HAProxy is asked once.
func merged(t testing.TB, all []*l7.Config) *l7.Config {
	one := &l7.Config{}
	for i, c := range all {
		if _, err := Render(c, nil, options(t)); err != nil {
			for line := range strings.Lines(err.Error()) {
				if strings.TrimSpace(line) == "" || strings.ContainsFunc(strings.TrimRight(line, "\n"), func(r rune) bool { return r < ' ' }) {
					t.Errorf("a message with control characters: %q", err)
				}
			}
			continue
		}
		suffix := fmt.Sprintf("-%d", i)
		l, b := c.Listeners[0], c.Backends[0]
		l.Name += suffix
		l.Bind = []netip.AddrPort{netip.AddrPortFrom(l.Bind[0].Addr(), uint16(9000+i))}
		old := b.Name
		b.Name += suffix
		if l.Default.Backend == old {
			l.Default.Backend = b.Name
		}
		for j := range l.Routes {
			l.Routes[j].Backend = b.Name
		}
		one.Listeners, one.Backends = append(one.Listeners, l), append(one.Backends, b)
	}
	return one
}

var hostileValues = []string{
	"", " ", "a b", "#", "a#b", "'", `"`, `\`, `\\`, `a\`, "$HOME", "${HOME}", "`id`", "%", "%%", "%[src]", "%[", "%]", "]", ")", "(", "a)|(b", ",", "{", "}", "if", "--", "-f", "-i", "-",
	"/etc/passwd", "a\nbackend evil", "a\rb", "a\x00b", "a\tb", "\x1b[31m", "\x7f", "é", "\xff", "||", "!", "unless", "or", "{ src 1 }", `\x41`, `\n`, `a'\''b`,
	"'; user root", `"' # `, "a' if TRUE", strings.Repeat("a", 3000), ".if", "TRUE", "listen", "global", "*", "*.", "a:80", "~", "^$", `\Qa`, `[`, `(?P<a>b)`, `a{2}`, "|", "(?i)x", "&", ";", "@", "a=b", "?x", "<x>",
}

// What cannot be refused by HAProxy is not accepted by it as something else: the number of
// proxies and their servers is that of the configuration.
func isWhole(t testing.TB, c *l7.Config, r *Rendered) {
	t.Helper()
	text := r.Files[0].Text
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != len(r.origins) {
		t.Fatalf("%d lines have %d origins:\n%s", len(lines), len(r.origins), text)
	}
	count := map[string]int{}
	for _, line := range lines {
		if line != "" && line[0] != ' ' && line[0] != '#' {
			count[strings.Fields(line)[0]]++
		}
		if strings.ContainsAny(line, "\r\x00") {
			t.Errorf("a line with a control character: %q", line)
		}
	}
	if count["frontend"] != len(c.Listeners) || count["backend"] != len(c.Backends)+1 || count["global"] != 1 || count["defaults"] != 1 || len(count) != min(4, 2+len(c.Listeners)+1) {
		t.Errorf("sections %v of %d listeners and %d backends:\n%s", count, len(c.Listeners), len(c.Backends), text)
	}
}

// Whatever users write is refused here, or is one value for HAProxy.
func TestHostileValues(t *testing.T) {
	haproxy := program(t)
	all := &l7.Config{}
	for i, s := range hostileValues {
		c := merged(t, hostile(s))
		for j := range c.Listeners {
			c.Listeners[j].Name += fmt.Sprintf(".%d", i)
			c.Listeners[j].Bind = []netip.AddrPort{netip.AddrPortFrom(c.Listeners[j].Bind[0].Addr(), uint16(1000+40*i+j))}
			b := c.Backends[j].Name
			c.Backends[j].Name += fmt.Sprintf(".%d", i)
			l := &c.Listeners[j]
			for k := range l.Routes {
				l.Routes[k].Backend = c.Backends[j].Name
			}
			if l.Default.Backend == b {
				l.Default.Backend = c.Backends[j].Name
			}
		}
		all.Listeners, all.Backends = slices.Concat(all.Listeners, c.Listeners), slices.Concat(all.Backends, c.Backends)
	}
	r, err := Render(all, nil, options(t))
	if err != nil {
		t.Fatal(err)
	}
	isWhole(t, all, r)
	if len(all.Listeners) < 5*len(hostileValues) {
		t.Errorf("only %d of %d configurations are rendered", len(all.Listeners), len(hostileValues)*len(hostile("")))
	}
	start := time.Now()
	warnings, err := Check(t.Context(), haproxy, all, nil, options(t))
	if err != nil || len(warnings) > 0 {
		t.Errorf("%v\n%s", err, strings.Join(warnings, "\n"))
	}
	t.Logf("%d configurations in %v", len(all.Listeners), time.Since(start))
}

func FuzzValues(f *testing.F) {
	haproxy := program(f)
	// A few: TestHostileValues tries all of them.
	for _, s := range []string{"a b", `'"\`, "%[src]\n#", "a)|(b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 5000 {
			return
		}
		all := hostile(s)
		regex := all[len(all)-1]
		c := merged(t, all[:len(all)-1])
		r, err := Render(c, nil, options(t))
		if err != nil {
			t.Fatal(err)
		}
		isWhole(t, c, r)
		if _, err := Check(t.Context(), haproxy, c, nil, options(t)); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		// What is an expression for Go may be none for PCRE; it still has to stay in its place.
		if r, err := Render(regex, nil, options(t)); err == nil {
			isWhole(t, regex, r)
			if _, err := Check(t.Context(), haproxy, regex, nil, options(t)); err != nil && !strings.Contains(err.Error(), "regex") {
				t.Errorf("%q: %v", s, err)
			}
		}
	})
}
