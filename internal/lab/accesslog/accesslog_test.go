// SPDX-License-Identifier: Apache-2.0

package accesslog

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lines are what the servers write: Apache's own example, nginx's combined,
// IPv6, escapes of both, a virtual host, and clients that sent no request.
var lines = []struct {
	line string
	want Entry
}{
	{`127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326`,
		Entry{Client: "127.0.0.1", Method: "GET", Target: "/apache_pb.gif", Status: 200, Bytes: 2326}},
	{`2001:db8::7 - - [10/Oct/2000:20:55:36 +0000] "POST /f?a=1 HTTP/1.1" 302 - "http://x/\"q\"" "curl/8 [x]"`,
		Entry{Client: "2001:db8::7", Method: "POST", Target: "/f?a=1", Status: 302}},
	{`10.0.0.9 - a [b] c [10/Oct/2000:20:55:36 +0000] "GET /\"q\"\\\t\xe4 HTTP/1.1" 404 17 "-" "-"`,
		Entry{Client: "10.0.0.9", Method: "GET", Target: "/\"q\"\\\t\xe4", Status: 404, Bytes: 17}},
	{`10.0.0.9 - - [10/Oct/2000:20:55:36 +0000] "\x16\x03\x01" 400 157 "-" "-"`,
		Entry{Client: "10.0.0.9", Status: 400, Bytes: 157}},
	{`10.0.0.9 - - [10/Oct/2000:20:55:36 +0000] "-" 408 0 "-" "-"`, Entry{Client: "10.0.0.9", Status: 408}},
	{`www.example.org:80 10.0.0.9 - - [10/Oct/2000:20:55:36 +0000] "HEAD / HTTP/1.1" 200 0 "-" "-"`,
		Entry{Client: "10.0.0.9", Method: "HEAD", Target: "/", Status: 200}},
	{`host.example.org - - [10/Oct/2000:20:55:36 +0000] "GET /with blank HTTP/1.1" 200 5`,
		Entry{Client: "host.example.org", Method: "GET", Target: "/with blank", Status: 200, Bytes: 5}},
	{`10.0.0.9 - - [10/Oct/2000:20:55:36 +0000] "GET /old" 200 5`,
		Entry{Client: "10.0.0.9", Method: "GET", Target: "/old", Status: 200, Bytes: 5}},
	{`10.0.0.9 - - [10/Oct/2000:20:55:36 +0000] "GET /a\qb\x4 HTTP/1.1" 200 5 "-" "-" "extra" 0.001`,
		Entry{Client: "10.0.0.9", Method: "GET", Target: `/a\qb\x4`, Status: 200, Bytes: 5}},
}

func TestLines(t *testing.T) {
	when := time.Date(2000, 10, 10, 20, 55, 36, 0, time.UTC)
	p := parser{known: map[string]string{}}
	for _, tc := range lines {
		got, err := p.entry(tc.line)
		if err != nil {
			t.Errorf("%s: %v", tc.line, err)
			continue
		}
		if !got.Time.Equal(when) {
			t.Errorf("%s: at %v, want %v", tc.line, got.Time, when)
		}
		got.Time = time.Time{}
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.line, got, tc.want)
		}
	}
	for line, want := range map[string]error{
		"":                         errTime,
		"127.0.0.1 - - [yesterday": errTime,
		`127.0.0.1 - - [10/Okt/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 1`: errTime,
		`- [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 1`:             errClient,
		`127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] GET / HTTP/1.0 200 1`:   errRequest,
		`127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0 200 1`:  errRequest,
		`127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" OK 1`:  errStatus,
		`127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200`:   errBytes,
		`127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 x`: errBytes,
		`127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / \`:               errRequest,
	} {
		if _, err := p.entry(line); err != want {
			t.Errorf("%s: error %v, want %v", line, err, want)
		}
	}
}

// The client's field may be X-Forwarded-For: its first address is the client, and proxies
// follow. Elements may be unknown, or have a port; without the header it is -.
func TestForwardedClients(t *testing.T) {
	for before, want := range map[string]string{
		"203.0.113.7, 192.0.2.33 - -":                          "203.0.113.7",
		"203.0.113.7,192.0.2.33 - frank":                       "203.0.113.7",
		"203.0.113.7 , 192.0.2.33 - -":                         "203.0.113.7",
		"203.0.113.7, 192.0.2.33, 198.51.100.1 - -":            "203.0.113.7",
		"203.0.113.7, 192.0.2.33 10.0.0.1 - -":                 "203.0.113.7", // and the peer's address
		`"203.0.113.7, 192.0.2.33" - -`:                        "203.0.113.7",
		"2001:db8::7, 192.0.2.33 - -":                          "2001:db8::7",
		"203.0.113.7:51234, 192.0.2.33:443 - -":                "203.0.113.7",
		"203.0.113.7:51234 - -":                                "203.0.113.7",
		"[2001:db8::7]:51234, 192.0.2.33 - -":                  "2001:db8::7",
		"[2001:db8::7] - -":                                    "2001:db8::7",
		"unknown, 203.0.113.7, 192.0.2.33 - -":                 "203.0.113.7",
		"-, 203.0.113.7 - -":                                   "203.0.113.7",
		"unknown - -":                                          "unknown",
		"unknown, unknown - -":                                 "unknown",
		"- - -":                                                "-",
		"- 10.0.0.9 - -":                                       "10.0.0.9",
		"unknown, - 10.0.0.9 - -":                              "10.0.0.9",
		"www.example.org:80 203.0.113.7, 192.0.2.33 - -":       "203.0.113.7",
		"www.example.org 203.0.113.7:51234, 192.0.2.33 - a, b": "203.0.113.7",
		"192.0.2.80:80 203.0.113.7 - -":                        "203.0.113.7", // a virtual host that is an address
		"203.0.113.7 - a, b":                                   "203.0.113.7",
		"10.0.0.1 203.0.113.7, 192.0.2.33 - -":                 "10.0.0.1", // the first field is the client
		"host.example.org - -":                                 "host.example.org",
		"host.example.org, 192.0.2.33 - -":                     "192.0.2.33",
	} {
		got, err := (&parser{known: map[string]string{}}).entry(before + ` [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1" 200 5`)
		if err != nil || got.Client != want {
			t.Errorf("%s: client %q, %v, want %q", before, got.Client, err, want)
		}
	}
}

