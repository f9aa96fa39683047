// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"imbang/internal/lab/stats"
)

// String is the marks behind a figure.
func (m Marks) String() string {
	s := ""
	for _, x := range []struct {
		n    int
		mark string
	}{{m.Behind, "†"}, {m.Lossy, "‡"}, {m.Not200, "§"}, {m.OneServer, "¶"}, {m.Failed + m.Missing, "*"}} {
		if x.n > 0 {
			s += x.mark
		}
	}
	return s
}

const legend = `† the generator was late in at least one run: claims hold with and without such runs; not ranked if all runs were late
‡ requests were lost in at least one run: only what was carried is ranked
§ replies other than 200 in at least one run: not ranked
¶ one address under a scheduler that hashes it, so one server: not ranked
* fewer runs than planned
`

// Text writes the report for people.
func (rep *Report) Text(w io.Writer) error {
	p := &printer{w: w}
	p.linef("%s: %s", rep.Study, rep.Title)
	rep.textVerdict(p)
	if rep.Source != "" {
		p.linef("published: %s", rep.Source)
	}
	if rep.Hypothesis != "" {
		p.linef("hypothesis: %s", rep.Hypothesis)
	}
	for _, l := range rep.Setting {
		p.linef("measured: %s", l)
	}
	for _, x := range rep.Power {
		p.linef("power before the run: %s", x)
	}
	for _, sec := range rep.Sections {
		rep.textSection(p, sec)
	}
	rep.textTools(p)
	rep.textWords(p)
	return p.err
}

// printer keeps the first error of many writes.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) linef(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.w, strings.TrimRight(fmt.Sprintf(format, args...), " "))
	}
}

// textVerdict prints the study's verdict and what it could not judge.
func (rep *Report) textVerdict(p *printer) {
	p.linef("Verdict: %s", rep.Verdict.Sentence)
	for _, line := range rep.Reasons() {
		p.linef("  %s", line)
	}
	p.linef("")
}

func (rep *Report) textSection(p *printer, sec Section) {
	marked := false
	p.linef("")
	p.linef("== %s", sec.Title)
	for _, m := range metrics {
		if !sec.has(m.Key) || m.Key == "loss" || m.isBeside() {
			continue
		}
		p.linef("")
		p.linef("%s%s [%s]", rep.label(m), m.Title, m.Unit)
		if m.Meaning != "" {
			p.linef("  %s", m.Meaning)
		}
		p.header(sec)
		for _, row := range sec.Rows {
			marked = p.metric(sec, m, row) || marked
			p.beside(sec, m, row)
		}
	}
	p.intervals(sec)
	p.delays(sec)
	rep.textSpread(p, sec)
	rep.textLoss(p, sec)
	if marked {
		p.linef("")
		p.linef("%s", strings.TrimSpace(legend))
	}
	p.linef("")
	p.linef("Verdict")
	for _, row := range sec.Rows {
		for i, v := range row.Verdicts {
			at := ""
			if i == 0 {
				at = fmt.Sprintf("%g %s", row.Level(), sec.LevelUnit)
			}
			p.linef("  %14s  %s", at, v)
		}
		if len(row.Verdicts) == 0 {
			p.linef("  %14s  Nothing to compare: fewer than two competitors.", fmt.Sprintf("%g %s", row.Level(), sec.LevelUnit))
		}
	}
}

// label is the number that the original gave to its table.
func (rep *Report) label(m Metric) string {
	if rep.Published == nil || rep.Published.Labels[m.Key] == "" {
		return ""
	}
	return rep.Published.Labels[m.Key] + ": "
}

// has reports whether any cell has a figure of the metric.
func (sec Section) has(key string) bool {
	return slices.ContainsFunc(sec.Rows, func(r Row) bool {
		return slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Values[key].N > 0 })
	})
}

// Column widths: a level, a word, then at least this for each column.
const (
	levelWidth = 8
	wordWidth  = 10
	cellWidth  = 11 // a figure with all its marks
)

// width is that of a section's columns.
func (sec Section) width() int {
	w := cellWidth
	for _, c := range sec.Columns {
		w = max(w, len(c)+2)
	}
	return w
}

func (p *printer) header(sec Section) { p.row(sec, sec.LevelUnit, "", sec.Columns) }

func (p *printer) row(sec Section, level, word string, cells []string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%*s %-*s", levelWidth, level, wordWidth, word)
	for _, c := range cells {
		fmt.Fprintf(&b, "%*s", sec.width(), c)
	}
	p.linef("%s", b.String())
}

