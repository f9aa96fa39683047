// SPDX-License-Identifier: Apache-2.0

package study

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/studies"
)

var engines = []string{"imbang", "direct"}

// whole is a valid study that every bad one differs from in one place.
const whole = `name: small
title: A small study
cluster:
  client_namespaces: 2
  client_addresses: 40
  weights: [1, 2]
  page: 2 KB
load:
  rates: [1000, 2500.5]
  connections: 500
  timeout: 5 s
  arrivals: [constant, poisson]
engines: [imbang, direct]
schedulers: [rr, lc]
repeats: 3
quick:
  duration: 250 ms
  repeats: 2
published:
  virtual_address: 192.0.2.1
  conclusion: rr is best.
  notes: [one run each]
  schedulers: [rr, lc]
  throughput:
    label: Table 1
    unit: KB/s
    rows:
      1000: [203.2, 217]
`

func TestParse(t *testing.T) {
	got, err := Parse("small.yaml", []byte(whole), engines)
	if err != nil {
		t.Fatal(err)
	}
	want := &Study{
		Name: "small", Title: "A small study",
		ClientNamespaces: 2, ClientAddresses: 40, Weights: []int{1, 2}, PageBytes: 2048,
		Rates: []float64{1000, 2500.5}, Connections: 500, Timeout: 5 * time.Second, Arrivals: []string{"constant", "poisson"},
		Engines: []string{"imbang", "direct"}, Schedulers: []string{"rr", "lc"}, Repeats: 3,
		Quick: Quick{Duration: 250 * time.Millisecond, Repeats: 2},
		Published: &Published{
			VirtualAddress: "192.0.2.1", Conclusion: "rr is best.", Notes: []string{"one run each"},
			Tables: map[Metric]Table{Throughput: {
				Label: "Table 1", Unit: "KB/s",
				Values: map[float64]map[string]float64{1000: {"rr": 203.2, "lc": 217}},
			}},
		},
		Text: whole,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.EqualWeights() {
		t.Error("weights 1 and 2 count as equal")
	}
}

// Every mistake is one line with file, line, column and what to do.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ old, bad, want string }{
		{"repeats: 3\n", "repeatz: 3\n", `s.yaml:15:1: unknown key "repeatz": known here are name, title, source, cluster, load, engines, schedulers, repeats, quick, published`},
		{"  page: 2 KB", "  pages: 2 KB", `s.yaml:7:3: unknown key "pages": known here are client_namespaces, client_addresses, weights, page`},
		{"name: small", "name: small\nname: again", `s.yaml:2:1: mapping key "name" already defined at [1:1]: correct the YAML here`},
		{"name: small", "name: [a", `s.yaml:2:1: ',' or ']' must be specified: correct the YAML here`},
		{"name: small", "name: A Study", `s.yaml:1:7: name: "A Study": want a short name of lower-case letters, digits, - and _`},
		{"name: small", "title: small", `s.yaml:2:1: mapping key "title" already defined at [1:1]: correct the YAML here`},

		{"page: 2 KB", "page: 375", `s.yaml:7:9: cluster.page: 375 has no unit: write 375 B`},
		{"page: 2 KB", "page: 2 miles", `s.yaml:7:9: cluster.page: "2 miles" is not a size: write a whole number with B or KB, such as 375 B`},
		{"page: 2 KB", "page: 2000 KB", `s.yaml:7:9: cluster.page: "2000 KB" is out of range: want 1 B to 1024 KB`},
		{"page: 2 KB", "page: [1]", `s.yaml:7:9: cluster.page: "[" is of the wrong kind: want a text`},
		{"weights: [1, 2]", "weights: [1, -1]", `s.yaml:6:16: cluster.weights[1]: -1 is out of range: want 0 to 65535`},
		{"weights: [1, 2]", "weights: [1, 1.5]", `s.yaml:6:16: cluster.weights[1]: 1.5 is not a whole number: want 0 to 65535`},
		{"weights: [1, 2]", "weights: [0, 0]", `s.yaml:6:12: cluster.weights: all are 0, so no server takes connections: give one a weight of 1 or more`},
		{"weights: [1, 2]", "weights: []", `s.yaml:6:12: cluster.weights: 0 real servers: want 1 to 16 weights, one for each`},
		{"client_namespaces: 2", "client_namespaces: 9", `s.yaml:4:22: cluster.client_namespaces: 9 is out of range: want 1 to 8`},
		{"client_addresses: 40", "client_addresses: 1", `s.yaml:5:21: cluster.client_addresses: 1 is fewer than the 2 client namespaces: give each one at least`},

		{"rates: [1000,", "rates: [fast,", `s.yaml:9:11: load.rates[0]: "fast" is of the wrong kind: want a number`},
		{"rates: [1000,", "rates: [0,", `s.yaml:9:11: load.rates[0]: 0 is out of range: want connections per second, above 0 and at most 1e+06`},
		{"rates: [1000,", "rates: [2500.5,", `s.yaml:9:19: load.rates[1]: 2500.5 is given twice: remove one`},
		{"rates: [1000, 2500.5]", "rates: 1000", `s.yaml:9:10: load.rates: "1000" is of the wrong kind: want a list such as [a, b]`},
		{"connections: 500", "connections: many", `s.yaml:10:16: load.connections: "many" is of the wrong kind: want a whole number`},
		{"connections: 500", "connections: 2.5", `s.yaml:10:16: load.connections: 2.5 is not a whole number: want 1 to 100000000`},
		{"connections: 500", "connections: 500\n  duration: 1 s", `s.yaml:9:8: load: give either connections or duration for a cell's length`},
		{"  connections: 500\n", "", `s.yaml:9:8: load: give either connections or duration for a cell's length`},
		{"timeout: 5 s", "timeout: 5", `s.yaml:11:12: load.timeout: 5 has no unit: write 5 s or 5 ms`},
		{"timeout: 5 s", "timeout: 5 parsecs", `s.yaml:11:12: load.timeout: "5 parsecs" is not a time: write a number with ms, s or m, such as 5 s`},
		{"timeout: 5 s", "timeout: -5 s", `s.yaml:11:12: load.timeout: -5 s: want a time above 0`},
		{"  timeout: 5 s\n", "", `s.yaml:9:8: load.timeout: missing: want a time such as 5 s`},
		{"arrivals: [constant,", "arrivals: [fixed,", `s.yaml:12:14: load.arrivals[0]: "fixed" is unknown: want one of constant, poisson`},

		{"engines: [imbang, direct]", "engines: [haproxy]", `s.yaml:13:11: engines[0]: "haproxy" is unknown: want one of imbang, direct`},
		{"schedulers: [rr, lc]\nrep", "schedulers: [rr, rr]\nrep", `s.yaml:14:18: schedulers[1]: "rr" is given twice: remove one`},
		{"repeats: 3", "repeats: 0", `s.yaml:15:10: repeats: 0 is out of range: want 1 to 1000`},
		{"duration: 250 ms", "duration: 250", `s.yaml:17:13: quick.duration: 250 has no unit: write 250 s or 250 ms`},

		{"unit: KB/s", "unit: MB/s", `s.yaml:26:11: published.throughput.unit: "MB/s": want KB/s, and figures converted to it`},
		{"1000: [203.2, 217]", "1000: [203.2]", `s.yaml:28:13: published.throughput.rows.1000: 1 figures for 2 schedulers: give one for each of published.schedulers`},
		{"1000: [203.2, 217]", "fast: [203.2, 217]", `s.yaml:28:13: published.throughput.rows.fast: "fast" is not a rate: want connections per second`},
		{"conclusion: rr is best.", "conclusion: {a: b}", `s.yaml:21:15: published.conclusion: "{" is of the wrong kind: want a text`},
		{"repeats: 3", "repeats: !!int 3", `s.yaml:15:10: "!!int": write the value itself: tags, anchors and aliases are not read in a study`},
		{whole, "", `s.yaml:1:1: the file is empty: write a study that begins with "name: NAME"`},
		{whole, "just words", `s.yaml:1:1: the study: "just words" is of the wrong kind: want a mapping: keys with values, indented`},
		{whole, "name: a\n---\nname: b\n", `s.yaml:3:1: a second document: keep one study a file`},
	} {
		t.Run(c.bad, func(t *testing.T) {
			text := strings.Replace(whole, c.old, c.bad, 1)
			if text == whole {
				t.Fatalf("%q is not in the study", c.old)
			}
			_, err := Parse("s.yaml", []byte(text), engines)
			if err == nil {
				t.Fatalf("accepted; want %s", c.want)
			}
			if err.Error() != c.want {
				t.Errorf("\n got %s\nwant %s", err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add("load: {rates: [1")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse("s.yaml", []byte(text), engines); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %q", err)
		}
	})
}

func TestBuiltInStudies(t *testing.T) {
	for _, name := range studies.Names() {
		s, err := Load(name, engines)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Name != name {
			t.Errorf("study %s calls itself %s", name, s.Name)
		}
	}
}

func TestThesisHoldsThePublishedFigures(t *testing.T) {
	s, err := Load("thesis", engines)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		metric    Metric
		rate      float64
		scheduler string
		want      float64
	}{
		{Throughput, 2000, "rr", 203.2}, {Throughput, 8000, "lblc", 102.9}, {Throughput, 14000, "dh", 220.7},
		{ResponseTime, 2000, "lblcr", 1525.7}, {ResponseTime, 8000, "sh", 225.8}, {ResponseTime, 14000, "nq", 689.2},
	} {
		if got, ok := s.Published.Figure(c.metric, c.rate, c.scheduler); !ok || got != c.want {
			t.Errorf("%s of %s at %g/s: %v, %v; want %v", c.metric, c.scheduler, c.rate, got, ok, c.want)
		}
	}
	if _, ok := s.Published.Figure(Throughput, 3000, "rr"); ok {
		t.Error("a figure for a rate that was not published")
	}
	if !s.EqualWeights() || len(s.Schedulers) != 10 {
		t.Errorf("weights %v, %d schedulers; want equal ones, 10", s.Weights, len(s.Schedulers))
	}
}

func TestLoadByPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte(whole), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := Load(path, engines); err != nil || s.Name != "small" {
		t.Errorf("%v, %v", s, err)
	}
	_, err := Load("thesiz", engines)
	if want := `study "thesiz": there is none of that name; built in are: ` + strings.Join(studies.Names(), ", ") + `; or give the path of a YAML file`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := Load("./none.yaml", engines); err == nil || err.Error() != "study: open ./none.yaml: no such file or directory" {
		t.Errorf("got %v", err)
	}
}
