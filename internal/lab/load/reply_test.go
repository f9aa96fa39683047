// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"strings"
	"testing"
)

// outcome is what a parsed stream came to.
type outcome struct {
	done, bad                         bool
	status                            uint16
	header, content, trailing, interm int64
	server                            string
}

// parse feeds pieces and then the end of the stream.
func parse(pieces ...string) outcome {
	n := newNames("X-Server")
	var r reply
	r.reset()
	var o outcome
	for _, p := range pieces {
		done, err := r.feed([]byte(p), n)
		if err != nil {
			return outcome{bad: true}
		}
		if o.done = done; done {
			break
		}
	}
	o.done = r.eof()
	o.status, o.header, o.content, o.trailing = r.status, r.header, r.content, r.trailing
	o.interm = int64(r.interim)
	if r.server != noServer {
		o.server = n.list[r.server]
	}
	return o
}

// replies are streams and what they come to.
var replies = []struct {
	name, in string
	want     outcome
}{
	{"length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Server: a\r\n\r\nhello",
		outcome{done: true, status: 200, header: 51, content: 5, server: "a"}},
	{"any case and space", "HTTP/1.1 200 OK\r\ncontent-LENGTH:  5 \r\nx-server:\ta b \r\n\r\nhello",
		outcome{done: true, status: 200, header: 56, content: 5, server: "a b"}},
	{"bare LF", "HTTP/1.0 404 No\nContent-Length: 1\n\nx", outcome{done: true, status: 404, header: 35, content: 1}},
	{"no reason", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", outcome{done: true, status: 200, header: 35}},
	{"short", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", outcome{status: 200, header: 38, content: 5}},
	{"excess ignored", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello",
		outcome{done: true, status: 200, header: 38, content: 2}},
	{"until close", "HTTP/1.1 500 Oh\r\nServer: n\r\n\r\nhello", outcome{done: true, status: 500, header: 30, content: 5}},
	{"close in the head", "HTTP/1.1 200 OK\r\nContent-Le", outcome{status: 200, header: 27}},
	{"nothing", "", outcome{}},
	{"204", "HTTP/1.1 204 No Content\r\n\r\n", outcome{done: true, status: 204, header: 27}},
	{"304 has a length but no body", "HTTP/1.1 304 NM\r\nContent-Length: 9\r\n\r\n",
		outcome{done: true, status: 304, header: 38}},
	{"interim", "HTTP/1.1 103 Early\r\nX-Server: b\r\nContent-Length: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
		outcome{done: true, status: 200, header: 92, content: 1, interm: 1}},
	{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=1\r\n0123456789\r\n0\r\nT: v\r\n\r\n",
		outcome{done: true, status: 200, header: 47, content: 15, trailing: 25}},
	{"chunked wins over length", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
		outcome{done: true, status: 200, header: 73, content: 1, trailing: 10}},
	{"chunked cut short", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", outcome{status: 200, header: 47, content: 3, trailing: 3}},
	{"other coding until close", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nzz", outcome{done: true, status: 200, header: 44, content: 2}},
	{"same length twice", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
		outcome{done: true, status: 200, header: 57, content: 1}},
	{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", outcome{bad: true}},
	{"bad length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", outcome{bad: true}},
	{"huge length", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", outcome{bad: true}},
	{"empty length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", outcome{bad: true}},
	{"bad chunk size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", outcome{bad: true}},
	{"huge chunk size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", outcome{bad: true}},
	{"bad chunk end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", outcome{bad: true}},
	{"not HTTP", "SSH-2.0-OpenSSH_9.2p1\r\n", outcome{bad: true}},
	{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", outcome{bad: true}},
	{"bad status", "HTTP/1.1 2x0 OK\r\n\r\n", outcome{bad: true}},
	{"status beyond 599", "HTTP/1.1 600 OK\r\n\r\n", outcome{bad: true}},
	{"long line", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", maxLine) + "\r\n\r\n", outcome{bad: true}},
	{"longest line", "HTTP/1.1 204 OK\r\nX: " + strings.Repeat("y", maxLine-3) + "\r\n\r\n",
		outcome{done: true, status: 204, header: 17 + maxLine + 4}},
	{"endless head", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", maxHead/6), outcome{bad: true}},
}

func TestReply(t *testing.T) {
	for _, tc := range replies {
		if got := parse(tc.in); got != tc.want {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.name, got, tc.want)
		}
	}
}

// A reply means the same wherever the network cuts it.
func TestReplyCutAnywhere(t *testing.T) {
	for _, tc := range replies {
		if len(tc.in) > 1000 {
			continue
		}
		for i := range tc.in {
			if got := parse(tc.in[:i], tc.in[i:]); got != tc.want {
				t.Fatalf("%s cut at %d:\n got %+v\nwant %+v", tc.name, i, got, tc.want)
			}
		}
		if got := parse(strings.Split(tc.in, "")...); got != tc.want {
			t.Errorf("%s byte by byte:\n got %+v\nwant %+v", tc.name, got, tc.want)
		}
	}
}

func FuzzReply(f *testing.F) {
	for i, tc := range replies {
		f.Add(tc.in, i, i*7)
	}
	f.Fuzz(func(t *testing.T, in string, a, b int) {
		whole := parse(in)
		cut := func(i int) int { return int(uint(i) % uint(len(in)+1)) }
		i, j := cut(a), cut(b)
		if i > j {
			i, j = j, i
		}
		if got := parse(in[:i], in[i:j], in[j:]); got != whole {
			t.Fatalf("cut at %d and %d: %+v, whole: %+v", i, j, got, whole)
		}
		if n := whole.header + whole.content + whole.trailing; n > int64(len(in)) {
			t.Fatalf("counted %d bytes of %d", n, len(in))
		}
		if whole.done && (whole.status < 101 || whole.status > 599) {
			t.Fatalf("complete with status %d", whole.status)
		}
	})
}

func TestReplyDoesNotAllocate(t *testing.T) {
	in, n := []byte(replies[0].in), newNames("X-Server")
	var r reply
	parse := func() {
		r.reset()
		if done, err := r.feed(in, n); !done || err != nil {
			t.Fatal(done, err)
		}
	}
	parse() // learns the name
	if a := testing.AllocsPerRun(1000, parse); a != 0 {
		t.Errorf("%g allocations per reply", a)
	}
}

func TestNamesAreBounded(t *testing.T) {
	n := newNames("x-request-id")
	for i := range 3 * maxNames {
		n.index(fmt.Appendf(nil, "id-%d", i))
	}
	if len(n.list) != maxNames+1 || n.list[maxNames] != otherName {
		t.Errorf("%d names kept, last %q", len(n.list), n.list[len(n.list)-1])
	}
	if n.index([]byte("id-5")) != 5 || n.index(nil) != noServer {
		t.Error("known and empty names are misnumbered")
	}
}
