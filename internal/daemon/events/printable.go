// SPDX-License-Identifier: Apache-2.0

package events

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds a text of an event or an order [bytes].
const maxText = 500

// Printable is a text as terminals, logs, environments and mail may have it: servers and
// users write parts of it. It is valid UTF-8 of printable characters, with ? for all
// others, and of maxText bytes at most.
func Printable(s string) string {
	s = s[:min(len(s), maxText+utf8.UTFMax)] // the rest is cut in any case
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// Printable is the event with texts of that kind.
func (e Event) Printable() Event {
	e.Service, e.Server, e.Text, e.By = Printable(e.Service), Printable(e.Server), Printable(e.Text), Printable(e.By)
	return e
}
