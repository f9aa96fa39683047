// SPDX-License-Identifier: Apache-2.0

//go:build measure

package replicate

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"imbang/internal/daemon/sync/own"
)

// rounds are how often each case is measured.
const rounds = 10

// figures are a table of what was measured: the median of the rounds' values, with its
// confidence interval of at least 95 %.
type figures struct{ w *tabwriter.Writer }

func newFigures(title string) figures {
	f := figures{tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	fmt.Fprintf(f.w, "%s\nwhat\tmedian\tp99\tlongest\tin\n", title)
	return f
}

// add adds a row of times that were taken in rounds.
func (f figures) add(what string, rounds [][]time.Duration) {
	var all, medians, tails []time.Duration
	for _, list := range rounds {
		all = append(all, list...)
		medians = append(medians, quantile(list, 0.5))
		tails = append(tails, quantile(list, 0.99))
	}
	fmt.Fprintf(f.w, "%s\t%s\t%s\t%s\t%d rounds of %d\n", what, middle(medians), middle(tails), milliseconds(quantile(all, 1)), len(rounds), len(all)/len(rounds))
}

// one adds a row of times of which each round has one.
func (f figures) one(what string, list []time.Duration) {
	fmt.Fprintf(f.w, "%s\t%s\t\t%s\t%d rounds\n", what, middle(list), milliseconds(quantile(list, 1)), len(list))
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// middle is the median of some times, with its interval between two of them, as far from the
// ends as each other, of a level of at least 95 %.
func middle(list []time.Duration) string {
	sorted, n := slices.Sorted(slices.Values(list)), len(list)
	// The median is below the r-th smallest if fewer than r of n fair coins show heads.
	drop, tail, left := 0, 0.0, math.Exp2(float64(-n))
	for r := 0; r < n/2; r++ {
		if tail += left; 2*tail > 0.05 {
			break
		}
		drop = r
		left *= float64(n-r) / float64(r+1)
	}
	return fmt.Sprintf("%s (%s to %s)", milliseconds(sorted[n/2]), milliseconds(sorted[drop]), milliseconds(sorted[n-1-drop]))
}

// quiet is how long after the last change tables may differ, with 5 % of the datagrams lost.
const quiet = 2 * time.Second

// How long openings take to the backup, and how long after the last change tables are equal,
// with datagrams lost in both directions. Master and backup share this machine.
func TestMeasureLoss(t *testing.T) {
	const rate, each = 10_000, 5 * time.Second
	f := newFigures(fmt.Sprintf("%d changes/s for %v; from the master's event to the backup's table", rate, each))
	for _, share := range []float64{0, 0.01, 0.05, 0.2} {
		y := newLossy(t, share)
		awaitState(t, y.backup, "the backup joined", synced)
		y.delays.take(t, 5*time.Second)
		var equal []time.Duration
		var openings [][]time.Duration
		for range rounds {
			equal = append(equal, y.converge(t, each, rate))
			openings = append(openings, y.delays.take(t, 5*time.Second))
		}
		if share > 0 {
			y.repaired(t)
		}
		what := fmt.Sprintf("loss of %g %%: ", 100*share)
		f.add(what+"an opening", openings)
		f.one(what+"equal tables after the last change", equal)
		if longest := slices.Max(equal); share <= 0.05 && longest > quiet {
			t.Errorf("%stables are equal %v after the last change, want %v at most", what, longest, quiet)
		}
	}
	f.w.Flush()
}

// How long openings take to the backup while an attacker sends to it, or to the master. The
// attacker and both directors share this machine.
func TestMeasureFlood(t *testing.T) {
	const each = 3 * time.Second
	f := newFlooded(t, few)
	table := newFigures(fmt.Sprintf("rounds of %v; from the master's event to the backup's table", each))
	names := map[*node]string{f.a: "master", f.b: "backup"}
	for _, target := range []*node{f.b, f.a} {
		for _, rate := range []int{20_000, 50_000, 0} {
			var clean, under [][]time.Duration
			before, full, sent := f.counts(), target.full(), uint64(0)
			for range rounds {
				clean = append(clean, f.openings(t, each, 0))
				stop := f.attacker.flood(target.addr, rate)
				under = append(under, f.openings(t, each, 0))
				sent += stop()
			}
			got := float64(sent) / (rounds * each).Seconds()
			table.add(fmt.Sprintf("without, before %.0f/s to the %s", got, names[target]), clean)
			table.add(fmt.Sprintf("%.0f/s to the %s", got, names[target]), under)
			more := quantile(slices.Concat(under...), 0.99) - quantile(slices.Concat(clean...), 0.99)
			if rate > 0 && more > mostMore { // else the attacker uses a whole processor
				t.Errorf("%.0f/s to the %s delay entries by %v", got, names[target], more)
			}
			i := slices.Index([]*node{f.b, f.a}, target)
			counted(t, before[i], func() own.Counts { return f.counts()[i] }, sent, target.full()-full)
		}
	}
	f.unaffected(t)

	// A backup that is started during a flood joins.
	joins := func() (list []time.Duration) {
		for range rounds {
			f.endBackup()
			list = append(list, f.join(t))
		}
		return list
	}
	table.one(fmt.Sprintf("joining, %d entries", len(f.load.live)), joins())
	for _, target := range []*node{f.b, f.a} {
		stop := f.attacker.flood(target.addr, 50_000)
		table.one(fmt.Sprintf("likewise, 50000/s to the %s", names[target]), joins())
		stop()
	}
	table.w.Flush()
}
