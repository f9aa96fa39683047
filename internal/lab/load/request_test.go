// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestForms(t *testing.T) {
	for _, tc := range []struct {
		r    Request
		host string
		v    values
		want string
	}{
		{Request{Path: "/"}, "h", values{last: true},
			"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: imbang\r\nConnection: close\r\n\r\n"},
		{Request{Path: "/"}, "h", values{}, "GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: imbang\r\n\r\n"},
		{Request{Path: "/{url}/{n}?c={client}&x={x}{"}, "", values{n: 12, client: 3, url: 7, host: "a:1"},
			"GET /7/12?c=3&x={x}{ HTTP/1.1\r\nHost: a:1\r\nUser-Agent: imbang\r\n\r\n"},
		{Request{Method: "POST", Path: "/o", Body: `{"id":{n},"by":"{client}"}`, ContentType: "application/json"}, "h",
			values{n: 100, client: 2},
			"POST /o HTTP/1.1\r\nHost: h\r\nUser-Agent: imbang\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n" +
				`{"id":100,"by":"2"}`},
		{Request{Method: "POST", Path: "/"}, "h", values{},
			"POST / HTTP/1.1\r\nHost: h\r\nUser-Agent: imbang\r\nContent-Length: 0\r\n\r\n"},
		{Request{Method: "DELETE", Path: "/{n}{n}"}, "h", values{n: 5},
			"DELETE /55 HTTP/1.1\r\nHost: h\r\nUser-Agent: imbang\r\n\r\n"},
		{Request{Method: "PUT", Path: "/", Body: "same"}, "h", values{},
			"PUT / HTTP/1.1\r\nHost: h\r\nUser-Agent: imbang\r\nContent-Length: 4\r\n\r\nsame"},
	} {
		f := newForm(requestDefaults([]Request{tc.r})[0], 0, tc.host)
		buf := []byte("left over")
		got, _ := f.render(buf, &tc.v)
		if string(got) != tc.want {
			t.Errorf("%+v: %q, want %q", tc.r, got, tc.want)
		}
		if varies := strings.Contains(tc.r.Path+tc.r.Body, "{n}") || tc.host == ""; (f.fixed[0] == nil) != varies {
			t.Errorf("%+v: made anew each time: %v", tc.r, f.fixed[0] == nil)
		}
	}
}

// seen is what a server was asked for, by key.
type seen struct {
	mu sync.Mutex
	n  map[string]int
}

func (s *seen) add(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = map[string]int{}
	}
	s.n[key]++
}

// take is what was asked for so far, and begins again.
func (s *seen) take() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.n
	s.n = nil
	return n
}

func TestMixOfRequests(t *testing.T) {
	var paths, bodies seen
	target := serveMany(t, "127.0.0.1:0", func(a asked) string {
		switch {
		case a.Method == "HEAD":
			return "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
		case a.Method == "POST":
			bodies.add(a.body)
			if a.Header.Get("Content-Type") != "text/plain" {
				return "HTTP/1.1 415 No\r\nContent-Length: 0\r\n\r\n"
			}
			return "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
		case strings.HasPrefix(a.URL.Path, "/lose"):
			return ""
		}
		paths.add(a.URL.Path)
		return kept
	})
	p := Plan{
		Target: target, Rate: 1000, Connections: 1000, Seed: 5, RequestsPerConnection: 10, Clients: make([]Client, 2),
		Requests: []Request{
			{Name: "get", Path: "/item/{n}", Weight: 5},
			{Name: "order", Method: "POST", Path: "/order", Body: "order {n} of {client}", ContentType: "text/plain", Weight: 3},
			{Name: "peek", Method: "HEAD", Path: "/x"},
			{Name: "bad", Method: "POST", Path: "/lose", ContentType: "text/html", Body: "b{n}", Weight: 0.5},
			{Name: "get", Path: "/lose/{n}", Weight: 0.5},
		},
	}
	r := mustRun(t, p)
	by := map[string]RequestResult{}
	for _, n := range r.Requests {
		by[n.Name] = n
	}
	if len(r.Requests) != 4 {
		t.Fatalf("%d names, want 4", len(r.Requests))
	}
	// Weights 5.5, 3, 1, 0.5 of 10, each within four standard deviations.
	for name, want := range map[string]int{"get": 550, "order": 300, "peek": 100, "bad": 50} {
		if n := by[name].Scheduled; n < want-64 || n > want+64 {
			t.Errorf("%s: %d of 1000, want about %d", name, n, want)
		}
	}
	if o := by["order"]; o.Status.ServerError != o.Scheduled || o.Replies != o.Scheduled {
		t.Errorf("order: %+v", o)
	}
	if b := by["bad"]; b.Status.ClientError != b.Scheduled {
		t.Errorf("bad: %+v", b)
	}
	if p := by["peek"]; p.Status.Success != p.Scheduled {
		t.Errorf("peek: %+v", p)
	}
	if g := by["get"]; g.Lost == 0 || g.Lost != r.Loss.Total() || g.Status.Success+g.Lost != g.Scheduled {
		t.Errorf("get: %+v, loss %+v", g, r.Loss)
	}
	pages := paths.take()
	for _, all := range []map[string]int{pages, bodies.take()} {
		for key, n := range all {
			if n != 1 {
				t.Errorf("%q came %d times", key, n)
			}
		}
	}
	if r.Bytes.Content != int64(5*len(pages)) {
		t.Errorf("%d bytes of content for %d pages", r.Bytes.Content, len(pages))
	}
}

