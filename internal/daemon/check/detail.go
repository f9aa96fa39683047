// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxLine = 200 // of a result's detail [bytes]

// printable is a text as terminals, logs, mail and JSON may show it: the bytes of a
// server, an agent or a script are not trusted. It is valid UTF-8 of printable
// characters, with ? for all others, and of maxLine bytes at most.
func printable(s string) string {
	s = s[:min(len(s), maxLine+utf8.UTFMax)] // no more than can be shown: it may be long
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) <= maxLine {
		return s
	}
	end := maxLine
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
