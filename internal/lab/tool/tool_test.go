// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/load"
)

var target = netip.MustParseAddrPort("192.0.2.1:8080")

func TestCommands(t *testing.T) {
	six := netip.MustParseAddrPort("[2001:db8::1]:80")
	post := []load.Request{{Method: "POST", Path: "/o", Body: `{"a":1}`, ContentType: "application/json"}}
	for _, tc := range []struct {
		tool string
		p    load.Plan
		want string
	}{
		{"httperf", load.Plan{Target: target, Rate: 1000, Connections: 500},
			"--hog --server=192.0.2.1 --port=8080 --uri=/ --num-conns=500 --num-calls=1 --timeout=5 --rate=1000 --server-name=192.0.2.1:8080"},
		{"httperf", load.Plan{Target: target, Rate: 0.0001, Duration: 20 * time.Second, RequestsPerConnection: 4, Arrivals: arrivals.Poisson,
			Host: "h", Requests: []load.Request{{Method: "HEAD", Path: "/x"}}, Timeout: 1500 * time.Millisecond},
			"--hog --server=192.0.2.1 --port=8080 --uri=/x --num-conns=1 --num-calls=4 --timeout=1.5 --period=e40000 --method=HEAD --server-name=h"},
		{"ab", load.Plan{Target: six, Concurrency: 8, Connections: 500, RequestsPerConnection: load.Unlimited,
			Clients: []load.Client{{Sources: []netip.Addr{netip.MustParseAddr("2001:db8::9")}}}},
			"-q -l -r -c 8 -s 5 -n 500 -k -B 2001:db8::9 http://[2001:db8::1]:80/"},
		{"ab", load.Plan{Target: target, Concurrency: 8, Duration: 3 * time.Second, Requests: post, Host: "h"},
			"-q -l -r -c 8 -s 5 -t 3 -n 5000000 -H Host: h -p DIR/body -T application/json http://192.0.2.1:8080/o"},
		{"siege", load.Plan{Target: target, Concurrency: 5, Connections: 500, Requests: post},
			`-R DIR/siegerc -c 5 -r 100 -T application/json http://192.0.2.1:8080/o POST {"a":1}`},
		{"siege", load.Plan{Target: target, Concurrency: 5, Duration: 4 * time.Second}, "-R DIR/siegerc -c 5 -t 4S http://192.0.2.1:8080/"},
		{"wrk", load.Plan{Target: target, Concurrency: 5, Duration: 4 * time.Second, RequestsPerConnection: load.Unlimited},
			"-t 1 -c 5 -d 4s --timeout 5s --latency http://192.0.2.1:8080/"},
		{"wrk", load.Plan{Target: target, Concurrency: 5, Duration: 4 * time.Second, Requests: post},
			"-t 1 -c 5 -d 4s --timeout 5s --latency -H Connection: close -s DIR/request.lua http://192.0.2.1:8080/o"},
	} {
		tool, err := New(tc.tool)
		if err != nil {
			t.Fatal(err)
		}
		j, err := tool.job(tc.p)
		if err != nil {
			t.Errorf("%s: %v", tc.tool, err)
			continue
		}
		dir := t.TempDir()
		args, err := tool.command(j, dir)
		if got := strings.ReplaceAll(strings.Join(args, " "), dir, "DIR"); got != tc.want || err != nil {
			t.Errorf("%s %s, want %s; %v", tc.tool, got, tc.want, err)
		}
	}
	if got, want := wrkScript("PUT", "a\"\n\xff", "t/x"), "wrk.method = \"PUT\"\nwrk.body = \"a\\034\\010\\255\"\nwrk.headers[\"Content-Type\"] = \"t/x\"\n"; got != want {
		t.Errorf("script %q, want %q", got, want)
	}
}

