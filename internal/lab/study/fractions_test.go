// SPDX-License-Identifier: Apache-2.0

package study

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const fractions = `name: mine
cluster:
  client_namespaces: 1
  client_addresses: 7
  servers:
    - {kind: model, page: 1 KB, law: constant, service: 2 ms, concurrency: 8}
load:
  fractions: [0.3, 0.9]
  published_rates: [2000, 8000]
  reference: lc
  duration: 1 s
  timeout: 5 s
  calls:
    - {name: front, path: /}
    - {name: back, path: /back}
  tool_cells:
    - {tool: httperf, fraction: 0.5, connections: 2000, published: 2000}
    - {tool: ab, users: 100, requests: 200, keep_alive: true, calls: [back]}
    - {tool: siege, users: 10, requests: 50}
    - {tool: ping, requests: 20}
competitors:
  - {engine: imbang, schedulers: [rr, lc]}
repeats: {least: 6}
`

func TestParseFractions(t *testing.T) {
	s, err := Parse("mine.yaml", []byte(fractions), engines)
	if err != nil {
		t.Fatal(err)
	}
	calls := []string{"front", "back"}
	want := Load{
		Fractions: []float64{0.3, 0.9}, PublishedRates: []float64{2000, 8000}, Reference: "lc", Arrivals: []string{"constant"},
		Duration: time.Second, Timeout: 5 * time.Second, PerConnection: 1, Tools: []string{BuiltIn},
		Calls: []Call{{Name: "front", Method: "GET", Path: "/"}, {Name: "back", Method: "GET", Path: "/back"}},
		ToolCells: []ToolCell{
			{Tool: "httperf", Fraction: 0.5, Connections: 2000, Published: 2000, Calls: calls},
			{Tool: "ab", Users: 100, Requests: 200, KeepAlive: true, Calls: []string{"back"}},
			{Tool: "siege", Users: 10, Requests: 50, Calls: calls},
			{Tool: "ping", Users: 1, Requests: 20, Calls: []string{"echo"}},
		},
	}
	if diff := cmp.Diff(want, s.Load); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefusesFractions(t *testing.T) {
	const httperf, ab, ping = "fraction: 0.5, connections: 2000, published: 2000", "users: 100, requests: 200, keep_alive: true, calls: [back]", "{tool: ping, requests: 20}"
	for _, c := range []struct{ old, bad, want string }{
		{"fractions: [0.3, 0.9]", "fractions: []", `load.fractions: missing: want fractions of the measured capacity such as [0.3, 0.6, 0.9]`},
		{"fractions: [0.3, 0.9]", "fractions: [30, 0.9]", `load.fractions[0]: 30 is out of range: want a fraction of the measured capacity, above 0 and at most 2`},
		{"fractions: [0.3, 0.9]", "fractions: [0.9, 0.9]", `load.fractions[1]: 0.9 is given twice: remove one`},
		{"fractions: [0.3, 0.9]", "fractions: [0.3, 0.9]\n  rates: [5]", `load: give one of rates (an open loop, in connections per second), fractions (the same, of the measured capacity), users (a closed one) and replay (a web server's log)`},
		{"fractions: [0.3, 0.9]", "rates: [5]", `load.published_rates: remove it: it belongs to fractions`},
		{"published_rates: [2000, 8000]", "published_rates: [2000]", `load.published_rates: 1 for 2 fractions: give one for each`},
		{"reference: lc", "reference: wlc", `load.reference: "wlc" is no competitor of the study: they are rr, lc`},
		{"tool: httperf", "tool: wrk", `load.tool_cells[0].tool: "wrk" is unknown: want one of httperf, built-in, ab, siege, ping`},
		{httperf, "connections: 3", `load.tool_cells[0]: give one of fraction (of the measured capacity) and rate (connections per second)`},
		{httperf, "fraction: 0.5, rate: 3, connections: 3", `load.tool_cells[0]: give one of fraction (of the measured capacity) and rate (connections per second)`},
		{httperf, "fraction: 3, connections: 3", `load.tool_cells[0].fraction: 3 is out of range: want a fraction of the measured capacity, above 0 and at most 2`},
		{httperf, "rate: -3, connections: 3", `load.tool_cells[0].rate: -3 is out of range: want connections per second, above 0 and at most 1e+06`},
		{httperf, "fraction: 0.5", `load.tool_cells[0].connections: missing: want a whole number from 1 to 100000000`},
		{httperf, "fraction: 0.5, connections: 3, users: 4", `load.tool_cells[0].users: remove it: httperf is an open loop: it has a fraction or a rate, and connections`},
		{"published: 2000", "published: -1", `load.tool_cells[0].published: -1: want the level of the published tables, above 0`},
		{ab, "users: 100, requests: 20", `load.tool_cells[1].requests: 20 requests of 100 users: give as many at least`},
		{ab, "users: 100, requests: 200, calls: [up]", `load.tool_cells[1].calls[0]: "up" is unknown: want one of front, back`},
		{ab, "users: 100, requests: 200, rate: 5", `load.tool_cells[1].rate: remove it: ab is a closed loop: it has users and requests`},
		{"users: 10, requests: 50", "users: 10, requests: 55", `load.tool_cells[2].requests: siege cannot share 55 requests among 10 users: give a multiple`},
		{ping, "{tool: ping, requests: 20, users: 3}", `load.tool_cells[3].users: remove it: ping sends one echo request after the other`},
		{ping, "{tool: ping}", `load.tool_cells[3].requests: missing: want a whole number from 1 to 100000000`},
		{"  fractions: [0.3, 0.9]\n  published_rates: [2000, 8000]\n  reference: lc\n", "  rates: [5]\n", `load.tool_cells[0].fraction: remove it, or give load.fractions: without them no capacity is measured`},
	} {
		text := strings.Replace(fractions, c.old, c.bad, 1)
		_, err := Parse("s.yaml", []byte(text), engines)
		if text == fractions || err == nil || !strings.HasPrefix(err.Error(), "s.yaml:") || !strings.HasSuffix(err.Error(), ": "+c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.bad, err, c.want)
		}
	}
}
