// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The timeout is one of the whole check: a server that sends a bit of its reply now and then, or a
// reply without end, fails it.
func TestTrickle(t *testing.T) {
	// slowly sends a text, after the head of a request, some bytes each 50 ms; then zeros.
	slowly := func(text string, n int) func(net.Conn) {
		return func(c net.Conn) {
			text, buffer := text, make([]byte, 4096)
			if _, err := c.Read(buffer); err != nil {
				return
			}
			for {
				piece := make([]byte, n)
				text = text[copy(piece, text):]
				if _, err := c.Write(piece); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
	endless := func(head string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_, err := io.WriteString(c, head)
			for err == nil {
				_, err = io.WriteString(c, strings.Repeat("x", 1000))
			}
		}
	}
	const head = "HTTP/1.1 200 OK\r\n\r\n"
	body := &HTTP{Requests: []Request{{Expect: "welcome"}}}
	for _, c := range []struct {
		name   string
		serve  func(net.Conn)
		spec   Spec
		detail string
	}{
		{"head", slowly("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("y", 1000), 10), &HTTP{}, "/: timeout"},
		{"body", slowly(head, len(head)), body, "/: timeout"},
		{"endless line", endless("HTTP/1.1 200 OK\r\nX: "), &HTTP{}, "/: the head of the reply is longer than 64 KiB"},
		{"endless body", endless(head), body, `/: the body does not match "welcome" (16777216 bytes read)`},
		{"endless body with a digest", endless(head), &HTTP{Requests: []Request{{Digest: strings.Repeat("0", 32)}}}, "/: the body is longer than 16 MiB"},
		{"handshake", slowly("\x16\x03\x03\x3f\x00", 5), &TLS{}, "TLS handshake: timeout"},
		{"handshake of HTTPS", slowly("\x16\x03\x03\x3f\x00", 5), &HTTP{TLS: &ClientTLS{}}, "TLS handshake: timeout"},
		{"greeting", func(c net.Conn) {
			for _, err := c.Write([]byte("2")); err == nil; _, err = c.Write([]byte("2")) {
				time.Sleep(50 * time.Millisecond)
			}
		}, &TCP{Expect: "220 "}, `connected, but received no match of "220 ": timeout`},
	} {
		begin := time.Now()
		expectOf(t, c.name, c.spec, listen(t, c.serve), false, c.detail)
		if took := time.Since(begin); took > 30*time.Second { // of a brief timeout: a trickle would last for ever
			t.Errorf("%s: took %s", c.name, took)
		}
	}
}
