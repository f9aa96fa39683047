// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/lab/load"
	"imbang/internal/lab/server"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/topology"
	"imbang/internal/testenv"
)

// keeper is imbang run on the director of a farm.
type keeper struct {
	*farm
	dir    string
	config string // path
	extra  string // keys of the director, such as ", mode: tc"
	text   string // the configuration as it was written
	cmd    *exec.Cmd
	log    *os.File
	loaded []changed // a row of each load that is not noted yet
}

// checkEvery is a check by HTTP that finds a killed server within 900 ms. On a machine with other
// work a server takes some 100 ms to reply now and then, three times in a row with a timeout of 100 ms.
const checkEvery = `
checks:
  web:
    http: {}
    interval: 500 ms
    fast_interval: 200 ms
    timeout: 500 ms
    rise: 2
    fall: 3
    jitter: 0 %
`

// newKeeper makes a farm whose director has nothing yet, and starts the daemon with a
// configuration. In it, VIP and S1 to S9 stand for addresses.
func newKeeper(t *testing.T, servers int, config string, families ...topology.Family) *keeper {
	t.Helper()
	f := newDetachedFarm(t, servers, families...)
	k := &keeper{farm: f, dir: t.TempDir()}
	k.config = filepath.Join(k.dir, "imbang.yaml")
	k.configure(config)
	k.start()
	t.Cleanup(k.stop)
	return k
}

func (k *keeper) configure(text string) {
	k.t.Helper()
	family := topology.IPv4
	if _, has := k.Servers[0].Addr[family]; !has {
		family = topology.IPv6
	}
	text = strings.ReplaceAll(text, "VIP", k.Virtual(family).String())
	for i, s := range k.Servers {
		text = strings.ReplaceAll(text, fmt.Sprintf("S%d", i+1), s.Addr[family].String())
	}
	k.write(fmt.Sprintf("director: {client_device: %s, server_device: %s%s}\n", topology.ClientDevice, topology.ServerDevice, k.extra) + text)
}

