// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
)

func TestEffective(t *testing.T) {
	for _, c := range []struct {
		administrative int32
		health         Health
		want           int32
	}{
		{0, Up, 0}, {1, Up, 1}, {7, Up, 7}, {math.MaxInt32, Up, math.MaxInt32},
		{7, Down, 0}, {0, Down, 0}, {math.MaxInt32, Down, 0}, {7, Down + 1, 0}, {7, math.MaxUint16, 0},
		{100, 60 * Percent, 40}, {10, 50 * Percent, 5}, {3, 50 * Percent, 1}, {200, 99 * Percent, 2},
		{1, 99 * Percent, 1}, {2, 60 * Percent, 1}, // lowered is not down
		{0, 40 * Percent, 0},
		{253, Leaves(1, 253), 1}, {253, Leaves(2, 253), 2}, {253, Leaves(126, 253), 126}, {506, Leaves(1, 253), 2}, {math.MaxInt32, Leaves(252, 253), 2138995569},
		{math.MaxInt32, 50 * Percent, math.MaxInt32 / 2}, // no overflow
		{-1, Up, 0},
	} {
		if got := Effective(c.administrative, c.health, false); got != c.want {
			t.Errorf("weight %d, health %s: effective %d, want %d", c.administrative, c.health, got, c.want)
		}
	}
	if got := Effective(7, Up, true); got != 0 {
		t.Errorf("draining: effective %d", got)
	}
	// Less health is never more weight, and health alone never changes the order
	// of a weight and a greater one.
	for w := int32(0); w < 300; w += 1 + w/20 {
		for h := Up; h < Down; h++ {
			if Effective(w, h, false) < Effective(w, h+1, false) || Effective(w+1, h, false) < Effective(w, h, false) || Effective(w, h, false) > w {
				t.Fatalf("weight %d, health %s: %d", w, h, Effective(w, h, false))
			}
		}
	}
}

func TestHealthText(t *testing.T) {
	for h := Up; h <= Down; h++ {
		if back, err := ParseHealth(h.String()); err != nil || back != h || !h.Valid() {
			t.Errorf("%s: read as %s, %v", h, back, err)
		}
	}
	for text, want := range map[string]Health{"up": Up, "100%": Up, "down": Down, "0%": Down, "40%": 60 * Percent, "4.5%": 95*Percent + Percent/2, "0.395%": 99*Percent + 153, "0.001%": Down - 1} {
		if got, err := ParseHealth(text); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "UP", "40", "101%", "-1%", "%", "4.5.1%", "1e1%", "+5%", ".%", "100.1%", "256%"} {
		if got, err := ParseHealth(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %s, %v; want an error", text, got, err)
		}
	}
	if (Down + 1).Valid() || (Down+1).String() != "down" {
		t.Error("more than 100 % can be withheld")
	}
}

// A health in a file is a number of percents. Those of earlier programs were whole ones.
func TestHealthJSON(t *testing.T) {
	for h := Up; h <= Down; h++ {
		text, err := json.Marshal(h)
		back := Down + 1
		if err2 := json.Unmarshal(text, &back); err != nil || err2 != nil || back != h {
			t.Fatalf("%d: %s, read as %d, %v, %v", h, text, back, err, err2)
		}
	}
	for text, want := range map[string]Health{"0": Up, "100": Down, "60": 60 * Percent} {
		var h Health
		if err := json.Unmarshal([]byte(text), &h); err != nil || h != want {
			t.Errorf("%s: %s, %v", text, h, err)
		}
		if back, err := json.Marshal(want); err != nil || string(back) != text {
			t.Errorf("%s is written as %s, %v", text, back, err)
		}
	}
	for _, text := range []string{"-1", "101", `"up"`, "null1", "NaN"} {
		if err := new(Health).UnmarshalJSON([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A script's exit status S leaves (S - 2) / 253 of a weight of 253 exactly, and an agent's percents
// those of a weight of 100.
func TestLeaves(t *testing.T) {
	for n := range 254 {
		if got := Effective(253, Leaves(n, 253), false); got != int32(n) {
			t.Errorf("%d of 253: %d", n, got)
		}
	}
	for n := range 101 {
		if got := Effective(100, Leaves(n, 100), false); got != int32(n) {
			t.Errorf("%d of 100: %d", n, got)
		}
	}
	if Leaves(-1, 100) != Down || Leaves(101, 100) != Up {
		t.Error("outside of the weight")
	}
}
