// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A replay sends what the trace says, from the address it says, however many
// namespaces share the addresses.
func TestReplay(t *testing.T) {
	var got, early seen
	var began atomic.Int64 // Unix ns
	targets := Plan{}
	for i := range 2 {
		targets.Targets = append(targets.Targets, serveMany(t, "127.0.0.1:0", func(a asked) string {
			got.add(fmt.Sprint(i, a.peer, a.URL.Path))
			var n int64
			fmt.Sscan(a.URL.Query().Get("n"), &n)
			if time.Now().UnixNano() < began.Load()+n*int64(2*time.Millisecond) {
				early.add("early")
			}
			return kept
		}))
	}
	p := targets
	want := map[string]int{}
	sources := loopbacks(5)
	p.Clients = []Client{{Sources: sources[:2]}, {Sources: sources[2:]}}
	p.Requests = []Request{{Name: "a", Path: "/a?n={n}"}, {Name: "b", Path: "/b?n={n}"}}
	for i := range 300 {
		e := Event{At: time.Duration(2*i) * time.Millisecond, Source: int32(i * i % 7), Request: int32(i % 3 / 2), Target: int32(i % 2)}
		p.Trace = append(p.Trace, e)
		want[fmt.Sprint(e.Target, sources[e.Source%5], []string{"/a", "/b"}[e.Request])]++
	}
	for _, perConnection := range []int{1, Unlimited} {
		p.RequestsPerConnection = perConnection
		began.Store(time.Now().UnixNano())
		r := mustRun(t, p)
		if r.Replies != 300 || r.Loop != "trace" || r.Scheduled != 300 {
			t.Fatalf("%d replies of %d, loss %+v", r.Replies, r.Scheduled, r.Loss)
		}
		if all := got.take(); !maps.Equal(all, want) {
			t.Errorf("%d per connection: asked for %v, want %v", perConnection, all, want)
		}
		if d := r.WindowSeconds; d < 0.597 || d > 0.6 || r.AskedRate < 499 || r.AskedRate > 505 {
			t.Errorf("window %g s at %g/s", d, r.AskedRate)
		}
	}
	if n := early.take(); len(n) > 0 {
		t.Errorf("requests came early: %v", n)
	}
	p.Duration, p.Warmup = 200*time.Millisecond, 100*time.Millisecond
	if r := mustRun(t, p); r.Scheduled != 100 || r.Replies != 100 || r.AskedRate != 500 {
		t.Errorf("cut short: %d scheduled at %g/s, %d replies", r.Scheduled, r.AskedRate, r.Replies)
	}
}

// Without source addresses the clients are numbered, so that one source stays
// in one namespace.
func TestTraceWithoutSources(t *testing.T) {
	p := Plan{Target: closedPort(t), Clients: make([]Client, 3), Path: "/{client}"}
	for i := range 30 {
		p.Trace = append(p.Trace, Event{Source: int32(i)})
	}
	p = p.withDefaults()
	for me := range 3 {
		d := newDeal(p, me)
		n := 0
		for _, more := d.peek(0); more; _, more = d.peek(0) {
			if a, _ := d.take(); int(a.n)%3 != me || a.source != anyone {
				t.Errorf("client %d got event %d from source %d", me, a.n, a.source)
			}
			n++
		}
		if n != 10 {
			t.Errorf("client %d got %d events", me, n)
		}
	}
}

func TestTraceErrors(t *testing.T) {
	for want, change := range map[string]func(*Plan){
		"event 1 comes before":     func(p *Plan) { p.Trace[0].At = 1 },
		"event 1: source -1":       func(p *Plan) { p.Trace[1].Source = -1 },
		"event 1: request 1":       func(p *Plan) { p.Trace[1].Request = 1 },
		"event 0: target 1":        func(p *Plan) { p.Trace[0].Target = 1 },
		"give no connections":      func(p *Plan) { p.Connections = 1 },
		"give one of rate":         func(p *Plan) { p.Concurrency = 1 },
		"only users":               func(p *Plan) { p.Think = 1 },
		"want 1 or more":           func(p *Plan) { p.RequestsPerConnection = -2 },
		"exponents -1 and 0: want": func(p *Plan) { p.TargetsExponent = -1 },
	} {
		p := Plan{Target: closedPort(t), Trace: make([]Event, 2)}
		change(&p)
		if err := p.withDefaults().validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
