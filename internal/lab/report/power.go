// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// Power is what the design of a study finds under one condition, by the noise of
// the pilot that ran before the first block. Nothing of it comes from the data
// that are judged.
type Power struct {
	At     string `json:"at"`
	Metric string `json:"metric"`
	Runs   int    `json:"pilot_runs"`
	// Noise is the standard deviation of the logarithm between the pilot's runs,
	// stalled ones left out; Stalls is the share of those.
	Noise       float64 `json:"noise"`
	Stalls      float64 `json:"stalls"`
	Competitors int     `json:"competitors"`
	Blocks      int     `json:"blocks"`
	// Detects is the least difference that is claimed with a probability of 80 %,
	// as a share; absent if there is none.
	Detects *float64 `json:"detects,omitempty"`
}

// leastPilot is the number of runs from which on a pilot has a standard
// deviation worth a statement.
const leastPilot = 4

// piloted are the metrics that the pilot measures.
var piloted = []struct {
	key string
	of  func(record.PilotRun) float64
}{
	{"reply_rate", func(r record.PilotRun) float64 { return r.ReplyRate }},
	{"response_time", func(r record.PilotRun) float64 { return r.MeanMS }},
	{tail, func(r record.PilotRun) float64 { return r.P99MS }},
}

// PowerOf states the power of a plan whose pilot has run, for each condition and
// metric.
func PowerOf(plan record.Plan, s *study.Study) (list []Power) {
	if plan.Pilot == nil {
		return nil
	}
	competitors := competing(plan, s)
	if competitors < 2 {
		return nil
	}
	blocks := cmp.Or(plan.Pilot.Blocks, plan.Repeats)
	for _, c := range plan.Conditions {
		for _, m := range piloted {
			var values []float64
			for _, r := range plan.Pilot.Runs {
				if v := m.of(r); r.Condition == c && v > 0 {
					values = append(values, math.Log(v))
				}
			}
			if len(values) < leastPilot {
				continue
			}
			p := Power{At: c.String(), Metric: m.key, Runs: len(values), Competitors: competitors, Blocks: blocks}
			p.Noise, p.Stalls = noiseOf(values)
			d := stats.Design{Competitors: competitors, Blocks: blocks, Alpha: claimAlpha, Noise: p.Noise, Stalls: p.Stalls}
			if x := d.Detects(); !math.IsInf(x, 0) {
				p.Detects = &x
			}
			list = append(list, p)
		}
	}
	return list
}

// competing counts the competitors that are judged: those that are the same by
// definition once, yardsticks not at all.
func competing(plan record.Plan, s *study.Study) int {
	var different []record.Competitor
	for _, c := range plan.Competitors {
		if c.Scheduler == "" && balancers(plan) > 1 {
			continue
		}
		if a := algorithm(c, s); !slices.Contains(different, a) {
			different = append(different, a)
		}
	}
	return len(different)
}

// A run is stalled that is farther from the median than this many times the
// usual distance, and than by this factor.
const (
	stalledDistance = 8
	stalledFactor   = 2
)

// noiseOf separates noise from stalls.
func noiseOf(logs []float64) (noise, stalls float64) {
	center := stats.Summarize(logs).Median
	var distances []float64
	for _, x := range logs {
		distances = append(distances, math.Abs(x-center))
	}
	limit := max(stalledDistance*stats.Summarize(distances).Median, math.Log(stalledFactor))
	var rest []float64
	for i, x := range logs {
		if distances[i] <= limit {
			rest = append(rest, x)
		}
	}
	mean, squares := 0.0, 0.0
	for _, x := range rest {
		mean += x / float64(len(rest))
	}
	for _, x := range rest {
		squares += (x - mean) * (x - mean)
	}
	return math.Sqrt(squares / float64(max(1, len(rest)-1))), float64(len(logs)-len(rest)) / float64(len(logs))
}

// String is the statement.
func (p Power) String() string {
	noise := fmt.Sprintf("noise of %.1f %% in %d pilot runs", 100*p.Noise, p.Runs)
	if p.Stalls > 0 {
		noise += fmt.Sprintf(", of which %.0f %% stalled", 100*p.Stalls)
	}
	design := fmt.Sprintf("%d competitors in %d blocks", p.Competitors, p.Blocks)
	if p.Detects == nil {
		return fmt.Sprintf("%s at %s: %s find no difference (%s)", metric(p.Metric).Title, p.At, design, noise)
	}
	return fmt.Sprintf("%s at %s: %s find a difference of %.1f %% with a probability of 80 %% (%s)",
		metric(p.Metric).Title, p.At, design, 100**p.Detects, noise)
}

// needed holds stats.Needed at claimAlpha, which takes seconds to compute, by
// the number of competitors.
var needed = map[int]int{2: 7, 3: 7, 4: 8, 5: 8, 6: 6, 7: 6, 8: 6, 9: 6, 10: 6}

// runsNeeded says how many runs a claim requires.
func runsNeeded(v stats.Verdict) string {
	k := len(v.Ranking)
	n, known := needed[k]
	if !known {
		n = stats.Needed(k, claimAlpha)
	}
	return fmt.Sprintf("%d runs of each are compared; claims about %d competitors require at least %d, and %d to find a difference of %.0f %% at a noise of %.0f %% with a probability of %.0f %%",
		v.Blocks, k, v.Least, n, 100*stats.ReferenceDifference, 100*stats.ReferenceNoise, 100*stats.DesignPower)
}
