// SPDX-License-Identifier: Apache-2.0

package page

import (
	"regexp"
	"strings"
)

// A sign of a negative number, and a space between a number and its unit.
var (
	minus     = regexp.MustCompile(`(^|[\s(\x{a0}])-(\d)`)
	breakable = regexp.MustCompile(`(\d) (%|ms|us|µs|s|KB|MB|GiB|Mbit|KB/s|MB/s|conn/s|connections/s|requests/s|replies/s)([\s.,;:)/]|$)`)
)

// tidy sets a sentence of package report for the page: U+2212 for the sign of a
// negative number, and no line break between a number and its unit.
func tidy(s string) string {
	s = minus.ReplaceAllString(s, "${1}−$2")
	for range 2 { // matches share the character between them
		s = breakable.ReplaceAllString(s, "$1\u00a0$2$3")
	}
	return strings.ReplaceAll(s, "us/connection", "µs/connection")
}

func tidyAll(list []string) (out []string) {
	for _, s := range list {
		out = append(out, tidy(s))
	}
	return out
}
