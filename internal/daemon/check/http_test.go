// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"imbang/internal/testenv"
)

// speak answers every request of every connection with a text; a connection ends after
// a text that says so. connections counts them.
func speak(t *testing.T, text string) (addr string, connections *atomic.Int32) {
	t.Helper()
	connections = new(atomic.Int32)
	ends := strings.Contains(text, "Connection: close") || strings.HasPrefix(text, "HTTP/1.0")
	addr = listen(t, func(c net.Conn) {
		connections.Add(1)
		for r := bufio.NewReader(c); ; {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			if _, err := io.WriteString(c, text); err != nil || ends {
				return
			}
		}
	})
	return addr, connections
}

func TestHTTPConnections(t *testing.T) {
	const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	large := "HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\nwelcome" + strings.Repeat("z", 3000000-len("welcome"))
	two := func(r Request) *HTTP { return &HTTP{Requests: []Request{r, r}} }
	for _, c := range []struct {
		name, text  string
		spec        *HTTP
		ok          bool
		detail      string
		connections int32
	}{
		{"kept", empty, two(Request{}), true, "status 200", 1},
		{"kept, with a body", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nwelcome", two(Request{Expect: "welcome"}), true, "status 200", 1},
		{"kept, in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nwelcome\r\n0\r\n\r\n", two(Request{}), true, "status 200", 1},
		{"closed", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", two(Request{}), true, "status 200", 2},
		{"closed, without a length", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwelcome", two(Request{Expect: "^welcome$"}), true, "status 200", 2},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\nwelcome", two(Request{Expect: "^welcome$"}), true, "status 200", 2},
		{"large, not read", large, two(Request{}), true, "status 200", 2},
		{"large, matches", large, two(Request{Expect: "^welcome"}), true, "status 200", 2},
		{"closed, and one request", "HTTP/1.0 200 OK\r\n\r\n", &HTTP{}, true, "status 200", 1},
		{"truncated", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nwelcome!!\r\n", two(Request{}), false, "/: malformed chunked encoding", 1},
		{"early hints", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + empty, two(Request{}), true, "status 200", 1},
		{"continue, twice", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 2) + empty, two(Request{}), true, "status 200", 1},
		{"other protocol", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", &HTTP{}, false, "/: status 101, want 200-399", 1},
		{"hints without end", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 4000), &HTTP{}, false, "/: the head of the reply is longer than 64 KiB", 1},
	} {
		addr, connections := speak(t, c.text)
		expectOf(t, c.name, c.spec, addr, c.ok, c.detail)
		if n := connections.Load(); n != c.connections {
			t.Errorf("%s: %d connections, want %d", c.name, n, c.connections)
		}
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") }))
	s.Config.SetKeepAlivesEnabled(false)
	s.StartTLS()
	t.Cleanup(s.Close)
	expectOf(t, "closed, by TLS", &HTTP{TLS: &ClientTLS{}, Requests: []Request{{Expect: "welcome"}, {Expect: "welcome"}}}, s.Listener.Addr().String(), true, "status 200")
	first := listenOnce(t, "HTTP/1.0 200 OK\r\n\r\n")
	expectOf(t, "gone after the first", two(Request{}), first, false, "connection refused")
}

// A server may close a connection after any reply, without a word (RFC 9112, 9.3.1): the next request is
// sent on another one. One that closes each connection before it replies has failed.
func TestHTTPClosedUnannounced(t *testing.T) {
	two := &HTTP{Requests: []Request{{Path: "/a"}, {Path: "/b", Method: "POST", Body: "x"}}}
	for _, c := range []struct {
		name, path, reply string
		ok                bool
		detail            string
		connections       int32
	}{
		{"after a reply", "/", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true, "status 200", 2},
		{"after a reply that is too long", "/", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok, and more", true, "status 200", 2},
		{"before the second reply", "/a", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false, "/b: the server closed the connection", 2},
		{"before the first reply", "/c", "", false, "/a: the server closed the connection", 1},
	} {
		var connections atomic.Int32
		addr := listen(t, func(c2 net.Conn) {
			connections.Add(1)
			if q, err := http.ReadRequest(bufio.NewReader(c2)); err == nil && strings.HasPrefix(q.URL.Path, c.path) {
				_, _ = io.WriteString(c2, c.reply)
			}
		})
		expectOf(t, c.name, two, addr, c.ok, c.detail)
		if n := connections.Load(); n != c.connections {
			t.Errorf("%s: %d connections, want %d", c.name, n, c.connections)
		}
	}
}

// A head counts if its first line has a status, and without a valid length the connection ends the body.
// keepalived and ldirectord accept such replies, too.
func TestHTTPHeads(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, c := range []struct{ head, body, detail string }{
		{"ICY 200 OK\r\nicy-name: x\r\n", "ok", ""},
		{"http/1.1 200 OK\r\nContent-Length: 2\r\n", "ok", ""},
		{"HTTP/2.0 200\r\nContent-Length: 2\r\n", "ok", ""},
		{ok + "no colon\r\nContent-Length: 2\r\n", "ok", ""},
		{ok + "Content-Length 5\r\nContent-Length: 2\r\n", "ok", ""},
		{ok + ": x\r\nContent-Length : 2\r\n", "ok", ""},
		{ok + "X: \x01\x02\xff\x00\r\n\xef\xbb\xbfY: z\r\nContent-Length: 2\r\n", "ok", ""},
		{ok + "X: y\r\n Content-Length: 5\r\nContent-Length: 2\r\n", "ok", ""},
		{ok + "Transfer-Encoding: identity\r\n", "ok", ""},
		{ok + "Transfer-Encoding: Identity\r\nContent-Length: 2\r\n", "ok and more", ""},
		{ok + "Transfer-Encoding: gzip, chunked\r\n", "2\r\nok\r\n0\r\n\r\n", ""},
		{ok + "Transfer-Encoding: CHUNKED\r\nContent-Length: 9\r\n", "2\r\nok\r\n0\r\n\r\n", ""},
		{ok + "Content-Length: abc\r\n", "ok", ""},
		{ok + "Content-Length: -1\r\n", "ok", ""},
		{ok + "Content-Length:\r\n", "ok", ""},
		{ok + "Content-Length: 2\r\nContent-Length: 2\r\n", "ok and more", ""},
		{ok + "Content-Length: 1\r\nContent-Length: 3\r\n", "ok", ""},
		{"HTTP/1.1 200 OK\nContent-Length: 2\n", "ok", ""},
		{"SSH-2.0-x\r\n", "ok", `/: malformed HTTP status line: "SSH-2.0-x"`},
		{"HTTP/1.1 OK 200\r\n", "ok", "/: malformed HTTP"},
		{"HTTP/1.1 099 OK\r\n", "ok", "/: malformed HTTP"},
		{"HTTP/1.1 2000 OK\r\n", "ok", "/: malformed HTTP"},
		{"\r\n", "ok", "/: malformed HTTP"},
		{ok + "Content-Length: 3\r\n", "ok", "/: the server closed the connection"},
		{ok + "Transfer-Encoding: chunked\r\n", "2\r\nokk\r\n", "/: malformed chunked encoding"},
	} {
		addr := listen(t, func(conn net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, c.head+"\r\n"+c.body)
			}
		})
		detail := c.detail
		if detail == "" {
			detail = "status 200"
		}
		two := &HTTP{Requests: []Request{{Expect: "^ok$"}, {Expect: "^ok$"}}}
		expectOf(t, fmt.Sprintf("%q", c.head), two, addr, c.detail == "", detail)
	}
}

// net/http accepts every head that readHead does.
func FuzzHead(f *testing.F) {
	f.Add("ICY 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: gzip, chunked\r\nConnection: x, close\r\n\r\n")
	f.Add("HTTP/1.1 304 x\nContent-Length : 99999999999999999999\n: y\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		status, head, err := readHead(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		reply, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head)), nil)
		if err != nil || reply.StatusCode != status {
			t.Errorf("%q: %q: %v", text, head, err)
		}
	})
}

// listenOnce answers the first request with a text, and stops listening before that.
func listenOnce(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := l.Accept()
		l.Close()
		if err == nil {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, _ = io.WriteString(c, text)
			c.Close()
		}
	}()
	return l.Addr().String()
}

