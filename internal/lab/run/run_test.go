// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/record"
	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

const small = `name: small
cluster:
  families: [ipv4, ipv6]
  client_namespaces: 2
  client_addresses: 10
  servers:
    - {kind: nginx, count: 2, page: 375 B}
load:
  rates: [200, 500]
  duration: 200 ms
  timeout: 10 s
competitors:
  - {engine: direct}
repeats: {least: 2}
`

// config is a short study with an engine that needs no data plane.
func config(t *testing.T) Config {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	if _, err := server.NginxVersion(context.Background()); err != nil {
		t.Skip(err)
	}
	s, err := study.Parse("small.yaml", []byte(small), engine.Described())
	if err != nil {
		t.Fatal(err)
	}
	plan := NewPlan(s, false)
	plan.Warmup = 20 * time.Millisecond
	plan.Pilot = &record.Pilot{} // no pilot is made
	return Config{Study: s, Name: "small.yaml", Out: filepath.Join(t.TempDir(), "out"), Plan: plan, Version: "test"}
}

// watch is an Observer that can act when a cell begins.
type watch struct {
	began func(n int)
	ended []record.Sample
	notes []string
	n     int
}

func (w *watch) Note(text string)        { w.notes = append(w.notes, text) }
func (w *watch) Planned([]time.Duration) {}
func (w *watch) Within(time.Duration)    {}
func (w *watch) Ended(s record.Sample)   { w.ended = append(w.ended, s) }
func (w *watch) Began(record.Cell) {
	w.n++
	if w.began != nil {
		w.began(w.n)
	}
}

