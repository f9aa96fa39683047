// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/json"
	"os"
	"testing"
)

// The Call-ID of a datagram as Linux finds it, in Go: the judge of bpf/pe_sip.h
// for payloads that were not recorded. It is judged itself by those that were.

// callID finds the Call-ID of a payload; ok says whether it has one.
func callID(payload string) (id string, ok bool) {
	for from := 0; ; {
		at, found := callIDValue(payload, from)
		if !found {
			return "", false
		}
		n := valueLength(payload[at:])
		if n == 0 {
			from += at // counted from the payload's begin, wherever the search began
			continue
		}
		end := at + n
		return payload[at:end], n <= 255 && end < len(payload) && isLineEnd(payload[end])
	}
}

// callIDValue finds where the value of the next Call-ID header begins.
func callIDValue(p string, from int) (at int, found bool) {
	for i := from; i < len(p); i++ {
		if !isLineEnd(p[i]) {
			continue
		}
		if i = behindLineEnd(p, i); i >= len(p) {
			return 0, false
		}
		n := nameLength(p[i:])
		if n == 0 {
			continue // the line's first byte is skipped, even if it ends the line
		}
		colon, ok := skipBlanks(p, i+n)
		if !ok || colon >= len(p)-1 || p[colon] != ':' {
			return 0, false
		}
		return skipBlanks(p, colon+1)
	}
	return 0, false
}

// nameLength is the length of the header's name at the begin of a line, 0 if there
// is another header.
func nameLength(line string) int {
	const name = "call-id"
	if len(line) >= len(name) && lower(line[:len(name)]) == name {
		return len(name)
	}
	if len(line) > 1 && lower(line[:1]) == "i" && !isLetter(line[1]) {
		return 1
	}
	return 0
}

// lower changes ASCII's letters alone.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// skipBlanks skips blanks with at most one fold of the line; ok is false behind a
// line that is not folded.
func skipBlanks(p string, i int) (at int, ok bool) {
	for i < len(p) && isBlank(p[i]) {
		i++
	}
	if i >= len(p) || !isLineEnd(p[i]) {
		return i, true
	}
	if i = behindLineEnd(p, i); i >= len(p) || !isBlank(p[i]) {
		return 0, false
	}
	for i < len(p) && isBlank(p[i]) {
		i++
	}
	return i, true
}

// valueLength is the length of a word, or of two with an @ between; 0 if there is
// neither.
func valueLength(p string) int {
	n := wordLength(p)
	if n == 0 || n == len(p) || p[n] != '@' {
		return n
	}
	domain := wordLength(p[n+1:])
	if domain == 0 {
		return 0
	}
	return n + 1 + domain
}

func wordLength(p string) int {
	for i := range len(p) {
		if !isWord(p[i]) {
			return i
		}
	}
	return len(p)
}

func behindLineEnd(p string, i int) int {
	if p[i] == '\r' && i+1 < len(p) && p[i+1] == '\n' {
		return i + 2
	}
	return i + 1
}

func isLineEnd(c byte) bool { return c == '\r' || c == '\n' }
func isBlank(c byte) bool   { return c == ' ' || c == '\t' }

// isLetter knows Latin-1's letters.
func isLetter(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0xc0 && c != 0xd7 && c != 0xf7
}

func isWord(c byte) bool {
	if isLetter(c) || c >= '0' && c <= '9' {
		return true
	}
	for _, other := range []byte("-.!%*_+`'~()<>:\\\"/[]?{}") {
		if c == other {
			return true
		}
	}
	return false
}

// recordedCallIDs are payloads, and the Call-ID that Linux found in each, nil if
// it found none. A character stands for the byte of its number.
func recordedCallIDs(t testing.TB) (payloads []string, ids []*string) {
	t.Helper()
	text, err := os.ReadFile("testdata/call-ids.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Payloads [][2]*string }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Payloads) == 0 {
		t.Fatal("no recorded Call-IDs", err)
	}
	for _, p := range file.Payloads {
		payloads = append(payloads, latin1(*p[0]))
		id := p[1]
		if id != nil {
			bytes := latin1(*id)
			id = &bytes
		}
		ids = append(ids, id)
	}
	return payloads, ids
}

func latin1(s string) string {
	var b []byte
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}

// The reference finds what Linux found.
func TestCallIDReference(t *testing.T) {
	payloads, ids := recordedCallIDs(t)
	wrong := 0
	for i, p := range payloads {
		got, ok := callID(p)
		if want := ids[i]; ok != (want != nil) || ok && got != *want {
			t.Errorf("%q: %q, %v; Linux %v", p, got, ok, want)
			if wrong++; wrong > 20 {
				t.FailNow()
			}
		}
	}
	t.Logf("%d payloads", len(payloads))
}
