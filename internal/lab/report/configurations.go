// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// ConfigurationsFile holds what the competitors' programs were given, in the
// directory of the run.
const ConfigurationsFile = "configurations.txt"

// configurations writes that file.
func (rep *Report) configurations(w io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(rep.Configurations)) {
		if _, err := fmt.Fprintf(w, "== %s\n\n%s\n\n", name, strings.TrimRight(rep.Configurations[name], "\n")); err != nil {
			return err
		}
	}
	return nil
}
