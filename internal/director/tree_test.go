// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The tree by which schedulers find a server among many (bpf/sched/tree.h).

// cost is what a server costs by a scheduler's rule: load / weight.
type cost struct{ load, weight int64 }

func (a cost) less(b cost) bool { return a.load*b.weight < b.load*a.weight }

func costOf(rule bpfobj.LbScheduler, s bpfobj.LbServer, l bpfobj.LbLoad) cost {
	never := cost{1, 0}
	active, weight := int64(l.Active), int64(s.Weight)
	if weight == 0 || overloaded(l) {
		return never
	}
	switch rule {
	case bpfobj.LbSchedulerSCHED_LC:
		return cost{256*active + int64(l.Inactive), 1}
	case bpfobj.LbSchedulerSCHED_WLC:
		return cost{256*active + int64(l.Inactive), weight}
	case bpfobj.LbSchedulerSCHED_NQ:
		if active == 0 {
			return cost{0, 1}
		}
		return cost{active + 1, weight}
	case bpfobj.LbSchedulerSCHED_SED:
		return cost{active + 1, weight}
	case bpfobj.LbSchedulerSCHED_OVF:
		if active > weight {
			return never
		}
	}
	return cost{1, weight}
}

// treeOf says of a service's tree what there is to say against it, and how
// many nodes it has.
func (r *rig) treeOf(k model.ServiceKey) (nodes int, err error) {
	r.Helper()
	t, err := r.load()
	r.must(err)
	svc := t.services[toKey(k)]
	var state bpfobj.LbServiceState
	r.must(r.maps.ServiceStates.Lookup(svc.Id, &state))
	tree := state.Tree
	if tree.Tag == 0 {
		return 0, nil
	}
	order := t.order[svc.Id]
	if tree.First != svc.First || int(tree.Count) != len(order) || int(tree.Leaves) != 1<<bits.Len(uint(len(order)-1)) {
		return 0, fmt.Errorf("a tree %+v of the list %+v", tree, *svc)
	}
	// Winners from the leaves up.
	winner, costs := make([]uint32, 2*tree.Leaves), make([]cost, 2*tree.Leaves)
	for node := range winner {
		winner[node], costs[node] = noServer, cost{1, 0}
	}
	for position, id := range order {
		var l bpfobj.LbLoad
		r.must(r.maps.Loads.Lookup(id, &l))
		if int(l.Position) != position {
			err = errors.Join(err, fmt.Errorf("server %d is at %d, and says %d", id, position, l.Position))
		}
		if c := costOf(tree.Rule, t.servers[id], l); c.weight != 0 {
			winner[int(tree.Leaves)+position], costs[int(tree.Leaves)+position] = id, c
		}
	}
	for node := tree.Leaves - 1; node > 0; node-- {
		who := 2*node + 1
		if costs[2*node].less(costs[who]) {
			who = 2 * node
		}
		winner[node], costs[node] = winner[who], costs[who]
		var pair bpfobj.LbTreePair
		r.must(r.maps.Trees.Lookup(tree.First/2+node/2, &pair))
		value := pair.Node[node%2]
		if uint32(value) != winner[node] || uint32(value>>32) != tree.Tag {
			err = errors.Join(err, fmt.Errorf("node %d is %d of tree %d, want %d of %d", node, uint32(value), value>>32, winner[node], tree.Tag))
		}
	}
	return int(tree.Leaves) - 1, err
}

// treeServer is the i-th of many servers.
func treeServer(i int, weight int32) model.Server {
	s := realServer(i%32, weight)
	s.Port += uint16(i / 32)
	return s
}

// treeSchedulers have one.
var treeSchedulers = []string{"lc", "wlc", "sed", "nq", "fo", "ovf", "rr", "wrr", "lblc", "lblcr", "mh"}

