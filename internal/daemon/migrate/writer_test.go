// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
)

// Each character is read from the configuration as it was written. Those that YAML has as
// escapes only, or reads as ends of lines, are escapes (YAML 1.2, 5.1 and 5.4).
func TestQuotedCharacters(t *testing.T) {
	for c := rune(0); c < 0x12000; c++ {
		if !utf8.ValidRune(c) {
			continue
		}
		in := "a" + string(c) + "b"
		text := quoted(in)
		printable := c >= 0x20 && c < 0x7f || c >= 0xa0 && c < 0xfffe && c != 0xfeff && c != 0x2028 && c != 0x2029 || c > 0xffff
		if !printable && strings.ContainsRune(text, c) {
			t.Errorf("%U: want an escape, not %s", c, text)
		}
		if c > 0x3000 && c < 0xfe00 {
			continue // letters
		}
		var out []string
		if err := yaml.Unmarshal([]byte("["+text+", "+text+"] # "+oneLine(in)+"\n"), &out); err != nil || len(out) != 2 || out[0] != in || out[1] != in {
			t.Errorf("%U: %q, %v", c, out, err)
		}
	}
}

// Bytes that are not UTF-8 are listed: YAML cannot have them.
func TestNotUTF8(t *testing.T) {
	url := "virtual_server 10.0.0.1 80 {\nprotocol TCP\nreal_server 10.0.1.1 80 {\nHTTP_GET {\nurl {\npath \"/"
	end := "\"\n}\n}\n}\n}\n"
	for text, want := range map[string]string{
		url + "caf\xe9" + end: `x:4: - {path: "/caf\ufffd", status: "200-299"}: has \ufffd in place of bytes that are not UTF-8`,
		"virtual_server 10.0.0.1 80 {\nreal_server 10.0.1.1 80 {\nnotify_up \"/bin/a \\xe9\"\n}\n}\n": `x:2: - {address: "10.0.1.1:80", notify_up: ["/bin/a", "\ufffd"], ...: has \ufffd in place`,
		url + "caf\u00e9" + end: "",
		url + "\ufffd" + end:    "",
		url + `\ufffd` + end:    "",
		"virtual=10.0.0.1:80\n\treal=10.0.1.1:80 masq\n\tchecktype=external\n\tcheckcommand=/a\xff\n": `x:1: script: {command: ["/a\ufffd", "10.0.0.1", "80", "10.0.1.1",...: has \ufffd in place`,
	} {
		r, err := importOne(t, "x", []byte(text), Source{})
		if err != nil {
			t.Fatal(err)
		}
		r.Check(func([]byte) []Mistake { return nil })
		var got []string
		for _, l := range r.Losses {
			if strings.Contains(l.Why, "UTF-8") {
				got = append(got, l.String())
			}
		}
		if len(got) > 1 || want == "" && got != nil || want != "" && (got == nil || !strings.HasPrefix(got[0], want)) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
