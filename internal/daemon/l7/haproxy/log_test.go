// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"strings"
	"testing"

	"imbang/internal/daemon/l7"
)

// No control character of a client is in a line, which terminals would obey.
func TestLogIsPrintable(t *testing.T) {
	p := newPlace(t)
	p.counters(t, servers(1), 0)
	control := func(line string) bool {
		return strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 })
	}
	for _, m := range []struct {
		format string
		http2  bool
	}{{"combined", true}, {"combined", false}, {"json", true}} {
		format := m.format
		r, stop := p.start(t, web(servers(1), func(l *l7.Listener, _ *l7.Backend) { l.Log, l.HTTP2 = &l7.Log{Format: format}, m.http2 }), nil, nil)
		for _, one := range []string{"\x1b[2J", "\x7f", "\xc2\x9b", "\x08\x01", "\t", "\x00"} {
			q := p.requests(t, "", at)
			if _, err := q.send("/", fmt.Sprintf("User-Agent: before%safter\r\nReferer: %s\r\n", one, one)); (err != nil) != (one == "\x00") { // which is refused
				t.Fatal(err)
			}
			q.Close()
			if line, err := r.logs.ReadString('\n'); err != nil || format == "combined" && control(line) || !strings.Contains(line, "before") || strings.ContainsAny(line, "\x1b\x7f\x08\x01\x00") {
				t.Errorf("%s: %q: %q, %v", format, one, line, err)
			}
			// Methods and targets of HTTP/2 are refused, or in the line without.
			for _, field := range [][2]string{{":path", "/x" + one}, {":method", "GE" + one}, {":authority", "a" + one}} {
				fields := [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a.example"}}
				for i := range fields {
					if fields[i][0] == field[0] {
						fields[i] = field
					}
				}
				if m.http2 {
					p.http2(t, fields)
				}
			}
			q = p.requests(t, "", at)
			if _, err := q.send("/last", ""); err != nil {
				t.Fatal(err)
			}
			q.Close()
			for {
				line, err := r.logs.ReadString('\n')
				if err != nil || strings.ContainsAny(line, "\x1b\x7f\x08\x01\x00") || format == "combined" && control(line) {
					t.Errorf("%s: %q: %q, %v", format, one, line, err)
				}
				if err != nil || strings.Contains(line, "/last") {
					break
				}
			}
		}
		stop()
	}
}