// Whatever happens to a service, its scheduler chooses the server that it would
// choose if it looked at each one, as a choice without effects does; and each node is right.
func TestTreeIsTheWalk(t *testing.T) {
	r := newRig(t, small)
	r.timeouts(time.Hour, everyState()...)
	clients, trees := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r.must(r.Flush())
		s := tcpService(vip, rapid.SampledFrom(treeSchedulers).Draw(t, "scheduler"))
		s.Flags = model.SchedFlag1 // mh-fallback, for which it has a tree
		r.must(r.AddService(s))
		var present []int
		next := 0
		weight := func() int32 { return rapid.SampledFrom([]int32{0, 1, 1, 2, 3, 7, 1000}).Draw(t, "weight") }
		add := func() {
			one := treeServer(next, weight())
			one.Upper = rapid.SampledFrom([]uint32{0, 0, 1, 3}).Draw(t, "upper")
			r.must(r.AddServer(s.Key, one))
			present = append(present, next)
			next++
		}
		r.must(r.Batch(func() error {
			for range rapid.IntRange(0, 40).Draw(t, "servers") {
				add()
			}
			return nil
		}))
		var open []string
		anyOpen := func(t *rapid.T) string {
			if len(open) == 0 {
				t.Skip("no connection")
			}
			return rapid.SampledFrom(open).Draw(t, "client")
		}
		connect := func(client string) bool {
			foretold := r.explain(client, vip).Packet.Server
			got, err := r.fromClient(testenv.TCP(client, vip, "S")).server()
			if foretold == nil && err != nil {
				return false
			}
			if foretold == nil || err != nil || got != foretold.Addr {
				t.Fatalf("%s: %v (%v), want %+v", s.Scheduler, got, err, foretold)
			}
			return true
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				nodes, err := r.treeOf(s.Key)
				if err != nil {
					t.Fatal(s.Scheduler, err)
				}
				trees += min(nodes, 1)
			},
			"connect": func(*rapid.T) {
				clients++
				if client := nthClient(clients); connect(client) {
					open = append(open, client)
				}
			},
			"connect some": func(*rapid.T) {
				for range 10 {
					clients++
					connect(nthClient(clients))
				}
			},
			"establish": func(t *rapid.T) { r.fromClient(testenv.TCP(anyOpen(t), vip, "A")) },
			"finish":    func(t *rapid.T) { r.fromClient(testenv.TCP(anyOpen(t), vip, "FA")) },
			"end, and connect again": func(t *rapid.T) {
				client := anyOpen(t)
				r.fromClient(testenv.TCP(client, vip, "R"))
				r.fromClient(testenv.TCP(client, vip, "S"))
			},
			"add": func(t *rapid.T) { add() },
			"weigh": func(t *rapid.T) {
				if len(present) == 0 {
					t.Skip("no server")
				}
				one := treeServer(rapid.SampledFrom(present).Draw(t, "server"), weight())
				one.Upper = rapid.SampledFrom([]uint32{0, 2, 5}).Draw(t, "upper")
				r.must(r.EditServer(s.Key, one))
			},
			"delete": func(t *rapid.T) {
				if len(present) == 0 {
					t.Skip("no server")
				}
				i := rapid.IntRange(0, len(present)-1).Draw(t, "server")
				r.must(r.DeleteServer(s.Key, treeServer(present[i], 1).AddrPort()))
				present = append(present[:i], present[i+1:]...)
			},
			"edit": func(t *rapid.T) {
				s.Scheduler = rapid.SampledFrom(append(treeSchedulers, "dh")).Draw(t, "scheduler")
				r.must(r.EditService(s))
			},
		})
	})
	if trees == 0 {
		t.Error("no service had a tree")
	}
}

