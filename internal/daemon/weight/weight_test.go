// SPDX-License-Identifier: Apache-2.0

package weight

import (
	"fmt"
	"testing"

	"imbang/internal/model"
)

func ptr[T any](v T) *T { return &v }

func TestService(t *testing.T) {
	up, down := Input{Configured: 2}, Input{Configured: 3, Down: true}
	removed := down
	removed.Remove = true
	maintained := removed
	maintained.Maintenance = true
	for _, c := range []struct {
		name    string
		servers []Input
		policy  Policy
		last    int
		sorry   bool
		want    string
	}{
		{"up and down", []Input{up, down}, Refuse, 1, false, "[{2 up false false} {3 down false false}]"},
		{"removed", []Input{up, removed}, Refuse, 1, false, "[{2 up false false} {3 down false true}]"},
		{"in maintenance", []Input{up, maintained}, Refuse, 1, false, "[{2 up false false} {3 up true false}]"},
		{"by hand", []Input{{Configured: 2, Weight: ptr(int32(0))}}, Refuse, -1, false, "[{0 up false false}]"},
		{"half", []Input{{Configured: 2, Withheld: model.Down / 2}}, Refuse, -1, false, "[{2 50% false false}]"},
		{"drained", []Input{{Configured: 2, Drain: true}}, Refuse, -1, false, "[{2 up true false}]"},
		{"all down", []Input{down, removed}, Refuse, 1, false, "[{3 down false false} {3 down false true}]"},
		{"the last one", []Input{down, removed}, KeepLast, 1, false, "[{3 down false false} {3 up false false}]"},
		{"all of them", []Input{down, removed}, UseAll, 1, false, "[{3 up false false} {3 up false false}]"},
		{"not all down", []Input{down, up}, UseAll, 0, false, "[{3 down false false} {2 up false false}]"},
		{"sorry", []Input{up, down}, Refuse, 1, true, "[{2 down false false} {3 down false false}]"},
	} {
		if got := fmt.Sprint(Service(c.servers, c.policy, c.last, c.sorry)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestQuorum(t *testing.T) {
	of := func(weights ...int32) (list []Input) {
		for _, w := range weights {
			list = append(list, Input{Configured: max(w, -w), Down: w < 0})
		}
		return list
	}
	for _, c := range []struct {
		servers            []Input
		quorum, hysteresis int
		was, want          bool
	}{
		{of(), 1, 0, true, false},
		{of(1), 1, 0, false, true},
		{of(-1), 1, 0, true, false},
		{of(0), 1, 0, true, false},
		{of(2, 2, -2), 4, 1, false, false},
		{of(2, 2, -2), 4, 1, true, true},
		{of(2, 1, -2), 4, 1, true, true},
		{of(2, -1, -2), 4, 1, true, false},
		{of(2, 2, 1), 4, 1, false, true},
	} {
		if got := Quorum(c.servers, c.quorum, c.hysteresis, c.was); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if (Input{Configured: 1, Maintenance: true}).Available() || (Input{Configured: 1, Drain: true}).Available() {
		t.Error("a server out of service counts")
	}
}
