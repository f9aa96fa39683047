// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/arrivals"
	"imbang/internal/testenv"
)

func TestExactCounts(t *testing.T) {
	target := serve(t, "127.0.0.1:0", always(page))
	for _, gaps := range []arrivals.Distribution{arrivals.Constant, arrivals.Poisson} {
		for _, closing := range []Closing{ServerFirst, ClientFirst} {
			p := Plan{
				Target: target, ServerHeader: "x-server", Rate: 2000, Connections: 400, Seed: 3,
				Arrivals: gaps, Closing: closing, Warmup: 50 * time.Millisecond, Clients: make([]Client, 2),
			}
			r := mustRun(t, p)
			if r.Replies != 400 || r.Status.Success != 400 || r.PerServer["s1"] != 400 || r.Issued != 400 {
				t.Errorf("%v: %d issued, %d replies, %+v, %v", gaps, r.Issued, r.Replies, r.Status, r.PerServer)
			}
			if n := r.Generator.Connections - 400; n < 50 || n > 200 {
				t.Errorf("%v: %d warm-up connections, want about 100", gaps, n)
			}
			head := int64(len(page) - 5)
			if r.Bytes.Content != 400*5 || r.Bytes.Header != 400*head || r.Bytes.Framing != 0 {
				t.Errorf("bytes %+v, want 400 x (%d+5)", r.Bytes, head)
			}
			sent := fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nUser-Agent: imbang\r\nConnection: close\r\n\r\n", target)
			if want := int64(400 * len(sent)); r.Bytes.Sent != want {
				t.Errorf("sent %d bytes, want %d", r.Bytes.Sent, want)
			}
			kb := float64(r.RepliesInWindow*len(page)) / 1024 / r.WindowSeconds
			if math.Abs(kb-r.ThroughputKBs) > 1e-6 || r.NetIOKBs <= r.ThroughputKBs {
				t.Errorf("throughput %g KB/s, net I/O %g, want %g and more; %d replies in the window", r.ThroughputKBs, r.NetIOKBs, kb, r.RepliesInWindow)
			}
			attempts(t, func() error {
				if r := mustRun(t, p); r.RepliesInWindow < 300 {
					return fmt.Errorf("%d of 400 replies in the window", r.RepliesInWindow)
				}
				return nil
			})
			if gaps == arrivals.Constant && math.Abs(r.OfferedRate-2000) > 1 {
				t.Errorf("offered %g/s, want 2000", r.OfferedRate)
			}
			if r.Response.P50MS <= 0 || r.FirstByte.P50MS > r.Response.P50MS || r.Generator.CPUSeconds <= 0 {
				t.Errorf("implausible: %+v %+v", r.Response, r.Generator)
			}
		}
	}
}

func TestDuration(t *testing.T) {
	target := serve(t, "127.0.0.1:0", always(page))
	var seen []Progress
	r, err := Run(context.Background(), Plan{Target: target, Rate: 500, Duration: 600 * time.Millisecond},
		func(p Progress) { seen = append(seen, p) })
	if err != nil {
		t.Fatal(err)
	}
	checkAccount(t, r)
	if r.Scheduled != 300 || r.Replies != 300 || r.WindowSeconds != 0.6 {
		t.Errorf("%d scheduled, %d replies in %g s, want 300 in 0.6", r.Scheduled, r.Replies, r.WindowSeconds)
	}
	if len(seen) < 2 || seen[len(seen)-1].Replies != 300 || seen[len(seen)-1].Open != 0 {
		t.Errorf("progress %+v", seen)
	}
}

func TestReplyForms(t *testing.T) {
	big := strings.Repeat("z", 300<<10)
	for _, tc := range []struct {
		name, reply string
		content     int64
		check       func(*Result) bool
	}{
		{"not found", "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", 2,
			func(r *Result) bool { return r.Status.ClientError == 40 && r.UnknownServer == 40 }},
		{"redirect", "HTTP/1.1 302 Go\r\nContent-Length: 0\r\n\r\n", 0,
			func(r *Result) bool { return r.Status.Redirect == 40 }},
		{"until close", "HTTP/1.0 503 Busy\r\n\r\nbusy", 4,
			func(r *Result) bool { return r.Status.ServerError == 40 }},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n0\r\n\r\n", 4,
			func(r *Result) bool { return r.Bytes.Framing == 40*10 }},
		{"interim", "HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 1,
			func(r *Result) bool { return r.Status.Informational == 40 && r.Status.Success == 40 }},
		{"many reads", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(big), big), int64(len(big)),
			func(r *Result) bool { return r.Status.Success == 40 }},
		{"many reads until close", "HTTP/1.1 200 OK\r\n\r\n" + big, int64(len(big)),
			func(r *Result) bool { return r.Status.Success == 40 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := mustRun(t, Plan{Target: serve(t, "127.0.0.1:0", always(tc.reply)), Rate: 400, Connections: 40,
				ServerHeader: "X-Server"})
			if r.Replies != 40 || r.Bytes.Content != 40*tc.content || !tc.check(r) {
				t.Errorf("%d replies, loss %+v, status %+v, bytes %+v", r.Replies, r.Loss, r.Status, r.Bytes)
			}
		})
	}
}

