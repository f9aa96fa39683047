// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/topology"
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
	if all := sort(p.Cells()); len(all) != 5*len(faults)+2*(len(faults)-3)+2*(len(faults)-4) || !slices.Equal(sort(a), all) || !slices.Equal(sort(b), all) {
		t.Error("a block does not have every cell once")
	}
}

// Faults happen at any time within an interval.
func TestPhase(t *testing.T) {
	p := DefaultPlan()
	least, most := time.Hour, time.Duration(0)
	for block := 1; block <= 100; block++ {
		d := p.phase(block, Cell{"imbang@50ms", "freeze", plain})
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
		"no daemon":          func(p *Plan) { p.Variants, p.Faults = []string{"linux@1s"}, []string{"daemon"} },
		"servers":            func(p *Plan) { p.Servers = 0 },
		"is not among":       func(p *Plan) { p.UpgradeTo, p.Faults = "/usr/sbin/imbang", []string{"link"} },
		"one on each side":   func(p *Plan) { p.Servers = 1 },
		"each side":          func(p *Plan) { p.EachSide = 10001 },
		"opened a second":    func(p *Plan) { p.OpenRate = 1 },
		"unknown method":     func(p *Plan) { p.Methods = []string{"proxy"} },
		"listed twice":       func(p *Plan) { p.Methods = []string{"direct", "direct"} },
		"want ipv4":          func(p *Plan) { p.Families = []topology.Family{"4"} },
		"and one method":     func(p *Plan) { p.Methods = nil },
	} {
		p := DefaultPlan()
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want something about %s", err, want)
		}
	}
}

func TestEnough(t *testing.T) {
	p := DefaultPlan()
	if err := p.enough(20000); err != nil {
		t.Error(err)
	}
	p.Idle = 20000
	if err := p.enough(20000); err == nil || !strings.Contains(err.Error(), "ulimit -Hn 22220") {
		t.Errorf("%v, want what would be enough", err)
	}
}

// With families and methods each variant has every one of them, and a fault of its own time.
func TestCells(t *testing.T) {
	p := DefaultPlan()
	p.Variants, p.Faults, p.Families, p.Methods = []string{"imbang@50ms", "keepalived@1s", "linux@1s"}, []string{"link", "planned"}, topology.Families, Methods
	cells := p.Cells()
	if len(cells) != 24 { // keepalived has no planned moves
		t.Errorf("%d cells: %s", len(cells), cells)
	}
	// Those of a place come together in a block, which changes nothing with one place.
	block := p.Block(1)
	for i := range block[1:] {
		if block[i].place() != block[i+1].place() && slices.ContainsFunc(block[i+1:], func(c Cell) bool { return c.place() == block[i].place() }) {
			t.Errorf("%v comes twice in %s", block[i].place(), block)
		}
	}
	for _, c := range cells {
		if slices.Index(cells, c) != slices.IndexFunc(cells, func(other Cell) bool { return other.String() == c.String() }) {
			t.Errorf("two cells are called %s", c)
		}
	}
}

// Directors' files differ in what has to differ.
func TestConfig(t *testing.T) {
	v := Variant{Process: "imbang", Interval: 50 * time.Millisecond}
	c := configuration{variant: v, setting: plain, servers: []string{"172.16.0.2", "172.16.0.3"}, keyFile: "/key"}
	a := c.imbang()
	c.director = second
	b := c.imbang()
	for _, want := range []string{
		"interval: 50ms", "priority: 150", "listen: 192.168.78.1, to: [192.168.78.2]", `addresses: ["10.20.0.1/32"]`,
		`{address: "172.16.0.1/24", device: int0}`, `virtual: "10.20.0.1:7", scheduler: rr, forward: masquerading, servers: [{address: "172.16.0.2"}, {address: "172.16.0.3"}]`,
	} {
		if !strings.Contains(a, want) {
			t.Errorf("no %q in\n%s", want, a)
		}
	}
	if !strings.Contains(b, "priority: 100") || !strings.Contains(b, "listen: 192.168.78.2, to: [192.168.78.1]") {
		t.Error(b)
	}
	if text := c.keepalived(); !strings.Contains(text, "advert_int 0.05\n") || !strings.Contains(text, "priority 100") || !strings.Contains(text, "    172.16.0.1/24 dev int0\n") {
		t.Error(text)
	}

	// Servers that reply directly have no gateway that moves.
	c.setting, c.sides, c.servers = Setting{topology.IPv6, direct}, true, []string{"fd00:16::2", "fd00:16::3"}
	text := c.imbang()
	for _, want := range []string{
		`addresses: ["fd00:20::1/128"]`, `virtual: "[fd00:20::1]:80", scheduler: rr, forward: direct-routing`,
		`virtual: "[fd00:20::1]:8", scheduler: rr, forward: direct-routing, servers: [{address: "fd00:16::2"}]`,
		`virtual: "[fd00:20::1]:9", scheduler: rr, forward: direct-routing, servers: [{address: "fd00:16::3"}]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text+c.keepalived(), "fd00:16::1") {
		t.Error(text, c.keepalived())
	}
	c.variant.NoSync = true
	if text := c.imbang(); strings.Contains(text, "synchronization") {
		t.Error(text)
	}
	c.variant.Process = "keepalived"
	if text := c.imbang(); strings.Contains(text, "vrrp") {
		t.Error(text)
	}
}

func TestExpectedTimes(t *testing.T) {
	for _, f := range faults {
		slow, fast := DefaultPlan().Expected(Cell{"imbang@1s", f.Name, plain}), DefaultPlan().Expected(Cell{"imbang@10ms", f.Name, plain})
		if fast < setup || slow <= fast || slow > 2*time.Minute {
			t.Errorf("%s: %v at 1 s, %v at 10 ms", f.Name, slow, fast)
		}
	}
}
