// SPDX-License-Identifier: Apache-2.0

package study

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Limits that the lab's address plan and one machine set.
const (
	MaxClientNamespaces = 8
	MaxClientAddresses  = 16000
	MaxServers          = 16
	maxPageBytes        = 1 << 20
	maxRate             = 1e6
)

// checker turns a document into a Study and keeps the first mistake.
type checker struct {
	file    string
	body    ast.Node
	engines []string
	err     error
}

// refuse records a mistake at a path such as load.rates[1]. A path that is not
// in the file, a missing key, is located at its nearest parent.
func (c *checker) refuse(path, format string, args ...any) {
	if c.err != nil {
		return
	}
	line, column := 1, 1
	for p := path; ; p = parentPath(p) {
		if n := c.node(p); n != nil {
			pos := n.GetToken().Position
			line, column = pos.Line, pos.Column
			break
		}
		if p == "" {
			break
		}
	}
	c.err = fmt.Errorf("%s:%d:%d: %s: %s", c.file, line, column, path, fmt.Sprintf(format, args...))
}

// node is the value at a path of the file, nil if there is none.
func (c *checker) node(path string) ast.Node {
	p, err := yaml.PathString(strings.TrimSuffix("$."+path, "."))
	if err != nil {
		return nil
	}
	n, err := p.FilterNode(c.body)
	if err != nil {
		return nil
	}
	return n
}

func (c *checker) has(path string) bool { return c.node(path) != nil }

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

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

func (c *checker) study(d *document) *Study {
	if !nameForm.MatchString(d.Name) {
		c.refuse("name", "%q: want a short name of lower-case letters, digits, - and _", d.Name)
	}
	s := &Study{
		Name: d.Name, Title: cmp.Or(d.Title, d.Name), Source: d.Source,
		ClientNamespaces: d.Cluster.ClientNamespaces, ClientAddresses: d.Cluster.ClientAddresses,
		Weights: d.Cluster.Weights, Rates: d.Load.Rates, Connections: d.Load.Connections,
		Arrivals: d.Load.Arrivals, Engines: d.Engines, Schedulers: d.Schedulers, Repeats: d.Repeats,
	}
	c.cluster(d, s)
	c.load(d, s)
	c.list("engines", d.Engines, c.engines)
	c.list("schedulers", d.Schedulers, nil)
	c.between("repeats", d.Repeats, 1, 1000)
	c.quick(d, s)
	s.Published = c.published(d.Published)
	return s
}

func (c *checker) cluster(d *document, s *Study) {
	c.between("cluster.client_namespaces", s.ClientNamespaces, 1, MaxClientNamespaces)
	c.between("cluster.client_addresses", s.ClientAddresses, 1, MaxClientAddresses)
	if s.ClientAddresses < s.ClientNamespaces {
		c.refuse("cluster.client_addresses", "%d is fewer than the %d client namespaces: give each one at least",
			s.ClientAddresses, s.ClientNamespaces)
	}
	if n := len(s.Weights); n < 1 || n > MaxServers {
		c.refuse("cluster.weights", "%d real servers: want 1 to %d weights, one for each", n, MaxServers)
	}
	for i, w := range s.Weights {
		c.between(fmt.Sprintf("cluster.weights[%d]", i), w, 0, 65535)
	}
	if len(s.Weights) > 0 && slices.Max(s.Weights) == 0 {
		c.refuse("cluster.weights", "all are 0, so no server takes connections: give one a weight of 1 or more")
	}
	s.PageBytes = c.size("cluster.page", d.Cluster.Page)
}

func (c *checker) load(d *document, s *Study) {
	if len(s.Rates) == 0 {
		c.refuse("load.rates", "missing: want a list of connections per second such as [2000, 8000]")
	}
	for i, r := range s.Rates {
		path := fmt.Sprintf("load.rates[%d]", i)
		if !(r > 0 && r <= maxRate) {
			c.refuse(path, "%g is out of range: want connections per second, above 0 and at most %g", r, maxRate)
		}
		if slices.Index(s.Rates, r) != i {
			c.refuse(path, "%g is given twice: remove one", r)
		}
	}
	switch {
	case c.has("load.connections") == c.has("load.duration"):
		c.refuse("load", "give either connections or duration for a cell's length")
	case c.has("load.connections"):
		c.between("load.connections", s.Connections, 1, 100_000_000)
	default:
		s.Duration = c.duration("load.duration", d.Load.Duration)
	}
	s.Timeout = c.duration("load.timeout", d.Load.Timeout)
	c.list("load.arrivals", s.Arrivals, []string{"constant", "poisson"})
}

func (c *checker) quick(d *document, s *Study) {
	s.Quick = Quick{Duration: time.Second, Repeats: 1}
	if c.has("quick.duration") {
		s.Quick.Duration = c.duration("quick.duration", d.Quick.Duration)
	}
	if c.has("quick.repeats") {
		c.between("quick.repeats", d.Quick.Repeats, 1, 1000)
		s.Quick.Repeats = d.Quick.Repeats
	}
}

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
		case !nameForm.MatchString(n):
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

// duration reads "5 s" or "500 ms". A bare number is refused: its unit is
// anybody's guess.
func (c *checker) duration(path, text string) time.Duration {
	d, err := time.ParseDuration(strings.ReplaceAll(text, " ", ""))
	switch {
	case text == "":
		c.refuse(path, "missing: want a time such as 5 s")
	case isNumber(text):
		c.refuse(path, "%s has no unit: write %s s or %s ms", text, text, text)
	case err != nil:
		c.refuse(path, "%q is not a time: write a number with ms, s or m, such as 5 s", text)
	case d <= 0:
		c.refuse(path, "%s: want a time above 0", text)
	}
	return d
}

var sizeForm = regexp.MustCompile(`^(\d+) *([A-Za-z]+)$`)

// size reads "375 B" or "16 KB", with 1024 bytes a KB as httperf counts.
func (c *checker) size(path, text string) int {
	factors := map[string]int{"B": 1, "KB": 1 << 10}
	m := sizeForm.FindStringSubmatch(text)
	switch {
	case text == "":
		c.refuse(path, "missing: want a size such as 375 B")
		return 0
	case isNumber(text):
		c.refuse(path, "%s has no unit: write %s B", text, text)
		return 0
	case m == nil || factors[m[2]] == 0:
		c.refuse(path, "%q is not a size: write a whole number with B or KB, such as 375 B", text)
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if n *= factors[m[2]]; err != nil || n < 1 || n > maxPageBytes {
		c.refuse(path, "%q is out of range: want 1 B to %d KB", text, maxPageBytes>>10)
	}
	return n
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}
