// SPDX-License-Identifier: Apache-2.0

package load

import "math"

// choice draws one of several things by weight, in constant time whatever
// their number (Walker's alias method, built as Vose does).
type choice struct {
	keep  []float64 // the share of a slot that is its own
	alias []int32
}

// newChoice takes weights of 0 or more, not all 0.
func newChoice(weights []float64) *choice {
	c := &choice{make([]float64, len(weights)), make([]int32, len(weights))}
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

// pick turns 64 random bits into a choice.
func (c *choice) pick(bits uint64) int32 {
	x := float64(bits>>11) / (1 << 53) * float64(len(c.keep))
	i := int32(x)
	if x-float64(i) < c.keep[i] {
		return i
	}
	return c.alias[i]
}

// zipf is the weights of n things of which the k-th is asked for 1/k^s times
// as often as the first. s is 0 for equal ones; the web's is about 0.6 to 1
// (Breslau et al., INFOCOM 1999).
func zipf(n int, s float64) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = math.Pow(float64(i+1), -s)
	}
	return w
}

// What a number is drawn for; every purpose has its own bits.
const (
	forRequest = iota + 1
	forURL
	forTarget
)

// draw is the random bits of request n for one purpose. They depend on nothing
// else, so that every client draws what any other number of clients would
// (SplitMix64, Steele et al., OOPSLA 2014).
func draw(seed uint64, n int64, purpose uint64) uint64 {
	return mix(mix(seed+purpose*0x9e3779b97f4a7c15) + uint64(n)*0x9e3779b97f4a7c15)
}

func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
