// SPDX-License-Identifier: Apache-2.0

package load

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The slab and its queue against a plain slice.
func TestQueueAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s slab
		q := newQueue()
		var model []int32
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			if len(model) == 0 || rapid.Bool().Draw(t, "push") {
				c := s.get()
				if slices.Contains(model, c.self) {
					t.Fatalf("record %d handed out twice", c.self)
				}
				q.push(&s, c)
				model = append(model, c.self)
				continue
			}
			i := rapid.IntRange(0, len(model)-1).Draw(t, "remove")
			c := s.at(model[i])
			q.remove(&s, c)
			s.put(c)
			model = slices.Delete(model, i, i+1)
		}
		var got []int32
		for i := q.head; i != none; i = s.at(i).next {
			got = append(got, i)
		}
		if !slices.Equal(got, model) || s.open != len(model) {
			t.Fatalf("queue %v with %d open, want %v", got, s.open, model)
		}
	})
}

func TestSlabGrows(t *testing.T) {
	var s slab
	first := s.get()
	first.reply.carry = append(first.reply.carry, "cut line"...)
	for range 3 * chunk {
		s.get()
	}
	if s.at(first.self) != first || s.peak != 3*chunk+1 {
		t.Fatal("records moved or miscounted while growing")
	}
	s.put(first)
	again := s.get()
	if again != first || len(again.reply.carry) != 0 || cap(again.reply.carry) == 0 {
		t.Error("the last record freed is not the first reused, or lost its buffer")
	}
}