func TestRead(t *testing.T) {
	good := `10.0.0.%c - - [10/Oct/2000:13:55:3%c +0000] "GET /%c HTTP/1.0" 200 1`
	var text strings.Builder
	for _, c := range "3142" {
		text.WriteString(strings.ReplaceAll(good, "%c", string(c)) + "\r\n")
		text.WriteString("\nnonsense " + string(c) + "\n")
	}
	text.WriteString(strings.Repeat("x", maxLine+100_000) + "\n")
	text.WriteString(strings.ReplaceAll(good, "%c", "5")) // no end of line
	l, err := Read(strings.NewReader(text.String()), "a.log")
	if err != nil {
		t.Fatal(err)
	}
	order := ""
	for _, e := range l.Entries {
		order += e.Target
	}
	if order != "/1/2/3/4/5" || l.Bad != 5 || l.First != "a.log:3: "+errTime.Error() {
		t.Errorf("entries %s, %d bad, first %q", order, l.Bad, l.First)
	}
	for text, want := range map[string]string{
		"":                 "a.log: it is empty",
		"\n\n":             "a.log: it is empty",
		"first,second\n\n": "a.log: not in the common or combined format: a.log:1: no time",
	} {
		if _, err := Read(strings.NewReader(text), "a.log"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestReadFile(t *testing.T) {
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(l.line + "\n")
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(text.String()))
	z.Close()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"plain.log": text.String(), "packed.log.gz": packed.String(), "cut.log.gz": packed.String()[:packed.Len()/2], "plain.gz": text.String(),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := ReadFile(path)
		if whole := name == "plain.log" || name == "packed.log.gz"; whole != (err == nil) {
			t.Errorf("%s: %v", name, err)
		} else if whole && (len(l.Entries) != len(lines) || l.Bad != 0) {
			t.Errorf("%s: %d entries, %d bad", name, len(l.Entries), l.Bad)
		} else if whole && l.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(content))) {
			t.Errorf("%s: digest %s is not the file's", name, l.SHA256)
		} else if !whole && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v does not name the file", name, err)
		}
	}
	if _, err := ReadFile(filepath.Join(dir, "none.log")); err == nil {
		t.Error("a file that is not there was read")
	}
}

// Whatever a log holds, reading it ends, and what comes out can be sent.
func FuzzRead(f *testing.F) {
	for _, l := range lines {
		f.Add(l.line+"\n", 1.0)
	}
	f.Add(lines[0].line+"\nx\n"+lines[1].line, 60.0)
	f.Fuzz(func(t *testing.T, text string, speed float64) {
		l, err := Read(strings.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		if n := len(l.Entries) + l.Bad; n > strings.Count(text, "\n")+1 || (l.Bad > 0) != (l.First != "") {
			t.Fatalf("%d entries and %d bad, first %q", len(l.Entries), l.Bad, l.First)
		}
		r, err := Replay(l, Options{Speed: speed, Methods: []string{"GET", "POST", "HEAD"}})
		if err != nil {
			return
		}
		sendable(t, r)
	})
}
