// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"testing"
)

// Each scheduler is found by its name and by its number, and by nothing else's.
func TestSchedulers(t *testing.T) {
	for _, s := range Schedulers() {
		byName, ok := SchedulerNamed(s.Name)
		if !ok || byName.Number != s.Number {
			t.Errorf("%s is found as %+v", s.Name, byName)
		}
		byNumber, ok := SchedulerNumbered(s.Number)
		if !ok || byNumber.Name != s.Name {
			t.Errorf("%d is found as %+v, want %s", s.Number, byNumber, s.Name)
		}
	}
	if s, ok := SchedulerNumbered(0); ok {
		t.Errorf("number 0 is %s, and should be none", s.Name)
	}
	if s, ok := SchedulerNamed(""); ok {
		t.Errorf("a scheduler without a name: %+v", s)
	}
	if names := SchedulerNames(); !slices.IsSorted(names) || len(names) != len(Schedulers()) {
		t.Errorf("names %v", names)
	}
}