func TestHeaderSplitAcrossPackets(t *testing.T) {
	target := serve(t, "127.0.0.1:0", func(n int, c *net.TCPConn) {
		at := n % len(page)
		c.Write([]byte(page[:at]))
		time.Sleep(2 * time.Millisecond)
		c.Write([]byte(page[at:]))
	})
	n := 2 * len(page)
	r := mustRun(t, Plan{Target: target, ServerHeader: "X-Server", Rate: 1000, Connections: n})
	if r.Replies != n || r.PerServer["s1"] != n || r.Bytes.Content != int64(5*n) {
		t.Errorf("%d of %d replies, %v, %+v, loss %+v", r.Replies, n, r.PerServer, r.Bytes, r.Loss)
	}
}

func TestPerServerSpread(t *testing.T) {
	target := serve(t, "127.0.0.1:0", func(n int, c *net.TCPConn) {
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Real: s%d\r\n\r\n", n%3)
	})
	r := mustRun(t, Plan{Target: target, ServerHeader: "X-Real", Rate: 1000, Connections: 300, Clients: make([]Client, 3)})
	if len(r.PerServer) != 3 || r.PerServer["s0"] != 100 || r.PerServer["s1"] != 100 || r.PerServer["s2"] != 100 {
		t.Errorf("spread %v, want 100 each", r.PerServer)
	}
}

func TestSourceAddresses(t *testing.T) {
	from := make(chan netip.Addr, 200)
	target := serve(t, "127.0.0.1:0", func(_ int, c *net.TCPConn) {
		from <- c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
		c.Write([]byte(page))
	})
	var sources []netip.Addr
	for i := range 10 {
		sources = append(sources, netip.AddrFrom4([4]byte{127, 1, byte(i), 9}))
	}
	r := mustRun(t, Plan{Target: target, Rate: 1000, Connections: 200, Clients: []Client{{Sources: sources}}})
	if r.Replies != 200 {
		t.Fatalf("%d replies, loss %+v", r.Replies, r.Loss)
	}
	seen := map[netip.Addr]int{}
	for range 200 {
		seen[<-from]++
	}
	for _, s := range sources {
		if seen[s] != 20 {
			t.Errorf("%d connections from %s, want 20", seen[s], s)
		}
	}
}

func TestIPv6(t *testing.T) {
	target := serveMany(t, "[::1]:0", func(a asked) string {
		if !strings.HasPrefix(a.Host, "[::1]:") {
			return "HTTP/1.1 400 Host\r\nContent-Length: 0\r\n\r\n"
		}
		return kept
	})
	clients := []Client{{Sources: []netip.Addr{netip.IPv6Loopback()}}, {}}
	for name, p := range map[string]Plan{
		"open":    {Rate: 500, Connections: 50},
		"kept":    {Rate: 500, Connections: 50, RequestsPerConnection: 5},
		"closed":  {Concurrency: 4, Connections: 50, RequestsPerConnection: Unlimited},
		"targets": {Rate: 500, Connections: 50, Targets: []netip.AddrPort{target, target}},
		"trace":   {Trace: make([]Event, 50), Clients: clients},
	} {
		p.Target, p.Clients = target, clients
		if r := mustRun(t, p); r.Status.Success != 50 {
			t.Errorf("%s: status %+v, loss %+v", name, r.Status, r.Loss)
		}
	}
}

// A server that keeps the connection after a complete reply is closed on
// after Linger, and the reply counts.
func TestLinger(t *testing.T) {
	target := serve(t, "127.0.0.1:0", func(n int, c *net.TCPConn) {
		c.Write([]byte(page))
		silent(n, c)
	})
	attempts(t, func() error {
		r := mustRun(t, Plan{Target: target, Rate: 500, Connections: 50, Linger: 100 * time.Millisecond})
		if r.Replies != 50 || r.ElapsedSeconds < 0.19 || r.DurationSeconds > r.ElapsedSeconds-0.05 {
			return fmt.Errorf("%d replies in %g s of %g s", r.Replies, r.DurationSeconds, r.ElapsedSeconds)
		}
		return nil
	})
}

