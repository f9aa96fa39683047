// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"testing"

	"imbang/internal/director"
	"imbang/internal/director/directortest"
	"imbang/internal/host"
)

// roomy is room for the connections of every test. Tables of the default size take a second to empty.
var roomy = director.Sizes{Connections: 1 << 17}

// withDirector makes a director in a namespace, which the program finds as one that was made before.
// What begins with none is for tests of that.
func withDirector(t *testing.T, ns *host.Namespace) {
	t.Helper()
	needRoot(t)
	directortest.Make(t, ns, roomy)
}
