// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"math"
	"testing"
)

// Near fails unless two numbers are alike to a share.
func Near(t testing.TB, what string, got, want, share float64) {
	t.Helper()
	if !(math.Abs(got-want) <= share*math.Abs(want)) {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}
