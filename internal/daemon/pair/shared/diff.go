// SPDX-License-Identifier: Apache-2.0

package shared

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Difference is a key that two documents do not have the same value of.
type Difference struct {
	Path         string
	Ours, Theirs string
}

// String is one line.
func (d Difference) String() string {
	return fmt.Sprintf("%s: %s here, %s there", d.Path, d.Ours, d.Theirs)
}

// Words in the place of values.
const (
	unset  = "not set"
	hidden = "a value that is not shown"
)

// maxDifferences are listed; a document of another origin has thousands.
const maxDifferences = 1000

// maxShown bounds a value [characters].
const maxShown = 80

// Differences are the keys that differ, in the order of paths.
func (r *Rules) Differences(ours, theirs Document) []Difference {
	c := comparison{Rules: r}
	c.maps("", r.Compared(ours), r.Compared(theirs))
	return c.found
}

type comparison struct {
	*Rules
	found []Difference
}

func (c *comparison) differ(path string, ours, theirs any) {
	if len(c.found) < maxDifferences {
		c.found = append(c.found, Difference{printable(path), c.shown(path, ours), c.shown(path, theirs)})
	}
}

// rank is the place of a path in the order of keys.
func (r *Rules) rank(path string) int {
	if i := slices.Index(r.Order, pattern(path)); i >= 0 {
		return i
	}
	return len(r.Order)
}

// keys are all keys of mappings, in their order.
func (r *Rules) keys(path string, all ...map[string]any) []string {
	set := map[string]bool{}
	for _, m := range all {
		for key := range m {
			set[key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.rank(join(path, a)), r.rank(join(path, b))), strings.Compare(a, b))
	})
}

func (c *comparison) maps(path string, ours, theirs map[string]any) {
	for _, key := range c.keys(path, ours, theirs) {
		at := join(path, key)
		a, hasOurs := ours[key]
		b, hasTheirs := theirs[key]
		switch {
		case !hasOurs:
			c.differ(at, nil, b)
		case !hasTheirs:
			c.differ(at, a, nil)
		default:
			c.values(at, a, b)
		}
	}
}

func (c *comparison) values(path string, ours, theirs any) {
	a, isMap := ours.(map[string]any)
	b, areMaps := theirs.(map[string]any)
	p, isList := ours.([]any)
	q, areLists := theirs.([]any)
	switch {
	case isMap && areMaps:
		c.maps(path, a, b)
	case isList && areLists && len(p)+len(q) > 0 && mappings(p) && mappings(q):
		c.lists(path, p, q)
	case !equal(ours, theirs):
		c.differ(path, ours, theirs)
	}
}

func mappings(list []any) bool {
	return !slices.ContainsFunc(list, func(one any) bool { _, is := one.(map[string]any); return !is })
}

func (c *comparison) lists(path string, ours, theirs []any) {
	a, b := labels(ours), labels(theirs)
	if (names(ours) == nil) != (names(theirs) == nil) && len(ours) > 0 && len(theirs) > 0 {
		c.differ(path, ours, theirs)
		return
	}
	var common, there []string
	for i, label := range a {
		at := fmt.Sprintf("%s[%s]", path, label)
		j := slices.Index(b, label)
		if j < 0 {
			c.differ(at, ours[i], nil)
			continue
		}
		common = append(common, label)
		c.values(at, ours[i], theirs[j])
	}
	for j, label := range b {
		if slices.Contains(a, label) {
			there = append(there, label)
		} else {
			c.differ(fmt.Sprintf("%s[%s]", path, label), nil, theirs[j])
		}
	}
	// Schedulers go by the order of servers.
	if !slices.Equal(common, there) {
		c.differ(path+" (order)", strings.Join(common, ", "), strings.Join(there, ", "))
	}
}

// equal compares scalars and lists of them. Times and shares have several spellings.
func equal(a, b any) bool {
	p, isList := a.([]any)
	q, areLists := b.([]any)
	if isList || areLists {
		return isList && areLists && slices.EqualFunc(p, q, equal)
	}
	return plain(a) == plain(b)
}

// quantity is a share, a number of days or a size.
var quantity = regexp.MustCompile(`^[0-9.]+(%|d|B|KiB|MiB|GiB)$`)

func plain(value any) string {
	text := fmt.Sprint(value)
	narrow := strings.Replace(strings.ReplaceAll(text, " ", ""), "min", "m", 1)
	if d, err := time.ParseDuration(narrow); err == nil && narrow != "0" {
		return d.String()
	}
	if quantity.MatchString(narrow) {
		return narrow
	}
	return text
}

// shown is a value in one line.
func (c *comparison) shown(path string, value any) string {
	if value == nil {
		return unset
	}
	for key := range strings.SplitSeq(pattern(path), ".") {
		if slices.Contains(c.Hidden, strings.TrimSuffix(key, "[]")) {
			return hidden
		}
	}
	switch value := value.(type) {
	case map[string]any:
		return fmt.Sprintf("%d keys", len(value))
	case []any:
		if len(value) > 0 && mappings(value) {
			return fmt.Sprintf("%d entries", len(value))
		}
		var words []string
		for _, one := range value {
			words = append(words, fmt.Sprint(one))
		}
		return cut("[" + strings.Join(words, ", ") + "]")
	}
	return cut(fmt.Sprint(value))
}

// printable leaves out what would control a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

func cut(text string) string {
	text = printable(text)
	if runes := []rune(text); len(runes) > maxShown {
		return string(runes[:maxShown]) + "..."
	}
	return text
}
