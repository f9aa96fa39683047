// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxytest"
)

// loadRate is that of all clients together [1/s].
const loadRate = 200

// visitors are the clients of both listeners: of each there are some that keep connections, some
// that do not, and some with a cookie.
func visitors() []haproxytest.Visitor {
	plain, secure := "http://"+webPlain, "https://"+webTLS
	return []haproxytest.Visitor{
		{Name: "plain, new", URL: plain + "/", Fresh: true},
		{Name: "plain, kept", URL: plain + "/"},
		{Name: "plain, POST", URL: plain + "/", Fresh: true, Post: true},
		{Name: "plain, cookie", URL: plain + "/cart/", Cookie: true},
		{Name: "TLS, new", URL: secure + "/", Fresh: true},
		{Name: "TLS, kept", URL: secure + "/"},
		{Name: "HTTP/2", URL: secure + "/", HTTP2: true},
		{Name: "HTTP/2, cookie", URL: secure + "/cart/", HTTP2: true, Cookie: true},
	}
}

// span is a time in which something was done.
type span struct {
	what       string
	begin, end time.Time // end: zero while it goes on
}

func (s *span) during(begin, end time.Time) bool {
	return s.begin.Before(end) && (s.end.IsZero() || s.end.After(begin))
}

// watched is a load, with what was done meanwhile.
type watched struct {
	t    *testing.T
	load *haproxytest.Load
	mu   sync.Mutex
	done []span
	out  []span        // of servers by name, which must get no request
	away time.Duration // how long HAProxy did not run during this load
}

func watchLoad(t *testing.T) *watched { return &watched{t: t} }

// while notes what is done.
func (w *watched) while(format string, args ...any) (end func()) {
	return w.note(&w.done, fmt.Sprintf(format, args...), time.Now())
}

// without notes that a server gets no request from a time on until the end.
func (w *watched) without(server string, from time.Time) (end func()) {
	return w.note(&w.out, server, from)
}

func (w *watched) note(to *[]span, what string, from time.Time) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := len(*to)
	*to = append(*to, span{what: what, begin: from})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		(*to)[i].end = time.Now()
	}
}

// doing is what was done at a time.
func (w *watched) doing(begin, end time.Time) string {
	var all []string
	for i := range w.done {
		if s := &w.done[i]; s.during(begin, end) {
			all = append(all, fmt.Sprintf("%s (for %v)", s.what, begin.Sub(s.begin).Round(time.Millisecond)))
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// finish ends the load, and returns the requests that failed with what was done at the time.
func (w *watched) finish() (failed []haproxytest.Request) {
	w.t.Helper()
	all := w.load.Stop()
	var longest haproxytest.Request
	kinds := map[string]int{}
	for _, r := range all {
		kinds[r.Visitor]++
		if r.End.Sub(r.Begin) > longest.End.Sub(longest.Begin) {
			longest = r
		}
	}
	for i := range w.out {
		w.late(&w.out[i], all)
	}
	for _, v := range visitors() {
		if kinds[v.Name] == 0 {
			w.t.Errorf("no request of %s", v.Name)
		}
	}
	failed = haproxytest.Failed(all)
	unsent := w.load.Unsent()
	w.t.Logf("%d requests, %d failed, %d not sent as too many were under way; the longest took %v, during: %s",
		len(all), len(failed), unsent, longest.End.Sub(longest.Begin).Round(time.Millisecond), w.doing(longest.Begin, longest.End))
	// Requests that wait for HAProxy fill the room for outstanding ones.
	excess := max(0, w.away-haproxytest.Outstanding*time.Second)
	w.away = 0
	if unsent-int(excess.Seconds()*loadRate) > len(all)/unsentShare {
		w.t.Errorf("the rate was not constant: %d of %d requests were not sent", unsent, unsent+len(all))
	}
	return failed
}

// late fails the test if a server got requests that began when it was to get none.
func (w *watched) late(s *span, all []haproxytest.Request) {
	w.t.Helper()
	var late []haproxytest.Request
	for _, r := range all {
		// One that began before the end may have been sent after it.
		if s.what == r.Reply && s.begin.Before(r.Begin) && (s.end.IsZero() || s.end.After(r.End)) {
			late = append(late, r)
		}
	}
	if len(late) > 0 {
		r := late[len(late)-1]
		w.t.Errorf("%s got %d requests after it was to get none, the last one, of %s, after %v, during: %s",
			s.what, len(late), r.Visitor, r.Begin.Sub(s.begin).Round(time.Millisecond), w.doing(r.Begin, r.End))
	}
}

// none fails the test for each request that failed.
func (w *watched) none(failed []haproxytest.Request) {
	w.t.Helper()
	for _, r := range failed[:min(len(failed), 20)] {
		w.t.Errorf("a request of %s, which took %v, failed: %v; during: %s", r.Visitor, r.End.Sub(r.Begin).Round(time.Millisecond), r.Err, w.doing(r.Begin, r.End))
	}
	if more := len(failed) - 20; more > 0 {
		w.t.Errorf("%d more requests failed", more)
	}
}

// shop is a configuration that changes.
type shop struct {
	retries int      // of the backend web: a change is a reload
	servers []string // of web beside the first three
	address int      // of these
	request string   // timeout of requests; "": the default
}

func (s *shop) text() string {
	t := `
checks:
  web: {http: {requests: [{path: /health, status: 200}]}, interval: 2 s, fast_interval: 200 ms, timeout: 2 s, rise: 2, fall: 3, jitter: 0 %}
listeners:
  - name: shop
    bind: ["` + webPlain + `"]
    routes: [{match: {path_prefixes: [/cart]}, backend: cart}]
    backend: web
  - name: secure
    bind: ["` + webTLS + `"]
    tls: {certificates: [DIR/shop.pem]}
    routes: [{match: {path_prefixes: [/cart]}, backend: cart}]
    backend: web
backends:
  - name: cart
    cookie: {name: SRV, secure: false}
    checks: [web]
    servers:
`
	if s.request != "" {
		t = strings.ReplaceAll(t, "    backend: web\n", "    backend: web\n    timeouts: {request: "+s.request+"}\n")
	}
	for i := range 3 {
		t += fmt.Sprintf("      - {name: k%d, address: \"127.0.1.%d:8001\"}\n", i+1, i+1)
	}
	t += fmt.Sprintf("  - name: web\n    checks: [web]\n    retries: %d\n    servers:\n", s.retries)
	for _, one := range webServers {
		t += "      - " + one + "\n"
	}
	for _, name := range slices.Sorted(slices.Values(s.servers)) {
		t += fmt.Sprintf("      - {name: %s, address: \"127.0.1.%d:8000\"}\n", name, s.address)
	}
	return t
}
