// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
)

const total = 10_000

// spread sends requests over connections at the same time, and returns the replies by
// server.
func (r *process) spread(t *testing.T, connections, total int) map[string]int {
	t.Helper()
	var next atomic.Int64
	var mu sync.Mutex
	shares := map[string]int{}
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			q := r.requests(t, "", at)
			defer q.Close()
			mine := map[string]int{}
			for next.Add(1) <= int64(total) {
				s, err := q.send("/", "")
				if err != nil {
					t.Error(err)
					return
				}
				mine[s]++
			}
			mu.Lock()
			defer mu.Unlock()
			for s, n := range mine {
				shares[s] += n
			}
		})
	}
	wg.Wait()
	return shares
}

// expect compares shares of requests with those of weights, within a tolerance in requests.
func expect(t *testing.T, total int, shares map[string]int, weights []int, tolerance float64) {
	t.Helper()
	sum := 0
	for _, w := range weights {
		sum += w
	}
	all := 0
	for i, w := range weights {
		n := shares[fmt.Sprintf("s%d", i+1)]
		all += n
		if w == 0 && n > 0 {
			t.Errorf("server %d got %d requests, expected none", i+1, n)
		}
		if want := float64(total) * float64(w) / float64(sum); math.Abs(float64(n)-want) > tolerance {
			t.Errorf("server %d of weight %d got %d requests of %d, expected %.0f within %.0f", i+1, w, n, total, want, tolerance)
		}
	}
	if all != total {
		t.Errorf("%d of %d requests have a reply", all, total)
	}
}

// sigma is the standard deviation of a server's requests where chance or hashes choose it: of the
// choice, and of its share of the ring, where HAProxy places it at 16 points for each unit of weight.
func sigma(total, weight, sum, choices int) float64 {
	p := float64(weight) / float64(sum)
	return float64(total) * math.Sqrt(p*(1-p)/float64(choices)+p*p*(1-p)/float64(16*weight))
}

// leave takes a server out, which the others' shares have to make up for at once.
func (r *process) leave(t *testing.T, server string) {
	t.Helper()
	if said := r.command(t, "set server web/"+server+" state maint"); said != "" {
		t.Fatal(said)
	}
}

// Shares by method and weight, also after a server has left.
func TestBalance(t *testing.T) {
	p := newPlace(t)
	t.Run("roundrobin", func(t *testing.T) {
		weights := []int{3, 2, 1}
		p.counters(t, servers(weights...), 0)
		r, _ := p.start(t, web(servers(weights...), nil), nil, nil)
		// No server is more than one round ahead of its share.
		expect(t, total, r.spread(t, 1, total), weights, 3)
		r.leave(t, "s1")
		expect(t, total/5, r.spread(t, 1, total/5), []int{0, 2, 1}, 3)
	})
	t.Run("roundrobin without weights", func(t *testing.T) {
		p.counters(t, servers(1, 1, 1), 0)
		r, _ := p.start(t, web(servers(1, 1, 1), nil), nil, nil)
		expect(t, total/5, r.spread(t, 4, total/5), []int{1, 1, 1}, 4) // whatever connection they come by
	})
	t.Run("leastconn", func(t *testing.T) {
		weights := []int{2, 1, 1}
		all := p.counters(t, servers(weights...), 10*time.Millisecond) // longer than a busy machine adds
		all[1].wait.Store(int64(40 * time.Millisecond))                // gets as many at a time, so fewer in all
		r, _ := p.start(t, web(servers(weights...), func(_ *l7.Listener, b *l7.Backend) { b.Method = l7.LeastConn }), nil, nil)
		const connections = 12
		r.spread(t, connections, total/5)
		sent := 0
		for i, c := range all {
			sent += int(c.requests.Load())
			// Requests that are open are in proportion to the weights.
			if most := c.most.Load(); most > int64(connections*weights[i]/4+1) {
				t.Errorf("server %d of weight %d had %d requests of %d at the same time", i+1, weights[i], most, connections)
			}
		}
		if sent != total/5 {
			t.Errorf("the servers got %d requests of %d", sent, total/5)
		}
		// As many at a time, each for four times as long: a quarter, but for the time that HAProxy takes.
		if slow, fast := all[1].requests.Load(), all[2].requests.Load(); slow > fast*2/3 || slow < fast/6 {
			t.Errorf("a server that takes 4 times as long got %d requests, the other one of its weight %d", slow, fast)
		}
		r.leave(t, "s1")
		all[1].wait.Store(int64(10 * time.Millisecond))
		before := all[0].requests.Load()
		if shares := r.spread(t, connections, total/5); shares["s1"] > 0 || all[0].requests.Load() != before || shares["s2"] < total/5*2/5 || shares["s3"] < total/5*2/5 {
			t.Errorf("without s1, the shares of two that are equal are %v", shares)
		}
	})
	t.Run("random", func(t *testing.T) {
		weights := []int{100, 50, 50}
		all := p.counters(t, servers(weights...), 0)
		r, _ := p.start(t, web(servers(weights...), func(_ *l7.Listener, b *l7.Backend) { b.Method, b.Timeouts.Server = l7.Random, time.Hour }), nil, nil)
		// Without other requests both draws are idle: the first one counts.
		expect(t, total, r.spread(t, 1, total), weights, 4*sigma(total, 100, 200, total))
		// Of two draws the less busy one: a busy server gets what drew it twice.
		all[0].wait.Store(int64(time.Hour))
		held := hold(t, r, all[0], 30)
		before := all[0].requests.Load()
		for i := range 3 {
			all[i].requests.Store(0)
		}
		all[0].wait.Store(0)
		shares := r.spread(t, 1, total)
		held()
		if share := float64(shares["s1"]) / total; share < 0.20 || share > 0.31 {
			t.Errorf("a busy server of half of the weight got %.3f of the requests, expected 0.25 (%d before)", share, before)
		}
		r.leave(t, "s1")
		expect(t, total/5, r.spread(t, 1, total/5), []int{0, 50, 50}, 4*sigma(total/5, 50, 100, total/5))
	})
	t.Run("first", func(t *testing.T) {
		all := servers(1, 1, 1)
		for i := range all {
			all[i].MaxConnections = 2
		}
		counters := p.counters(t, all, 0)
		r, _ := p.start(t, web(all, func(_ *l7.Listener, b *l7.Backend) { b.Method = l7.First }), nil, nil)
		if shares := r.spread(t, 2, total); shares["s1"] != total {
			t.Errorf("the first server has room, but the shares are %v", shares)
		}
		for _, c := range counters {
			c.wait.Store(int64(time.Millisecond))
		}
		shares := r.spread(t, 4, total/10)
		if shares["s2"] == 0 || shares["s3"] > total/1000 || counters[0].most.Load() > 2 || counters[1].most.Load() > 2 {
			t.Errorf("4 requests at a time fill the first two servers, but the shares are %v", shares)
		}
		r.leave(t, "s1")
		if shares := r.spread(t, 1, total/10); shares["s2"] != total/10 {
			t.Errorf("without the first server, the shares are %v", shares)
		}
	})
}

