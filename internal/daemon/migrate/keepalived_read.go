// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// statement is a line of keepalived.conf, with the block that belongs to it.
type statement struct {
	place
	words []string
	raw   string // the line, for words with escapes
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

// confReader makes statements of keepalived.conf, line by line as read_line() in its
// lib/parser.c (version 2.2.7).
type confReader struct {
	context.Context
	result   *Result
	from     Source
	defs     map[string]definition
	unknown  map[string]bool // variables that are defined for some machines only
	defining string          // the definition of several lines that is open
	stack    []*statement    // open blocks; the first is the file itself
	last     *statement      // that a block which begins on the next line belongs to
	dropped  dropping
	at       place
	dir      string // of the file
	depth    int    // of includes
	lines    int    // that were taken in, sequences and definitions written out
	size     int    // of all files [bytes]
	replaced int    // size of all lines that something was replaced in [bytes]
}

const (
	maxIncludes = 16
	maxBlocks   = 32
	maxLines    = 200_000
	maxFiles    = 16 << 20 // of a file with all that it includes [bytes]
	maxLine     = 1023     // that keepalived reads at once: MAXBUF of its lib/parser.h, less the end [bytes]
)

func (c *confReader) read(name string, text []byte) error {
	i := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		i++
		at := place{name, i}
		line = strings.TrimRight(line, "\r")
		if line == "" && c.defining != "" {
			c.endDefinition()
		}
		if err := c.parts(at, line); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// parts takes in a line as keepalived reads it: at most maxLine bytes at once, and the rest as
// another line.
func (c *confReader) parts(at place, line string) error {
	if len(line) <= maxLine {
		return c.portion(at, line)
	}
	const why = "longer than 1023 bytes, behind which keepalived begins another line: split it"
	c.result.lose(at, beginning(line), why)
	for part := range slices.Chunk([]byte(line), maxLine) {
		if err := c.portion(at, string(part)); err != nil {
			return fmt.Errorf("%s: %w", why, err)
		}
	}
	return nil
}

// portion takes in a line, or as much of one as keepalived reads at once.
func (c *confReader) portion(at place, text string) error {
	text = decomment(strings.ReplaceAll(text, "\x01", " ")) // which marks variables
	if c.defining != "" && text != "" {
		c.goOn(text)
		return nil
	}
	return c.line(at, text, 0)
}

// beginning is that of a line, for a message.
func beginning(line string) string {
	const most = 60
	line = withoutSecret(line)
	if len(line) <= most {
		return line
	}
	return line[:most] + "..."
}

// line takes in one line without its comment. Depth is that of definitions of several lines
// and of sequences.
func (c *confReader) line(at place, text string, depth int) error {
	if depth > maxNested {
		return fmt.Errorf("definitions or sequences more than %d deep: does one stand for itself?", maxNested)
	}
	if text == "" {
		return nil
	}
	if err := c.count(); err != nil {
		return err
	}
	return c.part(at, text, depth)
}

// count counts a line.
func (c *confReader) count() error {
	if c.lines++; c.lines > maxLines {
		return fmt.Errorf("more than %d lines, with those that includes and sequences make", maxLines)
	}
	if c.lines%1024 == 0 {
		return c.Err()
	}
	return nil
}

// part takes in a line, or what is behind a brace of it.
func (c *confReader) part(at place, text string, depth int) error {
	c.at = at
	text, more, err := c.prepared(at, text, depth)
	if err != nil {
		return err
	}
	if m := includeForm.FindStringSubmatch(text); m != nil {
		if err := c.include(at, m[1]); err != nil {
			return err
		}
	} else if text != "" {
		first, rest := cutBrace(c.mark(text))
		if err := c.piece(at, first); err != nil {
			return err
		}
		if rest != "" { // it may have a condition or an include of its own
			if err := c.part(at, unmarked(rest), depth); err != nil {
				return err
			}
		}
	}
	for _, l := range more {
		if err := c.line(at, l, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// prepared is a line behind its condition, with the values of variables in it; none if the
// condition does not hold, and of definitions and sequences.
func (c *confReader) prepared(at place, text string, depth int) (out string, more []string, err error) {
	for text != "" {
		if text[0] == '@' {
			if text = c.conditional(at, text); text == "" {
				break
			}
		}
		if c.define(text) {
			return "", more, nil
		}
		if strings.HasPrefix(text, "~SEQ") || strings.HasPrefix(text, "~LST") {
			return "", more, c.sequence(at, text, depth)
		}
		replaced, lines, changed, err := c.replace(text)
		if err != nil || !changed {
			return text, more, err
		}
		text, more = decomment(replaced), append(lines, more...)
	}
	return "", more, nil
}

// piece takes in a brace, or a statement up to one.
func (c *confReader) piece(at place, text string) error {
	if c.dropped.piece(text) {
		return nil
	}
	switch text {
	case "{":
		s := c.last
		if s == nil || s.open {
			return fmt.Errorf("a block without a name")
		}
		if len(c.stack) > maxBlocks {
			return fmt.Errorf("more than %d blocks in each other", maxBlocks)
		}
		s.open, c.last = true, nil
		c.stack = append(c.stack, s)
		return nil
	case "}":
		if len(c.stack) == 1 {
			return fmt.Errorf("a } without a {")
		}
		c.stack, c.last = c.stack[:len(c.stack)-1], nil
		return nil
	}
	if what, why, is := c.lost(text); is {
		c.result.lose(at, what, "%s", why)
		c.dropped.expected, c.last = true, nil
		return nil
	}
	words, err := confWords(text)
	if err != nil || len(words) == 0 {
		return err
	}
	c.last = &statement{place: at, words: words, raw: text}
	in := c.stack[len(c.stack)-1]
	in.block = append(in.block, c.last)
	return nil
}

// includeForm is include with the variants that differ in what is an error.
var includeForm = regexp.MustCompile(`^include[rmwba]?[ \t]+(.*)$`)

// include reads the files of a pattern, relative to the file that includes them. Files that
// cannot be read are left out one by one.
func (c *confReader) include(at place, pattern string) error {
	if c.depth == maxIncludes {
		return fmt.Errorf("more than %d files include each other", maxIncludes)
	}
	path := pattern
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.dir, path)
	}
	var files []File
	if c.from.Files != nil {
		files = c.from.Files(path, maxFiles-c.size)
	}
	if c.Err() != nil {
		return c.Err()
	}
	if len(files) == 0 {
		why := "no such file"
		if strings.Contains(pattern, "{") {
			why = "no such file; braces are not expanded: write an include for each"
		}
		c.result.lose(at, "include "+pattern, "%s", why)
	}
	outer := c.dir
	c.depth++
	defer func() { c.depth--; c.dir = outer }()
	for _, f := range files {
		if f.Err != nil {
			c.result.lose(at, "include "+pattern, "%s: %v: left out", f.Name, f.Err)
			continue
		}
		if c.size += len(f.Text); c.size > maxFiles {
			return fmt.Errorf("files of more than %d MiB are included", maxFiles>>20)
		}
		c.dir = filepath.Dir(f.Name)
		if err := c.read(f.Name, f.Text); err != nil {
			return err
		}
	}
	return nil
}

// confRead reads a file with those that it includes.
func confRead(ctx context.Context, r *Result, name string, text []byte, from Source) ([]*statement, error) {
	whole := &statement{open: true}
	c := &confReader{
		Context: ctx, result: r, from: from, dir: from.Dir, size: len(text), stack: []*statement{whole},
		defs: map[string]definition{"_HASH": {value: "#"}, "_BANG": {value: "!"}}, unknown: map[string]bool{},
	}
	if from.ConfigID != "" {
		c.defs["_INSTANCE"] = definition{value: from.ConfigID}
	}
	if err := c.read(name, text); err != nil {
		return nil, err
	}
	if len(c.stack) > 1 {
		open := c.stack[len(c.stack)-1]
		return nil, fmt.Errorf("%s: the block %s does not end: write its } behind its last line", open.place, open.text())
	}
	return whole.block, nil
}
