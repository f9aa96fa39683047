// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
	"imbang/internal/lab/study"
)

const fixedStudy = `name: fixed
title: %s
source: a journal, 2011
hypothesis: They serve alike.
cluster: {client_namespaces: 1, client_addresses: 1, servers: [{kind: nginx, count: 3, page: 375 B}]}
load: {rates: [2000, 8000, 14000], connections: 1000, timeout: 5 s}
competitors:
  - {engine: imbang, schedulers: [rr, wrr, lc, dh, nq]}
  - {engine: direct}
repeats: {least: 6}
published:
  conclusion: wrr is best.
  notes: [The client was the bottleneck.]
  tables:
    - {metric: response_time, label: Table 4.2, unit: ms, columns: [rr, wrr, lc, dh, nq], rows: {2000: [1038.7, 830.5, 1028.8, 888.8, 1042.6]}}
`

// fixed is a stored run of a study with so many competitors, at most six.
func fixed(t *testing.T, title string, competitors int) *record.Run {
	t.Helper()
	text := fmt.Sprintf(fixedStudy, title)
	s, err := study.Parse("fixed.yaml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := record.Plan{Repeats: 6, Connections: 1000, Timeout: 5 * time.Second, Seed: 7}
	for _, c := range s.Competitors[len(s.Competitors)-competitors:] {
		plan.Competitors = append(plan.Competitors, record.Competitor(c))
	}
	for _, rate := range s.Load.Rates {
		plan.Conditions = append(plan.Conditions, record.Condition{Family: "ipv4", Call: "page", Tool: study.BuiltIn, Arrivals: "constant", Rate: rate})
	}
	plan.Cells = len(plan.Competitors) * len(plan.Conditions)
	run := &record.Run{Environment: record.Environment{
		Study: "fixed.yaml", StudyText: text, Plan: plan, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		CommandLine: []string{"/usr/sbin/imbang", "lab", "run", "./a study.yaml", "--out", "here", "--repeats", "6"},
		Imbang:      "test", Kernel: "6.18.0", CPU: "some CPU", CPUs: 2,
	}}
	for block := 1; block <= plan.Repeats; block++ {
		for _, condition := range plan.Conditions {
			for i, c := range plan.Competitors {
				run.Samples = append(run.Samples, fixedSample(t, record.Cell{Competitor: c, Condition: condition}, i, block))
			}
		}
	}
	return run
}

func fixedSample(t *testing.T, cell record.Cell, i, block int) record.Sample {
	t.Helper()
	h := hdrhistogram.New(1000, int64(time.Hour), 3)
	for k := range 1000 {
		if err := h.RecordValue(int64(1e5 * (1 + cell.Rate/4000) * (1 + float64(i)) * (1 + 0.01*float64(block*i%5)) * math.Exp(float64(k)/300))); err != nil {
			t.Fatal(err)
		}
	}
	response, err := load.Summarize(h)
	if err != nil {
		t.Fatal(err)
	}
	r := &load.Result{
		AskedRate: cell.Rate, OfferedRate: cell.Rate, IssuedRate: cell.Rate, ReplyRate: cell.Rate, NetIOKBs: cell.Rate * (0.6 + 0.001*float64(block)),
		Scheduled: 1000, Issued: 1000, Replies: 1000, Status: load.Status{Success: 1000},
		PerServer: map[string]int{"s1": 400, "s2": 400, "s10": 200}, Response: response,
		Timeline: &load.Timeline{SlotSeconds: 0.5, Replies: map[string][]int{"s1": {100, 300}, "s2": {200, 200}, "s10": {0, 200}}},
	}
	r.Generator.Connections = 1000
	if cell.Rate == 14000 {
		r.Loss.Timeout, r.Loss.Refused, r.Replies, r.Status.Success = 30, 12, 958, 958
		r.Generator.Behind = true
	}
	return record.Sample{Cell: cell, Block: block, Load: r, CPU: record.CPU{
		Director: engine.CPU{Known: cell.Engine != "direct", Time: 3 * time.Millisecond}, ServersNS: map[string]time.Duration{"s1": 10 * time.Millisecond}, MachineBusy: 0.5,
	}}
}

func rendered(t *testing.T, run *record.Run) (*report.Report, string) {
	t.Helper()
	rep, err := report.New(run)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := render(&b, rep, []file{{"samples.jsonl", "every run"}}); err != nil {
		t.Fatal(err)
	}
	return rep, b.String()
}

// elements lists the page's elements in order. It fails if they do not nest.
func elements(t *testing.T, page string) (list []xml.StartElement) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var open []string
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page does not parse: %v", err)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			list, open = append(list, e.Copy()), append(open, e.Name.Local)
		case xml.EndElement:
			if open[len(open)-1] != e.Name.Local {
				t.Fatalf("%s ends inside of %s", e.Name.Local, open[len(open)-1])
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Fatalf("%v never end", open)
	}
	return list
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// What is plotted is what the report says, and all of it is.
func TestPlottedFigures(t *testing.T) {
	for _, competitors := range []int{3, 6} { // one plot of lines, a plot for each
		t.Run(fmt.Sprint(competitors), func(t *testing.T) {
			rep, page := rendered(t, fixed(t, "Some", competitors))
			want, plotted := figures(rep), map[string]bool{}
			for _, e := range elements(t, page) {
				if attribute(e, "data-value") == "" {
					continue
				}
				key := strings.Join([]string{attribute(e, "data-section"), attribute(e, "data-metric"), attribute(e, "data-of"), attribute(e, "data-level")}, " ")
				got := attribute(e, "data-value") + " " + attribute(e, "data-low") + " " + attribute(e, "data-high")
				if want[key] != got {
					t.Errorf("%s is plotted as %q, want %q", key, got, want[key])
				}
				plotted[key] = true
			}
			for key := range want {
				if !plotted[key] {
					t.Errorf("%s is not plotted", key)
				}
			}
		})
	}
}

// figures are those of a report that its page has to plot.
func figures(rep *report.Report) map[string]string {
	out := map[string]string{}
	for i, sec := range rep.Sections {
		for _, row := range sec.Rows {
			key := func(metric, of string) string { return fmt.Sprintf("%d %s %s %s", i, metric, of, exact(row.Level())) }
			for _, c := range row.Cells {
				for _, k := range []string{"response_time", "response_time_p50", "response_time_p99", "throughput", "cpu_director", "cpu_servers", "cpu_machine"} {
					if v := c.Values[k]; v.N > 0 {
						out[key(k, c.Name)] = fmt.Sprintf("%s %s %s", exact(v.Median), exact(v.Interval.Low), exact(v.Interval.High))
					}
					if p := c.Values[k].Published; p != nil {
						out[key("published_"+k, c.Name)] = exact(*p) + "  "
					}
				}
			}
			for k, v := range row.Comparisons {
				for _, p := range v.Pairs {
					out[key("difference_"+k, p.A+"|"+p.B)] = fmt.Sprintf("%s %s %s", exact(p.Difference), exact(p.Joint.Low), exact(p.Joint.High))
				}
			}
		}
	}
	return out
}

func TestVerdictComesFirst(t *testing.T) {
	rep, page := rendered(t, fixed(t, "Some", 6))
	verdict, table, figure := strings.Index(page, `id="verdict"`), strings.Index(page, "<table"), strings.Index(page, "<figure")
	if verdict < 0 || verdict > table || verdict > figure {
		t.Errorf("the verdict is at %d, the first table at %d, the first figure at %d", verdict, table, figure)
	}
	top := page[verdict:figure]
	for _, row := range rep.Sections[0].Rows {
		if level := at(rep.Sections[0], row); !strings.Contains(top, level) {
			t.Errorf("no verdict on %s", level)
		}
	}
	for _, want := range []string{"Not measurable here", "Generator behind schedule (all 5)", "requests lost (all 5)", "Winner: rr=wrr"} {
		if !strings.Contains(top, want) {
			t.Errorf("the verdict does not say %q", want)
		}
	}
}

// The page needs no network, and its own references lead somewhere.
// Every competitor's configuration stands on the page, as text.
func TestConfigurationsOnThePage(t *testing.T) {
	run := fixed(t, "Configurations", 2)
	name := run.Environment.Plan.Competitors[0].Name
	run.Environment.Configurations = map[string]string{name: "listen web\n    server s1 <weight 2>\n"}
	_, got := rendered(t, run)
	for _, want := range []string{"<summary>Configuration of " + name + "</summary>", "server s1 &lt;weight 2&gt;"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	if n := strings.Count(got, "<summary>Configuration of "); n != 1 {
		t.Errorf("%d configurations, want 1", n)
	}
}

func TestSelfContained(t *testing.T) {
	_, page := rendered(t, fixed(t, "Some", 6))
	ids := map[string]bool{}
	list := elements(t, page)
	for _, e := range list {
		id := attribute(e, "id")
		if id != "" && ids[id] {
			t.Errorf("id %s stands twice", id)
		}
		ids[id] = true
	}
	for _, e := range list {
		for _, name := range []string{"href", "src"} {
			v := attribute(e, name)
			if strings.Contains(v, "//") || strings.HasPrefix(v, "/") {
				t.Errorf("%s refers to %s", e.Name.Local, v)
			}
			if strings.HasPrefix(v, "#") && !ids[v[1:]] {
				t.Errorf("%s refers to %s, which is not there", e.Name.Local, v)
			}
		}
		if slices.Contains([]string{"link", "img", "iframe", "object", "image"}, e.Name.Local) {
			t.Errorf("the page has a %s", e.Name.Local)
		}
	}
	if m := regexp.MustCompile(`(?i)url\(|@import|https?:`).FindString(page); m != "" {
		t.Errorf("the page has %q", m)
	}
}

// A study, its programs and servers may say what they like.
func TestHostileTextIsText(t *testing.T) {
	const bad = `</title><script>alert(1)</script><img src=x onerror="alert(2)">'"`
	run := fixed(t, `"`+strings.ReplaceAll(bad, `"`, `\"`)+`"`, 6)
	env := &run.Environment
	env.Kernel, env.CPU, env.Programs, env.CommandLine = bad, bad, map[string]string{bad: bad}, append(env.CommandLine, bad)
	env.Plan.LeftOut = []string{bad}
	for i := range run.Samples {
		r := run.Samples[i].Load
		r.PerServer = map[string]int{bad: 400, "s2": 400}
		r.Timeline.Replies = map[string][]int{bad: {1, 2}}
	}
	run.Samples[0].Error, run.Samples[0].Load = bad, nil
	_, page := rendered(t, run)
	scripts := 0
	for _, e := range elements(t, page) {
		switch e.Name.Local {
		case "script":
			scripts++
		case "img":
			t.Error("an img of the study's became one of the page's")
		}
		if attribute(e, "onerror") != "" {
			t.Error("an attribute of the study's became one of the page's")
		}
	}
	if scripts != 1 {
		t.Errorf("%d scripts, want the page's own", scripts)
	}
	if !strings.Contains(page, "&lt;script&gt;alert(1)") {
		t.Error("the study's title is not there")
	}
}

// Who is best among some is not best among all: the others stand beside it.
func TestVerdictNamesTheUnranked(t *testing.T) {
	run := fixed(t, "Some", 6)
	for _, s := range run.Samples {
		if s.Rate == 2000 && s.Name == "lc" {
			s.Load.Generator.Behind = true
		}
	}
	rep, _ := rendered(t, run)
	v := newVerdict(rep.Sections[0], rep.Sections[0].Rows[0])
	last := v.Lines[len(v.Lines)-1]
	if last.Badge != "Not ranked" || !strings.Contains(last.Text, "lc") || strings.Contains(last.Text, "nq") {
		t.Errorf("%+v", v.Lines)
	}
}

func TestNothingMeasured(t *testing.T) {
	run := fixed(t, "Some", 6)
	run.Samples = nil
	_, page := rendered(t, run)
	elements(t, page)
	if want := "Not measured (all 5)."; !strings.Contains(page, want) {
		t.Errorf("the page does not say %q", want)
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
		t.Error("the page has figures that are none")
	}
}

// A page without the distributions, such as of runs of other tools.
func TestNoHistograms(t *testing.T) {
	run := fixed(t, "Some", 6)
	for i := range run.Samples {
		run.Samples[i].Load.Response.HDR = ""
		run.Samples[i].Load.Timeline = nil
	}
	_, page := rendered(t, run)
	for _, id := range []string{"s1-latency", "s1-timeline"} {
		if strings.Contains(page, id) {
			t.Errorf("there is %s", id)
		}
	}
	run.Samples[3].Load.Response.HDR = "?"
	rep, err := report.New(run)
	if err != nil {
		t.Fatal(err)
	}
	if err := render(io.Discard, rep, nil); err == nil || !strings.Contains(err.Error(), "latency histogram") {
		t.Errorf("invalid histogram: %v", err)
	}
}

func TestWrite(t *testing.T) {
	dir, run := t.TempDir(), fixed(t, "Some", 6)
	run.Environment.Configurations = map[string]string{"rr": "imbang attach\n"}
	w, err := record.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Environment(run.Environment); err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Samples {
		if err := w.Sample(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "others.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	rep, err := report.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	path, err := Write(dir, rep)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`href="samples.jsonl"`, `href="response_time.csv"`, `href="comparisons.csv"`, `href="configurations.txt"`, "imbang lab run &#39;./a study.yaml&#39; --repeats 6 --seed 7"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page has no %s", want)
		}
	}
	if bytes.Contains(page, []byte("others.txt")) {
		t.Error("the page lists a file that is not part of the run")
	}
	for _, e := range elements(t, string(page)) {
		if href := attribute(e, "href"); href != "" && !strings.HasPrefix(href, "#") {
			if _, err := os.Stat(filepath.Join(dir, href)); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := Write(filepath.Join(dir, "nowhere"), rep); err == nil {
		t.Error("wrote into a directory that does not exist")
	}
}

// Eleven competitors at three rates fit in a megabyte.
func TestSize(t *testing.T) {
	_, page := rendered(t, fixed(t, "Some", 6))
	if n := len(page); n > 1<<19 {
		t.Errorf("the page of six competitors has %d bytes", n)
	}
}

func TestScale(t *testing.T) {
	for _, figures := range [][]float64{{0.31, 0.52, 0.4}, {0, 7}, {3, 3, 3}, {0.1, 5000}, {-4, 12}, {1e-9, 2e-9}, {}, {math.NaN()}, {0}} {
		s := newScale(figures, 10, 200, 4)
		last := math.Inf(-1)
		for _, v := range figures {
			if x := s.at(v); !math.IsNaN(v) && (x < 10 || x > 200) {
				t.Errorf("%v: %g is at %g", figures, v, x)
			}
		}
		if len(s.ticks) == 0 || len(s.ticks) > 9 {
			t.Errorf("%v: ticks %v", figures, s.ticks)
		}
		for _, v := range s.ticks {
			x := s.at(v)
			if x <= last || x < 10 || x > 200 {
				t.Errorf("%v: tick %g is at %g, the one before at %g", figures, v, x, last)
			}
			last = x
		}
	}
}

func TestSpread(t *testing.T) {
	y := spread([]float64{50, 51, 50, math.NaN(), 200}, 14, 0, 200)
	placed := slices.DeleteFunc(slices.Clone(y), math.IsNaN)
	slices.Sort(placed)
	for i := 1; i < len(placed); i++ {
		if placed[i]-placed[i-1] < 13.9 {
			t.Errorf("%v overlap", y)
		}
	}
	if !math.IsNaN(y[3]) || math.Abs(y[4]-200) > 0.1 {
		t.Errorf("%v: moved what had room", y)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{grouped(14000, 0), "14" + thin + "000"}, {grouped(9999, 0), "9999"}, {grouped(-1234567.26, 1), "−1" + thin + "234" + thin + "567.3"},
		{grouped(-0.001, 2), "0.00"}, {brief(138.01, 2), "138"}, {brief(12.345, 2), "12.3"}, {brief(0.5, 2), "0.50"}, {brief(99.99, 2), "100"},
		{figure(0.1234), "0.12"}, {figure(12.30), "12.3"}, {quoted("a b"), "'a b'"}, {quoted("it's"), `'it'\''s'`}, {quoted("--rates=2,3"), "--rates=2,3"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	if v, err := strconv.ParseFloat(exact(1.0/3), 64); err != nil || v != 1.0/3 {
		t.Errorf("%v, %v", v, err)
	}
}
