// SPDX-License-Identifier: Apache-2.0

// Package directortest makes directors for tests of what uses one.
package directortest

import (
	"testing"

	"imbang/internal/director"
	"imbang/internal/host"
)

// planes are the data planes of directors that were removed, for the next ones.
var planes director.Reuse

// Make makes a director in a namespace, of a used data plane where there is one, which spares the
// kernel seconds of CPU time. It has no devices, and goes away with the test. What opens it finds it as
// one that was made before.
func Make(t testing.TB, ns *host.Namespace, sizes director.Sizes) {
	t.Helper()
	err := ns.Do(func() error {
		d, plane, err := planes.Open(sizes, false)
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
