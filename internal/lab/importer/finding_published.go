// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"imbang/internal/lab/study"
)

// Findings about a publication that need no log: its text, its tables and what
// it shows of its tools' output.

// publishedFindings compares a study's published figures with each other.
func publishedFindings(s *study.Study) []Finding {
	var out []Finding
	for _, f := range []Finding{
		{Kind: "published-text", Text: textAgainstTables(s.Published)},
		{Kind: "published-reciprocal", Text: reciprocal(s.Published)},
		{Kind: "published-replies", Text: publishedReplies(s.Published)},
	} {
		if f.Text != "" {
			out = append(out, f)
		}
	}
	return out
}

// percentSlack is how far two percentages of the same figures may be apart, in
// percentage points: the published ones have one or two decimals.
const percentSlack = 0.1

// textAgainstTables lists the statements that the tables contradict.
func textAgainstTables(p *study.Published) string {
	var parts []string
	for _, x := range p.Statements {
		t, _ := p.TableOf(x.Metric, x.Family)
		if x.Over == "" {
			if in := t.Values[x.Level][x.Of]; math.Abs(in-x.Value) > tolerance {
				parts = append(parts, fmt.Sprintf("%s of %s at %g: %s gives %s %s, the table %s %s",
					quantityName(x.Metric), x.Of, x.Level, x.Where, shortest(x.Value), t.Unit, shortest(in), t.Unit))
			}
			continue
		}
		of, over := columnMean(t, x.Of), columnMean(t, x.Over)
		in := 100 * (of/over - 1)
		if math.Abs(in-x.Percent) <= percentSlack {
			continue
		}
		part := fmt.Sprintf("%s of %s against %s: %s gives %+g %%, the means of the table %+.1f %%", quantityName(x.Metric), x.Of, x.Over, x.Where, x.Percent, in)
		if math.Abs(100*(1-over/of)-x.Percent) <= percentSlack {
			part += fmt.Sprintf(" (%g %% is the difference as a share of %s, not of %s)", math.Abs(x.Percent), x.Of, x.Over)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return "Published text and tables disagree: " + strings.Join(parts, "; ") + "."
}

func quantityName(m study.Metric) string {
	return map[study.Metric]string{study.Throughput: "throughput", study.ResponseTime: "response time", study.RequestRate: "request rate", study.Loss: "loss"}[m]
}

func shortest(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// columnMean is a competitor's mean over the levels of a table.
func columnMean(t study.Table, name string) float64 {
	sum, n := 0., 0
	for _, row := range t.Values {
		if v, ok := row[name]; ok {
			sum, n = sum+v, n+1
		}
	}
	return sum / float64(max(1, n))
}

// reciprocal holds if every published response time is 1 / the request rate.
func reciprocal(p *study.Published) string {
	cells := 0
	for _, times := range p.Tables {
		if times.Metric != study.ResponseTime {
			continue
		}
		for _, rates := range p.Tables {
			if rates.Metric != study.RequestRate || rates.Family != times.Family || rates.Call != times.Call {
				continue
			}
			for level, row := range times.Values {
				for name, ms := range row {
					rate, ok := rates.Values[level][name]
					if !ok {
						continue
					}
					if product := rate * ms / 1000; math.Abs(product-1) > 0.005 {
						return ""
					}
					cells++
				}
			}
		}
	}
	if cells < 2 {
		return ""
	}
	return fmt.Sprintf("In all %d published cells the time per request is 1 / (requests per second): either one request was under way at a time, "+
		"or it is ab's time per request across all concurrent requests, which is not a response time. The publication does not say which.", cells)
}

// publishedReplies lists the requests whose replies were no success.
func publishedReplies(p *study.Published) string {
	var parts []string
	for _, r := range p.Replies {
		var words []string
		switch {
		case r.Only == "3xx":
			words = append(words, "3xx replies only, so a redirect was measured, not the page")
		case r.Only != "":
			words = append(words, r.Only+" replies only")
		case r.Not2xx == r.Count:
			words = append(words, fmt.Sprintf("%d of %d replies are non-2xx, so an error page or a redirect was measured", r.Not2xx, r.Count))
		case r.Not2xx > 0:
			words = append(words, fmt.Sprintf("%d of %d replies are non-2xx", r.Not2xx, r.Count))
		}
		if r.Failed > 0 {
			words = append(words, fmt.Sprintf("%d of %d are counted as failed", r.Failed, r.Count))
		}
		parts = append(parts, r.Of+": "+strings.Join(words, "; "))
	}
	if len(parts) == 0 {
		return ""
	}
	return "What the publication shows of the replies: " + strings.Join(parts, ". ") + "."
}
