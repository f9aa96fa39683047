// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"strings"
)

const blanks = " \t\f\r\v\n"

// decomment removes the comment of a line, and blanks around the rest, as decomment() of
// keepalived does: # and ! begin one outside double quotes, in the middle of a word too,
// unless a \ is before them. A \ at the end stays: the line goes on.
func decomment(line string) string {
	line = strings.TrimLeft(line, " \t")
	var b strings.Builder
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && i+1 == len(line):
			return strings.TrimRight(b.String(), " \t") + `\`
		case c == '\\':
			i++
			if quoted || line[i] != '#' && line[i] != '!' {
				b.WriteByte(c)
			}
		case !quoted && (c == '#' || c == '!'):
			text := strings.TrimRight(b.String(), " \t")
			if end := len(line) - len(strings.TrimRight(line, `\`)); end%2 == 1 {
				text += `\`
			}
			return text
		}
		b.WriteByte(line[i])
	}
	return strings.TrimRight(b.String(), " \t")
}

// cutBrace splits a line at its first brace outside double quotes, which is a piece of its
// own: "url {" is "url" and "{".
func cutBrace(line string) (first, rest string) {
	if line[0] == '{' || line[0] == '}' {
		return line[:1], strings.Trim(line[1:], " \t")
	}
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '{', '}':
			return strings.TrimRight(line[:i], " \t"), line[i:]
		case '"':
			end := strings.IndexByte(line[i+1:], '"')
			if end < 0 {
				return line, ""
			}
			i += end + 1
		}
	}
	return line, ""
}

// confWords splits a line into words, as alloc_strvec_r() of keepalived does: only double
// quotes quote, and only at the beginning of a word.
func confWords(line string) (words []string, err error) {
	for whole := line; ; {
		line = strings.TrimLeft(line, blanks)
		switch {
		case line == "":
			return words, nil
		case line[0] == '"':
			end := strings.IndexByte(line[1:], '"')
			if end < 0 && withoutSecret(whole) != whole {
				line = whole
			}
			if end < 0 {
				return nil, fmt.Errorf("a quote that does not end: %s", beginning(line))
			}
			words, line = append(words, line[1:1+end]), line[2+end:]
		default:
			end := strings.IndexAny(line, blanks+`"`)
			if end < 0 {
				end = len(line)
			}
			words, line = append(words, line[:end]), line[end:]
		}
	}
}

// escapedWords splits a line into words with quotes of both kinds and escapes, as
// alloc_strvec_quoted_escaped() of keepalived does for regular expressions and scripts.
func escapedWords(line string) (words []string, err error) {
	for line = strings.TrimLeft(line, blanks); line != ""; line = strings.TrimLeft(line, blanks) {
		var b strings.Builder
		if line, err = escapedWord(line, &b); err != nil {
			return nil, err
		}
		words = append(words, b.String())
	}
	return words, nil
}

// escapedWord writes the first word of a line, and returns the rest.
func escapedWord(line string, b *strings.Builder) (rest string, err error) {
	quote := byte(0)
	for i := 0; i < len(line); {
		switch c := line[i]; {
		case c == '\\':
			if i+1 == len(line) {
				return "", fmt.Errorf(`a \ at the end: %s`, beginning(line))
			}
			n, char := escaped(line[i+1:])
			b.WriteByte(char)
			i += 1 + n
		case quote != 0 && c == quote:
			quote = 0
			i++
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
			i++
		case quote == 0 && strings.IndexByte(blanks, c) >= 0:
			return line[i:], nil
		default:
			b.WriteByte(c)
			i++
		}
	}
	if quote != 0 {
		return "", fmt.Errorf("a quote that does not end: %s", beginning(line))
	}
	return "", nil
}

var escapes = map[byte]byte{'a': '\a', 'b': '\b', 'E': 0x1b, 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}

// escaped is the byte that an escape stands for, and the length of what follows the \.
func escaped(s string) (n int, char byte) {
	digit := func(i int) (byte, bool) { // of 16
		if i >= len(s) {
			return 0, false
		}
		v := strings.IndexByte("0123456789abcdef", s[i]|0x20)
		return byte(v), v >= 0
	}
	switch c := s[0]; {
	case c == 'x':
		n = 1
		for v, ok := digit(n); ok; v, ok = digit(n) {
			char = char<<4 | v
			n++
		}
		if n > 1 {
			return n, char
		}
		return 1, c
	case c == 'c' && len(s) > 1:
		return 2, s[1] & 0x1f
	case c >= '0' && c <= '7':
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			char = char<<3 | s[n] - '0'
			n++
		}
		return n, char
	case escapes[c] != 0:
		return 1, escapes[c]
	default:
		return 1, c
	}
}
