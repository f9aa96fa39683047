// SPDX-License-Identifier: Apache-2.0

package events

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"check web: 200 in 3 ms":       "check web: 200 in 3 ms",
		"größer, ≥ 5":                  "größer, ≥ 5",
		"agent: down #\x00 \x1b[2J\n":  "agent: down #? ?[2J?",
		"a\r\nSubject: b":              "a??Subject: b",
		"not UTF-8: \xff\xfe":          "not UTF-8: ??",
		"right to left: \u202e":        "right to left: ?",
		strings.Repeat("x", 1000):      strings.Repeat("x", maxText),
		strings.Repeat("x", 499) + "ü": strings.Repeat("x", 499),
		strings.Repeat("\xff", 1000):   strings.Repeat("?", maxText),
	} {
		if got := Printable(text); got != want || !utf8.ValidString(got) {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

// What is kept, written and passed on is printable.
func TestLogIsPrintable(t *testing.T) {
	l, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := l.Follow(0)
	e, err := l.Add(Event{Kind: Ordered, Server: "a\x1b", Text: "drain (\x00\n)", By: "x\n"})
	want := Event{Number: 1, Kind: Ordered, Server: "a?", Text: "drain (??)", By: "x?"}
	if err != nil || e != want || l.Last(1)[0] != want || <-after != want {
		t.Errorf("%+v, %v", e, err)
	}
}