// write writes a configuration as it is.
func (k *keeper) write(text string) {
	k.t.Helper()
	k.text = text
	if err := os.WriteFile(k.config, []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

// start starts the daemon, and returns when it answers.
func (k *keeper) start() {
	k.t.Helper()
	var err error
	if k.log, err = os.OpenFile(filepath.Join(k.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644); err != nil {
		k.t.Fatal(err)
	}
	defer k.log.Close()
	k.cmd = exec.Command(executable, "run", "-c", k.config, "--state", filepath.Join(k.dir, "state"))
	k.cmd.Stderr = k.log
	if err := k.Director.Start(k.cmd); err != nil {
		k.t.Fatal(err)
	}
	// It loads the data plane: seconds of CPU time, of which it may get a twentieth.
	for began := time.Now(); time.Since(began) < 5*patience; time.Sleep(50 * time.Millisecond) {
		if o := imbang(k.t, k.Director, "", "events", "-n", "0"); o.status == 0 {
			return
		}
	}
	k.t.Fatalf("the daemon does not answer:\n%s", k.said())
}

func (k *keeper) said() string {
	b, _ := os.ReadFile(filepath.Join(k.dir, "log"))
	return string(b)
}

// end ends the daemon by a signal.
func (k *keeper) end(s syscall.Signal) {
	if k.cmd.Process != nil && k.cmd.ProcessState == nil {
		_ = k.cmd.Process.Signal(s)
		_ = k.cmd.Wait()
	}
}

func (k *keeper) stop() {
	k.end(syscall.SIGTERM)
	if k.t.Failed() {
		k.t.Logf("the daemon said:\n%s", k.said())
	}
}

// do runs imbang on the director.
func (k *keeper) do(args ...string) string {
	k.t.Helper()
	return must(k.t, k.Director, "", args...)
}

// status is the daemon's.
func (k *keeper) status() *api.Status {
	k.t.Helper()
	var s struct{ Daemon *api.Status }
	if err := json.Unmarshal([]byte(k.do("status", "-o", "json")), &s); err != nil || s.Daemon == nil {
		k.t.Fatalf("%v, %+v", err, s)
	}
	return s.Daemon
}

// states are the states of the servers of the first service.
func (k *keeper) states() string {
	k.t.Helper()
	var words []string
	for _, one := range k.status().Services[0].Servers {
		words = append(words, fmt.Sprintf("%s %s/%d", one.Name, one.State, one.Effective))
	}
	return strings.Join(words, ", ")
}

// await waits for a condition, and returns how long that took.
func (k *keeper) await(what string, reached func() bool) time.Duration {
	k.t.Helper()
	start := time.Now()
	for !reached() {
		if time.Since(start) > patience {
			k.t.Fatalf("%s: not within %s; states: %s", what, patience, k.states())
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(start)
}

// loadShare makes the tests of changes an experiment: they send requests at this share of
// what the cluster carries, and note what became of them.
var loadShare = flag.Float64("load-share", 0, "share of the cluster's capacity at which tests send requests while something changes; 0: few requests")

// load sends requests by a plan's rate or number of users.
func (k *keeper) load(ctx context.Context, p load.Plan) (*load.Result, error) {
	p.Target, p.ServerHeader = netip.AddrPortFrom(k.Virtual(topology.IPv4), server.Port), server.Header
	p.Clients = []load.Client{{Namespace: k.Clients[0].Namespace.Path(), Sources: k.Clients[0].Addresses[topology.IPv4]}}
	return load.Run(ctx, p, nil)
}

// rate is at how many requests a second a test loads the cluster, and what the cluster
// carries, if that was measured.
func (k *keeper) rate(few int) (rate, capacity float64) {
	k.t.Helper()
	if *loadShare == 0 {
		return float64(few), 0
	}
	const users, loops, measured = 64, 3, 2 * time.Second
	var carried []float64
	for range loops {
		r, err := k.load(k.t.Context(), load.Plan{Concurrency: users, Warmup: time.Second, Duration: measured})
		if err != nil {
			k.t.Fatal(err)
		}
		carried = append(carried, float64(r.Replies)/measured.Seconds())
	}
	capacity = stats.Summarize(carried).Median
	return *loadShare * capacity, capacity
}

// under sends requests while something is done: a few each second, or as many as the
// share of the capacity is.
func (k *keeper) under(few int, do func()) *load.Result {
	k.t.Helper()
	rate, capacity := k.rate(few)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type outcome struct {
		r   *load.Result
		err error
	}
	done := make(chan outcome)
	go func() {
		r, err := k.load(ctx, load.Plan{Rate: rate, Duration: 12 * time.Second})
		done <- outcome{r, err}
	}()
	time.Sleep(500 * time.Millisecond)
	do()
	o := <-done
	if o.err != nil {
		k.t.Fatal(o.err)
	}
	k.loaded = append(k.loaded, changed{
		Capacity: capacity, Rate: rate, Replies: o.r.Replies, Lost: o.r.Loss.Total(), P99: o.r.Response.P99MS,
		Late: o.r.Generator.Lateness.P99MS,
	})
	return o.r
}

// noteLoad notes what became of the requests of a test, of all its loads together.
func (k *keeper) noteLoad(name string, outage time.Duration) {
	k.t.Helper()
	row := changed{Name: name, Outage: float64(outage) / 1e6}
	for _, one := range k.loaded {
		row.Replies += one.Replies
		row.Lost += one.Lost
		row.Capacity = max(row.Capacity, one.Capacity)
		row.Rate = max(row.Rate, one.Rate)
		row.P99 = max(row.P99, one.P99)
		row.Late = max(row.Late, one.Late)
	}
	k.loaded = nil
	k.t.Logf("%+v", row)
	note(k.t, func(all *measured, commit string) {
		row.Commit = commit
		all.Changes = put(all.Changes, row, func(x changed) bool { return x.Name == row.Name })
	})
}

const threeServers = `
services:
  - name: web
    virtual: VIP:80
    scheduler: rr
    checks: [web]
    servers:
      - {name: a, address: S1}
      - {name: b, address: S2}
      - {name: c, address: S3}
`

// No request is lost whatever becomes of the daemon, of the table and of orders.
func TestRunLosesNoRequest(t *testing.T) {
	k := newKeeper(t, 3, checkEvery+threeServers)
	all := func() {
		k.await("all servers", func() bool { return k.states() == "a up/1, b up/1, c up/1" })
	}
	type step struct {
		name string
		do   func()
	}
	steps := []step{
		{"daemon killed (SIGKILL) and started again", func() {
			k.end(syscall.SIGKILL)
			k.start()
		}},
		{"reload with another scheduler", func() {
			k.configure(checkEvery + strings.ReplaceAll(threeServers, "rr", "wlc"))
			k.do("reload")
		}},
		{"server drained and enabled", func() {
			k.do("drain", "b", "--reason", "test")
			time.Sleep(300 * time.Millisecond)
			k.do("enable", "b")
		}},
		{"`imbang upgrade`", func() { k.do("upgrade") }},
		{"server drained, removed and added", func() {
			k.configure(checkEvery + strings.ReplaceAll(threeServers, "      - {name: c, address: S3}\n", ""))
			k.do("drain", "c", "--wait") // those that it has end first
			k.do("reload")
			k.configure(checkEvery + threeServers)
			k.do("reload")
			k.do("enable", "c")
		}},
		{"daemon stopped (SIGTERM) and started again", func() {
			k.end(syscall.SIGTERM)
			k.start()
		}},
	}
	check := func(r *load.Result) {
		t.Helper()
		if r.Loss.Total() != 0 || len(r.PerServer) != 3 {
			t.Errorf("%d replies of %v, lost %+v", r.Replies, r.PerServer, r.Loss)
		}
	}
	if *loadShare == 0 {
		check(k.under(200, func() {
			for _, s := range steps {
				s.do()
			}
			all()
		}))
	} else {
		steps = slices.Insert(steps, 0, step{"nothing, for comparison", func() {}})
		for _, s := range steps {
			check(k.under(0, func() { s.do(); all() }))
			k.noteLoad(s.name, 0)
		}
	}
	if s := k.status(); len(s.Alarms)+len(s.Drift) != 0 {
		t.Errorf("alarms %v, drift %v", s.Alarms, s.Drift)
	}
	k.do("audit")
}

// A server that dies or hangs leaves the rotation in time, and comes back.
func TestRunTakesOutDeadServers(t *testing.T) {
	k := newKeeper(t, 3, checkEvery+threeServers)
	all := "a up/1, b up/1, c up/1"
	k.await("all servers", func() bool { return k.states() == all })
	pids, err := k.nginx[2].PIDs()
	if err != nil {
		t.Fatal(err)
	}
	signal := func(s syscall.Signal) {
		for _, pid := range pids {
			testenv.Kill(t, pid, s)
		}
	}
	for _, fault := range []struct {
		name         string
		kill, repair func()
		want         string
	}{
		{"killed", func() { k.kill(1) }, func() { k.revive(1) }, "a up/1, b down/0, c up/1"},
		{"stopped", func() { signal(syscall.SIGSTOP) }, func() { signal(syscall.SIGCONT) }, "a up/1, b up/1, c down/0"},
	} {
		fault.kill()
		// TestMeasureDetection bounds the time, on a machine that does nothing else.
		took := k.await(fault.name, func() bool { return k.states() == fault.want })
		t.Logf("%s: out of rotation after %s", fault.name, took)
		// The next daemon knows it at once, whether the last one wrote it down or not.
		k.end(syscall.SIGKILL)
		k.start()
		if got := k.states(); got != fault.want {
			t.Errorf("%s: another daemon finds %s", fault.name, got)
		}
		if n := ask(t, k.Cluster, 20, patience); n != 20 {
			t.Errorf("%s: %d of 20 requests answered afterwards", fault.name, n)
		}
		fault.repair()
		k.await(fault.name+", and back", func() bool { return k.states() == all })
	}
	log := k.do("events")
	for _, want := range []string{"server-down", "web b  check web: connection refused", "web c  check web: /: timeout", "server-up"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
}

// The file owns what it names; what others edit holds until the next reload.
func TestRunOwnsWhatItNames(t *testing.T) {
	k := newKeeper(t, 3, checkEvery+threeServers)
	vip := k.Virtual(topology.IPv4).String() + ":80"
	addr := func(i int) string { return k.Servers[i].Addr[topology.IPv4].String() + ":80" }
	k.do("ipvsadm", "-e", "-t", vip, "-r", addr(0), "-m", "-w", "7")
	k.do("ipvsadm", "-d", "-t", vip, "-r", addr(1))
	k.do("ipvsadm", "-a", "-t", vip, "-r", "172.16.99.9:80", "-m")
	k.do("ipvsadm", "-A", "-t", "10.20.99.1:80", "-s", "rr")
	// A daemon that comes back changes nothing that is not due.
	k.end(syscall.SIGKILL)
	before := k.do("ipvsadm", "-Sn")
	k.start()
	k.await("drift", func() bool { return len(k.status().Drift) == 2 })
	if after := k.do("ipvsadm", "-Sn"); after != before {
		t.Errorf("the table was\n%sand is\n%s", before, after)
	}
	// A file that is not valid changes nothing, and the status says so.
	good, err := os.ReadFile(k.config)
	if err != nil {
		t.Fatal(err)
	}
	k.configure("services: [{name: web}]\n")
	if o := imbang(t, k.Director, "", "reload"); o.status != 3 || !strings.Contains(o.stderr, "imbang.yaml:2:12: services[0]: want one of virtual and mark") {
		t.Errorf("%+v", o)
	}
	if s := k.status(); !strings.Contains(s.ReloadError, "want one of virtual and mark") {
		t.Errorf("%+v", s)
	}
	// One that removes too much neither.
	k.configure(checkEvery)
	if o := imbang(t, k.Director, "", "reload"); o.status != 3 || !strings.Contains(o.stderr, "3 of 3 servers would be deleted") {
		t.Errorf("%+v", o)
	}
	if after := k.do("ipvsadm", "-Sn"); after != before {
		t.Errorf("the table was\n%sand is\n%s", before, after)
	}
	if err := os.WriteFile(k.config, good, 0o644); err != nil {
		t.Fatal(err)
	}
	want := "add service " + vip + "/tcp: server " + addr(1) + ", masquerading, weight 1\n" +
		"change service " + vip + "/tcp: server " + addr(0) + " from weight 7 to weight 1\n1 servers added, 1 servers changed\n"
	for _, verb := range []string{"plan", "reload"} {
		if got := k.do(verb); got != want {
			t.Errorf("%s: %q, want %q", verb, got, want)
		}
	}
	saved := k.do("ipvsadm", "-Sn")
	for _, line := range []string{"-r " + addr(0) + " -m -w 1\n", "-r " + addr(1) + " -m -w 1\n", "-r 172.16.99.9:80 -m -w 1\n", "-A -t 10.20.99.1:80 -s rr\n"} {
		if !strings.Contains(saved, line) {
			t.Errorf("no %q in\n%s", line, saved)
		}
	}
	// Without the service in the file, what is not the file's stays.
	k.configure(checkEvery)
	k.do("reload", "--force")
	if saved := k.do("ipvsadm", "-Sn"); saved != "-A -t "+vip+" -s rr\n-a -t "+vip+" -r 172.16.99.9:80 -m -w 1\n-A -t 10.20.99.1:80 -s rr\n" {
		t.Error(saved)
	}
}

// Orders outlive the daemon, and a reload.
func TestRunKeepsOrders(t *testing.T) {
	k := newKeeper(t, 3, checkEvery+threeServers)
	vip := k.Virtual(topology.IPv4).String() + ":80"
	k.do("maintenance", "on", "a", "--reason", "disk")
	k.do("weight", "-t", vip, "-r", k.Servers[1].Addr[topology.IPv4].String(), "--set", "5")
	k.do("drain", "c")
	want := "a maintenance/0, b up/5, c drain/0"
	k.await("orders", func() bool { return k.states() == want })
	k.kill(0) // nobody is told of it
	k.end(syscall.SIGKILL)
	k.start()
	k.do("reload")
	time.Sleep(1500 * time.Millisecond)
	if got := k.states(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if log := k.do("events"); strings.Contains(log, "server-down") {
		t.Errorf("an event of a server in maintenance:\n%s", log)
	}
	if text := k.do("status"); !strings.Contains(text, "maintenance by root at ") || !strings.Contains(text, "(disk)") {
		t.Error(text)
	}
	k.revive(0)
	for _, name := range []string{"a", "b", "c"} {
		k.do("enable", name)
	}
	k.await("all servers", func() bool { return k.states() == "a up/1, b up/1, c up/1" })
	if o := imbang(t, k.Director, "", "drain", "x"); o.status != 3 || o.stderr != "imbang: server \"x\": the configuration has none of that name or address\n" {
		t.Errorf("%+v", o)
	}
}

// There is one daemon for a director, and without one the verbs say so.
func TestRunIsAlone(t *testing.T) {
	k := newKeeper(t, 1, "services: []\n")
	if o := imbang(t, k.Director, "", "run", "-c", k.config, "--state", k.dir); o.status != 3 || !strings.Contains(o.stderr, "a daemon runs already") {
		t.Errorf("%+v", o)
	}
	k.end(syscall.SIGTERM)
	for _, verb := range []string{"reload", "events", "maintenance on a"} {
		if o := imbang(t, k.Director, "", strings.Fields(verb)...); o.status != 3 || !strings.Contains(o.stderr, "no daemon runs in this network namespace") {
			t.Errorf("%s: %+v", verb, o)
		}
	}
}
