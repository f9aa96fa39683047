// SPDX-License-Identifier: Apache-2.0

package version

import "testing"

func TestRevision(t *testing.T) {
	defer func(c string) { Commit = c }(Commit)
	for _, c := range []struct {
		linked, commit string
		modified       bool
	}{{"0123abc", "0123abc", false}, {"0123abc-dirty", "0123abc", true}} {
		Commit = c.linked
		if commit, modified := Split(Revision()); commit != c.commit || modified != c.modified {
			t.Errorf("%s: %q, %v", c.linked, commit, modified)
		}
	}
}
