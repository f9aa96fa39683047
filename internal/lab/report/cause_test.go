// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// two are competitors of which the second has something; the third is spare.
const two = "  - {engine: imbang, schedulers: [rr, lc, sed]}"

// spoilt makes the runs of lc something else than clean.
func spoilt(spoil func(*load.Result)) func(record.Cell, int) *load.Result {
	draw := noisy(1, 0.03, nil)
	return func(c record.Cell, block int) *load.Result {
		r := draw(c, block)
		if c.Name == "lc" {
			spoil(r)
		}
		return r
	}
}

func TestCausesOfCells(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*load.Result)
		kind  Kind
		text  string
	}{
		"CPU": {func(r *load.Result) {
			r.Generator = load.Generator{Behind: true, Reason: "issued 900 of 1000 requests/s: CPU", BusyShare: 0.6, WaitShare: 0.35}
		}, ClientSaturated, "in 6 of 6 runs: issued 900 of 1000 requests/s: CPU"},
		"waiting for CPU": {func(r *load.Result) {
			r.Generator = load.Generator{Behind: true, Reason: "late: CPU", BusyShare: 0.2, WaitShare: 0.2}
		}, ClientSaturated, "late: CPU"},
		"descriptors": {func(r *load.Result) {
			r.Loss.Client.Descriptors, r.Generator.DescriptorLimit = 7, 64
		}, ClientSaturated, "in 6 of 6 runs: descriptor limit 64 (7 connections not opened)"},
		"ports": {func(r *load.Result) { r.Loss.Client.Addresses = 9 }, ClientSaturated, "local ports or source addresses (9 connections not opened)"},
		"behind for no limit": {func(r *load.Result) {
			r.Generator = load.Generator{Behind: true, Reason: "late: no limit found", BusyShare: 0.2}
		}, GeneratorBehind, "late: no limit found"},
		"loss":        {func(r *load.Result) { r.Loss.Timeout, r.Loss.Refused = 3, 2 }, RequestsLost, "in 6 of 6 runs: 12 refused, 18 timeout"},
		"redirects":   {func(r *load.Result) { r.Status.Success, r.Status.Redirect = 0, 2000 }, ErrorPages, "in 6 of 6 runs: 12000 replies 3xx"},
		"error pages": {func(r *load.Result) { r.Status.Success, r.Status.ServerError = 1990, 10 }, ErrorPages, "60 replies 5xx"},
	} {
		t.Run(name, func(t *testing.T) {
			rep := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 6, result: spoilt(tc.spoil)}.report(t)
			row := rep.Sections[0].Rows[0]
			cell := row.Cells[1]
			if cell.Ranked() || len(cell.Causes) != 1 || cell.Causes[0].Kind != tc.kind || !strings.Contains(cell.Causes[0].Text, tc.text) {
				t.Errorf("%+v, want %s: %s", cell.Causes, tc.kind, tc.text)
			}
			if i := slices.IndexFunc(row.Causes, func(c Cause) bool { return c.Kind == tc.kind }); i < 0 || !slices.Equal(row.Causes[i].Cells, []string{"lc"}) {
				t.Errorf("of the level: %+v", row.Causes)
			}
			if slices.Contains(row.Comparisons["response_time"].Ranking, "lc") {
				t.Error("lc is ranked all the same")
			}
			says := "Not measurable here: lc ("
			if tc.kind == RequestsLost { // what it carried is measured
				says = "are not ranked: lc ("
				if len(row.Comparisons["reply_rate"].Ranking) != 3 || len(row.Comparisons["response_time"].Ranking) != 2 {
					t.Errorf("ranked: %+v", row.Comparisons)
				}
			}
			wants(t, text(t, rep), "lc at 1000/s ("+tc.kind.words()+": ", says+tc.kind.words()+": ")
		})
	}
}

// A client at its limit everywhere leaves nothing to say but that.
func TestNothingIsMeasurable(t *testing.T) {
	rep := made{load: "rates: [1000, 2000], duration: 2 s", competitors: two, blocks: 6, result: func(c record.Cell, _ int) *load.Result {
		r := clean(c, 1, 5, 1)
		r.Generator = load.Generator{Behind: true, Reason: "issued 900 of 1000 requests/s: CPU", BusyShare: 0.95}
		return r
	}}.report(t)
	if want := "Not measurable here at any of 2 rates: client saturated."; rep.Verdict.Outcome != OutcomeNotMeasurable || rep.Verdict.Sentence != want {
		t.Errorf("%s: %q, want %q", rep.Verdict.Outcome, rep.Verdict.Sentence, want)
	}
	if c := rep.Verdict.Causes[0]; c.Kind != ClientSaturated || len(c.Cells) != 6 || c.Cells[0] != "rr at 1000/s" {
		t.Errorf("%+v", c)
	}
}

