// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// unlikeWeights says where competitors with as many servers distribute requests
// by different weights: what lies between them may be the weights' doing and
// not the engine's or the scheduler's.
func unlikeWeights(samples []record.Sample, s *study.Study) (list []Caveat) {
	var cells []record.Cell
	for _, smp := range samples {
		if smp.Load != nil && smp.Scheduler != "" {
			cells = once(cells, smp.Cell)
		}
	}
	inForce := func(c record.Cell) string {
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(s.InForce(study.Competitor(c.Competitor))), "[]"), " ", ":")
	}
	var sizes []int
	for _, c := range cells {
		if !slices.Contains(sizes, c.Servers) {
			sizes = append(sizes, c.Servers)
		}
	}
	for _, size := range sizes {
		of := map[string][]string{} // competitors by their weights
		var order []string
		caveat := Caveat{}
		var concerned []record.Cell
		for _, c := range cells {
			if c.Servers != size {
				continue
			}
			w := inForce(c)
			if of[w] == nil {
				order = append(order, w)
			}
			if !slices.Contains(of[w], c.Name) {
				of[w] = append(of[w], c.Name)
			}
			concerned = append(concerned, c)
			caveat.Cells = append(caveat.Cells, c.String())
		}
		if len(order) < 2 {
			continue
		}
		slices.Sort(order) // the order of measurement is random
		slices.Sort(caveat.Cells)
		var parts []string
		for _, w := range order {
			slices.Sort(of[w])
			parts = append(parts, fmt.Sprintf("%s by %s", strings.Join(of[w], ", "), w))
		}
		caveat.Text = fmt.Sprintf("competitors distribute requests by different weights (%s): differences between them may be due to the weights",
			strings.Join(parts, "; "))
		caveat.of = cellsIn(concerned, cells)
		list = append(list, caveat)
	}
	return list
}
