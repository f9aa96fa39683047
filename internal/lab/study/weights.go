// SPDX-License-Identifier: Apache-2.0

package study

import "slices"

// unweighted are the schedulers of Linux that ignore weights other than 0
// (ipvsadm(8)), by the engines that have them. All schedulers of the other
// engines follow weights.
var unweighted = map[string][]string{
	"imbang": {"rr", "lc", "dh"},
	"ipvs":   {"rr", "lc", "dh"},
}

// InForce are the weights by which a competitor distributes requests, one for
// each server that takes part, in the smallest whole numbers of their
// proportion; nil for one that does not balance.
func (s *Study) InForce(c Competitor) []int {
	if c.Scheduler == "" {
		return nil
	}
	set := s.WeightsOf(c.Weights).Weights
	weights := slices.Clone(set[:min(c.Servers, len(set))])
	if slices.Contains(unweighted[c.Engine], c.Scheduler) {
		for i := range weights {
			weights[i] = min(weights[i], 1)
		}
	}
	return Reduced(weights)
}

// Reduced are weights in the smallest whole numbers of their proportion.
func Reduced(weights []int) (list []int) {
	divisor := 0
	for _, w := range weights {
		divisor = common(divisor, w)
	}
	for _, w := range weights {
		list = append(list, w/max(divisor, 1))
	}
	return list
}

// common is the greatest common divisor.
func common(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