func TestHashingOneAddress(t *testing.T) {
	to := func(spread map[string]int) func(record.Cell, int) *load.Result {
		return func(c record.Cell, block int) *load.Result {
			r := clean(c, 1, 5, 1)
			if c.Scheduler != "rr" {
				r.PerServer = spread
			}
			return r
		}
	}
	const several, many = "client_namespaces: 1, client_addresses: 10, virtual_addresses: 4", "client_namespaces: 1, client_addresses: 10, virtual_addresses: 100"
	alone, shared := map[string]int{"s2": 2000}, map[string]int{"s1": 1000, "s2": 1000}
	for name, tc := range map[string]struct {
		cluster, engine, scheduler string
		spread                     map[string]int
		text                       string // "" for no cause
	}{
		"dh":                              {"", "imbang", "dh", alone, "it looks at virtual addresses, and there is one: s2 answered all"},
		"dh to several, whyever":          {"", "imbang", "dh", shared, ""},
		"lblc":                            {"", "imbang", "lblc", alone, "it looks at virtual addresses, and there is one"},
		"lblc under overload":             {"", "imbang", "lblc", shared, ""},
		"sh, one client":                  {"client_namespaces: 1, client_addresses: 1", "imbang", "sh", alone, "it looks at client addresses, and there is one: s2 answered all"},
		"sh, three clients by chance":     {"client_namespaces: 1, client_addresses: 3", "imbang", "sh", alone, "there are 3, which all fell on s2"},
		"sh, 400 clients":                 {"", "imbang", "sh", alone, ""}, // no matter of addresses
		"source":                          {"client_namespaces: 1, client_addresses: 1", "haproxy-tcp", "source", alone, "it looks at client addresses"},
		"ip_hash, 200 clients, one net":   {"client_namespaces: 1, client_addresses: 200", "nginx-http", "ip_hash", alone, "and there is one"},
		"ip_hash, 400 clients, two nets":  {"", "nginx-http", "ip_hash", alone, "there are 2, which all fell on s2"},
		"uri":                             {"", "haproxy-http", "uri", alone, "it looks at paths, and there is one"},
		"sed, idle":                       {"", "imbang", "sed", alone, ""},
		"dh, by a tool that says nothing": {"", "imbang", "dh", map[string]int{}, "it looks at virtual addresses, and there is one"},
		"dh, several":                     {several, "imbang", "dh", alone, "it looks at virtual addresses, and there are 4, which all fell on s2"},
		"dh, many":                        {many, "imbang", "dh", shared, ""},
		"lblc, many":                      {many, "imbang", "lblc", shared, ""},
		"lblc, many on one":               {many, "imbang", "lblc", alone, ""}, // no matter of addresses
		"lblc, the same":                  {"", "imbang", "lblc", map[string]int{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rep := made{cluster: tc.cluster, load: "rates: [1000], duration: 2 s", blocks: 6, result: to(tc.spread),
				competitors: "  - {engine: imbang, schedulers: [rr]}\n  - {engine: " + tc.engine + ", schedulers: [" + tc.scheduler + "]}"}.report(t)
			c := rep.Sections[0].Rows[0].Cells[1]
			switch {
			case tc.text == "" && (len(c.Causes) > 0 || !c.Ranked()):
				t.Errorf("%+v, want none", c.Causes)
			case tc.text != "" && (len(c.Causes) != 1 || c.Causes[0].Kind != OneAddress || !strings.Contains(c.Causes[0].Text, tc.text) || c.Ranked()):
				t.Errorf("%+v, want %q", c.Causes, tc.text)
			}
		})
	}
}

// As many paths are asked for as there are URLs.
func TestHashingPaths(t *testing.T) {
	for urls, want := range map[int]bool{3: true, 100: false} {
		s := &study.Study{Load: study.Load{
			Calls: []study.Call{{Name: "page", Path: "/url/{url}"}}, Popularity: study.Popularity{URLs: urls},
		}}
		c := Cell{Competitor: record.Competitor{Scheduler: "uri", Servers: 3}, Spread: map[string]float64{"s2": 1}}
		if why, got := oneAddress(c, record.Condition{Call: "page"}, s); got != want {
			t.Errorf("%d URLs that all fell on one server: %v, %q", urls, got, why)
		}
	}
}

func TestSettingSaysWhatIsChosen(t *testing.T) {
	rep := made{cluster: "client_namespaces: 1, client_addresses: 10, virtual_addresses: 100", blocks: 2, competitors: "  - {engine: imbang, schedulers: [dh]}",
		load:   `rates: [1000], duration: 2 s, destination_zipf: 0.8, urls: 50, calls: [{name: page, path: "/url/{url}"}]`,
		result: func(c record.Cell, _ int) *load.Result { return clean(c, 1, 5, 1) }}.report(t)
	wants(t, text(t, rep), "100 virtual addresses, popular by Zipf's law with the exponent 0.8\n", "50 URLs, all as popular as each other\n")
}

