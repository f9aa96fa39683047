// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	imbang "imbang/internal/cli"
	"imbang/internal/command"
	"imbang/internal/lab/record"
	"imbang/internal/lab/serve"
	"imbang/internal/testenv"
)

// beProgram is set to a directory in the processes that the lab starts of the
// test's own executable: they are imbang or, as real servers, imbang-lab, and
// servers tell there what they were asked.
const beProgram = "IMBANG_TEST_PROGRAM"

func TestMain(m *testing.M) {
	dir := os.Getenv(beProgram)
	if dir == "" || len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-test.") {
		self, err := os.Executable()
		if err != nil {
			panic(err)
		}
		findPrograms = func() (programs, error) { return programs{imbang: self, lab: self}, nil }
		os.Exit(m.Run())
	}
	newStation = func(c serve.Capacity) serve.Server {
		f, err := os.OpenFile(filepath.Join(dir, "asked"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		return listening{serve.NewStation(c), f}
	}
	if os.Args[1] == "serve" {
		os.Exit(Main(os.Args))
	}
	os.Exit(imbang.Main(append([]string{"imbang"}, os.Args[1:]...)))
}

// listening writes down who asks for what and how much it gets.
type listening struct {
	serve.Server
	out *os.File
}

// asked is one request as a server saw it.
type asked struct {
	When   time.Time
	From   string
	Method string
	Target string
	Bytes  int64
}

type counting struct {
	http.ResponseWriter
	n int64
}

func (c *counting) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return c.ResponseWriter.Write(b)
}

func (l listening) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := asked{When: time.Now(), From: netip.MustParseAddrPort(r.RemoteAddr).Addr().String(), Method: r.Method, Target: r.RequestURI}
	c := &counting{w, 0}
	l.Server.ServeHTTP(c, r)
	a.Bytes = c.n
	line, _ := json.Marshal(a)
	_, _ = l.out.Write(append(line, '\n')) // one write, so that lines stay whole
}

// request is one line of the log that the tests replay.
type request struct {
	second         int
	client, method string
	target         string
	bytes          int
}

func (r request) String() string {
	at := time.Date(2026, 11, 20, 10, 0, r.second, 0, time.UTC)
	return fmt.Sprintf(`%s - - [%s] "%s %s HTTP/1.1" 200 %d "-" "Mozilla/5.0 (X11)"`,
		r.client, at.Format("02/Jan/2006:15:04:05 -0700"), r.method, r.target, r.bytes)
}

// traffic is a few hundred requests over five seconds by seven clients.
func traffic() (list []request) {
	for i := range 300 {
		page := i % 4
		list = append(list, request{
			i / 60, []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "host.example", "198.51.100.9", "192.0.2.77"}[(i*i+i/9)%7],
			"GET", fmt.Sprintf("/page%d?n=%d", page, i%3), []int{0, 375, 5000, 100_000}[page],
		})
	}
	return list
}

func writeLog[T any](t *testing.T, lines []T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "access.log")
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// replayed runs `imbang-lab replay` and returns what the servers were asked
// for paths of the log.
func replayed(t *testing.T, ctx context.Context, args ...string) (status int, stdout, stderr string, list []asked) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(beProgram, dir)
	var out, errs bytes.Buffer
	status = command.Execute(ctx, newRootCommand(), append([]string{"replay"}, args...), strings.NewReader(""), &out, &errs)
	b, err := os.ReadFile(filepath.Join(dir, "asked"))
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	for line := range strings.Lines(string(b)) {
		var a asked
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		if a.Target != "/" { // of the rehearsal
			list = append(list, a)
		}
	}
	return status, out.String(), errs.String(), list
}

// What a log holds is what the servers see: paths, sizes, clients, times.
func TestLabReplay(t *testing.T) {
	testenv.Root(t)
	requests := traffic()
	lines := append([]string{"no line of a log"}, fmt.Sprint(request{1, "192.0.2.9", "POST", "/in", 7}))
	for _, r := range requests {
		lines = append(lines, r.String())
	}
	log, out := writeLog(t, lines), filepath.Join(t.TempDir(), "out")
	status, stdout, stderr, list := replayed(t, t.Context(), log, "--schedulers", "rr,sh", "--repeats", "2", "--speed", "5",
		"--service", "1ms", "--out", out, "--seed", "4")
	if status != command.StatusOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	for _, want := range []string{
		"300 requests of 7 clients in 5s from 2026-11-20 10:00:00 +0000", "not sent: 1 POST", "not read: 1 lines, such as " + log + ":1: no time",
		"2 competitors x 2 blocks x 1s: about ", "at speed 5: 301 requests/s", "stored in " + out,
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is not said:\n%s", want, stderr)
		}
	}
	if !strings.Contains(stdout, "== open loop, replayed arrivals") || !strings.Contains(stdout, "measured: not sent: 1 POST") {
		t.Errorf("the report:\n%s", stdout)
	}
	stored, err := record.Read(out)
	if err != nil || len(stored.Samples) != 4 {
		t.Fatalf("%+v, %v", stored, err)
	}
	runs := len(stored.Samples)
	asLogged(t, requests, list, runs)
	clientsApart(t, requests, list, runs)

	for _, s := range stored.Samples {
		if s.Load.Scheduled != 300 || s.Load.Loop != "trace" || s.Rate != 300.5 || s.Speed != 5 {
			t.Errorf("%s: %d scheduled in a loop called %s", s.Cell, s.Load.Scheduled, s.Load.Loop)
		}
		if w := s.Load.WindowSeconds; w < 0.99 || w > 1 {
			t.Errorf("%s: a window of %g s, want five seconds at five times the speed", s.Cell, w)
		}
	}
	onSchedule(t, list)
	p := stored.Environment.Plan.Replay
	if p.Log != log || len(p.SHA256) != 64 || p.Bad != 1 || p.Skipped["POST"] != 1 || p.Clients != 7 {
		t.Errorf("recorded %+v", p)
	}
	if status, said := runLab("report", out); status != command.StatusOK || !strings.Contains(said, "300 requests of 7 clients") {
		t.Errorf("report: status %d, %s", status, said)
	}
}

