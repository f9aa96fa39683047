// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Millisecond) }
	for _, c := range []struct {
		what    string
		changes []change
		want    course
	}{
		{"nothing", nil, course{takeover: -1}},
		{"it stays", []change{{at(-100), 0, true}}, course{takeover: -1}},
		{"both, as the first one is dead", []change{{at(-100), 0, true}, {at(170), 1, true}}, course{170 * time.Millisecond, 830 * time.Millisecond, 1}},
		{"a move", []change{{at(-100), 0, true}, {at(2), 0, false}, {at(5), 1, true}}, course{5 * time.Millisecond, 0, 2}},
		{"an overlap", []change{{at(-100), 0, true}, {at(5), 1, true}, {at(9), 0, false}}, course{5 * time.Millisecond, 4 * time.Millisecond, 2}},
		{"there and back", []change{{at(-100), 0, true}, {at(10), 1, true}, {at(30), 1, false}}, course{10 * time.Millisecond, 20 * time.Millisecond, 2}},
		{"after the end", []change{{at(-100), 0, true}, {at(1001), 1, true}}, course{takeover: -1}},
		{"both before", []change{{at(-100), 0, true}, {at(-50), 1, true}, {at(10), 0, false}}, course{-1, 10 * time.Millisecond, 1}},
	} {
		if got := judge(c.changes, begin, at(1000), second); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// A fault that meets a director without the addresses is none.
func TestHolds(t *testing.T) {
	for _, c := range []struct {
		fault string
		has   [2]bool
		want  bool
	}{
		{"freeze", [2]bool{true, false}, true},
		{"freeze", [2]bool{false, true}, false}, // the backup took over meanwhile
		{"freeze", [2]bool{true, true}, false},
		{"freeze", [2]bool{}, false},
		{"thaw", [2]bool{true, false}, false},
		{"thaw", [2]bool{true, true}, true},
		{"failback", [2]bool{true, false}, false},
		{"planned-back", [2]bool{false, true}, true},
	} {
		f, err := faultOf(c.fault)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&masters{has: c.has}).holds(f.holder()); (err == nil) != c.want {
			t.Errorf("%s, directors with the addresses %v: %v", c.fault, c.has, err)
		}
	}
}

func TestSettled(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Millisecond) }
	for _, c := range []struct {
		what    string
		changes []change
		want    time.Duration
	}{
		{"it yields", []change{{at(-100), 0, true}, {at(-50), 1, true}, {at(30), 1, false}}, 30 * time.Millisecond},
		{"both stay", []change{{at(-100), 0, true}, {at(-50), 1, true}}, -1},
		{"the other one stays", []change{{at(-100), 0, true}, {at(-50), 1, true}, {at(30), 0, false}}, -1},
		{"it was so before", []change{{at(-100), 0, true}}, 0},
		{"after the end", []change{{at(-100), 0, true}, {at(-50), 1, true}, {at(1001), 1, false}}, -1},
		{"there and back", []change{{at(-100), 0, true}, {at(10), 0, false}, {at(40), 0, true}}, 40 * time.Millisecond},
	} {
		if got := settled(c.changes, begin, at(1000), first); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

func TestLongestGap(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Millisecond) }
	for _, c := range []struct {
		times []time.Time
		want  time.Duration
		since int
	}{
		{nil, 100 * time.Millisecond, 0},
		{[]time.Time{at(10), at(20), at(90), at(95)}, 70 * time.Millisecond, 20},
		{[]time.Time{at(90), at(20), at(10)}, 70 * time.Millisecond, 20}, // in any order
		{[]time.Time{at(-50), at(60), at(200)}, 60 * time.Millisecond, 0},
		{[]time.Time{at(30), at(40)}, 60 * time.Millisecond, 40}, // none until the end
	} {
		if got, since := longestGap(c.times, begin, at(100)); got != c.want || since != at(c.since) {
			t.Errorf("%v: %v since %v, want %v since %v", c.times, got, since, c.want, at(c.since))
		}
	}
}
