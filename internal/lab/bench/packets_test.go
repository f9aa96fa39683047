// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"imbang/internal/director/testrun"
	"imbang/internal/testenv"
)

// Each case is measured, and nothing costs nothing.
func TestPackets(t *testing.T) {
	testenv.Root(t)
	done := 0
	r, err := Packets(t.Context(), PacketsConfig{
		Measures: []string{fewEstablished, fewNew}, Schedulers: []string{"wlc"}, Servers: []int{2}, Flows: []int{8}, Packets: 2000, Rounds: 2,
		Progress: func(n, all int) { done = n * 10 / all },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Established) != 3 || len(r.New) != 2 || r.Making.N != 10 || done != 10 {
		t.Fatalf("%+v, progress %d of 10", r, done)
	}
	for _, c := range append(r.Established, r.New...) {
		if c.NS.N != 2 || c.NS.Max <= 0 {
			t.Errorf("%+v", c)
		}
	}
}

// Each case of many addresses is measured, whatever its size, and what XDP does not send
// is marked.
func TestPacketsTraffic(t *testing.T) {
	testenv.Root(t)
	const rounds, most = 2, 16
	measures := PacketMeasures()[2:]
	if _, err := usableCPUs(2); err != nil {
		measures = slices.DeleteFunc(measures, func(m string) bool { return m == byContention })
	}
	c := PacketsConfig{Measures: measures, Packets: 1000, Rounds: rounds, Most: most}
	want, steps, all := 0, 0, 0
	for _, g := range c.groups() {
		want += len(trafficPaths) * len(g)
	}
	c.Progress = func(n, of int) { steps, all = n, of }
	r, err := Packets(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Traffic) != want || len(r.Missing) > 0 || steps != all || all == 0 {
		t.Errorf("%d rows, want %d; missing %q; progress %d of %d", len(r.Traffic), want, r.Missing, steps, all)
	}
	cost := 0
	for _, row := range r.Traffic {
		if row.NS.N != rounds {
			t.Errorf("%+v", row)
		}
		if row.NS.Max > 0 {
			cost++
		}
		if row.Passed && row.Path != "xdp" {
			t.Errorf("%+v is passed on", row)
		}
		if !slices.Contains(measures, row.Measure) || row.Flows > most || row.Addresses > most || row.Services > most || row.Servers > most {
			t.Errorf("%+v: too many", row)
		}
	}
	// Samples are so small that noise may exceed what some cost.
	if cost < want/2 {
		t.Errorf("%d of %d rows cost anything", cost, want)
	}
}

// Another build is measured in the same rounds. Its program ends with this one's.
func TestPacketsAgainst(t *testing.T) {
	testenv.Root(t)
	lab := filepath.Join(t.TempDir(), "imbang-lab")
	if out, err := exec.Command("go", "build", "-o", lab, "imbang/cmd/imbang-lab").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const rounds = 2
	r, err := Packets(t.Context(), PacketsConfig{Measures: []string{manyServices}, Packets: 1000, Rounds: rounds, Most: 16, Against: lab})
	if err != nil {
		t.Fatal(err)
	}
	if r.Other == nil || r.Other.Version == "" || len(r.Traffic) != 4 {
		t.Fatalf("%+v", r)
	}
	for _, row := range r.Traffic {
		if row.Other == nil || row.Other.N != rounds || row.Over == nil || row.Within == nil {
			t.Errorf("%+v", row)
		}
	}
	if _, err := Packets(t.Context(), PacketsConfig{Measures: []string{manyServices}, Packets: 1000, Rounds: 1, Most: 16, Against: "/bin/false"}); err == nil {
		t.Error("a program that is no imbang-lab takes part")
	}
}

// Orders of another build that are not understood are not taken for others.
func TestServePackets(t *testing.T) {
	for orders, want := range map[string]string{
		"":                                 "",
		"{}\n":                             "",
		`{"site":0,"path":"tc"}` + "\n":    "case 0 is not open",
		`{"site":0,"colour":"red"}` + "\n": "colour",
	} {
		var answers bytes.Buffer
		err := ServePackets(strings.NewReader(orders), &answers)
		in := json.NewDecoder(&answers)
		var first, second packetsAnswer
		if in.Decode(&first) != nil || first.Build == nil {
			t.Errorf("%q: no build", orders)
		}
		_ = in.Decode(&second) // without an order there is none
		got := second.Error
		if err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", orders, got, want)
		}
	}
}

