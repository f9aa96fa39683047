// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	h2config "github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	h2 "github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"imbang/internal/daemon/l7"
)

// conformance runs h2spec, also its strict tests, and returns those that fail, each with the error,
// and how many pass. What h2spec prints is discarded.
func (p *place) conformance(t *testing.T, port int, tls bool) (failed map[string]string, passed int) {
	t.Helper()
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	output := os.Stdout
	os.Stdout = nowhere
	defer func() { os.Stdout = output }()
	failed = map[string]string{}
	var collect func(g *spec.TestGroup)
	collect = func(g *spec.TestGroup) {
		for _, c := range slices.Concat(g.Tests, g.StrictTests) {
			switch {
			case c.Result == nil || c.Result.Skipped:
			case c.Result.Failed:
				failed[fmt.Sprintf("%s/%d %s", g.ID(), c.Result.Sequence, c.Desc)] = c.Result.Error.Error()
			default:
				passed++
			}
		}
		for _, below := range g.Groups {
			collect(below)
		}
	}
	err = p.Do(func() error {
		for _, g := range []*spec.TestGroup{generic.Spec(), h2.Spec(), hpack.Spec()} {
			g.Test(&h2config.Config{Host: "127.0.0.1", Port: port, Path: "/", Timeout: 5 * time.Second, MaxHeaderLen: 4000, Strict: true, TLS: tls, Insecure: true})
			collect(g)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return failed, passed
}

// plain runs HAProxy with no more than HTTP/2 requires, at the next ports.
func (p *place) plain(t *testing.T, certificate string) (stop func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plain.cfg")
	text := `defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 5s
frontend plain
    bind 127.0.0.1:81
    bind 127.0.0.1:444 ssl crt ` + certificate + ` alpn h2,http/1.1
    default_backend web
backend web
    server s1 127.0.1.1:8080
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(p.program, "-db", "-f", file)
	if err := p.Start(cmd); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if c, err := p.dial("", "127.0.0.1:81"); err == nil {
			c.Close()
			return stop
		}
	}
	stop()
	t.Fatal("HAProxy does not start")
	return nil
}

// A listener fails no test of h2spec that HAProxy itself does not fail.
func TestHTTP2Conforms(t *testing.T) {
	p := newPlace(t)
	all := servers(1)
	p.servers(t, all)
	certificate := filepath.Join(certificates(t), "server.pem")
	c := web(all, func(l *l7.Listener, b *l7.Backend) {
		// Whatever looks at requests on their way. With headers of 12 KiB or more HAProxy announces
		// longer frames than those that h2spec sends as too long.
		l.HTTP2, l.ForwardedFor, l.Monitor = true, true, "/monitor"
		l.Limits = l7.Limits{ClientConnections: 100, RequestsPerIP: 1_000_000, RateWindow: time.Minute, Body: 1 << 20, Headers: 10 << 10}
		l.Headers = []l7.HeaderChange{{Name: "X-Frame-Options", Reply: true, Value: "DENY"}}
		l.Routes = []l7.Route{{Match: l7.Match{Paths: []string{"/old"}}, Target: l7.Target{Redirect: &l7.Redirect{Status: 301, Location: "/"}}}}
	})
	secure := c.Listeners[0]
	secure.Name, secure.Bind, secure.TLS = "secure", addresses("127.0.0.1:443"), &l7.TLS{Certificates: []string{certificate}}
	c.Listeners = append(c.Listeners, secure)
	type of struct {
		name string
		port int
		tls  bool
	}
	both := []of{{"prior knowledge", 80, false}, {"TLS", 443, true}}
	// Some tests depend on which of two things comes first, so what fails has to fail three times.
	fails := map[of]map[string]string{}
	_, stop := p.start(t, c, nil, nil)
	for _, o := range both {
		for i := range 3 {
			failed, passed := p.conformance(t, o.port, o.tls)
			if passed < 140 {
				t.Errorf("%s: only %d tests pass", o.name, passed)
			}
			if i == 0 {
				fails[o] = failed
			}
			maps.DeleteFunc(fails[o], func(test, _ string) bool { _, again := failed[test]; return !again })
			if len(fails[o]) == 0 {
				break
			}
		}
		t.Logf("%s: %d tests fail", o.name, len(fails[o]))
	}
	stop()
	defer p.plain(t, certificate)()
	for _, o := range both {
		if len(fails[o]) == 0 {
			continue
		}
		plain, _ := p.conformance(t, o.port+1, o.tls)
		for test, what := range fails[o] {
			if _, found := plain[test]; !found {
				t.Errorf("%s: HAProxy itself does not fail %s: %s", o.name, test, what)
			} else {
				t.Logf("%s: HAProxy fails %s", o.name, test)
			}
		}
	}
}
