// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// few arrangements make simulations fast.
var few = Arrangements{Exact: 1 << 9, Rotations: 1 << 9}

// ofThree is a question about one of three metrics that share the error.
func ofThree() Question {
	q := NewQuestion(true)
	q.Alpha, q.Arrangements = q.Alpha/3, Arrangements{Rotations: 1000}
	return q
}

// Ten schedulers, 3 % noise, six blocks, one 10 % faster: it is found.
func TestTenPercentAreFoundInSixBlocks(t *testing.T) {
	w := world{10, 6, normal, same(0.03), firstOf(1, -math.Log(1.1), 0), 0.2, 0}
	const studies = 200
	rng := rand.New(rand.NewPCG(1, 2))
	q := ofThree()
	found, winners := 0, 0
	for range studies {
		v := Judge(w.study(rng), q)
		for _, p := range v.Pairs {
			if p.A == "0" && p.Finding == Different {
				found++
			}
		}
		if v.Outcome == Winner && v.Ranking[0] == "0" {
			winners++
		}
	}
	pairs, winner := float64(found)/(9*studies), float64(winners)/studies
	t.Logf("pairs %.3f, winners %.3f", pairs, winner)
	if pairs < 0.85 || winner < 0.5 {
		t.Errorf("found %.2f of the pairs, want 0.85; the winner in %.2f of the studies, want 0.5", pairs, winner)
	}
}

func TestMoreBlocksFindTheWinner(t *testing.T) {
	w := world{10, 8, normal, same(0.03), firstOf(1, -math.Log(1.1), 0), 0.2, 0}
	rng := rand.New(rand.NewPCG(1, 2))
	q := ofThree()
	winners := 0
	for range 100 {
		if Judge(w.study(rng), q).Outcome == Winner {
			winners++
		}
	}
	if winners < 90 {
		t.Errorf("a winner in %d of 100 studies of eight blocks, want 90", winners)
	}
}

func TestTwoInFiveBlocksAreTooFew(t *testing.T) {
	s := []Series{{Name: "rr", Values: []float64{1, 1.1, 1, 1.2, 1}}, {Name: "lc", Values: []float64{5, 5, 6, 5, 5}}}
	v := Judge(s, NewQuestion(true))
	if v.Outcome != TooFewBlocks || v.Blocks != 5 || v.Least != 6 || len(v.Pairs) > 0 {
		t.Errorf("%+v", v)
	}
	for i := range s {
		s[i].Values = append(s[i].Values, s[i].Values[0])
	}
	if v := Judge(s, NewQuestion(true)); v.Outcome != Winner || v.Ranking[0] != "rr" {
		t.Errorf("six blocks: %+v", v)
	}
}

// Who was measured rarely does not take the verdict from the others.
func TestRarelyMeasuredIsLeftOut(t *testing.T) {
	w := world{4, 8, normal, same(0.03), firstOf(1, -0.5, 0), 0, 0}
	s := w.study(rand.New(rand.NewPCG(1, 1)))
	for b := 3; b < 8; b++ {
		s[3].Values[b] = math.NaN()
	}
	v := Judge(s, NewQuestion(true))
	want := []Excluded{{"3", []string{"measured in 3 blocks, at least 5 are needed"}}}
	if diff := cmp.Diff(want, v.Excluded); diff != "" || v.Outcome != Winner {
		t.Errorf("%s %s", v.Outcome, diff)
	}
}

func TestOutcomes(t *testing.T) {
	jitter := []float64{1, 1.01, 0.99, 1, 1.005, 0.995, 1.01, 1}
	times := func(x float64, order int) []float64 {
		out := make([]float64, len(jitter))
		for b := range out {
			out[b] = x * jitter[(b*order+order)%len(jitter)]
		}
		return out
	}
	for _, c := range []struct {
		name    string
		series  []Series
		less    bool
		outcome Outcome
		first   string
		groups  [][]string
	}{
		{"nothing", nil, true, NotMeasurable, "", nil},
		{"one is out", []Series{{Name: "a", Values: times(1, 1)}, {Name: "b", Values: times(2, 3), Out: []string{"lost requests"}}}, true, NotMeasurable, "a", nil},
		{"zero has no ratio", []Series{{Name: "a", Values: times(1, 1)}, {Name: "b", Values: times(0, 3)}}, true, NotMeasurable, "a", nil},
		{"lowest wins", []Series{{Name: "a", Values: times(2, 1)}, {Name: "b", Values: times(1, 3)}, {Name: "c", Values: times(2, 5)}}, true, Winner, "b",
			[][]string{{"b"}, {"a", "c"}}},
		{"highest wins", []Series{{Name: "a", Values: times(2, 1)}, {Name: "b", Values: times(1, 3)}, {Name: "c", Values: times(1, 5)}}, false, Winner, "a",
			[][]string{{"a"}, {"b", "c"}}},
		{"two share the top", []Series{{Name: "a", Values: times(2, 1)}, {Name: "b", Values: times(1, 3)}, {Name: "c", Values: times(1, 5)}}, true, Groups, "",
			[][]string{{"b", "c"}, {"a"}}},
		{"all equal", []Series{{Name: "a", Values: times(1, 1)}, {Name: "b", Values: times(1, 1)}, {Name: "c", Values: times(1.0001, 1)}}, true, AllEqual, "a",
			[][]string{{"a", "b", "c"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Judge(c.series, NewQuestion(c.less))
			if v.Outcome != c.outcome || c.first != "" && v.Ranking[0] != c.first {
				t.Errorf("%s, ranking %v; want %s, %s first", v.Outcome, v.Ranking, c.outcome, c.first)
			}
			for _, g := range v.Groups {
				slices.Sort(g)
			}
			if diff := cmp.Diff(c.groups, v.Groups); diff != "" {
				t.Error(diff)
			}
			if _, err := json.Marshal(v); err != nil {
				t.Error(err)
			}
		})
	}
}

// Wide intervals are no proof of equality.
func TestCannotTellIsNotEqual(t *testing.T) {
	w := world{4, 5, normal, same(0.1), same(0), 0, 0}
	v := Judge(w.study(rand.New(rand.NewPCG(1, 1))), NewQuestion(true))
	for _, p := range v.Pairs {
		if p.Finding != Unclear || p.Joint.Low > 0 || p.Joint.High < 0 || p.Joint.Level != 0.95 {
			t.Errorf("%+v", p)
		}
	}
}

func TestCliques(t *testing.T) {
	apart := map[[2]int]bool{{0, 2}: true, {0, 3}: true, {1, 3}: true}
	got := cliques(4, func(a, b int) bool { return !apart[[2]int{min(a, b), max(a, b)}] })
	if diff := cmp.Diff([][]int{{0, 1}, {1, 2}, {2, 3}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestJoin(t *testing.T) {
	got := Join([]Series{{Name: "rr", Values: []float64{1, 2, math.NaN()}}, {Name: "wrr", Values: []float64{4, 2, 3, 9}, Out: []string{"lost"}}})
	if got.Name != "rr=wrr" || len(got.Values) != 3 || math.Abs(got.Values[0]-2) > 1e-12 || !math.IsNaN(got.Values[2]) || len(got.Out) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestWords(t *testing.T) {
	for x, want := range map[float64]string{0.01: "negligible", -0.05: "small", 0.2: "marked", -0.5: "large", 4: "huge"} {
		if got := Size(x, 0.02); got != want {
			t.Errorf("Size(%g) = %s, want %s", x, got, want)
		}
	}
	if got, want := (Interval{-0.012, 0.034, 0.95}).String(), "-1.2 % to +3.4 %"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
