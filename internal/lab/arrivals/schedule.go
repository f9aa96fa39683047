// SPDX-License-Identifier: Apache-2.0

package arrivals

import (
	"math"
	"math/rand/v2"
	"time"

	"imbang/internal/lab/rng"
)

// Spec is what a schedule is made of.
type Spec struct {
	Pattern
	Rate float64 // per second
	Seed uint64  // random seed; equal seeds give equal schedules

	// A ramp begins after Warmup. It lasts for Connections arrivals, or for
	// Duration where no number is given.
	Warmup, Duration time.Duration
	Connections      int
}

// Schedule yields intended starts, in nanoseconds from the beginning, without
// end.
type Schedule struct {
	course  course
	shape   Shape
	mean    float64 // size of a batch
	batches float64
	number  float64 // expected arrivals at the last batch
	left    int     // of the batch
	rand    *rand.Rand
	poisson bool
}

// arrivalsStream is the number of their stream, which others of the seed leave
// alone.
const arrivalsStream = 1 << 32

// NewSchedule begins a schedule.
func NewSchedule(s Spec) *Schedule {
	return &Schedule{
		course: newCourse(s), shape: s.Shape, mean: s.Shape.size(), poisson: s.Distribution == Poisson,
		rand: rng.Stream(s.Seed, arrivalsStream),
	}
}

// Next is the next arrival. Of constant ones the first is at 0. Poisson gaps
// come from the exponential distribution, the first included.
func (s *Schedule) Next() int64 {
	if s.left == 0 {
		if s.poisson {
			s.number += s.rand.ExpFloat64() * s.mean
		} else {
			s.number = s.batches * s.mean
		}
		s.batches++
		s.left = s.batch()
	}
	s.left--
	return int64(s.course.at(s.number))
}

// batch is the size of the next one.
func (s *Schedule) batch() int {
	if s.shape.Burst > 1 {
		return 1 + int(math.Log(1-s.rand.Float64())/math.Log(1-1/s.shape.Burst))
	}
	return max(1, s.shape.Batch)
}

// End is when a number of arrivals after the warm-up is expected to be over,
// in ns.
func (s Spec) End() int64 {
	c := newCourse(s)
	return int64(c.at(c.reached(float64(s.Warmup)) + float64(s.Connections)))
}
