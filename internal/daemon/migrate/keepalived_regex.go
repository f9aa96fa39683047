// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// expectation is what a url expects of the body, by a regular expression of PCRE.
type expectation struct {
	at       *statement
	options  string   // letters of RE2
	missing  []string // what RE2 does not have
	low, top int64    // offsets in the body; 0: not set
}

// harmless are options that change how PCRE searches, or what it refuses, not what it
// finds.
var harmless = []string{"dupnames", "never_backslash_c", "never_ucp", "never_utf", "no_auto_capture", "no_auto_possess", "no_dotstar_anchor", "no_start_optimize", "no_utf_check", "use_offset_limit"}

func (k *keepalived) options(e *expectation, s *statement) {
	for _, w := range s.words[1:] {
		letter := map[string]string{"caseless": "i", "multiline": "m", "dotall": "s", "ungreedy": "U"}[w]
		switch {
		case letter != "" && !strings.Contains(e.options, letter):
			e.options += letter
		case letter == "" && !slices.Contains(harmless, w):
			e.missing = append(e.missing, w)
		}
	}
}

// expect is the regular expression for RE2, or "" if there is none for it: an expectation
// that is not exact would fail servers that are fine, or the contrary.
func (k *keepalived) expect(e *expectation) string {
	if e.at == nil {
		return ""
	}
	if e.top > 0 && e.low >= e.top { // keepalived clears both
		e.low, e.top = 0, 0
	}
	if e.low != 0 {
		e.missing = append(e.missing, "regex_min_offset")
	}
	if e.top != 0 {
		e.missing = append(e.missing, "regex_max_offset")
	}
	if e.missing != nil {
		k.lose(e.at.place, e.at.text(), "there is no %s: the body is not looked at", strings.Join(e.missing, ", no "))
		return ""
	}
	words, err := escapedWords(e.at.raw)
	if err != nil || len(words) != 2 {
		k.lose(e.at.place, e.at.text(), "want one regular expression, in quotes if it has spaces: left out, as by keepalived")
		return ""
	}
	pattern, err := perl(words[1], strings.Contains(e.options, "m"))
	if err != nil {
		k.lose(e.at.place, e.at.text(), "%v: left out", err)
		return ""
	}
	k.lose(e.at.place, e.at.words[0], "the body alone is searched; keepalived also searches the head of a reply that arrives with the body: for a text of the head use a script")
	if e.options != "" {
		pattern = "(?" + e.options + ")" + pattern
	}
	return pattern
}

// flagged finds groups that set m.
var flagged = regexp.MustCompile(`\(\?[a-zA-Z-]*m`)

// perl is a regular expression of Perl for RE2. A $ matches before a last line end also.
func perl(pattern string, multiline bool) (string, error) {
	if _, err := regexp.Compile(pattern); err != nil {
		return "", errors.New("this form is Perl's alone; want RE2")
	}
	if multiline || !strings.Contains(pattern, "$") {
		return pattern, nil
	}
	if strings.Contains(pattern, `\Q`) || flagged.MatchString(pattern) {
		return "", errors.New(`a $ beside \Q or (?m) may mean another thing in RE2`)
	}
	var b strings.Builder
	class := -1
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			b.WriteByte(c)
			i++
		case c == '[' && class < 0:
			class = i
		case c == '[' && strings.HasPrefix(pattern[i:], "[:") && strings.Contains(pattern[i:], ":]"): // of a class, such as [[:alpha:]$]
			n := strings.Index(pattern[i:], ":]") + 1
			b.WriteString(pattern[i : i+n])
			i += n
		case c == ']' && class >= 0 && i > class+1 && pattern[class+1:i] != "^":
			class = -1
		case c == '$' && class < 0:
			b.WriteString(`(?:\n?\z)`)
			continue
		}
		b.WriteByte(pattern[i])
	}
	return b.String(), nil
}
