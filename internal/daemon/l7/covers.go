// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"net/netip"
	"slices"
	"strings"
)

// Covers reports whether every request that matches o matches m, as far as that is seen
// without knowing what regular expressions mean: false is not a proof.
func (m Match) Covers(o Match) bool {
	return covers(m.Hosts, o.Hosts, coversHost) &&
		m.coversPaths(o) &&
		covers(m.Methods, o.Methods, func(a, b string) bool { return a == b }) &&
		covers(m.Sources, o.Sources, func(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }) &&
		!slices.ContainsFunc(m.Headers, func(a HeaderMatch) bool { return !slices.ContainsFunc(o.Headers, a.covers) })
}

// covers reports whether each of some alternatives is covered by one of others.
func covers[T any](outer, inner []T, one func(a, b T) bool) bool {
	if len(outer) == 0 || len(inner) == 0 {
		return len(outer) == 0
	}
	return !slices.ContainsFunc(inner, func(b T) bool {
		return !slices.ContainsFunc(outer, func(a T) bool { return one(a, b) })
	})
}

func coversHost(a, b string) bool {
	below, wild := strings.CutPrefix(a, "*")
	return a == b || wild && strings.HasSuffix(b, below)
}

func (m Match) coversPaths(o Match) bool {
	if m.everyPath() {
		return true
	}
	if o.everyPath() || o.PathRegex != "" && o.PathRegex != m.PathRegex {
		return false
	}
	below := func(path string) bool {
		return slices.ContainsFunc(m.PathPrefixes, func(prefix string) bool { return BelowPrefix(path, prefix) })
	}
	return !slices.ContainsFunc(o.PathPrefixes, func(prefix string) bool { return !below(prefix) }) &&
		!slices.ContainsFunc(o.Paths, func(path string) bool { return !below(path) && !slices.Contains(m.Paths, path) })
}

func (m Match) everyPath() bool {
	return len(m.Paths)+len(m.PathPrefixes) == 0 && m.PathRegex == "" || slices.Contains(m.PathPrefixes, "/")
}

// BelowPrefix reports whether a path begins with a prefix of whole segments.
func BelowPrefix(path, prefix string) bool {
	rest, begins := strings.CutPrefix(path, strings.TrimSuffix(prefix, "/"))
	return begins && (rest == "" || rest[0] == '/')
}

func (h HeaderMatch) covers(o HeaderMatch) bool {
	return strings.EqualFold(h.Name, o.Name) && (h.Value+h.Regex == "" || h.Value == o.Value && h.Regex == o.Regex)
}
