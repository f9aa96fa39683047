// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// brief is for checks that end by their timeout.
const brief = 300 * time.Millisecond

// expectOf runs a check against an address and compares its result. If that is not by the timeout,
// a busy machine has time for it; if it is, the check is repeated if it did not get that far.
func expectOf(t *testing.T, name string, s Spec, addr string, ok bool, detail string) Result {
	t.Helper()
	timeout := ample
	if strings.Contains(detail, "timeout") || strings.HasPrefix(detail, "no reply") {
		timeout = brief
	}
	r := runWithin(t, timeout, s, addr)
	if timeout == brief && !strings.HasPrefix(r.Detail, detail) {
		r = runWithin(t, 10*time.Second, s, addr)
	}
	expect(t, name, r, ok, detail)
	return r
}

// runWithin has a timeout.
func runWithin(t *testing.T, timeout time.Duration, s Spec, addr string) Result {
	t.Helper()
	if p := s.Problems(); len(p) > 0 {
		t.Fatalf("%+v: %v", s, p)
	}
	c, err := s.Checker()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return c.Check(ctx, Target{Addr: netip.MustParseAddrPort(addr)})
}

// expect compares a result with how its detail has to begin.
func expect(t *testing.T, name string, r Result, ok bool, detail string) {
	t.Helper()
	if r.OK != ok || !strings.HasPrefix(r.Detail, detail) || strings.Contains(r.Detail, "\n") {
		t.Errorf("%s: %v %q, want %v %q...", name, r.OK, r.Detail, ok, detail)
	}
}

// listen serves connections until the test ends.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// A check whose connection says nothing of the server says nothing, and changes nothing.
func TestInconclusive(t *testing.T) {
	dial := func(context.Context, netip.AddrPort) (net.Conn, error) {
		return nil, fmt.Errorf("%w: there is no director", ErrInconclusive)
	}
	for name, spec := range map[string]Spec{"tcp": &TCP{}, "tls": &TLS{}, "http": &HTTP{}} {
		c, err := spec.Checker()
		if err != nil {
			t.Fatal(err)
		}
		r := c.Check(t.Context(), Target{Addr: netip.MustParseAddrPort("127.0.0.1:1"), Dial: dial})
		if !r.Inconclusive || r.OK || r.Detail != "not checked: there is no director" {
			t.Errorf("%s: %+v", name, r)
		}
		timing := Timing{Rise: 1, Fall: 1}
		for _, v := range []Verdict{Unknown, Up, Down} {
			if s, changed := timing.Next(State{Verdict: v}, r, time.Now()); changed || s.Verdict != v || s.Row != 0 || s.Fails != 0 {
				t.Errorf("%s, %s: %+v", name, v, s)
			}
		}
	}
}

func TestTCP(t *testing.T) {
	silent := listen(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) })
	banner := listen(t, func(c net.Conn) { fmt.Fprint(c, "220 ready\r\n"); _, _ = c.Read(make([]byte, 1)) })
	flood := listen(t, func(c net.Conn) {
		for _, err := c.Write(make([]byte, 1<<16)); err == nil; _, err = c.Write(make([]byte, 1<<16)) {
		}
	})
	closed := listen(t, func(net.Conn) {})
	expectOf(t, "connect", &TCP{}, silent, true, "connected in ")
	expectOf(t, "send", &TCP{Send: "PING\r\n"}, silent, true, "connected and sent in ")
	expectOf(t, "banner", &TCP{Expect: "220 "}, banner, true, "connected and received the expected text in ")
	expectOf(t, "beginning", &TCP{Expect: "^220 "}, banner, true, "connected and received the expected text in ")
	expectOf(t, "not at the beginning", &TCP{Expect: "^ready"}, banner, false, `connected, but received no match of "^ready": timeout; received "220 ready\r\n"`)
	expectOf(t, "anything", &TCP{Expect: ".*"}, closed, false, `connected, but received no match of ".*": the server closed the connection`)
	expectOf(t, "silent", &TCP{Expect: "220 "}, silent, false, `connected, but received no match of "220 ": timeout; received ""`)
	expectOf(t, "other", &TCP{Expect: "221 "}, banner, false, `connected, but received no match of "221 ": timeout; received "220 ready\r\n"`)
	expectOf(t, "flood", &TCP{Expect: "220 "}, flood, false, `connected, but received no match of "220 ": it is not in the first 4096 bytes`)
	expectOf(t, "closed", &TCP{Expect: "220 "}, closed, false, `connected, but received no match of "220 ": the server closed the connection`)
	expectOf(t, "refused", &TCP{}, "127.0.0.1:1", false, "connection refused")
}

