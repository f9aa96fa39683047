// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 net/http has no server that changes to HTTP/2 at a client's request

package haproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"

	"imbang/internal/daemon/l7"
)

// recorder is a server that keeps the bytes of each connection, and replies whenever nothing more
// has come for a moment: it takes no stand on where a request ends.
type recorder struct {
	mu    sync.Mutex
	conns []*bytes.Buffer
}

func (r *recorder) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		var b bytes.Buffer
		r.mu.Lock()
		r.conns = append(r.conns, &b)
		r.mu.Unlock()
		go func() {
			defer c.Close()
			part := make([]byte, 64<<10)
			for {
				_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				n, err := c.Read(part)
				r.mu.Lock()
				b.Write(part[:n])
				some := b.Len() > 0
				r.mu.Unlock()
				timeout, is := err.(net.Error)
				switch {
				case is && timeout.Timeout() && some:
					if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"); err != nil {
						return
					}
					time.Sleep(50 * time.Millisecond)
					return
				case is && timeout.Timeout():
				case err != nil:
					return
				}
			}
		}()
	}
}

// take returns what has come, by connection, and forgets it.
func (r *recorder) take() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.conns {
		if b.Len() > 0 {
			all = append(all, b.String())
		}
	}
	r.conns = nil
	return all
}

// judge reads the bytes that a server got as one that goes by the length, and as one that goes by
// the coding: they must agree, on requests that nothing is wrong with. It returns their targets.
func judge(text string) (targets []string, err error) {
	for _, one := range []string{"\x00", "\r\n ", "\r\n\t"} {
		if head, _, _ := strings.Cut(text, "\r\n\r\n"); strings.Contains(head, one) {
			return nil, fmt.Errorf("the head has %q", one)
		}
	}
	for text != "" {
		head, rest, found := strings.Cut(text, "\r\n\r\n")
		if !found {
			return targets, fmt.Errorf("it ends within a head: %q", text)
		}
		lines := strings.Split(head, "\r\n")
		if strings.Contains(strings.Join(lines, ""), "\n") || strings.Contains(strings.Join(lines, ""), "\r") {
			return targets, fmt.Errorf("the head has a bare CR or LF: %q", head)
		}
		words := strings.Split(lines[0], " ")
		if len(words) != 3 || words[2] != "HTTP/1.1" {
			return targets, fmt.Errorf("the request line is %q", lines[0])
		}
		targets = append(targets, words[1])
		var lengths, codings []string
		for _, line := range lines[1:] {
			name, value, found := strings.Cut(line, ":")
			if !found || name != strings.TrimSpace(name) || name == "" {
				return targets, fmt.Errorf("the header line is %q", line)
			}
			switch strings.ToLower(name) {
			case "content-length":
				lengths = append(lengths, strings.TrimSpace(value))
			case "transfer-encoding":
				codings = append(codings, strings.TrimSpace(value))
			}
		}
		switch {
		case len(lengths)+len(codings) > 1:
			return targets, fmt.Errorf("lengths %q and codings %q", lengths, codings)
		case len(codings) == 1:
			if !strings.EqualFold(codings[0], "chunked") {
				return targets, fmt.Errorf("the coding is %q", codings[0])
			}
			if rest, err = unchunk(rest); err != nil {
				return targets, err
			}
		case len(lengths) == 1:
			n, err := strconv.Atoi(lengths[0])
			if err != nil || n < 0 || strconv.Itoa(n) != lengths[0] {
				return targets, fmt.Errorf("the length is %q", lengths[0])
			}
			rest = rest[min(n, len(rest)):] // the client has sent less
		}
		text = rest
	}
	return targets, nil
}

// unchunk is what follows a chunked body, or nothing if that is not whole.
func unchunk(text string) (string, error) {
	for {
		line, rest, found := strings.Cut(text, "\r\n")
		if !found {
			return "", nil
		}
		n, err := strconv.ParseUint(line, 16, 31)
		if err != nil {
			return "", fmt.Errorf("the chunk's size is %q", line)
		}
		if n == 0 {
			_, rest, _ = strings.Cut("\r\n"+rest, "\r\n\r\n") // trailers
			return rest, nil
		}
		if uint64(len(rest)) < n+2 {
			return "", nil
		}
		if rest[n:n+2] != "\r\n" {
			return "", fmt.Errorf("a chunk of %d bytes ends with %q", n, rest[n:n+2])
		}
		text = rest[n+2:]
	}
}

