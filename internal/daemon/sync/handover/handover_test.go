// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/daemon/sync/ipvsconn"
	"imbang/internal/director"
	"imbang/internal/ipvsadm"
	"imbang/internal/model"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("../ipvsconn/testdata/linux-6.1.176." + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// fakeTable keeps what is added to it.
type fakeTable struct {
	ipvsadm.Table
	services map[model.ServiceKey]model.Service
	servers  map[string]model.Server
	batches  int
	err      error
}

func newFakeTable() *fakeTable {
	return &fakeTable{services: map[model.ServiceKey]model.Service{}, servers: map[string]model.Server{}}
}

func (f *fakeTable) Batch(edit func(ipvsadm.Table) error) error {
	f.batches++
	return errors.Join(edit(f), f.err)
}

func (f *fakeTable) AddService(s model.Service) error {
	if _, ok := f.services[s.Key]; ok {
		return model.ErrServiceExists
	}
	f.services[s.Key] = s
	return nil
}

func (f *fakeTable) AddServer(k model.ServiceKey, s model.Server) error {
	key := fmt.Sprint(k, s.AddrPort())
	if _, ok := f.services[k]; !ok {
		return model.ErrNoService
	}
	if _, ok := f.servers[key]; ok {
		return model.ErrServerExists
	}
	f.servers[key] = s
	return nil
}

// A table is added once; what differs stays, and what is no line of it is refused.
func TestEnterTable(t *testing.T) {
	text, to := read(t, "table"), newFakeTable()
	got, err := EnterTable(t.Context(), to, text)
	if want := (Table{Services: Edits{Added: 10}, Servers: Edits{Added: 12}}); err != nil || !cmp.Equal(got, want) {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
	key := model.MarkKey(4, model.IPv6)
	if s := to.services[key]; s.Flags&model.Persistent == 0 || s.Scheduler != "rr" {
		t.Errorf("%s is %+v", key, s)
	}
	again := string(text) + strings.Join([]string{
		"# a comment", "ipvsadm -A -t 10.20.0.1:80 -s rr", "-D -t 10.20.0.1:80", "-a -t 10.20.0.9:80 -r 172.16.0.2:80 -m", "-A -t 10.20.0.9", ""}, "\n")
	got, err = EnterTable(t.Context(), to, []byte(again))
	want := Table{Services: Edits{Existed: 11}, Servers: Edits{Existed: 12}, Refused: 3, Refusals: []Refusal{
		{25, "-D -t 10.20.0.1:80", errLine},
		{26, "-a -t 10.20.0.9:80 -r 172.16.0.2:80 -m", "Service not defined"},
		{27, "-A -t 10.20.0.9", "port number required"},
	}}
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Refusals { // ipvsadm's words are tested where they are
		if i < len(want.Refusals) && got.Refusals[i].Why != "" {
			got.Refusals[i].Why = want.Refusals[i].Why
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := to.services[model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.1:80"))]; s.Scheduler != "wlc" {
		t.Errorf("what was there became %+v", s)
	}
}

// Many lines are added in several batches, and a context ends between them.
func TestEnterTableInBatches(t *testing.T) {
	var b strings.Builder
	for i := range 3 * tableLines {
		fmt.Fprintf(&b, "-A -t 10.20.%d.%d:80 -s rr\n", i/250, i%250)
	}
	to := newFakeTable()
	got, err := EnterTable(t.Context(), to, []byte(b.String()))
	if err != nil || got.Services.Added != 3*tableLines || to.batches < 3 {
		t.Errorf("%+v, %v in %d batches", got, err, to.batches)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := EnterTable(ctx, to, []byte(b.String())); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	to.err = errors.New("failing")
	if _, err := EnterTable(t.Context(), to, []byte(b.String())); !errors.Is(err, to.err) {
		t.Error(err)
	}
}

// Each line is entered, there already, or refused for a reason; templates come first.
func TestEnterConnections(t *testing.T) {
	text := string(read(t, "ip_vs_conn")) + "TCP no line\n"
	errs := map[string]error{
		"10.10.0.2:57200":     director.ErrConnectionExists,
		"10.10.0.2:57154":     fmt.Errorf("x: %w", model.ErrNoService),
		"[fd00:10::2]:39374":  fmt.Errorf("x: %w", model.ErrNoServer),
		"[fd00:10::2]:56449":  fmt.Errorf("x: %w", model.ErrTableFull),
		"10.10.0.2:57208":     fmt.Errorf("x: %w", director.ErrBadConnection),
		"10.10.0.2:57960":     nil, // guessed
		"nobody's connection": nil,
	}
	connections, lines := false, 0
	got, err := EnterConnections(t.Context(), []byte(text), func(all []model.Connection) ([]error, []bool, error) {
		out, guessed := make([]error, len(all)), make([]bool, len(all))
		for i, c := range all {
			if c.Template && connections {
				t.Errorf("a template after a connection: %+v", c)
			}
			connections = connections || !c.Template
			out[i], guessed[i] = errs[c.Client.String()], c.Client.Port() == 57960
		}
		return out, guessed, nil
	}, func(n int) { lines = n })
	if err != nil {
		t.Fatal(err)
	}
	if lines != 16 || len(got.Refusals) != 5 || got.Refusals[0].Line != 17 || got.Refusals[0].Text != "TCP no line" {
		t.Errorf("%d lines, refusals %+v", lines, got.Refusals)
	}
	got.Refusals = nil
	want := Connections{Entries: 16, Entered: 10, Existed: 1, Guessed: 1, Refused: 5, Reasons: map[Reason]int{
		ReasonLine: 1, ReasonService: 1, ReasonServer: 1, ReasonTableFull: 1, ReasonEntry: 1,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The wrong file, a director that fails, and Ctrl-C.
func TestEnterConnectionsFails(t *testing.T) {
	none := func([]model.Connection) ([]error, []bool, error) { return nil, nil, errors.New("failing") }
	if _, err := EnterConnections(t.Context(), read(t, "ip_vs_conn_sync"), none, nil); !errors.Is(err, ipvsconn.ErrHeading) {
		t.Error(err)
	}
	if _, err := EnterConnections(t.Context(), read(t, "ip_vs_conn"), none, nil); err == nil || !strings.Contains(err.Error(), "failing") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := EnterConnections(ctx, read(t, "ip_vs_conn"), none, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A text without a command, as of an ssh that failed, is an error and changes nothing.
func TestEmptyTable(t *testing.T) {
	for _, text := range []string{"", "\n \n", "# comment\n", "ipvsadm\n"} {
		table := newFakeTable()
		if got, err := EnterTable(t.Context(), table, []byte(text)); !errors.Is(err, ErrEmptyTable) || table.batches != 0 {
			t.Errorf("%q: %+v, %v, %d batches", text, got, err, table.batches)
		}
	}
}
