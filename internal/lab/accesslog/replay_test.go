// SPDX-License-Identifier: Apache-2.0

package accesslog

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/lab/load"
)

// sendable checks what a load asks of a trace and of its requests.
func sendable(t *testing.T, r *Trace) {
	t.Helper()
	var last time.Duration
	for i, e := range r.Events {
		if e.At < last || int(e.Request) >= len(r.Requests) || int(e.Source) >= len(r.Clients) {
			t.Fatalf("event %d: %+v after %v, of %d requests and %d clients", i, e, last, len(r.Requests), len(r.Clients))
		}
		last = e.At
	}
	for _, q := range r.Requests {
		if q.Path[0] != '/' || strings.ContainsFunc(q.Path, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '{' }) {
			t.Fatalf("path %q cannot be sent", q.Path)
		}
	}
}

// logOf makes a log of "second client method target" words.
func logOf(t *testing.T, entries ...string) *Log {
	t.Helper()
	l := &Log{}
	for _, text := range entries {
		var second int
		var e Entry
		if _, err := fmt.Sscan(text, &second, &e.Client, &e.Method, &e.Target); err != nil {
			t.Fatal(err)
		}
		e.Time, e.Bytes, e.Status = time.Unix(int64(1000+second), 0), 10, 200
		l.Entries = append(l.Entries, e)
	}
	return l
}

func TestReplay(t *testing.T) {
	l := logOf(t, "0 a GET /x", "0 b GET /y", "2 a POST /x", "2 a GET /x", "2 c HEAD /x", "2 b GET *", "2 a GET http://h/y", "9 d GET /{n}é%zz%41")
	r, err := Replay(l, Options{Speed: 2})
	if err != nil {
		t.Fatal(err)
	}
	sendable(t, r)
	got := ""
	for _, e := range r.Events {
		q := r.Requests[e.Request]
		got += fmt.Sprintf("%d %s %s %s\n", e.At.Milliseconds(), r.Clients[e.Source], q.Method, q.Path)
	}
	// Halved: .25 and .75 of the first second, three in the third, half of
	// the last.
	want := "125 a GET /x\n375 b GET /y\n1083 a GET /x\n1250 c HEAD /x\n1416 a GET /y\n4750 d GET /%7Bn%7D%C3%A9%25zz%41\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if !maps.Equal(r.Skipped, map[string]int{"POST": 1, NoPath: 1}) || r.Bytes != 60 || len(r.Clients) != 4 || len(r.Requests) != 4 || r.Busiest != 3 {
		t.Errorf("skipped %v, %d bytes, clients %v, %d requests", r.Skipped, r.Bytes, r.Clients, len(r.Requests))
	}
	r, err = Replay(l, Options{From: 2 * time.Second, Until: 9 * time.Second, Methods: []string{"POST"},
		Path: func(e Entry) string { return fmt.Sprint("/", e.Bytes) }})
	if err != nil || len(r.Events) != 1 || r.Events[0].At != 500*time.Millisecond || r.Requests[0].Path != "/10" {
		t.Errorf("a part: %+v, %v", r, err)
	}
	r, err = Replay(l, Options{From: time.Second, Until: 3 * time.Second})
	if err != nil || len(r.Events) != 3 || r.Events[0].At >= time.Second || !r.Began.Equal(time.Unix(1002, 0)) {
		t.Errorf("a part that begins with a pause: %+v, %v", r, err)
	}
	for want, o := range map[string]Options{
		"speed -1":                       {Speed: -1},
		"want the second after":          {From: 2, Until: 1},
		"choose another part":            {From: time.Hour},
		"is sent (6 GET, 1 HEAD, 1 POST": {Methods: []string{"PUT"}},
		"speed NaN: want above 0 an":     {Speed: math.NaN()},
	} {
		if _, err := Replay(l, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// Random instants of a second are uniform and keep their order.
func TestUniform(t *testing.T) {
	l := &Log{}
	for range 20_000 {
		l.Entries = append(l.Entries, Entry{Time: time.Unix(5, 0), Client: "a", Method: "GET", Target: "/"})
	}
	r, err := Replay(l, Options{Uniform: true, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	sendable(t, r)
	var far float64 // Kolmogorov-Smirnov
	for i, e := range r.Events {
		far = max(far, math.Abs(e.At.Seconds()-float64(i)/20_000))
	}
	if limit := 1.95 / math.Sqrt(20_000); far > limit || far < 1e-4 {
		t.Errorf("distance %.5f from uniform, want up to %.5f and not even", far, limit)
	}
}

// A log replayed against a server asks for what it holds, each client from
// one address.
func TestReplayedLoad(t *testing.T) {
	var mu sync.Mutex
	asked, addresses := map[string]int{}, map[string]map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.Method+" "+r.URL.Path]++
		who := r.URL.Query().Get("who")
		if addresses[who] == nil {
			addresses[who] = map[string]bool{}
		}
		addresses[who][netip.MustParseAddrPort(r.RemoteAddr).Addr().String()] = true
	}))
	defer s.Close()
	var entries []string
	want := map[string]int{}
	for i := range 200 {
		who, method := fmt.Sprintf("client%d", i%7), []string{"GET", "HEAD"}[i%2]
		entries = append(entries, fmt.Sprintf("%d %s %s /p%d?who=%s", i/40, who, method, i%5, who))
		want[fmt.Sprintf("%s /p%d", method, i%5)]++
	}
	r, err := Replay(logOf(t, entries...), Options{Speed: 10})
	if err != nil {
		t.Fatal(err)
	}
	p := load.Plan{Target: netip.MustParseAddrPort(s.Listener.Addr().String()), Trace: r.Events, Requests: r.Requests,
		Clients: []load.Client{{Sources: []netip.Addr{netip.MustParseAddr("127.3.0.1"), netip.MustParseAddr("127.3.0.2")}},
			{Sources: []netip.Addr{netip.MustParseAddr("127.3.0.3")}}}}
	result, err := load.Run(context.Background(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if result.Replies != 200 || !maps.Equal(asked, want) {
		t.Errorf("%d replies, asked %v, want %v", result.Replies, asked, want)
	}
	all := map[string]bool{}
	for who, from := range addresses {
		if len(from) != 1 {
			t.Errorf("%s came from %v", who, from)
		}
		maps.Copy(all, from)
	}
	if len(all) != 3 {
		t.Errorf("the clients came from %v, want all three addresses", all)
	}
	if len(result.Requests) != 2 || result.Requests[0].Replies != 100 {
		t.Errorf("by method: %+v", result.Requests)
	}
}
