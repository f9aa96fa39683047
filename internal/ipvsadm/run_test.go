// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"imbang/internal/model"
)

// result runs one command line.
func result(table *fakeTable, stdin string, args ...string) (stdout, stderr string, status int) {
	var o, e bytes.Buffer
	status = run(args, strings.NewReader(stdin), &o, &e, table.open, nil, testNames())
	return o.String(), e.String(), status
}

func TestOpenOnlyWhenNeeded(t *testing.T) {
	for _, c := range []struct {
		line   string
		opens  bool
		status int
		stderr string
	}{
		{"-h", false, 0, ""},
		{"-v", false, 0, ""},
		{"-A", false, 2, "You need to supply the 'service-address' option for the 'add-service' command\n"},
		{"-L -q", false, 255, "-q: unknown option\n"},
		{"--start-daemon master", false, 255, "ipvsadm: the connection synchronization daemon is not available here\n"},
		{"--stop-daemon master", false, 255, "No daemon is running\n"},
		{"", true, 255, "ipvsadm: not root\n"},
		{"-Ln", true, 255, "ipvsadm: not root\n"},
		{"-R", true, 255, "ipvsadm: not root\n"},
		{"-A -t 10.20.0.1:80", true, 255, "ipvsadm: not root\n"},
	} {
		opened := false
		open := func() (Table, error) { opened = true; return nil, errors.New("not root") }
		var stdout, stderr bytes.Buffer
		status := run(strings.Fields(c.line), strings.NewReader("-Ln\n"), &stdout, &stderr, open, nil, testNames())
		if opened != c.opens || status != c.status || stderr.String() != c.stderr {
			t.Errorf("%q: opened %v, status %d, stderr %q", c.line, opened, status, &stderr)
		}
	}
}

// TestLargeMark: unlike ipvsadm's, a saved mark beyond 31 bits can be restored.
func TestLargeMark(t *testing.T) {
	table := newFake()
	result(table, "", "-A", "-f", "4294967295", "-s", "rr")
	saved, _, _ := result(table, "", "-Sn")
	if saved != "-A -f 4294967295 -s rr\n" {
		t.Errorf("saved %q", saved)
	}
	if _, stderr, status := result(newFake(), saved, "-R"); status != 0 {
		t.Errorf("restored with status %d, %q", status, stderr)
	}
}

func TestEmptySchedFlags(t *testing.T) {
	table := newFake()
	if _, stderr, status := result(table, "", "-A", "-t", "10.20.0.1:80", "-b", ","); status != 0 {
		t.Errorf("status %d, %q", status, stderr)
	}
}

// brokenBatch fails when the edits are written.
type brokenBatch struct {
	*fakeTable
	err error
}

func (b brokenBatch) Batch(edit func(Table) error) error {
	if err := edit(b.fakeTable); err != nil {
		return err
	}
	return b.err
}

func TestRestoreInBatches(t *testing.T) {
	const lines = "-A -t 10.20.0.1:80\n-a -t 10.20.0.1:80 -r 172.16.0.2 -m\n-Ln\n-R"
	table := newFake()
	_, stderr, status := result(table, lines, "-R")
	if table.batches != 1 || len(table.services) != 1 || len(table.services[0].Servers) != 1 || status != 255 || !strings.HasPrefix(stderr, "Try ") {
		t.Errorf("%d batches, status %d, stderr %q, table %+v", table.batches, status, stderr, table.services)
	}

	var stdout, errs bytes.Buffer
	broken := brokenBatch{newFake(), fmt.Errorf("service map: %w", model.ErrTableFull)}
	status = run([]string{"-R"}, strings.NewReader(lines), &stdout, &errs, func() (Table, error) { return broken, nil }, nil, testNames())
	want := "Memory allocation problem\n" // and no line after it is run
	if status != 255 || errs.String() != want || stdout.Len() != 0 {
		t.Errorf("status %d, stdout %q, stderr %q, want %q", status, &stdout, &errs, want)
	}
}

func TestExplain(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("service 10.20.0.1:80/tcp: %w", err) }
	for _, c := range []struct {
		verb verb
		err  error
		want string
	}{
		{verbDeleteService, wrap(model.ErrNoService), "No such service"},
		{verbDeleteServer, wrap(model.ErrNoService), "Service not defined"},
		{verbAddServer, wrap(model.ErrServerExists), "Destination already exists"},
		{verbFlush, wrap(fs.ErrPermission), "Permission denied (you must be root)"},
		{verbFlush, errors.New("maps are gone"), "ipvsadm: maps are gone"},
	} {
		if got := explain(c.verb, c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

// A table that there is no room for must not be taken for saved.
func TestFullDisk(t *testing.T) {
	table := newFake()
	result(table, "", "-A", "-t", "10.20.0.1:80")
	for _, args := range [][]string{{"-Sn"}, {"-Ln"}, {"-Lcn"}, {"-h"}, {"-L", "--timeout"}} {
		var stderr bytes.Buffer
		status := run(args, strings.NewReader(""), full{}, &stderr, table.open, nil, testNames())
		if status != 1 || stderr.String() != "ipvsadm: no space left\n" {
			t.Errorf("%v: status %d, %q", args, status, stderr.String())
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }
