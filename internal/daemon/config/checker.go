// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"imbang/internal/model"
	"imbang/internal/strictyaml"
)

// checker turns documents into a Config and keeps all mistakes.
type checker struct {
	config   *Config
	tree     *strictyaml.Tree // the file at hand
	seen     *Seen
	mistakes Mistakes
	refused  map[string]bool             // their texts
	named    map[string]*Check           // by name
	keys     map[model.ServiceKey]string // to the place of the first service that has it
	names    map[string]string           // likewise, of services
}

func newChecker() *checker {
	return &checker{config: &Config{}, refused: map[string]bool{}, named: map[string]*Check{}, keys: map[model.ServiceKey]string{}, names: map[string]string{}}
}

// maxMistakes are kept; more are seldom read, and each is compared with all.
const maxMistakes = 100

func (c *checker) full() bool { return len(c.mistakes) >= maxMistakes }

// refuse records a mistake at a path of the file at hand, once: what a service says
// for its servers is looked at for each of them.
func (c *checker) refuse(path, format string, args ...any) {
	if c.full() {
		return
	}
	m := c.tree.Mistake(path, format, args...)
	if text := m.Error(); !c.refused[text] {
		c.refused[text] = true
		c.mistakes = append(c.mistakes, m)
	}
}

// warn records what is valid and probably not meant.
func (c *checker) warn(path, format string, args ...any) {
	c.config.Warnings = append(c.config.Warnings, c.tree.Mistake(path, format, args...).Error())
}

// sorted are the mistakes by file and line.
func (c *checker) sorted() Mistakes {
	slices.SortStableFunc(c.mistakes, func(a, b error) int {
		var p, q *strictyaml.Mistake
		if !errors.As(a, &p) || !errors.As(b, &q) {
			return 0
		}
		return cmp.Or(cmp.Compare(slices.Index(c.config.Files, p.File), slices.Index(c.config.Files, q.File)),
			cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
	})
	return c.mistakes
}

// place says where a path of the file at hand is, for other mistakes.
func (c *checker) place(path string) string {
	m := c.tree.Mistake(path, "")
	return fmt.Sprintf("%s:%d", m.File, m.Line)
}

// oneOf is a word that must be known; empty: the first one.
func (c *checker) oneOf(path, word string, known ...string) string {
	if word == "" {
		return known[0]
	}
	if !slices.Contains(known, word) {
		c.refuse(path, "%q is unknown: want %s", word, alternatives(known))
		return known[0]
	}
	return word
}

// alternatives are words as "a, b or c".
func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// between refuses a number outside a range, and one with a fraction, which the YAML
// library would cut off silently.
func (c *checker) between(path string, n, low, high int) int {
	if f, is := c.tree.Node(path).(*ast.FloatNode); is {
		c.refuse(path, "%v is not a whole number: want %d to %d", f.Value, low, high)
		return low
	}
	if n < low || n > high {
		c.refuse(path, "%d is out of range: want %d to %d", n, low, high)
		return low
	}
	return n
}

// command refuses a command that is empty or has no absolute path: the daemon has
// no search path of the user's.
func (c *checker) command(path string, words []string) []string {
	if c.tree.Has(path) {
		c.program(path, words)
		c.config.Commands = append(c.config.Commands, Command{words, c.tree.Mistake(path, "")})
	}
	return words
}

// program refuses a command that does not begin with a path.
func (c *checker) program(path string, words []string) {
	switch {
	case len(words) == 0 || words[0] == "":
		c.refuse(path, "want a command with its arguments, such as [/usr/local/bin/notify, --quiet]")
	case !strings.HasPrefix(words[0], "/"):
		c.refuse(path, "%q: want the absolute path of a program", words[0])
	}
}