func TestRefusals(t *testing.T) {
	open := load.Plan{Target: target, Rate: 100, Connections: 10}
	closed := load.Plan{Target: target, Concurrency: 2, Connections: 10}
	timed := load.Plan{Target: target, Concurrency: 2, Duration: time.Second}
	for _, tc := range []struct {
		tool   string
		p      load.Plan
		change func(*load.Plan)
		want   string
	}{
		{"httperf", closed, nil, "httperf cannot do a closed loop"},
		{"ab", open, nil, "ab cannot do rates: it is a closed loop"},
		{"wrk", closed, nil, "wrk cannot do a number of requests"},
		{"wrk", timed, func(p *load.Plan) { p.RequestsPerConnection = 3 }, "3 requests on a connection: it knows 1"},
		{"httperf", open, func(p *load.Plan) { p.RequestsPerConnection = load.Unlimited }, "connections without a limit"},
		{"httperf", open, func(p *load.Plan) { p.RequestsPerConnection = 3 }, "10 requests with 3 on a connection"},
		{"httperf", open, func(p *load.Plan) { p.Shape.Batch = 2 }, "arrivals of a shape"},
		{"httperf", open, func(p *load.Plan) { p.Target = netip.MustParseAddrPort("[::1]:80") }, "httperf cannot do IPv6"},
		{"httperf", open, func(p *load.Plan) { p.Requests = make([]load.Request, 2) }, "2 kinds of requests"},
		{"httperf", open, func(p *load.Plan) { p.Path = "/{n}" }, "requests that differ"},
		{"httperf", open, func(p *load.Plan) { p.Requests = []load.Request{{Method: "POST"}} }, "method POST: want one of GET"},
		{"httperf", open, func(p *load.Plan) { p.Targets = []netip.AddrPort{target, target} }, "2 targets"},
		{"httperf", open, func(p *load.Plan) { *p = load.Plan{Target: target, Trace: make([]load.Event, 1)} }, "traces"},
		{"ab", closed, func(p *load.Plan) { p.Think = 1 }, "think times"},
		{"ab", closed, func(p *load.Plan) { p.Arrivals = arrivals.Poisson }, "poisson"},
		{"ab", closed, func(p *load.Plan) { p.Timeout = time.Millisecond }, "a timeout of 1ms: give whole seconds"},
		{"ab", timed, func(p *load.Plan) { p.Duration++ }, "give whole seconds"},
		{"ab", closed, func(p *load.Plan) { p.Concurrency = 11 }, "10 requests by 11 users"},
		{"ab", closed, func(p *load.Plan) { p.Requests = []load.Request{{Body: "x"}} }, "a body of GET"},
		{"ab", closed, func(p *load.Plan) { p.Connections = 0 }, "give one of connections and duration"},
	} {
		tool, _ := New(tc.tool)
		if tc.change != nil {
			tc.change(&tc.p)
		}
		if err := tool.Check(tc.p); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.tool, err, tc.want)
		}
	}
	if _, err := New("jmeter"); err == nil || !strings.Contains(err.Error(), "want one of httperf, ab, siege, wrk") {
		t.Errorf("an unknown tool: %v", err)
	}
	missing := Tool{Name: "imbang-no-such-tool", pkg: "some-package"}
	if _, err := missing.Run(context.Background(), open, nil); err == nil || err.Error() != "imbang-no-such-tool is not installed: apt install some-package" {
		t.Errorf("a tool that is missing: %v", err)
	}
}

// The mark of each tool's count of replies.
var counted = regexp.MustCompile(`(?:replies |Complete requests:\s+|Transactions:\s+|"transactions":\s+)(\d+)|(\d+) requests in `)

// replies reads no more than the number of replies.
func replies(out io.Reader, _ string) (*Output, error) {
	text, err := io.ReadAll(out)
	m := counted.FindSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("no count in %q (%v)", text, err)
	}
	n, err := strconv.ParseInt(string(m[1])+string(m[2]), 10, 64)
	return &Output{Seconds: 1, Replies: n}, err
}

// site is a server that remembers.
type site struct {
	mu          sync.Mutex
	asked       map[string]int
	connections int
	status      int
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[fmt.Sprintf("%s %s %s %q", r.Method, r.Host, r.URL.Path, body)]++
	if s.status != 0 {
		w.WriteHeader(s.status)
	}
	io.WriteString(w, "page")
}

func start(t *testing.T, address string) (*site, netip.AddrPort) {
	s := &site{asked: map[string]int{}}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip(err)
	}
	server := httptest.NewUnstartedServer(s)
	server.Listener = l
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if state == http.StateNew {
			s.connections++
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return s, netip.MustParseAddrPort(l.Addr().String())
}

