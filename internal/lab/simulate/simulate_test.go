// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"os"
	"testing"

	"imbang/internal/testenv"
)

// Queueing theory and Linux's rules say what must come of these.
func TestValidate(t *testing.T) {
	testenv.Root(t)
	all, err := Validate(t.Context(), 0.2, 1, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if !v.Right {
			t.Errorf("%s: %s is %g ±%g, want %g (%s)", v.Name, v.Figure, v.Simulated.Mean, v.Simulated.HalfWidth, v.Expected, v.Source)
		}
	}
	if t.Failed() || testing.Verbose() {
		_ = ValidationText(os.Stdout, all)
	}
}
