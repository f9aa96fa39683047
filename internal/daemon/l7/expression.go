// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// HAProxy's regular expressions are those of PCRE, which tries one way after the other, where those of
// Go take all at once. With too many ways, or too long a text, PCRE gives up, and HAProxy takes that
// for a text that does not match: a route that is a guard would be open.

// Ambiguous reports whether a regular expression repeats what repeats itself, so that a text of
// length n can be matched in 2^n ways, as by (a*)* and ([a-z]+)*. Between two repetitions there has to
// be a character that the inner one does not have, as in (/[a-z]+)*.
func Ambiguous(expression string) bool {
	re, err := syntax.Parse(expression, syntax.Perl)
	return err == nil && ambiguous(re)
}

func ambiguous(re *syntax.Regexp) bool {
	return repeats(re) && !isDelimited(re.Sub[0]) || slices.ContainsFunc(re.Sub, ambiguous)
}

func repeats(re *syntax.Regexp) bool {
	return re.Op == syntax.OpStar || re.Op == syntax.OpPlus || re.Op == syntax.OpRepeat && (re.Max < 0 || re.Max > 10)
}

// isDelimited reports whether what is repeated has such a character wherever it repeats itself.
func isDelimited(body *syntax.Regexp) bool {
	switch body.Op {
	case syntax.OpCapture:
		return isDelimited(body.Sub[0])
	case syntax.OpAlternate:
		return !slices.ContainsFunc(body.Sub, func(s *syntax.Regexp) bool { return !isDelimited(s) })
	}
	inner := repeated(body)
	if inner == nil {
		return true
	}
	if body.Op != syntax.OpConcat {
		return false
	}
	return slices.ContainsFunc(body.Sub, func(s *syntax.Regexp) bool {
		return s.Op == syntax.OpCharClass && disjoint(s.Rune, inner) ||
			s.Op == syntax.OpLiteral && slices.ContainsFunc(s.Rune, func(r rune) bool { return disjoint(folded(r), inner) })
	})
}

// folded is a character with its other cases, as ranges.
func folded(r rune) (ranges []rune) {
	for f := r; ; {
		ranges = append(ranges, f, f)
		if f = unicode.SimpleFold(f); f == r {
			return ranges
		}
	}
}

// repeated are the characters that are repeated within, as ranges; nil: none is.
func repeated(re *syntax.Regexp) (ranges []rune) {
	if repeats(re) {
		return characters(re.Sub[0])
	}
	for _, s := range re.Sub {
		ranges = append(ranges, repeated(s)...)
	}
	return ranges
}

func characters(re *syntax.Regexp) (ranges []rune) {
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			ranges = append(ranges, folded(r)...)
		}
	case syntax.OpCharClass:
		return re.Rune
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []rune{0, unicode.MaxRune}
	}
	for _, s := range re.Sub {
		ranges = append(ranges, characters(s)...)
	}
	return ranges
}

func disjoint(a, b []rune) bool {
	for i := 0; i+1 < len(a); i += 2 {
		for j := 0; j+1 < len(b); j += 2 {
			if a[i] <= b[j+1] && b[j] <= a[i+1] {
				return false
			}
		}
	}
	return true
}

// LongestMatch is the length of the longest text that PCRE certainly decides on. Repetitions of
// groups take room for each turn, the more of it the deeper groups are within each other, and PCRE
// has 32 KiB; those of single characters take none.
func LongestMatch(expression string) int {
	const most = 2048
	depth, deepest, escaped, class, turns := 0, 0, false, false, false
	for i, c := range expression {
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case class:
			class = c != ']' || strings.HasSuffix(expression[:i], "[") || strings.HasSuffix(expression[:i], "[^")
		case c == '[':
			class = true
		case c == '(':
			depth++
			deepest = max(deepest, depth)
		case c == ')':
			depth--
			turns = turns || i+1 < len(expression) && strings.ContainsRune("*+{", rune(expression[i+1]))
		}
	}
	if !turns {
		return most
	}
	return most * 3 / 4 / (2 + deepest)
}