// Every tool that is installed sends what the plan says, as often as it says.
func TestToolsSendThePlan(t *testing.T) {
	post := []load.Request{{Method: "POST", Path: "/o", Body: `{"a":1}`, ContentType: "application/json"}}
	for _, tc := range []struct {
		name, tool, address string
		p                   load.Plan
		key                 string
		number              int // 0 by time
		connections         [2]int
	}{
		{"open", "httperf", "127.0.0.1:0", load.Plan{Rate: 200, Connections: 60}, `GET * / ""`, 60, [2]int{60, 60}},
		{"kept", "httperf", "127.0.0.1:0", load.Plan{Rate: 200, Connections: 60, RequestsPerConnection: 3, Arrivals: arrivals.Poisson, Host: "h.example"},
			`GET h.example / ""`, 60, [2]int{20, 20}},
		{"closed", "ab", "127.0.0.1:0", load.Plan{Concurrency: 3, Connections: 60}, `GET * / ""`, 60, [2]int{60, 60}},
		{"kept", "ab", "[::1]:0", load.Plan{Concurrency: 3, Connections: 60, RequestsPerConnection: load.Unlimited, Requests: post},
			`POST * /o "{\"a\":1}"`, 60, [2]int{1, 3}},
		{"closed", "siege", "[::1]:0", load.Plan{Concurrency: 3, Connections: 60, Host: "h.example"}, `GET h.example / ""`, 60, [2]int{60, 60}},
		{"kept", "siege", "127.0.0.1:0", load.Plan{Concurrency: 3, Connections: 60, RequestsPerConnection: load.Unlimited, Requests: post},
			`POST * /o "{\"a\":1}"`, 60, [2]int{1, 3}},
		{"closed", "wrk", "[::1]:0", load.Plan{Concurrency: 3, Duration: 3 * time.Second}, `GET * / ""`, 0, [2]int{10, 1e6}},
		{"kept", "wrk", "127.0.0.1:0", load.Plan{Concurrency: 3, Duration: 3 * time.Second, RequestsPerConnection: load.Unlimited,
			Requests: post, Host: "h.example"}, `POST h.example /o "{\"a\":1}"`, 0, [2]int{1, 4}},
	} {
		t.Run(tc.tool+" "+tc.name, func(t *testing.T) {
			tool, _ := New(tc.tool)
			if _, err := tool.Find(); err != nil {
				t.Skip(err)
			}
			s, at := start(t, tc.address)
			tc.p.Target = at
			r, err := tool.Run(context.Background(), tc.p, replies)
			if err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			key := strings.Replace(tc.key, "*", at.String(), 1)
			if len(s.asked) != 1 || (tc.number > 0 && s.asked[key] != tc.number) || s.asked[key] == 0 {
				t.Errorf("asked for %v, want %d of %s", maps.Clone(s.asked), tc.number, key)
			}
			// wrk opens and drops one to look whether the server answers, and
			// ab ends with some that it has no request for any more.
			if n := s.connections; n < tc.connections[0] || n > tc.connections[1]+tc.p.Concurrency {
				t.Errorf("%d connections, want %v", n, tc.connections)
			}
			// By time, what was on its way at the end is not counted.
			if n := r.Replies; (tc.number > 0 && n != tc.number) || n > s.asked[key] || n < s.asked[key]-4 {
				t.Errorf("%d replies, the server gave %d", n, s.asked[key])
			}
			if r.Tool != tc.tool || r.Generator.CPUSeconds <= 0 || r.Scheduled != r.Replies+r.Loss.Total() || len(r.Absent) < 10 {
				t.Errorf("implausible: %+v", r)
			}
			if closed := r.Loop == "closed"; closed != (tc.tool != "httperf") || closed != strings.Contains(strings.Join(r.Caveats, ""), "coordinated omission") {
				t.Errorf("loop %s with caveats %q", r.Loop, r.Caveats)
			}
		})
	}
}

// A warm-up is a run before, and a tool ends when the run is cancelled.
func TestWarmupAndCancel(t *testing.T) {
	tool, _ := New("ab")
	if _, err := tool.Find(); err != nil {
		t.Skip(err)
	}
	s, at := start(t, "127.0.0.1:0")
	r, err := tool.Run(context.Background(), load.Plan{Target: at, Concurrency: 2, Connections: 50, Warmup: 3 * time.Second}, replies)
	if err != nil || r.Replies != 50 {
		t.Fatalf("%+v, %v", r, err)
	}
	s.mu.Lock()
	if n := s.asked["GET "+at.String()+` / ""`]; n <= 50 {
		t.Errorf("%d requests with the warm-up", n)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := tool.Run(ctx, load.Plan{Target: at, Concurrency: 2, Duration: time.Minute}, replies); err != context.DeadlineExceeded && !strings.Contains(fmt.Sprint(err), "deadline") {
		t.Errorf("cancelled: %v", err)
	}
	if d := time.Since(began); d > 30*time.Second { // of a minute
		t.Errorf("cancelling took %v", d)
	}
}

// What goes wrong in a tool is its last line.
func TestComplaint(t *testing.T) {
	tool, _ := New("ab")
	if _, err := tool.Find(); err != nil {
		t.Skip(err)
	}
	_, at := start(t, "127.0.0.1:0")
	foreign := []load.Client{{Sources: []netip.Addr{netip.MustParseAddr("192.0.2.77")}}}
	_, err := tool.Run(context.Background(), load.Plan{Target: at, Concurrency: 2, Connections: 50, Clients: foreign}, replies)
	if err == nil || !strings.HasPrefix(err.Error(), "ab: exit status") || strings.Contains(err.Error(), "\n") {
		t.Errorf("an address of somebody else: %v", err)
	}
}
