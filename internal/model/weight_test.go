// SPDX-License-Identifier: Apache-2.0

package model

import (
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
		{7, Down, 0}, {0, Down, 0}, {math.MaxInt32, Down, 0}, {7, Down + 1, 0}, {7, 255, 0},
		{100, 60, 40}, {10, 50, 5}, {3, 50, 1}, {200, 99, 2},
		{1, 99, 1}, {2, 60, 1}, // lowered is not down
		{0, 40, 0},
		{math.MaxInt32, 50, math.MaxInt32 / 2}, // no overflow
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
	for w := int32(0); w < 200; w++ {
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
	for text, want := range map[string]Health{"up": Up, "100%": Up, "down": Down, "0%": Down, "40%": 60} {
		if got, err := ParseHealth(text); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "UP", "40", "101%", "-1%", "%", "4.5%", "256%"} {
		if got, err := ParseHealth(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %s, %v; want an error", text, got, err)
		}
	}
	if Health(101).Valid() || Health(101).String() != "down" {
		t.Error("101 % can be withheld")
	}
}
