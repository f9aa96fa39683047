// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"imbang/internal/lab/stats"
)

// Text writes the comparison for people: the answers first.
func (c *Comparison) Text(out io.Writer) error {
	w := bufio.NewWriter(out)
	for _, s := range []struct {
		name string
		side Side
	}{{"A", c.A}, {"B", c.B}} {
		fmt.Fprintf(w, "%s: %s, %s, %s, %d runs\n", s.name, s.side.Dir, s.side.Study, s.side.Started, s.side.Runs)
	}
	fmt.Fprintln(w)
	if len(c.Metrics) == 0 {
		fmt.Fprintln(w, "Nothing is compared: no cell was measured well in both runs.")
	}
	for _, m := range c.Metrics {
		fmt.Fprintln(w, m.sentence())
	}
	if len(c.Metrics) > 0 {
		fmt.Fprintf(w, "The margin is %g %%.\n", 100*c.Smallest)
	}
	c.textEnvironment(w)
	for _, m := range c.Metrics {
		m.table(w)
	}
	if len(c.Metrics) > 0 {
		fmt.Fprintf(w, "\nB to A: the middle of the ratios of all figures of B to all of A. All at once: these intervals hold the differences\n"+
			"of all cells of a table with %.0f %% confidence. A difference is significant if two tests agree that account for all cells.\n"+
			"The runs were made at different times: drift of the machine between them is part of their difference.\n",
			100*(1-c.Alpha))
	}
	c.textRest(w)
	return w.Flush()
}

// sentence says what is known of a metric.
func (m Metric) sentence() string {
	found := map[stats.Finding][]string{}
	few := 0
	for _, s := range m.Cells {
		if !s.judged() {
			few++
			continue
		}
		f := s.Finding
		name := s.Name
		if f == stats.Different {
			name += " " + stats.Percent(s.Difference)
		}
		found[f] = append(found[f], name)
	}
	var parts []string
	if list := found[stats.Different]; len(list) > 0 {
		parts = append(parts, fmt.Sprintf("B differs from A in %d of %d cells (%s)", len(list), len(m.Cells), strings.Join(list, ", ")))
	} else if few < len(m.Cells) {
		parts = append(parts, fmt.Sprintf("B differs from A in none of %d cells", len(m.Cells)))
	}
	for _, x := range []struct {
		f    stats.Finding
		word string
	}{{stats.Slight, "significantly different, by an estimate below the margin"}, {stats.Equal, "equal within the margin"}, {stats.Unclear, "without a significant difference"}} {
		if n := len(found[x.f]); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, x.word))
		}
	}
	if few > 0 {
		parts = append(parts, fmt.Sprintf("no verdict on %d, which have fewer than %d runs in A or B", few, stats.NeededOfRuns))
	}
	return m.Title + ": " + strings.Join(parts, "; ") + "."
}

// judged reports whether there were enough runs for a verdict.
func (c Cell) judged() bool { return min(c.BlocksA, c.BlocksB) >= stats.NeededOfRuns }

func (c *Comparison) textEnvironment(w io.Writer) {
	fmt.Fprintln(w)
	if len(c.Environment) == 0 {
		fmt.Fprintln(w, "Different between the runs: nothing that is recorded.")
		return
	}
	fmt.Fprintln(w, "Different between the runs")
	what, a := 0, 0
	for _, x := range c.Environment {
		what, a = max(what, len(x.What)), max(a, len(x.A))
	}
	for _, x := range c.Environment {
		fmt.Fprintf(w, "  %-*s  %-*s  %s\n", what, x.What, min(a, 40), x.A, x.B)
	}
}

func (m Metric) table(w io.Writer) {
	fmt.Fprintf(w, "\n%s [%s]\n", m.Title, m.Unit)
	name := len("cell")
	for _, c := range m.Cells {
		name = max(name, len(c.Name))
	}
	fmt.Fprintf(w, "  %-*s  %10s  %10s  %9s  %-22s  %s\n", name, "cell", "A", "B", "B to A", "all at once", "finding")
	for _, c := range m.Cells {
		joint, finding := "-", fmt.Sprintf("%d and %d runs: too few", c.BlocksA, c.BlocksB)
		if c.judged() {
			joint, finding = c.Joint.String(), string(c.Finding)
		}
		fmt.Fprintf(w, "  %-*s  %10.*f  %10.*f  %9s  %-22s  %s\n", name, c.Name, m.decimals, c.MedianA, m.decimals, c.MedianB, stats.Percent(c.Difference), joint, finding)
	}
}

// textRest names what is in no table.
func (c *Comparison) textRest(w io.Writer) {
	if len(c.NotCompared) > 0 {
		fmt.Fprintln(w, "\nNot compared")
		for _, x := range c.NotCompared {
			fmt.Fprintf(w, "  %s: %s\n", x.Cell, strings.Join(x.Causes, "; "))
		}
	}
	if len(c.Loss) > 0 {
		fmt.Fprintln(w, "\nRequests lost")
		for _, x := range c.Loss {
			fmt.Fprintf(w, "  %s: %d of %d in A, %d of %d in B\n", x.Cell, x.LostA, x.ScheduledA, x.LostB, x.ScheduledB)
		}
	}
	for _, x := range []struct {
		name string
		list []string
	}{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		if len(x.list) > 0 {
			fmt.Fprintf(w, "\nOnly in %s: %s\n", x.name, strings.Join(x.list, "; "))
		}
	}
}
