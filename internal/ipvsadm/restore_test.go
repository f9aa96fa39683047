// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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
	ended atomic.Int64 // batches
}

func (g *guarded) Batch(edit func(Table) error) error {
	g.open = true
	defer func() { g.open = false }()
	before := g.edits
	err := g.fakeTable.Batch(edit)
	g.sizes = append(g.sizes, g.edits-before)
	g.ended.Add(1)
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
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	g := &guarded{fakeTable: newFake()}
	done := make(chan int)
	go func() {
		done <- run([]string{"-R"}, read, io.Discard, io.Discard, func() (Table, error) { return g, nil }, nil, testNames())
	}()
	// However late the reader runs, it has run what there is.
	put := func(text string) {
		n := g.ended.Load()
		fmt.Fprint(write, text)
		for end := time.Now().Add(time.Minute); g.ended.Load() == n && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
	}
	for range 3 {
		put("-A -t 10.20.0.1:80\n-D -t 10.20.0.1:")
		put("80\n")
	}
	write.Close()
	if status := <-done; status != 0 || len(g.sizes) != 6 {
		t.Errorf("status %d, batches of %v, want six", status, g.sizes)
	}
}

// restoredInBatches restores as many services as fill three batches, each of so many servers, under a
// clock, and returns the sizes of the batches.
func restoredInBatches(t *testing.T, servers int, clock func() time.Time) []int {
	t.Helper()
	now = clock
	t.Cleanup(func() { now = time.Now })
	var lines strings.Builder
	services := 0
	for ; services*(1+servers) < 3*batchMost; services++ {
		fmt.Fprintf(&lines, "-A -t 10.20.%d.%d:80\n", services/250, services%250)
		for n := range servers {
			fmt.Fprintf(&lines, "-a -t 10.20.%d.%d:80 -r 172.16.%d.%d\n", services/250, services%250, n/250, n%250)
		}
	}
	g := &guarded{fakeTable: newFake()}
	status := run([]string{"-R"}, strings.NewReader(lines.String()), io.Discard, io.Discard, func() (Table, error) { return g, nil }, nil, testNames())
	all := 0
	for _, n := range g.sizes {
		all += n
	}
	if status != 0 || all != (1+servers)*services {
		t.Errorf("status %d, batches of %v, %d services", status, g.sizes, services)
	}
	return g.sizes
}

// A batch ends where a line adds a service, unless that has too many servers.
func TestBatchesKeepServicesWhole(t *testing.T) {
	stopped := time.Now()
	sizes := restoredInBatches(t, 9, func() time.Time { return stopped })
	for _, n := range sizes {
		if n%10 != 0 || n > batchMost {
			t.Errorf("a batch of %d edits", n)
		}
	}
	if len(sizes) < 2 {
		t.Errorf("batches of %v", sizes)
	}
}

// So it does where each edit takes longer than a batch is to take, as on a machine that does other work.
func TestSlowBatchesKeepServicesWhole(t *testing.T) {
	var later time.Duration
	slow := func() time.Time { later += 2 * batchTime; return time.Time{}.Add(later) }
	for _, n := range restoredInBatches(t, 9, slow) {
		if n != 10 {
			t.Errorf("a batch of %d edits", n)
		}
	}
	for _, n := range restoredInBatches(t, 2*wholeServers, slow) {
		if n > 1+wholeServers {
			t.Errorf("a batch of %d edits of a large service", n)
		}
	}
}

// Lines of reads that end anywhere are whole, and those that are there are taken together, however late
// this process runs.
func TestLinesOfReads(t *testing.T) {
	text := strings.Repeat("a line of twenty-four by\n", 2*linesAtOnce/3) + "\nthe last one"
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, from := range map[string]io.Reader{
		"file": f, "bytes": iotest.OneByteReader(strings.NewReader(text)), "end with the last": iotest.DataErrReader(strings.NewReader(text)),
	} {
		in := input{from: from}
		lines, idle, more := in.next()
		if got := strings.Join(lines, "\n"); got != text || idle || more || in.err != nil {
			t.Errorf("%s: %d of %d bytes, idle %v, more %v, %v", name, len(got), len(text), idle, more, in.err)
		}
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

// endless is a line without an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.read += len(p)
	if e.read > 64<<20 {
		return 0, errors.New("64 MiB were read")
	}
	return len(p), nil
}

// A line that does not end is refused, and the lines before it are run.
func TestRestoreOfEndlessLine(t *testing.T) {
	var stderr strings.Builder
	table := newFake()
	status := run([]string{"-R"}, io.MultiReader(strings.NewReader("-A -t 10.20.0.1:80\n-A -t 10.20.0.2:80 "), &endless{}), io.Discard, &stderr, func() (Table, error) { return table, nil }, nil, testNames())
	if want := "ipvsadm: standard input: a line is longer than 16384 bytes\n"; status != 255 || len(table.services) != 1 || stderr.String() != want {
		t.Errorf("status %d, %d services, %q, want %q", status, len(table.services), stderr.String(), want)
	}
}
