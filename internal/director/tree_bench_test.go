// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// BenchmarkTrees measures what a service's tree saves: the median time of a new
// connection with it and by a walk over the list, in interleaved rounds. Metrics
// are ns of a connection (tree-ns, walk-ns), and the ratio of the medians. Run
// it with -benchtime 1x.
func BenchmarkTrees(b *testing.B) {
	const rounds = 21
	r := newRig(b, Sizes{Services: 256, Servers: 1 << 15, Connections: 1 << 19})
	var loop PacketLoop
	r.must(r.ns.Do(func() (err error) {
		loop, err = NewPacketLoop(r.Director, clientDev, serverDev)
		return err
	}))
	defer loop.Close()
	weights := map[string]func(middle bool) int32{
		"equal": func(bool) int32 { return 1 },
		"one usable": func(middle bool) int32 {
			if middle {
				return 1
			}
			return 0
		},
	}
	service, client := 0, uint32(0x0a0a0002)
	for _, list := range []struct {
		name             string // of its weights
		servers, packets int
	}{
		{"equal", 3, 1024}, {"equal", 9, 1024}, {"equal", 12, 1024}, {"equal", 16, 1024}, {"equal", 24, 1024}, {"equal", 100, 1024},
		{"one usable", 3, 1024}, {"one usable", 9, 1024}, {"one usable", 12, 1024}, {"one usable", 16, 1024},
		{"one usable", 24, 1024}, {"one usable", 100, 1024}, {"one usable", 10_000, 32},
	} {
		for _, scheduler := range []string{"rr", "wrr", "lc", "wlc", "sed", "nq", "fo", "ovf"} {
			b.Run(fmt.Sprintf("%s/%d/%s", list.name, list.servers, scheduler), func(b *testing.B) {
				r := r.in(b)
				vip := nthVIP(service)
				s := tcpService(vip, scheduler)
				service++
				r.must(r.AddService(s), r.Batch(func() error {
					for i := range list.servers {
						r.must(r.AddServer(s.Key, treeServer(i, weights[list.name](i == list.servers/2))))
					}
					return nil
				}))
				frame := testenv.TCP(client1, vip, "S").Frame()
				frame = append(frame, make([]byte, PacketLoopBytes-len(frame))...)
				var took [2][]float64 // without, with
				for round := range 2 * (rounds*b.N + 1) {
					with := round % 2
					r.plantTree(s.Key, with == 1)
					flows := 1
					for flows < list.packets {
						flows *= 2
					}
					r.must(loop.Scene(frame, client, flows))
					client += uint32(flows)
					var each time.Duration
					r.must(r.ns.Do(func() (err error) {
						each, _, err = loop.Times(flows, FromHere)
						return err
					}))
					if round >= 2 { // the first ones warm up
						took[with] = append(took[with], float64(each.Nanoseconds()))
					}
				}
				median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
				walk, tree := median(took[0]), median(took[1])
				b.ReportMetric(walk, "walk-ns")
				b.ReportMetric(tree, "tree-ns")
				b.ReportMetric(tree/walk, "tree/walk")
				b.ReportMetric(0, "ns/op")
				r.must(r.DeleteService(s.Key))
			})
		}
	}
}

// plantTree builds a service's tree anew, or takes it away.
func (r *rig) plantTree(k model.ServiceKey, there bool) {
	r.Helper()
	t, err := r.load()
	r.must(err)
	svc := t.services[toKey(k)]
	r.must(r.finish(r.changed(*svc, bpfobj.LbChangeEventCHANGE_UNKNOWN, 0)))
	var state bpfobj.LbServiceState
	r.must(r.maps.ServiceStates.Lookup(svc.Id, &state))
	if state.Tree.Tag == 0 {
		r.Skipf("%s has no tree", k)
	}
	if !there {
		state.Tree.Tag = 0
		r.must(r.maps.ServiceStates.Put(svc.Id, state))
	}
}