// A check takes no longer than it has to: not until the end of a body that nothing is
// expected of, and not after its timeout.
func TestHTTPTime(t *testing.T) {
	endless := listen(t, func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for ; err == nil; _, err = io.WriteString(c, "1\r\nx\r\n") {
			time.Sleep(10 * time.Millisecond)
		}
	})
	letters, _ := speak(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 1<<20, strings.Repeat("x", 1<<20)))
	for _, c := range []struct {
		name    string
		request Request
		addr    string
		timeout time.Duration
		ok      bool
		detail  string
	}{
		{"endless body", Request{}, endless, ample, true, "status 200"},
		{"expensive expression", Request{Expect: "[a-z]{1,400}OK"}, letters, 300 * time.Millisecond, false, "/: timeout"},
	} {
		checker, err := (&HTTP{Requests: []Request{c.request}}).Checker()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
		begin, stalls := time.Now(), testenv.WatchStalls(t)
		r := checker.Check(ctx, Target{Addr: netip.MustParseAddrPort(c.addr)})
		took := time.Since(begin)
		cancel()
		expect(t, c.name, r, c.ok, c.detail)
		if took > time.Second+2*stalls.Longest() {
			t.Errorf("%s: took %s", c.name, took)
		}
	}
}

// Long texts are matched as short ones are.
func TestMatches(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		expression, text string
		found, whenEnded bool
	}{
		{"^a+b$", "aaab", true, true},
		{"^a+b$", strings.Repeat("a", 1<<20) + "b", true, false},
		{"^a+$", strings.Repeat("a", 1<<20) + "b", false, false},
		{"b", strings.Repeat("ä\xff", 1<<19), false, false},
	} {
		e := regexp.MustCompile(c.expression)
		if found, err := matches(t.Context(), e, strings.NewReader(c.text)); found != c.found || err != nil {
			t.Errorf("%s: %v, %v", c.expression, found, err)
		}
		found, err := matches(ended, e, strings.NewReader(c.text))
		if (err == nil) != c.whenEnded || err == nil && found != c.found {
			t.Errorf("%s, after the end of the context: %v, %v", c.expression, found, err)
		}
	}
}
