// SPDX-License-Identifier: Apache-2.0

// Package rng makes random streams of a seed, and chooses among many things by
// their weights, for loads that are sent and such as are simulated. It is pure:
// the caller brings the randomness.
package rng

import "math"

// Choice draws one of several things by weight, in constant time whatever
// their number (Walker's alias method, built as Vose does).
type Choice struct {
	keep  []float64 // the share of a slot that is its own
	alias []int32
}

// NewChoice takes weights of 0 or more, not all 0.
func NewChoice(weights []float64) *Choice {
	c := &Choice{make([]float64, len(weights)), make([]int32, len(weights))}
	var sum float64
	for _, w := range weights {
		sum += w
	}
	var small, large []int32
	for i, w := range weights {
		c.keep[i], c.alias[i] = w/sum*float64(len(weights)), int32(i)
		if c.keep[i] < 1 {
			small = append(small, int32(i))
		} else {
			large = append(large, int32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		c.alias[s] = l
		if c.keep[l] -= 1 - c.keep[s]; c.keep[l] < 1 {
			small, large = append(small, l), large[:len(large)-1]
		}
	}
	// What rounding left over is as good as full.
	for _, i := range append(small, large...) {
		c.keep[i] = 1
	}
	return c
}

// At turns a number from 0 up to but not 1 into a choice.
func (c *Choice) At(share float64) int32 {
	x := share * float64(len(c.keep))
	i := int32(x)
	if x-float64(i) < c.keep[i] {
		return i
	}
	return c.alias[i]
}

// Pick turns 64 random bits into a choice.
func (c *Choice) Pick(bits uint64) int32 { return c.At(float64(bits>>11) / (1 << 53)) }

// Zipf is the weights of n things of which the k-th is asked for 1/k^s times
// as often as the first. s is 0 for equal ones; the web's is about 0.6 to 1
// (Breslau et al., INFOCOM 1999).
func Zipf(n int, s float64) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = math.Pow(float64(i+1), -s)
	}
	return w
}
