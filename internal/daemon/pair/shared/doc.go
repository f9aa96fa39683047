// SPDX-License-Identifier: Apache-2.0

// Package shared compares the documents of two directors that have the same configuration but
// for what belongs to one of them, and makes one director's document of the other one's. It is
// pure, and knows keys only by the rules that it gets.
package shared

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Document is a configuration file as it stands, with what it includes in it.
type Document = map[string]any

// Rules say which keys are of one director alone. Paths are those of the reference, such as
// vrrp.groups[].priority, and stand for all that is below them.
type Rules struct {
	// Own are keys that neither leave a director nor are compared.
	Own []string
	// Local are keys that are not compared, and that a director keeps; one that has none gets
	// that of the other.
	Local []string
	// Present are keys of which only is compared whether they are there.
	Present []string
	// Hidden are keys, without the path, whose values are not shown.
	Hidden []string
	// Order lists all keys in the order in which they are written.
	Order []string
}

var index = regexp.MustCompile(`\[[^\]]*\]`)

// pattern is a path with [] in the place of each index or name.
func pattern(path string) string { return index.ReplaceAllString(path, "[]") }

// below reports whether a path is one of the patterns.
func below(path string, patterns []string) bool { return slices.Contains(patterns, pattern(path)) }

// join is the path of a key.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// names are what identify the entries of a list of mappings: their addresses or names, or nil
// if not all have different ones.
func names(list []any) (out []string) {
	for _, key := range []string{"address", "name"} {
		out = nil
		for _, one := range list {
			m, _ := one.(map[string]any)
			name := fmt.Sprint(m[key])
			if _, has := m[key]; !has || slices.Contains(out, name) {
				out = nil
				break
			}
			out = append(out, name)
		}
		if out != nil {
			return out
		}
	}
	return nil
}

// labels are the indices of the entries of a list in paths: names, or numbers.
func labels(list []any) []string {
	out := names(list)
	if out == nil {
		for i := range list {
			out = append(out, fmt.Sprint(i))
		}
	}
	for i := range out {
		out[i] = strings.NewReplacer("[", "", "]", "").Replace(out[i])
	}
	return out
}
