// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"exit status 3: größer", "exit status 3: größer"},
		{"\x00\x1b[31mred\r\n\ttab\x7f", "??[31mred???tab?"},
		{"cut: \xc3", "cut: ?"},
		{"right to left \u202e, no break \u00a0, C1 \u009b", "right to left ?, no break ?, C1 ?"},
		{strings.Repeat("x", 60000), strings.Repeat("x", 200)},
		{strings.Repeat("x", 199) + "ö", strings.Repeat("x", 199)},
		{strings.Repeat("x", 198) + "ö", strings.Repeat("x", 198) + "ö"},
		{strings.Repeat("\xff", 300), strings.Repeat("?", 200)},
	} {
		if got := printable(c.text); got != c.want {
			t.Errorf("%.80q: %q, want %q", c.text, got, c.want)
		}
	}
}

// What servers, agents and scripts send is in details only as printable text.
func TestDetailIsPrintable(t *testing.T) {
	header := listen(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 512))
		fmt.Fprint(c, "HTTP/1.1\x00\x1b[31m"+strings.Repeat("y", 60000)+"\r\n\r\n")
	})
	says := func(text string) string {
		return listen(t, func(c net.Conn) { _, _ = io.WriteString(c, text) })
	}
	for _, c := range []struct {
		name   string
		spec   Spec
		addr   string
		ok     bool
		detail string
	}{
		{"header", &HTTP{}, header, false, "/: malformed HTTP status line: "},
		{"agent is up", &Agent{}, says("up #\x00\x1b[2J\n"), true, "agent: up #??[2J in "},
		{"agent is down", &Agent{}, says("down #\xff\u202e\n"), false, "agent: down #?? in "},
		{"agent says much", &Agent{}, says("up #" + strings.Repeat("ö", 500) + "\n"), true, "agent: up #ööö"},
		{"script", &Script{Command: []string{"/usr/bin/printf", `a\033[2J`}}, "127.0.0.1:1", true, "exit status 0 in "},
	} {
		r := expectOf(t, c.name, c.spec, c.addr, c.ok, c.detail)
		bad := func(r rune) bool { return !unicode.IsPrint(r) }
		if strings.ContainsFunc(r.Detail, bad) || !utf8.ValidString(r.Detail) || len(r.Detail) > maxLine {
			t.Errorf("%s: %d bytes: %q", c.name, len(r.Detail), r.Detail)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x00ö\xff")
	f.Fuzz(func(t *testing.T, text string) {
		got := printable(text)
		if len(got) > maxLine || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: %q", text, got)
		}
	})
}
