// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"testing"

	"imbang/internal/director"
	"imbang/internal/host"
)

// roomy is room for the connections of every test. Tables of the default size take a second to empty.
var roomy = director.Sizes{Connections: 1 << 17}

// planes are the data planes of directors that were removed, for the next ones.
var planes director.Reuse

// withDirector makes a director in a namespace, of a used data plane where there is one, which spares
// the kernel seconds of CPU time. The program finds it as one that was made before. What begins with
// none is for tests of that.
func withDirector(t *testing.T, ns *host.Namespace) {
	t.Helper()
	needRoot(t)
	err := ns.Do(func() error {
		d, plane, err := planes.Open(roomy, false)
		if err != nil {
			return err
		}
		t.Cleanup(func() {
			if err := ns.Do(func() error { return planes.Remove(plane) }); err != nil {
				t.Error(err)
			}
		})
		return d.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}
