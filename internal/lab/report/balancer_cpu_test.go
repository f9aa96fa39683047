// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
	"time"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
)

const withForwarding = "  - {engine: nftables, schedulers: [rr]}\n  - {engine: haproxy-tcp, schedulers: [roundrobin]}\n  - {engine: direct, servers: [3]}"

// withWork is a run whose machine worked so long for a cell [ms of each block].
func withWork(t *testing.T, competitors string, work func(c record.Cell, block int) time.Duration, change func(*record.Sample)) *Report {
	t.Helper()
	run := made{load: "rates: [1000], duration: 2 s", competitors: competitors, blocks: 7, result: func(c record.Cell, block int) *load.Result {
		r := clean(c, 1, 5, 1)
		r.Generator.Connections = 2000
		return r
	}}.run(t)
	for i := range run.Samples {
		s := &run.Samples[i]
		s.CPU.MachineNS = work(s.Cell, s.Block)
		if change != nil {
			change(s)
		}
	}
	rep, err := New(run)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// byEngine is work that drifts from block to block in the same way for all.
func byEngine(c record.Cell, block int) time.Duration {
	return time.Duration(100*block)*time.Millisecond + map[string]time.Duration{
		"direct": 200 * time.Millisecond, "nftables": 220 * time.Millisecond, "haproxy-tcp": 300 * time.Millisecond,
	}[c.Engine]
}

func balancing(rep *Report) map[string]stats.Summary {
	all := map[string]stats.Summary{}
	for _, c := range rep.Sections[0].Rows[0].Cells {
		all[c.Name] = c.Values[balancerCPU.Key].Summary
	}
	return all
}

// The drift of the machine goes with the subtraction within a block.
func TestCPUOfBalancing(t *testing.T) {
	got := balancing(withWork(t, withForwarding, byEngine, nil))
	for name, want := range map[string]float64{"nftables rr": 10, "haproxy-tcp roundrobin": 50} {
		if s := got[name]; s.N != 7 || s.Min != want || s.Max != want {
			t.Errorf("%s: %+v, want %g us in each of 7 blocks", name, s, want)
		}
	}
	if s := got["direct"]; s.N != 0 {
		t.Errorf("plain forwarding balances nothing: %+v", s)
	}
}

// A block without a good sample of plain forwarding has no figure.
func TestCPUOfBalancingWithoutForwarding(t *testing.T) {
	for name, spoil := range map[string]func(*record.Sample){
		"lost":       func(s *record.Sample) { s.Load.Loss.Timeout = 1 },
		"error page": func(s *record.Sample) { s.Load.Status.Success-- },
		"failed":     func(s *record.Sample) { s.Error, s.Load = "no such device", nil },
		"old":        func(s *record.Sample) { s.CPU.MachineNS = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			rep := withWork(t, withForwarding, byEngine, func(s *record.Sample) {
				if s.Engine == forwarder && s.Block <= 3 {
					spoil(s)
				}
			})
			if s := balancing(rep)["nftables rr"]; s.N != 4 {
				t.Errorf("%d figures of 7 blocks, want 4", s.N)
			}
		})
	}
}

func TestWhyCPUOfBalancingIsMissing(t *testing.T) {
	const competitors = "  - {engine: nftables, schedulers: [rr, random]}"
	wants(t, text(t, withWork(t, competitors, byEngine, nil)),
		"CPU of balancing has no figure: plain forwarding (engine direct) is not among the competitors.")
	wants(t, text(t, withWork(t, withForwarding, byEngine, func(s *record.Sample) {
		if s.Engine == forwarder {
			s.Load.Loss.Refused = 3
		}
	})), "CPU of balancing has no figure: plain forwarding (engine direct) lost requests under every condition.")
	const toOne = "  - {engine: nftables, schedulers: [rr]}\n  - {engine: direct}"
	one := withWork(t, toOne, byEngine, nil)
	if s := balancing(one)["nftables rr"]; s.N != 0 {
		t.Errorf("less plain forwarding to one server: %+v", s)
	}
	wants(t, text(t, one), "CPU of balancing has no figure: plain forwarding (engine direct) had another number of servers than every competitor.")
	none := func(record.Cell, int) time.Duration { return 0 }
	if got := text(t, withWork(t, competitors, none, nil)); strings.Contains(got, "CPU of balancing") {
		t.Errorf("a run stored before the machine's work was measured: %s", got)
	}
}

// Of two plain forwardings, that to all servers is subtracted.
func TestForwardingUnderTheSameLoad(t *testing.T) {
	rep := withWork(t, withForwarding+"\n  - {name: one server, engine: direct}", func(c record.Cell, block int) time.Duration {
		if c.Name == "one server" {
			return time.Millisecond
		}
		return byEngine(c, block)
	}, nil)
	if s := balancing(rep)["nftables rr"]; s.Median != 10 {
		t.Errorf("%+v, want 10 us", s)
	}
}

func TestSaturatedMachine(t *testing.T) {
	for busy, want := range map[float64]int{0.97: 0, 0.99: 1} {
		rep := withWork(t, withForwarding, byEngine, func(s *record.Sample) {
			if s.Engine == "haproxy-tcp" {
				s.CPU.MachineBusy = busy
			}
		})
		if n := len(rep.Caveats); n != want {
			t.Errorf("busy %g: %+v, want %d", busy, rep.Caveats, want)
		}
	}
}
