// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"strings"

	"imbang/internal/lab/distribution"
)

// distributed begins the paths that say how a station's service times are
// distributed.
const distributed = "/service/"

// distributionOf is the distribution that a path names, such as
// /service/lognormal, or else that of the server. The mean stays the same.
func (s *station) distributionOf(path string) distribution.Distribution {
	rest, ok := strings.CutPrefix(path, distributed)
	if !ok {
		return s.Distribution
	}
	name, _, _ := strings.Cut(rest, "/")
	if d, err := distribution.Parse(name); err == nil {
		return d
	}
	return s.Distribution
}
