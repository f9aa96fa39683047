// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// A rule of a longer prefix than meant would replace another.
func TestMarkWantsPrefixes(t *testing.T) {
	for prefix, meant := range map[string]string{
		"10.20.0.40/27":       "10.20.0.32/27",
		"fd00::1/64":          "fd00::/64",
		"::ffff:10.0.0.1/112": "10.0.0.0/16",
		"::ffff:10.0.0.0/112": "10.0.0.0/16",
	} {
		err := setMark(prefix, 3)
		if err == nil || !strings.Contains(err.Error(), "("+meant+"?)") {
			t.Errorf("%s: %v, want a hint at %s", prefix, err, meant)
		}
	}
}
