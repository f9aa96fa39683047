// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// A server that expects the PROXY protocol gets its header in checks, too, with no client in it.
func TestProxyHeader(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	heads := make(chan string, 10)
	const longest = 16
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				head := make([]byte, longest)
				n := longest - 1 // PROXY UNKNOWN\r\n
				if _, err := io.ReadFull(c, head[:n]); err == nil && head[0] == '\r' {
					_, _ = io.ReadFull(c, head[n:])
					n++
				}
				heads <- string(head[:n])
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
		}
	}()
	checker, err := (&HTTP{}).Checker()
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[int]string{1: "PROXY UNKNOWN\r\n", 2: "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"} {
		r := checker.Check(t.Context(), Target{Addr: l.Addr().(*net.TCPAddr).AddrPort(), Proxy: version})
		if got := <-heads; got != want || !r.OK {
			t.Errorf("version %d: the server gets %q, and the check is %+v", version, got, r)
		}
	}
}
