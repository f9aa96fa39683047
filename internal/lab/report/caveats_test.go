// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
)

func TestCaveatsOnceEach(t *testing.T) {
	m := made{load: "users: [10, 20], duration: 2 s, tools: [built-in, ab]", competitors: "  - {engine: imbang, schedulers: [rr, lc]}", blocks: 7,
		result: func(c record.Cell, block int) *load.Result {
			r := clean(c, 1, 5, 1)
			r.Caveats = []string{"closed loop: understated"}
			if c.Tool == "ab" {
				r.Tool, r.Absent = "ab", []string{"net_io_kbs", "per_server", "response.p99_ms", "status.2xx"}
				r.NetIOKBs, r.PerServer, r.Response.P99MS, r.Status = 0, nil, 0, load.Status{}
			}
			if c.Name == "lc" && c.Users == 20 && block == 3 {
				r.Caveats = append(r.Caveats, "it rained")
			}
			return r
		}}
	rep := m.report(t)
	all := []string{"lc at 10 users", "lc at 10 users, ab", "lc at 20 users", "lc at 20 users, ab",
		"rr at 10 users", "rr at 10 users, ab", "rr at 20 users", "rr at 20 users, ab"}
	ab := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasSuffix(s, "ab") })
	silent := "ab says nothing of net_io_kbs, per_server, response.p99_ms, status.2xx: they have no figure"
	want := []Caveat{
		{Text: "closed loop: understated", Cells: all}, {Text: silent, Cells: ab},
		{Text: "it rained", Cells: []string{"lc at 20 users", "lc at 20 users, ab"}},
	}
	byText := cmpopts.SortSlices(func(a, b Caveat) bool { return a.Text < b.Text })
	if diff := cmp.Diff(want, rep.Caveats, byText, cmpopts.IgnoreUnexported(Caveat{})); diff != "" {
		t.Error(diff)
	}
	for _, line := range []string{"  all cells: closed loop: understated.\n", "  all cells of ab: " + silent + ".\n",
		"  lc at 20 users, lc at 20 users, ab: it rained.\n"} {
		if n := strings.Count(text(t, rep), line); n != 1 {
			t.Errorf("%q stands %d times, want once", line, n)
		}
	}
	for _, row := range rep.Sections[1].Rows {
		c := row.Cells[0]
		if c.Values["throughput"].N != 0 || c.Values[tail].N != 0 || c.Values["response_time"].N != 7 {
			t.Errorf("figures of what ab does not say: %+v", c.Values)
		}
		if !c.Ranked() {
			t.Errorf("that ab does not count 2xx is no error page: %+v", c.Causes)
		}
	}
	var b bytes.Buffer
	if err := rep.spreadCSV(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(b.String(), "\n") {
		if strings.Contains(line, ",ab,") && !strings.HasSuffix(line, ",") {
			t.Errorf("ab tells no servers: %q", line)
		}
	}
}

// A client that kept up, if only just, is ranked with a caveat.
func TestStrainedClient(t *testing.T) {
	result := func(g load.Generator) func(record.Cell, int) *load.Result {
		return func(c record.Cell, block int) *load.Result {
			r := clean(c, 1, 5, 1)
			if c.Name == "lc" {
				r.Generator = g
			}
			return r
		}
	}
	for _, tc := range []struct {
		g    load.Generator
		want int
	}{
		{load.Generator{BusyShare: 0.5, WaitShare: 0.05}, 0},
		{load.Generator{BusyShare: 0.5, WaitShare: 0.2}, 1},
		{load.Generator{BusyShare: 0.9}, 1},
		{load.Generator{BusyShare: 0.9, Behind: true, Reason: "late"}, 0}, // not ranked, which says more
	} {
		rep := made{load: rates, competitors: "  - {engine: imbang, schedulers: [rr, lc]}", blocks: 7, result: result(tc.g)}.report(t)
		if n := len(rep.Caveats); n != tc.want {
			t.Errorf("%+v: %+v, want %d", tc.g, rep.Caveats, tc.want)
		}
		if tc.want == 1 {
			wants(t, text(t, rep), "  all cells of lc: the generator kept its schedule, but")
		}
	}
}

// siege rounds to 10 ms: 0 has no ratio to anything, and JSON no infinity.
func TestZeroResponseTimes(t *testing.T) {
	rep := made{load: rates, competitors: withControl, blocks: 8, result: func(c record.Cell, block int) *load.Result {
		return clean(c, float64(block%2), 0, 1)
	}}.report(t)
	var b bytes.Buffer
	if err := rep.JSON(&b); err != nil {
		t.Fatal(err)
	}
	wants(t, text(t, rep), "Not compared: rr (a figure of 0 has no ratio to others)")
}
