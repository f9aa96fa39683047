// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"strings"
	"testing"
)

func TestWrk(t *testing.T) {
	r := sample(t, "wrk/latency-404.txt")
	if r.Tool != Wrk || r.Target != "http://127.0.0.1:8080/none" || r.Seconds != 2 || r.Replies != 41167 {
		t.Errorf("%+v", r)
	}
	want(t, "connections", r.Asked.Concurrency, int64(10))
	want(t, "rate", r.RequestRate, 20579.51)
	want(t, "throughput of 6.04 MB/s", r.ThroughputKBs, 6.04*1024)
	want(t, "latency of 512.06 us", r.ResponseMS, 0.51206)
	want(t, "received 12.09 MB", r.Received, 12.09*(1<<20))
	if len(r.Percentiles) != 4 || r.Percentiles[0] != (Percentile{50, 0.475}) || r.Percentiles[3] != (Percentile{99, 2.68}) {
		t.Errorf("percentiles %v", r.Percentiles)
	}
	if r.Statuses["4xx or 5xx"] != 41167 {
		t.Errorf("statuses %v", r.Statuses)
	}
}

func TestWrkOtherRuns(t *testing.T) {
	plain := sample(t, "wrk/ok.txt")
	want(t, "latency", plain.ResponseMS, 3.54)
	if len(plain.Percentiles) != 0 || plain.lost() != 0 {
		t.Errorf("%+v", plain)
	}
	slow := sample(t, "wrk/timeouts.txt") // every request over the timeout: no latency was kept
	absent(t, "latency", slow.ResponseMS)
	if slow.Errors["timeout"] != 10 || len(slow.Percentiles) != 0 {
		t.Errorf("%+v", slow)
	}
	want(t, "throughput of 2.64 KB/s", slow.ThroughputKBs, 2.64)
	if closed := sample(t, "wrk/closed.txt"); closed.Errors["read"] != 15903 || closed.Replies != 0 {
		t.Errorf("%+v", closed)
	}
}

func TestWrkUnits(t *testing.T) {
	log := text(t, "wrk/ok.txt")
	r := parseText(t, strings.NewReplacer("3.54ms", " 1.50s", "66.24ms", " 1.10m", "61104 requests in 3.08s, 35.72MB", "61104 requests in 3.08s, 1.25GB",
		"11.61MB", "416.00B").Replace(log))[0]
	want(t, "latency", r.ResponseMS, 1500.)
	want(t, "received", r.Received, 1.25*(1<<30))
	want(t, "throughput", r.ThroughputKBs, 416./1024)
	if r.TimesMS[TimeMax] != 66000 {
		t.Errorf("%v", r.TimesMS)
	}
}

func FuzzWrk(f *testing.F) { fuzz(f, "wrk/*.txt") }
