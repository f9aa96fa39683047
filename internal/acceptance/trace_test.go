// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/lab/topology"
)

// tracer is `imbang trace` at work, or another command that prints events.
type tracer struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string
	stderr bytes.Buffer
}

// startTracer waits until it traces.
func startTracer(t *testing.T, f *farm, args ...string) *tracer {
	t.Helper()
	return startTelling(t, f, "tracing, until Ctrl-C", append([]string{"trace"}, args...)...)
}

// startTelling starts a command that prints a line for each event, and waits until it says
// that it has begun.
func startTelling(t *testing.T, f *farm, said string, args ...string) *tracer {
	t.Helper()
	tr := &tracer{t: t, cmd: exec.Command(executable, args...), lines: make(chan string, 1000)}
	stdout, err := tr.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := tr.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Director.Start(tr.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.cmd.Process.Kill() }) // ended already, as a rule
	begun, err := bufio.NewReader(io.TeeReader(stderr, &tr.stderr)).ReadString('\n')
	if err != nil || !strings.Contains(begun, said) {
		t.Fatalf("it said %q, %v", begun, err)
	}
	go func() {
		defer close(tr.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			tr.lines <- s.Text()
		}
	}()
	return tr
}

// line is the next line.
func (tr *tracer) line() string {
	tr.t.Helper()
	select {
	case line, open := <-tr.lines:
		if !open {
			tr.t.Fatalf("the tracer ended: %s", tr.stderr.String())
		}
		return line
	case <-time.After(patience):
		tr.t.Fatal("nothing was told")
	}
	return ""
}

func (tr *tracer) want(pattern string) {
	tr.t.Helper()
	if line := tr.line(); !regexp.MustCompile("^" + pattern + "$").MatchString(line) {
		tr.t.Errorf("told:\n%s\nwant:\n%s", line, pattern)
	}
}

// end sends a signal, and returns the exit status: -1 if it was killed.
func (tr *tracer) end(s syscall.Signal) int {
	tr.t.Helper()
	if err := tr.cmd.Process.Signal(s); err != nil {
		tr.t.Fatal(err)
	}
	for range tr.lines { // to the end of the pipe
	}
	var exit *exec.ExitError
	if err := tr.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		tr.t.Fatal(err)
	}
	return tr.cmd.ProcessState.ExitCode()
}

// tracers are how many `imbang status` knows of.
func (f *farm) tracers() int {
	f.t.Helper()
	var st struct{ Tracers int }
	if err := json.Unmarshal([]byte(must(f.t, f.Director, "", "status", "-o", "json")), &st); err != nil {
		f.t.Fatal(err)
	}
	return st.Tracers
}

// newTracedFarm has a service of three servers, and one of none.
func newTracedFarm(t *testing.T) *farm {
	f := newFarm(t, 3)
	table := fmt.Sprintf("-A -t %s:80 -s wlc\n-A -t %[1]s:81 -s wlc\n", f.Virtual(topology.IPv4))
	for i, s := range f.Servers {
		table += fmt.Sprintf("-a -t %s:80 -r %s:80 -m -w %d\n", f.Virtual(topology.IPv4), s.Addr[topology.IPv4], i+1)
	}
	must(t, f.Director, table, "ipvsadm", "-R")
	return f
}

func TestTrace(t *testing.T) {
	f := newTracedFarm(t)
	const (
		clock  = `\d\d:\d\d:\d\d\.\d\d\d `
		client = `10\.10\.\d+\.\d+:\d+`
		server = `172\.16\.0\.\d+:80 \(weight \d, \d+ active, \d+ inactive\)`
	)
	vip := regexp.QuoteMeta(f.Virtual(topology.IPv4).String())
	tr := startTracer(t, f)
	if n := f.tracers(); n != 1 {
		t.Errorf("%d tracers", n)
	}
	for range 3 {
		f.visit(t)
		tr.want(clock + client + " > " + vip + ":80/tcp SYN: new, wlc chose " + server + " before " + server)
	}
	if _, err := f.dial(context.Background(), "tcp", f.Virtual(topology.IPv4).String()+":81", patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("port 81: %v", err)
	}
	tr.want(clock + client + " > " + vip + `:81/tcp SYN: refused: no server \(` + vip + `:81/tcp has no servers\)`)
	if status := tr.end(syscall.SIGINT); status != 0 {
		t.Errorf("Ctrl-C: status %d, said %s", status, tr.stderr.String())
	}
	if n := f.tracers(); n != 0 {
		t.Errorf("%d tracers are left behind", n)
	}
}