// Requests that two readers could understand in two ways: a server gets none of them, and no more
// requests than were sent.
func TestSmuggling(t *testing.T) {
	const (
		host     = "Host: web.example\r\n"
		post     = "POST /first HTTP/1.1\r\n" + host
		smuggled = "GET /smuggled HTTP/1.1\r\n" + host + "\r\n"
		chunks   = "1\r\nx\r\n0\r\n\r\n"
		chunked  = "Transfer-Encoding: chunked\r\n"
	)
	length := func(body string) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)) }
	// What comes behind is sent as the body of the reader that goes the other way.
	probes := map[string]string{
		"both, length first":                  post + length(chunks+smuggled) + chunked + "\r\n" + chunks + smuggled,
		"both, coding first":                  post + chunked + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"both, a short length":                post + "Content-Length: 4\r\n" + chunked + "\r\n" + "5c\r\n" + smuggled + "\r\n0\r\n\r\n",
		"two lengths":                         post + "Content-Length: 0\r\n" + length(smuggled) + "\r\n" + smuggled,
		"two lengths, the other way":          post + length(smuggled) + "Content-Length: 0\r\n\r\n" + smuggled,
		"a list of lengths":                   post + "Content-Length: 0, " + strconv.Itoa(len(smuggled)) + "\r\n\r\n" + smuggled,
		"a length with a sign":                post + "Content-Length: +0\r\n\r\n" + smuggled,
		"a negative length":                   post + "Content-Length: -1\r\n\r\n" + smuggled,
		"a hexadecimal length":                post + "Content-Length: 0x0\r\n\r\n" + smuggled,
		"a huge length":                       post + "Content-Length: 18446744073709551616\r\n\r\n" + smuggled,
		"an empty length":                     post + "Content-Length:\r\n\r\n" + smuggled,
		"a length and a letter":               post + "Content-Length: 0a\r\n\r\n" + smuggled,
		"a length with a space within":        post + "Content-Length: 1 0\r\n\r\n" + smuggled,
		"a space before the colon of length":  post + "Content-Length : " + strconv.Itoa(len(smuggled)) + "\r\n\r\n" + smuggled,
		"a space before the colon of coding":  post + "Transfer-Encoding : chunked\r\n" + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"a tab before the colon of coding":    post + "Transfer-Encoding\t: chunked\r\n" + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"an unknown coding":                   post + "Transfer-Encoding: xchunked\r\n" + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"chunked, identity":                   post + "Transfer-Encoding: chunked, identity\r\n" + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"identity":                            post + "Transfer-Encoding: identity\r\n" + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"chunked twice":                       post + chunked + chunked + "\r\n" + chunks + smuggled,
		"chunked twice in a list":             post + "Transfer-Encoding: chunked, chunked\r\n\r\n" + chunks + smuggled,
		"two codings":                         post + chunked + "Transfer-Encoding: x\r\n" + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"two codings, the other way":          post + "Transfer-Encoding: x\r\n" + chunked + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"a coding with a vertical tab":        post + "Transfer-Encoding: \x0bchunked\r\n" + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"a coding in quotes":                  post + "Transfer-Encoding: \"chunked\"\r\n" + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"a coding on a folded line":           post + "Transfer-Encoding:\r\n chunked\r\n" + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"a folded header":                     post + "X-Folded: a\r\n Content-Length: 5\r\nContent-Length: 0\r\n\r\n" + smuggled,
		"a folded first line":                 "GET /first HTTP/1.1\r\n Host: x\r\n" + host + "\r\n" + smuggled,
		"a length behind a bare LF":           post + "X: a\nContent-Length: " + strconv.Itoa(len(smuggled)) + "\r\n\r\n" + smuggled,
		"a head that ends with bare LF":       "POST /first HTTP/1.1\nHost: web.example\n" + "Content-Length: 0\n\n" + smuggled,
		"a length behind a bare CR":           post + "X: a\rContent-Length: " + strconv.Itoa(len(smuggled)) + "\r\n\r\n" + smuggled,
		"a NUL in a value":                    post + "X: a\x00b\r\n\r\n" + smuggled,
		"a NUL in a name":                     post + "Content-Length\x00: " + strconv.Itoa(len(smuggled)) + "\r\n\r\n" + smuggled,
		"a NUL in the path":                   "GET /fi\x00rst HTTP/1.1\r\n" + host + "\r\n" + smuggled,
		"a chunk's size with a sign":          post + chunked + "\r\n+1\r\nx\r\n0\r\n\r\n" + smuggled,
		"a chunk's size with a prefix":        post + chunked + "\r\n0x1\r\nx\r\n0\r\n\r\n" + smuggled,
		"a chunk's size that overflows":       post + chunked + "\r\n100000000000000000\r\nx\r\n0\r\n\r\n" + smuggled,
		"a chunk's size ended by a bare LF":   post + chunked + "\r\n1\nx\r\n0\r\n\r\n" + smuggled,
		"a chunk that ends with a bare LF":    post + chunked + "\r\n1\r\nx\n0\r\n\r\n" + smuggled,
		"an extension with a bare LF":         post + chunked + "\r\n1;a\n\r\nx\r\n0\r\n\r\n" + smuggled,
		"a chunk that is longer than said":    post + chunked + "\r\n1\r\nxy\r\n0\r\n\r\n" + smuggled,
		"a version that is too new":           "GET /first HTTP/1.11\r\n" + host + "\r\n" + smuggled,
		"HTTP/1.0 with a coding":              "POST /first HTTP/1.0\r\n" + host + chunked + length(chunks+smuggled) + "\r\n" + chunks + smuggled,
		"no version":                          "GET /first\r\n" + smuggled,
		"a space in the target":               "GET /first /smuggled HTTP/1.1\r\n" + host + "\r\n",
		"two hosts":                           "GET /first HTTP/1.1\r\n" + host + "Host: other\r\n\r\n" + smuggled,
		"a body of GET without a length":      "GET /first HTTP/1.1\r\n" + host + chunked + "Connection: Transfer-Encoding\r\n\r\n" + chunks + smuggled,
		"a length that Connection names":      post + length("x") + "Connection: Content-Length\r\n\r\nx" + smuggled,
		"a line of a header without a colon":  post + "Content-Length 5\r\n\r\n" + smuggled,
		"an empty name of a header":           post + ": chunked\r\n\r\n" + smuggled,
		"a space before the first header":     "GET /first HTTP/1.1\r\n Content-Length: 5\r\n" + host + "\r\n" + smuggled,
		"a preface of HTTP/2 in the middle":   post + length("x") + "\r\nxPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"an upgrade to HTTP/2 with a request": "GET /first HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
	}
	if len(probes) < 40 {
		t.Fatalf("%d probes", len(probes))
	}
	p := newPlace(t)
	all := servers(1)
	r := &recorder{}
	go r.serve(p.listen(t, all[0].Address.String()))
	for _, http2 := range []bool{false, true} {
		_, stop := p.start(t, web(all, func(l *l7.Listener, b *l7.Backend) {
			l.HTTP2 = http2
			l.Timeouts.Request, l.Timeouts.Client = time.Second, time.Second
			b.Timeouts.Server = 2 * time.Second
		}), nil, nil)
		for name, text := range probes {
			// One after the other: nothing else distinguishes the server's connections.
			c, err := p.dial("", at)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, text)
			_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			reply, _ := io.ReadAll(c)
			c.Close()
			// Where a request ends, another one of the client may follow, on a connection of its own:
			// HAProxy sends none before the reply, and the server ends each connection with that.
			for _, got := range r.take() {
				targets, err := judge(got)
				if err != nil {
					t.Errorf("HTTP/2 %v: %s: %v; the server got\n%q\nand the client\n%q", http2, name, err, got, reply)
				}
				if len(targets) > 1 {
					t.Errorf("HTTP/2 %v: %s: the server got requests for %s at once:\n%q", http2, name, targets, got)
				}
			}
		}
		stop()
	}
}

