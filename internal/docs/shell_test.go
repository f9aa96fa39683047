// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"reflect"
	"strings"
	"testing"
)

// shellCommands are the simple commands of a shell script as lists of words, without
// redirections. Quotes, backslashes, comments and operators are those of sh; expansions are
// not made. A word in quotes that has spaces or line breaks may be a script itself, as that
// of ssh is: it is the caller's to read it.
func shellCommands(script string) (all [][]string) {
	var words []string
	var word strings.Builder
	inWord, redirected := false, false
	endWord := func() {
		if inWord && !redirected {
			words = append(words, word.String())
		}
		redirected = redirected && !inWord
		inWord = false
		word.Reset()
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			all = append(all, words)
		}
		words, redirected = nil, false
	}
	for i := 0; i < len(script); i++ {
		switch c := script[i]; {
		case c == '\\' && i+1 < len(script):
			if i++; script[i] != '\n' {
				word.WriteByte(script[i])
				inWord = true
			}
		case c == '\'' || c == '"':
			inWord = true
			for i++; i < len(script) && script[i] != c; i++ {
				if c == '"' && script[i] == '\\' && i+1 < len(script) {
					i++
				}
				word.WriteByte(script[i])
			}
		case c == '#' && !inWord:
			for i+1 < len(script) && script[i+1] != '\n' {
				i++
			}
		case c == ' ' || c == '\t':
			endWord()
		case strings.IndexByte("\n;&|()", c) >= 0:
			endCommand()
		case c == '<' || c == '>':
			if inWord && strings.Trim(word.String(), "0123456789") == "" { // a descriptor
				inWord = false
				word.Reset()
			}
			endWord()
			redirected = true
			for i+1 < len(script) && (script[i+1] == '>' || script[i+1] == '<' || script[i+1] == '&') {
				i++
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	endCommand()
	return all
}

func TestShellCommands(t *testing.T) {
	for script, want := range map[string][][]string{
		"":                                      nil,
		"# none\n":                              nil,
		"a -b 'c d' && e":                       {{"a", "-b", "c d"}, {"e"}},
		"a | b - >c 2>&1; d <e":                 {{"a"}, {"b", "-"}, {"d"}},
		"a \\\n  b   # c\nd#e":                  {{"a", "b"}, {"d#e"}},
		"for t in x; do $t -A; done":            {{"for", "t", "in", "x"}, {"do", "$t", "-A"}, {"done"}},
		`a "b \"c\" d" 'e "f"'`:                 {{"a", `b "c" d`, `e "f"`}},
		"ssh k 'a --b\n  c' | d":                {{"ssh", "k", "a --b\n  c"}, {"d"}},
		"a '' b":                                {{"a", "", "b"}},
		"imbang --timeout 30 && systemctl stop": {{"imbang", "--timeout", "30"}, {"systemctl", "stop"}},
	} {
		if got := shellCommands(script); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", script, got, want)
		}
	}
}