// visit fetches the page of the service.
func (f *farm) visit(t *testing.T) {
	t.Helper()
	res, err := f.browse("http://"+f.Virtual(topology.IPv4).String()+"/", patience)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
}

// A tracer that is killed leaves nothing behind that lasts, and others trace
// on.
func TestKilledTracer(t *testing.T) {
	f := newTracedFarm(t)
	stays, killed := startTracer(t, f, "--new", "--output", "json"), startTracer(t, f)
	if status := killed.end(syscall.SIGKILL); status != -1 {
		t.Errorf("killed: status %d", status)
	}
	f.visit(t)
	var e struct {
		Verdict, Service string
		New              bool
		Server           struct{ Server string }
	}
	if err := json.Unmarshal([]byte(stays.line()), &e); err != nil {
		t.Fatal(err)
	}
	if !e.New || e.Verdict != "forwarded" || e.Service != f.Virtual(topology.IPv4).String()+":80/tcp" || e.Server.Server == "" {
		t.Errorf("told of %+v", e)
	}
	await(t, "the killed tracer's lease ends", func() error {
		if n := f.tracers(); n != 1 {
			return fmt.Errorf("%d tracers", n)
		}
		return nil
	})
	stays.end(syscall.SIGTERM)
	if n := f.tracers(); n != 0 {
		t.Errorf("%d tracers are left behind", n)
	}
}

// TestWhy asks before a connection and while it is there.
func TestWhy(t *testing.T) {
	f := newTracedFarm(t)
	target := f.Virtual(topology.IPv4).String() + ":80"
	o := imbang(t, f.Director, "", "why", "10.10.0.77:7777", target)
	chosen := regexp.MustCompile(`wlc would choose (172\.16\.0\.\d+:80) \(.*\) before 172\.16\.0\.\d+:80 \(`).FindStringSubmatch(o.stdout)
	if o.status != 0 || chosen == nil || !strings.Contains(o.stdout, "not connected; a first packet now would open a connection") {
		t.Fatalf("status %d: %s", o.status, o.stdout)
	}
	c, err := f.dial(context.Background(), "tcp", target, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := page(c); err != nil { // the director has the client's acknowledgement
		t.Fatal(err)
	}
	o = imbang(t, f.Director, "", "why", c.LocalAddr().String(), target)
	for _, want := range []string{": connected\n", "ESTABLISHED", chosen[1] + " (weight ", " by Masq", "scheduler wlc, 3 servers"} {
		if o.status != 0 || !strings.Contains(o.stdout, want) {
			t.Errorf("status %d, without %q: %s", o.status, want, o.stdout)
		}
	}
	o = imbang(t, f.Director, "", "why", "--output", "json", c.LocalAddr().String(), f.Virtual(topology.IPv4).String()+":81")
	var answer struct {
		Packet struct{ Verdict, Reason string }
	}
	if err := json.Unmarshal([]byte(o.stdout), &answer); err != nil {
		t.Fatal(err)
	}
	if o.status != 1 || answer.Packet.Verdict != "refused" || answer.Packet.Reason != "no server" {
		t.Errorf("no server: status %d: %s", o.status, o.stdout)
	}
}

// The shell completes verbs, flags, and what the table has.
func TestCompletion(t *testing.T) {
	f := newTracedFarm(t)
	if script := must(t, nil, "", "completion", "bash"); !strings.Contains(script, "__start_imbang") {
		t.Errorf("no completion of bash: %.100s", script)
	}
	vip := f.Virtual(topology.IPv4).String()
	for words, want := range map[string]string{
		"tr":                     "trace\tShow live",
		"trace --":               "--client\t",
		"trace --service ":       vip + ":80\n",
		"trace --server ":        f.Servers[2].Addr[topology.IPv4].String() + "\n",
		"trace --reason ser":     "server-deleted\n",
		"trace --output ":        "json\n",
		"why 10.0.0.1:1 ":        vip + ":81\n",
		"why --":                 "--udp\t",
		"attach --hook ":         "clsact\n",
		"why --output json --ma": "--mark\t",
	} {
		out := must(t, f.Director, "", append([]string{"__complete"}, strings.Split(words, " ")...)...)
		if !strings.Contains(out, want) {
			t.Errorf("%q offers:\n%swant %q", words, out, want)
		}
	}
}