// A server may refuse a large body before it has read it.
func TestLargeBody(t *testing.T) {
	body := strings.Repeat("0123456789", 200_000)
	var whole seen
	target := serveMany(t, "127.0.0.1:0", func(a asked) string {
		whole.add(fmt.Sprint(a.body == body))
		return kept
	})
	p := Plan{Target: target, Concurrency: 2, Connections: 20, RequestsPerConnection: Unlimited,
		Requests: []Request{{Method: "POST", Body: body}}}
	r := mustRun(t, p)
	if n := whole.take(); r.Replies != 20 || n["true"] != 20 || r.Connections > 2 {
		t.Errorf("%d replies on %d connections, %v, loss %+v", r.Replies, r.Connections, n, r.Loss)
	}
	p.Target = serveRaw(t, "127.0.0.1:0", func(_ int, c *net.TCPConn) {
		c.Read(make([]byte, 1000))
		c.Write([]byte("HTTP/1.1 413 Too much\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
		time.Sleep(3 * time.Second) // the rest unread
	})
	p.Linger = 1
	if r = mustRun(t, p); r.Status.ClientError != 20 || r.Connections != 20 {
		t.Errorf("%+v on %d connections, loss %+v", r.Status, r.Connections, r.Loss)
	}
}

func TestZipfURLsAndTargets(t *testing.T) {
	var urls, hosts seen
	answer := func(a asked) string {
		urls.add(a.URL.Path)
		hosts.add(a.Host)
		return kept
	}
	p := Plan{Rate: 2000, Connections: 1000, Path: "/{url}", URLs: 50, URLsExponent: 1, TargetsExponent: 1,
		RequestsPerConnection: Unlimited, Seed: 2, Clients: make([]Client, 2)}
	for range 4 {
		p.Targets = append(p.Targets, serveMany(t, "127.0.0.1:0", answer))
	}
	r := mustRun(t, p)
	if r.Replies != 1000 || r.Targets != 4 || r.Target != p.Targets[0].String() {
		t.Fatalf("%d replies of %d targets from %s, loss %+v", r.Replies, r.Targets, r.Target, r.Loss)
	}
	host, first := hosts.take(), urls.take()
	// 1/k over H(4) = 25/12, and over H(50) = 4.499.
	for i, want := range []int{480, 240, 160, 120} {
		if n := host[p.Targets[i].String()]; n < want-65 || n > want+65 {
			t.Errorf("target %d: %d of 1000 requests, want about %d", i, n, want)
		}
	}
	if n := first["/1"]; n < 170 || n > 275 || len(first) < 40 || len(first) > 50 {
		t.Errorf("%d requests for the first of %d URLs, want about 222 of 50: %v", n, len(first), slices.Sorted(maps.Keys(first)))
	}
	// However many clients there are, they ask for the same.
	p.Clients = make([]Client, 3)
	mustRun(t, p)
	if !maps.Equal(first, urls.take()) {
		t.Error("three clients choose other URLs than two")
	}
}

// A proxy of a wrong method is not what a load is for.
func TestRequestErrors(t *testing.T) {
	for want, r := range map[string]Request{
		`method "BREW": want GET`:     {Method: "BREW"},
		`method "CONNECT": want GET`:  {Method: http.MethodConnect},
		"begin with /":                {Path: "x"},
		"no spaces or control":        {Path: "/\r\nX: y"},
		"no control characters":       {ContentType: "a\r\nb"},
		"weight -1: want above 0":     {Weight: -1},
		"{url} needs the number":      {Path: "/{url}"},
		`"x": {url} needs the number`: {Name: "x", Method: "POST", Body: "{url}"},
	} {
		p := Plan{Target: closedPort(t), Rate: 1, Connections: 1, Requests: []Request{r}}
		if err := p.withDefaults().validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
