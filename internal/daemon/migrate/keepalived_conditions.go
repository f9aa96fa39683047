// SPDX-License-Identifier: Apache-2.0

package migrate

import "strings"

// dropping is what is left out with a line: the block that it opens.
type dropping struct {
	depth     int    // open braces of the block
	condition string // of the line that opened it
	fresh     bool   // no line of the block has come yet: another condition may open the same one
	expected  bool   // the line had no block, which may begin with the next one
}

// piece reports whether a brace or statement is of a block that is left out.
func (d *dropping) piece(text string) bool {
	expected := d.expected
	d.expected = false
	switch {
	case d.depth == 0 && expected && text == "{":
		d.depth, d.fresh, d.condition = 1, false, ""
		return true
	case d.depth == 0:
		return false
	case text == "{":
		d.depth++
	case text == "}":
		d.depth--
	}
	d.fresh = false
	return true
}

// line leaves out a line, and a block that it opens. Of "@a real_server A {" and "@b
// real_server B {" behind it, one } ends both. A } of a line that is left out closes no
// block that is kept.
func (d *dropping) line(text, condition string) {
	opened, closed := 0, 0
	for rest, first := text, ""; rest != ""; {
		first, rest = cutBrace(rest)
		switch first {
		case "{":
			opened++
		case "}":
			closed++
		}
	}
	switch {
	case d.depth == 0 && opened == 0 && closed == 0:
		d.expected = true
	case d.depth > 0 && d.fresh && opened > closed && condition != "" && condition != d.condition:
	case d.depth == 0 && opened > closed:
		d.depth, d.fresh, d.condition = opened-closed, condition != "", condition
	case d.depth > 0:
		d.depth = max(d.depth+opened-closed, 0)
	}
}

// drop leaves out a line with its block, and says why.
func (c *confReader) drop(at place, text, condition, why string) {
	told := c.dropped.depth == 0 || c.dropped.fresh
	c.dropped.line(text, condition)
	if c.dropped.depth > 0 {
		why += " with its block"
	}
	if told {
		c.result.lose(at, text, "%s", why)
	}
	c.last = nil
}

// conditional is what follows the condition of a line, @ID or @^ID, if that holds; "" if
// not. A line whose condition is not known is left out.
func (c *confReader) conditional(at place, text string) string {
	condition, _, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
	rest := strings.TrimLeft(text[len(condition):], " \t")
	if c.from.ConfigID == "" {
		c.drop(at, text, condition, "holds for some machines only (@): say for which with --config-id: left out")
		if m := definitionForm.FindStringSubmatch(rest); m != nil {
			c.unknown[m[1]] = true
			delete(c.defs, m[1])
		}
		return ""
	}
	id, not := strings.CutPrefix(condition[1:], "^")
	if (id == c.from.ConfigID) == not {
		return ""
	}
	return rest
}
