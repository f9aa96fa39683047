// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"strings"
	"testing"
)

func TestSiege(t *testing.T) {
	r := sample(t, "siege/slow.txt")
	if r.Tool != Siege || r.Version != "4.0.7" || r.Seconds != 10.58 || r.Replies != 30 {
		t.Errorf("%+v", r)
	}
	want(t, "concurrency", r.Asked.Concurrency, int64(10))
	want(t, "response", r.ResponseMS, 3010.)
	want(t, "rate", r.RequestRate, 2.84)
	want(t, "successes", r.Successes, int64(30))
	if r.TimesMS[TimeMax] != 3010 || r.TimesMS[TimeMin] != 3000 || r.Statuses["2xx"] != 30 {
		t.Errorf("%v, %v", r.TimesMS, r.Statuses)
	}
	fast := sample(t, "siege/ok.txt")
	want(t, "throughput of 1.38 MB/s", fast.ThroughputKBs, 1.38*1024)
}

func TestSiegeOtherRuns(t *testing.T) {
	missing := sample(t, "siege/404.txt")
	if missing.Statuses["4xx"] != 9 || missing.Replies != 9 || *missing.Successes != 0 || missing.lost() != 0 {
		t.Errorf("%+v", missing)
	}
	broken := sample(t, "siege/500.txt")
	if broken.Errors["failed"] != 100 || broken.Replies != 0 {
		t.Errorf("%+v", broken)
	}
	absent(t, "response without replies", broken.ResponseMS)
	json := sample(t, "siege/json.txt")
	if json.Replies != 100 || json.TimesMS[TimeMax] != 20 {
		t.Errorf("%+v", json)
	}
	want(t, "throughput of JSON", json.ThroughputKBs, 0.72*1024)
}

// siege 2.6 printed bytes, siege 4.2 prints milliseconds.
func TestSiegeUnitsOfOtherVersions(t *testing.T) {
	log := text(t, "siege/slow.txt")
	r := parseText(t, strings.NewReplacer("0.01 MB\n", "11250 bytes\n", "0.00 MB/sec", "1063.33 bytes/sec", "SIEGE 4.0.7", "Siege 2.60",
		"3.01\n", "3.01 secs\n", "3.00\n", "3.00 secs\n").Replace(log))[0]
	want(t, "throughput", r.ThroughputKBs, 1063.33/1024)
	want(t, "received", r.Received, 11250.)
	if r.Version != "2.60" || r.TimesMS[TimeMax] != 3010 {
		t.Errorf("%+v", r)
	}
	r = parseText(t, strings.NewReplacer("3.01 secs\n", "3010.00 ms\n", "Longest transaction:\t        3.01", "Longest transaction:\t 3012.50 ms").Replace(log))[0]
	want(t, "response", r.ResponseMS, 3010.)
	if r.TimesMS[TimeMax] != 3012.5 {
		t.Errorf("%v", r.TimesMS)
	}
}

func FuzzSiege(f *testing.F) { fuzz(f, "siege/*.txt") }