// asLogged wants every path asked for as often as logged in each of n runs,
// and answered with as many bytes.
func asLogged(t *testing.T, requests []request, list []asked, n int) {
	t.Helper()
	want, got := map[string]int{}, map[string]int{}
	for _, r := range requests {
		want[fmt.Sprintf("%s /bytes/%d%s: %d", r.method, r.bytes, r.target, r.bytes)] += n
	}
	for _, a := range list {
		got[fmt.Sprintf("%s %s: %d", a.Method, a.Target, a.Bytes)]++
	}
	if !maps.Equal(got, want) {
		t.Errorf("asked for %v\nwant %v", got, want)
	}
}

// clientsApart wants the clients of the log at addresses of their own, as
// often as logged in n runs: figures by client come out alike in any order.
func clientsApart(t *testing.T, requests []request, list []asked, n int) {
	t.Helper()
	logged, seen := map[string]string{}, map[string]string{}
	key := func(m map[string]string, who, what string) { m[who] += what + "\n" }
	for _, r := range requests {
		key(logged, r.client, fmt.Sprintf("/bytes/%d%s", r.bytes, r.target))
	}
	for _, a := range list {
		key(seen, a.From, a.Target)
	}
	sets := func(m map[string]string) (all []string) {
		for _, text := range m {
			words := strings.Fields(text)
			slices.Sort(words)
			all = append(all, strings.Join(slices.Compact(words), " ")+fmt.Sprint(len(words)%1000))
		}
		slices.Sort(all)
		return all
	}
	for who := range logged {
		logged[who] = strings.Repeat(logged[who], n)
	}
	if !slices.Equal(sets(logged), sets(seen)) {
		t.Errorf("%d clients as the servers see them are not the %d of the log", len(seen), len(logged))
	}
}

// onSchedule wants the requests of one of the runs spread over a second: a generator that
// sends all at once would not be. Nothing tight: others use the machine.
func onSchedule(t *testing.T, list []asked) {
	t.Helper()
	var halves [2]int
	for one := range slices.Chunk(list, 300) { // in each, if the machine does not stall
		halves = [2]int{}
		for _, a := range one {
			halves[min(1, max(0, int(2*a.When.Sub(one[0].When).Seconds())))]++
		}
		if halves[0] >= 60 && halves[1] >= 60 {
			return
		}
	}
	t.Errorf("%v of the last run's requests came in the halves of its second, and no other run is better", halves)
}

