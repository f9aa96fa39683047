// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

const smallStudy = `name: small
title: Two schedulers
cluster: {client_namespaces: 1, client_addresses: 8, servers: [{kind: nginx, count: 3, page: 375 B}]}
load: {rates: [1000, 2000], connections: 1000, timeout: 5 s}
competitors:
  - {engine: imbang, schedulers: [rr, lc]}
repeats: {least: 7}
published:
  tables:
    - {metric: response_time, unit: ms, columns: [rr, lc], rows: {2000: [584, 753.3]}}
`

// store is a tree with a history, a file of results and an archived run, in
// which lc takes exactly twice as long as rr.
func store(t *testing.T) *Store {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(HistoryFile, `{"parts":[{"name":"flood","result":{"packets":9}}]}
{"parts":[{"name":"flood","result":{"packets":210000,"costs":[{"competitor":"a","servers":3,"over":{"plain":{"n":7,"median":0.404,"min":0.3,"max":0.5}}},{"competitor":"b","servers":3,"over":{"plain":{"n":7,"median":0.21,"min":0.2,"max":0.3}}}]}}]}
{"quick":true,"parts":[{"name":"flood","result":{"packets":1}}]}
`)
	write("results.json", `{"share":-0.5,"by_round":[1,2]}`)
	archive(t, filepath.Join(dir, StudiesDir, "small"))
	return Open(dir)
}

