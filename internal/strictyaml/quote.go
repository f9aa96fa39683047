// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Errors go to logs and to users who may not read the file: they quote no more than is
// needed to find a mistake.

const maxQuoted = 40 // of a value [characters]

// unquoted is in the place of a value that is not quoted.
const unquoted = "the value"

var (
	inQuotes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"(?:[^"\\]|\\.)*"`) })
	keyForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`) })
)

// secret reports whether a path is below a key whose values are not quoted.
func (k Kind) secret(path string) bool {
	if slices.ContainsFunc(k.Public, func(end string) bool { return strings.HasSuffix(path, "."+end) }) {
		return false
	}
	return slices.ContainsFunc(strings.Split(indices().ReplaceAllString(path, ""), "."), func(key string) bool { return slices.Contains(k.Secret, key) })
}

// quotes cuts the values that a text has in double quotes, or leaves them out.
func quotes(text string, secret bool) string {
	return inQuotes().ReplaceAllStringFunc(text, func(quoted string) string {
		if secret {
			return unquoted
		}
		value, err := strconv.Unquote(quoted)
		if runes := []rune(value); err == nil && len(runes) > maxQuoted {
			return strconv.Quote(string(runes[:maxQuoted])) + "..."
		}
		return quoted
	})
}

// quotedKey is a key in quotes, behind a space; "" if it does not look like one.
func quotedKey(key string) string {
	if !keyForm().MatchString(key) {
		return ""
	}
	return " " + strconv.Quote(key)
}

// plain leaves out of an error of the library what does not look like a key.
func plain(text string) string {
	return inQuotes().ReplaceAllStringFunc(text, func(quoted string) string {
		if value, err := strconv.Unquote(quoted); err == nil && !keyForm().MatchString(value) && len([]rune(value)) > 1 {
			return unquoted
		}
		return quoted
	})
}
