// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"imbang/internal/readfile"
	"imbang/internal/strictyaml"
)

// DefaultFile is where a configuration lies if nothing else is said.
const DefaultFile = "/etc/imbang/imbang.yaml"

// MaxFile bounds a file [bytes]: a configuration of 10 000 servers has 1 MB.
const MaxFile = 4 << 20

var kind = strictyaml.Kind{
	Name: "a configuration", Begin: `a configuration that begins with "services:"`,
	// A password, a token or an SNMP community may be in these.
	Secret: []string{"headers", "secrets", "send", "send_hex", "password", "secret", "token", "raw"},
	Public: []string{"limits.headers"}, // a size
}

// Mistakes are all that is wrong with a configuration, in order of files and lines.
type Mistakes []error

func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, err := range m {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes errors.As find each.
func (m Mistakes) Unwrap() []error { return m }

// Load reads a configuration and what it includes. Names in errors are as path is,
// relative or not. The error is of type Mistakes if the files can be read.
func Load(path string) (*Config, error) {
	c, _, err := LoadSeen(path)
	return c, err
}

// LoadSeen also returns what the files were, valid or not, to notice changes by.
func LoadSeen(path string) (*Config, *Seen, error) {
	seen := &Seen{patterns: []string{path}, files: map[string]stamp{}}
	text, err := readFile(path, seen)
	if err != nil {
		return nil, seen, fmt.Errorf("configuration: %w", err)
	}
	c, err := parse(path, text, seen)
	return c, seen, err
}

// Parse reads a configuration from a text. Files that it includes are relative to path.
func Parse(path string, text []byte) (*Config, error) {
	return parse(path, text, &Seen{files: map[string]stamp{}})
}

func parse(path string, text []byte, seen *Seen) (*Config, error) {
	var d document
	tree, err := strictyaml.Decode(path, text, kind, &d)
	if err != nil {
		return nil, Mistakes{err}
	}
	c := newChecker()
	c.seen = seen
	c.config.Files = []string{path}
	c.tree = tree
	files := c.included(&d)
	c.top(&d)
	sections := append([]section{{tree, included{d.Checks, d.Services, d.Listeners, d.Backends}}}, files...)
	for _, s := range sections { // services may name checks of any file
		c.tree = s.tree
		c.checks(s.Checks)
	}
	for _, s := range sections {
		c.tree = s.tree
		c.services(s.Services)
	}
	c.layer7(sections, d.Proxy)
	c.tree = tree
	c.trackDirector(d.VRRP)
	c.peers()
	c.whole()
	if len(c.mistakes) > 0 {
		return nil, c.sorted()
	}
	if c.config.Pair != nil {
		if c.config.Document, err = json.Marshal(wholeDocument(sections)); err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
	}
	return c.config, nil
}

// section is what one file says of checks, services, listeners and backends.
type section struct {
	tree *strictyaml.Tree
	included
}

// included reads the included files.
func (c *checker) included(d *document) (all []section) {
	for i, pattern := range d.Include {
		at := fmt.Sprintf("include[%d]", i)
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(c.tree.File()), pattern)
		}
		c.seen.patterns = append(c.seen.patterns, pattern)
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 && !strings.ContainsAny(pattern, "*?[") {
			c.refuse(at, "no such file: %s", pattern)
			continue
		}
		for _, path := range paths {
			if slices.Contains(c.config.Files, path) {
				continue
			}
			c.config.Files = append(c.config.Files, path)
			s, err := c.section(path)
			if err != nil {
				c.mistakes = append(c.mistakes, err)
				continue
			}
			all = append(all, s)
		}
	}
	return all
}

func (c *checker) section(path string) (s section, err error) {
	text, err := readFile(path, c.seen)
	if err != nil {
		return s, err
	}
	s.tree, err = strictyaml.Decode(path, text, kind, &s.included)
	return s, err
}

func readFile(path string, seen *Seen) ([]byte, error) {
	text, info, err := readfile.Regular(path, MaxFile)
	seen.note(path, info)
	if errors.As(err, new(readfile.TooLarge)) {
		return nil, fmt.Errorf("%w: split it, and include the parts", err)
	}
	return text, err
}
