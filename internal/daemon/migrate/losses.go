// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"regexp"
	"strings"
)

// Loss is what could not be carried over as it was.
type Loss struct {
	File string `json:"file"`
	Line int    `json:"line"`
	What string `json:"what"` // the words of the line
	Why  string `json:"why"`  // and what to do about it
}

func (l Loss) String() string {
	return fmt.Sprintf("%s: %s: %s", place{l.File, l.Line}, l.What, l.Why)
}

// secretForm finds what may be a password, wherever a file has it.
var secretForm = regexp.MustCompile(`(?i)((?:^|[^a-z])(?:auth_pass|password|passwd|secret))["']?[ \t=:].*`)

// withoutSecret is a part of a file as messages have it.
func withoutSecret(text string) string { return secretForm.ReplaceAllString(text, "$1") }

func (r *Result) lose(at place, what, format string, args ...any) {
	if r.full() != nil {
		return
	}
	l := Loss{at.file, at.line, oneLine(withoutSecret(what)), oneLine(fmt.Sprintf(format, args...))}
	if !r.lost[l] { // each server of a service would tell the same
		r.lost[l] = true
		r.size += len(l.File) + len(l.What) + len(l.Why)
		r.Losses = append(r.Losses, l)
	}
}

// Limits of a list for people: up to mostAlike lines with the same words and reason are
// listed each. Of more, the first is listed, with the places of mostPlaces others.
const (
	mostAlike  = 3
	mostPlaces = 3
)

// Listed are the losses as lines for people. Losses that differ by their places only are one
// line if there are many.
func (r *Result) Listed() (lines []string) {
	type words struct{ what, why string }
	alike := map[words][]place{}
	for _, l := range r.Losses {
		w := words{l.What, l.Why}
		alike[w] = append(alike[w], place{l.File, l.Line})
	}
	for _, l := range r.Losses {
		at := alike[words{l.What, l.Why}]
		switch {
		case len(at) <= mostAlike:
			lines = append(lines, l.String())
		case at[0] == place{l.File, l.Line}:
			lines = append(lines, l.String()+alsoAt(at[1:]))
		}
	}
	return lines
}

// alsoAt are further places of a loss.
func alsoAt(others []place) string {
	var first []string
	for _, p := range others[:min(mostPlaces, len(others))] {
		first = append(first, p.String())
	}
	if len(others) > mostPlaces {
		first = append(first, "...")
	}
	return fmt.Sprintf(" (and in %d lines more: %s)", len(others), strings.Join(first, ", "))
}
