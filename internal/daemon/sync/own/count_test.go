// SPDX-License-Identifier: Apache-2.0

package own

import (
	"reflect"
	"testing"
)

// Every counter is added.
func TestCountsAdd(t *testing.T) {
	var one Counts
	v := reflect.ValueOf(&one).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Array {
			for j := range f.Len() {
				f.Index(j).SetUint(uint64(100 + j))
			}
		} else {
			f.SetUint(uint64(i + 1))
		}
	}
	two := reflect.ValueOf(one.Add(one))
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Uint64 && two.Field(i).Uint() != 2*f.Uint() {
			t.Errorf("%s: %d", v.Type().Field(i).Name, two.Field(i).Uint())
		}
	}
	if got := one.Add(one).Refused[ReasonForged]; got != 2*one.Refused[ReasonForged] {
		t.Error(got)
	}
}
