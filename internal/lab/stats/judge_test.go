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

// ofThree is a question about one of three metrics that share the error.
func ofThree() Question {
	q := NewQuestion(true, 1)
	q.Alpha, q.Relabellings = q.Alpha/3, 499
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
			if p.A == "0" && p.Finding == Apart {
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
	v := Judge(s, NewQuestion(true, 1))
	if v.Outcome != TooFewBlocks || v.Blocks != 5 || v.Needed != 6 || len(v.Pairs) > 0 {
		t.Errorf("%+v", v)
	}
	for i := range s {
		s[i].Values = append(s[i].Values, s[i].Values[0])
	}
	if v := Judge(s, NewQuestion(true, 1)); v.Outcome != Winner || v.Ranking[0] != "rr" {
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
	v := Judge(s, NewQuestion(true, 1))
	want := []Excluded{{"3", []string{"measured in 3 blocks, at least 5 are needed"}}}
	if diff := cmp.Diff(want, v.Excluded); diff != "" || v.Outcome != Winner {
		t.Errorf("%s %s", v.Outcome, diff)
	}
}

func TestNeeded(t *testing.T) {
	for k, want := range map[int]int{2: 6, 3: 5, 10: 5} {
		if got := Needed(k, 0.05); got != want {
			t.Errorf("Needed(%d) = %d, want %d", k, got, want)
		}
	}
	if got := Needed(2, 0.001); got != 11 { // 2/2^11 < 0.001
		t.Errorf("at one in a thousand: %d, want 11", got)
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
		{"one is out", []Series{{"a", times(1, 1), nil}, {"b", times(2, 3), []string{"lost requests"}}}, true, NotMeasurable, "a", nil},
		{"zero has no ratio", []Series{{"a", times(1, 1), nil}, {"b", times(0, 3), nil}}, true, NotMeasurable, "a", nil},
		{"lowest wins", []Series{{"a", times(2, 1), nil}, {"b", times(1, 3), nil}, {"c", times(2, 5), nil}}, true, Winner, "b",
			[][]string{{"b"}, {"a", "c"}}},
		{"highest wins", []Series{{"a", times(2, 1), nil}, {"b", times(1, 3), nil}, {"c", times(1, 5), nil}}, false, Winner, "a",
			[][]string{{"a"}, {"b", "c"}}},
		{"two share the top", []Series{{"a", times(2, 1), nil}, {"b", times(1, 3), nil}, {"c", times(1, 5), nil}}, true, Groups, "",
			[][]string{{"b", "c"}, {"a"}}},
		{"all equal", []Series{{"a", times(1, 1), nil}, {"b", times(1, 1), nil}, {"c", times(1.0001, 1), nil}}, true, AllEqual, "a",
			[][]string{{"a", "b", "c"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := Judge(c.series, NewQuestion(c.less, 1))
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
	v := Judge(w.study(rand.New(rand.NewPCG(1, 1))), NewQuestion(true, 1))
	for _, p := range v.Pairs {
		if p.Finding != Unclear || p.Joint.Low > 0 || p.Joint.High < 0 || p.Joint.Level != 0.95 {
			t.Errorf("%+v", p)
		}
	}
}

func TestEqualSeedsGiveEqualVerdicts(t *testing.T) {
	w := world{5, 6, normal, same(0.05), firstOf(2, -0.2, 0), 0, 0}
	s := w.study(rand.New(rand.NewPCG(1, 1)))
	a, b := Judge(s, NewQuestion(true, 3)), Judge(s, NewQuestion(true, 3))
	if diff := cmp.Diff(a, b, cmp.AllowUnexported(Pair{})); diff != "" {
		t.Error(diff)
	}
}

func TestCliques(t *testing.T) {
	apart := map[[2]int]bool{{0, 2}: true, {0, 3}: true, {1, 3}: true}
	got := cliques(4, func(a, b int) bool { return !apart[[2]int{min(a, b), max(a, b)}] })
	if diff := cmp.Diff([][]int{{0, 1}, {1, 2}, {2, 3}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRelabelKeepsWhatIsMissing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	seen := map[float64]bool{}
	for range 200 {
		row := []float64{1, math.NaN(), 2, 3, math.NaN()}
		relabel(row, rng)
		if !math.IsNaN(row[1]) || !math.IsNaN(row[4]) || row[0]+row[2]+row[3] != 6 {
			t.Fatal(row)
		}
		seen[100*row[0]+10*row[2]+row[3]] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d of 6 arrangements came up", len(seen))
	}
}

func TestJoin(t *testing.T) {
	got := Join([]Series{{"rr", []float64{1, 2, math.NaN()}, nil}, {"wrr", []float64{4, 2, 3, 9}, []string{"late"}}})
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
