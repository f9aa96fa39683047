// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"strings"
)

// statement is a line of keepalived.conf, with the block that belongs to it.
type statement struct {
	place
	words []string
	block []*statement
	open  bool // it has a block
}

func (s *statement) text() string { return strings.Join(s.words, " ") }

// is reports whether the statement begins with one of these words.
func (s *statement) is(words ...string) bool {
	for _, w := range words {
		if s.words[0] == w {
			return true
		}
	}
	return false
}

// word is the i-th word, or "".
func (s *statement) word(i int) string {
	if i < len(s.words) {
		return s.words[i]
	}
	return ""
}

// confReader makes statements of keepalived.conf (its parser.c).
type confReader struct {
	result *Result
	files  Files
	vars   map[string]string
	stack  []*statement // open blocks; the first is the file itself
	last   *statement   // that a block which begins on the next line belongs to
	depth  int          // of includes
}

const (
	maxIncludes = 16
	maxBlocks   = 32
	maxWords    = 1 << 16 // of a file with its includes
)

func (c *confReader) read(name string, text []byte) error {
	for i, line := range strings.Split(string(text), "\n") {
		at := place{name, i + 1}
		words, err := confWords(line)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if len(words) == 0 {
			continue
		}
		if err := c.line(at, words); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// confWords splits a line into words; braces are words of their own, and comments end it.
func confWords(line string) (words []confWord, err error) {
	for i := 0; i < len(line); {
		switch ch := line[i]; {
		case ch == ' ' || ch == '\t' || ch == '\r':
			i++
		case ch == '#' || ch == '!':
			return words, nil
		case ch == '{' || ch == '}':
			words = append(words, confWord{string(ch), true})
			i++
		case ch == '"' || ch == '\'':
			end := strings.IndexByte(line[i+1:], ch)
			if end < 0 {
				return nil, fmt.Errorf("a quote that does not end: %s", line[i:])
			}
			words = append(words, confWord{line[i+1 : i+1+end], false})
			i += end + 2
		default:
			n := strings.IndexAny(line[i:], " \t\r{}\"")
			if strings.HasPrefix(line[i:], "${") || n > 0 && line[i+n] == '{' && line[i+n-1] == '$' { // a variable's braces
				if end := strings.IndexByte(line[i:], '}'); end > 0 {
					n = end + 1
				}
			}
			if n <= 0 {
				n = len(line) - i
			}
			words = append(words, confWord{line[i : i+n], false})
			i += n
		}
	}
	return words, nil
}

type confWord struct {
	text  string
	brace bool
}

// line takes one line in.
func (c *confReader) line(at place, words []confWord) error {
	first := words[0].text
	switch {
	case words[0].brace:
	case strings.HasPrefix(first, "$") && strings.Contains(first, "="):
		name, value, _ := strings.Cut(first[1:], "=")
		for _, w := range words[1:] {
			value = strings.TrimSpace(value + " " + w.text)
		}
		if strings.HasSuffix(value, `\`) {
			c.result.lose(at, "$"+name, "a definition of several lines: write out what it stands for")
		}
		c.vars[name] = c.expand(value)
		return nil
	case strings.HasPrefix(first, "@"):
		c.result.lose(at, joined(words), "holds for some machines only (@): write a file for each, with this line or without")
		return nil
	case strings.HasPrefix(first, "~SEQ"):
		c.result.lose(at, joined(words), "a generated sequence: write its lines out")
		return nil
	case first == "include" && len(words) == 2:
		return c.include(at, c.expand(words[1].text))
	}
	var s *statement
	for _, w := range words {
		switch {
		case w.brace && w.text == "{":
			if s == nil {
				s = c.last
			}
			if s == nil || s.open {
				return fmt.Errorf("a block without a name")
			}
			if len(c.stack) > maxBlocks {
				return fmt.Errorf("more than %d blocks in each other", maxBlocks)
			}
			s.open = true
			c.stack = append(c.stack, s)
			s, c.last = nil, nil
		case w.brace:
			if len(c.stack) == 1 {
				return fmt.Errorf("a } without a {")
			}
			c.stack = c.stack[:len(c.stack)-1]
			s, c.last = nil, nil
		case s == nil:
			s = &statement{place: at, words: []string{c.expand(w.text)}}
			in := c.stack[len(c.stack)-1]
			in.block = append(in.block, s)
			c.last = s
		default:
			s.words = append(s.words, c.expand(w.text))
		}
	}
	return nil
}

func joined(words []confWord) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = w.text
	}
	return strings.Join(all, " ")
}

// expand puts the values of variables in.
func (c *confReader) expand(s string) string {
	if !strings.Contains(s, "$") {
		return s
	}
	for name, value := range c.vars {
		s = strings.ReplaceAll(s, "${"+name+"}", value)
		if s == "$"+name {
			s = value
		}
	}
	if len(s) > maxWords {
		return s[:maxWords]
	}
	return s
}

func (c *confReader) include(at place, pattern string) error {
	if c.depth == maxIncludes {
		return fmt.Errorf("more than %d files include each other", maxIncludes)
	}
	names, contents, err := c.files(pattern)
	if err != nil || len(names) == 0 {
		c.result.lose(at, "include "+pattern, "no such file")
		return nil
	}
	c.depth++
	defer func() { c.depth-- }()
	for i, name := range names {
		if err := c.read(name, contents[i]); err != nil {
			return err
		}
	}
	return nil
}

// confRead reads a file with those that it includes.
func confRead(r *Result, name string, text []byte, files Files) ([]*statement, error) {
	whole := &statement{open: true}
	c := &confReader{result: r, files: files, vars: map[string]string{}, stack: []*statement{whole}}
	if err := c.read(name, text); err != nil {
		return nil, err
	}
	if len(c.stack) > 1 {
		open := c.stack[len(c.stack)-1]
		return nil, fmt.Errorf("%s: the block %s does not end", open.place, open.text())
	}
	return whole.block, nil
}
