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
	}{{m.Behind, "†"}, {m.Lossy, "‡"}, {m.Not200, "§"}, {m.Failed + m.Missing, "*"}} {
		if x.n > 0 {
			s += x.mark
		}
	}
	return s
}

const legend = `† the generator fell short of the asked rate in at least one run: not ranked
‡ requests were lost in at least one run: not ranked
§ replies other than 200 in at least one run: not ranked
* fewer runs than planned
`

// Text writes the report for people.
func (rep *Report) Text(w io.Writer) error {
	p := &printer{w: w}
	p.linef("%s: %s", rep.Study, rep.Title)
	if rep.Source != "" {
		p.linef("published: %s", rep.Source)
	}
	for _, l := range rep.Setting {
		p.linef("measured: %s", l)
	}
	for _, sec := range rep.Sections {
		rep.textSection(p, sec)
	}
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

func (rep *Report) textSection(p *printer, sec Section) {
	marked := false
	p.linef("")
	p.linef("== %s", sec.title())
	for _, m := range metrics {
		if !sec.has(m.Key) || m.Key == "loss" {
			continue
		}
		p.linef("")
		p.linef("%s%s [%s]", rep.label(m), m.Title, m.Unit)
		if m.Meaning != "" {
			p.linef("  %s", m.Meaning)
		}
		p.header(sec)
		for _, row := range sec.Rows {
			marked = p.metric(m, row) || marked
		}
	}
	p.intervals(sec)
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
			rate := ""
			if i == 0 {
				rate = fmt.Sprintf("%g/s", row.Rate)
			}
			p.linef("  %8s  %s", rate, v)
		}
		if len(row.Verdicts) == 0 {
			p.linef("  %8s  Nothing to compare: fewer than two schedulers.", fmt.Sprintf("%g/s", row.Rate))
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

func (sec Section) title() string {
	name := sec.Engine
	if name == "" {
		name = "no balancer"
	}
	return fmt.Sprintf("%s, %s arrivals", name, sec.Arrivals)
}

// has reports whether any cell has a figure of the metric.
func (sec Section) has(key string) bool {
	return slices.ContainsFunc(sec.Rows, func(r Row) bool {
		return slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Values[key].N > 0 })
	})
}

// Column widths: a rate, a word, then one for each column.
const (
	rateWidth = 8
	wordWidth = 10
	cellWidth = 10
)

func (p *printer) header(sec Section) { p.row("asked/s", "", sec.Columns) }

func (p *printer) row(rate, word string, cells []string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%*s %-*s", rateWidth, rate, wordWidth, word)
	for _, c := range cells {
		fmt.Fprintf(&b, "%*s", cellWidth, c)
	}
	p.linef("%s", b.String())
}

// metric prints one rate: the published figures if there are any, then median
// and range. It reports whether a mark was printed.
func (p *printer) metric(m Metric, row Row) (marked bool) {
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
	rate := fmt.Sprintf("%g", row.Rate)
	if any {
		p.row(rate, "published", published)
		rate = ""
	}
	p.row(rate, "median", median)
	if several {
		p.row("", "  from", low)
		p.row("", "  to", high)
	}
	return marked
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
		p.row(fmt.Sprintf("%g", row.Rate), "", cells)
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
		rate := fmt.Sprintf("%g", row.Rate)
		for _, cause := range causeNames {
			var cells []string
			sum := 0
			for _, c := range row.Cells {
				cells, sum = append(cells, fmt.Sprint(c.Loss[cause])), sum+c.Loss[cause]
			}
			if sum > 0 {
				p.row(rate, cause, cells)
				rate = ""
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