// Each user of a closed loop keeps one address: ten users of a thousand addresses
// are in one net, and on one server of ip_hash.
func TestUsersHaveOneAddressEach(t *testing.T) {
	for users, want := range map[int]string{10: "and there is one: s2 answered all", 600: "there are 3, which all fell on s2"} {
		rep := made{cluster: "client_namespaces: 1, client_addresses: 1000", load: fmt.Sprintf("users: [%d], duration: 2 s", users), blocks: 6,
			competitors: "  - {engine: nginx-http, schedulers: [rr, ip_hash]}",
			result: func(c record.Cell, block int) *load.Result {
				r := clean(c, 1, 5, 1)
				if c.Scheduler == "ip_hash" {
					r.PerServer = map[string]int{"s2": r.Replies}
				}
				return r
			}}.report(t)
		if c := rep.Sections[0].Rows[0].Cells[1].Causes; len(c) != 1 || c[0].Kind != OneAddress || !strings.Contains(c[0].Text, want) {
			t.Errorf("%d users: %+v, want %q", users, c, want)
		}
	}
}

// Other tools come from one address, whatever the study has.
func TestToolsHaveOneAddress(t *testing.T) {
	rep := made{load: "users: [10], duration: 2 s, tools: [ab]", competitors: "  - {engine: imbang, schedulers: [rr, sh]}", blocks: 6,
		result: func(c record.Cell, block int) *load.Result {
			r := clean(c, 1, 5, 1)
			r.PerServer, r.Absent = nil, []string{"per_server"}
			return r
		}}.report(t)
	if c := rep.Sections[0].Rows[0].Cells[1].Causes; len(c) != 1 || c[0].Kind != OneAddress {
		t.Errorf("%+v", c)
	}
}

func TestEqualWeightsAreACause(t *testing.T) {
	rep := made{load: "rates: [1000], duration: 2 s", competitors: "  - {engine: imbang, schedulers: [rr, wrr]}", blocks: 7, result: noisy(1, 0.03, nil)}.report(t)
	if v := rep.Verdict; v.Outcome != OutcomeNotMeasurable || v.Sentence != "Not measurable here at 1000/s: equal weights." {
		t.Errorf("%+v", v)
	}
	wants(t, text(t, rep), "rr, wrr at 1000/s (equal weights: rr and wrr are one algorithm by definition")
	// Two engines, and two of three servers: names say so, and are no names of their own.
	of := made{cluster: "client_namespaces: 1, client_addresses: 1, weights: {w: [2, 2, 1]}", load: "rates: [1000], duration: 2 s", blocks: 7, result: noisy(1, 0.03, nil),
		competitors: "  - {engine: imbang, schedulers: [rr, wrr], servers: [2]}\n  - {engine: haproxy-tcp, schedulers: [roundrobin]}"}.report(t)
	wants(t, text(t, of), "imbang rr x2, imbang wrr x2 at 1000/s (equal weights: ")
	unequal := made{cluster: "client_namespaces: 1, client_addresses: 1, weights: {w: [3, 2, 1]}", load: "rates: [1000], duration: 2 s",
		competitors: "  - {engine: imbang, schedulers: [rr, wrr]}", blocks: 7, result: noisy(1, 0.03, nil)}.report(t)
	if v := unequal.Verdict; v.Outcome == OutcomeNotMeasurable || len(v.Causes) > 0 {
		t.Errorf("of unequal weights: %+v", v)
	}
}

const withControl = "  - {engine: imbang, schedulers: [rr, sed]}\n  - {name: rr again, engine: imbang, schedulers: [rr]}"

func TestControlCell(t *testing.T) {
	of := func(noise float64, slower map[string]float64) (*Report, Row) {
		rep := made{load: "rates: [1000], duration: 2 s", competitors: withControl, blocks: 8, result: noisy(3, noise, slower)}.report(t)
		return rep, rep.Sections[0].Rows[0]
	}
	// Noise of the data that are judged is stated and is no excuse.
	_, row := of(0.5, nil)
	if row.Control == nil || math.Abs(row.Control.Noise-0.5) > 0.25 || row.Outcome != OutcomeNoDifference {
		t.Errorf("a noisy machine: %+v, %s", row.Control, row.Outcome)
	}
	rep, row := of(0.01, map[string]float64{"rr again": 0.5})
	if !slices.ContainsFunc(row.Causes, func(c Cause) bool { return c.Kind == ControlDiffers }) {
		t.Errorf("the control differs, and the causes do not say so: %+v", row.Causes)
	}
	wants(t, text(t, rep), "The control differs from itself: they are the same competitor, and their mean response time differs significantly")
}

// Who stands in a study twice wins under both names, or neither would.
func TestTwinsWinTogether(t *testing.T) {
	rep := made{load: "rates: [1000], duration: 2 s", competitors: withControl, blocks: 8, result: noisy(3, 0.02, map[string]float64{"sed": 0.5})}.report(t)
	row := rep.Sections[0].Rows[0]
	if row.Outcome != OutcomeWinner || !slices.Equal(row.Best["response_time"], []string{"rr", "rr again"}) {
		t.Errorf("%s, %v", row.Outcome, row.Best)
	}
	wants(t, text(t, rep), "Best: rr and rr again, which are the same: lowest mean response time; sed, the next, has +")
	wants(t, rep.Verdict.Sentence, "rr and rr again are best at 1000/s (lowest mean response time; sed, the next, has +")
}
