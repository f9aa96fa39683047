// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/lab/record"
)

// A study goes on where it was cut off, even in the middle of a trial.
func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	e := Environment{Plan: DefaultPlan()}
	w, err := Create(dir, e)
	if err != nil {
		t.Fatal(err)
	}
	one := Trial{Cell: Cell{"imbang@50ms", "link", plain}, Block: 1, Order: 1, OutageMS: 170, Broken: map[string]int{"reset": 2}}
	if err := w.Trial(one); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := Create(dir, e); err == nil || !strings.Contains(err.Error(), "--resume") {
		t.Errorf("a second study in the directory: %v", err)
	}
	path := filepath.Join(dir, TrialsFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(b, `{"variant":"imbang@50ms","fau`...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, trials, err := Read(dir); err != nil || len(trials) != 1 {
		t.Fatalf("%d trials, %v", len(trials), err)
	}
	if w, err = Append(dir); err != nil {
		t.Fatal(err)
	}
	two := one
	two.Block, two.Order = 2, 2
	if err := w.Trial(two); err != nil {
		t.Fatal(err)
	}
	w.Close()
	got, trials, err := Read(dir)
	if err != nil || len(trials) != 2 || trials[1].Block != 2 || trials[0].Broken["reset"] != 2 || got.Plan.Trials != 30 {
		t.Errorf("%+v, %v", trials, err)
	}
	if !Is(dir) || Is(t.TempDir()) {
		t.Error("a directory is taken for what it is not")
	}
	for name, read := range map[string]func() error{
		"read":   func() error { _, _, err := Read(t.TempDir()); return err },
		"append": func() error { _, err := Append(t.TempDir()); return err },
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), "failover study") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Studies that were stored without families and methods go on as they were.
func TestStoredBefore(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		EnvironmentFile: `{"plan": {"variants": ["imbang@50ms", "keepalived@1s"], "faults": ["link", "split"], "trials": 2, "seed": 7, "rate": 200, "probe_ns": 10000000, "long": 20, "idle": 200, "servers": 2}}`,
		TrialsFile:      `{"variant": "imbang@50ms", "fault": "link", "block": 1, "order": 1, "outage_ms": 170, "takeover_ms": 171, "master": true}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	e, trials, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(trials) != 1 || trials[0].Setting != plain || e.Plan.OpenRate != 0 || e.Plan.late() != 0 {
		t.Errorf("%+v of %+v", trials, e.Plan)
	}
	if todo, _ := remaining(e.Plan, trials); len(todo) != 7 {
		t.Errorf("%d trials remain: %+v", len(todo), todo)
	}
	r, err := Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Cells[0]; c.OutageMS.N != 1 || c.ARPMS.N+c.ARPWrong+c.SettledMS.N+c.NotSettled != 0 {
		t.Errorf("%+v", c)
	}
}

// Trials of another build are not added to stored ones.
func TestSameBuilds(t *testing.T) {
	stored := map[string]record.Build{"imbang": {Version: "1", Commit: "a"}, "imbang-lab": {Version: "1", Commit: "a"}}
	if err := sameBuilds(stored, maps.Clone(stored)); err != nil {
		t.Error(err)
	}
	now := maps.Clone(stored)
	now["imbang"] = record.Build{Version: "2", Commit: "b"}
	if err := sameBuilds(stored, now); err == nil || !strings.Contains(err.Error(), "stored trials are of imbang 1, and this is 2") {
		t.Errorf("%v", err)
	}
}
