// SPDX-License-Identifier: Apache-2.0

package strictyaml

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// Bounds of files. The library's parser takes quadratic time for what nests, for keys of
// one mapping and for missing values; a file within these bounds is read in seconds.
const (
	maxDepth       = 64      // of mappings and lists in each other
	maxIndicators  = 600_000 // characters that may begin or end something: 10 000 servers have 150 000 to 500 000
	maxComparisons = 100e6   // of keys with the others of their mapping: one of 14 000 keys
	maxEmpty       = 250     // keys and entries without a value
)

const indicators = "-:,[]{}#&*!?|>'\"%"

// crowded refuses a file by its characters, before the library sees it.
func crowded(file string, text []byte) *Mistake {
	n, line := 0, 1
	for _, b := range text {
		if b == '\n' {
			line++
		} else if bytes.IndexByte([]byte(indicators), b) >= 0 {
			n++
		}
		if n > maxIndicators {
			return &Mistake{File: file, Line: line, Column: 1, Text: fmt.Sprintf("more than %d characters of %s: split the file", maxIndicators, indicators)}
		}
	}
	return nil
}

// level is a mapping or a list that is open.
type level struct {
	column  int // of a block; 0: in brackets
	keys    int
	mapping bool // in brackets: a mapping
	valued  bool // its last key has a value
}

// bounds follows the tokens of a file.
type bounds struct {
	open        []level
	comparisons int
	empty       int
	documents   int
}

// unbounded finds the token at which a file exceeds the bounds, and says what to do.
func unbounded(tokens token.Tokens) (*token.Token, string) {
	b := &bounds{}
	for i, tk := range tokens {
		if text := b.see(tk); text != "" {
			return tk, text
		}
		if i+1 < len(tokens) && emptied(tk, tokens[i+1]) {
			b.empty++
		}
		if b.empty > maxEmpty {
			return tk, fmt.Sprintf("more than %d keys and list entries without a value: remove them", maxEmpty)
		}
	}
	return nil, ""
}

func (b *bounds) see(tk *token.Token) string {
	switch tk.Type {
	case token.SequenceStartType, token.MappingStartType:
		b.open = append(b.open, level{mapping: tk.Type == token.MappingStartType})
	case token.CollectEntryType:
		if b.inBrackets() {
			b.entry(&b.open[len(b.open)-1])
		}
	case token.SequenceEndType, token.MappingEndType:
		if !b.inBrackets() {
			return fmt.Sprintf("%q without the bracket that it ends: correct the YAML here", tk.Value)
		}
		b.open = b.open[:len(b.open)-1]
	case token.SequenceEntryType:
		b.block(tk.Position.Column)
	case token.MappingValueType:
		if !b.inBrackets() && tk.Prev != nil {
			b.block(tk.Prev.Position.Column)
		}
		return b.key()
	case token.DocumentHeaderType:
		// More than one is a mistake that is named later; many take long.
		if b.documents++; b.documents > 2 {
			return "a second document: keep one a file"
		}
	}
	if len(b.open) > maxDepth {
		return fmt.Sprintf("more than %d mappings and lists in each other: correct the YAML here", maxDepth)
	}
	return ""
}

func (b *bounds) inBrackets() bool { return len(b.open) > 0 && b.open[len(b.open)-1].column == 0 }

// block makes the mapping or list at a column the innermost one. A list may be at the
// column of the mapping that it is in; the two count as one.
func (b *bounds) block(column int) {
	if b.inBrackets() {
		return
	}
	for len(b.open) > 0 && b.open[len(b.open)-1].column > column {
		b.open = b.open[:len(b.open)-1]
	}
	if len(b.open) == 0 || b.open[len(b.open)-1].column < column {
		b.open = append(b.open, level{column: column})
	}
}

// entry ends an entry in brackets.
func (b *bounds) entry(at *level) {
	if at.mapping && !at.valued {
		b.empty++
	}
	at.valued = false
}

func (b *bounds) key() string {
	if len(b.open) == 0 {
		return ""
	}
	at := &b.open[len(b.open)-1]
	if at.valued = true; at.column == 0 {
		return "" // the parser does not compare these
	}
	b.comparisons += at.keys
	at.keys++
	if b.comparisons > maxComparisons {
		return fmt.Sprintf("a mapping of %d keys, which is too many for one file: split it", at.keys)
	}
	return ""
}

// emptied reports whether a token begins a value that is not there.
func emptied(tk, next *token.Token) bool {
	switch tk.Type {
	case token.SequenceEntryType:
		return next.Position.Line > tk.Position.Line && next.Position.Column <= tk.Position.Column
	case token.MappingValueType:
		if next.Type == token.CollectEntryType || next.Type == token.MappingEndType {
			return true
		}
		return tk.Prev != nil && next.Position.Line > tk.Position.Line && next.Position.Column <= tk.Prev.Position.Column &&
			next.Type != token.SequenceEntryType
	}
	return false
}
