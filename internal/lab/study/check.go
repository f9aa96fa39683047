// SPDX-License-Identifier: Apache-2.0

package study

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml/ast"

	"imbang/internal/strictyaml"
)

// Limits that the lab's address plan and one machine set.
const (
	MaxClientNamespaces = 8
	MaxClientAddresses  = 16000
	MaxServers          = 16
	MaxVirtualAddresses = 4096 // lblc and lblcr remember 8192 destinations
	MaxURLs             = 1_000_000
	maxPageBytes        = 1 << 20
	maxRate             = 1e6
)

// checker turns a document into a Study and keeps the first mistake.
type checker struct {
	tree    *strictyaml.Tree
	engines []Engine // nil: any
	err     error
}

// refuse records a mistake at a path such as load.rates[1]. A path that is not
// in the file, a missing key, is located at its nearest parent.
func (c *checker) refuse(path, format string, args ...any) {
	if c.err != nil {
		return
	}
	c.err = c.tree.Mistake(path, format, args...)
}

// node is the value at a path of the file, nil if there is none.
func (c *checker) node(path string) ast.Node { return c.tree.Node(path) }

func (c *checker) has(path string) bool { return c.tree.Has(path) }

// between refuses a number outside a range, and one with a fraction, which the
// YAML library would cut off silently.
func (c *checker) between(path string, n, low, high int) {
	switch v := c.node(path).(type) {
	case nil:
		c.refuse(path, "missing: want a whole number from %d to %d", low, high)
		return
	case *ast.FloatNode:
		c.refuse(path, "%v is not a whole number: want %d to %d", v.Value, low, high)
		return
	}
	switch {
	case n < low || n > high:
		c.refuse(path, "%d is out of range: want %d to %d", n, low, high)
	}
}

var nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`) })

func (c *checker) study(d *document) *Study {
	if !nameForm().MatchString(d.Name) {
		c.refuse("name", "%q: want a short name of lower-case letters, digits, - and _", d.Name)
	}
	s := &Study{Name: d.Name, Title: cmp.Or(d.Title, d.Name), Source: d.Source, Hypothesis: d.Hypothesis}
	c.cluster(&d.Cluster, s)
	c.load(&d.Load, s)
	c.competitors(d.Competitors, s)
	c.reference(d.Load.Reference, s)
	c.repeats(&d.Repeats, s)
	c.quick(&d.Quick, s)
	s.Published = c.published(d.Published, s)
	return s
}

// keys are the keys of a mapping in the order of the file.
func (c *checker) keys(path string) []string { return c.tree.Keys(path) }

// absent refuses a key that does not belong where it stands.
func (c *checker) absent(path, key, why string) {
	if at := path + "." + key; c.has(at) {
		c.refuse(at, "remove it: %s", why)
	}
}

func join(names []string) string { return strings.Join(names, ", ") }

// list refuses an empty list, a repeated name, an ill-formed one, and, when
// known names are given, any other.
func (c *checker) list(path string, names, known []string) {
	if len(names) == 0 {
		c.refuse(path, "missing: want a list such as [%s]", strings.Join(orExample(known), ", "))
	}
	for i, n := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case known != nil && !slices.Contains(known, n):
			c.refuse(at, "%q is unknown: want one of %s", n, strings.Join(known, ", "))
		case !nameForm().MatchString(n):
			c.refuse(at, "%q: want a name of lower-case letters and digits", n)
		case slices.Index(names, n) != i:
			c.refuse(at, "%q is given twice: remove one", n)
		}
	}
}

func orExample(known []string) []string {
	if known != nil {
		return known
	}
	return []string{"rr", "wrr"}
}
