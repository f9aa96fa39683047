// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// page is the reply of the plain test server.
const page = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Server: s1\r\nConnection: close\r\n\r\nhello"

// serve runs a TCP server on a loopback address until the test ends. answer
// gets each connection, numbered, with its request already read.
func serve(t testing.TB, address string, answer func(n int, c *net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("listen on %s: %v", address, err)
	}
	serveOn(t, l, answer)
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func serveOn(t testing.TB, l net.Listener, answer func(n int, c *net.TCPConn)) {
	var count atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				if !readRequest(c) {
					return
				}
				answer(int(count.Add(1))-1, c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
}

// readRequest reads to the end of the request's head.
func readRequest(c net.Conn) bool {
	buf := make([]byte, 0, 1024)
	for !bytes.HasSuffix(buf, []byte("\r\n\r\n")) {
		n, err := c.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil {
			return false
		}
	}
	return true
}

// always answers every connection with text.
func always(text string) func(int, *net.TCPConn) {
	return func(_ int, c *net.TCPConn) { c.Write([]byte(text)) }
}

// silent keeps each connection until the client closes it.
func silent(_ int, c *net.TCPConn) { c.Read(make([]byte, 1)) }

// closedPort is a loopback address nothing listens on.
func closedPort(t *testing.T) netip.AddrPort {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// mustRun runs a plan and checks what holds for every result.
func mustRun(t testing.TB, p Plan) *Result {
	t.Helper()
	r, err := Run(context.Background(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkAccount(t, r)
	if r.Unfinished != 0 {
		t.Errorf("%d unfinished in a run that was not cancelled", r.Unfinished)
	}
	if p.Connections > 0 && r.Scheduled != p.Connections {
		t.Errorf("scheduled %d of %d", r.Scheduled, p.Connections)
	}
	return r
}

// checkAccount holds the result to its word: every arrival ends exactly once.
func checkAccount(t testing.TB, r *Result) {
	t.Helper()
	if got := r.Replies + r.Loss.Total() + r.Unfinished; got != r.Scheduled {
		t.Errorf("%d arrivals end %d times: %d replies, loss %+v, %d unfinished",
			r.Scheduled, got, r.Replies, r.Loss, r.Unfinished)
	}
	servers := r.UnknownServer
	for _, n := range r.PerServer {
		servers += n
	}
	finals := r.Status.Success + r.Status.Redirect + r.Status.ClientError + r.Status.ServerError
	for name, n := range map[string]int{
		"per server": servers, "by status": finals, "first byte times": int(r.FirstByte.Count),
		"response times": int(r.Response.Count), "service times": int(r.Service.Count),
	} {
		if n != r.Replies {
			t.Errorf("%d replies, but %s %d", r.Replies, name, n)
		}
	}
	if r.Connect.Count < int64(r.Replies) || r.Connect.Count > int64(r.Issued) {
		t.Errorf("%d connect times with %d issued and %d replies", r.Connect.Count, r.Issued, r.Replies)
	}
}

// openDescriptors counts this process's descriptors.
func openDescriptors(t testing.TB) int {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// over counts the times above d in a distribution.
func over(t *testing.T, l Latency, d time.Duration) int {
	t.Helper()
	h, err := l.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, b := range h.Distribution() {
		if b.From >= int64(d) {
			n += int(b.Count)
		}
	}
	return n
}
