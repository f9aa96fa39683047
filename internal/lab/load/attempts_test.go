// SPDX-License-Identifier: Apache-2.0

package load

import "testing"

// attempts repeats a run whose outcome depends on time until it is as it should be, five times at
// most: other work of the machine disturbs one or the other, a fault of the generator each.
func attempts(t *testing.T, run func() error) {
	t.Helper()
	for i := 1; ; i++ {
		err := run()
		if err == nil {
			return
		}
		if i == 5 {
			t.Fatalf("in attempt %d: %v", i, err)
		}
		t.Logf("attempt %d: %v", i, err)
	}
}
