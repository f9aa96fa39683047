// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"imbang/internal/host"
	"imbang/internal/lab/probe"
	"imbang/internal/lab/server"
	"imbang/internal/lab/stats"
	"imbang/internal/testenv"
)

// built is the program, built for a test.
func built(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "imbang")
	if out, err := exec.Command("go", "build", "-o", path, "imbang/cmd/imbang").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// left lists this process's namespaces.
func left(t testing.TB) (names []string) {
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), fmt.Sprintf("%s-%d-", prefix, os.Getpid())) {
			names = append(names, e.Name())
		}
	}
	return names
}

// Every cell is measured, every packet arrives, at a server, and nothing stays. Queues of the kernel overflow
// if the machine stalls.
func TestFlood(t *testing.T) { testenv.Patient(t, everyPacketArrives) }

func everyPacketArrives(t testing.TB) {
	testenv.Root(t)
	const flows, packets, rounds = 300, 4000, 2 // pages come back
	executable := built(t)
	for once, run := range map[bool]struct {
		schedulers, competitors, traffic []string
		cells                            int // with the directors that do nothing, samples of a round
	}{
		false: {[]string{"mh"}, []string{plain, viaXDP}, FloodTraffic(), 3 * 4},
		true:  {[]string{"rr"}, []string{plain, viaTC}, fewTraffics, 3},
	} {
		steps := 0
		r, err := Flood(t.Context(), FloodConfig{
			Competitors: run.competitors, Traffic: run.traffic, Schedulers: run.schedulers, Servers: []int{5},
			Flows: flows, Packets: packets, Rounds: rounds, LoadOnce: once, Executable: executable, Note: "a test",
			Progress: func(done, all int) {
				if steps++; done != steps || all != rounds*run.cells {
					t.Errorf("progress %d of %d in step %d", done, all, steps)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{false: 4 * len(FloodTraffic()), true: 3 * len(fewTraffics)}[once]; len(r.Costs) != want || len(r.Missing) > 0 || r.FrameBytes != 60 || r.Limits.Imbang == 0 {
			t.Errorf("%+v", r)
		}
		for _, c := range r.Costs {
			want := uint64(rounds * packets)
			opens := c.Traffic == newFlows || c.Traffic == floodOpening
			if opens {
				want = rounds * (flows - 1)
			}
			if c.Sent != want || c.Arrived != want || c.NS.N != rounds || c.Own.N != rounds {
				t.Errorf("%+v, want %d packets", c, want)
			}
			// So few packets of new connections that noise may exceed what they cost.
			if !opens && c.NS.Min <= 0 {
				t.Errorf("%+v: packets cost nothing", c)
			}
			if replied := c.Traffic == floodReplies; replied != (c.Servers == 1) {
				t.Errorf("%+v: replies are one server's", c)
			}
			if c.Over[plain].N != rounds && strings.HasPrefix(c.Competitor, "imbang") {
				t.Errorf("%+v is not compared", c)
			}
		}
	}
	if now := left(t); len(now) > 0 {
		t.Errorf("left behind: %v", now)
	}
}

// What is sent are the clients' datagrams, flow by flow, to each target in
// rotation.
func TestFloodFrames(t *testing.T) {
	testenv.Root(t)
	for name, c := range map[string]struct{ targets, flows, at, n int }{
		"the first flow":                {1, 1, 0, 30},
		"of the first flow to targets":  {3, 1, 0, 30},
		"all in rotation, twice":        {3, 20, 0, 40},
		"begins anew after the last":    {1000, 50000, 49990, 64},
		"the next port":                 {1, 1 << 20, 1<<15 - 5, 10},
		"a place behind the last":       {2, 7, 17, 64},
		"addresses beyond the last 256": {60000, 1 << 16, 59990, 20},
		"the next port of fewer":        {1, 1 << 20, 1<<14 - 5, 10},
	} {
		t.Run(name, func(t *testing.T) {
			f := &flood{network: benchNetworks[4]}
			st, err := newStage(f.network)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "fewer") {
				st.part.bits = manyBits
			}
			defer func() {
				if err := errors.Join(st.undrop(), st.close()); err != nil {
					t.Error(err)
				}
			}()
			for _, a := range f.network.servers(c.targets) {
				st.targets = append(st.targets, netip.AddrPortFrom(a, server.Port))
			}
			for _, idle := range competitors[:2] {
				if err := st.drop(idle); err != nil {
					t.Fatal(err)
				}
				frames := emitted(t, f, st, c.flows, c.at, c.n)
				if len(frames) != c.n {
					t.Fatalf("%s: %d frames arrive, want %d", idle.name, len(frames), c.n)
				}
				for i, got := range frames {
					flow := (c.at + i) % c.flows
					d := f.datagrams(st.targets[flow%c.targets])
					d.bits = st.part.bits
					if want := d.frame(flow); !bytes.Equal(got, want) {
						t.Errorf("%s: frame %d is %x, want %x", idle.name, i, got, want)
					}
				}
				if err := st.undrop(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Replies go to one client after the other, and of a mix one frame of ten is long.
func TestFloodReplies(t *testing.T) {
	testenv.Root(t)
	const flows, at, n = 1 << 20, 1<<14 - 20, 40
	f := &flood{network: benchNetworks[4], FloodConfig: FloodConfig{Flows: flows}}
	st, err := newStage(f.network)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(st.undrop(), st.close()); err != nil {
			t.Error(err)
		}
	}()
	st.part, st.replying = floodPart{bits: manyBits, replies: true}, true
	st.servers, st.targets = f.network.servers(1), []netip.AddrPort{f.network.service}
	from := netip.AddrPortFrom(st.servers[0], server.Port)
	if err := st.inside.SetOffload(benchServerDev, host.GRO, true); err != nil {
		t.Fatal(err)
	}
	for _, idle := range competitors[:2] {
		if err := st.drop(idle); err != nil {
			t.Fatal(err)
		}
		err := f.sending(st, func(e *probe.Emitter) error {
			e.Mix(largeFrame)
			return e.Send(t.Context(), flows, at, n)
		})
		if err == nil {
			_, err = st.arrived()
		}
		if err != nil {
			t.Fatal(err)
		}
		frames, err := st.sink.Frames()
		if err != nil || len(frames) != n {
			t.Fatalf("%s: %d frames arrive, want %d: %v", idle.name, len(frames), n, err)
		}
		long := 0
		for i, got := range frames {
			d := f.datagrams(f.network.service)
			d.bits = manyBits
			if d.payload = int(binary.BigEndian.Uint16(got[etherHeader+2:])) - 20 - udpHeader; d.payload > floodPayload {
				long++
			}
			// The sink keeps so many bytes of each.
			if want := d.reply(from, at+i); !bytes.Equal(got, want[:len(got)]) {
				t.Errorf("%s: frame %d is %x, want %x", idle.name, i, got, want[:len(got)])
			}
		}
		if long != n/10 {
			t.Errorf("%s: %d of %d frames are long", idle.name, long, n)
		}
		if err := errors.Join(f.everyone(st), st.undrop()); err != nil {
			t.Fatal(err)
		}
	}
}

// Another build takes part beside the counterparts that were asked for.
func TestFloodAgainst(t *testing.T) {
	f := &flood{FloodConfig: FloodConfig{Competitors: []string{plain, viaTC}, Executable: "mine", Against: "theirs"}}
	var names []string
	for _, c := range f.field() {
		if f.asked(c) {
			names = append(names, c.name+" "+f.executable(c))
		}
	}
	if want := []string{"plain mine", "imbang-tc mine", "other-tc theirs"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// emitted are the frames that arrive of those that are sent.
func emitted(t *testing.T, f *flood, st *stage, flows, at, n int) (frames [][]byte) {
	err := st.outside.Do(func() error {
		e, err := f.emitter(st)
		if err != nil {
			return err
		}
		return errors.Join(e.Send(t.Context(), flows, at, n), e.Close())
	})
	if err == nil {
		_, err = st.arrived()
	}
	if err == nil {
		frames, err = st.sink.Frames()
	}
	if err != nil {
		t.Fatal(err)
	}
	return frames
}

// A competitor that cannot take part is named, with the reason.
func TestFloodWithout(t *testing.T) {
	f := &flood{FloodConfig: FloodConfig{Competitors: []string{plain, viaXDP, nftables}, Traffic: fewTraffics, Schedulers: []string{"mh"}, Executable: "/bin/echo"}}
	list, err := f.present(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.name == viaXDP || c.name == noopXDP {
			t.Errorf("%s takes part", c.name)
		}
	}
	if all := strings.Join(f.result.Missing, "; "); !strings.Contains(all, "no option --mode") || !strings.Contains(all, "nftables: ") {
		t.Errorf("missing: %s", all)
	}
}

// Own costs and ratios are of the same round.
func TestFloodCosts(t *testing.T) {
	f := &flood{FloodConfig: FloodConfig{Traffic: fewTraffics, Schedulers: []string{"rr"}, Servers: []int{3}, Flows: 10}, samples: map[floodCell][]measuredFlood{}}
	var list []competitor
	for name, ns := range map[string][]float64{noop: {100, 1000, 10}, plain: {300, 1400, 20}, viaTC: {200, 1800, 15}} {
		for _, c := range competitors {
			if c.name == name {
				list = append(list, c)
			}
		}
		for _, traffic := range fewTraffics {
			cell := floodCell{setting{"rr", 3}, name, traffic}
			for _, v := range ns {
				f.samples[cell] = append(f.samples[cell], measuredFlood{v, 10, 9})
			}
		}
	}
	f.conclude(list)
	if len(f.result.Costs) != 9 {
		t.Fatalf("%+v", f.result.Costs)
	}
	got := f.result.Costs[2]
	if got.Competitor != viaTC || got.Own != stats.Summarize([]float64{100, 800, 5}) || got.Over[plain] != stats.Summarize([]float64{0.5, 2, 0.5}) ||
		got.Sent != 30 || got.Arrived != 27 || len(got.Over) != 1 {
		t.Errorf("%+v", got)
	}
	if none := f.result.Costs[0]; none.Competitor != noop || none.Own.Max != 0 || len(none.Over) != 0 {
		t.Errorf("%+v", none)
	}
}

// Both sides of a ratio have the same taken off; own costs have their own base.
func TestFloodRatios(t *testing.T) {
	ns := map[string]float64{noop: 100, noopXDP: 40, plain: 300, nftFlow: 350, nftables: 700, ipvs: 500, viaTC: 200, viaXDP: 105}
	for _, c := range []struct {
		name string
		own  float64
		over map[string]float64
	}{
		{plain, 200, map[string]float64{nftFlow: 200. / 250, nftables: 200. / 600, ipvs: 200. / 400}},
		{nftables, 600, map[string]float64{nftFlow: 600. / 250, plain: 600. / 200, ipvs: 600. / 400}},
		{viaTC, 100, map[string]float64{nftFlow: 100. / 250, plain: 100. / 200, nftables: 100. / 600, ipvs: 100. / 400}},
		{viaXDP, 65, map[string]float64{nftFlow: 65. / 310, plain: 65. / 260, nftables: 65. / 660, ipvs: 65. / 460}},
		{noop, 0, map[string]float64{}},
		{noopXDP, 0, map[string]float64{}},
	} {
		f := &flood{FloodConfig: FloodConfig{Traffic: fewTraffics, Flows: 10}, samples: map[floodCell][]measuredFlood{}}
		known := map[string]competitor{}
		for _, one := range competitors {
			known[one.name] = one
			f.samples[floodCell{setting{"rr", 3}, one.name, oneFlow}] = []measuredFlood{{ns: ns[one.name]}}
		}
		got := f.cost(floodCell{setting{"rr", 3}, c.name, oneFlow}, known, f.parts()[0])
		if got.Own.Median != c.own || len(got.Over) != len(c.over) {
			t.Errorf("%s: %+v", c.name, got)
		}
		for other, want := range c.over {
			if got.Over[other].Median != want {
				t.Errorf("%s over %s is %v, want %v", c.name, other, got.Over[other].Median, want)
			}
		}
	}
}

// What arrives is read as it is, and what is broken is found so.
func TestReadDatagram(t *testing.T) {
	d := benchNetworks[4].datagrams(netip.MustParseAddrPort("172.16.0.10:80"))
	d.payload = floodPayload
	frame := d.frame(40000)
	if src, dst, err := readDatagram(frame); err != nil || src != d.client(40000) || dst != d.to {
		t.Errorf("from %s to %s, %v", src, dst, err)
	}
	for at := etherHeader; at < len(frame); at++ {
		bad := append([]byte(nil), frame...)
		bad[at] ^= 1
		if _, _, err := readDatagram(bad); err == nil {
			t.Errorf("byte %d changed, nobody saw", at)
		}
	}
}

// A stopwatch sees work and not sleep of others; here, that there is none
// counts nothing but what passed.
func TestStopwatch(t *testing.T) {
	w, err := newStopwatch()
	if err != nil {
		t.Fatal(err)
	}
	x := 1.0
	took, err := w.time(func() error {
		for range 20_000_000 {
			x = math.Sqrt(x + 1)
		}
		return nil
	})
	if err != nil || took <= 0 || x < 1 {
		t.Errorf("%s, %v", took, err)
	}
}
