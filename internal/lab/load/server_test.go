// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
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

// serveRaw is serve with the request unread.
func serveRaw(t testing.TB, address string, answer func(n int, c *net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("listen on %s: %v", address, err)
	}
	acceptAll(t, l, answer)
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func serveOn(t testing.TB, l net.Listener, answer func(n int, c *net.TCPConn)) {
	acceptAll(t, l, func(n int, c *net.TCPConn) {
		if readRequest(c) {
			answer(n, c)
		}
	})
}

func acceptAll(t testing.TB, l net.Listener, answer func(n int, c *net.TCPConn)) {
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

// asked is a request as a server saw it.
type asked struct {
	*http.Request
	body string
	conn int // number of its connection
	nth  int // on its connection, from 0
	peer netip.Addr
}

// serveMany answers any number of requests on each connection with what
// answer returns; an empty text closes it.
func serveMany(t testing.TB, address string, answer func(asked) string) netip.AddrPort {
	return serveRaw(t, address, func(n int, c *net.TCPConn) {
		in := bufio.NewReader(c)
		for nth := 0; ; nth++ {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			text := answer(asked{r, string(body), n, nth, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()})
			if text == "" {
				return
			}
			c.Write([]byte(text))
			if r.Close {
				return
			}
		}
	})
}

// kept is page on a connection that stays.
const kept = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Server: s1\r\n\r\nhello"

// always answers every connection with text.
func always(text string) func(int, *net.TCPConn) {
	return func(_ int, c *net.TCPConn) { c.Write([]byte(text)) }
}

// silent keeps each connection until the client closes it.
func silent(_ int, c *net.TCPConn) { c.Read(make([]byte, 1)) }

// closedPort is a loopback address nothing listens on, also not a test that runs beside.
func closedPort(*testing.T) netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:1") }

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
	if n := r.Connect.Count; n > int64(r.Connections) || (n < int64(r.Replies) && r.RequestsPerConnection == 1) {
		t.Errorf("%d connect times with %d connections and %d replies", n, r.Connections, r.Replies)
	}
	if r.RequestsPerConnection == 1 && r.Connections != r.Issued {
		t.Errorf("%d connections for %d requests", r.Connections, r.Issued)
	}
	checkNames(t, r)
}

// checkNames holds the names to their sum.
func checkNames(t testing.TB, r *Result) {
	t.Helper()
	if len(r.Requests) == 0 {
		return
	}
	var sum RequestResult
	for _, n := range r.Requests {
		sum.Scheduled += n.Scheduled
		sum.Replies += n.Replies
		sum.Lost += n.Lost
		sum.Unfinished += n.Unfinished
		sum.Status.Success += n.Status.Success
		sum.Status.Redirect += n.Status.Redirect
		sum.Status.ClientError += n.Status.ClientError
		sum.Status.ServerError += n.Status.ServerError
		if int(n.Response.Count) != n.Replies || n.Lost < 0 {
			t.Errorf("%s: %d replies, %d times, %d lost", n.Name, n.Replies, n.Response.Count, n.Lost)
		}
	}
	want := RequestResult{Scheduled: r.Scheduled, Replies: r.Replies, Lost: r.Loss.Total(), Unfinished: r.Unfinished, Status: r.Status}
	sum.Status.Informational = r.Status.Informational
	if sum != want {
		t.Errorf("the names add up to %+v, want %+v", sum, want)
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