// remains lists what a process's runs left: namespaces, directories, mounts,
// processes.
func remains(t *testing.T, pid int) (found []string) {
	t.Helper()
	stem := fmt.Sprintf("%s-%d-", topology.Prefix, pid)
	for _, dir := range []string{"/run/netns", os.TempDir()} {
		names, err := filepath.Glob(filepath.Join(dir, stem+"*"))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, names...)
	}
	if b, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(b), stem) {
		found = append(found, fmt.Sprintf("mounts (%v)", err))
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commands {
		// nginx keeps its directory on its command line.
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), stem) {
			found = append(found, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

func TestRunMeasuresEveryCell(t *testing.T) {
	c, w := config(t), &watch{}
	outcome, err := Run(context.Background(), c, w)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Outcome{Dir: c.Out, Measured: 8, Planned: 8}); *outcome != want {
		t.Errorf("%+v, want %+v", *outcome, want)
	}
	if left := remains(t, os.Getpid()); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	stored, err := record.Read(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.ended, stored.Samples, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
		cmp.FilterPath(func(p cmp.Path) bool { return strings.HasSuffix(p.String(), "lastOther") }, cmp.Ignore())); diff != "" {
		t.Errorf("stored samples differ: %s", diff)
	}
	for _, s := range stored.Samples {
		if s.Load.Replies != s.Load.Scheduled || s.Load.PerServer["s1"] != s.Load.Replies {
			t.Errorf("%s: %d of %d replies, %v", s.Cell, s.Load.Replies, s.Load.Scheduled, s.Load.PerServer)
		}
		if s.CPU.ServersNS["s1"] <= 0 || s.CalibrationNS <= 0 {
			t.Errorf("%s: no CPU time: %+v, %v", s.Cell, s.CPU, s.CalibrationNS)
		}
	}
	for _, s := range stored.Samples {
		if s.CPU.MachineNS <= 0 {
			t.Errorf("%s: the machine did no work", s.Cell)
		}
	}
	env := stored.Environment
	if got, want := env.Configurations["direct"], "no balancer: clients connect to 172."; !strings.HasPrefix(got, want) {
		t.Errorf("configuration %q, want %s...", got, want)
	}
	if env.StudyText != small || env.Plan.Cells != 4 || env.Programs["nginx"] == "" || env.Kernel == "" || env.CPUs < 1 {
		t.Errorf("environment %+v", env)
	}
}

func TestCtrlCLeavesTheMeasuredCellsAndNothingElse(t *testing.T) {
	c := config(t)
	c.Plan.Duration = time.Second // of which the signal interrupts one
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &watch{began: func(n int) {
		if n == 3 {
			time.AfterFunc(50*time.Millisecond, cancel)
		}
	}}
	outcome, err := Run(ctx, c, w)
	if !errors.Is(err, context.Canceled) || outcome == nil || outcome.Measured != 2 {
		t.Errorf("%+v, %v; want 2 cells and %v", outcome, err, context.Canceled)
	}
	if left := remains(t, os.Getpid()); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	stored, err := record.Read(c.Out)
	if err != nil || len(stored.Samples) != 2 {
		t.Errorf("%v, %v; want 2 stored samples", stored, err)
	}
}

func TestRunRefusesAUsedDirectory(t *testing.T) {
	c := config(t)
	w, err := record.Create(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	_, err = Run(context.Background(), c, &watch{})
	if want := fmt.Sprintf("results directory %s: holds a run already: give another with --out", c.Out); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if left := remains(t, os.Getpid()); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestResumeMeasuresTheRest(t *testing.T) {
	c := config(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &watch{began: func(n int) {
		if n == 4 {
			cancel()
		}
	}}
	if _, err := Run(ctx, c, w); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want %v", err, context.Canceled)
	}
	path := filepath.Join(c.Out, record.SamplesFile)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"engine":"dir`) // as a crash in the middle leaves it
	f.Close()
	if c.Resume, err = record.Read(c.Out); err != nil || len(c.Resume.Samples) != 3 {
		t.Fatalf("%d samples, %v; want 3", len(c.Resume.Samples), err)
	}
	outcome, err := Run(context.Background(), c, &watch{})
	if want := (Outcome{Dir: c.Out, Measured: 5, Planned: 5}); err != nil || *outcome != want {
		t.Errorf("%+v, %v; want %+v", outcome, err, want)
	}
	whole, err := record.Read(c.Out)
	if err != nil || len(whole.Samples) != 8 {
		t.Fatalf("%v, %v; want 8 samples", whole, err)
	}
	type key struct {
		record.Cell
		block int
	}
	seen := map[key]bool{}
	for _, s := range whole.Samples {
		seen[key{s.Cell, s.Block}] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d different samples of 8", len(seen))
	}
}

func TestBlocksAreAddedUntilEnough(t *testing.T) {
	c := config(t)
	c.Plan.Conditions, c.Plan.Cells = c.Plan.Conditions[:1], 1
	c.Plan.Repeats, c.Plan.Most, c.Plan.Until = 2, 5, 0.05
	c.Enough = func(_ record.Plan, s []record.Sample) bool { return len(s) == 4 }
	outcome, err := Run(context.Background(), c, &watch{})
	if err != nil || outcome.Measured != 4 || outcome.Planned != 4 {
		t.Errorf("%+v, %v; want 4 cells", outcome, err)
	}
}

// crashing is set in the process that TestCrash kills.
const crashing = "IMBANG_TEST_CRASH"

// crash kills a process in the middle of a run, and returns its number.
func crash(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrash$")
	cmd.Env = append(os.Environ(), crashing+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "up"; {
	}
	cmd.Process.Signal(syscall.SIGKILL)
	cmd.Wait()
	return cmd.Process.Pid
}

func TestCrash(t *testing.T) {
	c := config(t)
	if os.Getenv(crashing) != "" {
		Run(context.Background(), c, &watch{began: func(int) {
			fmt.Println("up")
			select {}
		}})
		return
	}
	w, pid, found := &watch{}, 0, 0
	for try := 1; found < 2 || len(w.notes) == 0; try++ { // a run of another test may sweep before
		if try > 5 {
			t.Fatalf("a killed run left only %d things, and %q was swept", found, w.notes)
		}
		pid = crash(t)
		w, found = &watch{}, len(remains(t, pid))
		if err := sweep(w); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(measure.OneGroup()) // as the next run does at its end
	if left := remains(t, pid); len(left) > 0 {
		t.Errorf("after the sweep: %q", left)
	}
	if len(w.notes) != 1 || !strings.HasPrefix(w.notes[0], "removed what an earlier run left behind: ") {
		t.Errorf("notes %q", w.notes)
	}
}
