// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"imbang/internal/lab/load"
)

// tells reports whether a result knows all of the fields, by their names in
// its JSON: what a tool does not say is 0 there and means nothing.
func tells(r *load.Result, fields ...string) bool {
	return !slices.ContainsFunc(fields, func(f string) bool { return slices.Contains(r.Absent, f) })
}
