// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// A trial whose addresses move before its fault begins again, three times at most. How often is stored
// with its measurement, or with the reason why it has none, and the report has the sum.
func TestTrialBeginsAgain(t *testing.T) {
	moved := fmt.Errorf("%w: director 1 is no longer master", errMoved)
	other := errors.New("no namespaces")
	plan := DefaultPlan()
	plan.Variants, plan.Faults, plan.Trials = []string{"imbang@50ms"}, []string{"freeze"}, 6
	dir := filepath.Join(t.TempDir(), "study")
	out, err := Create(dir, Environment{Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		outcomes []error
		again    int
		err      error
	}{
		{[]error{nil}, 0, nil},
		{[]error{moved, nil}, 1, nil},
		{[]error{moved, moved, moved, nil}, 3, nil},
		{[]error{moved, moved, moved, moved, nil}, 3, moved},
		{[]error{moved, other, nil}, 1, other},
		{[]error{other, nil}, 0, other},
	} {
		one, tries, said := Trial{Cell: Cell{"imbang@50ms", "freeze", plain}, Block: i + 1, Order: i + 1}, 0, 0
		err := one.measure(t.Context(), func() error { tries++; return c.outcomes[tries-1] }, func(string) { said++ })
		if !errors.Is(err, c.err) || tries != c.again+1 || said != c.again {
			t.Errorf("%v: %d tries, %d of them said, %v", c.outcomes, tries, said, err)
		}
		if err != nil {
			one = one.without(err)
		}
		if err := out.Trial(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	e, trials, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 1, 3, 3, 1, 0} {
		if trials[i].Again != want {
			t.Errorf("trial %d began again %d times, want %d", i+1, trials[i].Again, want)
		}
	}
	r := Make(e, trials)
	if r.Cells[0].Again != 8 || len(r.Cells[0].Errors) != 3 {
		t.Errorf("%+v", r.Cells[0])
	}

	// What is interrupted does not begin again.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var one Trial
	if err := one.measure(ctx, func() error { return moved }, func(string) {}); !errors.Is(err, errMoved) || one.Again != 0 {
		t.Errorf("interrupted, it began again %d times: %v", one.Again, err)
	}
}
