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

var engines = []Engine{
	{Name: "imbang", Balances: true},
	{Name: "nginx-http", Balances: true, Schedulers: []string{"rr", "least_conn", "ip_hash"}},
	{Name: "haproxy-http", Balances: true, Schedulers: []string{"roundrobin", "leastconn"}},
	{Name: "imbang-l7", Balances: true, Schedulers: []string{"roundrobin", "leastconn", "source"}},
	{Name: "direct"},
}

// whole is a valid study that every bad one differs from in one place.
const whole = `name: small
title: A small study
hypothesis: none
cluster:
  families: [ipv4, ipv6]
  client_namespaces: 2
  client_addresses: 40
  servers:
    - {kind: nginx, page: 2 KB}
    - {kind: model, page: 1 KB, law: pareto, service: 2 ms, concurrency: 8, speed: 0.5}
  weights:
    even: [1, 1]
    odd: [1, 2]
load:
  rates: [1000, 2500.5]
  connections: 500
  timeout: 5 s
  arrivals: [constant, poisson]
  calls:
    - {name: front, path: /}
    - {name: send, method: POST, path: /in, body: "{n}"}
  faults:
    - {at: 1 s, server: s2, do: slow, factor: 10}
competitors:
  - {engine: imbang, schedulers: [rr, lc]}
  - {engine: imbang, schedulers: [wrr], weights: odd, servers: [1, 2]}
  - {name: one, engine: direct}
repeats: {least: 3, most: 9, until_percent: 5, budget: 10 m}
quick:
  duration: 250 ms
  repeats: 2
published:
  virtual_address: 192.0.2.1
  conclusion: rr is best.
  notes: [one run each]
  tables:
    - metric: throughput
      label: Table 1
      unit: KB/s
      family: ipv4
      call: front
      columns: [rr, wrr odd x1]
      rows:
        1000: [203.2, 217]
`

func TestParse(t *testing.T) {
	got, err := Parse("small.yaml", []byte(whole), engines)
	if err != nil {
		t.Fatal(err)
	}
	want := &Study{
		Name: "small", Title: "A small study", Hypothesis: "none",
		Families: []string{"ipv4", "ipv6"}, ClientNamespaces: 2, ClientAddresses: 40, VirtualAddresses: 1,
		Servers: []Server{
			{Kind: Nginx, Page: 2048},
			{Kind: Model, Page: 1024, Distribution: "pareto", Service: 2 * time.Millisecond, Concurrency: 8, Speed: 0.5},
		},
		Weights: []WeightSet{{"even", []int{1, 1}}, {"odd", []int{1, 2}}},
		Load: Load{
			Rates: []float64{1000, 2500.5}, Connections: 500, Timeout: 5 * time.Second, Arrivals: []string{"constant", "poisson"},
			PerConnection: 1, Tools: []string{BuiltIn},
			Calls:  []Call{{Name: "front", Method: "GET", Path: "/"}, {Name: "send", Method: "POST", Path: "/in", Body: "{n}"}},
			Faults: []Fault{{At: time.Second, Server: 1, Do: "slow", Factor: 10}},
		},
		Competitors: []Competitor{
			{"rr", "imbang", "rr", "even", 2}, {"lc", "imbang", "lc", "even", 2},
			{"wrr odd x1", "imbang", "wrr", "odd", 1}, {"wrr odd", "imbang", "wrr", "odd", 2},
			{"one", "direct", "", "even", 1},
		},
		Repeats: Repeats{Least: 3, Most: 9, Until: 0.05, Budget: 10 * time.Minute},
		Quick:   Quick{Duration: 250 * time.Millisecond, Repeats: 2},
		Published: &Published{
			VirtualAddress: "192.0.2.1", Conclusion: "rr is best.", Notes: []string{"one run each"},
			Tables: []Table{{
				Metric: Throughput, Label: "Table 1", Unit: "KB/s", Family: "ipv4", Call: "front",
				Values: map[float64]map[string]float64{1000: {"rr": 203.2, "wrr odd x1": 217}},
			}},
		},
		Text: whole,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !got.Weights[0].Equal() || got.WeightsOf("odd").Equal() {
		t.Error("even weights are not equal, or odd ones are")
	}
}

// Every mistake is one line with file, line, column and what to do.
func TestParseRefuses(t *testing.T) {
	for _, c := range refusals {
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
		s, err := Find(name, engines)
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
	s, err := Find("thesis", engines)
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
		if got, ok := s.Published.Figure(c.metric, "ipv4", "page", c.rate, c.scheduler); !ok || got != c.want {
			t.Errorf("%s of %s at %g/s: %v, %v; want %v", c.metric, c.scheduler, c.rate, got, ok, c.want)
		}
	}
	if _, ok := s.Published.Figure(Throughput, "ipv4", "page", 3000, "rr"); ok {
		t.Error("a figure for a rate that was not published")
	}
	if !s.Weights[0].Equal() || len(s.Competitors) != 11 {
		t.Errorf("weights %v, %d competitors; want equal ones, 11", s.Weights, len(s.Competitors))
	}
}

func TestFindByPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte(whole), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := Find(path, engines); err != nil || s.Name != "small" {
		t.Errorf("%v, %v", s, err)
	}
	_, err := Find("thesiz", engines)
	if want := `study "thesiz": there is none of that name; built in are: ` + strings.Join(studies.Names(), ", ") + `; or give the path of a YAML file`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := Find("./none.yaml", engines); err == nil || err.Error() != "study: open ./none.yaml: no such file or directory" {
		t.Errorf("got %v", err)
	}
}