// What is judged as ambiguous is.
func TestJudge(t *testing.T) {
	for text, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\n\r\n":                                        "[/ /b]",
		"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nGET":                                                 "[/]",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nGET /b HTTP/1.1\r\n\r\n": "[/ /b]",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n":                      "lengths",
		"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n":                               "lengths",
		"GET / HTTP/1.1\r\nX: a\n\r\n\r\n":                                                                "bare",
		"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n":                                                            "the head has",
		"GET / HTTP/1.1\r\nX : a\r\n\r\n":                                                                 "the header line",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n":                       "the chunk's size",
		"POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n":                                          "the coding",
	} {
		targets, err := judge(text)
		got := fmt.Sprint(targets)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) && !strings.Contains(got, want) {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// A server that changes to HTTP/2 in a connection of HTTP/1 would get requests that no listener has seen.
func TestUpgradeToHTTP2(t *testing.T) {
	p := newPlace(t)
	all := servers(1)
	upgrades := make(chan http.Header, 100)
	server := &http.Server{Handler: h2c.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upgrades <- r.Header
		io.WriteString(w, r.Proto)
	}), &http2.Server{})}
	go server.Serve(p.listen(t, all[0].Address.String()))
	t.Cleanup(func() { server.Close() })
	p.start(t, web(all, func(l *l7.Listener, _ *l7.Backend) { l.HTTP2 = true }), nil, nil)
	send := func(t *testing.T, upgrade string) string {
		c, err := p.dial("", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n", upgrade)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			return resp.Status // there is no request yet
		}
		return fmt.Sprint(resp.StatusCode, <-upgrades)
	}
	for _, upgrade := range []string{"Upgrade: h2c\r\n", "uPGRADE:H2C\r\n", "Upgrade: websocket, h2c\r\n", "Upgrade: websocket\r\nUpgrade: h2c\r\n", "Upgrade: x,h2c\r\n"} {
		if got := send(t, upgrade); !strings.HasPrefix(got, "200") || strings.Contains(got, "Upgrade:") {
			t.Errorf("%q: %s", upgrade, got)
		}
	}
	for _, upgrade := range []string{"websocket", "SPDY/3.1", "h2cx"} {
		if got := send(t, "Upgrade: "+upgrade+"\r\n"); !strings.Contains(got, "Upgrade:["+upgrade+"]") {
			t.Errorf("%s: %s", upgrade, got)
		}
	}
}