func TestHTTP(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("Bearer x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "host %s, %s", r.Host, r.Header.Get("X")) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/secret", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer x" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	mux.HandleFunc("/post", func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 10)
		n, _ := r.Body.Read(b)
		fmt.Fprintf(w, "%s %s", r.Method, b[:n])
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		for range 64 {
			_, _ = w.Write(make([]byte, 1<<16))
		}
		fmt.Fprint(w, "end")
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	addr := s.Listener.Addr().String()
	head := listen(t, func(c net.Conn) {
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n")
		for _, err := fmt.Fprint(c, "A: "+strings.Repeat("b", 1000)+"\r\n"); err == nil; _, err = fmt.Fprint(c, "A: "+strings.Repeat("b", 1000)+"\r\n") {
		}
	})
	nonsense := listen(t, func(c net.Conn) { fmt.Fprint(c, "SSH-2.0-x\r\n\r\n"); _, _ = c.Read(make([]byte, 512)) })
	one := func(r Request) *HTTP { return &HTTP{Requests: []Request{r}} }
	for _, c := range []struct {
		name   string
		spec   *HTTP
		addr   string
		ok     bool
		detail string
	}{
		{"default", &HTTP{}, addr, true, "status 200 in "},
		{"host", &HTTP{Host: "www.example.org", Headers: map[string]string{"X": "y"}, Requests: []Request{{Expect: "^host www.example.org, y$"}}}, addr, true, "status 200"},
		{"redirect", one(Request{Path: "/moved"}), addr, true, "status 302 in "},
		{"redirect refused", one(Request{Path: "/moved", Status: "200-299,304"}), addr, false, "/moved: status 302, want 200-299,304"},
		{"broken", one(Request{Path: "/broken"}), addr, false, "/broken: status 503, want 200-399"},
		{"expected 503", one(Request{Path: "/broken", Status: "503"}), addr, true, "status 503"},
		{"two", &HTTP{Requests: []Request{{Path: "/moved"}, {Path: "/", Expect: "host"}}}, addr, true, "status 200"},
		{"second fails", &HTTP{Requests: []Request{{Path: "/"}, {Path: "/broken"}}}, addr, false, "/broken: status 503"},
		{"body", one(Request{Expect: "welcome"}), addr, false, `/: the body does not match "welcome" (22 bytes read)`},
		{"digest", one(Request{Path: "/post", Method: "POST", Body: "a", Digest: "6B41ACDFAFFFA5BC3AB5A83CB9E15F50"}), addr, false, "/post: the body's MD5 digest is "},
		{"post", one(Request{Path: "/post", Method: "POST", Body: "abc", Expect: "^POST abc$"}), addr, true, "status 200"},
		{"secret", &HTTP{Secrets: map[string]string{"Authorization": secret}, Requests: []Request{{Path: "/secret"}}}, addr, true, "status 200"},
		{"no secret", one(Request{Path: "/secret"}), addr, false, "/secret: status 401"},
		{"large digest", one(Request{Path: "/large", Digest: "d65bea59c1b4d3fb215d9e0b13ec8789"}), addr, true, "status 200"},
		{"other large digest", one(Request{Path: "/large", Digest: strings.Repeat("0", 32)}), addr, false, "/large: the body's MD5 digest is d65bea59c1b4d3fb215d9e0b13ec8789, want 0000"},
		{"large regexp", one(Request{Path: "/large", Expect: "\\x00end$"}), addr, true, "status 200"},
		{"large regexp and digest", one(Request{Path: "/large", Expect: "\\x00", Digest: "d65bea59c1b4d3fb215d9e0b13ec8789"}), addr, true, "status 200"},
		{"other large regexp", one(Request{Path: "/large", Expect: "END$"}), addr, false, `/large: the body does not match "END$"`},
		{"slow", one(Request{Path: "/slow", Expect: "x"}), addr, false, "/slow: timeout"},
		{"endless head", &HTTP{}, head, false, "/: the head of the reply is longer than 64 KiB"},
		{"no HTTP", &HTTP{}, nonsense, false, "/: malformed HTTP"},
		{"refused", &HTTP{}, "127.0.0.1:1", false, "connection refused"},
		{"TLS to plain", &HTTP{TLS: &ClientTLS{}}, addr, false, "TLS handshake: "},
	} {
		expectOf(t, c.name, c.spec, c.addr, c.ok, c.detail)
	}
}

func TestHTTPS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.TLS.ServerName) }))
	t.Cleanup(s.Close)
	addr := s.Listener.Addr().String()
	expectOf(t, "plain", &HTTP{TLS: &ClientTLS{}}, addr, true, "status 200")
	expectOf(t, "name", &HTTP{TLS: &ClientTLS{ServerName: "x.example"}, Requests: []Request{{Expect: "^x.example$"}}}, addr, true, "status 200")
	expectOf(t, "verified", &HTTP{TLS: &ClientTLS{ServerName: "x.example", Verify: true}}, addr, false, "TLS handshake: tls: failed to verify certificate: x509: ")
	expectOf(t, "HTTP to TLS", &HTTP{}, addr, false, "/: status 400")
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{&TCP{Expect: "+PONG"}, "expect: \"+PONG\" is not a regular expression: missing argument to repetition operator: `+`; \\ before a sign takes it literally"},
		{&HTTP{Requests: []Request{{Path: "health"}}}, `requests[0].path: "health": want a path that begins with /, such as /health`},
		{&HTTP{Requests: []Request{{}, {Method: "BREW"}}}, `requests[1].method: "BREW": want GET, HEAD, POST or OPTIONS`},
		{&HTTP{Requests: []Request{{Status: "2xx"}}}, `requests[0].status: "2xx": want statuses from 100 to 599, such as 200, 200-299 or 200,301`},
		{&HTTP{Requests: []Request{{Status: "299-200"}}}, `requests[0].status: "299-200": want statuses from 100 to 599, such as 200, 200-299 or 200,301`},
		{&HTTP{Requests: []Request{{Expect: "("}}}, "requests[0].expect: \"(\" is not a regular expression: missing closing ): `(`; \\ before a sign takes it literally"},
		{&HTTP{Requests: []Request{{Digest: "abc"}}}, `requests[0].digest: "abc": want 32 hexadecimal digits, as md5sum prints`},
		{&HTTP{Requests: []Request{{Method: "HEAD", Expect: "x"}}}, `requests[0].method: a reply to HEAD has no body: remove expect and digest, or write GET`},
		{&HTTP{Headers: map[string]string{"A b": "c"}}, `headers: "A b": want a name without spaces and colons, and one line`},
		{&HTTP{Headers: map[string]string{"host": "www.example.org"}}, "headers.host: use host, beside headers"},
		{&HTTP{Headers: map[string]string{"Transfer-Encoding": "chunked"}}, "headers.Transfer-Encoding: imbang sets it: remove it"},
		{&HTTP{Secrets: map[string]string{"Connection": "/c"}}, "secrets.Connection: imbang sets it: remove it"},
		{&HTTP{Secrets: map[string]string{"A b": "/c"}}, `secrets: "A b": want a name without spaces and colons, and one line`},
		{&HTTP{TLS: &ClientTLS{Cert: "c"}}, "tls.cert: a client certificate requires both cert and key"},
		{&HTTP{TLS: &ClientTLS{CA: "c"}}, "tls.ca: is used only to verify: write verify: true, or remove it"},
		{&HTTP{TLS: &ClientTLS{Verify: true}}, "tls.server_name: missing: verify requires the name that the certificate has"},
	} {
		got := c.spec.Problems()
		if len(got) != 1 || got[0].Key+": "+got[0].Text != c.want {
			t.Errorf("%v, want %q", got, c.want)
		}
	}
}

