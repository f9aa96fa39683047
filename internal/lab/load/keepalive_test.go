// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestKeepAlive(t *testing.T) {
	for _, tc := range []struct {
		name        string
		p           Plan
		connections [2]int // at least and at most
	}{
		// One reply is back long before the next request on any machine
		// that works; the bounds leave room for hiccups.
		{"open, four each", Plan{Rate: 300, Connections: 240, RequestsPerConnection: 4}, [2]int{60, 75}},
		{"open, unlimited", Plan{Rate: 300, Connections: 240, RequestsPerConnection: Unlimited}, [2]int{1, 20}},
		{"closed, four each", Plan{Concurrency: 8, Connections: 240, RequestsPerConnection: 4}, [2]int{60, 67}},
		{"closed, unlimited", Plan{Concurrency: 8, Connections: 240, RequestsPerConnection: Unlimited}, [2]int{1, 8}},
		{"closed, sources", Plan{Concurrency: 8, Connections: 240, RequestsPerConnection: Unlimited,
			Clients: []Client{{Sources: loopbacks(4)}, {Sources: loopbacks(4)}}}, [2]int{1, 8}},
	} {
		for _, closing := range []Closing{ServerFirst, ClientFirst} {
			t.Run(fmt.Sprint(tc.name, closing), func(t *testing.T) {
				attempts(t, func() error {
					return keepsAlive(t, tc.p, closing, tc.connections)
				})
			})
		}
	}
}

// keepsAlive runs a plan against a server that keeps connections; its error is another number of
// connections than is wanted, at least and at most.
func keepsAlive(t *testing.T, p Plan, closing Closing, connections [2]int) error {
	t.Helper()
	var mu sync.Mutex
	longest, closes := 0, 0
	p.Target = serveMany(t, "127.0.0.1:0", func(a asked) string {
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, a.nth+1)
		if a.Close {
			closes++
		}
		return kept
	})
	p.Closing = closing
	r := mustRun(t, p)
	if r.Replies != 240 || r.Bytes.Content != 240*5 || r.Repeated != 0 {
		t.Fatalf("%d replies, bytes %+v, %d repeated, loss %+v", r.Replies, r.Bytes, r.Repeated, r.Loss)
	}
	if n := r.Connections; n < connections[0] || n > connections[1] {
		return fmt.Errorf("%d connections, want %v", n, connections)
	}
	mu.Lock()
	defer mu.Unlock()
	if k := p.RequestsPerConnection; k > 0 && (longest != k || closes > r.Connections) {
		t.Errorf("up to %d requests on a connection, %d asked to close", longest, closes)
	}
	if r.Generator.Requests != 240 || r.Generator.Connections != r.Connections {
		t.Errorf("generator counts %d requests, %d connections", r.Generator.Requests, r.Generator.Connections)
	}
	return nil
}

// loopbacks are n addresses of this machine.
func loopbacks(n int) (list []netip.Addr) {
	for i := range n {
		list = append(list, netip.AddrFrom4([4]byte{127, 2, byte(i), 1}))
	}
	return list
}

// A server that says close, or speaks HTTP/1.0, is not sent another request
// on that connection.
func TestServerWantsToClose(t *testing.T) {
	for name, reply := range map[string]string{
		"close":       strings.Replace(kept, "X-Server", "Connection: Close\r\nX-Server", 1),
		"among":       strings.Replace(kept, "X-Server", "Connection: Upgrade , close\r\nX-Server", 1),
		"old":         strings.Replace(kept, "HTTP/1.1", "HTTP/1.0", 1),
		"excess":      kept + "more",
		"until close": "HTTP/1.1 200 OK\r\n\r\nhello",
	} {
		target := serveMany(t, "127.0.0.1:0", func(a asked) string {
			if a.nth > 0 {
				return "not again"
			}
			return reply
		})
		if name == "until close" {
			target = serve(t, "127.0.0.1:0", always(reply))
		}
		r := mustRun(t, Plan{Target: target, Rate: 500, Connections: 50, RequestsPerConnection: Unlimited,
			Linger: 100 * time.Millisecond})
		if r.Replies != 50 || r.Connections != 50 {
			t.Errorf("%s: %d replies on %d connections, loss %+v", name, r.Replies, r.Connections, r.Loss)
		}
	}
	old := strings.Replace(kept, "HTTP/1.1 200 OK", "HTTP/1.0 200 OK\r\nConnection: keep-alive", 1)
	target := serveMany(t, "127.0.0.1:0", func(asked) string { return old })
	r := mustRun(t, Plan{Target: target, Concurrency: 2, Connections: 50, RequestsPerConnection: Unlimited})
	if r.Replies != 50 || r.Connections > 2 {
		t.Errorf("old and kept: %d replies on %d connections, loss %+v", r.Replies, r.Connections, r.Loss)
	}
}

// A server may close a connection while the next request is on its way. Such
// a request is sent once more if that is safe, and counts once.
func TestRepeatedOnAFreshConnection(t *testing.T) {
	serveThree := func(t *testing.T) netip.AddrPort {
		return serveMany(t, "127.0.0.1:0", func(a asked) string {
			if a.nth == 3 {
				return "" // having read the request, as a crossing close would
			}
			return kept
		})
	}
	p := Plan{Target: serveThree(t), Concurrency: 2, Connections: 90, RequestsPerConnection: Unlimited}
	r := mustRun(t, p)
	if r.Replies != 90 || r.Issued != 90 || r.Repeated < 25 || r.Repeated > 30 {
		t.Errorf("GET: %d replies, %d issued, %d repeated, loss %+v", r.Replies, r.Issued, r.Repeated, r.Loss)
	}
	p.Requests = []Request{{Method: "POST", Body: "x"}}
	r = mustRun(t, p)
	if r.Repeated != 0 || r.Loss.Truncated+r.Loss.Reset < 20 || r.Replies+r.Loss.Total() != 90 {
		t.Errorf("POST: %d replies, %d repeated, loss %+v", r.Replies, r.Repeated, r.Loss)
	}
	// The first request of a connection has no such excuse.
	p.Requests, p.Target = nil, serveMany(t, "127.0.0.1:0", func(asked) string { return "" })
	if r = mustRun(t, p); r.Repeated != 0 || r.Loss.Truncated+r.Loss.Reset != 90 {
		t.Errorf("never answered: %d repeated, loss %+v", r.Repeated, r.Loss)
	}
}

// An idle connection that the server closes is not used again.
func TestParkedConnectionIsClosed(t *testing.T) {
	target := serve(t, "127.0.0.1:0", always(kept)) // closes without saying so
	r := mustRun(t, Plan{Target: target, Rate: 100, Connections: 30, RequestsPerConnection: Unlimited})
	if r.Replies != 30 || r.Loss.Total() != 0 || r.Connections < 25 {
		t.Errorf("%d replies on %d connections, %d repeated, loss %+v", r.Replies, r.Connections, r.Repeated, r.Loss)
	}
}
