// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"strings"
	"testing"
)

func TestHttperfLog(t *testing.T) {
	r := sample(t, "thesis/dh-2000.txt")
	if r.Tool != Httperf || r.Target != "202.103.106.5:80/" || r.Seconds != 17.38 || r.Replies != 3677 {
		t.Errorf("%+v", r)
	}
	want(t, "asked rate", r.Asked.Rate, 2000.)
	want(t, "asked connections", r.Asked.Connections, int64(20000))
	want(t, "calls", r.Asked.Calls, int64(1))
	want(t, "timeout", r.Asked.TimeoutS, 5.)
	want(t, "connections", r.Connections, int64(4826))
	want(t, "requests", r.Requests, int64(4553))
	want(t, "connection rate", r.ConnectionRate, 277.7)
	want(t, "request rate", r.RequestRate, 262.)
	want(t, "throughput", r.ThroughputKBs, 152.4)
	want(t, "response", r.ResponseMS, 888.8)
	want(t, "samples", r.RateSamples, int64(3))
	want(t, "CPU", r.CPU, CPU{2, 94.3, 96.3})
	for key, v := range map[string]float64{
		TimeTransfer: 0, TimeReply: 888.8, TimeConnect: 661.5,
		TimeConnMin: 49.7, TimeConnMean: 1458.4, TimeConnMax: 8016.7, TimeConnMedian: 829.5,
	} {
		if r.TimesMS[key] != v {
			t.Errorf("%s is %g, want %g", key, r.TimesMS[key], v)
		}
	}
	if r.Statuses["3xx"] != 3677 || r.Statuses["2xx"] != 0 {
		t.Errorf("statuses %v", r.Statuses)
	}
	if r.Errors["client-timo"] != 1149 || r.Errors["fd-unavail"] != 15174 || r.lost() != 16323 {
		t.Errorf("errors %v", r.Errors)
	}
}

// Two of the logs have -num-calls with one dash.
func TestHttperfOptionWithOneDash(t *testing.T) {
	r := sample(t, "thesis/sh-14000.txt")
	want(t, "calls", r.Asked.Calls, int64(1))
}

func TestHttperfOtherRuns(t *testing.T) {
	ok := sample(t, "httperf/ok.txt")
	want(t, "response", ok.ResponseMS, 0.9)
	if ok.Statuses["2xx"] != 2200 || ok.lost() != 0 {
		t.Errorf("%+v", ok)
	}
	verbose := sample(t, "httperf/verbose.txt")
	want(t, "calls", verbose.Asked.Calls, int64(3))
	sessions := sample(t, "httperf/sessions.txt")
	want(t, "rate of --period=e0.05", sessions.Asked.Rate, 20.)
	if !sessions.Asked.Sessions {
		t.Error("--wsess is not seen")
	}
	refused := sample(t, "httperf/refused.txt")
	absent(t, "response without replies", refused.ResponseMS)
	if _, ok := refused.TimesMS[TimeConnMean]; ok || refused.Errors["connrefused"] != 100 {
		t.Errorf("%+v", refused)
	}
}

func TestHttperfTextsFromElsewhere(t *testing.T) {
	log := text(t, "thesis/rr-2000.txt")
	_, headless, _ := strings.Cut(log, "\n")
	for name, c := range map[string]struct {
		text string
		runs int
	}{
		"line ends of Windows": {strings.ReplaceAll(log, "\n", "\r\n"), 1},
		"byte order mark":      {"\ufeff" + log, 1},
		"no head":              {headless, 1},
		"interrupted":          {strings.Replace(log, "Maximum", "^CMaximum", 1), 1},
		"indented":             {strings.ReplaceAll(log, "\n", "\n  "), 1},
		"a pasted command":     {"# httperf --hog --server x --num-conn 9 --ra 1\nhttperf --hog --server x\n" + log, 1},
		"three runs":           {log + log + "\n\n" + log, 3},
		"two runs, no heads":   {headless + headless, 2},
	} {
		rs := parseText(t, c.text)
		if len(rs) != c.runs {
			t.Errorf("%s: %d runs, want %d", name, len(rs), c.runs)
		}
		for i, r := range rs {
			if r.ThroughputKBs == nil || *r.ThroughputKBs != 203.2 || r.Replies != 4390 || r.Run != i+1 {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if strings.Contains(name, "no head") {
			absent(t, "asked rate without a head", rs[0].Asked.Rate)
		}
	}
}

func TestHttperfContradictions(t *testing.T) {
	log := text(t, "thesis/dh-14000.txt")
	for _, c := range []struct{ old, new, want string }{
		{"Net I/O: 65.1", "Net I/O: 220.7", "its counts and sizes make 65.1 KB/s, not 220.7"},
		{"Net I/O: 65.1", "Net I/O: 64.9", "its counts and sizes make 65.1 KB/s, not 64.9"},
		{"Connection rate: 161.1", "Connection rate: 191.1", "1330 connections in 8.255 s are 161.1/s, not 191.1/s"},
		{"3xx=709", "3xx=708", "709 replies, but statuses of 708"},
		{"Errors: total 19291", "Errors: total 19290", "errors of 19290 in total, but causes of 19291"},
	} {
		rs := parseText(t, strings.Replace(log, c.old, c.new, 1))
		if got := strings.Join(rs[0].Contradictions, "; "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.new, got, c.want)
		}
	}
}

// httperf 0.9 cuts the decimals off its mean sizes: up to a byte of each request, header
// and content is in Net I/O and not in them. More than that, or less, is a change.
func TestHttperfMeansAreCutOff(t *testing.T) {
	log := text(t, "httperf/varying.txt") // 3000 requests and replies in 4.291 s, 559.8 KB/s
	for _, c := range []struct {
		kb   string
		want string
	}{
		{"559.8", ""},
		{"561.3", ""}, // 2.05 KB/s more than the sizes make
		{"561.6", "its counts and sizes make 559.2 KB/s, not 561.6"},
		{"558.9", "its counts and sizes make 559.2 KB/s, not 558.9"},
	} {
		rs := parseText(t, strings.Replace(log, "Net I/O: 559.8", "Net I/O: "+c.kb, 1))
		if got := strings.Join(rs[0].Contradictions, "; "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.kb, got, c.want)
		}
	}
}

func FuzzHttperf(f *testing.F) { fuzz(f, "httperf/*.txt", "thesis/rr-*.txt") }