// A run that is interrupted goes on with the same log, and with no other.
func TestLabReplayResumes(t *testing.T) {
	testenv.Root(t)
	requests := traffic()
	log, out := writeLog(t, requests), filepath.Join(t.TempDir(), "out")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { // until something is stored
		for ctx.Err() == nil {
			if b, err := os.ReadFile(filepath.Join(out, record.SamplesFile)); err == nil && bytes.ContainsRune(b, '\n') {
				stop()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	status, _, stderr, _ := replayed(t, ctx, log, "--engines", "direct", "--repeats", "3", "--speed", "5", "--service", "1ms", "--out", out)
	if status != command.StatusFailed || !strings.Contains(stderr, "which are stored; nothing else is left behind") {
		t.Fatalf("status %d: %s", status, stderr)
	}
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if status, said := runLab("replay", "--resume", out); status != command.StatusFailed || !strings.Contains(said, "access log "+log+": it has changed since the run began (SHA-256 ") {
		t.Errorf("with another log: status %d, %s", status, said)
	}
	if err := os.WriteFile(log, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, stderr, list := replayed(t, t.Context(), "--resume", out)
	if status != command.StatusOK || len(list) == 0 || len(list)%300 != 0 || len(list) > 2*600 { // each may be repeated
		t.Errorf("status %d, %d requests: %s", status, len(list), stderr)
	}
	stored, err := record.Read(out)
	if err != nil || len(stored.Samples) != 3 {
		t.Errorf("%d samples, %v; want 3", len(stored.Samples), err)
	}
}

func TestLabReplayRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := writeLog(t, traffic())
	days := file("days", request{0, "a.example", "GET", "/", 1}.String()+"\n"+request{400_000, "a.example", "GET", "/", 1}.String()+"\n")
	posts := file("posts", request{0, "a.example", "POST", "/", 1}.String()+"\n")
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, command.StatusUsage, "name one access log (see imbang-lab replay --help)"},
		{[]string{dir + "/none"}, command.StatusFailed, "access log: open " + dir + "/none: no such file or directory"},
		{[]string{file("empty", "")}, command.StatusFailed, "access log " + dir + "/empty: it is empty"},
		{[]string{file("foreign", "a,b\n")}, command.StatusFailed, "access log " + dir + "/foreign: not in the common or combined format: " + dir + "/foreign:1: no time such as [10/Oct/2000:13:55:36 -0700]"},
		{[]string{posts}, command.StatusFailed, "access log " + posts + ": replay: no request of this part of the log is sent (1 POST): choose another part or more methods"},
		{[]string{good, "--from", "1h"}, command.StatusFailed, "access log " + good + ": replay: no request of this part of the log is sent: choose another part or more methods"},
		{[]string{days}, command.StatusUsage, days + ": 6 competitors x 6 blocks x 111h6m40.5s take 167 days: give --speed 4100 for 60 min, --from and --until for a part of the log, or --quick"},
		{[]string{good, "--speed", "0"}, command.StatusUsage, "--speed: want above 0 and at most 1000000, 1 being as fast as logged"},
		{[]string{good, "--speed", "2,2"}, command.StatusUsage, "--speed: one is given twice"},
		{[]string{good, "--from", "5s", "--until", "5s"}, command.StatusUsage, "--from 5s --until 5s: want the second after the first, both from the log's first entry"},
		{[]string{good, "--methods", "BREW"}, command.StatusUsage, `--methods: "BREW" is unknown: want some of DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT`},
		{[]string{good, "--servers", "17"}, command.StatusUsage, "--servers 17: want 1 to 16"},
		{[]string{good, "--weights", "0"}, command.StatusUsage, "--weights: all are 0, so no server takes connections: give one a weight of 1 or more"},
		{[]string{good, "--law", "weibull"}, command.StatusUsage, `--law: "weibull" is no distribution of service times: want one of constant, exponential, pareto, lognormal`},
		{[]string{good, "--rho", "0"}, command.StatusUsage, "--rho 0: want above 0 and at most 10, 1 being all that the servers can serve"},
		{[]string{good, "--timeout", "0s"}, command.StatusUsage, "--timeout 0s: want above 0"},
		{[]string{good, "--repeats", "0"}, command.StatusUsage, "--repeats 0: want 1 or more"},
		{[]string{good, "--engines", "pound"}, command.StatusUsage, `--engines: "pound" is unknown: want some of imbang, ipvs, nftables, nftables-flowtable, haproxy-tcp, haproxy-http, imbang-l7, nginx-stream, nginx-http, direct`},
		{[]string{good, "--resume", dir}, command.StatusUsage, `--resume goes on with the study of its directory: leave "` + good + `" out`},
		{[]string{"--resume", dir, "--speed", "2"}, command.StatusUsage, "--resume goes on by the plan of its directory: leave --speed out"},
	} {
		if status, said := runLab(append([]string{"replay"}, c.args...)...); status != c.status || said != "imbang-lab: "+c.want {
			t.Errorf("%v: status %d, %s\nwant %d, imbang-lab: %s", c.args, status, said, c.status, c.want)
		}
	}
}

// What is printed as a study is one, and its text says what the flags do.
func TestLabReplayPrintsItsStudy(t *testing.T) {
	log := writeLog(t, traffic())
	status, text := runLab("replay", log, "--print-study", "--speeds", "1,4", "--weights", "speed", "--speed", "1,10", "--uniform", "--until", "4s")
	for _, want := range []string{
		"client_addresses: 7", "service: 55.995ms", "weights: {given: [10, 40, 10]}", "log: '" + log + "'", "speeds: [1, 10]",
		"until: 4s", "within_second: uniform", "[wrr, wlc, sed, nq, twos, sh]",
	} {
		if status != command.StatusOK || !strings.Contains(text, want) {
			t.Errorf("status %d, %q is not in:\n%s", status, want, text)
		}
	}
	mine := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(mine, []byte(strings.Replace(text, "'"+log+"'", "gone.log", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	// A relative path is seen from the study.
	if status, said := runLab("run", mine); status != command.StatusFailed || !strings.Contains(said, "open "+filepath.Dir(mine)+"/gone.log: no such file") {
		t.Errorf("status %d, %s", status, said)
	}
	if status, said := runLab("run", mine, "--rates", "5"); status != command.StatusUsage || !strings.Contains(said, "--rates: study replay replays a log") {
		t.Errorf("status %d, %s", status, said)
	}
	if status, said := runLab("simulate", mine); status != command.StatusUsage || !strings.Contains(said, "study replay replays a log: what is simulated") {
		t.Errorf("status %d, %s", status, said)
	}
}
