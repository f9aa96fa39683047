// SPDX-License-Identifier: Apache-2.0

package study

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const replayed = `name: mine
cluster:
  client_namespaces: 1
  client_addresses: 7
  servers:
    - {kind: model, page: 1 KB, law: constant, service: 2 ms, concurrency: 8}
load:
  replay:
    log: logs/access.log
    speeds: [1, 10]
    from: 5 s
    until: 1 m
    within_second: uniform
    methods: [GET, POST]
  timeout: 5 s
competitors:
  - {engine: imbang, schedulers: [rr, lc]}
repeats: {least: 6}
`

func TestParseReplay(t *testing.T) {
	s, err := Parse("studies/mine.yaml", []byte(replayed), engines)
	if err != nil {
		t.Fatal(err)
	}
	want := Load{
		Replay: &Replay{Log: "studies/logs/access.log", Speeds: []float64{1, 10}, From: 5 * time.Second, Until: time.Minute,
			Uniform: true, Methods: []string{"GET", "POST"}},
		Timeout: 5 * time.Second, PerConnection: 1, Tools: []string{BuiltIn}, Calls: []Call{{Name: Logged}},
	}
	if diff := cmp.Diff(want, s.Load); diff != "" {
		t.Error(diff)
	}
	short := strings.Replace(replayed, replayed[strings.Index(replayed, "    speeds"):strings.Index(replayed, "  timeout")], "", 1)
	if s, err = Parse("mine.yaml", []byte(strings.Replace(short, "logs/access.log", "/var/log/a.gz", 1)), engines); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Replay{Log: "/var/log/a.gz", Speeds: []float64{1}, Methods: []string{"GET", "HEAD"}}, s.Load.Replay); diff != "" {
		t.Errorf("what is not said: %s", diff)
	}
}

func TestParseRefusesReplays(t *testing.T) {
	for _, c := range []struct{ old, bad, want string }{
		{"log: logs/access.log", "log: ''", `load.replay.log: missing: want the path of an access log in the common or combined format`},
		{"log: logs/access.log", "logs: a", `unknown key "logs": known here are log, speeds, from, until, within_second, methods`},
		{"speeds: [1, 10]", "speeds: [0]", `load.replay.speeds[0]: 0 is out of range: want above 0 and at most 1e+06, 1 being as fast as logged`},
		{"speeds: [1, 10]", "speeds: [2, 2]", `load.replay.speeds[1]: 2 is given twice: remove one`},
		{"speeds: [1, 10]", "speeds: []", `load.replay.speeds: missing: want a list such as [1, 10], 10 being ten times as fast as logged`},
		{"until: 1 m", "until: 5 s", `load.replay.until: 5 s is not after from: both count from the log's first entry`},
		{"within_second: uniform", "within_second: often", `load.replay.within_second: "often" is unknown: want spread (evenly) or uniform (at random), since a log has whole seconds`},
		{"methods: [GET, POST]", "methods: [BREW]", `load.replay.methods[0]: "BREW" is unknown: want some of DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT`},
		{"methods: [GET, POST]", "methods: [GET, GET]", `load.replay.methods[1]: "GET" is given twice: remove one`},
		{"  timeout: 5 s", "  timeout: 5 s\n  duration: 5 s", `load.duration: remove it: the log says what is sent, and when, and the built-in generator sends it`},
		{"  timeout: 5 s", "  timeout: 5 s\n  tools: [wrk]", `load.tools: remove it: the log says what is sent, and when, and the built-in generator sends it`},
		{"  timeout: 5 s", "  timeout: 5 s\n  rates: [5]", `load: give one of rates (an open loop, in connections per second), fractions (the same, of the measured capacity), users (a closed one) and replay (a web server's log)`},
		{"{kind: model, page: 1 KB, law: constant, service: 2 ms, concurrency: 8}", "{kind: nginx, page: 1 KB}",
			`cluster.servers: s1 is nginx: a log is replayed to servers of kind: model, which answer with as many bytes as it says`},
	} {
		text := strings.Replace(replayed, c.old, c.bad, 1)
		_, err := Parse("s.yaml", []byte(text), engines)
		if err == nil || !strings.HasPrefix(err.Error(), "s.yaml:") || !strings.HasSuffix(err.Error(), ": "+c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.bad, err, c.want)
		}
	}
}
