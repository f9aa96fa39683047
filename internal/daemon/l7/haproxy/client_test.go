// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// Behind a trusted proxy, the client is whom it names last: for routes, hashes and logs, also where
// one connection has the requests of many.
func TestClientBehindProxy(t *testing.T) {
	p := newPlace(t)
	all := servers(1, 100, 100, 100)
	last := p.servers(t, all)
	c := web(all[1:], func(l *l7.Listener, b *l7.Backend) {
		l.AcceptProxy = prefixesOf("127.4.0.0/16")
		l.TrustedProxies, l.ForwardedFor, l.Log = prefixesOf("127.5.0.0/16", "192.0.2.200/32"), true, &l7.Log{Format: "combined"}
		l.Routes = []l7.Route{{Match: l7.Match{Sources: prefixesOf("127.0.0.0/8")}, Target: l7.Target{Backend: "inside"}}}
		b.Method = l7.Source
	})
	c.Backends = append(c.Backends, l7.Backend{Name: "inside", Servers: all[:1]})
	r, _ := p.start(t, c, nil, nil)
	clients := map[string]*http.Client{}
	for _, from := range []string{"127.5.0.1", "127.6.0.1"} {
		clients[from] = p.client(from, at)
	}
	ask := func(from, named, logged string) (server string) {
		t.Helper()
		_, server = get(t, clients[from], base, func(r *http.Request) {
			if named != "" {
				r.Header.Set("X-Forwarded-For", named)
			}
		})
		line, err := r.logs.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, LogPrefix+"web "+logged+" - - ") {
			t.Errorf("%s, %q: the line is %q, %v, expected the client %s", from, named, line, err, logged)
		}
		if got := last().Header["X-Forwarded-For"]; got[len(got)-1] != from {
			t.Errorf("%s, %q: the server gets %q", from, named, got)
		}
		return server
	}
	for _, m := range []struct {
		from, named, logged string
		inside              bool
	}{
		{"127.5.0.1", "127.7.0.1", "127.7.0.1", true},
		{"127.5.0.1", "192.0.2.1", "192.0.2.1", false},
		{"127.5.0.1", "", "127.5.0.1", true}, // of the proxy itself
		{"127.5.0.1", "127.7.0.1, 2001:db8::1", "2001:db8::1", false},
		{"127.5.0.1", "unknown", "0.0.0.0", false},
		{"127.6.0.1", "192.0.2.1", "127.6.0.1", true}, // is not trusted
	} {
		if server := ask(m.from, m.named, m.logged); (server == "s1") != m.inside {
			t.Errorf("%s, %q: the request is sent to %s", m.from, m.named, server)
		}
	}
	// A balancer of layer 4 before the proxy says by PROXY which proxy it is.
	for _, m := range []struct{ peer, logged string }{{"192.0.2.200", "127.7.0.1"}, {"192.0.2.201", "192.0.2.201"}} {
		q := p.requests(t, "127.4.0.1", at)
		io.WriteString(q, "PROXY TCP4 "+m.peer+" 192.0.2.8 12345 80\r\n")
		if _, err := q.send("/", "X-Forwarded-For: 127.7.0.1\r\n"); err != nil {
			t.Fatal(err)
		}
		q.Close()
		line, err := r.logs.ReadString('\n')
		if got := last().Header["X-Forwarded-For"]; err != nil || !strings.HasPrefix(line, LogPrefix+"web "+m.logged+" - - ") || got[len(got)-1] != m.peer {
			t.Errorf("by PROXY of %s: the line is %q, %v, and the server gets %q", m.peer, line, err, got)
		}
	}
	used := map[string]bool{}
	for i := range 30 {
		name := fmt.Sprintf("192.0.2.%d", i)
		server := ask("127.5.0.1", name, name)
		used[server] = true
		if again := ask("127.5.0.1", name, name); again != server {
			t.Errorf("%s is sent to %s and %s", name, server, again)
		}
	}
	if len(used) != 3 {
		t.Errorf("clients of one proxy are sent to %v alone", used)
	}
}
