// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// HAProxy reads a line in up to three passes, each with its own quoting:
//
//  1. Words of a line. Within single quotes nothing has a meaning, and nothing can be written
//     that ends a line: word().
//  2. Within some words, formats, in which % has a meaning: format().
//  3. Within some words, arguments in parentheses: argument().

// bare is what requires no quotes in a line.
var bare = regexp.MustCompile(`^[A-Za-z0-9_./:@,=+*?^-]+$`)

// word is a word of a line, whatever its bytes are but NUL.
func word(s string) string {
	if bare.MatchString(s) {
		return s
	}
	var b strings.Builder
	quoted := false
	quote := func(on bool) {
		if quoted != on {
			b.WriteByte('\'')
			quoted = on
		}
	}
	for _, c := range []byte(s) {
		switch c {
		case '\'':
			quote(false)
			b.WriteString(`\'`)
		case '\n':
			quote(false)
			b.WriteString(`\n`)
		case '\r':
			quote(false)
			b.WriteString(`\r`)
		default:
			quote(true)
			b.WriteByte(c)
		}
	}
	quote(false)
	if s == "" {
		return "''"
	}
	return b.String()
}

// format is literal text within a format.
func format(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// argument is a text between the parentheses of a fetch method, in double quotes. Callers pass
// the whole word through word(). Only tokens come here, which have neither " nor \.
func argument(s string) string {
	if name.MatchString(s) {
		return s
	}
	return `"` + s + `"`
}

// name is a name of a proxy or server, as HAProxy allows it.
var name = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

func checkName(s string) error {
	if !name.MatchString(s) {
		return fmt.Errorf("name %q: HAProxy allows letters, digits and -_.: in names", s)
	}
	return nil
}

// printable refuses what would end a line of HTTP.
func printable(what, s string) error {
	for _, c := range []byte(s) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("%s %q: control characters are not allowed", what, s)
		}
	}
	return nil
}

// text refuses NUL, which no line can have.
func text(what, s string) error {
	if strings.ContainsRune(s, 0) {
		return fmt.Errorf("%s has a NUL: remove it", what)
	}
	return nil
}

// file refuses names that lists of HAProxy's cannot have.
func file(what, s string) error {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`"'\#[]`, r) }) {
		return fmt.Errorf("%s %q: name a file without spaces, control characters and \"'\\#[]", what, s)
	}
	return nil
}

// headerName is a header's name as a word of a line.
func headerName(s string) (string, error) {
	if !httpguts.ValidHeaderFieldName(s) {
		return "", fmt.Errorf("header %q: is not a name of a header", s)
	}
	return word(s), nil
}

// pathText is part of a request's path or of a location, as it is sent.
func pathText(what, s string) error {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			return fmt.Errorf("%s %q: spaces, control characters and others than ASCII are not allowed: write them as %%XX", what, s)
		}
	}
	return nil
}

// pattern checks a regular expression. It is to be one for Go as well: then its parentheses
// are closed, so that it can be put between others, and `imbang why` finds what HAProxy does.
// What is quoted by \Q up to its own end would quote what comes after it.
func pattern(s string) error {
	if err := printable("regular expression", s); err != nil {
		return err
	}
	if _, err := syntax.Parse(s, syntax.Perl); err != nil {
		return fmt.Errorf("regular expression %q: %w", s, err)
	}
	if strings.Contains(s, `\Q`) {
		return fmt.Errorf(`regular expression %q: \Q is not supported: escape each character by \`, s)
	}
	return nil
}

// whole is a regular expression for whole texts.
func whole(s string) string { return `\A(?:` + s + `)\z` }

var errDuration = errors.New("HAProxy's longest time is 24 days")

// duration is a time of HAProxy's; what is not 0 does not become 0.
func duration(d time.Duration) (string, error) {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	switch {
	case d < 0 || ms > 24*24*time.Hour/time.Millisecond:
		return "", fmt.Errorf("%v: %w", d, errDuration)
	case ms%1000 == 0:
		return fmt.Sprintf("%ds", ms/1000), nil
	}
	return fmt.Sprintf("%dms", ms), nil
}
