// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The whole report of the thesis, with all findings and their numbers.
func TestThesisReport(t *testing.T) {
	var b bytes.Buffer
	if err := New(thesis(t), thesisStudy(t)).Text(&b); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/thesis.report"
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("run with -update if this is meant: %s", diff)
	}
}

// kinds are the findings of runs, by kind.
func kinds(runs ...Result) map[string]string {
	out := map[string]string{}
	for _, f := range New(runs, nil).Findings {
		out[f.Kind] = f.Text
	}
	return out
}

// What is wrong with each sample, and nothing besides.
func TestFindingsOfSamples(t *testing.T) {
	for name, want := range map[string]string{
		"httperf/ok.txt":       "client-cpu client-shared single-run",
		"httperf/fd.txt":       "client-limits client-shared failed few-replies rate-not-reached short single-run",
		"httperf/refused.txt":  "client-shared failed few-replies short single-run",
		"httperf/varying.txt":  "client-shared short single-run",
		"httperf/stopped.txt":  "client-shared short single-run stopped",
		"httperf/died.txt":     "client-shared failed short single-run",
		"httperf/sessions.txt": "client-shared kept-alive short single-run",
		"ab/ok.txt":            "closed-loop resolution short single-run",
		"ab/closed.txt":        "closed-loop few-replies nothing-received resolution short single-run",
		"ab/keepalive-404.txt": "closed-loop kept-alive resolution short single-run status",
		"siege/nofile.txt":     "client-limits closed-loop failed resolution short single-run",
		"siege/slow.txt":       "closed-loop few-replies single-run",
		"siege/404.txt":        "closed-loop few-replies resolution short single-run status",
		"siege/500.txt":        "closed-loop failed few-replies short single-run",
		"wrk/nofile.txt":       "closed-loop failed kept-alive not-connected short single-run",
		"wrk/latency.txt":      "closed-loop kept-alive single-run",
		"wrk/latency-404.txt":  "closed-loop kept-alive short single-run status",
		"wrk/timeouts.txt":     "closed-loop failed few-replies short single-run",
	} {
		var got []string
		for kind := range kinds(sample(t, name)) {
			got = append(got, kind)
		}
		slices.Sort(got)
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s:\n got %s\nwant %s", name, s, want)
		}
	}
}

func TestFindingsSayTheNumbers(t *testing.T) {
	edit := func(name string, pairs ...string) Result {
		return parseText(t, strings.NewReplacer(pairs...).Replace(text(t, name)))[0]
	}
	for _, c := range []struct {
		kind string
		run  Result
		want string
	}{
		{"client-limits", sample(t, "httperf/fd.txt"), "ran out of file descriptors (fd-unavail): 244 of 300 connections were never begun"},
		{"client-limits", edit("httperf/fd.txt", "fd-unavail 244 addrunavail 0", "fd-unavail 0 addrunavail 244"), "ran out of port numbers (addrunavail): 244 of 300"},
		{"client-limits", sample(t, "siege/nofile.txt"), "ran out of file descriptors (fd-unavail): 2 connections were never begun; such results measure the client's limit"},
		{"failed", sample(t, "siege/nofile.txt"), "had 64 failures (in all failed 64)"},
		{"failed", sample(t, "siege/500.txt"), "siege counts replies with an error status among them"},
		{"not-connected", sample(t, "wrk/nofile.txt"), "counted 35 errors of connect with 50 connections asked, so the load was that of fewer clients"},
		{"stopped", sample(t, "httperf/stopped.txt"), "ended after 700 of 20000 connections: httperf was stopped"},
		{"rate-not-reached", sample(t, "httperf/fd.txt"), "achieved 26 of the 300 connections/s asked (8 %); the wait for the last replies, which httperf's duration includes, does not explain it"},
		{"rate-not-reached", edit("httperf/ok.txt", "--rate=200", "--rate=250"), "achieved 200 of the 250 connections/s asked (80 %); httperf's duration includes the wait for the last replies, which may be why"},
		{"status", sample(t, "thesis/rr-2000.txt"), "got 3xx replies only (4390): a redirect was measured"},
		{"status", sample(t, "ab/keepalive-404.txt"), "got no success (2xx) among 1000 replies"},
		{"status", edit("ab/ok.txt", "Total transferred", "Non-2xx responses: 250\nTotal transferred"), "got 250 of 1000 replies that were no success (2xx 750, non-2xx 250)"},
		{"status", edit("siege/ok.txt", "transactions:         500", "transactions:         450"), "got 50 of 500 replies that were no success:"},
		{"kept-alive", sample(t, "httperf/verbose.txt"), "up to about 3 requests each"},
		{"kept-alive", sample(t, "ab/keepalive-404.txt"), "up to about 10 requests each"},
		{"length", edit("ab/ok.txt", "Failed requests:        0", "Failed requests: 40\n (Connect: 0, Receive: 0, Length: 40, Exceptions: 0)"), "counted 40 replies as failed only because their length was not the first one's"},
		{"short", sample(t, "thesis/rr-14000.txt"), "lasted 6.0 s, less than 10; httperf took 1 of the 30 samples of the reply rate that its manual wants; what they asked for is begun within 1.4 s"},
		{"idle-clients", edit("siege/slow.txt", "Preparing 10", "Preparing 50"), "had 50 clients for 30 replies"},
		{"contradiction", edit("thesis/dh-14000.txt", "Net I/O: 65.1", "Net I/O: 220.7"), "its counts and sizes make 65.1 KB/s, not 220.7"},
	} {
		if got := kinds(c.run)[c.kind]; !strings.Contains(got, c.want) {
			t.Errorf("%s: %q\ndoes not say %q", c.kind, got, c.want)
		}
	}
}

// A file whose name gives another rate than its command line is in no table.
func TestMisnamedFile(t *testing.T) {
	runs, err := Parse(strings.NewReader(text(t, "thesis/rr-2000.txt")), "rr-8000.txt")
	if err != nil {
		t.Fatal(err)
	}
	rep := New(runs, nil)
	if len(rep.Tables) != 0 || rep.Findings[0].Kind != "misnamed" || !strings.Contains(rep.Findings[0].Text, "rr-8000.txt asked for 2000/s") {
		t.Errorf("%d tables, %+v", len(rep.Tables), rep.Findings[0])
	}
}

func TestRepeatsAreNoSingleRun(t *testing.T) {
	log := text(t, "thesis/rr-2000.txt")
	if text, ok := kinds(parseText(t, log+log)...)["single-run"]; ok {
		t.Error(text)
	}
}

// Runs of another cluster are not blamed for having other figures unseen.
func TestOtherCluster(t *testing.T) {
	log := strings.ReplaceAll(text(t, "thesis/rr-2000.txt"), "202.103.106.5", "10.0.0.1")
	runs, err := Parse(strings.NewReader(log), "rr-2000.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range New(runs, thesisStudy(t)).Findings {
		if f.Kind == "other-cluster" {
			return
		}
	}
	t.Error("not a word about the other address")
}