func archive(t *testing.T, out string) {
	t.Helper()
	s, err := study.Parse("small.yaml", []byte(smallStudy), nil)
	if err != nil {
		t.Fatal(err)
	}
	plan := record.Plan{Repeats: 7, Cells: 4, Connections: 1000, Seed: 7}
	for _, c := range s.Competitors {
		plan.Competitors = append(plan.Competitors, record.Competitor(c))
	}
	for _, rate := range s.Load.Rates {
		plan.Conditions = append(plan.Conditions, record.Condition{Family: "ipv4", Call: "page", Tool: study.BuiltIn, Arrivals: "constant", Rate: rate})
	}
	dir := filepath.Join(t.TempDir(), "run")
	w, err := record.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Environment(record.Environment{Study: "small", StudyText: smallStudy, Plan: plan, Started: time.Unix(0, 0), CPUs: 2,
		CommandLine: []string{"/a/imbang-lab", "run", "small", "--out", "/b", "--seed=7"},
		Builds:      map[string]record.Build{"imbang": {Commit: "abc"}, "imbang-lab": {Commit: "def", Modified: true}}})
	if err != nil {
		t.Fatal(err)
	}
	for block := 1; block <= 7; block++ {
		for _, condition := range plan.Conditions {
			for _, c := range plan.Competitors {
				mean := 1 + float64(block)/100 // median 1.04
				if c.Name == "lc" {
					mean *= 2
				}
				r := &load.Result{AskedRate: condition.Rate, IssuedRate: condition.Rate, ReplyRate: condition.Rate, NetIOKBs: condition.Rate / 2,
					Scheduled: 1000, Issued: 1000, Replies: 1000, Status: load.Status{Success: 1000},
					PerServer: map[string]int{"s1": 334, "s2": 333, "s3": 333}, Response: load.Latency{Count: 1000, MeanMS: mean, P50MS: mean, P99MS: mean}}
				if c.Name == "lc" && condition.Rate == 2000 {
					r.Loss.Timeout, r.Replies, r.Status.Success = 5, 995, 995
				}
				r.Generator.Connections = 1000
				if err := w.Sample(record.Sample{Cell: record.Cell{Competitor: c, Condition: condition}, Block: block, Load: r}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := record.Archive(dir, out); err != nil {
		t.Fatal(err)
	}
}

// A marked figure becomes that of the result, as the page writes figures.
func TestFiguresAreFilledIn(t *testing.T) {
	s := store(t)
	for _, c := range []struct{ page, want string }{
		{`0.9<!-- = bench=flood in=costs competitor=a figure="over plain" -->`, "0.4"},
		{`0.999<!-- = bench=flood in=costs competitor=a figure="over plain" stat=max -->`, "0.500"},
		{`9.99<!-- = bench=flood in=costs competitor=a|b servers=3 figure="over plain" stat=least -->`, "0.21"},
		{`1 000<!-- = bench=flood figure=packets -->`, "210 000"},
		{`7.0<!-- = file=results.json figure=share -->`, "-0.5"},
		{`9.99<!-- = study=small metric=response_time of=rr at=2000/s -->`, "1.04"},
		{`9.99<!-- = study=small metric=response_time of=rr at=2000/s stat=low -->`, "1.01"},
		{`9<!-- = study=small metric=response_time of=rr at=2000/s stat=published -->`, "584"},
		{`+9<!-- = study=small metric=response_time of=lc over=rr at=1000/s -->`, "+100"},
		{`+9<!-- = study=small metric=response_time of=rr over=lc at=1000/s -->`, "-50"},
		{`9<!-- = study=small figure=samples -->`, "28"},
		{`9.9<!-- = published=rr-vs-lc metric=throughput of=rr over=lc level=10000 -->`, "0.4"},
		{`9.9<!-- = published=rr-vs-lc metric=throughput of=rr over=lc stat=most -->`, "9.5"},
		{`9<!-- = published=nginx-upstreams replies="GET /api/me" figure=failed -->`, "40"},
		{`9.99<!-- = published=single-vs-cluster metric=response_time of=LVS over=single where="the text" -->`, "-43.65"},
	} {
		page, problems := Fill("Costs "+c.page+" times.\n", s)
		_, mark, _ := strings.Cut(c.page, "<!--")
		if want := "Costs " + c.want + "<!--" + mark + " times.\n"; page != want || len(problems) > 0 {
			t.Errorf("%s\n got %s%v\nwant %s", c.page, page, problems, want)
		}
		if again, _ := Fill(page, s); again != page {
			t.Errorf("filled in twice: %s", again)
		}
	}
}

func TestLogsAndRecordingsAreCounted(t *testing.T) {
	page, problems := Fill(`1<!-- = logs=thesis figure=disagreeing --> of 1<!-- = logs=thesis figure=compared -->, 1<!-- = logs=thesis figure=runs -->; `+
		`1<!-- = recordings=golden figure=identical --> of 1<!-- = recordings=golden figure=played -->`, Open(root))
	if got := comment.ReplaceAllString(page, ""); got != "5 of 60, 30; 88 of 88" || len(problems) > 0 {
		t.Errorf("%q, %v", got, problems)
	}
}

// A figure that cannot be traced keeps its text and has a problem.
func TestProblemsOfFigures(t *testing.T) {
	s := store(t)
	for page, want := range map[string]string{
		`1<!-- = bench=path figure=x -->`:                                            "no run of path",
		`1<!-- = bench=flood in=costs figure="over plain" -->`:                       "2 rows have been selected",
		`1<!-- = bench=flood in=costs competitor=z figure=servers -->`:               "nothing has been selected",
		`1<!-- = bench=flood in=costs competitor=a figure=x -->`:                     `no figure "x": there are competitor, over plain, servers`,
		`1<!-- = bench=flood in=costs competitor=a figure=competitor -->`:            "is no number",
		`1<!-- = bench=flood in=costs competitor=a figure="over plain" stat=low -->`: "is no number",
		`1<!-- = bench=flood in=prices figure=x -->`:                                 `no list "prices"`,
		`1<!-- = bench=flood figure=packets stat=mean -->`:                           "stat=mean: want one of",
		`1<!-- = file=none.json figure=x -->`:                                        "no such file",
		`1<!-- = study=none metric=response_time -->`:                                "no run is stored",
		`1<!-- = study=small metric=speed of=rr at=1000/s -->`:                       `no metric "speed"`,
		`1<!-- = study=small metric=response_time of=xx at=1000/s -->`:               "nothing has been selected",
		`1<!-- = study=small metric=response_time of=rr at=1000/s by=7 -->`:          "by: not known here",
		`1<!-- = study=small metric=response_time of=lc over=rr at=2000/s -->`:       "nothing has been selected", // lost: not compared
		`1<!-- = published=rr-vs-lc metric=loss of=rr level=1 -->`:                   `publishes no table of "loss"`,
		`1<!-- = published=nginx-upstreams replies=GET figure=failed -->`:            "nothing is recorded",
		`1<!-- = weather=fine -->`:                                                   "names no source",
		`1<!-- = bench= -->`:                                                         "want words such as key=value",
		`1 <!-- = bench=flood figure=packets -->`:                                    "1 comments mark a figure and 0 of them",
		"<!-- begin study=small show=verdict -->\n":                                  "1 comments begin a block and 0 of them end",
		"<!-- begin study=small show=all -->\n<!-- end -->\n":                        "want study=NAME and show=",
		"<!-- begin study=small show=table metric=speed -->\n<!-- end -->":           `no metric "speed"`,
		"<!-- begin study=small show=table metric=loss of=xx -->\n<!-- end -->":      "not all of",
		"<!-- begin study=small show=table metric=loss at=\"9/s\" -->\n<!-- end -->": "no condition",
		"<!-- begin study=small show=verdict at=1 -->\n<!-- end -->":                 "at: not known here",
	} {
		got, problems := Fill(page, s)
		if len(problems) == 0 || !strings.Contains(problems[0].Text, want) || got != page {
			t.Errorf("%s\n got %q, %v\nwant %s", page, got, problems, want)
		}
	}
}

// A block is made of the run, whatever was in it.
func TestBlocks(t *testing.T) {
	s := store(t)
	fill := func(query string) string {
		t.Helper()
		page, problems := Fill("<!-- begin "+query+" -->\nstale, 77 % of it\n<!-- end -->\n", s)
		if len(problems) > 0 || strings.Contains(page, "stale") {
			t.Errorf("%s: %v\n%s", query, problems, page)
		}
		return page
	}
	run, err := s.study("small")
	if err != nil {
		t.Fatal(err)
	}
	if got := fill("study=small show=verdict"); !strings.Contains(got, "\n> Verdict: "+escape(run.report.Verdict.Sentence)+"\n") {
		t.Error(got)
	}
	if got := fill("study=small show=findings at=1000/s"); !strings.Contains(got, "\n- 1000/s: ") || strings.Contains(got, "- 2000/s: ") {
		t.Error(got)
	}
	if got := fill("study=small show=setting"); !strings.Contains(got, "imbang (commit abc), imbang-lab (commit def, modified)") || !strings.Contains(got, "28 samples, of 4 cells, in `docs/studies/small`; made by `imbang-lab run small --seed=7`\n") {
		t.Error(got)
	}
	if got := fill("study=none show=verdict"); !strings.Contains(got, "*No run of `none` is stored.*\n") {
		t.Error(got)
	}
	got := fill("study=small show=table metric=response_time")
	for _, line := range []string{
		"| | rr | lc |\n| --- | --- | --- |\n",
		"| 1000/s | 1.04 (1.01 to 1.07) | 2.08 (2.02 to 2.14) |\n",
		"| 2000/s | 1.04 (1.01 to 1.07) | 2.08 (2.02 to 2.14) ‡ |\n| published | 584 | 753.3 |\n\nMedians of 7 runs; in brackets the interval that holds the median with 98 % confidence or more; ‡ requests were lost",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("the table lacks\n%s\nin\n%s", line, got)
		}
	}
	if got := fill(`study=small show=table metric=throughput,response_time at=2000/s of=lc`); !strings.Contains(got, "| | lc |\n") ||
		!strings.Contains(got, "| Throughput [KB/s] | 1000.0 (1000.0 to 1000.0) ‡ |\n| Response time, mean [ms] | 2.08 (2.02 to 2.14) ‡ |\n") {
		t.Error(got)
	}
}

func TestConditionsAreNamedWithoutTheirRate(t *testing.T) {
	for _, c := range []struct {
		condition, named string
		want             bool
	}{
		{"60 % of capacity (901/s), poisson", "60 % of capacity, poisson", true},
		{"60 % of capacity (901/s), poisson", "60 % of capacity (901/s), poisson", true},
		{"60 % of capacity (901/s), poisson", "60 % of capacity", false},
		{"90 % of capacity (901/s)", "60 % of capacity", false},
		{"2000/s, poisson", "2000/s, poisson", true},
	} {
		if got := isAt(c.condition, c.named); got != c.want {
			t.Errorf("%q named %q: %v", c.condition, c.named, got)
		}
	}
}
