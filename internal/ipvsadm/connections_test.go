// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bytes"
	"errors"
	"iter"
	"net/netip"
	"strings"
	"testing"

	"imbang/internal/model"
)

// watchedTable says what was printed when an entry was read.
type watchedTable struct {
	*fakeTable
	entries int
	out     *bytes.Buffer
	began   int // the first entry that was read when there was output
}

func (w *watchedTable) Connections() iter.Seq2[model.Connection, error] {
	return func(yield func(model.Connection, error) bool) {
		for i := range w.entries {
			if w.began == 0 && w.out.Len() > 0 {
				w.began = i
			}
			c := model.Connection{
				Protocol: model.TCP, State: "ESTABLISHED", Client: netip.MustParseAddrPort("10.10.0.2:1234"),
				Virtual: netip.MustParseAddrPort("10.20.0.1:80"), Server: netip.MustParseAddrPort("172.16.0.2:80"),
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// A listing of connections is printed while they are read.
func TestConnectionsArePrintedWhileRead(t *testing.T) {
	var stdout, stderr bytes.Buffer
	table := &watchedTable{fakeTable: newFake(), entries: 10_000, out: &stdout}
	status := run([]string{"-Lcn"}, strings.NewReader(""), &stdout, &stderr, func() (Table, error) { return table, nil }, nil, testNames())
	if lines := strings.Count(stdout.String(), "\n"); status != 0 || lines != table.entries+2 {
		t.Fatalf("status %d, %d lines, %q", status, lines, &stderr)
	}
	if table.began == 0 || table.began > 200 {
		t.Errorf("nothing was printed before entry %d was read (0: before the last)", table.began)
	}
}

// A table that cannot be read is reported, after what was read of it.
func TestConnectionsThatCannotBeRead(t *testing.T) {
	table := newFake()
	table.broken = errors.New("broken")
	for _, c := range []struct {
		conns []model.Connection
		lines int
	}{{nil, 0}, {make([]model.Connection, 3), 5}} {
		table.conns = c.conns
		stdout, stderr, status := result(table, "", "-Lcn")
		if strings.Count(stdout, "\n") != c.lines || !strings.Contains(stderr, "broken") || status == 0 {
			t.Errorf("status %d, %q, %q", status, stdout, stderr)
		}
	}
}