// metric prints one level: the published figures if there are any, then median
// and range. It reports whether a mark was printed.
func (p *printer) metric(sec Section, m Metric, row Row) (marked bool) {
	var published, median, low, high []string
	any, several := false, false
	for _, c := range row.Cells {
		v := c.Values[m.Key]
		pub := ""
		if v.Published != nil {
			any, pub = true, fmt.Sprintf("%.1f", *v.Published)
		}
		published = append(published, pub)
		if v.N == 0 {
			median, low, high = append(median, "-"+c.Marks.String()), append(low, ""), append(high, "")
			marked = marked || c.Marks.String() != ""
			continue
		}
		several = several || v.N > 1
		marked = marked || c.Marks.String() != ""
		median = append(median, fmt.Sprintf("%.*f%s", m.Decimals, v.Median, c.Marks))
		i := stats.Interval{Low: v.Median, High: v.Median}
		if v.Interval != nil {
			i = *v.Interval
		}
		low = append(low, fmt.Sprintf("%.*f", m.Decimals, i.Low))
		high = append(high, fmt.Sprintf("%.*f", m.Decimals, i.High))
	}
	at := fmt.Sprintf("%g", row.Level())
	if any {
		p.row(sec, at, "published", published)
		at = ""
	}
	p.row(sec, at, "median", median)
	if several {
		p.row(sec, "", "  from", low)
		p.row(sec, "", "  to", high)
	}
	return marked
}

// beside prints the generator delay at the statistic of a latency.
func (p *printer) beside(sec Section, m Metric, row Row) {
	for _, key := range m.Beside {
		delay := metric(key)
		var cells []string
		any := false
		for _, c := range row.Cells {
			v := c.Values[key]
			if any = any || v.N > 0; v.N == 0 {
				cells = append(cells, "-")
				continue
			}
			cells = append(cells, fmt.Sprintf("%.*f", delay.Decimals, v.Median))
		}
		word := "  delay"
		if key == "generator_delay_max" {
			word = "    max"
		}
		if any {
			p.row(sec, "", word, cells)
		}
	}
}

// intervals says what "from" and "to" are: their level depends on the runs.
func (p *printer) intervals(sec Section) {
	few := map[int]float64{}
	reached := false
	for _, row := range sec.Rows {
		for _, c := range row.Cells {
			if i := c.Values["achieved_rate"].Interval; i != nil && i.Reaches(level) {
				reached = true
			} else if i != nil {
				few[c.Values["achieved_rate"].N] = i.Level
			}
		}
	}
	if !reached && len(few) == 0 {
		return
	}
	p.linef("")
	if reached {
		p.linef("from, to: between these lies the median of ever more runs, with %.0f %% confidence", 100*level)
	}
	for _, n := range slices.Sorted(maps.Keys(few)) {
		p.linef("from, to of %d runs: their range, with %.0f %% confidence; %.0f %% takes %d runs",
			n, 100*few[n], 100*level, stats.RepeatsFor(level))
	}
}

// delays says what the lines "delay" are.
func (p *printer) delays(sec Section) {
	if sec.has("generator_delay_mean") {
		p.linef("delay: from the moment a request was due to its actual start, at the same statistic, median of the runs (max: the longest of a run); response times contain it")
	}
}

// textSpread prints the least and the greatest share of the real servers.
func (rep *Report) textSpread(p *printer, sec Section) {
	servers := rep.servers()
	if len(servers) < 2 {
		return
	}
	p.linef("")
	p.linef("Spread over %d servers [%% of the replies, least-greatest]", len(servers))
	p.header(sec)
	for _, row := range sec.Rows {
		var cells []string
		for _, c := range row.Cells {
			least, most := shares(c, servers)
			text := fmt.Sprintf("%.0f-%.0f", 100*least, 100*most)
			if len(c.Spread) == 0 {
				text = "-"
			}
			cells = append(cells, text)
		}
		p.row(sec, fmt.Sprintf("%g", row.Level()), "", cells)
	}
}

// textLoss prints what was lost, by cause, or one line if nothing was.
func (rep *Report) textLoss(p *printer, sec Section) {
	total, lost := 0, 0
	for _, row := range sec.Rows {
		for _, c := range row.Cells {
			total, lost = total+c.Scheduled, lost+c.Lost
		}
	}
	p.linef("")
	if lost == 0 {
		p.linef("Request loss: none of %d requests", total)
		return
	}
	p.linef("Request loss [requests of all runs]: %d of %d", lost, total)
	p.header(sec)
	for _, row := range sec.Rows {
		at := fmt.Sprintf("%g", row.Level())
		for _, cause := range causeNames {
			var cells []string
			sum := 0
			for _, c := range row.Cells {
				cells, sum = append(cells, fmt.Sprint(c.Loss[cause])), sum+c.Loss[cause]
			}
			if sum > 0 {
				p.row(sec, at, cause, cells)
				at = ""
			}
		}
	}
}

// textWords prints what is said in words, ours and the original's.
func (rep *Report) textWords(p *printer) {
	if len(rep.Notes) > 0 {
		p.linef("")
		p.linef("Notes")
		for _, n := range rep.Notes {
			p.linef("  %s", n)
		}
	}
	if pub := rep.Published; pub != nil {
		p.linef("")
		p.linef("Published")
		if pub.Conclusion != "" {
			p.linef("  conclusion: %s", pub.Conclusion)
		}
		if pub.VirtualAddress != "" {
			p.linef("  virtual address: %s (here 10.20.0.1, inside the lab)", pub.VirtualAddress)
		}
		for _, n := range pub.Notes {
			p.linef("  %s", n)
		}
	}
}