func TestCancel(t *testing.T) {
	silent := serve(t, "127.0.0.1:0", silent)
	busy := serveMany(t, "127.0.0.1:0", func(asked) string { return kept })
	for name, p := range map[string]Plan{
		"open":   {Target: silent, Rate: 500, Connections: 5000, Timeout: time.Minute},
		"closed": {Target: silent, Concurrency: 50, Duration: time.Minute, Timeout: time.Minute},
		"kept": {Target: busy, Concurrency: 5, Think: time.Millisecond, Duration: time.Minute, RequestsPerConnection: Unlimited,
			Requests: []Request{{}}},
	} {
		t.Run(name, func(t *testing.T) { cancelled(t, p) })
	}
}

// cancelled cancels a run and checks that it ends at once, with an account
// and without descriptors left open.
func cancelled(t *testing.T, p Plan) {
	before := openDescriptors(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var began time.Time
	stalls := testenv.WatchStalls(t)
	r, err := Run(ctx, p, func(now Progress) {
		if began.IsZero() && now.Issued > 0 && (p.Timeout > 0 || now.Replies > 0) {
			began = time.Now()
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || r == nil {
		t.Fatalf("%v, result %v", err, r)
	}
	if d := time.Since(began); d > 2*time.Second+3*stalls.Longest() {
		t.Errorf("cancelling took %v, beside stalls of %v", d, stalls.Longest())
	}
	checkAccount(t, r)
	if p.Timeout > 0 && (r.Unfinished == 0 || r.Unfinished != r.Scheduled || r.Scheduled > 2000) {
		t.Errorf("%d scheduled, %d unfinished", r.Scheduled, r.Unfinished)
	}
	if p.Timeout == 0 && (r.Replies == 0 || r.Unfinished > 5) {
		t.Errorf("%d replies, %d unfinished", r.Replies, r.Unfinished)
	}
	// The server's sides close with ours, a little later.
	for i := 0; openDescriptors(t) > before+2; i++ {
		if i == 1500 {
			t.Fatalf("%d descriptors open, %d before", openDescriptors(t), before)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestResultIsData(t *testing.T) {
	r := mustRun(t, Plan{Target: serve(t, "127.0.0.1:0", always(page)), Rate: 1000, Connections: 100})
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	h, err := back.Response.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Summarize(h)
	if err != nil {
		t.Fatal(err)
	}
	if again != r.Response || len(b) > 20_000 {
		t.Errorf("from %d bytes: %+v, want %+v", len(b), again, r.Response)
	}
}

func TestPlanErrors(t *testing.T) {
	good := Plan{Target: netip.MustParseAddrPort("127.0.0.1:80"), Rate: 1, Connections: 1}
	for want, change := range map[string]func(*Plan){
		"want an address and a port":      func(p *Plan) { p.Target = netip.AddrPort{} },
		"rate 0: want above 0":            func(p *Plan) { p.Rate = 0 },
		"rate NaN: want above 0":          func(p *Plan) { p.Rate = math.NaN() },
		"one of connections and duration": func(p *Plan) { p.Duration = time.Second },
		"above 0":                         func(p *Plan) { p.Connections = 0 },
		"cannot be negative":              func(p *Plan) { p.Timeout = -1 },
		"no spaces or control":            func(p *Plan) { p.Path = "/a b" },
		"begin with /":                    func(p *Plan) { p.Path = "a" },
		"without the colon":               func(p *Plan) { p.ServerHeader = "X-Server:" },
		"want the family of target":       func(p *Plan) { p.Clients = []Client{{Sources: []netip.Addr{netip.IPv6Loopback()}}} },
		"want constant or poisson":        func(p *Plan) { p.Arrivals = 9 },
		"want ServerFirst or ClientFirst": func(p *Plan) { p.Closing = 9 },
		"zones are not supported":         func(p *Plan) { p.Target = netip.MustParseAddrPort("[fe80::1%lo]:80") },
		"namespace /nonexistent: no such": func(p *Plan) { p.Clients = []Client{{}, {Namespace: "/nonexistent"}} },
	} {
		p := good
		change(&p)
		if r, err := Run(context.Background(), p, nil); err == nil || r != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
