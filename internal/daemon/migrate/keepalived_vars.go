// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// definition is what a variable of keepalived.conf stands for. One of several lines stands
// for them only at the end of a line.
type definition struct {
	value     string
	multiline bool
}

const (
	maxReplaced     = 1 << 12  // replacements in one line
	maxReplacedSize = 64 << 20 // bytes of all lines that something was replaced in
	maxNested       = 64       // definitions of several lines and sequences in each other
)

var definitionForm = regexp.MustCompile(`^\$([A-Za-z_][A-Za-z0-9_]*)=[ \t]*(.*)$`)

// define takes in a definition, and reports whether the line is one.
func (c *confReader) define(text string) bool {
	m := definitionForm.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	value, more := strings.CutSuffix(m[2], `\`)
	if more {
		c.defining = m[1]
		if value = strings.TrimRight(value, " \t"); value != "" {
			value += "\n"
		}
	}
	c.defs[m[1]] = definition{value, more}
	delete(c.unknown, m[1])
	return true
}

// goOn adds a line to the definition of several lines that is open, and closes it behind
// the last one.
func (c *confReader) goOn(text string) {
	d := c.defs[c.defining]
	text, more := strings.CutSuffix(text, `\`)
	if text = strings.TrimRight(text, " \t"); more && text != "" {
		text += "\n"
	}
	d.value += text
	c.defs[c.defining] = d
	if !more {
		c.endDefinition()
	}
}

func (c *confReader) endDefinition() {
	if d := c.defs[c.defining]; d.value == "" {
		c.defs[c.defining] = definition{}
	}
	c.defining = ""
}

// variable is the name at the beginning of what follows a $, and how long it is there:
// NAME before a blank, a comma, a ) or the end, or {NAME}, which may have parameters.
func variable(s string) (name string, n int) {
	if m := bracedForm.FindStringSubmatch(s); m != nil {
		return m[1], len(m[0])
	}
	if m := bareForm.FindStringSubmatch(s); m != nil {
		return m[1], len(m[1])
	}
	return "", 0
}

var (
	bracedForm = regexp.MustCompile(`^\{([A-Za-z_][A-Za-z0-9_]*)(?:[0-9 ]*[0-9])?\}`)
	bareForm   = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)(?:[ \t,)]|$)`)
)

// replace puts in what variables stand for, from the left, and again in what came in. Lines
// behind the first one of a definition of several lines are returned apart.
func (c *confReader) replace(text string) (out string, more []string, changed bool, err error) {
	for i, n := 0, 0; ; {
		next := strings.IndexByte(text[i:], '$')
		if next < 0 || i+next+1 == len(text) {
			return text, more, changed, nil
		}
		i += next
		name, size := variable(text[i+1:])
		end := i + 1 + size
		value, rest, known := c.valueOf(name, end == len(text))
		if !known {
			i++
			continue
		}
		if len(text)-size-1+len(value) > maxLine {
			return "", nil, false, fmt.Errorf("$%s: with its value the line is longer than %d bytes, and keepalived does not put it in: shorten it; does it stand for itself?", name, maxLine)
		}
		if _, own := c.defs[name]; name == "_PWD" && !own && !strings.HasPrefix(text, "include") { // of which the file is read now
			c.result.lose(c.at, "${_PWD}", "%s, the directory of this file, is written in its place", value)
		}
		more = append(rest, more...)
		text, changed = text[:i]+value+text[end:], true
		n++
		c.replaced += len(text)
		if n > maxReplaced || c.replaced > maxReplacedSize {
			return "", nil, false, fmt.Errorf("$%s: too many replacements: does it stand for itself?", name)
		}
		if strings.HasPrefix(strings.TrimLeft(value, " \t"), "~") {
			return text, more, changed, nil
		}
	}
}

func (c *confReader) valueOf(name string, last bool) (value string, more []string, known bool) {
	d, known := c.defs[name]
	dir := c.dir
	if !filepath.IsAbs(dir) && c.from.Base != "" {
		dir = filepath.Join(c.from.Base, dir)
	}
	switch {
	case name == "_PWD" && !known && filepath.IsAbs(dir):
		return dir, nil, true
	case !known || d.multiline && !last:
		return "", nil, false
	case d.multiline:
		lines := strings.Split(strings.TrimSuffix(d.value, "\n"), "\n")
		return lines[0], lines[1:], true
	}
	return d.value, nil, true
}

// unresolved marks a variable without a known value where its braces would be taken for
// those of a block: $\x01NAME\x01.
const unresolved = "$\x01"

// predefined are variables whose values depend on the machine and the moment.
var predefined = map[string]string{
	"_PWD":      "the directory of the file, which is not known here",
	"_INSTANCE": "another on each machine: say which with --config-id",
	"_RANDOM":   "a random number",
}