// Packets on several CPUs, and edits: when all are through, every node is what
// it would be if the tree were built now.
func TestTreeUnderTraffic(t *testing.T) {
	const threads, each, servers = 4, 400, 21
	r := newRig(t, small)
	r.timeouts(time.Hour, everyState()...)
	context := skBuff{IngressIfindex: uint32(r.client), Ifindex: uint32(r.client)}
	for round, scheduler := range []string{"lc", "wlc", "sed", "nq", "ovf", "wrr"} {
		s := tcpService(nthVIP(round), scheduler)
		r.must(r.AddService(s))
		for i := range servers {
			one := treeServer(i, int32(1+i%3))
			one.Upper = uint32(i % 4 * 20)
			r.must(r.AddServer(s.Key, one))
		}
		done := make(chan struct{})
		var edits, traffic sync.WaitGroup
		var failed error
		edits.Go(func() {
			for i := 0; failed == nil; i++ {
				select {
				case <-done:
					return
				default:
				}
				extra := treeServer(servers+i%20, 2)
				failed = errors.Join(r.AddServer(s.Key, extra), r.EditServer(s.Key, treeServer(i%7, int32(i%4))),
					r.DeleteServer(s.Key, extra.AddrPort()))
			}
		})
		errs := make([]error, threads)
		for thread := range threads {
			traffic.Go(func() {
				errs[thread] = r.ns.Do(func() error {
					for i := range each {
						for _, flags := range []string{"S", "A", "R", "S"} {
							client := nthClient((round*threads+thread)*each + i)
							if _, err := run(r.progs.LbClient, context, testenv.TCP(client, nthVIP(round), flags).Frame(), 0); err != nil {
								return err
							}
						}
					}
					return nil
				})
			})
		}
		traffic.Wait()
		close(done)
		edits.Wait()
		r.must(append(errs, failed)...)
		if nodes, err := r.treeOf(s.Key); nodes == 0 || err != nil {
			t.Errorf("%s: %d nodes, %v", scheduler, nodes, err)
		}
	}
}

// Two CPUs with nothing but changes of loads: none is lost. The next one repairs
// the nodes that it comes by, so it is looked after a few, again and again.
func TestTreeOfTwoCPUs(t *testing.T) {
	const servers, flows, bursts = 24, 64, 1000
	r := newRig(t, small)
	r.timeouts(time.Hour, everyState()...)
	s := tcpService(vip, "wlc")
	r.must(r.AddService(s))
	for i := range servers {
		r.must(r.AddServer(s.Key, treeServer(i, int32(1+i%3))))
	}
	var loops [2]PacketLoop
	for i := range loops {
		r.must(r.ns.Do(func() (err error) {
			loops[i], err = NewPacketLoop(r.Director, clientDev, serverDev)
			return err
		}))
		defer loops[i].Close()
	}
	for burst := range bursts {
		// Half-open is active, and half-closed is not.
		frame := testenv.TCP(client1, vip, []string{"S", "FA"}[burst%2]).Frame()
		frame = append(frame, make([]byte, PacketLoopBytes-len(frame))...)
		var errs [len(loops)]error
		var traffic sync.WaitGroup
		var ready atomic.Int32
		for i, l := range loops {
			r.must(l.Scene(frame, 0x0a0a0002+uint32(i), flows))
			traffic.Go(func() {
				errs[i] = r.ns.Do(func() error {
					// A burst is as short as the start of a thread.
					for ready.Add(1); ready.Load() < int32(len(loops)); {
					}
					_, _, err := l.Times(flows, FromHere)
					return err
				})
			})
		}
		traffic.Wait()
		r.must(errs[:]...)
		if nodes, err := r.treeOf(s.Key); nodes != 31 || err != nil {
			t.Fatalf("after %d bursts: %d nodes, %v", burst+1, nodes, err)
		}
	}
	if got := r.leftovers(s.Key); got.active+got.inactive != len(loops)*flows {
		t.Errorf("%+v, want %d connections", got, len(loops)*flows)
	}
}

// wrr with one server of a high weight among many of weight 1: who comes is as
// with few, and it does not take a walk over the list for each step of weight.
func TestWeightsFarApart(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "wrr")
	r.must(r.AddService(s))
	const many, high = 200, 60000
	r.must(r.Batch(func() error {
		for i := range many {
			r.must(r.AddServer(s.Key, treeServer(i, 1)))
		}
		return r.AddServer(s.Key, treeServer(many, high))
	}))
	big := treeServer(many, high).AddrPort()
	got := map[netip.AddrPort]int{}
	for i := range many + 1 + high/100 {
		got[r.syn(nthClient(i), vip)]++
	}
	// The first server set the bar to 1: one round of all comes first.
	if got[big] != 1+high/100 || len(got) != many+1 {
		t.Errorf("%d connections of %d servers, want %d", got[big], len(got), 1+high/100)
	}
}
