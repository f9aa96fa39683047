// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const fixedStudy = `name: fixed
title: Five schedulers and a yardstick
source: a journal, 2011
hypothesis: They serve alike.
cluster: {client_namespaces: 1, client_addresses: 1, servers: [{kind: nginx, count: 3, page: 375 B}]}
load: {rates: [2000, 8000, 14000], connections: 1000, timeout: 5 s}
competitors:
  - {engine: imbang, schedulers: [rr, wrr, lc, dh, nq]}
  - {engine: direct, servers: [3]}
repeats: {least: 6}
published:
  virtual_address: 192.0.2.1
  conclusion: wrr is best.
  notes: [The client was the bottleneck.]
  tables:
    - {metric: throughput, label: Table 4.1, unit: KB/s, columns: [rr, wrr, lc, dh, nq], rows: {2000: [203.2, 217.5, 222.2, 152.4, 219.4]}}
    - {metric: response_time, label: Table 4.2, unit: ms, columns: [rr, wrr, lc, dh, nq], rows: {2000: [1038.7, 830.5, 1028.8, 888.8, 1042.6]}}
`

// response gives the mean response times of the six runs of a cell [ms].
var response = map[string]map[float64][6]float64{
	"rr":     {2000: {0.50, 0.52, 0.51, 0.49, 0.50, 0.51}, 8000: {1.0, 1.2, 1.1, 1.3, 1.2, 1.1}, 14000: {9, 9, 9, 9, 9, 9}},
	"wrr":    {2000: {0.51, 0.50, 0.53, 0.52, 0.50, 0.51}, 8000: {1.1, 1.0, 1.2, 1.4, 1.1, 1.2}, 14000: {9, 9, 9, 9, 9, 9}},
	"lc":     {2000: {0.51, 0.54, 0.50, 0.49, 0.52, 0.50}, 8000: {1.0, 1.1, 1.2, 1.2, 1.0, 1.1}, 14000: {9, 9, 9, 9, 9, 9}},
	"dh":     {2000: {0.90, 0.95, 0.92, 0.91, 0.94, 0.90}, 8000: {8, 9, 8.5, 8.8, 8.1, 8.4}, 14000: {9, 9, 9, 9, 9, 9}},
	"nq":     {2000: {0.48, 0.52, 0.51, 0.50, 0.49, 0.51}, 8000: {0.5, 0.6, 0.55, 0.52, 0.53, 0.56}, 14000: {9, 9, 9, 9, 9, 9}},
	"direct": {2000: {0.30, 0.31, 0.29, 0.33, 0.30, 0.31}, 8000: {0.4, 0.4, 0.4, 0.4, 0.4, 0.4}, 14000: {2, 2, 2, 2, 2, 2}},
}

// fixed is a stored run with one case of everything: published figures, a
// winner, no winner, one late run, cells whose every run was late, lost
// requests, a failure, one missing run.
func fixed() *record.Run {
	s, err := study.Parse("fixed.yaml", []byte(fixedStudy), nil)
	if err != nil {
		panic(err)
	}
	plan := record.Plan{
		Repeats: 6, Cells: 18, Connections: 1000, PerConnection: 1,
		Warmup: 200 * time.Millisecond, Timeout: 5 * time.Second, Seed: 7,
	}
	for _, c := range s.Competitors {
		plan.Competitors = append(plan.Competitors, record.Competitor(c))
	}
	for _, rate := range s.Load.Rates {
		plan.Conditions = append(plan.Conditions, record.Condition{Family: "ipv4", Call: "page", Tool: study.BuiltIn, Arrivals: "constant", Rate: rate})
	}
	run := &record.Run{Environment: record.Environment{
		Study: "fixed.yaml", StudyText: fixedStudy, Plan: plan,
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Imbang:  "test", Programs: map[string]string{"nginx": "1.22.1"}, Kernel: "6.18.0", CPU: "some CPU", CPUs: 2,
	}}
	for block := 1; block <= plan.Repeats; block++ {
		for _, condition := range plan.Conditions {
			for _, c := range plan.Competitors {
				if c.Name == "lc" && condition.Rate == 8000 && block == 3 {
					continue // interrupted
				}
				run.Samples = append(run.Samples, sample(record.Cell{Competitor: c, Condition: condition}, block))
			}
		}
	}
	return run
}

func sample(cell record.Cell, block int) record.Sample {
	scheduler, rate := cell.Name, cell.Rate
	s := record.Sample{
		Cell:  cell,
		Block: block, CalibrationNS: time.Duration(5+block) * time.Millisecond,
		CPU: record.CPU{
			Director:    engine.CPU{Known: true, Time: 3 * time.Millisecond, Runs: 10000},
			ServersNS:   map[string]time.Duration{"s1": 10 * time.Millisecond, "s2": 9 * time.Millisecond, "s3": 11 * time.Millisecond},
			MachineBusy: rate / 20000,
			MachineNS:   time.Duration(600+block) * time.Millisecond,
		},
	}
	if scheduler == "direct" {
		s.CPU.Director, s.CPU.MachineNS = engine.CPU{}, 480*time.Millisecond
	}
	if scheduler == "dh" && rate == 2000 && block == 2 {
		s.Error = "imbang attach: device ext0: no such device"
		return s
	}
	mean := response[scheduler][rate][block-1]
	r := &load.Result{
		AskedRate: rate, OfferedRate: rate, IssuedRate: rate, ReplyRate: rate, NetIOKBs: rate * 0.68,
		Scheduled: 1000, Issued: 1000, Replies: 1000, Status: load.Status{Success: 1000},
		PerServer: map[string]int{"s1": 334, "s2": 333, "s3": 333},
		Response:  load.Latency{Count: 1000, MeanMS: mean, P50MS: mean * 0.9, P99MS: mean * 5},
	}
	r.Generator.Connections = 1200
	r.Generator.Lateness = load.Latency{Count: 1000, MeanMS: 0.04, P50MS: 0.03, P99MS: 0.2, MaxMS: 1 + float64(block)}
	if scheduler == "nq" && rate == 8000 && block == 3 {
		r.Generator.Behind, r.Generator.Reason = true, "1 % of the starts were over 12.0 ms late: no limit found"
		r.Generator.Lateness.P99MS = 12
	}
	if scheduler == "dh" || scheduler == "direct" {
		r.PerServer = map[string]int{"s1": 1000}
	}
	if rate == 14000 {
		r.IssuedRate, r.ReplyRate, r.NetIOKBs = 10000, 10000, 6800
		r.Generator.Behind, r.Generator.Reason = true, "issued 10000 of 14000 connections/s: CPU"
		r.Generator.BusyShare, r.Generator.WaitShare = 0.7, 0.3
		if scheduler == "lc" {
			r.Generator.Reason = "issued 10000 of 14000 connections/s: no limit found"
			r.Generator.BusyShare, r.Generator.WaitShare = 0.3, 0
		}
		if scheduler == "dh" {
			r.Loss.Timeout, r.Loss.Refused, r.Replies, r.Status.Success = 30, 12, 958, 950
			r.Status.ServerError = 8
		}
	}
	s.Load = r
	return s
}

func TestGolden(t *testing.T) {
	rep, err := New(fixed())
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"tables.txt":        func(b *bytes.Buffer) error { return rep.Text(b) },
		"report.json":       func(b *bytes.Buffer) error { return rep.JSON(b) },
		"throughput.csv":    func(b *bytes.Buffer) error { return rep.metricCSV(b, metric("throughput")) },
		"response_time.csv": func(b *bytes.Buffer) error { return rep.metricCSV(b, metric("response_time")) },
		"spread.csv":        func(b *bytes.Buffer) error { return rep.spreadCSV(b) },
		"comparisons.csv":   func(b *bytes.Buffer) error { return rep.comparisonsCSV(b) },
		"loss_causes.csv":   func(b *bytes.Buffer) error { return rep.causesCSV(b) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("run with -update if this is meant: %s", diff)
			}
		})
	}
}

// What is stored is enough: the report made from the files is the same.
func TestWriteFromFiles(t *testing.T) {
	dir, run := filepath.Join(t.TempDir(), "out"), fixed()
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
	if _, err := Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tables.txt", "throughput.csv", "spread.csv", "comparisons.csv"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := Write(t.TempDir()); err == nil {
		t.Error("reported on an empty directory")
	}
}

func TestNothingMeasured(t *testing.T) {
	run := fixed()
	run.Samples = nil
	rep, err := New(run)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := rep.Text(&b); err != nil {
		t.Fatal(err)
	}
	if want := "0 of 108 planned runs were measured; the others failed or were interrupted."; !bytes.Contains(b.Bytes(), []byte(want)) {
		t.Errorf("%s\nwants %q", b.String(), want)
	}
}