// mark marks variables that have no known value: those that keepalived has predefined,
// those that are defined for some machines only, and those in braces outside double quotes.
func (c *confReader) mark(text string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		if text[i] == '"' {
			quoted = !quoted
		}
		if text[i] == '$' {
			name, n := variable(text[i+1:])
			if c.unknown[name] || predefined[name] != "" || n > 0 && !quoted && text[i+1] == '{' {
				b.WriteString(unresolved + name + "\x01")
				i += n
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// lost says what a line is left out for, if it has a variable without a known value.
func (c *confReader) lost(text string) (what, why string, is bool) {
	_, after, is := strings.Cut(text, unresolved)
	if !is {
		return "", "", false
	}
	name, _, _ := strings.Cut(after, "\x01")
	switch why = predefined[name]; {
	case c.unknown[name]:
		why = "defined for some machines only: say for which with --config-id"
	case why == "":
		why = "not defined"
	}
	return unmarked(text), fmt.Sprintf("${%s} is %s: left out", name, why), true
}

// unmarked is a text as it was before mark.
func unmarked(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, unresolved, "${"), "\x01", "}")
}

var (
	sequenceForm = regexp.MustCompile(`^~SEQ(x?)[ \t]*\(([^)]*)\)[ \t]*(.*)$`)
	listForm     = regexp.MustCompile(`^~LST[ \t]*\(([^)]*)\)[ \t]*(.*)$`)
)

// sequence takes in a line once for each number of ~SEQ, or each value of ~LST.
func (c *confReader) sequence(at place, text string, depth int) error {
	set, rest, err := c.sequenced(text)
	if err != nil {
		c.drop(at, text, "", err.Error()+": left out")
		return nil
	}
	for one := range set {
		for i, name := range one.names {
			c.defs[name] = definition{value: one.values[i]}
		}
		if rest == "" {
			if err := c.count(); err != nil {
				return err
			}
		}
		if err := c.line(at, rest, depth+1); err != nil {
			return err
		}
	}
	return nil
}

type assignment struct{ names, values []string }

// sequenced reads ~SEQ(NAME, [START, [STEP,]] END) and ~LST(NAME, VALUE...).
func (c *confReader) sequenced(text string) (set func(func(assignment) bool), rest string, err error) {
	if m := listForm.FindStringSubmatch(text); m != nil {
		set, err = listed(m[1])
		return set, m[2], err
	}
	m := sequenceForm.FindStringSubmatch(text)
	if m == nil {
		return nil, "", errors.New("not a sequence or list")
	}
	params, _, _, err := c.replace(m[2])
	if err != nil {
		return nil, "", err
	}
	fields := strings.Split(params, ",")
	name := strings.TrimSpace(fields[0])
	if len(fields) < 2 || len(fields) > 4 || name == "" {
		return nil, "", errors.New("want ~SEQ(NAME, START, STEP, END)")
	}
	var n []int64
	for _, f := range fields[1:] {
		v, err := strconv.ParseInt(strings.TrimSpace(f), 0, 32)
		if err != nil {
			return nil, "", fmt.Errorf("%q is not a number", f)
		}
		n = append(n, v)
	}
	start, step, end := steps(n)
	base := 10
	if m[1] == "x" {
		base = 16
	}
	if step == 0 || start < end && step < 0 || start > end && step > 0 || base == 16 && (start < 0 || end < 0) {
		return nil, "", errors.New("a sequence without an end")
	}
	return func(yield func(assignment) bool) {
		for v := start; step > 0 && v <= end || step < 0 && v >= end; v += step {
			if !yield(assignment{[]string{name}, []string{strconv.FormatInt(v, base)}}) {
				return
			}
		}
	}, m[3], nil
}

// steps are the start, step and end of one to three numbers.
func steps(n []int64) (start, step, end int64) {
	switch len(n) {
	case 1:
		if n[0] < 0 {
			return -1, -1, n[0]
		}
		if n[0] < 1 {
			return 1, -1, n[0]
		}
		return 1, 1, n[0]
	case 2:
		if n[0] <= n[1] {
			return n[0], 1, n[1]
		}
		return n[0], -1, n[1]
	}
	return n[0], n[1], n[2]
}

var groupForm = regexp.MustCompile(`[ \t]*(?:\{([^}]*)\}|([^,{}]*))[ \t]*(,|$)`)

// listed reads NAME, VALUE, VALUE and {NAME, NAME}, {VALUE, VALUE}.
func listed(params string) (func(func(assignment) bool), error) {
	var groups [][]string
	for rest := params; ; {
		m := groupForm.FindStringSubmatchIndex(rest)
		if m == nil || m[0] != 0 {
			return nil, errors.New("want ~LST(NAME, VALUE, VALUE)")
		}
		group := rest[max(m[2], m[4]):max(m[3], m[5])]
		var words []string
		for w := range strings.SplitSeq(group, ",") {
			words = append(words, strings.TrimSpace(w))
		}
		groups = append(groups, words)
		if m[6] == m[7] { // the end
			break
		}
		rest = rest[m[1]:]
	}
	names := groups[0]
	for _, g := range groups[1:] {
		if len(g) > len(names) {
			return nil, errors.New("more values than variables")
		}
	}
	if len(groups) < 2 || names[0] == "" {
		return nil, errors.New("want ~LST(NAME, VALUE, VALUE)")
	}
	return func(yield func(assignment) bool) {
		for _, g := range groups[1:] {
			values := make([]string, len(names)) // missing ones are empty
			copy(values, g)
			if !yield(assignment{names, values}) {
				return
			}
		}
	}, nil
}