func TestState(t *testing.T) {
	timing := Timing{Interval: 10, Fast: 1, Rise: 2, Fall: 3, Initial: Up}
	s := timing.Begin(time.Unix(0, 0))
	var verdicts, waits []string
	for i, ok := range []bool{false, false, true, false, false, false, true, false, true, true} {
		var changed bool
		s, changed = timing.Next(s, Result{OK: ok}, time.Unix(int64(i), 0))
		mark := s.Verdict.String()
		if changed {
			mark += "!"
		}
		verdicts = append(verdicts, mark)
		waits = append(waits, fmt.Sprint(int(timing.Wait(s))))
	}
	if got, want := strings.Join(verdicts, " "), "up up up up up down! down down down up!"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := strings.Join(waits, " "), "1 1 10 1 1 10 1 10 1 10"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if s.Runs != 10 || s.Fails != 6 || s.Since != time.Unix(9, 0) {
		t.Errorf("%+v", s)
	}
	// An inconclusive result decides nothing, and keeps what is under way.
	for _, verdict := range []Verdict{Unknown, Up, Down} {
		known := State{Verdict: verdict, Since: time.Unix(1, 0), Row: 1, Last: Result{OK: true}, Runs: 7, Fails: 3, Withheld: 50, Command: Drain}
		lack := Result{Detail: "too many open files", Inconclusive: true}
		want := known
		want.Last, want.At, want.Runs = lack, time.Unix(2, 0), 8
		if s, changed := timing.Next(known, lack, time.Unix(2, 0)); changed || s != want {
			t.Errorf("%+v, %v, want %+v", s, changed, want)
		}
	}
	// Nothing is known: the first result decides.
	for _, ok := range []bool{true, false} {
		if s, changed := timing.Next(State{}, Result{OK: ok}, time.Unix(1, 0)); !changed || s.Verdict == Unknown {
			t.Errorf("%+v, %v", s, changed)
		}
	}
}
