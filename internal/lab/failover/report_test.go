// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"slices"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	p := DefaultPlan()
	p.Trials = 10
	var trials []Trial
	add := func(variant, fault string, outage float64, change func(*Trial)) {
		one := Trial{Cell: Cell{variant, fault, plain}, Block: 1 + len(trials), OutageMS: outage, GapMS: outage + 10, Requests: 100, Long: 2, Idle: 5, Master: true}
		if change != nil {
			change(&one)
		}
		trials = append(trials, one)
	}
	for n := range 9 {
		add("imbang@50ms", "freeze", 150+10*float64(n), nil)
		add("imbang@10ms", "freeze", 30+float64(n), nil)
	}
	add("imbang@50ms", "freeze", 0, func(t *Trial) { t.Error, t.Again = "no namespaces", 3 })
	trials[0].Again = 1
	add("imbang@50ms/no-sync", "freeze", 200, func(t *Trial) { t.IdleLost, t.Broken = 5, map[string]int{"reset": 5} })
	add("keepalived@1s", "everything", 3400, func(t *Trial) { t.Failed, t.Master, t.LateMS = 7, false, 25 })
	target := func(r *Report, name string) Target {
		t.Helper()
		i := slices.IndexFunc(r.Targets, func(t Target) bool { return strings.Contains(t.Name, name) })
		if i < 0 {
			t.Fatalf("no target about %s", name)
		}
		return r.Targets[i]
	}
	r := Make(Environment{Plan: p}, trials)
	if r.Trials != 21 || r.Errors != 1 {
		t.Errorf("%d trials, %d errors", r.Trials, r.Errors)
	}
	if g := target(r, "imbang@50ms"); g.Value != 230 || g.Of != 9 || !g.Met {
		t.Errorf("%+v", g)
	}
	if g := target(r, "imbang@10ms"); g.Value != 34 || !g.Met {
		t.Errorf("%+v", g)
	}
	if g := target(r, "connections lost"); g.Value != 0 || g.Of != 18*7 || !g.Met {
		t.Errorf("%+v", g) // without synchronization and with keepalived they do not count
	}
	if g := target(r, "planned"); g.Of != 0 || g.Met {
		t.Errorf("%+v: met without a measurement", g)
	}
	i := slices.IndexFunc(r.Cells, func(c CellReport) bool { return c.Cell == Cell{"imbang@50ms", "freeze", plain} })
	if c := r.Cells[i]; c.OutageMS.N != 9 || c.OutageMS.Median != 190 || c.OutageMS.Max != 230 || c.OutageMS.Interval.Low < 150 || c.OutageMS.Interval.High > 230 ||
		c.OutageMS.Interval.Low >= c.OutageMS.Interval.High || len(c.Errors) != 1 || c.Requests != 900 || c.Again != 4 {
		t.Errorf("%+v", c)
	}
	var b strings.Builder
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"9622 ms", "no measurement: imbang@50ms, freeze, IPv4, masquerading: no namespaces", "not measured", "3400"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}

	// One trial that is too slow, one connection that is lost, one request in a planned move.
	add("imbang@50ms", "link", 255, func(t *Trial) { t.LongBroken = 1 })
	add("imbang@50ms", "planned", 0, func(t *Trial) { t.Failed = 1 })
	add("imbang@10ms", "process", 500, nil) // not among the faults of the targets
	never, soon, late := -1.0, 15.0, 2001.0
	for _, times := range [][2]*float64{{&soon, &soon}, {&never, &soon}, {&soon, &late}} {
		add("imbang@50ms", "split", 0, func(t *Trial) { t.ARPMS, t.SettledMS = times[0], times[1] })
	}
	add("imbang@50ms", "daemon", 0, func(t *Trial) { t.Transitions = 2 })
	add("keepalived@1s", "daemon", 0, func(t *Trial) { t.Transitions = 2 })
	r = Make(Environment{Plan: p}, trials)
	if c := r.Cells[slices.IndexFunc(r.Cells, func(c CellReport) bool { return c.Fault == "split" && c.Variant == "imbang@50ms" })]; c.ARPWrong != 1 ||
		c.ARPMS.N != 2 || c.NotSettled != 0 || c.SettledMS.Max != 2001 {
		t.Errorf("%+v", c)
	}
	for name, value := range map[string]float64{"imbang@50ms": 255, "connections lost": 1, "that failed in planned": 1, "splits": 2, "transitions": 2} {
		if g := target(r, name); g.Value != value || g.Met {
			t.Errorf("%s: %+v", name, g)
		}
	}
	if g := target(r, "imbang@10ms"); !g.Met {
		t.Errorf("%+v", g)
	}
}
