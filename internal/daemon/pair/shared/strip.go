// SPDX-License-Identifier: Apache-2.0

package shared

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// Transfer is what of a document goes to the other director: all but its own keys.
func (r *Rules) Transfer(d Document) Document {
	return r.strip("", d, func(path string) bool { return below(path, r.Own) }).(Document)
}

// Compared is what of a document both directors are to have.
func (r *Rules) Compared(d Document) Document {
	return r.strip("", d, func(path string) bool { return below(path, r.Own) || below(path, r.Local) }).(Document)
}

// strip copies a value without keys. A mapping that has none left goes, too.
func (r *Rules) strip(path string, value any, gone func(path string) bool) any {
	switch value := value.(type) {
	case map[string]any:
		out := Document{}
		for key, one := range value {
			at := join(path, key)
			if gone(at) {
				continue
			}
			if below(at, r.Present) {
				out[key] = []any{}
				continue
			}
			next := r.strip(at, one, gone)
			if m, is := next.(map[string]any); is && len(m) == 0 && (len(one.(map[string]any)) > 0 || r.above(at)) {
				continue
			}
			out[key] = next
		}
		return out
	case []any:
		out := []any{}
		for _, one := range value {
			out = append(out, r.strip(path+"[]", one, gone))
		}
		return out
	}
	return value
}

// above reports whether keys of one director are below a path.
func (r *Rules) above(path string) bool {
	return slices.ContainsFunc(slices.Concat(r.Own, r.Local), func(one string) bool { return strings.HasPrefix(one, pattern(path)+".") })
}

// Digest identifies what of a document is compared. Documents of different digests may still
// be equal: of one time in two spellings, for example.
func (r *Rules) Digest(d Document) string {
	text, err := json.Marshal(r.Compared(d))
	if err != nil {
		panic(err) // of texts, numbers, lists and mappings
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
