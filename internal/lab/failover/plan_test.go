// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A block has every cell once; blocks have different orders, and equal seeds equal ones.
func TestBlock(t *testing.T) {
	p := DefaultPlan()
	p.Seed = 7
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	other := p
	other.Seed = 8
	a, b := p.Block(1), p.Block(2)
	if !slices.Equal(a, p.Block(1)) || slices.Equal(a, b) || slices.Equal(a, other.Block(1)) {
		t.Error("the order does not follow from the seed and the block")
	}
	sort := func(list []Cell) []Cell {
		slices.SortFunc(list, func(a, b Cell) int { return strings.Compare(a.String(), b.String()) })
		return list
	}
	if all := sort(p.Cells()); len(all) != 5*len(faults)+2*(len(faults)-2) || !slices.Equal(sort(a), all) || !slices.Equal(sort(b), all) {
		t.Error("a block does not have every cell once")
	}
}

// Faults happen at any time within an interval.
func TestPhase(t *testing.T) {
	p := DefaultPlan()
	least, most := time.Hour, time.Duration(0)
	for block := 1; block <= 100; block++ {
		d := p.phase(block, Cell{"imbang@50ms", "freeze"})
		least, most = min(least, d), max(most, d)
	}
	if least > 5*time.Millisecond || most < 45*time.Millisecond || most >= 50*time.Millisecond {
		t.Errorf("%v to %v within 50 ms", least, most)
	}
}

// What is stored is not measured again, and the rest keeps its order.
func TestRemaining(t *testing.T) {
	p := DefaultPlan()
	p.Trials = 3
	all, order := remaining(p, nil)
	if len(all) != 3*len(p.Cells()) || order != 0 {
		t.Fatalf("%d trials after %d", len(all), order)
	}
	had := slices.Clone(all[:5])
	for i := range had {
		had[i].Order = i + 1
	}
	rest, order := remaining(p, had)
	same := func(a, b Trial) bool { return a.Cell == b.Cell && a.Block == b.Block }
	if order != 5 || !slices.EqualFunc(rest, all[5:], same) {
		t.Errorf("%d trials after %d", len(rest), order)
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Plan){
		"variant":            func(p *Plan) { p.Variants = []string{"haproxy@1s"} },
		"twice":              func(p *Plan) { p.Faults = []string{"link", "link"} },
		"unknown fault":      func(p *Plan) { p.Faults = []string{"flood"} },
		"at least one":       func(p *Plan) { p.Faults = nil },
		"trials":             func(p *Plan) { p.Trials = 0 },
		"requests/s":         func(p *Plan) { p.Rate = 0 },
		"a probe each":       func(p *Plan) { p.Probe = 0 },
		"idle connections":   func(p *Plan) { p.Idle = -1 },
		"nothing to measure": func(p *Plan) { p.Variants, p.Faults = []string{"keepalived@1s"}, []string{"planned"} },
		"servers":            func(p *Plan) { p.Servers = 0 },
	} {
		p := DefaultPlan()
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want something about %s", err, want)
		}
	}
}

// Directors' files differ in what has to differ.
func TestConfig(t *testing.T) {
	v := Variant{Process: "imbang", Interval: 50 * time.Millisecond}
	a, b := imbangConfig(v, first, []string{"172.16.0.2"}, "/key"), imbangConfig(v, second, []string{"172.16.0.2"}, "/key")
	for _, want := range []string{"interval: 50ms", "priority: 150", "listen: 192.168.78.1, to: [192.168.78.2]", "addresses: [10.20.0.1/32]", "{address: 172.16.0.1/24, device: int0}"} {
		if !strings.Contains(a, want) {
			t.Errorf("no %q in\n%s", want, a)
		}
	}
	if !strings.Contains(b, "priority: 100") || !strings.Contains(b, "listen: 192.168.78.2, to: [192.168.78.1]") {
		t.Error(b)
	}
	v.NoSync = true
	if text := imbangConfig(v, first, nil, ""); strings.Contains(text, "synchronization") {
		t.Error(text)
	}
	v.Process = "keepalived"
	if text := imbangConfig(v, first, nil, ""); strings.Contains(text, "vrrp") {
		t.Error(text)
	}
	if text := keepalivedConfig(v, second); !strings.Contains(text, "advert_int 0.05\n") || !strings.Contains(text, "priority 100") {
		t.Error(text)
	}
}

func TestExpectedTimes(t *testing.T) {
	for _, f := range faults {
		slow, fast := Expected(Cell{"imbang@1s", f.Name}), Expected(Cell{"imbang@10ms", f.Name})
		if fast < setup || slow <= fast || slow > 2*time.Minute {
			t.Errorf("%s: %v at 1 s, %v at 10 ms", f.Name, slow, fast)
		}
	}
}