// hold sends n requests that the server does not reply to, and returns when it has them.
func hold(t *testing.T, r *process, server *counter, n int64) (end func()) {
	t.Helper()
	r.command(t, "set server web/s2 state maint")
	r.command(t, "set server web/s3 state maint")
	var conns []*requests
	for range n {
		q := r.requests(t, "", at)
		conns = append(conns, q)
		fmt.Fprint(q, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	for end := time.Now().Add(time.Minute); server.busy.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the server has %d requests", server.busy.Load())
		}
	}
	r.command(t, "set server web/s2 state ready")
	r.command(t, "set server web/s3 state ready")
	return func() {
		for _, q := range conns {
			q.Close()
		}
	}
}

// Hashes: a key keeps its server; weights hold; when a server leaves, only its keys move, and
// they come back with it.
func TestHash(t *testing.T) {
	p := newPlace(t)
	weights := []int{100, 200, 100}
	p.counters(t, servers(weights...), 0)
	const keys = total / 10
	for _, m := range []struct {
		method l7.Method
		// ask sends the n-th request of the key-th client.
		ask func(r *process, q *requests, key, n int) (string, error)
	}{
		{l7.Source, func(_ *process, q *requests, _, n int) (string, error) { return q.send(fmt.Sprintf("/%d", n), "") }},
		{l7.URI, func(_ *process, q *requests, key, n int) (string, error) {
			return q.send(fmt.Sprintf("/page/%d?q=%d", key, n), "")
		}},
		{l7.Header, func(_ *process, q *requests, key, n int) (string, error) {
			return q.send(fmt.Sprintf("/%d", n), fmt.Sprintf("X-User: user%d\r\n", key))
		}},
	} {
		t.Run(string(m.method), func(t *testing.T) {
			place := func(states l7.States, without string, each int) (of [keys]string, shares map[string]int) {
				all := slices.DeleteFunc(servers(weights...), func(s l7.Server) bool { return s.Name == without })
				r, stop := p.start(t, web(all, func(_ *l7.Listener, b *l7.Backend) {
					b.Method, b.Header = m.method, "X-User"
				}), states, nil)
				defer stop()
				shares = map[string]int{}
				for key := range keys {
					q := r.requests(t, fmt.Sprintf("127.7.%d.%d", key/200, key%200+1), at)
					for n := range each {
						s, err := m.ask(r, q, key, n)
						if err != nil {
							t.Fatal(err)
						}
						if n > 0 && s != of[key] {
							t.Fatalf("key %d is at %s, then at %s", key, of[key], s)
						}
						of[key] = s
						shares[s]++
					}
					q.Close()
				}
				return of, shares
			}
			before, shares := place(nil, "", total/keys)
			expect(t, total, shares, weights, 4*sigma(total, 200, 400, keys))
			left := l7.States{{Backend: "web", Server: "s1"}: {Health: l7.Down, Weight: 100}}
			for how, after := range map[string]func() ([keys]string, map[string]int){
				"is dead":    func() ([keys]string, map[string]int) { return place(left, "", 1) },
				"is removed": func() ([keys]string, map[string]int) { return place(nil, "s1", 1) },
			} {
				is, _ := after()
				moved, gone := 0, map[string]int{}
				for key := range keys {
					switch {
					case before[key] == "s1":
						gone[is[key]]++
					case before[key] != is[key]:
						moved++
					}
				}
				if moved > 0 || gone["s1"] > 0 {
					t.Errorf("s1 %s: %d keys of other servers moved; its own went to %v", how, moved, gone)
				}
				// The others get its keys by their weights.
				n := float64(gone["s2"] + gone["s3"])
				if most := 4 * (math.Sqrt(n*2/9) + sigma(int(n), 100, 300, 1<<30)); math.Abs(float64(gone["s3"])-n/3) > most {
					t.Errorf("s1 %s: of its %.0f keys, %d went to s3, expected a third within %.0f", how, n, gone["s3"], most)
				}
			}
			if back, _ := place(nil, "", 1); back != before {
				t.Error("keys do not come back with s1")
			}
		})
	}
}
