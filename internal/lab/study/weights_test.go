// SPDX-License-Identifier: Apache-2.0

package study

import (
	"slices"
	"testing"
)

func TestWeightsInForce(t *testing.T) {
	s := &Study{Weights: []WeightSet{{"equal", []int{5, 5, 5}}, {"capacity", []int{4, 4, 2}}}}
	for _, c := range []struct {
		Competitor
		want []int
	}{
		{Competitor{Engine: "imbang", Scheduler: "wrr", Weights: "capacity", Servers: 3}, []int{2, 2, 1}},
		{Competitor{Engine: "imbang", Scheduler: "rr", Weights: "capacity", Servers: 3}, []int{1, 1, 1}},
		{Competitor{Engine: "ipvs", Scheduler: "lc", Weights: "capacity", Servers: 3}, []int{1, 1, 1}},
		{Competitor{Engine: "nginx-http", Scheduler: "rr", Weights: "capacity", Servers: 3}, []int{2, 2, 1}},
		{Competitor{Engine: "nginx-http", Scheduler: "rr", Weights: "capacity", Servers: 2}, []int{1, 1}},
		{Competitor{Engine: "haproxy-tcp", Scheduler: "leastconn", Weights: "equal", Servers: 3}, []int{1, 1, 1}},
		{Competitor{Engine: "direct", Weights: "capacity", Servers: 1}, nil},
	} {
		if got := s.InForce(c.Competitor); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.Competitor, got, c.want)
		}
	}
}
