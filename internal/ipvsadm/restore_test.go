// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// guarded is a table that knows whether a batch is open on it, and how many
// edits each one had.
type guarded struct {
	*fakeTable
	open  bool
	sizes []int
}

func (g *guarded) Batch(edit func(Table) error) error {
	g.open = true
	defer func() { g.open = false }()
	before := g.edits
	err := g.fakeTable.Batch(edit)
	g.sizes = append(g.sizes, g.edits-before)
	return err
}

// checked is an input or output that nobody may use while a batch is open.
type checked struct {
	t     *testing.T
	table *guarded
	w     io.Writer
}

func (c checked) Write(p []byte) (int, error) {
	if c.table.open {
		c.t.Errorf("printed in a batch: %q", p)
	}
	return c.w.Write(p)
}

// No batch is open while a restore prints, and what it prints is in order.
func TestRestorePrintsOutsideBatches(t *testing.T) {
	g := &guarded{fakeTable: newFake()}
	var stdout, stderr strings.Builder
	const lines = "-A -t 10.20.0.1:80\n-A -t 10.20.0.1:80\n-L --timeout\n-A -t 10.20.0.2:80\n-A -q\n-A -t 10.20.0.2:80\n-Ln\n-D -t 10.20.0.1:80"
	status := run([]string{"-R"}, strings.NewReader(lines), checked{t, g, &stdout}, checked{t, g, &stderr},
		func() (Table, error) { return g, nil }, nil, testNames())
	if status != 0 || len(g.services) != 1 || fmt.Sprint(g.sizes) != "[2 1 1 1]" {
		t.Errorf("status %d, %d services, batches of %v", status, len(g.services), g.sizes)
	}
	if want := "Service already exists\n-q: unknown option\nService already exists\n"; stderr.String() != want {
		t.Errorf("stderr %q, want %q", stderr.String(), want)
	}
	if !strings.HasPrefix(stdout.String(), "Timeout (tcp") || strings.Count(stdout.String(), "TCP  10.20.0.") != 2 {
		t.Errorf("stdout %q", stdout.String())
	}
}

// Lines are run while the writer has no more, in the order in which they come.
func TestRestoreOfTricklingInput(t *testing.T) {
	read, write := io.Pipe()
	g := &guarded{fakeTable: newFake()}
	done := make(chan int)
	go func() {
		done <- run([]string{"-R"}, read, io.Discard, io.Discard, func() (Table, error) { return g, nil }, nil, testNames())
	}()
	for range 3 {
		fmt.Fprint(write, "-A -t 10.20.0.1:80\n-D -t 10.20.0.1:")
		time.Sleep(10 * inputGrace)
		fmt.Fprint(write, "80\n")
		time.Sleep(10 * inputGrace)
	}
	write.Close()
	if status := <-done; status != 0 || len(g.sizes) != 6 {
		t.Errorf("status %d, batches of %v, want six", status, g.sizes)
	}
}

// A batch ends where a line adds a service, unless that has too many servers.
func TestBatchesKeepServicesWhole(t *testing.T) {
	stopped := time.Now()
	now = func() time.Time { return stopped }
	t.Cleanup(func() { now = time.Now })
	var lines strings.Builder
	services := 0
	for lines.Len() == 0 || strings.Count(lines.String(), "\n") < 3*batchMost {
		services++
		fmt.Fprintf(&lines, "-A -t 10.20.%d.%d:80\n", services/250, services%250)
		for n := range 9 {
			fmt.Fprintf(&lines, "-a -t 10.20.%d.%d:80 -r 172.16.0.%d\n", services/250, services%250, n+1)
		}
	}
	g := &guarded{fakeTable: newFake()}
	status := run([]string{"-R"}, strings.NewReader(lines.String()), io.Discard, io.Discard, func() (Table, error) { return g, nil }, nil, testNames())
	all := 0
	for _, n := range g.sizes {
		all += n
		if n%10 != 0 || n > batchMost {
			t.Errorf("a batch of %d edits", n)
		}
	}
	if status != 0 || all != 10*services || len(g.sizes) < 2 {
		t.Errorf("status %d, batches of %v, %d services", status, g.sizes, services)
	}
}

// Of an input that cannot be read, what was read is run.
func TestRestoreOfBrokenInput(t *testing.T) {
	table := newFake()
	var stderr strings.Builder
	in := io.MultiReader(strings.NewReader("-A -t 10.20.0.1:80\n"), iotest.ErrReader(errors.New("gone")))
	status := run([]string{"-R"}, in, io.Discard, &stderr, table.open, nil, testNames())
	if status != 255 || len(table.services) != 1 || stderr.String() != "ipvsadm: standard input: gone\n" {
		t.Errorf("status %d, %d services, %q", status, len(table.services), stderr.String())
	}
}
