// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text writes the report for people.
func (rep *Report) Text(w io.Writer) error {
	p := &printer{w: w}
	if c := rep.Comparison; c != nil {
		p.linef("%s: %s", c.Study, c.Title)
		if c.Source != "" {
			p.linef("published: %s", c.Source)
		}
		p.linef("")
	}
	if len(rep.Runs) > 0 {
		if rep.Directory != "" {
			p.linef("in %s:", rep.Directory)
		}
		p.runs(rep.Runs)
	}
	for _, t := range rep.Tables {
		p.table(t)
	}
	if rep.Comparison != nil && len(rep.Runs) > 0 {
		p.comparison(rep.Comparison)
	}
	if len(rep.Findings) > 0 {
		p.linef("")
		p.linef("Findings")
		for i, f := range rep.Findings {
			p.linef("%3d. %s", i+1, f.Text)
		}
	}
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

// runs lists each run in a line.
func (p *printer) runs(rs []Result) {
	rows := [][]string{{"run", "tool", "asked/s", "begun/s", "clients", "replies", "replies/s", "KB/s", "response ms", "lost", "seconds"}}
	for i := range rs {
		rows = append(rows, runRow(&rs[i]))
	}
	p.aligned(rows)
	p.linef("")
	p.linef("asked/s, begun/s: connections; lost: failed or never begun; KB: 1024 bytes; -: the tool does not say")
}

func runRow(r *Result) []string {
	rate := float64(r.Replies) / r.Seconds
	perSecond := &rate
	if r.Seconds == 0 {
		perSecond = nil
	}
	lost := "-"
	if len(r.Errors) > 0 || r.Tool == AB || r.Tool == Wrk { // those two print only what is not 0
		lost = strconv.FormatInt(r.lost(), 10)
	}
	clients := "-"
	if r.Asked.Concurrency != nil {
		clients = strconv.FormatInt(*r.Asked.Concurrency, 10)
	}
	return []string{r.Name(), r.Tool, digits(r.Asked.Rate, -1), digits(r.ConnectionRate, 1), clients,
		strconv.FormatInt(r.Replies, 10), digits(perSecond, 1), digits(r.ThroughputKBs, 1), digits(r.ResponseMS, responseDigits(r)), lost,
		digits(&r.Seconds, -1)}
}

// responseDigits are as many as the tool prints.
func responseDigits(r *Result) int {
	switch r.Tool {
	case AB, Wrk:
		return 3
	case Siege:
		return 0
	}
	return 1
}

func digits(v *float64, decimals int) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', decimals, 64)
}

// aligned prints columns as wide as they need: names to the left, figures to
// the right.
func (p *printer) aligned(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < 2 {
				b.WriteString(cell + pad + "  ")
			} else {
				b.WriteString(pad + cell + "  ")
			}
		}
		p.linef("%s", b.String())
	}
}

// differsMark stands behind a published figure that is not the log's.
const differsMark = "!"

// table prints a quantity: what was published above what the logs say.
func (p *printer) table(t Table) {
	label := t.Label
	if label != "" {
		label += ": "
	}
	p.linef("")
	p.linef("%s%s [%s]", label, t.Title, t.Unit)
	if t.Meaning != "" {
		p.linef("  %s", t.Meaning)
	}
	head := []string{"asked/s", ""}
	for _, name := range t.Columns {
		head = append(head, name+" ") // above the figure, not its mark
	}
	rows := [][]string{head}
	for _, row := range t.Rows {
		rows = append(rows, t.rows(row)...)
	}
	p.aligned(rows)
}

// rows are the lines of one rate.
func (t Table) rows(row Row) [][]string {
	rate := strconv.FormatFloat(row.Rate, 'f', -1, 64)
	said, logged := []string{rate, "published"}, []string{"", "logs"}
	anySaid, repeated := false, false
	spread := []string{"", "range"}
	for _, c := range row.Cells {
		mark := " "
		if c.Differs {
			mark = differsMark
		}
		if c.Published == nil {
			said = append(said, "- ")
		} else {
			said, anySaid = append(said, digits(c.Published, t.decimals)+mark), true
		}
		repeated = repeated || c.N > 1
		if c.N == 0 {
			logged, spread = append(logged, "- "), append(spread, "- ")
			continue
		}
		logged = append(logged, digits(&c.Median, t.decimals)+" ")
		spread = append(spread, fmt.Sprintf("%s-%s ", digits(&c.Min, t.decimals), digits(&c.Max, t.decimals)))
	}
	if !anySaid {
		logged[0] = rate
		said = nil
	}
	var out [][]string
	for _, l := range [][]string{said, logged} {
		if l != nil {
			out = append(out, l)
		}
	}
	if repeated {
		out = append(out, spread)
	}
	return out
}

// comparison lists every published figure that is not the log's.
func (p *printer) comparison(c *Comparison) {
	p.linef("")
	p.linef("Published figures against the logs: %d of %d agree to %g (both have one decimal)", c.Agreeing, c.Compared, c.Tolerance)
	if len(c.Disagreements) > 0 {
		rows := [][]string{{"cell that differs (" + differsMark + ")", "", "published", "log", "unit"}}
		for _, d := range c.Disagreements {
			rows = append(rows, []string{fmt.Sprintf("%s, %s at %g/s", d.Table, d.Scheduler, d.Rate), d.Hint, fixed(d.Published), fixed(d.Logged), d.Unit})
		}
		p.aligned(rows)
	}
	const most = 6
	switch {
	case len(c.Missing) > most:
		p.linef("published without a log here: %d cells, %s and others", len(c.Missing), c.Missing[0])
	case len(c.Missing) > 0:
		p.linef("published without a log here: %s", strings.Join(c.Missing, ", "))
	}
}
