// SPDX-License-Identifier: Apache-2.0

package shared

import (
	"fmt"
	"slices"
)

// Merge is the document of a director that gets one of the other (Transfer): all of that with
// this one's own and local keys. Own keys of what the other one does not have go with it.
func (r *Rules) Merge(theirs, mine Document) (Document, error) {
	out := clone(theirs).(Document)
	r.keep("", mine, out)
	if path := r.unfilled("", out); path != "" {
		return nil, fmt.Errorf("%s is of one director alone, and new: write it into the file of the director that gets the configuration first", path)
	}
	return out, nil
}

func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := Document{}
		for key, one := range value {
			out[key] = clone(one)
		}
		return out
	case []any:
		out := []any{}
		for _, one := range value {
			out = append(out, clone(one))
		}
		return out
	}
	return value
}

// keep copies a director's own values to where they are in another document.
func (r *Rules) keep(path string, mine, out map[string]any) {
	for key, value := range mine {
		at := join(path, key)
		switch {
		case below(at, r.Own), below(at, r.Local):
			out[key] = clone(value)
		case below(at, r.Present):
			if _, there := out[key]; there {
				out[key] = clone(value)
			}
		default:
			r.keepBelow(at, value, key, out)
		}
	}
	// What neither has is not to be filled in from the other director.
	for key := range out {
		if _, has := mine[key]; !has && below(join(path, key), r.Local) && r.chosen(path, mine) {
			delete(out, key)
		}
	}
}

// chosen reports whether a mapping has a local key: then those that it lacks have their
// defaults.
func (r *Rules) chosen(path string, mine map[string]any) bool {
	for key := range mine {
		if below(join(path, key), r.Local) {
			return true
		}
	}
	return false
}

func (r *Rules) keepBelow(at string, value any, key string, out map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		next, is := out[key].(map[string]any)
		if !is {
			next = Document{}
		}
		r.keep(at, value, next)
		if is || len(next) > 0 || len(value) == 0 && r.above(at) {
			out[key] = next
		}
	case []any:
		list, is := out[key].([]any)
		if !is || !mappings(value) || !mappings(list) {
			return
		}
		ours, theirs := labels(value), labels(list)
		if (names(value) == nil) != (names(list) == nil) {
			return
		}
		for i, label := range ours {
			if j := slices.Index(theirs, label); j >= 0 {
				r.keep(at+"[]", value[i].(map[string]any), list[j].(map[string]any))
			}
		}
	}
}

// unfilled is the path of a key of which only the other director has a value; "": there is
// none.
func (r *Rules) unfilled(path string, value any) string {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range r.keys(path, value) {
			at := join(path, key)
			if list, is := value[key].([]any); is && len(list) == 0 && below(at, r.Present) {
				return at
			}
			if found := r.unfilled(at, value[key]); found != "" {
				return found
			}
		}
	case []any:
		for i, label := range labels(value) {
			if found := r.unfilled(fmt.Sprintf("%s[%s]", path, label), value[i]); found != "" {
				return found
			}
		}
	}
	return ""
}