// The cases are those of the measures, and numbers that scenes want as powers of two are.
func TestPacketGroups(t *testing.T) {
	power := func(n int) bool { return n > 0 && n&(n-1) == 0 }
	for _, most := range []int{0, 16, 1 << 10} {
		c := PacketsConfig{Measures: PacketMeasures(), Packets: 20000, Most: most}
		seen := map[string]bool{}
		for _, g := range c.groups() {
			for _, one := range g {
				seen[one.Measure] = true
				if one.Flows > 0 && !power(one.Flows) || !power(one.Addresses) || !power(one.Services) || one.Connections < 1 || one.Packets < 1 || one.CPUs < 1 {
					t.Errorf("%+v", one)
				}
				if one.Filled > 0 && one.Packets > 1 && one.Packets*c.openingRounds() > one.Connections/50 {
					t.Errorf("%+v fills more than 2 %%", one)
				}
				if forwards[one.Forward].String() == "" || families[one.Family] == 0 {
					t.Errorf("%+v: no method or family", one)
				}
			}
		}
		for _, m := range PacketMeasures()[2:] {
			if !seen[m] {
				t.Errorf("most %d: no case of %s", most, m)
			}
		}
	}
}

// Rows of a group are compared round by round; with another build, with their targets.
func TestPacketTargets(t *testing.T) {
	nine := func(ns float64) (list []float64) {
		for i := range 9 {
			list = append(list, ns+float64(i)/100)
		}
		return list
	}
	row := func(k PacketKind, path string, ns, other float64, passed bool) TrafficCost {
		tr := &trafficRun{builds: []packetsBuild{&ownBuild{}, &ownBuild{}}}
		tr.conclude(packetCase{PacketKind: k}, slices.IndexFunc(trafficPaths, func(p trafficPath) bool { return p.name == path }), func(build int) (list []packetRound) {
			for _, v := range nine([]float64{ns, other}[build]) {
				list = append(list, packetRound{NS: v, Passed: passed})
			}
			return list
		})
		return tr.result[0]
	}
	var rows []TrafficCost
	for path, worse := range map[string]float64{"tc": 1, "xdp": 2} {
		rows = append(rows,
			row(PacketKind{Measure: byFill}, path, 1000, 1000, false),
			row(PacketKind{Measure: byFill, Filled: 95}, path, 1050*worse, 1000, false),
			row(PacketKind{Measure: byContention, CPUs: 1}, path, 1000, 1000, false),
			row(PacketKind{Measure: byContention, CPUs: 2}, path, 1050*worse, 1000, false),
			row(PacketKind{Measure: byDirect, Traffic: requests, Flows: 1, Addresses: 1}, path, 40, 100, path == "xdp"))
	}
	met := map[string]bool{}
	for _, target := range append(relativeTargets(rows), shareTargets(rows)...) {
		met[target.Name] = target.Met
	}
	want := map[string]bool{
		"new connection, wlc, a table 95 % full over an empty one, tc":  true,
		"new connection, wlc, a table 95 % full over an empty one, xdp": false,
		"new connections of two CPUs at once over one, tc":              true,
		"new connections of two CPUs at once over one, xdp":             false,
		"direct, requests, tc, 1 flows, share of the other build":       true,
		"direct, requests, xdp, 1 flows, share of the other build":      false, // passed on
	}
	if len(met) != len(want) {
		t.Errorf("%v", met)
	}
	for name, is := range want {
		if got, there := met[name]; !there || got != is {
			t.Errorf("%s: met %t (%t), want %t", name, got, there, is)
		}
	}
}

// Frames are whole packets with right checksums, of both families.
func TestPacketsFrame(t *testing.T) {
	for _, n := range benchNetworks {
		from, to := netip.AddrPortFrom(n.firstAddress(packetsClients), 1024), netip.AddrPortFrom(n.service.Addr(), packetsPort)
		f := packetsFrame(from, to, flagSYN)
		if len(f) != testrun.PacketLoopBytes {
			t.Fatalf("%d bytes", len(f))
		}
		if got := destination(f); got != to.Addr() {
			t.Errorf("to %s, want %s", got, to.Addr())
		}
		header := 20
		if to.Addr().Is6() {
			header = 40
		} else if checksum(f[etherHeader:][:header]) != 0 {
			t.Errorf("wrong checksum: %x", f)
		}
		tcp := f[etherHeader+header:]
		pseudo := slices.Concat(from.Addr().AsSlice(), to.Addr().AsSlice(), []byte{0, 6, 0, byte(len(tcp))}, tcp)
		if checksum(pseudo) != 0 || binary.BigEndian.Uint16(tcp[2:]) != packetsPort || tcp[13] != flagSYN {
			t.Errorf("wrong: %x", f)
		}
	}
}
